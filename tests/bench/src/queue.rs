//! A queue of gangs that do not fit: the cost of one event in the engine, including the planning that
//! follows.
//!
//! 200 nodes have 8 GPUs each, one of them in use. Gangs of 8 members wait for a whole node for each member.
//! Their memory requests are all the same or all different.

use std::hint::black_box;
use std::time::{Duration, Instant};

use portcullis_core::dialect::{Group, Quorum, objects_by_kind};
use portcullis_core::engine::{
    Action, Change, Effect, Engine, EngineSettings, Event, GangRecord, GangStatus, ListedObjects,
    RequestOutcome, RequestTarget,
};
use portcullis_core::model::{DialectId, Epoch, GangId, PodUid, ResourceVersion, Time, str};
use portcullis_core::objects::Node;
use portcullis_core::pod::Pod;

const NODES: usize = 200;
const ROUNDS: usize = 200;

/// Prints one table.
pub(crate) fn run() {
    println!(
        "queue: one event and the planning after it, {NODES} nodes of 8 GPUs, gangs of 8 x 8 GPUs, {ROUNDS} rounds"
    );
    println!(
        "{:<26} {:<30} {:>10} {:>10} {:>10} {:>10}",
        "waiting", "event", "p50", "p99", "max", "requests"
    );
    for (waiting, alike) in [(300, true), (300, false), (5000, true), (5000, false)] {
        let mut world = Queue::new(waiting, alike);
        let name = format!("{waiting} {}", if alike { "all alike" } else { "all different" });
        world.measure(&name, "a foreign pod is labelled", |world, round| {
            vec![world.holder(round % NODES, &format!("round-{round}"))]
        });
        world.measure(&name, "one more gang arrives", |world, round| world.arrival(round));
        world.measure(&name, "a node is freed and taken again", |world, round| {
            let uid = PodUid(str(format!("holder-{}", round % NODES)));
            vec![Event::Pod(Change::Gone(uid)), Event::Tick, world.holder(round % NODES, "again")]
        });
    }
}

struct Queue {
    engine: Engine,
    now: Time,
    version: u64,
    alike: bool,
    waiting: usize,
}

impl Queue {
    fn new(waiting: usize, alike: bool) -> Self {
        let engine = Engine::new(EngineSettings::default());
        let mut queue = Self { engine, now: Time(1_795_266_000_000), version: 1, alike, waiting };
        let mut pods = Vec::new();
        for node in 0..NODES {
            if let Event::Pod(Change::Set(pod)) = queue.holder(node, "first") {
                pods.push(pod);
            }
        }
        let mut groups = Vec::new();
        for gang in 0..waiting {
            groups.push(group(gang));
            pods.extend((0..8).map(|member| queue.member(gang, member)));
        }
        let world = ListedObjects {
            nodes: Some((0..NODES).map(node).collect()),
            pods: Some(pods),
            groups: objects_by_kind(groups),
            gangs: Some(Vec::new()),
            ..ListedObjects::default()
        };
        queue.carry_out(vec![Event::LeaseAcquired(Epoch(1)), Event::Listed(Epoch(1), world), Event::Tick]);
        for _ in 0..3 {
            queue.now = queue.now.after(Duration::from_secs(1));
            queue.carry_out(vec![Event::Tick]);
        }
        queue
    }

    fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// A pod without a gang that holds one GPU of a node.
    fn holder(&mut self, index: usize, label: &str) -> Event {
        let version = self.next();
        let json = format!(
            r#"{{"metadata":{{"namespace":"x","name":"holder-{index}","uid":"holder-{index}","resourceVersion":"{version}",
                "labels":{{"label":"{label}"}}}},"spec":{{"nodeName":"node-{index:04}","containers":[{{"name":"c",
                "resources":{{"limits":{{"nvidia.com/gpu":"1"}},"requests":{{"nvidia.com/gpu":"1"}}}}}}]}},
                "status":{{"phase":"Running"}}}}"#
        );
        Event::Pod(Change::Set(Pod::read(&json).expect("the pod above can be read")))
    }

    fn member(&mut self, gang: usize, member: usize) -> Pod {
        let version = self.next();
        let memory = if self.alike { 64 } else { 64 + gang };
        let json = format!(
            r#"{{"metadata":{{"namespace":"x","name":"gang-{gang}-{member}","uid":"gang-{gang}-{member}",
                "resourceVersion":"{version}","annotations":{{"pod-group-name":"gang-{gang}"}}}},
                "spec":{{"schedulingGates":[{{"name":"portcullis.dev/gang"}}],"containers":[{{"name":"c",
                "resources":{{"limits":{{"nvidia.com/gpu":"8"}},"requests":{{"nvidia.com/gpu":"8","memory":"{memory}Mi"}}}}}}]}}}}"#
        );
        Pod::read(&json).expect("the pod above can be read")
    }

    fn arrival(&mut self, round: usize) -> Vec<Event> {
        let gang = self.waiting + round;
        let mut events = vec![Event::Group(Change::Set(group(gang).into()))];
        events.extend((0..8).map(|member| Event::Pod(Change::Set(self.member(gang, member)))));
        events
    }

    /// Steps through events and answers every request about a Gang object at once, including the requests
    /// that follow.
    fn carry_out(&mut self, events: Vec<Event>) -> usize {
        let mut events = std::collections::VecDeque::from(events);
        let mut requests = 0;
        while let Some(event) = events.pop_front() {
            for effect in self.engine.step(event, self.now) {
                let answer = self.answer(&effect);
                requests += usize::from(answer.is_some());
                events.extend(answer);
            }
        }
        requests
    }

    fn answer(&mut self, effect: &Effect) -> Option<Event> {
        let version = ResourceVersion(self.next());
        let (gang, status) = match &effect.action {
            Action::CreateGang { gang, .. } => (gang.clone(), GangStatus::default()),
            Action::WriteGang { gang, status, .. } => (gang.clone(), status.clone()),
            _ => return None,
        };
        let record = GangRecord { gang: gang.clone(), resource_version: version, generation: 1, status };
        let subject = RequestTarget::Gang(gang);
        Some(Event::Answer { epoch: effect.epoch, subject, outcome: RequestOutcome::Gang(Box::new(record)) })
    }

    fn measure(&mut self, name: &str, what: &str, mut make: impl FnMut(&mut Self, usize) -> Vec<Event>) {
        let mut times = Vec::with_capacity(ROUNDS);
        let mut requests = 0;
        for round in 0..ROUNDS {
            let mut events = make(self, round);
            events.push(Event::Tick);
            let start = Instant::now();
            requests += black_box(self.carry_out(events));
            times.push(start.elapsed());
            self.now = self.now.after(Duration::from_millis(1));
        }
        times.sort();
        let at = |part: usize| format!("{:.1?}", times[(times.len() - 1) * part / 100]);
        println!("{name:<26} {what:<30} {:>10} {:>10} {:>10} {requests:>10}", at(50), at(99), at(100));
    }
}

fn group(index: usize) -> Group {
    let gang = GangId::new(DialectId::Kai, "x", format!("gang-{index}"));
    Group::new(gang, Quorum::Count(8)).with_object(&format!("group-{index}"))
}

fn node(index: usize) -> Node {
    let json = format!(
        r#"{{"metadata":{{"name":"node-{index:04}","labels":{{"kubernetes.io/hostname":"node-{index:04}",
            "nvidia.com/gpu.count":"8","nvidia.com/gpu.memory":"81559"}}}},"spec":{{}},
            "status":{{"allocatable":{{"cpu":"96","memory":"1Ti","pods":"110","nvidia.com/gpu":"8"}},
            "conditions":[{{"type":"Ready","status":"True"}}]}}}}"#
    );
    Node::read(&json).expect("the node above can be read")
}
