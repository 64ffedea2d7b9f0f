//! The state of a controller that owns pods: how many it wants, and in which gang.

use crate::dialect;
use crate::model::{GangId, Str, str};
use crate::objects::view::{Condition, OwnerView};
use crate::objects::{ObjectRef, OwnerKind, ReadError};

/// What an owner of pods states.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerState {
    /// UID.
    pub uid: Str,
    /// How many unfinished pods it wants.
    pub desired_pods: u32,
    /// The owner is being deleted.
    pub terminating: bool,
    /// The controller that owns this owner.
    pub controller: Option<ObjectRef>,
    /// The gang that its pod template names.
    pub gang: Option<GangId>,
}

impl OwnerState {
    /// Reads an owner of this kind from its JSON.
    ///
    /// # Errors
    /// When the text is not JSON, or a field has the wrong type.
    pub fn read(kind: OwnerKind, json: &str) -> Result<Self, ReadError> {
        let fail = |problem: String| ReadError { kind: kind.as_str(), name: "?".to_owned(), problem };
        let mut view: OwnerView<'_> = serde_json::from_str(json).map_err(|e| fail(e.to_string()))?;
        let meta = &view.metadata;
        let desired_pods = match kind {
            OwnerKind::Job => desired_by_job(&view),
            _ => view.spec.replicas.unwrap_or(1),
        };
        // Pods are in the namespace of their owner; the template does not state it.
        view.spec.template.metadata.namespace = meta.namespace.clone();
        Ok(Self {
            uid: str(meta.uid.as_str()),
            desired_pods,
            terminating: meta.deletion_timestamp.is_some(),
            controller: ObjectRef::controller_of(meta),
            gang: dialect::membership(&view.spec.template).map(|membership| membership.gang),
        })
    }
}

/// `parallelism`, at most the completions that are still missing; 0 for a Job that is finished or suspended.
fn desired_by_job(job: &OwnerView<'_>) -> u32 {
    const FINISHED: [&str; 4] = ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"];
    let finished = |c: &Condition<'_>| c.status.as_str() == "True" && FINISHED.contains(&c.r#type.as_str());
    if job.spec.suspend || job.status.conditions.iter().any(finished) {
        return 0;
    }
    let parallelism = job.spec.parallelism.unwrap_or(1);
    let uncounted = u32::try_from(job.status.uncounted_terminated_pods.succeeded.len()).unwrap_or(u32::MAX);
    let succeeded = job.status.succeeded.saturating_add(uncounted);
    match job.spec.completions {
        Some(completions) => parallelism.min(completions.saturating_sub(succeeded)),
        // Without `completions` the Job creates no pod after the first success.
        None if succeeded > 0 => 0,
        None => parallelism,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DialectId;

    #[test]
    fn an_owner_states_how_many_pods_it_wants() {
        let check = |kind: OwnerKind, json: &str, desired: u32| {
            assert_eq!(OwnerState::read(kind, json).expect("it can be read").desired_pods, desired, "{json}");
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
        assert!(OwnerState::read(Job, r#"{"spec":{"parallelism":"four"}}"#).is_err());
    }

    #[test]
    fn the_pod_template_of_an_owner_names_the_gang() {
        let json = r#"{"metadata":{"namespace":"ml","uid":"u"},"spec":{"replicas":2,"template":{
            "metadata":{"labels":{"kai.scheduler/podgroup":"app"}},"spec":{"containers":[{"name":"main"}]}}}}"#;
        let read = OwnerState::read(OwnerKind::Deployment, json).expect("it can be read");
        assert_eq!(read.gang, Some(GangId::new(DialectId::Kai, "ml", "app")));
        assert_eq!(read.controller, None);
    }
}
