//! The leader's lease as an object: how it is read and what is written to it.

use std::time::Duration;

use portcullis_core::engine::{GangStatus, RequestOutcome};
use portcullis_core::model::Epoch;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ReadFailure;

/// How long a lease is valid after its last renewal.
pub const LEASE_DURATION: Duration = Duration::from_secs(6);

/// A lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseReading {
    /// `metadata.resourceVersion`: the version that a compare-and-swap tests.
    pub resource_version: String,
    /// `spec.holderIdentity`; empty when the lease is free.
    pub holder: String,
    /// `spec.leaseTransitions`: the epoch of the holder.
    pub transitions: u64,
    /// `spec.leaseDurationSeconds`; [`LEASE_DURATION`] where it is missing.
    pub duration: Duration,
}

impl LeaseReading {
    /// Reads a `coordination.k8s.io/v1 Lease`.
    ///
    /// # Errors
    /// When the JSON is not a lease with a resource version.
    pub fn parse(json: &[u8]) -> Result<Self, ReadFailure> {
        #[derive(Deserialize)]
        struct LeaseObject {
            metadata: LeaseMetadata,
            #[serde(default)]
            spec: Option<LeaseSpecFields>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct LeaseMetadata {
            resource_version: String,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct LeaseSpecFields {
            holder_identity: Option<String>,
            lease_transitions: Option<u64>,
            lease_duration_seconds: Option<u64>,
        }
        let object: LeaseObject = serde_json::from_slice(json)
            .map_err(|error| ReadFailure::Failed(format!("unreadable lease: {error}")))?;
        let spec = object.spec.unwrap_or_default();
        Ok(Self {
            resource_version: object.metadata.resource_version,
            holder: spec.holder_identity.unwrap_or_default(),
            transitions: spec.lease_transitions.unwrap_or(0),
            duration: spec.lease_duration_seconds.map_or(LEASE_DURATION, Duration::from_secs),
        })
    }

    /// The engine's answer to a read of the lease: whether it names this identity under this epoch. `None`
    /// stands for a lease that does not exist.
    pub fn verify(
        reading: Result<Option<Self>, ReadFailure>,
        identity: &str,
        epoch: Epoch,
    ) -> RequestOutcome {
        match reading {
            Ok(Some(lease)) => {
                RequestOutcome::Lease { ours: lease.holder == identity && lease.transitions == epoch.0 }
            }
            Ok(None) => RequestOutcome::Lease { ours: false },
            Err(ReadFailure::Failed(_)) => RequestOutcome::Unknown,
            Err(failure) => RequestOutcome::Failed(failure.to_string()),
        }
    }
}

/// A change of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    /// Take it under this epoch.
    Acquire(Epoch),
    /// Renew it.
    Renew,
    /// Release it, so that another replica need not wait until it expires.
    Release,
}

impl LeaseChange {
    /// The fields of `spec` that the change writes. `now` is the time of day as `metav1.MicroTime`. It is for
    /// human readers: no replica compares it.
    pub fn spec(self, identity: &str, now: &str) -> Value {
        match self {
            Self::Acquire(epoch) => json!({
                "holderIdentity": identity, "leaseDurationSeconds": LEASE_DURATION.as_secs(),
                "acquireTime": now, "renewTime": now, "leaseTransitions": epoch.0,
            }),
            Self::Renew => json!({"renewTime": now}),
            Self::Release => json!({"holderIdentity": null, "renewTime": now}),
        }
    }
}

/// The highest epoch that a gang's status was written or planned under.
pub fn highest_epoch(status: &GangStatus) -> Epoch {
    status.plan.as_ref().map(|plan| plan.epoch).unwrap_or_default().max(status.epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_of_a_lease_have_defaults() {
        let read = |json: &str| LeaseReading::parse(json.as_bytes()).ok();
        let bare = LeaseReading {
            resource_version: "7".into(),
            holder: String::new(),
            transitions: 0,
            duration: LEASE_DURATION,
        };
        assert_eq!(read(r#"{"metadata":{"resourceVersion":"7"}}"#), Some(bare.clone()));
        assert_eq!(
            read(
                r#"{"metadata":{"resourceVersion":"7"},"spec":{"holderIdentity":"a","leaseTransitions":3,"leaseDurationSeconds":15}}"#
            ),
            Some(LeaseReading {
                holder: "a".into(),
                transitions: 3,
                duration: Duration::from_secs(15),
                ..bare
            })
        );
        assert_eq!(read("{}"), None);
    }

    #[test]
    fn only_the_same_holder_and_epoch_verify_a_lease() {
        let lease = |holder: &str, transitions| {
            let json = json!({"metadata": {"resourceVersion": "1"},
                "spec": {"holderIdentity": holder, "leaseTransitions": transitions}});
            LeaseReading::parse(json.to_string().as_bytes()).map(Some)
        };
        let verify = |reading| LeaseReading::verify(reading, "a", Epoch(3));
        assert_eq!(verify(lease("a", 3)), RequestOutcome::Lease { ours: true });
        assert_eq!(verify(lease("a", 4)), RequestOutcome::Lease { ours: false });
        assert_eq!(verify(lease("b", 3)), RequestOutcome::Lease { ours: false });
        assert_eq!(verify(Ok(None)), RequestOutcome::Lease { ours: false });
        assert_eq!(verify(Err(ReadFailure::Failed("x".into()))), RequestOutcome::Unknown);
        assert!(matches!(verify(Err(ReadFailure::Forbidden("x".into()))), RequestOutcome::Failed(_)));
    }
}
