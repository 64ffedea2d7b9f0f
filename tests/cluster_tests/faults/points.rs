//! Kills or pauses the leader between every two requests.
//!
//! Each row runs the same sequence. Two gangs need one card; the first gets it and is deleted, then the
//! second gets it and is deleted. At the fail point the process ends or pauses, and the other replica
//! continues from the objects in the API server.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use portcullis_test_cluster::program::LEASE;
use portcullis_test_cluster::wait::WAIT_TIMEOUT;
use portcullis_test_cluster::{Node, Portcullis, Signal};
use serde_json::json;

use super::stage::{Gang, MemberRequest, SetOnDrop, Stage, cluster, program, retry};

/// The replica with the fail point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultyReplica {
    /// The leader when pods and groups are created.
    EarlyLeader,
    /// The leader when the groups are created after all pods.
    Leader,
    /// The replica that takes over at the start, because the leader is killed.
    Successor,
    /// The replica that takes over when the leader is killed after it has written the plan.
    SuccessorAfterPlan,
    /// As `Leader`, but the lease expires by itself, and the others wait for that.
    LeaderUntilExpiry,
    /// As `Leader`, while a pod without a gang waits, so that members are nominated first.
    ContendedLeader,
}

const POINTS: &[(FaultyReplica, &str)] = &[
    (FaultyReplica::EarlyLeader, "before:CreateGang:1"),
    (FaultyReplica::EarlyLeader, "after:CreateGang:1"),
    (FaultyReplica::Leader, "before:WriteGang:1"),
    (FaultyReplica::Leader, "after:WriteGang:1"),
    (FaultyReplica::Leader, "before:WriteGang:2"),
    (FaultyReplica::Leader, "after:WriteGang:2"),
    (FaultyReplica::Leader, "before:WriteGang:3"),
    (FaultyReplica::Leader, "after:WriteGang:3"),
    (FaultyReplica::Leader, "before:ReadLease:1"),
    (FaultyReplica::Leader, "after:ReadLease:1"),
    (FaultyReplica::Leader, "before:Lift:1"),
    (FaultyReplica::Leader, "after:Lift:1"),
    (FaultyReplica::Leader, "before:Lift:2"),
    (FaultyReplica::Leader, "after:Lift:2"),
    (FaultyReplica::Leader, "before:Lift:3"),
    (FaultyReplica::Leader, "after:Lift:3"),
    (FaultyReplica::Leader, "before:Lift:4"),
    (FaultyReplica::Leader, "before:RecordEvent:1"),
    (FaultyReplica::Leader, "before:DeleteGang:1"),
    (FaultyReplica::Leader, "after:DeleteGang:1"),
    (FaultyReplica::ContendedLeader, "before:Nominate:1"),
    (FaultyReplica::ContendedLeader, "after:Nominate:1"),
    (FaultyReplica::ContendedLeader, "before:Nominate:3"),
    (FaultyReplica::ContendedLeader, "after:Nominate:3"),
    (FaultyReplica::LeaderUntilExpiry, "after:Lift:2"),
    (FaultyReplica::Successor, "before:List:1"),
    (FaultyReplica::SuccessorAfterPlan, "before:Fence:1"),
    (FaultyReplica::SuccessorAfterPlan, "after:Fence:1"),
    (FaultyReplica::SuccessorAfterPlan, "before:Fence:3"),
    (FaultyReplica::SuccessorAfterPlan, "after:Fence:3"),
];

/// The time at which a paused process resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResumeTime {
    /// As soon as another replica leads.
    WhenReplaced,
    /// At the end of the sequence.
    AfterSequence,
}

/// The points at which the leader has planned a gang and lifted no member. The point after a write does not
/// count: the watch may deliver the write, and lifts may be sent, before the answer is handled.
const POINTS_AFTER_PLAN: &[&str] =
    &["before:WriteGang:1", "before:ReadLease:1", "after:ReadLease:1", "before:Lift:1"];

#[test]
fn gangs_start_whole_when_the_leader_is_killed_between_any_two_requests() {
    play(|point, _| (format!("{point}=kill"), ResumeTime::WhenReplaced));
}

#[test]
fn gangs_start_whole_when_the_leader_is_paused_between_any_two_requests() {
    play(|point, index| {
        let wake = if index % 3 == 2 { ResumeTime::AfterSequence } else { ResumeTime::WhenReplaced };
        (format!("{point}=stop"), wake)
    });
}

/// Another gang has got the card in the meantime.
#[test]
fn a_leader_paused_until_the_plan_changes_does_no_harm() {
    let Some(cluster) = cluster() else { return };
    cluster.create_nodes(&[Node::shared("card", 1, 32_768), Node::plain("elsewhere")]).unwrap();
    let portcullis = Portcullis::start(&cluster, program(&cluster)).unwrap();
    let stage = Stage::new(&cluster, &portcullis);
    stage.watched(|| {
        for point in POINTS_AFTER_PLAN {
            superseded(&stage, point);
        }
    });
}

fn superseded(stage: &Stage<'_>, point: &str) {
    let portcullis = stage.portcullis;
    let namespace = stage.namespace("point");
    let [first, second] =
        ["first", "second"].map(|name| Gang::new(&namespace, name, 3, MemberRequest::Vram(10_000)));
    stage.settle(&format!("before {point}"));
    let leader = portcullis.leader().expect("settled with a leader");
    for gang in [&first, &second] {
        stage.create_pods(gang);
        stage.wait_phase(gang, "Gathering");
    }
    arm(stage, leader, &format!("{point}=stop"));
    stage.create_group(&first);
    stage.cluster.wait_until(&format!("{point} is reached"), || {
        process_state(portcullis, leader) == ProcessState::Stopped
    });
    // No other replica leads yet, and two of three members may not start.
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    stage.cluster.api().delete(&format!("{pods}/first-2")).unwrap();
    stage.create_group(&second);
    let monitor = FaultMonitor::new(stage, ResumeTime::AfterSequence, true);
    monitor.expire_lease(leader);
    stage.wait_phase(&second, "Admitted");
    let log = fs::read_to_string(portcullis.log(leader)).unwrap_or_default().len();
    monitor.wake(leader, log);
    // By then the process has sent its pending requests. A longer wait could only find more.
    std::thread::sleep(Duration::from_millis(300));
    stage.settle(&format!("after {point}"));
    for index in 0..2 {
        let pod = stage.cluster.api().get(&format!("{pods}/first-{index}")).unwrap();
        assert!(pod["spec"]["schedulingGates"].is_array(), "{point}: first-{index} is lifted");
    }
    arm(stage, leader, "");
    for gang in [&first, &second] {
        stage.delete_gang(gang);
    }
    stage.wait_gone(&namespace);
    portcullis.wait_ready(leader).unwrap();
}

fn play(how: impl Fn(&str, usize) -> (String, ResumeTime)) {
    let Some(cluster) = cluster() else { return };
    cluster.create_nodes(&[Node::shared("card", 1, 32_768), Node::plain("elsewhere")]).unwrap();
    let portcullis = Portcullis::start(&cluster, program(&cluster)).unwrap();
    let stage = Stage::new(&cluster, &portcullis);
    stage.watched(|| {
        for (index, (who, point)) in POINTS.iter().enumerate() {
            let (point, wake) = how(point, index);
            let began = Instant::now();
            row(&stage, *who, &point, wake);
            println!("{point} ({who:?}, woken {wake:?}): {:.1} s", began.elapsed().as_secs_f32());
        }
    });
}

fn row(stage: &Stage<'_>, who: FaultyReplica, point: &str, wake: ResumeTime) {
    let portcullis = stage.portcullis;
    let namespace = stage.namespace("point");
    let gangs = ["first", "second"].map(|name| Gang::new(&namespace, name, 3, MemberRequest::Vram(10_000)));
    stage.settle(&format!("before {point}"));
    let leader = portcullis.leader().expect("settled with a leader");
    let heir = 1 - leader;
    let monitor = FaultMonitor::new(stage, wake, who != FaultyReplica::LeaderUntilExpiry);
    let reached = std::thread::scope(|scope| {
        let reached = scope.spawn(|| monitor.run());
        let end = monitor.stop_guard();
        if who == FaultyReplica::EarlyLeader {
            arm(stage, leader, point);
        }
        for gang in &gangs {
            stage.create_pods(gang);
        }
        if who == FaultyReplica::ContendedLeader {
            stage.create_rival(&namespace);
        }
        match who {
            FaultyReplica::EarlyLeader => {}
            FaultyReplica::Leader | FaultyReplica::LeaderUntilExpiry | FaultyReplica::ContendedLeader => {
                // By then the events for pods without a group are written.
                for gang in &gangs {
                    stage.wait_phase(gang, "Gathering");
                }
                arm(stage, leader, point);
            }
            FaultyReplica::Successor => {
                arm(stage, heir, point);
                portcullis.signal(leader, Signal::KILL).unwrap();
            }
            FaultyReplica::SuccessorAfterPlan => {
                for gang in &gangs {
                    stage.wait_phase(gang, "Gathering");
                }
                // The plan is durable and no member is lifted, so the next leader must fence all three.
                arm(stage, leader, "before:ReadLease:1=kill");
                arm(stage, heir, point);
            }
        }
        for gang in &gangs {
            stage.create_group(gang);
        }
        let first = admitted(stage, &gangs, point);
        stage.delete_gang(first);
        let second = if first.name == "first" { &gangs[1] } else { &gangs[0] };
        stage.wait_phase(second, "Admitted");
        stage.delete_gang(second);
        stage.wait_gone(&namespace);
        drop(end);
        reached.join().unwrap()
    });
    let armed = if matches!(who, FaultyReplica::Successor | FaultyReplica::SuccessorAfterPlan) {
        heir
    } else {
        leader
    };
    assert!(reached.contains_key(&armed), "{point} was not reached");
    stage.cluster.api().delete(&format!("/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")).unwrap();
    for replica in 0..portcullis.replicas() {
        arm(stage, replica, "");
        portcullis.wait_ready(replica).unwrap();
    }
    stage.settle(&format!("after {point}"));
}

/// The gang that has the card.
fn admitted<'a>(stage: &Stage<'_>, gangs: &'a [Gang; 2], point: &str) -> &'a Gang {
    let mut found = None;
    stage.cluster.wait_until(&format!("{point}: one gang is admitted"), || {
        // The status is compared as first seen, because a new leader briefly reports otherwise until it has
        // seen the last pod bound.
        found = gangs.iter().find(|gang| stage.phase(gang) == "Admitted");
        found.is_some()
    });
    found.expect("waited for")
}

/// Sets the fail points of a running replica.
fn arm(stage: &Stage<'_>, replica: usize, points: &str) {
    let file = stage.cluster.directory().join(format!("portcullis-{replica}.failpoint"));
    let new = file.with_extension("new");
    fs::write(&new, points).unwrap();
    fs::rename(&new, &file).unwrap();
}

/// The state of a process in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    Running,
    Stopped,
    Dead,
}

pub(crate) fn process_state(portcullis: &Portcullis<'_>, replica: usize) -> ProcessState {
    let Some(process) = portcullis.process(replica) else { return ProcessState::Dead };
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    match text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
        Some('T' | 't') => ProcessState::Stopped,
        Some('Z' | 'X') | None => ProcessState::Dead,
        Some(_) => ProcessState::Running,
    }
}

/// Watches processes at their fail points, and restarts or resumes them.
struct FaultMonitor<'a> {
    stage: &'a Stage<'a>,
    wake: ResumeTime,
    frees_the_lease: bool,
    over: AtomicBool,
}

impl<'a> FaultMonitor<'a> {
    fn new(stage: &'a Stage<'a>, wake: ResumeTime, frees_the_lease: bool) -> Self {
        Self { stage, wake, frees_the_lease, over: AtomicBool::new(false) }
    }

    fn stop_guard(&self) -> SetOnDrop<'_> {
        SetOnDrop(&self.over)
    }

    /// Runs until the sequence ends. Returns the state of each replica that reached its fail point.
    fn run(&self) -> BTreeMap<usize, ProcessState> {
        let portcullis = self.stage.portcullis;
        let mut reached = BTreeMap::new();
        let mut asleep = Vec::new();
        loop {
            let over = self.over.load(Ordering::Relaxed);
            for replica in 0..portcullis.replicas() {
                let life = process_state(portcullis, replica);
                if life == ProcessState::Running || asleep.contains(&replica) {
                    continue;
                }
                reached.insert(replica, life);
                arm(self.stage, replica, "");
                let log = fs::read_to_string(portcullis.log(replica)).unwrap_or_default().len();
                if !over {
                    self.expire_lease(replica);
                }
                match (life, self.wake) {
                    (ProcessState::Dead, _) => portcullis.revive(replica).unwrap(),
                    (_, ResumeTime::WhenReplaced) => self.wake(replica, log),
                    (_, ResumeTime::AfterSequence) => asleep.push(replica),
                }
            }
            if over {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        for replica in asleep {
            let log = fs::read_to_string(portcullis.log(replica)).unwrap_or_default().len();
            self.wake(replica, log);
        }
        reached
    }

    /// Expires the lease of a dead replica at once, so that another takes it.
    fn expire_lease(&self, replica: usize) {
        let stage = self.stage;
        if self.frees_the_lease && stage.portcullis.leader() == Some(replica) {
            retry("the lease", || {
                let spec = json!({"spec": {"holderIdentity": null}});
                stage.cluster.api().merge(LEASE, &spec).map(drop).map_err(|error| format!("{error:#}"))
            });
        }
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while stage.portcullis.leader().is_none_or(|leader| leader == replica) {
            assert!(Instant::now() < deadline, "no replica takes the lease of {replica}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A replica that was paused beyond the end of its lease must step down.
    fn wake(&self, replica: usize, log: usize) {
        let portcullis = self.stage.portcullis;
        portcullis.signal(replica, Signal::CONT).unwrap();
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let text = fs::read_to_string(portcullis.log(replica)).unwrap_or_default();
            let since = text.get(log..).unwrap_or_default();
            if ["not leading any more", "stepping down"].iter().any(|said| since.contains(said)) {
                break;
            }
            assert!(Instant::now() < deadline, "portcullis-{replica} does not step down:\n{since}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
