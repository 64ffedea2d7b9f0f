//! How often the engine writes the `Gang` object and the status of the group.

use serde_json::json;

use super::*;
use crate::dialect::{self, Group, GroupPhase, GroupStatus, StoredStatus};
use crate::engine::GroupStatusMode;
use crate::pod::PodPhase;

/// Sets the write delays of production.
fn real(lab: &mut Lab) {
    lab.engine.settings.status_delay = Duration::from_millis(500);
    lab.engine.settings.group_status = GroupStatusMode::Auto;
}

/// Lets this much time pass, and carries out all actions. Returns the writes, with their time in ms.
fn pass(lab: &mut Lab, time: Duration, mut actions: Vec<Action>, refuse: bool) -> Vec<(u64, Action)> {
    let (end, mut sent) = (lab.now.after(time), Vec::new());
    loop {
        let mut queue: std::collections::VecDeque<Action> = std::mem::take(&mut actions).into();
        while let Some(action) = queue.pop_front() {
            if matches!(action, Action::WriteGang { .. } | Action::WriteGroup { .. }) {
                sent.push((lab.now.0 - START.0, action.clone()));
            }
            queue.extend(match &action {
                Action::WriteGroup { gang, .. } if refuse => lab.answer(
                    RequestTarget::Group(gang.clone()),
                    RequestOutcome::Refused(Refusal { code: 403, message: str("no") }),
                ),
                action => lab.carry_out(action),
            });
            queue.extend(lab.tick());
        }
        if lab.now >= end {
            return sent;
        }
        lab.now = lab.now.after(Duration::from_millis(100));
        actions = lab.tick();
    }
}

fn groups(sent: &[(u64, Action)]) -> Vec<(u64, GroupStatus)> {
    let writes = sent.iter().filter_map(|(at, action)| match action {
        Action::WriteGroup { status, .. } => Some((*at, status.clone())),
        _ => None,
    });
    writes.collect()
}

fn gang_phases(sent: &[(u64, Action)]) -> Vec<Phase> {
    let writes = sent.iter().filter_map(|(_, action)| match action {
        Action::WriteGang { status, .. } => Some(status.phase),
        _ => None,
    });
    writes.collect()
}

fn set(lab: &mut Lab, name: &str, change: impl FnOnce(&mut Pod)) -> Vec<Action> {
    let uid = PodUid::from(&*format!("uid-{name}"));
    lab.touch(&uid, change);
    lab.step(Event::Pod(Change::Set(lab.pods[&uid].clone())))
}

/// Also with a slow scheduler, the `Gang` object is written twice and the group once.
#[test]
fn a_lifted_gang_is_written_once_however_slowly_it_is_bound() {
    for pause in [0, 100, 2500] {
        let (mut lab, actions) = leading_three();
        real(&mut lab);
        let mut sent = pass(&mut lab, Duration::from_millis(pause), actions, false);
        for name in ["app-server", "model-1", "model-2"] {
            let actions = set(&mut lab, name, |pod| {
                pod.node = Some(NodeName::from("gpu-1"));
                pod.phase = PodPhase::Running;
            });
            sent.extend(pass(&mut lab, Duration::from_millis(pause), actions, false));
        }
        sent.extend(pass(&mut lab, Duration::from_secs(300), Vec::new(), false));
        assert_eq!(gang_phases(&sent), [Phase::Planned, Phase::Admitted], "{pause}");
        let writes = groups(&sent);
        let [(_, status)] = &*writes else { panic!("{pause}: {writes:?}") };
        assert_eq!((status.phase, status.scheduled, status.running), (GroupPhase::Running, 3, 3));
        assert!(matches!(sent.last(), Some((_, Action::WriteGroup { .. }))), "{sent:?}");
    }
}

#[test]
fn a_waiting_gang_reports_the_reason_in_its_group() {
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(4)], three());
    real(&mut lab);
    let sent = pass(&mut lab, Duration::from_secs(60), actions, false);
    let writes = groups(&sent);
    let [(at, status)] = &*writes else { panic!("{writes:?}") };
    assert!((2000..4000).contains(at), "{at}");
    let text = (status.phase, status.scheduled, status.reason, &*status.message);
    assert_eq!(
        text,
        (GroupPhase::Gathering, 0, "Gathering", "3 of 4 members are here; waiting for 1 more pod")
    );
    // A new leader finds the status, and writes nothing.
    let written = dialect::group_status(&group(4), status).expect("KAI has one");
    let group = Group { stored_status: StoredStatus::Own(std::sync::Arc::new(written.clone())), ..group(4) };
    for (found, writes) in
        [(group.clone(), 0), (Group { stored_status: StoredStatus::Absent, ..group.clone() }, 1)]
    {
        let record = lab.stored.clone().expect("it was written");
        lab.engine = Engine::new(lab.engine.settings.clone());
        assert_eq!(lab.step(Event::LeaseAcquired(Epoch(4))), [Action::List]);
        let world = ListedObjects {
            nodes: Some(vec![node("gpu-1", 1, "")]),
            pods: Some(lab.pods.values().cloned().collect()),
            groups: objects_by_kind([found]),
            gangs: Some(vec![record]),
            ..ListedObjects::default()
        };
        let actions = lab.step(Event::Listed(Epoch(4), world));
        let sent = pass(&mut lab, Duration::from_secs(60), actions, false);
        assert_eq!(groups(&sent).len(), writes, "{sent:?}");
        lab.engine.settings.group_status = GroupStatusMode::Auto;
    }
    // The engine restores a status that a user has changed.
    let mut wrong = written;
    wrong["phase"] = json!("Running");
    let group = Group { stored_status: StoredStatus::Own(std::sync::Arc::new(wrong)), ..group };
    let actions = lab.step(Event::Group(Change::Set(group.into())));
    assert_eq!(groups(&pass(&mut lab, Duration::from_secs(15), actions, false)).len(), 1);
}

#[test]
fn a_group_status_of_another_controller_is_left_alone() {
    let theirs = Group { stored_status: StoredStatus::Foreign, ..group(4) };
    let nameless = Group { uid: str(""), ..group(4) };
    let (auto, never) = (GroupStatusMode::Auto, GroupStatusMode::Never);
    for (group, scheduler, mode, writes) in [
        (group(4), "default-scheduler", auto, 1),
        (group(4), "default-scheduler", never, 0),
        (group(4), "kai-scheduler", auto, 0),
        (theirs, "default-scheduler", auto, 0),
        (nameless, "default-scheduler", auto, 0),
    ] {
        let pods = three().into_iter().map(|pod| Pod { scheduler: str(scheduler), ..pod }).collect();
        let shown = format!("{group:?} {scheduler} {mode:?}");
        let (mut lab, actions) =
            Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group], pods);
        real(&mut lab);
        lab.engine.settings.group_status = mode;
        let sent = pass(&mut lab, Duration::from_secs(30), actions, false);
        assert_eq!(groups(&sent).len(), writes, "{shown}");
    }
}

#[test]
fn a_refused_group_status_is_retried_later_and_delays_nothing_else() {
    let (mut lab, actions) = leading_three();
    real(&mut lab);
    let mut sent = pass(&mut lab, Duration::from_millis(300), actions, true);
    assert!(lab.gated().is_empty());
    for name in ["app-server", "model-1", "model-2"] {
        let actions = set(&mut lab, name, |pod| pod.node = Some(NodeName::from("gpu-1")));
        sent.extend(pass(&mut lab, Duration::ZERO, actions, true));
    }
    assert_eq!(lab.status().phase, Phase::Admitted);
    sent.extend(pass(&mut lab, Duration::from_secs(600), Vec::new(), true));
    let times: Vec<u64> = groups(&sent).iter().map(|(at, _)| at / 1000).collect();
    assert_eq!(times, [2, 12, 32, 72, 152, 312], "twice as long after each");
}

/// One write for each of many pods would be the largest cost of a job.
#[test]
fn a_job_that_ends_pod_by_pod_does_not_cost_a_write_for_each() {
    let names: Vec<String> = (0..40).map(|index| format!("worker-{index:02}")).collect();
    let pods = names.iter().map(|name| pod(name, 100, &[names::GATE])).collect();
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(40)], pods);
    real(&mut lab);
    pass(&mut lab, Duration::from_millis(300), actions, false);
    for name in &names {
        let actions = set(&mut lab, name, |pod| {
            pod.node = Some(NodeName::from("gpu-1"));
            pod.phase = PodPhase::Running;
        });
        pass(&mut lab, Duration::ZERO, actions, false);
    }
    pass(&mut lab, Duration::from_secs(60), Vec::new(), false);
    let mut sent = Vec::new();
    for name in &names {
        let actions = set(&mut lab, name, |pod| pod.phase = PodPhase::Succeeded);
        sent.extend(pass(&mut lab, Duration::from_secs(1), actions, false));
    }
    sent.extend(pass(&mut lab, Duration::from_secs(60), Vec::new(), false));
    let gang = gang_phases(&sent);
    assert!((4..=7).contains(&gang.len()), "{gang:?}");
    let writes = groups(&sent);
    assert!((4..=7).contains(&writes.len()), "{writes:?}");
    let (_, last) = writes.last().expect("it was written");
    assert_eq!((last.phase, &*last.message), (GroupPhase::Finished, "all 40 members have finished"));
}

/// Also if the gang has no pod any more.
#[test]
fn a_group_without_pods_does_not_report_running_for_ever() {
    let (mut lab, actions) = leading_three();
    real(&mut lab);
    let sent = pass(&mut lab, Duration::from_secs(5), actions, false);
    assert_eq!(groups(&sent).len(), 0, "it is being started");
    let names = ["app-server", "model-1", "model-2"];
    let bound = |pod: &mut Pod| pod.node = Some(NodeName::from("gpu-1"));
    let actions = names.map(|name| set(&mut lab, name, bound)).concat();
    let sent = pass(&mut lab, Duration::from_secs(5), actions, false);
    let (_, status) = &groups(&sent)[0];
    let written = dialect::group_status(&group(4), status).expect("KAI has one");
    let mut actions = lab.step(Event::Group(Change::Set(
        Group { stored_status: StoredStatus::Own(written.into()), ..group(3) }.into(),
    )));
    for name in names {
        let uid = PodUid::from(&*format!("uid-{name}"));
        lab.pods.remove(&uid);
        actions.extend(lab.step(Event::Pod(Change::Gone(uid))));
    }
    let sent = pass(&mut lab, Duration::from_secs(5), actions, false);
    let writes = groups(&sent);
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert_eq!((writes[0].1.phase, writes[0].1.scheduled), (GroupPhase::Gathering, 0));
    let written = dialect::group_status(&group(4), &writes[0].1).expect("KAI has one");
    lab.step(Event::Group(Change::Set(
        Group { stored_status: StoredStatus::Own(written.into()), ..group(3) }.into(),
    )));
    assert!(lab.engine.gangs.is_empty());
    assert_eq!(lab.engine.next_timer(), None);
}
