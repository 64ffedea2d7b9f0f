//! The shortcut of planning rounds: which gangs the planner is not asked about.

use std::time::Duration;

use super::lab::{self, Lab};
use super::planning_comparison::PlanningComparison;
use crate::dialect::{Group, Quorum};
use crate::engine::{Change, Engine, EngineSettings, Event, ListedObjects};
use crate::model::random::Random;
use crate::model::{DialectId, Epoch, GangId, PodUid, Time};
use crate::objects::{Node, names};
use crate::pod::Pod;

fn pod(name: &str, group: Option<usize>, node: Option<u64>, gpus: u64) -> Pod {
    let group = group.map(|g| format!(r#""pod-group-name":"g{g}""#)).unwrap_or_default();
    let place = node.map_or_else(
        || r#""schedulingGates":[{"name":"portcullis.dev/gang"}]"#.to_owned(),
        |node| format!(r#""nodeName":"n{node}""#),
    );
    let json = format!(
        r#"{{"metadata":{{"namespace":"x","name":"{name}","uid":"{name}","resourceVersion":"1","annotations":{{{group}}}}},
            "spec":{{{place},"containers":[{{"name":"c","resources":{{"requests":{{"nvidia.com/gpu":"{gpus}"}}}}}}]}}}}"#
    );
    Pod::read(&json).expect("the pod above can be read")
}

fn node(index: u64) -> Node {
    let json = format!(
        r#"{{"metadata":{{"name":"n{index}"}},"status":{{"allocatable":{{"cpu":"64","memory":"1Ti","pods":"110",
            "nvidia.com/gpu":"8"}},"conditions":[{{"type":"Ready","status":"True"}}]}}}}"#
    );
    Node::read(&json).expect("the node above can be read")
}

/// Compares every planning round with one without the shortcut, on long queues, with capacity that is freed
/// and taken, and gangs that arrive, have equal or different requests, and lose members.
#[test]
fn the_shortcut_plans_the_same_as_planning_every_gang() {
    const GANGS: usize = 45;
    let mut planned = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut engine = Engine::new(EngineSettings::default());
        let mut now = Time(1_000_000);
        let groups = (0..GANGS).map(|g| {
            let quorum = Quorum::Count(u32::try_from(random.between(1, 3)).expect("small"));
            Group::new(GangId::new(DialectId::Kai, "x", format!("g{g}")), quorum)
                .with_object(&format!("uid-{g}"))
        });
        let groups = crate::dialect::objects_by_kind(groups);
        // Nearly full at first, so that a long queue forms.
        let mut pods: Vec<Pod> = (0..6).map(|n| pod(&format!("foreign-{n}-7"), None, Some(n), 7)).collect();
        let mut sizes = Vec::new();
        for gang in 0..GANGS {
            sizes.push(random.between(2, 8));
            if gang < 35 {
                pods.extend((0..3).map(|m| pod(&format!("g{gang}-{m}"), Some(gang), None, sizes[gang])));
            }
        }
        let world = ListedObjects {
            nodes: Some((0..6).map(node).collect()),
            pods: Some(pods),
            groups,
            gangs: Some(Vec::new()),
            ..ListedObjects::default()
        };
        let mut tell = |engine: &mut Engine, event| {
            now = now.after(Duration::from_millis(300));
            let mut comparison = PlanningComparison::default();
            engine.steps_observed([event], now, &mut comparison);
            assert_eq!(comparison.problems, Vec::<String>::new(), "seed {seed}");
            engine.assert_consistent();
        };
        tell(&mut engine, Event::LeaseAcquired(Epoch(1)));
        tell(&mut engine, Event::Listed(Epoch(1), world));
        tell(&mut engine, Event::Tick);
        assert!(engine.queue.is_long(), "seed {seed}: {} wait", engine.queue.len());
        for _ in 0..60 {
            let (gang, member) =
                (usize::try_from(random.below(GANGS as u64)).expect("small"), random.below(3));
            let (place, gpus) = (random.below(6), random.between(1, 7));
            let event = match random.below(5) {
                0 => {
                    Event::Pod(Change::Set(pod(&format!("foreign-{place}-{gpus}"), None, Some(place), gpus)))
                }
                1 | 2 => Event::Pod(Change::Gone(PodUid::from(&*format!("foreign-{place}-7")))),
                3 => Event::Pod(Change::Gone(PodUid::from(&*format!("g{gang}-{member}")))),
                _ => {
                    Event::Pod(Change::Set(pod(&format!("g{gang}-{member}"), Some(gang), None, sizes[gang])))
                }
            };
            tell(&mut engine, event);
            tell(&mut engine, Event::Tick);
        }
        planned += engine.gangs.values().filter(|gang| gang.lifecycle.progress.plan().is_some()).count();
    }
    assert!(planned > 200, "only {planned} gangs were planned");
}

/// The only gang in the queue keeps its place whatever its rank is.
#[test]
fn the_comparison_finds_an_outdated_rank_that_keeps_the_order() {
    let large = lab::pod("large", 20_000, &[names::GATE]);
    let uid = large.uid.clone();
    let (lab, _) = Lab::leading(
        &EngineSettings::default(),
        vec![lab::node("gpu-1", 1, "")],
        vec![lab::group(1)],
        vec![large],
    );
    let mut engine = lab.engine;
    assert_eq!(engine.queue.len(), 1);
    let mut problems = |change: fn(&mut Pod)| {
        let member = engine.member_mut(&uid).expect("the gang has one member");
        change(&mut member.pod);
        engine.plan_needed = true;
        let mut comparison = PlanningComparison::default();
        engine.steps_observed([Event::Tick], lab.now, &mut comparison);
        comparison.problems
    };
    assert_eq!(problems(|_| {}), Vec::<String>::new());
    let outdated = problems(|pod| pod.priority = 7);
    assert!(outdated.iter().any(|problem| problem.contains("priority: 7")), "{outdated:?}");
    let outdated = problems(|pod| (pod.priority, pod.created) = (0, Time(pod.created.0 + 1)));
    assert!(outdated.iter().any(|problem| problem.contains("out of date")), "{outdated:?}");
}
