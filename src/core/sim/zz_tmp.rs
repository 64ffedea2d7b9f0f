#[test]
fn zz_play_files() {
    for file in std::env::var("ZZ").unwrap_or_default().split(',').filter(|f| !f.is_empty()) {
        let text = std::fs::read_to_string(file).unwrap();
        let scenario = super::scenario::Scenario::parse(file, &text).unwrap_or_else(|e| panic!("{e}"));
        let admit = super::fuzz::webhook(crate::admission::Settings::default());
        let mut runner =
            super::scenario::Runner::new(scenario, Some(admit)).unwrap_or_else(|e| panic!("{e}"));
        while let Some(step) = runner.next_step().unwrap_or_else(|e| panic!("{e}")) {
            println!("{file} step {} good {} {:#?}", step.number, step.good(), step.failures());
            for g in &step.gangs {
                println!("   {} {:?} {:?} {}", g.name, g.status.phase, g.status.reason, g.status.message);
            }
            for t in &step.told {
                println!("   told {}: {}", t.note.reason, t.note.message);
            }
        }
    }
}
#[test]
fn zz_seeds() {
    let from: u64 = std::env::var("ZF").unwrap_or_default().parse().unwrap_or(0);
    let to: u64 = std::env::var("ZT").unwrap_or_default().parse().unwrap_or(0);
    let mut bad = 0;
    for seed in from..to {
        let options = super::fuzz::FuzzOptions::default();
        let one = std::panic::catch_unwind(|| super::fuzz::fuzz(seed, &options));
        match one {
            Ok(Ok(_)) => {}
            Ok(Err(f)) => {
                bad += 1;
                println!("{f}");
            }
            Err(_) => {
                bad += 1;
                println!("PANIC seed {seed}");
            }
        }
        if bad > 12 {
            break;
        }
    }
    println!("bad {bad}");
}
#[test]
fn zz_one() {
    let seed: u64 = std::env::var("ZF").unwrap_or_default().parse().unwrap_or(0);
    let scenario = super::fuzz::generate(seed);
    println!("{}", super::fuzz::to_yaml(&scenario));
    let cluster = scenario.settings.options();
    let admit = super::fuzz::webhook(crate::admission::Settings::default());
    let mut runner = super::scenario::Runner::with_options(cluster, scenario.clone(), Some(admit)).unwrap();
    loop {
        let Some(step) = runner.next_step().unwrap() else { break };
        let look = runner.look();
        println!(
            "--- {} at {:?} good {} {:?}",
            step.number,
            look.at,
            step.good(),
            step.violations.iter().map(|v| v.to_string()).collect::<Vec<_>>()
        );
        for g in &look.gangs {
            println!(
                "   {} {:?} {:?} {} plan {:?}",
                g.name,
                g.status.phase,
                g.status.reason,
                g.status.message,
                g.status.plan.as_ref().map(|p| (
                    p.epoch,
                    p.members.iter().map(|m| format!("{}@{}", m.pod, m.node)).collect::<Vec<_>>(),
                    &p.to_come,
                    p.held_until,
                    p.released
                ))
            );
        }
        for p in &look.pods {
            println!("      {:?} {:?} {:?}", p.key, p.node, p.status);
        }
        for t in &step.told {
            println!("   told {} {}: {}", t.note.gang, t.note.reason, t.note.message);
        }
    }
}
