//! Tests the checker: it accepts a valid state, and finds each single fault in it.

use portcullis_core::dialect::{Group, Quorum};
use portcullis_core::engine::{GangRecord, GangStatus, Phase, PlanRecord, PlannedMember};
use portcullis_core::model::{DialectId, Epoch, GangId, ResourceVersion, Time, str};
use portcullis_core::objects::Node;
use portcullis_core::pod::Pod;
use serde_json::{Value, json};

use super::checker::ClusterObjects;

fn node(name: &str, cards: u32, labels: &Value, taints: &Value) -> Node {
    let amounts = json!({"cpu": "8", "memory": "64Gi", "pods": "10", "nvidia.com/gpu": cards.to_string()});
    let object = json!({
        "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    Node::read(&object.to_string()).unwrap()
}

fn card() -> Node {
    let labels = json!({
        "nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "32768", "portcullis.dev/gpu-sharing": "vram",
    });
    let taints = json!([{"key": "portcullis.dev/gpu-sharing", "value": "vram", "effect": "NoSchedule"}]);
    node("card", 1, &labels, &taints)
}

/// A member as it is created.
fn waiting(gang: &str, index: u32) -> Value {
    json!({
        "metadata": {
            "namespace": "x", "name": format!("{gang}-{index}"), "uid": format!("{gang}-{index}"), "resourceVersion": "1",
            "annotations": {"pod-group-name": gang, "gpu-memory": "10000"}, "labels": {"kai.scheduler/podgroup": gang},
        },
        "spec": {
            "schedulingGates": [{"name": "portcullis.dev/gang"}],
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        },
    })
}

fn lifted(gang: &str, index: u32) -> Value {
    let mut pod = waiting(gang, index);
    pod["metadata"]["annotations"]["portcullis.dev/gpus"] = "0".into();
    pod["spec"]["schedulingGates"] = Value::Null;
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["card"]}]});
    let required = json!({"nodeSelectorTerms": [term]});
    pod["spec"]["affinity"] =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    pod
}

fn bound(gang: &str, index: u32) -> Value {
    let mut pod = lifted(gang, index);
    pod["spec"]["nodeName"] = "card".into();
    pod
}

fn read(object: &Value) -> Pod {
    Pod::read(&object.to_string()).unwrap()
}

fn group(gang: &str) -> Group {
    Group::new(GangId::new(DialectId::Kai, "x", gang), Quorum::Count(3)).with_object("uid")
}

fn record(gang: &str, phase: Phase) -> GangRecord {
    let member = |index| PlannedMember {
        pod: str(format!("{gang}-{index}")),
        uid: format!("{gang}-{index}").as_str().into(),
        node: card().name,
        gpus: vec![0],
    };
    let plan = PlanRecord {
        epoch: Epoch(1),
        deadline: Time(1000),
        members: (0..3).map(member).collect(),
        ..PlanRecord::default()
    };
    let status = GangStatus { phase, plan: Some(plan), ..GangStatus::default() };
    let gang = GangId::new(DialectId::Kai, "x", gang);
    GangRecord { gang, resource_version: ResourceVersion(1), generation: 1, status }
}

/// A valid state: one gang runs on the card, another waits.
fn valid_state() -> ClusterObjects {
    let pods =
        (0..3).map(|index| read(&bound("a", index))).chain((0..3).map(|index| read(&waiting("b", index))));
    ClusterObjects {
        nodes: vec![card()],
        pods: pods.collect(),
        groups: vec![group("a"), group("b")],
        gangs: vec![record("a", Phase::Admitted)],
        now: Time(2000),
        ..ClusterObjects::default()
    }
}

fn check(break_it: impl FnOnce(&mut ClusterObjects), never: &[&str], unsettled: &[&str]) {
    let mut state = valid_state();
    break_it(&mut state);
    assert_eq!(state.safety_violations(), never);
    assert_eq!(state.liveness_violations(), unsettled);
}

#[test]
fn a_valid_state_has_no_problem() {
    check(|_| {}, &[], &[]);
}

#[test]
fn an_overbooked_card_is_found() {
    let wrong = "card card 0: 40000 of 32768 MiB are given away";
    let partly = "x/b is lifted in part, past its deadline, and not torn: 1 lifted, 0 bound of 3";
    check(
        |state| {
            state.pods[3] = read(&lifted("b", 0));
            state.gangs.push(record("b", Phase::Lifting));
        },
        &[wrong],
        &[partly],
    );
    // A gang before its timeout.
    check(
        |state| {
            state.pods[3] = read(&lifted("b", 0));
            state.gangs.push(record("b", Phase::Lifting));
            state.now = Time(500);
        },
        &[wrong],
        &["x/b is lifted in part and not torn: 1 lifted, 0 bound of 3"],
    );
    // A torn gang with and without its event.
    let torn = |state: &mut ClusterObjects| {
        state.pods[3] = read(&lifted("b", 0));
        state.gangs.push(record("b", Phase::Torn));
    };
    check(torn, &[wrong], &["x/b is torn without a Torn event"]);
    let said = |state: &mut ClusterObjects| {
        torn(state);
        state.gangs_with_torn_event.insert(("x".to_owned(), "b".to_owned()));
    };
    check(said, &[wrong], &[]);
}

#[test]
fn unknown_and_unnamed_cards_are_found() {
    let gpus = |cards: Option<Vec<u32>>| move |state: &mut ClusterObjects| state.pods[0].gpus = cards;
    check(gpus(Some(vec![1])), &["x/a-0 on card has the cards [1] and wants 1"], &[]);
    check(gpus(None), &["x/a-0 on card has the cards [] and wants 1"], &[]);
}

#[test]
fn an_overbooked_node_is_found() {
    let mut greedy = bound("a", 0);
    greedy["spec"]["containers"][0]["resources"]["requests"] =
        json!({"cpu": "7", "memory": "65Gi", "nvidia.com/gpu": "0"});
    check(
        |state| state.pods[0] = read(&greedy),
        &["card: 9000 of 8000 cpu are given away", "card: 69793218560 of 68719476736 memory are given away"],
        &[],
    );
}

#[test]
fn lifted_members_that_differ_from_the_plan_are_found() {
    let alone = |state: &mut ClusterObjects| {
        state.pods.truncate(3);
        state.pods[2] = read(&lifted("a", 2));
        state.groups.pop();
    };
    let partly = ["x/a is lifted in part, past its deadline, and not torn: 3 lifted, 2 bound of 3"];
    check(alone, &[], &partly);
    let elsewhere = |state: &mut ClusterObjects| {
        alone(state);
        let plan = state.gangs[0].status.plan.as_mut().unwrap();
        plan.members[2].node = "other".into();
    };
    check(elsewhere, &["x/a-2 is lifted to card [0], and planned on other [0]"], &partly);
    let unplanned = |state: &mut ClusterObjects| {
        alone(state);
        state.gangs[0].status.plan = None;
    };
    let wrong = ["x/a-2 is lifted to card, and the plan of its gang does not name it"];
    check(unplanned, &wrong, &["x/a is lifted in part and not torn: 3 lifted, 2 bound of 3"]);
}

#[test]
fn a_waiting_gang_that_fits_is_found() {
    let freed = |state: &mut ClusterObjects| {
        state.pods.drain(..3);
        state.gangs = vec![record("b", Phase::Waiting)];
    };
    check(freed, &[], &["x/b fits and does not start; it is Waiting"]);
    // Two of three members are incomplete.
    let short = |state: &mut ClusterObjects| {
        freed(state);
        state.pods.pop();
    };
    check(short, &[], &[]);
}

#[test]
fn leftover_objects_are_found() {
    check(
        |state| drop(state.pods.drain(..3)),
        &[],
        &["x/b fits and does not start; it is unknown", "the Gang x/a is left, and no pod of it"],
    );
    check(|state| drop(state.groups.remove(0)), &[], &["x/a-0 is lifted without its group"]);
}
