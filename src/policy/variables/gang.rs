//! The gang that an object belongs to or describes: the fields of `gang`.

use std::time::Duration;

use portcullis_cel::Value;
use portcullis_core::dialect::{
    self, GangPolicies, Group, GroupKind, Membership, OnStale, OnTimeout, OnTorn, Quorum,
};
use portcullis_core::gpu::GpuRules;
use portcullis_core::model::GangId;
use portcullis_core::objects::names;
use portcullis_core::objects::view::PodView;
use serde_json::Value as Json;

use super::gpu::GpuRequest;
use super::subject::{RequestSubject, within};
use super::{FieldValue, number, texts};
use crate::input::ClusterData;

/// What is known of the gang of an object.
#[derive(Debug, Default)]
pub(super) struct GangAttributes {
    id: Option<GangId>,
    role: String,
    kind: Option<GroupKind>,
    /// Whether anybody says how many members it takes.
    known: bool,
    min: u64,
    declared: u64,
    policies: GangPolicies,
    timeout: Option<Duration>,
    priority_class: String,
    /// What the group object says, or the pod where it says nothing.
    pub(super) queue: String,
    /// What the object itself asks for: all copies of a template.
    pub(super) own: GpuAmounts,
    /// What the whole gang asks for, or the object itself where it is in no gang.
    pub(super) all: GpuAmounts,
    /// Whether what it asks for is not counted yet.
    pub(super) new: bool,
    conflicts: Vec<String>,
    gang: Option<GangStatus>,
}

/// Whole GPUs, and MiB of shared cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GpuAmounts {
    pub(super) gpus: u64,
    pub(super) vram_mib: u64,
}

impl GpuAmounts {
    fn times(self, count: u64) -> Self {
        Self { gpus: self.gpus.saturating_mul(count), vram_mib: self.vram_mib.saturating_mul(count) }
    }
}

/// What the `Gang` object says.
#[derive(Debug)]
struct GangStatus {
    phase: String,
    reason: String,
    message: String,
    members: u64,
    bound: u64,
}

impl GangAttributes {
    pub(super) fn of(
        subject: &RequestSubject<'_>,
        ask: &GpuRequest,
        namespace: &str,
        cluster: &ClusterData,
    ) -> Self {
        match subject {
            RequestSubject::Pod { pod, copies, new } => {
                Self::of_pod(pod, *copies, *new, ask, namespace, cluster)
            }
            RequestSubject::Group { object, new } => match object.groups.first() {
                Some(group) => Self { new: *new, ..Self::of_group(group, cluster) },
                None => Self::default(),
            },
            RequestSubject::Other => Self::default(),
        }
    }

    fn of_pod(
        pod: &PodView<'_>,
        copies: u64,
        new: bool,
        ask: &GpuRequest,
        namespace: &str,
        cluster: &ClusterData,
    ) -> Self {
        let one = GpuAmounts { gpus: ask.whole, vram_mib: ask.total_vram_mib() };
        let own = one.times(copies);
        let link = dialect::review_membership(pod);
        let conflicts =
            link.faults.iter().map(|fault| format!("{}: {}", fault.field, fault.message)).collect();
        let Some(Membership { gang: id, role, declared }) = link.membership else {
            return Self { own, all: own, new, queue: queue_of_pod(pod), conflicts, ..Self::default() };
        };
        let declared_quorum = declared.as_ref().and_then(|declared| declared.quorum.as_ref());
        let declared_least = declared_quorum.map(Quorum::min_members);
        let group = find_group(&id, namespace, cluster);
        let mut facts = match &group {
            Some(group) => Self::of_group(group, cluster),
            None => Self {
                known: declared_quorum.is_some(),
                min: declared_least.map_or(0, u64::from),
                policies: declared.as_ref().map(|declared| declared.policies.clone()).unwrap_or_default(),
                timeout: declared.as_ref().and_then(|declared| declared.timeout),
                ..Self::default()
            },
        };
        facts.declared = declared_least.map_or(0, u64::from);
        if facts.queue.is_empty() {
            facts.queue = queue_of_pod(pod);
        }
        let quorum = group.as_ref().map(|group| &group.quorum).or(declared_quorum);
        let alike = quorum.map_or(0, |quorum| alike(quorum, role.as_deref())).max(copies).max(1);
        facts.all = one.times(alike);
        facts.own = own;
        facts.new = new;
        facts.conflicts = conflicts;
        facts.role = role.as_deref().unwrap_or_default().to_owned();
        facts.gang = told(&id, cluster);
        facts.id = Some(id);
        facts
    }

    fn of_group(group: &Group, cluster: &ClusterData) -> Self {
        let gpus = GpuRules::default().whole_gpus(|name| group.min_resources.extended(name));
        let minimum = GpuAmounts { gpus, vram_mib: 0 };
        Self {
            id: Some(group.gang.clone()),
            kind: group.object.as_ref().map(|key| key.kind),
            known: true,
            min: group.quorum.min_members().into(),
            policies: group.policies.clone(),
            timeout: group.timeout,
            priority_class: group.priority_class.as_deref().unwrap_or_default().to_owned(),
            queue: group.queue.as_deref().unwrap_or_default().to_owned(),
            all: minimum,
            gang: told(&group.gang, cluster),
            ..Self::default()
        }
    }

    /// How its `Gang` object is called in what the leader publishes.
    pub(super) fn key(&self) -> Option<String> {
        self.id.as_ref().map(key)
    }

    pub(super) fn fields(&self) -> Vec<FieldValue> {
        let text = |text: &str| Ok(Value::string(text));
        let told = self.gang.as_ref();
        let seconds = |time: Option<Duration>| {
            time.map_or(-1, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
        };
        let kind = self.kind.map(|kind| format!("{}.{}", kind.resource().kind, kind.resource().group));
        vec![
            ("named", Ok(Value::Bool(self.id.is_some()))),
            ("dialect", text(self.id.as_ref().map_or("", |id| id.dialect.as_str()))),
            ("name", text(self.id.as_ref().map_or("", |id| &id.name))),
            ("namespace", text(self.id.as_ref().map_or("", |id| &id.namespace))),
            ("role", text(&self.role)),
            ("groupFound", Ok(Value::Bool(self.kind.is_some()))),
            ("groupKind", text(kind.as_deref().unwrap_or_default())),
            ("known", Ok(Value::Bool(self.known))),
            ("min", Ok(number(self.min))),
            ("declared", Ok(number(self.declared))),
            ("members", Ok(number(told.map_or(0, |told| told.members)))),
            ("bound", Ok(number(told.map_or(0, |told| told.bound)))),
            ("phase", text(told.map_or("", |told| &told.phase))),
            ("reason", text(told.map_or("", |told| &told.reason))),
            ("message", text(told.map_or("", |told| &told.message))),
            ("priorityClass", text(&self.priority_class)),
            ("timeoutSeconds", Ok(Value::Int(seconds(self.timeout)))),
            ("onTimeout", text(self.policies.on_timeout.map_or("", on_timeout))),
            ("onTorn", text(self.policies.on_torn.map_or("", on_torn))),
            ("onStale", text(self.policies.on_stale.map_or("", on_stale))),
            ("staleGraceSeconds", Ok(Value::Int(seconds(self.policies.stale_grace)))),
            ("elastic", Ok(Value::Bool(self.policies.elastic == Some(true)))),
            ("topology", text(self.policies.topology.as_deref().unwrap_or_default())),
            ("pin", Ok(Value::Bool(self.policies.pin == Some(true)))),
            ("gpus", Ok(number(self.all.gpus))),
            ("vramMiB", Ok(number(self.all.vram_mib))),
            ("conflicts", Ok(texts(&self.conflicts))),
        ]
    }
}

/// As [`names::ON_TIMEOUT_ANNOTATION`] spells it.
fn on_timeout(choice: OnTimeout) -> &'static str {
    match choice {
        OnTimeout::Requeue => "requeue",
        OnTimeout::Delete => "delete",
    }
}

/// As [`names::ON_TORN_ANNOTATION`] spells it.
fn on_torn(choice: OnTorn) -> &'static str {
    match choice {
        OnTorn::Hold => "hold",
        OnTorn::Evict => "evict",
    }
}

/// As [`names::ON_STALE_ANNOTATION`] spells it.
fn on_stale(choice: OnStale) -> &'static str {
    match choice {
        OnStale::Evict => "evict",
        OnStale::Keep => "keep",
    }
}

/// How many members there are that ask for as much as one of this role: those of its subgroup, or all.
fn alike(quorum: &Quorum, role: Option<&str>) -> u64 {
    fn of_role(quorum: &Quorum, role: &str) -> Option<u32> {
        match quorum {
            Quorum::Count(_) => None,
            Quorum::Groups { children, .. } => children.iter().find_map(|(name, child)| {
                if **name == *role { Some(child.min_members()) } else { of_role(child, role) }
            }),
            Quorum::Total { quorum, .. } => of_role(quorum, role),
        }
    }
    of_role(quorum, role.unwrap_or(names::KAI_DEFAULT_SUBGROUP))
        .unwrap_or_else(|| quorum.min_members())
        .into()
}

/// The group object of a gang, as far as it is known: that of the first kind, or the one that describes several gangs.
fn find_group(id: &GangId, namespace: &str, cluster: &ClusterData) -> Option<Group> {
    let template = dialect::template_group(id);
    let kinds = dialect::group_kinds().filter(|kind| kind.dialect() == id.dialect);
    let names = || [Some(id), template.as_ref()].into_iter().flatten();
    kinds.flat_map(|kind| names().map(move |gang| (kind, gang))).find_map(|(kind, gang)| {
        let resource = kind.resource();
        // A Workload has groups: `workload/group`.
        let name = gang.name.split('/').next().unwrap_or_default();
        let found =
            cluster.groups.get(&format!("{}.{}/{namespace}/{name}", resource.kind, resource.group))?;
        let object = kind.read(&within(found, namespace)).ok()?;
        object.groups.into_iter().find(|group| group.gang == *gang)
    })
}

fn key(id: &GangId) -> String {
    format!("{}/{}", id.namespace, id.object_name())
}

fn told(id: &GangId, cluster: &ClusterData) -> Option<GangStatus> {
    let status = cluster.gangs.get(&key(id))?.get("status")?;
    let text = |key: &str| status.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
    let number = |key: &str| status.get(key).and_then(Json::as_u64).unwrap_or_default();
    Some(GangStatus {
        phase: text("phase"),
        reason: text("reason"),
        message: text("message"),
        members: number("members"),
        bound: number("bound"),
    })
}

/// The queue that a pod names by the label or annotation of a stack.
fn queue_of_pod(pod: &PodView<'_>) -> String {
    let (labels, annotations) = (&pod.metadata.labels, &pod.metadata.annotations);
    let labelled = names::QUEUE_LABELS.iter().find_map(|key| labels.text(key));
    let annotated = || names::QUEUE_ANNOTATIONS.iter().find_map(|key| annotations.text(key));
    labelled.or_else(annotated).unwrap_or_default().to_owned()
}
