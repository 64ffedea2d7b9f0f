//! Runs every file of `tests/scenarios` on the simulated cluster, with the real admission code as its
//! webhook.

use std::path::{Path, PathBuf};

use portcullis_core::admission;
use portcullis_sim::fuzz::webhook;
use portcullis_sim::scenario::{Runner, Scenario};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = std::fs::read_dir(folder).expect("the folder of scenarios is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn play(file: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let scenario = Scenario::parse(&file.display().to_string(), &text).map_err(|e| e.to_string())?;
    let admit = webhook(admission::AdmissionSettings::default());
    let mut runner = Runner::new(scenario, Some(admit)).map_err(|e| e.to_string())?;
    let mut expectations = 0;
    while let Some(step) = runner.next_step().map_err(|e| e.to_string())? {
        expectations += step.expectations.len();
        if !step.is_as_expected() {
            let gangs: Vec<String> =
                step.gangs.iter().map(|gang| format!("{}: {:?}", gang.name, gang.status)).collect();
            return Err(format!(
                "{}:{} step {}:\n  {}\n  output: {:#?}\n  gangs: {gangs:#?}",
                file.display(),
                step.line,
                step.number,
                step.failures().join("\n  "),
                step.output
            ));
        }
    }
    if expectations == 0 { Err(format!("{} expects nothing", file.display())) } else { Ok(()) }
}

#[test]
fn every_scenario_meets_its_expectations() {
    let files = files();
    assert!(files.len() >= 10, "only {} scenarios were found", files.len());
    let failures: Vec<String> = files.iter().filter_map(|file| play(file).err()).collect();
    assert!(failures.is_empty(), "{} of {} fail:\n{}", failures.len(), files.len(), failures.join("\n"));
}

/// A gang of three starts whole wherever the leader dies or pauses: after its first request, its second, and
/// so on, until the protocol has no further request.
#[test]
fn a_gang_starts_whole_when_the_leader_dies_or_pauses_between_any_two_effects() {
    let text = include_str!("../scenarios/leader-killed-after-lift-1.yaml");
    let modes = ["contended", "always"];
    for (mishap, mode) in
        ["killLeader: 30s", "pauseLeader: 40s"].into_iter().flat_map(|m| modes.map(|n| (m, n)))
    {
        let mut points = 0;
        let text = format!("settings: {{nominate: {mode}}}\n{text}");
        loop {
            let fault = format!("{{after: request, count: {}, {mishap}}}", points + 1);
            let text = text.replace("{after: lift, count: 1, killLeader: 30s}", &fault);
            assert!(text.contains(&fault), "the scenario has the fault that this test replaces");
            let scenario = Scenario::parse("crash.yaml", &text).expect("a valid scenario");
            let mut runner = Runner::new(scenario, Some(webhook(admission::AdmissionSettings::default())))
                .expect("a cluster");
            let step = runner.next_step().expect("a step").expect("there is a step");
            let failures = step.failures();
            if failures.len() == 1 && failures[0].ends_with("it did not happen") {
                break;
            }
            assert!(step.is_as_expected(), "{fault}:\n{}", failures.join("\n"));
            points += 1;
        }
        // The Gang object, its plan, a read of the lease, three lifts, the final status; and three
        // nominations.
        let expected = if mode == "always" { 10 } else { 7 };
        assert!(points >= expected, "{mishap} was tried at {points} points only");
        println!("{mishap}, nominations {mode}: whole after each of {points} requests");
    }
}

#[test]
fn a_failed_expectation_is_reported() {
    let text = "name: wrong\ncluster: {nodes: [{name: n}]}\nsteps:\n- expect: {running: [missing]}\n";
    let scenario = Scenario::parse("wrong.yaml", text).expect("a valid scenario");
    let mut runner = Runner::new(scenario, None).expect("a cluster");
    let step = runner.next_step().expect("a step").expect("there is a step");
    assert_eq!(step.failures(), ["line 4: expected that missing runs, but there is no pod missing"]);
}
