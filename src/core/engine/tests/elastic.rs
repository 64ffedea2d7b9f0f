//! Elastic gangs. The scenarios `a12-*` cover whole stories; these tests cover the order of reads and
//! answers.

use super::*;
use crate::dialect::GangPolicies;
use crate::engine::{ConditionStatus, ConditionType};
use crate::pod::PodPhase;

fn owner(kind: &str, name: &str) -> ObjectRef {
    ObjectRef {
        api_version: str("apps/v1"),
        kind: str(kind),
        name: str(name),
        uid: str(format!("uid-{name}")),
    }
}

fn reading(owner: &ObjectRef, wants: u32, controller: Option<ObjectRef>) -> OwnerState {
    OwnerState {
        uid: owner.uid.clone(),
        desired_pods: wants,
        terminating: false,
        controller,
        gang: Some(gang_id()),
    }
}

fn elastic(min: u32) -> Group {
    Group { policies: GangPolicies { elastic: Some(true), ..GangPolicies::default() }, ..group(min) }
}

fn replica(index: u32) -> Pod {
    Pod { owner: Some(owner("ReplicaSet", "web-1")), ..pod(&format!("web-{index}"), 1000, &[names::GATE]) }
}

/// The Deployment wants this many pods, and has set the number on its ReplicaSet.
fn wants(lab: &mut Lab, number: u32) {
    let (set, deployment) = (owner("ReplicaSet", "web-1"), owner("Deployment", "web"));
    lab.owners.insert(set.clone(), reading(&set, number, Some(deployment.clone())));
    lab.owners.insert(deployment.clone(), reading(&deployment, number, None));
}

/// Carries out all actions apart from reads of owners, which get this outcome.
fn unanswered(lab: &mut Lab, actions: Vec<Action>, outcome: &RequestOutcome) {
    let mut left = lab.run(actions, is_question);
    while let Some(question) = left.pop() {
        if let Action::ReadOwner { gang, owner } = question {
            let actions = lab.answer(RequestTarget::Owner(gang, owner), outcome.clone());
            left.extend(lab.run(actions, is_question));
        }
    }
}

fn is_question(action: &Action) -> bool {
    matches!(action, Action::ReadOwner { .. })
}

fn comes(lab: &mut Lab, pod: Pod) -> Vec<Action> {
    lab.pods.insert(pod.uid.clone(), pod.clone());
    let mut actions = lab.step(Event::Pod(Change::Set(pod)));
    actions.extend(lab.tick());
    actions
}

fn goes(lab: &mut Lab, index: u32) {
    let uid = PodUid::from(&*format!("uid-web-{index}"));
    lab.pods.remove(&uid);
    let mut actions = lab.step(Event::Pod(Change::Gone(uid)));
    actions.extend(lab.tick());
    lab.run(actions, |_| false);
}

fn later(lab: &mut Lab, millis: u64) -> Vec<Action> {
    lab.now = lab.now.after(Duration::from_millis(millis));
    let actions = lab.tick();
    lab.run(actions, |_| false)
}

/// Three of three members run; the card has capacity for ten.
fn running() -> Lab {
    let pods = (0..3).map(replica).collect();
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![elastic(3)], pods);
    wants(&mut lab, 3);
    lab.run(actions, |_| false);
    for index in 0..3 {
        lab.bind(&format!("web-{index}"), "gpu-1");
    }
    assert_eq!(
        (lab.status().phase, lab.status().started_with, lab.status().min_member),
        (Phase::Admitted, 3, 3)
    );
    lab.now = lab.now.after(Duration::from_secs(1));
    lab
}

fn elastic_condition(lab: &Lab) -> (ConditionStatus, String) {
    let found = lab.status().conditions.iter().find(|c| c.kind == ConditionType::Elastic);
    let found = found.expect("an elastic gang has the condition");
    (found.status, found.message.clone())
}

#[test]
fn no_new_member_is_planned_before_the_owners_are_read() {
    let mut lab = running();
    wants(&mut lab, 5);
    let actions = comes(&mut lab, replica(3));
    let asked = lab.run(actions, is_question);
    let set = owner("ReplicaSet", "web-1");
    assert!(asked.contains(&Action::ReadOwner { gang: gang_id(), owner: set }), "{asked:?}");
    assert_eq!(lab.gated(), ["web-3"]);
    // The fifth member is created while the read has no answer.
    let more = comes(&mut lab, replica(4));
    let left = lab.run(more, is_question);
    assert_eq!(left.iter().filter(|a| is_question(a)).count(), 0, "one question at a time: {left:?}");
    assert_eq!(lab.gated(), ["web-3", "web-4"]);
    let questions: Vec<Action> = asked.into_iter().filter(is_question).collect();
    lab.run(questions, |_| false);
    later(&mut lab, 600);
    assert_eq!(lab.gated(), Vec::<&str>::new());
    assert_eq!(lab.status().min_member, 5);
    assert_eq!(lab.status().plan.as_ref().map(|plan| plan.members.len()), Some(2), "both in one plan");
}

#[test]
fn a_scale_up_waits_until_all_of_its_pods_exist() {
    let mut lab = running();
    wants(&mut lab, 5);
    let actions = comes(&mut lab, replica(3));
    lab.run(actions, |_| false);
    assert_eq!(lab.gated(), ["web-3"]);
    assert_eq!(lab.status().phase, Phase::Admitted);
    assert_eq!(
        lab.status().message,
        "3 of 4 members are bound; 1 more waits: to start together with 1 more pod"
    );
    assert_eq!(&*lab.status().waiting_for, "1 more pod");
    // A replacement does not wait for the scale-up.
    goes(&mut lab, 0);
    later(&mut lab, 600);
    let actions = comes(&mut lab, replica(5));
    lab.run(actions, |_| false);
    assert_eq!(lab.gated().len(), 1, "{:?}", lab.status());
    // The Deployment is scaled back, without an event about a pod.
    wants(&mut lab, 4);
    let left = later(&mut lab, 11_000);
    assert_eq!(lab.gated(), Vec::<&str>::new(), "{left:?} {:?}", lab.status());
}

#[test]
fn failed_owner_reads_are_retried_and_then_the_last_answer_counts() {
    let mut lab = running();
    let refused = |lab: &mut Lab, actions: Vec<Action>| {
        unanswered(lab, actions, &RequestOutcome::Refused(Refusal { code: 403, message: str("forbidden") }));
    };
    goes(&mut lab, 0);
    later(&mut lab, 1000);
    let actions = comes(&mut lab, replica(3));
    refused(&mut lab, actions);
    let mut rounds = 0;
    while lab.gated() == ["web-3"] {
        rounds += 1;
        assert!(rounds < 40, "it starts at last: {:?}", lab.status());
        lab.now = lab.now.after(Duration::from_millis(500));
        let actions = lab.tick();
        refused(&mut lab, actions);
    }
    assert!(rounds > 3, "not at once: {rounds}");
    let (truth, message) = elastic_condition(&lab);
    assert_eq!(truth, ConditionStatus::True, "the min still is the last that was read");
    assert!(
        message.ends_with("web cannot be read: 403: forbidden; retrying, its last answer counts"),
        "{message}"
    );
}

#[test]
fn no_member_starts_before_the_first_owner_read() {
    let pods = (0..3).map(replica).collect();
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![elastic(3)], pods);
    unanswered(&mut lab, actions, &RequestOutcome::Unknown);
    for _ in 0..40 {
        lab.now = lab.now.after(Duration::from_secs(1));
        let actions = lab.tick();
        unanswered(&mut lab, actions, &RequestOutcome::Unknown);
    }
    assert_eq!(lab.gated().len(), 3);
    assert_eq!(elastic_condition(&lab).0, ConditionStatus::False);
    assert_eq!(lab.status().message, "all 3 members are here; ReplicaSet web-1 cannot be read: no answer");
    wants(&mut lab, 3);
    later(&mut lab, 5000);
    assert_eq!(lab.gated(), Vec::<&str>::new());
}

/// The ReplicaSet is scaled down, and its pods still exist: a pod that starts now may be deleted at once.
#[test]
fn no_member_is_planned_while_its_owner_has_too_many_pods() {
    let pods = (0..5).map(replica).collect();
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 0, "")], vec![elastic(3)], pods);
    wants(&mut lab, 5);
    lab.run(actions, |_| false);
    assert_eq!((lab.gated().len(), lab.status().min_member), (5, 5));
    wants(&mut lab, 3);
    goes(&mut lab, 4);
    let actions = lab.step(Event::Node(Change::Set(node("gpu-1", 1, ""))));
    lab.run(actions, |_| false);
    later(&mut lab, 100);
    assert_eq!(lab.gated().len(), 4, "one more is to go");
    goes(&mut lab, 3);
    assert_eq!(lab.gated(), Vec::<&str>::new());
    assert_eq!(lab.status().min_member, 3);
}

#[test]
fn a_rolling_update_proceeds_pod_by_pod() {
    let mut lab = running();
    let (new, deployment) = (owner("ReplicaSet", "web-2"), owner("Deployment", "web"));
    lab.owners.insert(new.clone(), reading(&new, 1, Some(deployment)));
    let actions = comes(&mut lab, Pod { owner: Some(new), ..replica(3) });
    lab.run(actions, |_| false);
    assert_eq!((lab.gated(), lab.status().min_member), (Vec::new(), 3));
    let (old, new) = (owner("ReplicaSet", "web-1"), owner("ReplicaSet", "web-2"));
    let deployment = owner("Deployment", "web");
    lab.owners.insert(old.clone(), reading(&old, 1, Some(deployment.clone())));
    lab.owners.insert(new.clone(), reading(&new, 3, Some(deployment)));
    // Two old pods are deleted before two new ones are created, and one of these is late.
    goes(&mut lab, 0);
    goes(&mut lab, 1);
    later(&mut lab, 600);
    let actions = comes(&mut lab, Pod { owner: Some(owner("ReplicaSet", "web-2")), ..replica(4) });
    lab.run(actions, |_| false);
    later(&mut lab, 600);
    assert_eq!(lab.gated(), Vec::<&str>::new(), "{:?}", lab.status());
}

#[test]
fn conditions_do_not_flap_with_the_number_of_replicas() {
    let mut lab = running();
    let before: Vec<(ConditionType, ConditionStatus, Time)> =
        lab.status().conditions.iter().map(|c| (c.kind, c.status, c.last_transition_time)).collect();
    for index in 3..7 {
        wants(&mut lab, 5);
        let actions = comes(&mut lab, replica(index));
        let told = lab.run(actions, |_| false);
        later(&mut lab, 1000);
        let now: Vec<_> =
            lab.status().conditions.iter().map(|c| (c.kind, c.status, c.last_transition_time)).collect();
        assert_eq!(now, before);
        assert_eq!(recorded_events(&told), []);
        wants(&mut lab, 3);
        goes(&mut lab, index);
        later(&mut lab, 1000);
        assert_eq!((lab.status().phase, lab.status().min_member), (Phase::Admitted, 3));
    }
}

/// The owners known so far may be all, or others may still be created.
#[test]
fn the_first_start_needs_the_size_of_the_group() {
    let (mut lab, actions) = Lab::leading(
        &EngineSettings::default(),
        vec![node("gpu-1", 1, "")],
        vec![elastic(3)],
        (0..2).map(replica).collect(),
    );
    wants(&mut lab, 2);
    lab.run(actions, |_| false);
    assert_eq!(lab.gated().len(), 2);
    let (truth, message) = elastic_condition(&lab);
    assert_eq!(truth, ConditionStatus::False);
    assert!(message.starts_with("takes 3 members, as PodGroup app says, until"), "{message}");
    assert!(
        lab.status()
            .message
            .ends_with("its owners make 2 (Deployment web 2): it is not complete before they want 3")
    );
}

/// A new leader did not see whose pods are missing. The stored status says that they ran.
#[test]
fn a_new_leader_reads_the_owners_and_starts_replacements_alone() {
    let lab = running();
    let mut pods: Vec<Pod> = lab.pods.values().cloned().collect();
    pods.iter_mut().for_each(|pod| pod.phase = PodPhase::Running);
    pods.truncate(2);
    // One of three members is missing, and the owners want two more: one of these three exists.
    pods.push(replica(7));
    let (settings, stored) =
        (EngineSettings { status_delay: Duration::ZERO, ..EngineSettings::default() }, lab.stored.clone());
    let mut next = Lab {
        engine: Engine::new(EngineSettings { group_status: GroupStatusMode::Never, ..settings }),
        pods: pods.iter().map(|pod| (pod.uid.clone(), pod.clone())).collect(),
        ..lab
    };
    wants(&mut next, 5);
    next.step(Event::LeaseAcquired(Epoch(4)));
    let world = ListedObjects {
        nodes: Some(vec![node("gpu-1", 1, "")]),
        pods: Some(pods),
        groups: objects_by_kind([elastic(3)]),
        gangs: Some(stored.into_iter().collect()),
        ..ListedObjects::default()
    };
    let mut actions = next.step(Event::Listed(Epoch(4), world));
    actions.extend(next.tick());
    next.run(actions, |_| false);
    assert_eq!(next.gated(), Vec::<&str>::new(), "{:?}", next.status());
}

/// Seed 7351: a Deployment wanted three and was scaled to one; then a pod without an owner was created. Four
/// were never wanted at one time.
#[test]
fn an_owner_answer_from_before_a_new_member_does_not_count_with_it() {
    let (mut lab, actions) = Lab::leading(
        &EngineSettings::default(),
        vec![node("gpu-1", 1, "")],
        vec![elastic(4)],
        vec![replica(0)],
    );
    wants(&mut lab, 3);
    lab.run(actions, |_| false);
    assert_eq!((lab.gated(), lab.status().min_member), (vec!["web-0"], 4));
    wants(&mut lab, 1);
    let loose = pod("loose", 1000, &[names::GATE]);
    let actions = comes(&mut lab, loose);
    lab.run(actions, |_| false);
    for _ in 0..20 {
        later(&mut lab, 1000);
    }
    assert_eq!((lab.gated(), lab.status().min_member), (vec!["loose", "web-0"], 4), "four were never there");
}
