//! What an object of ours belongs to, for `metadata.ownerReferences`; and what makes pods, as far as it says how many.

use super::view::{Meta, OwnerView};
use super::{ReadError, names};
use crate::dialect;
use crate::model::{GangId, Str, str};

/// An object by kind, name and identity: what an event is about, and whose end ends what it owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// `group/version`.
    pub api_version: Str,
    /// Kind.
    pub kind: Str,
    /// Name; in the namespace of what it owns.
    pub name: Str,
    /// Identity: an object by the same name that is made later is another owner.
    pub uid: Str,
}

impl Owner {
    /// The owner that has made an object and takes care of it; `None` where there is none.
    pub(crate) fn controlling(meta: &Meta<'_>) -> Option<Self> {
        let found = meta.owner_references.iter().find(|owner| owner.controller)?;
        Some(Self {
            api_version: str(found.api_version.as_str()),
            kind: str(found.kind.as_str()),
            name: str(found.name.as_str()),
            uid: str(found.uid.as_str()),
        })
    }
}

/// The kinds of owner that say how many pods they want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerKind {
    /// `apps/v1 Deployment`: has ReplicaSets, which have the pods.
    Deployment,
    /// `apps/v1 ReplicaSet`.
    ReplicaSet,
    /// `apps/v1 StatefulSet`.
    StatefulSet,
    /// `batch/v1 Job`.
    Job,
}

impl OwnerKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Deployment, Self::ReplicaSet, Self::StatefulSet, Self::Job];

    /// The kind of this owner, in whichever version it is named; `None` for all others.
    pub fn of(owner: &Owner) -> Option<Self> {
        let (group, _) = owner.api_version.split_once('/')?;
        Self::ALL.into_iter().find(|kind| kind.group() == group && kind.as_str() == &*owner.kind)
    }

    /// `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::Job => "Job",
        }
    }

    /// API group; all of them are read at version `v1`.
    pub fn group(self) -> &'static str {
        match self {
            Self::Deployment | Self::ReplicaSet | Self::StatefulSet => names::APPS_API_GROUP,
            Self::Job => names::BATCH_API_GROUP,
        }
    }

    /// Plural.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::ReplicaSet => "replicasets",
            Self::StatefulSet => "statefulsets",
            Self::Job => "jobs",
        }
    }
}

/// What an owner of pods says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerReading {
    /// Its identity.
    pub uid: Str,
    /// How many pods it wants that have not ended.
    pub wants: u32,
    /// It is being deleted.
    pub going: bool,
    /// Its own owner.
    pub controller: Option<Owner>,
    /// The gang of the pods that it makes from now on.
    pub gang: Option<GangId>,
}

impl OwnerReading {
    /// Reads an owner of this kind from its JSON.
    ///
    /// # Errors
    /// When it is no JSON, or a field we need has the wrong type.
    pub fn read(kind: OwnerKind, json: &str) -> Result<Self, ReadError> {
        let fail = |problem: String| ReadError { kind: kind.as_str(), name: "?".to_owned(), problem };
        let mut view: OwnerView<'_> = serde_json::from_str(json).map_err(|e| fail(e.to_string()))?;
        let meta = &view.metadata;
        let wants = match kind {
            OwnerKind::Job => wanted_by_job(&view),
            _ => view.spec.replicas.unwrap_or(1),
        };
        // Its pods are in its namespace; the template does not say so.
        view.spec.template.metadata.namespace = meta.namespace.clone();
        Ok(Self {
            uid: str(meta.uid.as_str()),
            wants,
            going: meta.deletion_timestamp.is_some(),
            controller: Owner::controlling(meta),
            gang: dialect::membership(&view.spec.template).map(|membership| membership.gang),
        })
    }
}

/// So many pods at the same time, and no more than have still to end well; none of a Job that is over or suspended.
fn wanted_by_job(job: &OwnerView<'_>) -> u32 {
    const OVER: [&str; 4] = ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"];
    let over =
        |c: &super::view::Condition<'_>| c.status.as_str() == "True" && OVER.contains(&c.r#type.as_str());
    if job.spec.suspend || job.status.conditions.iter().any(over) {
        return 0;
    }
    let at_once = job.spec.parallelism.unwrap_or(1);
    let uncounted = u32::try_from(job.status.uncounted_terminated_pods.succeeded.len()).unwrap_or(u32::MAX);
    let ended = job.status.succeeded.saturating_add(uncounted);
    match job.spec.completions {
        Some(completions) => at_once.min(completions.saturating_sub(ended)),
        // Then no pod is made any more once one has ended well.
        None if ended > 0 => 0,
        None => at_once,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_says_how_many_pods_it_wants() {
        let check = |kind: OwnerKind, json: &str, wants: u32| {
            assert_eq!(OwnerReading::read(kind, json).expect("it can be read").wants, wants, "{json}");
        };
        use OwnerKind::{Deployment, Job, StatefulSet};
        check(Deployment, r#"{"spec":{"replicas":3}}"#, 3);
        check(Deployment, r#"{"spec":{}}"#, 1);
        check(StatefulSet, r#"{"spec":{"replicas":0}}"#, 0);
        check(Job, r#"{"spec":{"parallelism":4,"completions":10}}"#, 4);
        check(Job, r#"{"spec":{"parallelism":4,"completions":10},"status":{"succeeded":8}}"#, 2);
        let uncounted = r#"{"spec":{"parallelism":4,"completions":10},
            "status":{"succeeded":8,"uncountedTerminatedPods":{"succeeded":["a"]}}}"#;
        check(Job, uncounted, 1);
        check(Job, r#"{"spec":{"parallelism":4},"status":{"succeeded":0}}"#, 4);
        check(Job, r#"{"spec":{"parallelism":4},"status":{"succeeded":1}}"#, 0);
        check(Job, r#"{"spec":{"parallelism":4,"suspend":true}}"#, 0);
        let failed =
            r#"{"spec":{"parallelism":4},"status":{"conditions":[{"type":"Failed","status":"True"}]}}"#;
        check(Job, failed, 0);
        assert!(OwnerReading::read(Job, r#"{"spec":{"parallelism":"four"}}"#).is_err());
    }

    #[test]
    fn an_owner_says_of_which_gang_its_pods_are() {
        let json = r#"{"metadata":{"namespace":"ml","uid":"u"},"spec":{"replicas":2,"template":{
            "metadata":{"labels":{"kai.scheduler/podgroup":"app"}},"spec":{"containers":[{"name":"main"}]}}}}"#;
        let read = OwnerReading::read(OwnerKind::Deployment, json).expect("it can be read");
        assert_eq!(read.gang, Some(GangId::new(crate::model::DialectId::Kai, "ml", "app")));
        assert_eq!(read.controller, None);
    }

    #[test]
    fn the_kind_of_an_owner_is_known_in_every_version() {
        let check = |api_version: &str, kind: &str, expected: Option<OwnerKind>| {
            let (api_version, kind) = (str(api_version), str(kind));
            let owner = Owner { api_version, kind, name: str("a"), uid: str("u") };
            assert_eq!(OwnerKind::of(&owner), expected);
        };
        check("apps/v1", "ReplicaSet", Some(OwnerKind::ReplicaSet));
        check("apps/v1beta2", "StatefulSet", Some(OwnerKind::StatefulSet));
        check("batch/v1", "Job", Some(OwnerKind::Job));
        check("batch.volcano.sh/v1alpha1", "Job", None);
        check("v1", "ReplicationController", None);
    }
}
