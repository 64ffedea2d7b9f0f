//! Requests that the API server refuses, over simulated time.

use super::*;
use crate::engine::protocol::Refusal;

/// Lets this much time pass, and carries out all actions. The API server answers the actions for which
/// `answer` returns an outcome with that outcome. Returns these actions with their time in milliseconds.
pub(super) fn pass(
    lab: &mut Lab,
    time: Duration,
    mut actions: Vec<Action>,
    answer: impl Fn(&Action) -> Option<(RequestTarget, RequestOutcome)>,
) -> Vec<(u64, Action)> {
    let (end, mut answered) = (lab.now.after(time), Vec::new());
    loop {
        let mut queue: std::collections::VecDeque<Action> = std::mem::take(&mut actions).into();
        while let Some(action) = queue.pop_front() {
            if matches!(action, Action::RecordEvent(_)) {
                continue;
            }
            queue.extend(match answer(&action) {
                Some((target, outcome)) => {
                    answered.push((lab.now.0 - START.0, action));
                    lab.answer(target, outcome)
                }
                None => lab.carry_out(&action),
            });
            queue.extend(lab.tick());
        }
        let next = lab.engine.next_timer().unwrap_or(end).max(Time(lab.now.0 + 1));
        if next > end {
            lab.now = end;
            return answered;
        }
        lab.now = next;
        actions = lab.tick();
    }
}

pub(super) fn refusal(code: u16, message: &str) -> RequestOutcome {
    RequestOutcome::Refused(Refusal { code, message: str(message) })
}

/// A gang whose members all fit on one node.
fn gang_of(members: u32) -> (Lab, Vec<Action>) {
    let pods = (0..members).map(|i| pod(&format!("app-{i:03}"), 20, &[names::GATE])).collect();
    Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(members)], pods)
}

fn refused_lift(action: &Action) -> Option<(RequestTarget, RequestOutcome)> {
    let Action::Lift { pod, .. } = action else { return None };
    Some((RequestTarget::Pod(pod.uid.clone()), refusal(403, "ValidatingAdmissionPolicy 'p' denied request")))
}

/// The most requests in any second that starts with a request, without those of the first second.
fn highest_rate(sent: &[(u64, Action)]) -> usize {
    let times: Vec<u64> = sent.iter().map(|(at, _)| *at).filter(|at| *at >= 1000).collect();
    let rate = |from: u64| times.iter().filter(|at| (from..from + 1000).contains(*at)).count();
    times.iter().map(|from| rate(*from)).max().unwrap_or(0)
}

/// Each member has a backoff of its own, and all of them together are bounded.
#[test]
fn refused_writes_of_many_objects_are_rare() {
    let (mut lab, actions) = gang_of(100);
    let refused_write = |action: &Action| match action {
        Action::Nominate { pod, .. } => {
            Some((RequestTarget::Pod(pod.uid.clone()), refusal(403, "pods/status is forbidden")))
        }
        action => refused_lift(action),
    };
    let sent = pass(&mut lab, Duration::from_mins(10), actions, refused_write);
    assert!(highest_rate(&sent) <= 5, "{} in a second", highest_rate(&sent));
    let of = |name: &str| {
        let about = |action: &Action| match action {
            Action::Lift { pod, .. } => &*pod.key.name == name,
            Action::Nominate { pod, .. } => &*pod.key.name == name,
            _ => false,
        };
        sent.iter().filter(|(_, action)| about(action)).count()
    };
    for index in 0..100 {
        let sent = of(&format!("app-{index:03}"));
        assert!(sent <= 12, "{sent} requests about member {index} in ten minutes");
    }
}

/// The API server is not overloaded by a request that it refuses at once.
#[test]
fn one_refused_object_waits_longer_each_time() {
    let (mut lab, actions) = gang_of(1);
    let sent = pass(&mut lab, Duration::from_mins(25), actions, refused_lift);
    let times: Vec<u64> = sent.iter().map(|(at, _)| at / 1000).collect();
    assert!(times.len() <= 14, "{times:?}");
    assert!(times.len() >= 8, "{times:?}");
}

/// An API server that is overloaded is asked again soon.
#[test]
fn a_failed_request_is_sent_again_within_five_seconds() {
    let (mut lab, actions) = gang_of(1);
    let overloaded = |action: &Action| {
        let Action::Lift { pod, .. } = action else { return None };
        let outcome = RequestOutcome::Failed("429: too many requests".to_owned());
        Some((RequestTarget::Pod(pod.uid.clone()), outcome))
    };
    let sent = pass(&mut lab, Duration::from_secs(50), actions, overloaded);
    let times: Vec<u64> = sent.iter().map(|(at, _)| *at).collect();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX);
    assert!((3000..=5100).contains(&longest), "{times:?}");
    assert!(times.len() < 25, "{times:?}");
}

/// A write whose outcome is unknown is not repeated without a pause, although its fence succeeds.
#[test]
fn lifts_without_an_answer_are_not_repeated_without_a_pause() {
    let (mut lab, actions) = gang_of(1);
    let unknown = |action: &Action| {
        let Action::Lift { pod, .. } = action else { return None };
        Some((RequestTarget::Pod(pod.uid.clone()), RequestOutcome::Unknown))
    };
    let sent = pass(&mut lab, Duration::from_secs(50), actions, unknown);
    assert!((5..25).contains(&sent.len()), "{} lifts", sent.len());
}

/// A user repairs the pod, and the member does not wait for the rest of its delay.
#[test]
fn a_change_by_another_client_shortens_the_delay() {
    let (mut lab, actions) = gang_of(1);
    pass(&mut lab, Duration::from_secs(300), actions, refused_lift);
    let uid = lab.pods.keys().next().expect("there is a member").clone();
    lab.touch(&uid, |_| {});
    let actions = lab.step(Event::Pod(Change::Set(lab.pods[&uid].clone())));
    let sent = pass(&mut lab, Duration::from_millis(1500), actions, refused_lift);
    assert_eq!(sent.len(), 1);
}
