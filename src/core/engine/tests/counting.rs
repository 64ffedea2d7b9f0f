//! Whom the quorum counts and who holds room, by what a pod is doing: one member in each of its states, and a second one
//! that waits for it to be two of two.

use super::*;
use crate::objects::ObjectRef;
use crate::pod::PodPhase;

/// What a pod counts for.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    /// The other one starts: this one is one of the two that it takes.
    for_min: bool,
    /// It holds its 4000 of the 10000 MiB: six thousand more do not fit beside it and another 3000.
    room: bool,
}

fn counted(change: impl FnOnce(&mut Pod)) -> Counts {
    let job = ObjectRef {
        api_version: "batch/v1".into(),
        kind: "Job".into(),
        name: "app".into(),
        uid: "job".into(),
    };
    let mut first = pod("first", 4000, &[]);
    first.phase = PodPhase::Running;
    first.gpus = Some(vec![0]);
    first.node = Some("gpu-1".into());
    first.owner = Some(job.clone());
    change(&mut first);
    let uid = first.uid.clone();
    let pods = vec![first, Pod { owner: Some(job), ..pod("second", 3000, &[names::GATE]) }];
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(2)], pods);
    lab.run(actions, |_| false);
    let charges = lab.engine.snapshot().charges().filter(|(held, _)| **held == uid).count();
    Counts { for_min: !lab.gated().contains(&"second"), room: charges == 1 }
}

#[test]
fn what_runs_or_has_ended_well_counts_and_what_is_lost_does_not() {
    let check = |what: &str, for_min: bool, room: bool, change: fn(&mut Pod)| {
        assert_eq!(counted(change), Counts { for_min, room }, "{what}");
    };
    check("running", true, true, |_| {});
    check("bound, its init containers run", true, true, |p| p.phase = PodPhase::Pending);
    check("ended well, in the same Job", true, false, |p| p.phase = PodPhase::Succeeded);
    check("ended well, of an earlier run", false, false, |p| {
        p.phase = PodPhase::Succeeded;
        p.owner = None;
    });
    check("failed, or evicted by the kubelet", false, false, |p| p.phase = PodPhase::Failed);
    // Until it is gone its containers run.
    check("running, and deleted", false, true, |p| p.terminating = true);
    check("ended well, and deleted", false, false, |p| {
        p.phase = PodPhase::Succeeded;
        p.terminating = true;
    });
    let waits = |p: &mut Pod| {
        p.phase = PodPhase::Pending;
        p.node = None;
        p.gpus = None;
        p.gates = vec![names::GATE.into()];
    };
    // The two of them are the gang.
    assert_eq!(counted(waits), Counts { for_min: true, room: true });
    assert_eq!(
        counted(|p| {
            waits(p);
            p.terminating = true;
        }),
        Counts { for_min: false, room: false },
        "waiting, and deleted"
    );
    assert_eq!(
        counted(|p| {
            waits(p);
            p.gates.push("example.com/other".into());
        }),
        Counts { for_min: false, room: false },
        "held by somebody else"
    );
}

/// Two of three have ended well, and one runs: the third is a member of the same run, whoever made it. When all three have
/// ended, what comes is another run, and starts as a whole.
#[test]
fn what_has_ended_well_counts_while_something_runs() {
    let ended = |name: &str| {
        let mut pod = Pod { phase: PodPhase::Succeeded, node: Some("gpu-1".into()), ..pod(name, 1000, &[]) };
        pod.gpus = Some(vec![0]);
        pod
    };
    for (last, lifted) in [(PodPhase::Running, 1), (PodPhase::Succeeded, 0)] {
        let last = Pod { phase: last, ..ended("c") };
        let pods = vec![ended("a"), ended("b"), last, pod("d", 1000, &[names::GATE])];
        let (mut lab, actions) =
            Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(3)], pods);
        lab.run(actions, |_| false);
        assert_eq!(1 - lab.gated().len(), lifted);
        for name in ["e", "f"] {
            let more = pod(name, 1000, &[names::GATE]);
            lab.pods.insert(more.uid.clone(), more.clone());
            assert_eq!(lab.gated().len(), if lifted == 1 { 1 } else { lab.pods.len() - 3 });
            let mut actions = lab.step(Event::Pod(Change::Set(more)));
            actions.extend(lab.tick());
            lab.run(actions, |_| false);
        }
        assert_eq!(lab.gated(), Vec::<&str>::new());
    }
}

/// A pod that asks for cpu, running or gated, in a gang of its own; `resized` is what its kubelet says it holds by now.
fn cores(name: &str, group: &str, spec: u32, resized: Option<u32>, gated: bool) -> Pod {
    let gate = if gated {
        r#""schedulingGates":[{"name":"portcullis.dev/gang"}],"#
    } else {
        r#""nodeName":"gpu-1","#
    };
    let status = resized.map(|held| {
        format!(
            r#","status":{{"phase":"Running","containerStatuses":[{{"name":"main",
                "allocatedResources":{{"cpu":"{held}"}},"resources":{{"requests":{{"cpu":"{held}"}}}}}}]}}"#
        )
    });
    let json = format!(
        r#"{{"metadata":{{"namespace":"default","name":"{name}","uid":"uid-{name}","resourceVersion":"10",
            "annotations":{{"pod-group-name":"{group}"}}}},
            "spec":{{{gate}"containers":[{{"name":"main","resources":{{"requests":{{"cpu":"{spec}"}}}}}}],
            "tolerations":[{{"key":"portcullis.dev/gpu-sharing","operator":"Exists"}}]}}{}}}"#,
        status.unwrap_or_default()
    );
    Pod::read(&json).expect("the pod above can be read")
}

/// Eight cores, on which another gang runs: what an in-place resize takes is taken from the moment at which it is asked
/// for, and what it gives back is free once the kubelet says so.
#[test]
fn a_resize_in_place_takes_room_at_once_and_gives_it_back_when_it_is_done() {
    let other = Group::new(GangId::new(DialectId::Kai, "default", "other"), Quorum::Count(1));
    let groups = || vec![group(1), other.clone().with_object("other-uid")];
    // Five cores are wanted beside what runs.
    for (what, before, after, starts) in [
        ("it is asked for more", (2, 2), (4, 2), false),
        ("and has it", (2, 2), (4, 4), false),
        ("it is asked for less", (4, 4), (2, 4), false),
        ("and has given it back", (4, 4), (2, 2), true),
    ] {
        let at = |(spec, held)| cores("runs", "other", spec, Some(held), false);
        let waits = cores("waits", "app", 5, None, true);
        let (mut lab, actions) =
            Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], groups(), vec![at(before)]);
        lab.run(actions, |_| false);
        lab.version += 1;
        let resized = Pod { resource_version: ResourceVersion(lab.version), ..at(after) };
        lab.step(Event::Pod(Change::Set(resized)));
        lab.pods.insert(waits.uid.clone(), waits.clone());
        let mut actions = lab.step(Event::Pod(Change::Set(waits)));
        actions.extend(lab.tick());
        let left = lab.run(actions, |_| false);
        assert_eq!(lab.gated().is_empty(), starts, "{what}: {left:?}");
    }
}

/// A gated pod may be resized as well: it is planned by what it asks for now.
#[test]
fn a_member_that_waits_is_planned_by_what_it_asks_for_now() {
    let at = |cpu| cores("waits", "app", cpu, None, true);
    let (mut lab, actions) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(1)], vec![at(9)]);
    lab.run(actions, |_| false);
    assert_eq!(lab.status().reason, Some(Reason::InsufficientCpu));
    lab.version += 1;
    let smaller = Pod { resource_version: ResourceVersion(lab.version), ..at(8) };
    lab.pods.insert(smaller.uid.clone(), smaller.clone());
    let mut actions = lab.step(Event::Pod(Change::Set(smaller)));
    actions.extend(lab.tick());
    lab.run(actions, |_| false);
    assert_eq!(lab.gated(), Vec::<&str>::new());
}
