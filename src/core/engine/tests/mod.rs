//! Tests of the engine, one rule each. The test plays the API server, one answer at a time. `portcullis-sim`
//! plays it for whole scenarios, and `explore` in every order of events.

mod counting;
mod elastic;
mod explore;
mod lab;
mod lift_trial;
mod member_index;
#[path = "../../../sim/planning_comparison.rs"]
mod planning_comparison;
mod planning_rounds;
mod refusals;
mod refuted_plans;
mod status_writes;
mod timeouts;

use std::time::Duration;

use super::*;
use crate::dialect::{GangPolicies, Group, OnTorn, Quorum, objects_by_kind};
use crate::model::{DialectId, NodeName, PodKey, Reason, ResourceVersion, str};
use crate::objects::{ObjectRef, PodLabels, names};
use crate::pod::{OwnerState, Pod};
use lab::{Lab, START, gang_id, group, node, pod};

fn is_lift(action: &Action) -> bool {
    matches!(action, Action::Lift { .. })
}

fn is_record(action: &Action) -> bool {
    matches!(action, Action::WriteGang { status, .. } if status.plan.is_some())
}

fn recorded_events(actions: &[Action]) -> Vec<(Reason, &str)> {
    let events = actions.iter().filter_map(|action| match action {
        Action::RecordEvent(event) => Some((event.reason, &*event.message)),
        _ => None,
    });
    events.collect()
}

fn three() -> Vec<Pod> {
    [("app-server", 4000), ("model-1", 3000), ("model-2", 3000)]
        .map(|(n, mib)| pod(n, mib, &[names::GATE]))
        .into()
}

fn leading_three() -> (Lab, Vec<Action>) {
    Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(3)], three())
}

#[test]
fn no_member_is_lifted_before_the_gang_is_complete() {
    let mut pods = three();
    let last = pods.pop().expect("three");
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(3)], pods);
    let left = lab.run(actions, |_| false);
    assert_eq!(recorded_events(&left), []);
    assert_eq!(lab.gated(), ["app-server", "model-1"]);
    assert_eq!(lab.status().phase, Phase::Gathering);
    assert_eq!(lab.status().message, "2 of 3 members are here; waiting for 1 more pod");

    lab.pods.insert(last.uid.clone(), last.clone());
    let mut actions = lab.step(Event::Pod(Change::Set(last)));
    actions.extend(lab.tick());
    let left = lab.run(actions, |_| false);
    assert_eq!(lab.gated(), Vec::<&str>::new());
    assert_eq!(
        recorded_events(&left),
        [(Reason::Lifted, "3 of 3 lifted: app-server -> gpu-1[0], model-1 -> gpu-1[0], model-2 -> gpu-1[0]")]
    );
    for name in ["app-server", "model-1", "model-2"] {
        lab.bind(name, "gpu-1");
    }
    assert_eq!((lab.status().phase, &*lab.status().message), (Phase::Admitted, "3 of 3 members are bound"));
}

/// The plan is durable first, then the lease is read, and only then are gates removed.
#[test]
fn the_plan_is_durable_and_the_lease_is_read_before_a_member_is_lifted() {
    let (mut lab, actions) = leading_three();
    let left = lab.run(actions, is_record);
    assert_eq!(left.len(), 1, "nothing goes on while the plan is on its way: {left:?}");
    let actions = lab.carry_out(&left[0]);
    let mut actions = lab.run(actions, |a| matches!(a, Action::ReadLease));
    assert_eq!(actions, [Action::ReadLease], "nothing is lifted while the lease is being read");
    let actions = lab.carry_out(&actions.remove(0));
    assert_eq!(actions.iter().filter(|a| is_lift(a)).count(), 3, "then all at once: {actions:?}");
}

#[test]
fn the_engine_steps_down_if_the_lease_names_another_holder() {
    let (mut lab, actions) = leading_three();
    let left = lab.run(actions, |a| matches!(a, Action::ReadLease));
    assert_eq!(left, [Action::ReadLease]);
    assert_eq!(lab.answer(RequestTarget::Lease, RequestOutcome::Lease { ours: false }), [Action::StepDown]);
    assert_eq!(lab.engine.epoch(), None);
    assert_eq!(lab.gated().len(), 3);
}

#[test]
fn a_conflict_on_the_gang_object_drops_the_plan_and_reads_again() {
    let (mut lab, actions) = leading_three();
    let left = lab.run(actions, is_record);
    lab.version += 1;
    if let Some(stored) = &mut lab.stored {
        stored.resource_version = ResourceVersion(lab.version);
    }
    let actions = lab.answer(RequestTarget::Gang(gang_id()), RequestOutcome::Conflict);
    assert_eq!(actions, [Action::ReadGang { gang: gang_id() }], "{left:?}");
    lab.run(actions, |_| false);
    assert_eq!(lab.gated(), Vec::<&str>::new());
}

#[test]
fn the_engine_steps_down_on_a_newer_epoch() {
    let (mut lab, actions) = leading_three();
    lab.run(actions, is_record);
    let plan = PlanRecord { epoch: Epoch(4), deadline: START, ..PlanRecord::default() };
    let record = GangRecord {
        gang: gang_id(),
        resource_version: ResourceVersion(500),
        generation: 1,
        status: GangStatus { plan: Some(plan), ..GangStatus::default() },
    };
    assert_eq!(lab.step(Event::Gang(Change::Set(record))), [Action::StepDown]);
}

/// Found by the exhaustive search: a deposed leader recorded its plan again each time the new leader removed
/// it, without end.
#[test]
fn the_engine_steps_down_if_a_newer_epoch_removed_its_plan() {
    let (mut lab, actions) = leading_three();
    lab.run(actions, |a| matches!(a, Action::ReadLease));
    let status = GangStatus { epoch: Epoch(4), plan: None, ..lab.status().clone() };
    let record =
        GangRecord { gang: gang_id(), resource_version: ResourceVersion(500), generation: 1, status };
    assert_eq!(lab.step(Event::Gang(Change::Set(record))), [Action::StepDown]);
}

/// Found by seeds 26 and 42: the read returned the known version, and was repeated without end.
#[test]
fn a_lost_nomination_that_changed_nothing_is_read_once() {
    let settings = EngineSettings { nominate: NominationMode::Always, ..EngineSettings::default() };
    let (mut lab, actions) = Lab::leading(&settings, vec![node("gpu-1", 1, "")], vec![group(3)], three());
    let mut nominations = lab.run(actions, |a| matches!(a, Action::Nominate { .. }));
    assert_eq!(nominations.len(), 3);
    let Action::Nominate { pod, .. } = nominations.remove(0) else { panic!("it was chosen so") };
    let mut actions = lab.answer(RequestTarget::Pod(pod.uid.clone()), RequestOutcome::Unknown);
    actions.extend(nominations);
    let left = lab.run(actions, |a| matches!(a, Action::ReadPod { .. }));
    assert_eq!(left, [], "the others do not wait for it, and it is left alone for a while");
    lab.now = lab.now.after(Duration::from_millis(100));
    let mut actions = lab.tick();
    assert_eq!(actions, [Action::ReadPod { pod: pod.clone() }]);
    actions = lab.carry_out(&actions.remove(0));
    assert!(!actions.contains(&Action::ReadPod { pod }), "{actions:?}");
    lab.run(actions, |_| false);
    assert_eq!(lab.gated(), Vec::<&str>::new());
}

/// Found by seed 3109: the timer fired while a request was unanswered, and was never set again.
#[test]
fn a_plan_write_without_an_answer_is_read_and_then_carried_out_or_repeated() {
    for written in [true, false] {
        let (mut lab, actions) = leading_three();
        let mut records = lab.run(actions, is_record);
        if written {
            let Action::WriteGang { gang, status, .. } = records.remove(0) else {
                panic!("it was chosen so")
            };
            lab.version += 1;
            lab.stored = Some(GangRecord {
                gang,
                resource_version: ResourceVersion(lab.version),
                generation: 1,
                status,
            });
        }
        let actions = lab.answer(RequestTarget::Gang(gang_id()), RequestOutcome::Unknown);
        assert_eq!(lab.run(actions, |_| false), [], "nothing is lifted on a guess");
        assert_eq!(lab.gated().len(), 3);
        lab.now = lab.now.after(Duration::from_millis(100));
        let actions = lab.tick();
        assert_eq!(actions, [Action::ReadGang { gang: gang_id() }]);
        lab.run(actions, |_| false);
        assert_eq!(lab.gated(), Vec::<&str>::new(), "written: {written}");
    }
}

/// After a conflict the engine reads the pod, then the lease, then tries again.
#[test]
fn a_changed_pod_is_read_and_the_lease_too_before_the_pod_is_lifted() {
    let (mut lab, actions) = leading_three();
    let lifts = lab.run(actions, is_lift);
    let uid = PodUid::from("uid-app-server");
    lab.touch(&uid, |_| {});
    let mut actions = lab.answer(RequestTarget::Pod(uid.clone()), RequestOutcome::Conflict);
    let key = PodKey::new("default", "app-server");
    assert_eq!(actions, [Action::ReadPod { pod: PodRef { key, uid: uid.clone() } }]);
    actions = lab.carry_out(&actions.remove(0));
    assert_eq!(actions, [Action::ReadLease]);
    actions = lab.carry_out(&actions.remove(0));
    assert!(
        matches!(&actions[..], [Action::Lift { permit: Some(v), .. }] if *v == lab.pods[&uid].resource_version)
    );
    let rest: Vec<Action> =
        lifts.into_iter().filter(|a| !matches!(a, Action::Lift { pod, .. } if pod.uid == uid)).collect();
    lab.run(actions, |_| false);
    lab.run(rest, |_| false);
    assert_eq!(lab.gated(), Vec::<&str>::new());
}

/// A lift without an answer may still be applied, so the engine fences the pod first.
#[test]
fn a_lift_without_an_answer_is_fenced_before_a_retry() {
    let (mut lab, actions) = leading_three();
    lab.run(actions, is_lift);
    let uid = PodUid::from("uid-app-server");
    let actions = lab.answer(RequestTarget::Pod(uid), RequestOutcome::Unknown);
    assert_eq!(actions, []);
    lab.now = lab.now.after(Duration::from_millis(50));
    let actions = lab.tick();
    assert!(matches!(&actions[..], [Action::Fence { .. }]), "{actions:?}");
}

#[test]
fn a_node_cordoned_before_the_lift_invalidates_the_plan() {
    let nodes = vec![node("gpu-1", 1, ""), node("gpu-2", 1, "")];
    let (mut lab, actions) = Lab::leading(&EngineSettings::default(), nodes, vec![group(3)], three());
    let left = lab.run(actions, |a| matches!(a, Action::ReadLease));
    let planned = lab.status().plan.as_ref().expect("planned").members[0].node.clone();
    let other = if planned.as_str() == "gpu-1" { "gpu-2" } else { "gpu-1" };
    let cordoned = node(planned.as_str(), 1, r#","unschedulable":true"#);
    let mut actions = lab.step(Event::Node(Change::Set(cordoned)));
    actions.extend(left);
    actions.extend(lab.tick());
    lab.run(actions, |_| false);
    assert_eq!(lab.gated(), Vec::<&str>::new());
    let plan = lab.status().plan.as_ref().expect("planned again");
    assert!(plan.members.iter().all(|m| m.node.as_str() == other), "{plan:?}");
}

#[test]
fn a_member_deleted_before_the_lift_invalidates_the_plan_and_frees_capacity() {
    let (mut lab, actions) = leading_three();
    let left = lab.run(actions, |a| matches!(a, Action::ReadLease));
    let uid = PodUid::from("uid-model-2");
    lab.pods.remove(&uid);
    let mut actions = lab.step(Event::Pod(Change::Gone(uid)));
    actions.extend(left);
    lab.run(actions, |_| false);
    assert_eq!(lab.gated(), ["app-server", "model-1"]);
    assert_eq!((lab.status().phase, &lab.status().plan), (Phase::Gathering, &None));
    assert_eq!(lab.engine.snapshot().charges().count(), 0, "nothing is held for a plan that is no more");
}

#[test]
fn the_next_leader_lifts_the_rest_of_a_partly_lifted_gang() {
    let (mut lab, actions) = leading_three();
    let lifts = lab.run(actions, is_lift);
    lab.carry_out(&lifts[0]);
    // The leader dies here. Its other two lifts may still arrive.
    let settings = EngineSettings { status_delay: Duration::ZERO, ..EngineSettings::default() };
    lab.engine = Engine::new(settings);
    assert_eq!(lab.step(Event::LeaseAcquired(Epoch(4))), [Action::List]);
    let world = ListedObjects {
        nodes: Some(vec![node("gpu-1", 1, "")]),
        pods: Some(lab.pods.values().cloned().collect()),
        groups: objects_by_kind([group(3)]),
        gangs: Some(lab.stored.iter().cloned().collect()),
        ..ListedObjects::default()
    };
    let actions = lab.step(Event::Listed(Epoch(4), world));
    assert!(
        matches!(&actions[..], [Action::Fence { .. }, Action::Fence { .. }]),
        "what is still gated is fenced before anything else: {actions:?}"
    );
    lab.run(actions, |_| false);
    assert_eq!(lab.gated(), Vec::<&str>::new());
    assert_eq!(lab.status().plan.as_ref().map(|p| p.epoch), Some(Epoch(4)), "adopted under the new epoch");
}

/// Only the controller of a foreign gate removes it.
#[test]
fn the_status_names_a_member_with_a_foreign_gate() {
    let mut pods = three();
    pods[1] = pod("model-1", 3000, &["example.com/hold", names::GATE]);
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(3)], pods);
    let left = lab.run(actions, |_| false);
    assert_eq!(lab.gated().len(), 3);
    assert_eq!(lab.status().reason, Some(Reason::ForeignGate));
    assert_eq!(
        recorded_events(&left),
        [(
            Reason::ForeignGate,
            "2 of 3 members are ready; pod model-1 is held by the scheduling gate example.com/hold, which another controller has to remove"
        )]
    );
}

#[test]
fn a_gang_without_its_group_object_waits_with_a_reason() {
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], Vec::new(), three());
    lab.run(actions, |_| false);
    assert_eq!(lab.status().reason, Some(Reason::GroupNotFound));
    assert_eq!(
        lab.status().message,
        "3 pods name the group default/app, which does not exist; they start when it does"
    );
    let mut actions = lab.step(Event::Group(Change::Set(group(3).into())));
    actions.extend(lab.tick());
    lab.run(actions, |_| false);
    assert_eq!(lab.gated(), Vec::<&str>::new());
}

/// The status explains why a gang waits, and the engine writes it only if there is news.
#[test]
fn a_gang_that_does_not_fit_reports_what_is_short_once() {
    let pods = [("a", 8000), ("b", 8000)].map(|(n, mib)| pod(n, mib, &[names::GATE])).into();
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(2)], pods);
    let left = lab.run(actions, |_| false);
    let status = lab.status().clone();
    assert_eq!((status.phase, status.position), (Phase::Waiting, Some(1)));
    assert!(status.message.contains("MiB"), "{}", status.message);
    assert_eq!(recorded_events(&left).len(), 1, "{left:?}");
    lab.now = lab.now.after(Duration::from_secs(600));
    assert_eq!(lab.tick(), []);
}

#[test]
fn a_torn_gang_is_reported_and_held_or_evicted_by_policy() {
    use OnTorn::{Evict, Hold};
    for (set, said, on_torn) in
        [(Hold, None, Hold), (Evict, None, Evict), (Hold, Some(Evict), Evict), (Evict, Some(Hold), Hold)]
    {
        let settings = EngineSettings { on_torn: set, ..EngineSettings::default() };
        let gang = Group { policies: GangPolicies { on_torn: said, ..GangPolicies::default() }, ..group(3) };
        let (mut lab, actions) = Lab::leading(&settings, vec![node("gpu-1", 1, "")], vec![gang], three());
        lab.run(actions, |_| false);
        lab.bind("app-server", "gpu-1");
        lab.now = lab.now.after(Duration::from_secs(61));
        let actions = lab.tick();
        let left = lab.run(actions, |_| false);
        assert_eq!(lab.status().phase, Phase::Torn);
        assert!(
            lab.status()
                .message
                .ends_with(": model-1 and model-2 not bound: the scheduler has not tried gpu-1 yet"),
            "{}",
            lab.status().message
        );
        assert_eq!(recorded_events(&left).iter().map(|n| n.0).collect::<Vec<_>>(), [Reason::Torn]);
        let evicted = left.iter().filter(|a| matches!(a, Action::Evict { .. })).count();
        assert_eq!(evicted, if on_torn == Evict { 3 } else { 0 });
        // A lifted pod that may still be bound keeps its charge.
        assert_eq!(lab.engine.snapshot().charges().count(), 3);
        lab.bind("model-1", "gpu-1");
        lab.bind("model-2", "gpu-1");
        assert_eq!(lab.status().phase, Phase::Admitted);
    }
}

#[test]
fn an_extra_member_is_planned_alone() {
    let mut pods = three();
    pods.iter_mut().for_each(|p| *p = pod(&p.key.name, 2000, &[names::GATE]));
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(3)], pods);
    lab.run(actions, |_| false);
    for name in ["app-server", "model-1", "model-2"] {
        lab.bind(name, "gpu-1");
    }
    let extra = pod("model-3", 4000, &[names::GATE]);
    lab.pods.insert(extra.uid.clone(), extra.clone());
    let mut actions = lab.step(Event::Pod(Change::Set(extra)));
    actions.extend(lab.tick());
    lab.run(actions, |_| false);
    assert_eq!(lab.gated(), Vec::<&str>::new());
    assert_eq!(lab.status().plan.as_ref().map(|p| p.members.len()), Some(1));
}

#[test]
fn the_gang_object_is_deleted_with_the_last_member() {
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(9)], three());
    lab.run(actions, |_| false);
    assert!(lab.stored.is_some());
    for name in ["app-server", "model-1", "model-2"] {
        let uid = PodUid::from(&*format!("uid-{name}"));
        lab.pods.remove(&uid);
        let actions = lab.step(Event::Pod(Change::Gone(uid)));
        lab.run(actions, |_| false);
    }
    assert_eq!(lab.stored, None);
    assert!(lab.engine.gangs.is_empty());
}

/// The cost of a gang that fits: two writes of its object, one trial of each pod without a controller, one
/// write per gate, and one event.
#[test]
fn a_gang_that_fits_costs_the_minimum_of_requests() {
    let settings = EngineSettings { status_delay: Duration::from_millis(500), ..EngineSettings::default() };
    let (mut lab, actions) = leading_three();
    lab.engine.settings = settings;
    let mut sent: Vec<String> = Vec::new();
    let mut queue: std::collections::VecDeque<Action> = actions.into();
    while let Some(action) = queue.pop_front() {
        let name = format!("{action:?}");
        sent.push(name.split([' ', '(']).next().unwrap_or_default().to_owned());
        if !matches!(action, Action::RecordEvent(_)) {
            queue.extend(lab.carry_out(&action));
            queue.extend(lab.tick());
        }
        if queue.is_empty() && lab.gated().is_empty() && lab.pods.values().any(|p| p.node.is_none()) {
            for name in ["app-server", "model-1", "model-2"] {
                let uid = PodUid::from(&*format!("uid-{name}"));
                lab.touch(&uid, |p| p.node = Some(NodeName::from("gpu-1")));
                queue.extend(lab.step(Event::Pod(Change::Set(lab.pods[&uid].clone()))));
            }
        }
    }
    sent.sort();
    assert_eq!(
        sent,
        [
            "CreateGang",
            "Lift",
            "Lift",
            "Lift",
            "ReadLease",
            "RecordEvent",
            "TryLift",
            "TryLift",
            "TryLift",
            "WriteGang",
            "WriteGang"
        ]
    );
    assert_eq!(lab.status().phase, Phase::Admitted);
    assert_eq!((&*lab.status().ready, &*lab.status().waiting_for), ("3/3", ""));
}

/// A pod without a gang could take the capacity between the plan and the bind.
#[test]
fn members_are_nominated_while_another_pod_waits_for_a_scheduler() {
    let foreign = |gates: &str, node: &str| {
        let json = format!(
            r#"{{"metadata":{{"namespace":"x","name":"f","uid":"f","resourceVersion":"1"}},
                "spec":{{"schedulingGates":[{gates}],"nodeName":"{node}","containers":[{{"name":"c"}}]}}}}"#
        );
        Pod::read(&json).expect("the pod above can be read")
    };
    let gate = r#"{"name":"example.com/hold"}"#;
    for (pod, mode, nominated) in [
        (None, NominationMode::Contended, 0),
        (Some(foreign("", "")), NominationMode::Contended, 3),
        (Some(foreign("", "gpu-1")), NominationMode::Contended, 0),
        (Some(foreign(gate, "")), NominationMode::Contended, 0),
        (None, NominationMode::Always, 3),
        (Some(foreign("", "")), NominationMode::Never, 0),
    ] {
        let settings = EngineSettings { nominate: mode, ..EngineSettings::default() };
        let pods = three().into_iter().chain(pod.clone()).collect();
        let (mut lab, actions) = Lab::leading(&settings, vec![node("gpu-1", 1, "")], vec![group(3)], pods);
        let left = lab.run(actions, |action| matches!(action, Action::Nominate { .. }));
        let found = left.iter().filter(|action| matches!(action, Action::Nominate { .. })).count();
        assert_eq!(found, nominated, "{mode:?} {pod:?}");
    }
}
