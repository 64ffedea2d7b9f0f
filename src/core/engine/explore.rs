//! An exhaustive search over the real [`Engine::step`]: two replicas, one card, two gangs of which only one fits.
//!
//! Leadership moves at any time, a deposed leader goes on for as long as it likes with what it believes and with every
//! request it has ever sent (a zombie that wakes at the worst moment), watches lag for each object by itself, a pod may
//! be deleted. In no state may the lifted pods use more than the card has. Each fencing rule is then taken away, and the
//! search must find how the card is overbooked.

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::state::Object;
use super::{
    Action, Change, Effect, Engine, Event, GangRecord, GangStatus, Outcome, Rule, Settings, Subject, World,
};
use crate::dialect::{Group, Quorum};
use crate::model::{DialectId, Epoch, GangId, PodUid, ResourceVersion, Time};
use crate::objects::{Node, Pod};

const CARD_MIB: u64 = 2000;
const NOW: Time = Time(1_000_000);

/// How large a world is searched.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Members of each gang, each wanting `CARD_MIB / members`.
    members: usize,
    /// How often the lease may change hands.
    epochs: u64,
    /// How many pods may be deleted.
    deletions: u8,
}

/// What the API server holds. Versions count for each object by itself, so that equal contents are equal states.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Api {
    holder: usize,
    epoch: Epoch,
    gangs: BTreeMap<GangId, (ResourceVersion, GangStatus)>,
    pods: BTreeMap<PodUid, Pod>,
    /// The gang that goes first in the queue and is created later.
    late: Vec<Pod>,
}

type RequestKey = (u8, Epoch, Option<Subject>);

#[derive(Clone, Debug)]
struct Replica {
    engine: Arc<Engine>,
    /// Of the engine: only one of the two changes in a step.
    fingerprint: u128,
    sent: BTreeMap<RequestKey, Effect>,
}

impl Hash for Replica {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.fingerprint.hash(hasher);
        self.sent.hash(hasher);
    }
}

/// Engines by fingerprint: millions of states share some thousands of engines.
type Engines = RefCell<BTreeMap<u128, Arc<Engine>>>;

/// Two independent 64-bit hashes: with some millions of states a collision is out of the question.
fn fingerprint(value: &impl Hash) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        value.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

#[derive(Clone, Debug, Hash)]
struct State {
    api: Api,
    replicas: [Replica; 2],
    deletions: u8,
}

impl State {
    fn start(size: Size, broken: Option<Rule>, known: &Engines) -> Self {
        let mut pods = pods("late", 0, size.members);
        let late = pods.split_off(0);
        let first = self::pods("first", 1, size.members);
        let gangs = ["late", "first"].map(|name| (gang(name), (ResourceVersion(1), GangStatus::default())));
        let settings =
            Settings { nominate: false, quiet: Duration::from_secs(3600), broken, ..Settings::default() };
        let engine = Arc::new(Engine::new(settings));
        let replica = Replica { fingerprint: fingerprint(&engine), engine, sent: BTreeMap::new() };
        let mut state = Self {
            api: Api {
                holder: 0,
                epoch: Epoch(1),
                gangs: gangs.into_iter().collect(),
                pods: first.into_iter().map(|p| (p.uid.clone(), p)).collect(),
                late,
            },
            replicas: [replica.clone(), replica],
            deletions: size.deletions,
        };
        state.tell(0, Event::LeaseAcquired(Epoch(1)), known);
        state
    }

    /// Gives an event to a replica and files what it sends.
    fn tell(&mut self, replica: usize, event: Event, known: &Engines) {
        let replica = &mut self.replicas[replica];
        let mut engine = (*replica.engine).clone();
        let effects = engine.step(event, NOW);
        replica.fingerprint = fingerprint(&engine);
        replica.engine = known
            .borrow_mut()
            .entry(replica.fingerprint)
            .or_insert_with(|| {
                engine.snapshot().assert_consistent();
                Arc::new(engine)
            })
            .clone();
        for effect in effects {
            let (kind, subject) = match &effect.action {
                Action::List => (0, None),
                Action::ReadLease => (1, Some(Subject::Lease)),
                Action::CreateGang { gang, .. }
                | Action::ReadGang { gang }
                | Action::WriteGang { gang, .. }
                | Action::DeleteGang { gang, .. } => (2, Some(Subject::Gang(gang.clone()))),
                Action::ReadPod { pod } | Action::Fence { pod, .. } | Action::Nominate { pod, .. } => {
                    (3, Some(Subject::Pod(pod.uid.clone())))
                }
                Action::Lift { pod, .. } => (3, Some(Subject::Pod(pod.uid.clone()))),
                Action::StepDown | Action::Evict { .. } | Action::Tell(_) => continue,
            };
            let earlier = replica.sent.insert((kind, effect.epoch, subject), effect);
            assert!(earlier.is_none(), "two requests about one object: {earlier:?}");
        }
    }

    /// Every state that can follow this one, with what happened.
    fn successors(&self, size: Size, known: &Engines) -> Vec<(String, Self)> {
        let mut next = Vec::new();
        let mut branch = |name: String, change: &dyn Fn(&mut Self)| {
            let mut state = self.clone();
            change(&mut state);
            next.push((name, state));
        };
        if !self.api.late.is_empty() {
            branch("the pods of gang late are created".to_owned(), &|state| {
                let late = std::mem::take(&mut state.api.late);
                state.api.pods.extend(late.into_iter().map(|p| (p.uid.clone(), p)));
            });
        }
        if self.deletions > 0 {
            for uid in self.api.pods.keys() {
                branch(format!("{uid} is deleted"), &|state| {
                    state.api.pods.remove(uid);
                    state.deletions -= 1;
                });
            }
        }
        for index in 0..2 {
            let replica = &self.replicas[index];
            if self.api.holder != index && self.api.epoch.0 < size.epochs {
                let epoch = Epoch(self.api.epoch.0 + 1);
                branch(format!("{index} acquires epoch {epoch}"), &|state| {
                    state.api.holder = index;
                    state.api.epoch = epoch;
                    state.tell(index, Event::LeaseAcquired(epoch), known);
                });
            }
            for (key, effect) in &replica.sent {
                branch(format!("{index} under {}: {}", effect.epoch, brief(&effect.action)), &|state| {
                    state.replicas[index].sent.remove(key);
                    let event = state.api.carry_out(index, effect);
                    state.tell(index, event, known);
                });
            }
            if !replica.engine.leads() {
                continue;
            }
            if replica.engine.replan {
                branch(format!("{index} plans"), &|state| state.tell(index, Event::Tick, known));
            }
            for (uid, pod) in &self.api.pods {
                let newest = replica.engine.members.get(uid).map(|m| m.pod.resource_version);
                if newest != Some(pod.resource_version) {
                    branch(format!("{index} sees {uid}"), &|state| {
                        state.tell(index, Event::Pod(Change::Set(pod.clone())), known);
                    });
                }
            }
            for uid in replica.engine.members.keys().filter(|uid| !self.api.pods.contains_key(*uid)) {
                branch(format!("{index} sees {uid} gone"), &|state| {
                    state.tell(index, Event::Pod(Change::Gone(uid.clone())), known);
                });
            }
            for (id, (version, status)) in &self.api.gangs {
                let object = replica.engine.gangs.get(id).map(|g| &g.object);
                if !matches!(object, Some(Object::Known(seen, _)) if seen == version) {
                    branch(format!("{index} sees gang {id}"), &|state| {
                        let record = GangRecord {
                            gang: id.clone(),
                            resource_version: *version,
                            status: status.clone(),
                        };
                        state.tell(index, Event::Gang(Change::Set(record)), known);
                    });
                }
            }
        }
        next
    }

    fn overbooked(&self) -> bool {
        let lifted = self.api.pods.values().filter(|pod| !pod.gated());
        let each = |pod: &Pod| pod.shape.share.map_or(0, |s| s.on_card(crate::model::VramMib(CARD_MIB)).0);
        lifted.map(each).sum::<u64>() > CARD_MIB
    }
}

impl Api {
    fn carry_out(&mut self, replica: usize, effect: &Effect) -> Event {
        let (subject, outcome) = match &effect.action {
            Action::List => return Event::Listed(effect.epoch, self.everything()),
            Action::ReadLease => {
                let ours = self.holder == replica && self.epoch == effect.epoch;
                (Subject::Lease, Outcome::Lease { ours })
            }
            Action::ReadGang { gang } => (Subject::Gang(gang.clone()), self.gang(gang)),
            Action::WriteGang { gang, expected, status } => {
                let outcome = match self.gangs.get_mut(gang) {
                    Some((version, stored)) if version == expected => {
                        *version = ResourceVersion(version.0 + 1);
                        *stored = status.clone();
                        self.gang(gang)
                    }
                    Some(_) => Outcome::Conflict,
                    None => Outcome::Gone,
                };
                (Subject::Gang(gang.clone()), outcome)
            }
            // The objects of both gangs are there from the start, and stay: with versions that start anew for an object
            // that is made anew, the search would see a lag that no API server has.
            Action::CreateGang { gang, .. } | Action::DeleteGang { gang, .. } => {
                (Subject::Gang(gang.clone()), Outcome::Refused("not in this world".to_owned()))
            }
            Action::ReadPod { pod } => (Subject::Pod(pod.uid.clone()), self.pod(&pod.uid)),
            Action::Fence { pod, .. } => {
                self.write(&pod.uid, |_| {});
                (Subject::Pod(pod.uid.clone()), self.pod(&pod.uid))
            }
            Action::Lift { pod, licence, node, cards, .. } => {
                let stored = self.pods.get(&pod.uid);
                let outcome = match stored {
                    None => Outcome::Gone,
                    Some(stored) if licence.is_some_and(|l| l != stored.resource_version) => {
                        Outcome::Conflict
                    }
                    Some(stored) if !stored.gated() => Outcome::Conflict,
                    Some(_) => {
                        self.write(&pod.uid, |pod| {
                            pod.gates.clear();
                            pod.nominated = Some(node.clone());
                            pod.gpus = Some(cards.clone());
                        });
                        self.pod(&pod.uid)
                    }
                };
                (Subject::Pod(pod.uid.clone()), outcome)
            }
            Action::StepDown | Action::Nominate { .. } | Action::Evict { .. } | Action::Tell(_) => {
                unreachable!("not sent in this world")
            }
        };
        Event::Answer { epoch: effect.epoch, subject, outcome }
    }

    fn write(&mut self, uid: &PodUid, change: impl Fn(&mut Pod)) {
        if let Some(pod) = self.pods.get_mut(uid) {
            change(pod);
            pod.resource_version = ResourceVersion(pod.resource_version.0 + 1);
        }
    }

    fn pod(&self, uid: &PodUid) -> Outcome {
        self.pods.get(uid).map_or(Outcome::Gone, |pod| Outcome::Pod(Box::new(pod.clone())))
    }

    fn gang(&self, id: &GangId) -> Outcome {
        self.gangs.get(id).map_or(Outcome::Gone, |(version, status)| {
            Outcome::Gang(GangRecord { gang: id.clone(), resource_version: *version, status: status.clone() })
        })
    }

    fn everything(&self) -> World {
        let node = format!(
            r#"{{"metadata":{{"name":"gpu-1","labels":{{"nvidia.com/gpu.count":"1","nvidia.com/gpu.memory":"{CARD_MIB}",
                "portcullis.dev/gpu-sharing":"vram"}}}},
                "spec":{{"taints":[{{"key":"portcullis.dev/gpu-sharing","value":"vram","effect":"NoSchedule"}}]}},
                "status":{{"allocatable":{{"cpu":"8","memory":"16Gi","pods":"110","nvidia.com/gpu":"1"}},
                "conditions":[{{"type":"Ready","status":"True"}}]}}}}"#
        );
        let members = u32::try_from(self.members()).unwrap_or(0);
        let groups = self.gangs.keys().map(|id| Group {
            gang: id.clone(),
            uid: id.name.clone(),
            created: NOW,
            quorum: Quorum::Count(members),
            priority_class: None,
            queue: None,
        });
        World {
            nodes: Some(vec![Node::read(&node).expect("the node above can be read")]),
            pods: Some(self.pods.values().cloned().collect()),
            groups: Some(groups.collect()),
            gangs: Some(
                (self.gangs.iter())
                    .map(|(id, (version, status))| GangRecord {
                        gang: id.clone(),
                        resource_version: *version,
                        status: status.clone(),
                    })
                    .collect(),
            ),
        }
    }

    fn members(&self) -> usize {
        let any = self.pods.values().chain(&self.late).next();
        any.and_then(|p| p.shape.share).map_or(1, |share| {
            usize::try_from(CARD_MIB / share.on_card(crate::model::VramMib(CARD_MIB)).0).unwrap_or(1)
        })
    }
}

fn gang(name: &str) -> GangId {
    GangId::new(DialectId::Kai, "default", name)
}

/// The members of a gang; the one created earlier is planned first.
fn pods(group: &str, second: usize, members: usize) -> Vec<Pod> {
    let each = CARD_MIB / members as u64;
    (0..members)
        .map(|index| {
            let json = format!(
                r#"{{"metadata":{{"namespace":"default","name":"{group}-{index}","uid":"{group}-{index}",
                    "resourceVersion":"1","creationTimestamp":"1970-01-01T00:00:0{second}Z",
                    "annotations":{{"pod-group-name":"{group}","gpu-memory":"{each}"}}}},
                    "spec":{{"schedulingGates":[{{"name":"portcullis.dev/gang"}}],"containers":[{{"name":"main"}}],
                    "tolerations":[{{"key":"portcullis.dev/gpu-sharing","operator":"Exists"}}]}}}}"#
            );
            Pod::read(&json).expect("the pod above can be read")
        })
        .collect()
}

fn brief(action: &Action) -> String {
    match action {
        Action::WriteGang { gang, status, .. } => {
            let plan =
                status.plan.as_ref().map_or("no plan".to_owned(), |p| format!("a plan of epoch {}", p.epoch));
            format!("writes {plan} to gang {gang}")
        }
        Action::Lift { pod, .. } => format!("lifts {}", pod.key),
        Action::Fence { pod, .. } => format!("fences {}", pod.key),
        Action::ReadPod { pod } => format!("reads {}", pod.key),
        other => format!("{other:?}"),
    }
}

/// Searches breadth first. The answer is how many states there are, and the shortest way to an overbooked card.
fn explore(size: Size, broken: Option<Rule>, most: usize) -> (usize, Option<Vec<String>>) {
    let known = Engines::default();
    let start = State::start(size, broken, &known);
    // Each state is kept as a fingerprint; the way back is kept by index.
    let mut seen: BTreeSet<u128> = BTreeSet::from([fingerprint(&start)]);
    let mut trail: Vec<(u32, String)> = vec![(0, "start".to_owned())];
    let mut queue: VecDeque<(u32, State)> = VecDeque::from([(0, start)]);
    while let Some((at, state)) = queue.pop_front() {
        if state.overbooked() {
            let mut steps = Vec::new();
            let mut at = at as usize;
            while at != 0 {
                steps.push(trail[at].1.clone());
                at = trail[at].0 as usize;
            }
            steps.reverse();
            return (seen.len(), Some(steps));
        }
        for (name, next) in state.successors(size, &known) {
            if seen.insert(fingerprint(&next)) {
                assert!(seen.len() <= most, "more than {most} states: the world is larger than was meant");
                trail.push((at, name));
                queue.push_back((u32::try_from(trail.len() - 1).expect("bounded by `most`"), next));
            }
        }
    }
    (seen.len(), None)
}

/// The whole of two small worlds, in seconds; `PORTCULLIS_EXPLORE=large` searches larger ones too, in minutes.
#[test]
fn no_order_of_events_overbooks_the_card() {
    let mut sizes =
        vec![Size { members: 1, epochs: 2, deletions: 1 }, Size { members: 1, epochs: 3, deletions: 0 }];
    if std::env::var("PORTCULLIS_EXPLORE").is_ok_and(|v| v == "large") {
        sizes.push(Size { members: 1, epochs: 3, deletions: 1 });
        sizes.push(Size { members: 2, epochs: 2, deletions: 0 });
    }
    for size in sizes {
        let (states, found) = explore(size, None, 50_000_000);
        println!("{size:?}: {states} states");
        assert!(states > 1000, "the search was cut short: {states} states");
        assert_eq!(found, None, "overbooked:\n{}", found.clone().unwrap_or_default().join("\n"));
    }
}

#[test]
fn each_rule_is_missed_when_it_is_taken_away() {
    for (rule, epochs) in [
        (Rule::Verify, 2),
        (Rule::Licence, 2),
        (Rule::Fence, 2),
        (Rule::NewerEpoch, 3),
        (Rule::RecordFirst, 2),
        (Rule::Reserve, 2),
    ] {
        let size = Size { members: 1, epochs, deletions: 0 };
        let (states, found) = explore(size, Some(rule), 50_000_000);
        let found = found.unwrap_or_else(|| panic!("without {rule:?} nothing goes wrong in {states} states"));
        println!("without {rule:?}, overbooked after {} steps, {states} states:", found.len());
        for step in found {
            println!("    {step}");
        }
    }
}
