//! Faults between the program and the API server: late answers, lost answers, refusals, and cut watches.
//!
//! Each kind of fault applies alone to some of the requests, and then all kinds together. Both replicas use
//! the same proxy.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::Method;
use portcullis_core::model::random::Random;
use portcullis_test_cluster::wait::WAIT_TIMEOUT;
use portcullis_test_cluster::{FaultAction, Node, Portcullis, ProgramOptions, Proxy, Rule};

use super::stage::{Gang, MemberRequest, Stage, cluster, program};

const WRITES: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Each kind of fault alone.
fn kinds() -> Vec<Vec<Rule>> {
    let some = |name: &str, percent, what| Rule::new(name, what).percent(percent);
    let answer = |code, retry_after| FaultAction::Answer { code, retry_after };
    let done = |code| FaultAction::AnswerAfter { code };
    let too_old = some("watch too old", 40, answer(410, None)).path("watch=1");
    let broken = some("list broken off", 30, FaultAction::CutAfter(Duration::ZERO))
        .methods(&[Method::GET])
        .path("limit=");
    let alone = [
        some("late", 30, FaultAction::Delay(Duration::from_millis(300))),
        some("never sent", 20, FaultAction::DropBefore),
        some("done and not answered", 30, FaultAction::DropAfter).methods(&WRITES),
        some("409", 20, answer(409, None)).methods(&WRITES),
        some("done and answered 409", 20, done(409)).methods(&WRITES),
        some("422", 20, answer(422, None)).methods(&[Method::PATCH]),
        some("429", 20, answer(429, Some(1))),
        some("500", 20, answer(500, None)),
        some("done and answered 500", 30, done(500)).methods(&WRITES),
        some("503", 20, answer(503, Some(1))),
        some("done and answered 504", 20, done(504)).methods(&WRITES),
        some("watch cut", 100, FaultAction::CutAfter(Duration::from_millis(150))).path("watch=1"),
    ];
    let mut kinds: Vec<Vec<Rule>> = alone.into_iter().map(|rule| vec![rule]).collect();
    // A client whose resource version is too old must list, again and again.
    let cut = some("watch cut soon", 100, FaultAction::CutAfter(Duration::from_millis(300))).path("watch=1");
    kinds.push(vec![broken, too_old, cut]);
    kinds
}

#[test]
fn gangs_start_whole_when_answers_are_late_lost_or_errors() {
    let Some(cluster) = cluster() else { return };
    let seed = std::env::var("PORTCULLIS_FAULTS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs());
    println!("PORTCULLIS_FAULTS_SEED={seed}");
    let nodes = [
        Node::shared("cards", 2, 32_768),
        Node::whole("whole-1", 8),
        Node::whole("whole-2", 8),
        Node::plain("elsewhere"),
    ];
    cluster.create_nodes(&nodes).unwrap();
    let proxy = Proxy::start(&cluster, seed).unwrap();
    let options = ProgramOptions { kubeconfig: Some(proxy.kubeconfig().to_path_buf()), ..program(&cluster) };
    let portcullis = Portcullis::start(&cluster, options).unwrap();
    let stage = Stage::new(&cluster, &portcullis);
    let mut random = Random::new(seed);
    stage.watched(|| {
        for rules in kinds() {
            let names: Vec<String> = rules.iter().map(|rule| rule.name().to_owned()).collect();
            proxy.set(rules);
            create_and_delete_gangs(&stage, &proxy, &names.join(", "), 8, &mut random);
            let applied = proxy.applied();
            for name in names {
                assert!(applied.contains_key(&name), "the rule {name} has never applied: {applied:?}");
            }
        }
        // A few percent of each kind at any time, and watches that are cut soon.
        proxy.set(kinds().into_iter().flatten().map(|rule| rule.percent(4)));
        create_and_delete_gangs(&stage, &proxy, "all of them", 20, &mut random);
    });
    println!("{:#?}", proxy.applied());
}

/// Gangs are created in waves and deleted, before or after they are admitted. All remaining gangs must start
/// at the end.
fn create_and_delete_gangs(stage: &Stage<'_>, proxy: &Proxy, what: &str, count: usize, random: &mut Random) {
    let began = Instant::now();
    let namespace = stage.namespace("answers");
    let mut here: Vec<Gang> = Vec::new();
    for index in 0..count {
        let ask = if random.percent(50) { MemberRequest::Vram(10_000) } else { MemberRequest::Whole(2) };
        let gang = Gang::new(&namespace, &format!("gang-{index}"), 3, ask);
        stage.create_gang(&gang);
        here.push(gang);
        // Two gangs fit on the shared cards, and two on the whole ones.
        if here.len() >= 5 {
            let leaves = random.below(5);
            stage.delete_gang(&here.remove(usize::try_from(leaves).unwrap()));
        }
    }
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while here.len() > 2 {
        if let Some(admitted) = here.iter().position(|gang| stage.phase(gang) == "Admitted") {
            stage.delete_gang(&here.remove(admitted));
        }
        assert!(Instant::now() < deadline, "{what}: of {here:?} none is admitted");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The gangs must start while the faults continue.
    for gang in &here {
        stage.wait_phase(gang, "Admitted");
    }
    proxy.set([]);
    stage.settle(what);
    for gang in &here {
        stage.delete_gang(gang);
    }
    stage.wait_gone(&namespace);
    println!("{what}: {:.1} s", began.elapsed().as_secs_f32());
}
