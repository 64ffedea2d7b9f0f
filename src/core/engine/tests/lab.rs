//! A test bench: an engine with an API server under manual control, and small nodes, pods and groups.

use std::time::Duration;

use super::super::*;
use super::planning_comparison::PlanningComparison;
use crate::dialect::{Group, Quorum, objects_by_kind};
use crate::model::{DialectId, NodeName, ResourceVersion};
use crate::objects::{Node, ObjectRef, names};
use crate::pod::{OwnerState, Pod};

pub(super) const START: Time = Time(1_000_000_000);

pub(super) fn gang_id() -> GangId {
    GangId::new(DialectId::Kai, "default", "app")
}

pub(super) fn node(name: &str, cards: u32, extra: &str) -> Node {
    let json = format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"nvidia.com/gpu.count":"{cards}","nvidia.com/gpu.memory":"10000",
            "portcullis.dev/gpu-sharing":"vram"}}}},
            "spec":{{"taints":[{{"key":"portcullis.dev/gpu-sharing","value":"vram","effect":"NoSchedule"}}]{extra}}},
            "status":{{"allocatable":{{"cpu":"8","memory":"16Gi","pods":"110","nvidia.com/gpu":"{cards}"}},
            "conditions":[{{"type":"Ready","status":"True"}}]}}}}"#
    );
    Node::read(&json).expect("the node above can be read")
}

pub(super) fn pod(name: &str, mib: u32, gates: &[&str]) -> Pod {
    let gates: Vec<String> = gates.iter().map(|g| format!(r#"{{"name":"{g}"}}"#)).collect();
    let json = format!(
        r#"{{"metadata":{{"namespace":"default","name":"{name}","uid":"uid-{name}","resourceVersion":"10",
            "annotations":{{"pod-group-name":"app","gpu-memory":"{mib}"}}}},
            "spec":{{"schedulingGates":[{}],"containers":[{{"name":"main"}}],
            "tolerations":[{{"key":"portcullis.dev/gpu-sharing","operator":"Exists"}}]}}}}"#,
        gates.join(",")
    );
    Pod::read(&json).expect("the pod above can be read")
}

pub(super) fn group(min: u32) -> Group {
    Group { created: START, ..Group::new(gang_id(), Quorum::Count(min)).with_object("group-uid") }
}

/// A leading engine, with an API server that stores what it writes.
pub(super) struct Lab {
    pub(super) engine: Engine,
    pub(super) now: Time,
    pub(super) version: u64,
    pub(super) stored: Option<GangRecord>,
    pub(super) pods: BTreeMap<PodUid, Pod>,
    pub(super) owners: BTreeMap<ObjectRef, OwnerState>,
}

impl Lab {
    pub(super) fn leading(
        settings: &EngineSettings,
        nodes: Vec<Node>,
        groups: Vec<Group>,
        pods: Vec<Pod>,
    ) -> (Self, Vec<Action>) {
        let mut lab = Self {
            engine: Engine::new(EngineSettings {
                status_delay: Duration::ZERO,
                group_status: GroupStatusMode::Never,
                ..settings.clone()
            }),
            now: START,
            version: 100,
            stored: None,
            pods: pods.iter().map(|p| (p.uid.clone(), p.clone())).collect(),
            owners: BTreeMap::new(),
        };
        assert_eq!(lab.step(Event::LeaseAcquired(Epoch(3))), [Action::List]);
        let world = ListedObjects {
            nodes: Some(nodes),
            pods: Some(pods),
            groups: objects_by_kind(groups),
            gangs: Some(Vec::new()),
            ..ListedObjects::default()
        };
        let mut actions = lab.step(Event::Listed(Epoch(3), world));
        actions.extend(lab.tick());
        (lab, actions)
    }

    pub(super) fn step(&mut self, event: Event) -> Vec<Action> {
        let twin = self.engine.clone();
        let mut comparison = PlanningComparison::default();
        let effects = self.engine.steps_observed([event.clone()], self.now, &mut comparison);
        assert_eq!(comparison.problems, Vec::<String>::new(), "a round without the shortcut plans the same");
        let mut twin = twin;
        assert_eq!(twin.step(event, self.now), effects, "the same event must have the same effects");
        self.engine.assert_consistent();
        effects.into_iter().map(|e| e.action).collect()
    }

    pub(super) fn tick(&mut self) -> Vec<Action> {
        self.step(Event::Tick)
    }

    pub(super) fn answer(&mut self, subject: RequestTarget, outcome: RequestOutcome) -> Vec<Action> {
        let epoch = self.engine.epoch().expect("the engine leads");
        self.step(Event::Answer { epoch, subject, outcome })
    }

    /// Carries out an action as an API server would, and gives the answer to the engine.
    pub(super) fn carry_out(&mut self, action: &Action) -> Vec<Action> {
        self.version += 1;
        let version = ResourceVersion(self.version);
        match action {
            Action::CreateGang { gang, .. } => self.write(GangRecord {
                gang: gang.clone(),
                resource_version: version,
                generation: 1,
                status: GangStatus::default(),
            }),
            Action::WriteGang { gang, expected, status } => {
                assert_eq!(
                    Some(*expected),
                    self.stored.as_ref().map(|s| s.resource_version),
                    "compare-and-swap"
                );
                self.write(GangRecord {
                    gang: gang.clone(),
                    resource_version: version,
                    generation: 1,
                    status: status.clone(),
                })
            }
            Action::ReadGang { gang } => {
                let outcome = self
                    .stored
                    .clone()
                    .map_or(RequestOutcome::Gone, |record| RequestOutcome::Gang(Box::new(record)));
                self.answer(RequestTarget::Gang(gang.clone()), outcome)
            }
            Action::DeleteGang { gang, .. } => {
                self.stored = None;
                self.answer(RequestTarget::Gang(gang.clone()), RequestOutcome::Gone)
            }
            Action::ReadLease => self.answer(RequestTarget::Lease, RequestOutcome::Lease { ours: true }),
            Action::Nominate { pod, node } => {
                let node = node.clone();
                self.change(&pod.uid, |p| p.nominated = node)
            }
            Action::Fence { pod, .. } => self.change(&pod.uid, |_| {}),
            Action::ReadPod { pod } => self.tell_pod(&pod.uid),
            Action::Lift { pod, permit, cards, node, .. } => {
                assert_eq!(
                    *permit,
                    Some(self.pods[&pod.uid].resource_version),
                    "the lift tests the newest version"
                );
                let (cards, node) = (cards.clone(), node.clone());
                self.change(&pod.uid, |p| {
                    p.gates.retain(|g| &**g != names::GATE);
                    p.gpus = Some(cards);
                    p.nominated = Some(node);
                })
            }
            Action::TryLift { pod, .. } => {
                self.answer(RequestTarget::Pod(pod.uid.clone()), RequestOutcome::Done)
            }
            Action::WriteGroup { gang, .. } => {
                self.answer(RequestTarget::Group(gang.clone()), RequestOutcome::Done)
            }
            Action::ReadOwner { gang, owner } => {
                let outcome = self
                    .owners
                    .get(owner)
                    .map_or(RequestOutcome::Gone, |o| RequestOutcome::Owner(Box::new(o.clone())));
                self.answer(RequestTarget::Owner(gang.clone(), owner.clone()), outcome)
            }
            Action::List | Action::StepDown | Action::Evict { .. } | Action::RecordEvent(_) => Vec::new(),
        }
    }

    pub(super) fn write(&mut self, record: GangRecord) -> Vec<Action> {
        self.stored = Some(record.clone());
        self.answer(RequestTarget::Gang(record.gang.clone()), RequestOutcome::Gang(Box::new(record)))
    }

    /// Changes a pod in the API server without an event for the engine.
    pub(super) fn touch(&mut self, uid: &PodUid, change: impl FnOnce(&mut Pod)) {
        self.version += 1;
        let pod = self.pods.get_mut(uid).expect("the pod is there");
        change(pod);
        pod.resource_version = ResourceVersion(self.version);
    }

    pub(super) fn change(&mut self, uid: &PodUid, change: impl FnOnce(&mut Pod)) -> Vec<Action> {
        self.touch(uid, change);
        self.tell_pod(uid)
    }

    pub(super) fn tell_pod(&mut self, uid: &PodUid) -> Vec<Action> {
        let outcome =
            self.pods.get(uid).map_or(RequestOutcome::Gone, |p| RequestOutcome::Pod(Box::new(p.clone())));
        self.answer(RequestTarget::Pod(uid.clone()), outcome)
    }

    /// Carries out all actions that follow, apart from those for which `stop` is true. Returns these, and the
    /// recorded events.
    pub(super) fn run(&mut self, actions: Vec<Action>, stop: impl Fn(&Action) -> bool) -> Vec<Action> {
        let mut queue: std::collections::VecDeque<Action> = actions.into();
        let mut left = Vec::new();
        while let Some(action) = queue.pop_front() {
            if stop(&action)
                || matches!(action, Action::RecordEvent(_) | Action::Evict { .. } | Action::StepDown)
            {
                left.push(action);
                continue;
            }
            queue.extend(self.carry_out(&action));
            queue.extend(self.tick());
        }
        left
    }

    pub(super) fn bind(&mut self, name: &str, node: &str) -> Vec<Action> {
        let uid = PodUid::from(&*format!("uid-{name}"));
        self.touch(&uid, |p| p.node = Some(NodeName::from(node)));
        let actions = self.step(Event::Pod(Change::Set(self.pods[&uid].clone())));
        self.run(actions, |_| false)
    }

    pub(super) fn status(&self) -> &GangStatus {
        &self.stored.as_ref().expect("the gang object is stored").status
    }

    pub(super) fn gated(&self) -> Vec<&str> {
        self.pods.values().filter(|p| p.gated()).map(|p| &*p.key.name).collect()
    }
}
