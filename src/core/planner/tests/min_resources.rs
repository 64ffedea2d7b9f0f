//! `minResources`: a sum over the nodes, checked in addition to the assignments.

use super::*;
use crate::model::Reason;
use crate::planner::{Assignment, PlannedGang, PlanningOutcome, check, is_unschedulable, plan};

/// Two members with one GPU and one core each, in a group with these `minResources`.
fn wants(name: &str, minimum: Resources) -> PlanningRequest {
    let member = Shape { requests: least(1000, 1), ..Shape::default() };
    PlanningRequest { min_resources: minimum, ..gang(name, [member.clone(), member]) }
}

fn least(cpu: u64, gpus: u64) -> Resources {
    Resources { ephemeral_storage: Bytes(0), ..resources(cpu, 0, gpus) }
}

fn two_nodes() -> Snapshot {
    cluster([gpu_node("a", 4, 0), gpu_node("b", 4, 0)])
}

/// Expects that the gang waits with this reason, message, waiting-for and remedy.
#[track_caller]
fn waits(
    snapshot: &Snapshot,
    request: &PlanningRequest,
    reason: Reason,
    sentence: &str,
    wait: &str,
    remedy: &str,
) {
    let (made, report) = plan(snapshot, std::slice::from_ref(request));
    assert_eq!(made, Plan::default());
    assert!(is_unschedulable(snapshot, request));
    let PlanningOutcome::Waiting(why) = &report.outcomes[&request.gang] else { panic!("{report:?}") };
    let got = (why.reason, &*why.message, &*why.waiting_for, why.remedy.as_deref().unwrap_or(""));
    assert_eq!(got, (reason, sentence, wait, remedy));
}

#[track_caller]
fn starts(snapshot: &Snapshot, request: &PlanningRequest) {
    let (made, _) = plan(snapshot, std::slice::from_ref(request));
    assert_eq!(lines(&made).len(), request.members.len());
    assert!(!is_unschedulable(snapshot, request));
}

#[test]
fn a_gang_starts_only_when_min_resources_are_free() {
    starts(&two_nodes(), &wants("g", least(0, 8)));
    waits(
        &two_nodes(),
        &wants("g", least(0, 9)),
        Reason::InsufficientExtended,
        "short of 1 GPU: minResources asks for 9 GPUs, 8 GPUs free on 2 nodes; the members themselves fit",
        "1 more GPU (8 of 9 free)",
        "lower minResources to at most 8 GPUs, which is all the cluster has, or add nodes",
    );
    starts(&two_nodes(), &wants("g", least(128_000, 8)));
    waits(
        &two_nodes(),
        &wants("g", least(130_000, 9)),
        Reason::InsufficientExtended,
        "short of 1 GPU: minResources asks for 9 GPUs, 8 GPUs free on 2 nodes; short of 2 cores of cpu: minResources asks \
         for 130 cores of cpu, 128 cores free on 2 nodes; the members themselves fit",
        "1 more GPU (8 of 9 free)",
        "lower minResources to at most 8 GPUs, which is all the cluster has, or add nodes",
    );
}

#[test]
fn the_remedy_names_the_pod_that_holds_the_missing_amount() {
    let mut snapshot = two_nodes();
    charge(&mut snapshot, "small", "a", gpus(1), CardAllocation::Unshared);
    charge(&mut snapshot, "large", "b", gpus(3), CardAllocation::Unshared);
    starts(&snapshot, &wants("g", least(0, 4)));
    waits(
        &snapshot,
        &wants("g", least(0, 6)),
        Reason::InsufficientExtended,
        "short of 2 GPUs: minResources asks for 6 GPUs, 4 GPUs free on 2 nodes; the members themselves fit",
        "2 more GPUs (4 of 6 free)",
        "wait for default/large to end (3 GPUs on node b)",
    );
    waits(
        &snapshot,
        &wants("g", least(0, 8)),
        Reason::InsufficientExtended,
        "short of 4 GPUs: minResources asks for 8 GPUs, 4 GPUs free on 2 nodes; the members themselves fit",
        "4 more GPUs (4 of 8 free)",
        "free 4 more GPUs, or lower minResources",
    );
}

#[test]
fn unschedulable_nodes_and_shared_cards_do_not_count() {
    let mut cordoned = gpu_node("b", 4, 0);
    cordoned.unschedulable = true;
    for other in [cordoned, Node { ready: false, ..gpu_node("b", 4, 0) }, shared_node("b", 4, 8000)] {
        let snapshot = cluster([gpu_node("a", 4, 0), other]);
        starts(&snapshot, &wants("g", least(0, 4)));
        assert!(is_unschedulable(&snapshot, &wants("g", least(0, 5))));
    }
}

#[test]
fn min_resources_do_not_apply_to_a_started_gang() {
    let mut request = wants("g", least(0, 9));
    request.active.insert(None, 1);
    assert!(is_unschedulable(&two_nodes(), &request), "one of two");
    request.active.insert(None, 2);
    starts(&two_nodes(), &request);
}

#[test]
fn min_resources_reserve_nothing_but_earlier_gangs_count() {
    let pair = [wants("first", least(0, 8)), wants("second", least(0, 6))];
    let (made, _) = plan(&two_nodes(), &pair);
    assert_eq!(made.gangs.len(), 2, "two GPUs are gone by then, six are free");
    let pair = [wants("first", least(0, 8)), wants("second", least(0, 7))];
    let (made, report) = plan(&two_nodes(), &pair);
    assert_eq!(made.gangs.len(), 1);
    assert!(matches!(report.outcomes[&gang_id("second")], PlanningOutcome::Waiting(_)));
}

#[test]
fn unplaced_members_are_explained_before_min_resources() {
    let five = gang("g", (0..5).map(|_| gpus(2)));
    let sentence = |minimum: Resources| {
        let request = PlanningRequest { min_resources: minimum, ..five.clone() };
        let (_, report) = plan(&two_nodes(), std::slice::from_ref(&request));
        let PlanningOutcome::Waiting(why) = &report.outcomes[&request.gang] else { panic!("{report:?}") };
        why.message.clone()
    };
    let places = "short of 2 GPUs: 5 members need 5 x 2 GPUs, 8 GPUs free on 2 nodes; 4 of 5 members fit, default/g-4 does not";
    let nodes = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu (most free 0 of 4, node a)";
    assert_eq!(sentence(least(0, 10)), format!("{places}; {nodes}"));
    let minimum = "minResources asks for 12 GPUs, 8 GPUs free on 2 nodes";
    assert_eq!(sentence(least(0, 12)), format!("{places}; {minimum}; {nodes}"));
}

#[test]
fn the_check_adds_up_min_resources() {
    let place = |pod: &str| Assignment {
        uid: pod.into(),
        key: PodKey::new("default", pod),
        node: "a".into(),
        cards: Vec::new(),
    };
    let planned = |name: &str| PlannedGang {
        gang: gang_id(name),
        assignments: (0..2).map(|index| place(&format!("{name}-{index}"))).collect(),
    };
    let made = Plan { gangs: vec![planned("first"), planned("second")] };
    let gangs = |gpus| [wants("first", least(0, 8)), wants("second", least(0, gpus))];
    let check = |gpus| check(&cluster([gpu_node("a", 4, 0), gpu_node("b", 4, 0)]), &gangs(gpus), &made);
    assert_eq!(check(6), Ok(()));
    let wrong = check(7).expect_err("six are free");
    assert_eq!(wrong, ["gang default/second: minResources needs 7 of nvidia.com/gpu, and 6 are free"]);
}
