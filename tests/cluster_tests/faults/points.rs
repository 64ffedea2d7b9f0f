//! The leader is killed, or put to sleep, between every two requests.
//!
//! Each row plays the same story: two gangs want the one card, one gets it, leaves, the other gets it and leaves too. Somewhere in it
//! the process with the fail point ends or stops, and the other replica has to go on from what the API server has.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use portcullis_test_cluster::program::LEASE;
use portcullis_test_cluster::wait::WAIT_TIMEOUT;
use portcullis_test_cluster::{Node, Portcullis, Signal};
use serde_json::json;

use super::stage::{Ask, End, Gang, Stage, cluster, persist, program};

/// Whose fail point it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// It leads when pods and groups are created.
    EarlyLeader,
    /// It leads when the groups are created, and with them everything is there.
    Leader,
    /// It takes over when the story begins: the leader is killed.
    Heir,
    /// It takes over when the leader is killed with its plan written.
    HeirOfPlan,
    /// As `Leader`, and its lease runs out by itself: the others wait for that.
    LeaderOfWholeLease,
    /// As `Leader`, while a pod of nobody's gang waits: members are nominated first.
    ContendedLeader,
}

const POINTS: &[(Who, &str)] = &[
    (Who::EarlyLeader, "before:CreateGang:1"),
    (Who::EarlyLeader, "after:CreateGang:1"),
    (Who::Leader, "before:WriteGang:1"),
    (Who::Leader, "after:WriteGang:1"),
    (Who::Leader, "before:WriteGang:2"),
    (Who::Leader, "after:WriteGang:2"),
    (Who::Leader, "before:WriteGang:3"),
    (Who::Leader, "after:WriteGang:3"),
    (Who::Leader, "before:ReadLease:1"),
    (Who::Leader, "after:ReadLease:1"),
    (Who::Leader, "before:Lift:1"),
    (Who::Leader, "after:Lift:1"),
    (Who::Leader, "before:Lift:2"),
    (Who::Leader, "after:Lift:2"),
    (Who::Leader, "before:Lift:3"),
    (Who::Leader, "after:Lift:3"),
    (Who::Leader, "before:Lift:4"),
    (Who::Leader, "before:RecordEvent:1"),
    (Who::Leader, "before:DeleteGang:1"),
    (Who::Leader, "after:DeleteGang:1"),
    (Who::ContendedLeader, "before:Nominate:1"),
    (Who::ContendedLeader, "after:Nominate:1"),
    (Who::ContendedLeader, "before:Nominate:3"),
    (Who::ContendedLeader, "after:Nominate:3"),
    (Who::LeaderOfWholeLease, "after:Lift:2"),
    (Who::Heir, "before:List:1"),
    (Who::HeirOfPlan, "before:Fence:1"),
    (Who::HeirOfPlan, "after:Fence:1"),
    (Who::HeirOfPlan, "before:Fence:3"),
    (Who::HeirOfPlan, "after:Fence:3"),
];

/// When a sleeper is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// As soon as another leads.
    AtOnce,
    /// When all is over.
    AtTheEnd,
}

/// Where a leader has decided on a gang and has lifted nothing of it. After a write is no such place: the watch may have told
/// of it, and lifts gone out, before its answer is looked at.
const DECIDED: &[&str] = &["before:WriteGang:1", "before:ReadLease:1", "after:ReadLease:1", "before:Lift:1"];

#[test]
fn gangs_start_whole_when_the_leader_is_killed_between_any_two_requests() {
    play(|point, _| (format!("{point}=kill"), Wake::AtOnce));
}

#[test]
fn gangs_start_whole_when_the_leader_is_paused_between_any_two_requests() {
    play(|point, index| {
        let wake = if index % 3 == 2 { Wake::AtTheEnd } else { Wake::AtOnce };
        (format!("{point}=stop"), wake)
    });
}

/// The card was given to another gang in the meantime.
#[test]
fn a_leader_paused_until_the_plan_changes_does_no_harm() {
    let Some(cluster) = cluster() else { return };
    cluster.create_nodes(&[Node::shared("card", 1, 32_768), Node::plain("elsewhere")]).unwrap();
    let portcullis = Portcullis::start(&cluster, program(&cluster)).unwrap();
    let stage = Stage::new(&cluster, &portcullis);
    stage.watched(|| {
        for point in DECIDED {
            superseded(&stage, point);
        }
    });
}

fn superseded(stage: &Stage<'_>, point: &str) {
    let portcullis = stage.portcullis;
    let namespace = stage.namespace("point");
    let [first, second] = ["first", "second"].map(|name| Gang::new(&namespace, name, 3, Ask::Vram(10_000)));
    stage.settle(&format!("before {point}"));
    let leader = portcullis.leader().expect("settled with a leader");
    for gang in [&first, &second] {
        stage.create_pods(gang);
        stage.wait_phase(gang, "Gathering");
    }
    arm(stage, leader, &format!("{point}=stop"));
    stage.create_group(&first);
    stage.cluster.wait_until(&format!("{point} is reached"), || life(portcullis, leader) == Life::Stopped);
    // Before anybody else leads: two of three may not start.
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    stage.cluster.api().delete(&format!("{pods}/first-2")).unwrap();
    stage.create_group(&second);
    let nemesis = Nemesis::new(stage, Wake::AtTheEnd, true);
    nemesis.pass_on(leader);
    stage.wait_phase(&second, "Admitted");
    let log = fs::read_to_string(portcullis.log(leader)).unwrap_or_default().len();
    nemesis.wake(leader, log);
    // Whatever it had still to send is sent by then; with more time the check could only find more.
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

fn play(how: impl Fn(&str, usize) -> (String, Wake)) {
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

fn row(stage: &Stage<'_>, who: Who, point: &str, wake: Wake) {
    let portcullis = stage.portcullis;
    let namespace = stage.namespace("point");
    let gangs = ["first", "second"].map(|name| Gang::new(&namespace, name, 3, Ask::Vram(10_000)));
    stage.settle(&format!("before {point}"));
    let leader = portcullis.leader().expect("settled with a leader");
    let heir = 1 - leader;
    let nemesis = Nemesis::new(stage, wake, who != Who::LeaderOfWholeLease);
    let struck = std::thread::scope(|scope| {
        let struck = scope.spawn(|| nemesis.run());
        let end = nemesis.ends_with_this();
        if who == Who::EarlyLeader {
            arm(stage, leader, point);
        }
        for gang in &gangs {
            stage.create_pods(gang);
        }
        if who == Who::ContendedLeader {
            stage.create_rival(&namespace);
        }
        match who {
            Who::EarlyLeader => {}
            Who::Leader | Who::LeaderOfWholeLease | Who::ContendedLeader => {
                // Whatever there is to say of pods without a group is said.
                for gang in &gangs {
                    stage.wait_phase(gang, "Gathering");
                }
                arm(stage, leader, point);
            }
            Who::Heir => {
                arm(stage, heir, point);
                portcullis.signal(leader, Signal::KILL).unwrap();
            }
            Who::HeirOfPlan => {
                for gang in &gangs {
                    stage.wait_phase(gang, "Gathering");
                }
                // The plan is durable, and nothing is lifted: all three are to be fenced.
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
        struck.join().unwrap()
    });
    let armed = if matches!(who, Who::Heir | Who::HeirOfPlan) { heir } else { leader };
    assert!(struck.contains_key(&armed), "{point} was not reached");
    stage.cluster.api().delete(&format!("/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")).unwrap();
    for replica in 0..portcullis.replicas() {
        arm(stage, replica, "");
        portcullis.wait_ready(replica).unwrap();
    }
    stage.settle(&format!("after {point}"));
}

/// The gang that got the card.
fn admitted<'a>(stage: &Stage<'_>, gangs: &'a [Gang; 2], point: &str) -> &'a Gang {
    let mut found = None;
    stage.cluster.wait_until(&format!("{point}: one gang is admitted"), || {
        // Kept as it was seen: a new leader that has not seen the last pod bound yet says so for a moment.
        found = gangs.iter().find(|gang| stage.phase(gang) == "Admitted");
        found.is_some()
    });
    found.expect("waited for")
}

/// Sets the fail points of a replica, while it runs.
fn arm(stage: &Stage<'_>, replica: usize, points: &str) {
    let file = stage.cluster.directory().join(format!("portcullis-{replica}.failpoint"));
    let new = file.with_extension("new");
    fs::write(&new, points).unwrap();
    fs::rename(&new, &file).unwrap();
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Running,
    Stopped,
    Dead,
}

pub(crate) fn life(portcullis: &Portcullis<'_>, replica: usize) -> Life {
    let Some(process) = portcullis.process(replica) else { return Life::Dead };
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    match text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
        Some('T' | 't') => Life::Stopped,
        Some('Z' | 'X') | None => Life::Dead,
        Some(_) => Life::Running,
    }
}

/// Follows what fail points do, and brings everybody back.
struct Nemesis<'a> {
    stage: &'a Stage<'a>,
    wake: Wake,
    frees_the_lease: bool,
    over: AtomicBool,
}

impl<'a> Nemesis<'a> {
    fn new(stage: &'a Stage<'a>, wake: Wake, frees_the_lease: bool) -> Self {
        Self { stage, wake, frees_the_lease, over: AtomicBool::new(false) }
    }

    fn ends_with_this(&self) -> End<'_> {
        End(&self.over)
    }

    /// Until the story is over. Gives how each replica that was struck was found.
    fn run(&self) -> BTreeMap<usize, Life> {
        let portcullis = self.stage.portcullis;
        let mut struck = BTreeMap::new();
        let mut asleep = Vec::new();
        loop {
            let over = self.over.load(Ordering::Relaxed);
            for replica in 0..portcullis.replicas() {
                let life = life(portcullis, replica);
                if life == Life::Running || asleep.contains(&replica) {
                    continue;
                }
                struck.insert(replica, life);
                arm(self.stage, replica, "");
                let log = fs::read_to_string(portcullis.log(replica)).unwrap_or_default().len();
                if !over {
                    self.pass_on(replica);
                }
                match (life, self.wake) {
                    (Life::Dead, _) => portcullis.revive(replica).unwrap(),
                    (_, Wake::AtOnce) => self.wake(replica, log),
                    (_, Wake::AtTheEnd) => asleep.push(replica),
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
        struck
    }

    /// The lease of one that is gone is over, without the wait, and another takes it.
    fn pass_on(&self, replica: usize) {
        let stage = self.stage;
        if self.frees_the_lease && stage.portcullis.leader() == Some(replica) {
            persist("the lease", || {
                let spec = json!({"spec": {"holderIdentity": null}});
                stage.cluster.api().merge(LEASE, &spec).map(drop).map_err(|error| format!("{error:#}"))
            });
        }
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while stage.portcullis.leader().is_none_or(|leader| leader == replica) {
            assert!(Instant::now() < deadline, "nobody takes the lease of {replica}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Who slept through the end of its leading has to notice.
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
