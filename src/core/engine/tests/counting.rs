//! Which members count for the quorum and for capacity, by state: one member in each state, and a second one
//! that waits for it.

use super::*;
use crate::objects::ObjectRef;
use crate::pod::PodPhase;

/// What a pod counts for.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    /// It counts for the quorum: the other member starts.
    for_min: bool,
    /// It is charged its 4000 of the 10000 MiB: six thousand more do not fit beside it and another 3000.
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
fn running_and_succeeded_members_count_and_lost_ones_do_not() {
    let check = |what: &str, for_min: bool, room: bool, change: fn(&mut Pod)| {
        assert_eq!(counted(change), Counts { for_min, room }, "{what}");
    };
    check("running", true, true, |_| {});
    check("bound, its init containers run", true, true, |p| p.phase = PodPhase::Pending);
    check("succeeded, in the same Job", true, false, |p| p.phase = PodPhase::Succeeded);
    check("succeeded, of an earlier run", false, false, |p| {
        p.phase = PodPhase::Succeeded;
        p.owner = None;
    });
    check("failed, or evicted by the kubelet", false, false, |p| p.phase = PodPhase::Failed);
    // Its containers run until it is gone.
    check("running, and deleted", false, true, |p| p.terminating = true);
    check("succeeded, and deleted", false, false, |p| {
        p.phase = PodPhase::Succeeded;
        p.terminating = true;
    });
    let waits = |p: &mut Pod| {
        p.phase = PodPhase::Pending;
        p.node = None;
        p.gpus = None;
        p.gates = vec![names::GATE.into()];
    };
    // Both together are the gang.
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
        "held by another gate"
    );
}

/// Two of three members have succeeded, and one runs: a third pod belongs to the same run, whatever its
/// owner. After all three have ended, new pods are another run and start as a whole.
#[test]
fn succeeded_members_count_while_another_member_runs() {
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

/// A pod that requests cpu, running or gated, in a gang of its own. `resized` is what its kubelet reports as
/// allocated.
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

/// Eight cores, on which another gang runs. An in-place resize takes capacity when it is requested, and frees
/// capacity when the kubelet reports it.
#[test]
fn an_in_place_resize_takes_capacity_at_once_and_frees_it_when_it_is_done() {
    let other = Group::new(GangId::new(DialectId::Kai, "default", "other"), Quorum::Count(1));
    let groups = || vec![group(1), other.clone().with_object("other-uid")];
    // The gang wants five cores beside the running one.
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

/// A gated pod may be resized too: it is planned with its current requests.
#[test]
fn a_waiting_member_is_planned_with_its_current_requests() {
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
