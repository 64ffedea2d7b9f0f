//! The variable `gang`: the gang that an object belongs to or describes.

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
use super::subject::{RequestSubject, with_namespace};
use super::{FieldValue, number, texts};
use crate::input::ClusterData;

/// What is known about the gang of an object.
#[derive(Debug, Default)]
pub(super) struct GangAttributes {
    id: Option<GangId>,
    role: String,
    kind: Option<GroupKind>,
    /// Whether the group object or the pod states the number of members.
    known: bool,
    min: u64,
    declared: u64,
    policies: GangPolicies,
    timeout: Option<Duration>,
    priority_class: String,
    /// The queue of the group object; if it names none, the queue of the pod.
    pub(super) queue: String,
    /// What the object itself requests: all copies of a template.
    pub(super) own: GpuAmounts,
    /// What the whole gang requests, or the object itself if it is in no gang.
    pub(super) all: GpuAmounts,
    /// Whether the capacity report does not count the object yet.
    pub(super) new: bool,
    conflicts: Vec<String>,
    gang: Option<GangStatus>,
}

/// Whole GPUs, and MiB on shared cards.
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

/// The status of the `Gang` object.
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
        gpu: &GpuRequest,
        namespace: &str,
        cluster: &ClusterData,
    ) -> Self {
        match subject {
            RequestSubject::Pod { pod, copies, new } => {
                Self::of_pod(pod, *copies, *new, gpu, namespace, cluster)
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
        gpu: &GpuRequest,
        namespace: &str,
        cluster: &ClusterData,
    ) -> Self {
        let one = GpuAmounts { gpus: gpu.whole, vram_mib: gpu.total_vram_mib() };
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
        let equal_members =
            quorum.map_or(0, |quorum| equal_members(quorum, role.as_deref())).max(copies).max(1);
        facts.all = one.times(equal_members);
        facts.own = own;
        facts.new = new;
        facts.conflicts = conflicts;
        facts.role = role.as_deref().unwrap_or_default().to_owned();
        facts.gang = gang_status(&id, cluster);
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
            gang: gang_status(&group.gang, cluster),
            ..Self::default()
        }
    }

    /// Returns the key of the gang in the capacity report.
    pub(super) fn key(&self) -> Option<String> {
        self.id.as_ref().map(key)
    }

    pub(super) fn fields(&self) -> Vec<FieldValue> {
        let text = |text: &str| Ok(Value::string(text));
        let gang_status = self.gang.as_ref();
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
            ("members", Ok(number(gang_status.map_or(0, |gang_status| gang_status.members)))),
            ("bound", Ok(number(gang_status.map_or(0, |gang_status| gang_status.bound)))),
            ("phase", text(gang_status.map_or("", |gang_status| &gang_status.phase))),
            ("reason", text(gang_status.map_or("", |gang_status| &gang_status.reason))),
            ("message", text(gang_status.map_or("", |gang_status| &gang_status.message))),
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

/// Returns the value as in [`names::ON_TIMEOUT_ANNOTATION`].
fn on_timeout(choice: OnTimeout) -> &'static str {
    match choice {
        OnTimeout::Requeue => "requeue",
        OnTimeout::Delete => "delete",
    }
}

/// Returns the value as in [`names::ON_TORN_ANNOTATION`].
fn on_torn(choice: OnTorn) -> &'static str {
    match choice {
        OnTorn::Retry => "retry",
        OnTorn::Hold => "hold",
        OnTorn::Evict => "evict",
    }
}

/// Returns the value as in [`names::ON_STALE_ANNOTATION`].
fn on_stale(choice: OnStale) -> &'static str {
    match choice {
        OnStale::Evict => "evict",
        OnStale::Keep => "keep",
    }
}

/// Returns the number of members assumed to request as much as a pod of this role: its subgroup, or all
/// members.
fn equal_members(quorum: &Quorum, role: Option<&str>) -> u64 {
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

/// Returns the group object of a gang, if known: that of the first kind, or the one that describes several
/// gangs.
fn find_group(id: &GangId, namespace: &str, cluster: &ClusterData) -> Option<Group> {
    let template = dialect::template_group(id);
    let kinds = dialect::group_kinds().filter(|kind| kind.dialect() == id.dialect);
    let names = || [Some(id), template.as_ref()].into_iter().flatten();
    kinds.flat_map(|kind| names().map(move |gang| (kind, gang))).find_map(|(kind, gang)| {
        let resource = kind.resource();
        // A group within a Workload is named `workload/group`.
        let name = gang.name.split('/').next().unwrap_or_default();
        let found =
            cluster.groups.get(&format!("{}.{}/{namespace}/{name}", resource.kind, resource.group))?;
        let object = kind.read(&with_namespace(found, namespace)).ok()?;
        object.groups.into_iter().find(|group| group.gang == *gang)
    })
}

fn key(id: &GangId) -> String {
    format!("{}/{}", id.namespace, id.object_name())
}

fn gang_status(id: &GangId, cluster: &ClusterData) -> Option<GangStatus> {
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

/// Returns the queue that a pod names by a label or annotation.
fn queue_of_pod(pod: &PodView<'_>) -> String {
    let (labels, annotations) = (&pod.metadata.labels, &pod.metadata.annotations);
    let labelled = names::QUEUE_LABELS.iter().find_map(|key| labels.text(key));
    let annotated = || names::QUEUE_ANNOTATIONS.iter().find_map(|key| annotations.text(key));
    labelled.or_else(annotated).unwrap_or_default().to_owned()
}
