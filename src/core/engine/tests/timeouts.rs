//! Start timeouts and stale gangs: cases that need two leaders, or an unusual history.

use super::*;
use crate::dialect::{GangPolicies, OnTimeout};

fn evicted(actions: &[Action]) -> Vec<&str> {
    let names = actions.iter().filter_map(|action| match action {
        Action::Evict { pod, .. } => Some(&*pod.key.name),
        _ => None,
    });
    names.collect()
}

fn later(lab: &mut Lab, seconds: u64) -> Vec<Action> {
    lab.now = lab.now.after(Duration::from_secs(seconds));
    let actions = lab.tick();
    lab.run(actions, |_| false)
}

fn running(lab: &mut Lab) {
    for name in ["app-server", "model-1", "model-2"] {
        lab.bind(name, "gpu-1");
    }
    assert_eq!((lab.status().phase, lab.status().started_with), (Phase::Admitted, 3));
}

fn gone(lab: &mut Lab, name: &str) {
    let uid = PodUid::from(&*format!("uid-{name}"));
    lab.pods.remove(&uid);
    let actions = lab.step(Event::Pod(Change::Gone(uid)));
    lab.run(actions, |_| false);
}

/// The expiry by the other leader was durable before the plan: the plan is dropped, and the pods are deleted.
#[test]
fn an_expiry_that_was_written_first_wins_over_a_plan() {
    let (mut lab, actions) = leading_three();
    let planned =
        |action: &Action| matches!(action, Action::WriteGang { status, .. } if status.plan.is_some());
    let left = lab.run(actions, planned);
    assert_eq!(left.iter().filter(|action| planned(action)).count(), 1);
    let expired: Vec<PodUid> = lab.pods.keys().cloned().collect();
    lab.version += 1;
    let version = ResourceVersion(lab.version);
    let known = lab.stored.as_mut().expect("it was made");
    known.resource_version = version;
    known.status = GangStatus { epoch: Epoch(2), expired, ..GangStatus::default() };
    let actions = lab.answer(RequestTarget::Gang(gang_id()), RequestOutcome::Conflict);
    let left = lab.run(actions, |_| false);
    assert_eq!(lab.gated().len(), 3, "nothing is lifted: {left:?}");
    assert_eq!(evicted(&left), ["app-server", "model-1", "model-2"]);
    assert_eq!(lab.status().plan, None);
    // Pods that are created later start as usual.
    for name in ["app-server", "model-1", "model-2"] {
        gone(&mut lab, name);
    }
    assert!(lab.engine.gangs.is_empty());
}

#[test]
fn no_pod_is_deleted_before_its_expiry_is_durable() {
    let policies = GangPolicies { on_timeout: Some(OnTimeout::Delete), ..GangPolicies::default() };
    let group = Group { timeout: Some(Duration::from_secs(10)), policies, ..group(3) };
    let full = || vec![node("gpu-1", 1, ""), node("gpu-2", 1, "")];
    let mut pods = three();
    pods.iter_mut().for_each(|p| *p = pod(&p.key.name, 2_000_000, &[names::GATE]));
    let (mut lab, actions) = Lab::leading(&EngineSettings::default(), full(), vec![group], pods);
    let left = lab.run(actions, |_| false);
    assert_eq!(evicted(&left), Vec::<&str>::new());
    lab.now = lab.now.after(Duration::from_secs(10));
    let actions = lab.tick();
    let writes =
        |action: &Action| matches!(action, Action::WriteGang { status, .. } if !status.expired.is_empty());
    let left = lab.run(actions, writes);
    assert_eq!(evicted(&left), Vec::<&str>::new());
    let write = left.iter().find(|action| writes(action)).expect("it is written").clone();
    let actions = lab.carry_out(&write);
    assert_eq!(evicted(&lab.run(actions, |_| false)).len(), 3);
    assert_eq!(lab.status().reason, Some(Reason::SchedulingTimeout));
}

/// A group that asks for more members has lost none.
#[test]
fn a_running_gang_whose_group_asks_for_more_is_not_stale() {
    let (mut lab, actions) = leading_three();
    lab.run(actions, |_| false);
    running(&mut lab);
    let actions = lab.step(Event::Group(Change::Set(group(4).into())));
    lab.run(actions, |_| false);
    assert_eq!(evicted(&later(&mut lab, 200)), Vec::<&str>::new());
    gone(&mut lab, "model-2");
    assert_eq!(evicted(&later(&mut lab, 59)), Vec::<&str>::new());
    assert_eq!(evicted(&later(&mut lab, 2)), ["app-server", "model-1"]);
}

/// The pods may be older than the installation of Portcullis.
#[test]
fn pods_of_a_gang_that_was_never_complete_are_left_alone() {
    let mut pods = three();
    pods.truncate(2);
    pods.iter_mut().for_each(|pod| {
        pod.gates.clear();
        pod.node = Some(NodeName::from("gpu-1"));
        pod.phase = crate::pod::PodPhase::Running;
    });
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(3)], pods);
    lab.run(actions, |_| false);
    assert_eq!(evicted(&later(&mut lab, 3600)), Vec::<&str>::new());
    assert_eq!(lab.status().started_with, 0);
}

/// A member without a share of a card.
fn plain_member(name: &str) -> Pod {
    let json = format!(
        r#"{{"metadata":{{"namespace":"default","name":"{name}","uid":"uid-{name}","resourceVersion":"10",
            "annotations":{{"pod-group-name":"app"}}}},
            "spec":{{"schedulingGates":[{{"name":"portcullis.dev/gang"}}],"containers":[{{"name":"main"}}],
            "tolerations":[{{"key":"portcullis.dev/gpu-sharing","operator":"Exists"}}]}}}}"#
    );
    Pod::read(&json).expect("the pod above can be read")
}

#[test]
fn nominated_members_are_pinned_to_their_nodes_if_the_policy_requires_it() {
    for (set, said, pin) in [
        (false, None, NodePinning::Preferred),
        (true, None, NodePinning::Required),
        (false, Some(true), NodePinning::Required),
        (true, Some(false), NodePinning::Preferred),
    ] {
        let settings =
            EngineSettings { pin_all: set, nominate: NominationMode::Always, ..EngineSettings::default() };
        let gang = Group { policies: GangPolicies { pin: said, ..GangPolicies::default() }, ..group(2) };
        let pods = ["a", "b"].map(plain_member).into();
        let (mut lab, actions) = Lab::leading(&settings, vec![node("gpu-1", 1, "")], vec![gang], pods);
        let lifts = |action: &Action| matches!(action, Action::Lift { .. });
        let left = lab.run(actions, lifts);
        let pins: Vec<NodePinning> = (left.iter())
            .filter_map(|action| match action {
                Action::Lift { pin, .. } => Some(*pin),
                _ => None,
            })
            .collect();
        assert_eq!(pins, [pin, pin], "set {set}, said {said:?}: {left:?}");
    }
}
