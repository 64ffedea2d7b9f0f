//! The dry run of the lifts of a gang.

use super::refusals::{pass, refusal};
use super::*;

fn is_trial(action: &Action) -> bool {
    matches!(action, Action::TryLift { .. })
}

fn tried(actions: &[Action]) -> Vec<&str> {
    let names = actions.iter().filter_map(|action| match action {
        Action::TryLift { pod, .. } => Some(&*pod.key.name),
        _ => None,
    });
    names.collect()
}

fn job_pod(name: &str, labels: &[(&str, &str)]) -> Pod {
    let mut member = pod(name, 500, &[names::GATE]);
    member.owner = Some(ObjectRef {
        api_version: str("batch/v1"),
        kind: str("Job"),
        name: str("train"),
        uid: str("job-uid"),
    });
    member.labels = PodLabels::new("default", labels.iter().copied());
    member
}

fn leading(pods: Vec<Pod>) -> (Lab, Vec<Action>) {
    let members = u32::try_from(pods.len()).unwrap_or(0);
    Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(members)], pods)
}

fn answer_to_trial(action: &Action, outcome: RequestOutcome) -> (RequestTarget, RequestOutcome) {
    let Action::TryLift { pod, .. } = action else { panic!("no trial: {action:?}") };
    (RequestTarget::Pod(pod.uid.clone()), outcome)
}

/// Completion index and pod index are different in each pod of a controller, and no reason to try each.
#[test]
fn members_that_are_alike_are_tried_once() {
    let index = "batch.kubernetes.io/job-completion-index";
    let alike = [("a-0", "0"), ("a-1", "1"), ("a-2", "2")];
    let mut pods: Vec<Pod> = alike.map(|(name, number)| job_pod(name, &[(index, number)])).into();
    let (mut lab, actions) = leading(pods.clone());
    assert_eq!(tried(&lab.run(actions, is_trial)), ["a-0"]);
    pods.push(job_pod("b-0", &[(index, "3"), ("role", "launcher")]));
    pods.push(job_pod("b-1", &[(index, "4"), ("role", "launcher")]));
    let (mut lab, actions) = leading(pods);
    assert_eq!(tried(&lab.run(actions, is_trial)), ["a-0", "b-0"]);
    // Each of these pods was written by a user.
    let (mut lab, actions) = leading_three();
    assert_eq!(tried(&lab.run(actions, is_trial)).len(), 3);
}

/// The trials are sent beside the read of the lease: the lifts follow the slower one of both.
#[test]
fn a_trial_adds_no_round_trip() {
    let (mut lab, actions) = leading_three();
    let reads_lease = |action: &Action| *action == Action::ReadLease;
    let first = lab.run(actions, |action| is_trial(action) || reads_lease(action));
    assert_eq!((tried(&first).len(), first.iter().filter(|a| reads_lease(a)).count()), (3, 1));
    for lease_first in [true, false] {
        let (mut lab, mut actions) = (lab_copy(&lab), first.clone());
        actions.sort_by_key(|action| reads_lease(action) != lease_first);
        let mut sent = Vec::new();
        for action in &actions {
            assert_eq!(sent, [], "no lift before all are answered");
            sent = lab.carry_out(action);
            sent.retain(is_lift);
        }
        assert_eq!(sent.len(), 3);
    }
}

fn lab_copy(lab: &Lab) -> Lab {
    Lab {
        engine: lab.engine.clone(),
        now: lab.now,
        version: lab.version,
        stored: lab.stored.clone(),
        pods: lab.pods.clone(),
        owners: lab.owners.clone(),
    }
}

#[test]
fn no_gate_is_removed_if_one_lift_is_refused() {
    let (mut lab, actions) = leading_three();
    let refused = |action: &Action| match action {
        Action::TryLift { pod, .. } if &*pod.key.name == "model-2" => {
            Some(answer_to_trial(action, refusal(403, "ValidatingAdmissionPolicy 'p' denied request: no")))
        }
        Action::Lift { .. } => panic!("{action:?}"),
        _ => None,
    };
    let sent = pass(&mut lab, Duration::from_mins(20), actions, refused);
    assert!((8..16).contains(&sent.len()), "{} trials of the refused member", sent.len());
    assert_eq!(lab.gated().len(), 3);
    let status = lab.status();
    assert_eq!(
        (status.phase, status.reason, &status.plan),
        (Phase::Waiting, Some(Reason::LiftRefused), &None)
    );
    assert_eq!(
        status.message,
        "no member was lifted: the API server refuses the patch that removes the gate of pod model-2 \
         (403: ValidatingAdmissionPolicy 'p' denied request: no)"
    );
    // The policy is removed.
    pass(&mut lab, Duration::from_mins(6), Vec::new(), |_| None);
    assert_eq!(lab.gated(), Vec::<&str>::new());
    assert_eq!(lab.engine.gangs[&gang_id()].lifecycle.refused_lift, None);
}

/// The policy was created between the trial and the lift.
#[test]
fn a_plan_is_dropped_if_its_first_lift_is_refused() {
    let (mut lab, actions) = leading(vec![job_pod("a-0", &[])]);
    let lifts = lab.run(actions, is_lift);
    assert_eq!(lifts.iter().filter(|action| is_lift(action)).count(), 1);
    let actions = lab.answer(RequestTarget::Pod(PodUid::from("uid-a-0")), refusal(403, "no"));
    lab.run(actions, |_| false);
    assert_eq!((lab.status().reason, &lab.status().plan), (Some(Reason::LiftRefused), &None));
}

#[test]
fn a_trial_without_an_answer_is_repeated_and_needs_no_fence() {
    let (mut lab, actions) = leading_three();
    let trials = lab.run(actions, is_trial);
    let actions: Vec<Action> = trials.iter().filter(|action| is_trial(action)).cloned().collect();
    for action in &actions {
        let (target, outcome) = answer_to_trial(action, RequestOutcome::Unknown);
        assert_eq!(lab.answer(target, outcome).iter().filter(|a| !matches!(a, Action::ReadLease)).count(), 0);
    }
    lab.now = lab.now.after(Duration::from_millis(50));
    let actions = lab.tick();
    assert_eq!(tried(&actions).len(), 3);
    lab.run(actions, |_| false);
    let actions = lab.carry_out(&Action::ReadLease);
    lab.run(actions, |_| false);
    assert_eq!(lab.gated(), Vec::<&str>::new());
}
