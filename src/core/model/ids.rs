//! Identities. Names are scoped by namespace, always; pods are told apart by UID, because names come back.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A shared, immutable string: object facts are copied between indexes far more often than they are made.
pub type Str = Arc<str>;

/// Shorthand for making a [`Str`].
pub fn str(s: impl AsRef<str>) -> Str {
    Arc::from(s.as_ref())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Str);

        impl $name {
            /// The bare text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(s: &str) -> Self {
                Self(Arc::from(s))
            }
        }
    };
}

name! {
    /// `metadata.uid` of a pod: unique over all time, unlike its name.
    PodUid
}
name! {
    /// `metadata.name` of a node.
    NodeName
}

/// Namespace and name of a pod. Not unique over time: see [`PodUid`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodKey {
    /// Namespace of the pod.
    pub namespace: Str,
    /// Name of the pod within its namespace.
    pub name: Str,
}

impl PodKey {
    /// Namespace first, as everywhere in Kubernetes.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self { namespace: str(namespace), name: str(name) }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Which stack's way of saying "these pods belong together".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DialectId {
    /// `scheduling.run.ai/v2alpha2` PodGroups.
    Kai,
}

impl DialectId {
    /// The name used in the `Gang` object, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kai => "kai",
        }
    }
}

impl fmt::Display for DialectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A gang: one pod group of one dialect in one namespace. Two dialects may use the same name side by side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GangId {
    /// Namespace of the group and of all its pods.
    pub namespace: Str,
    /// Name of the group.
    pub name: Str,
    /// The dialect that named it.
    pub dialect: DialectId,
}

impl GangId {
    /// The gang `namespace/name` of `dialect`.
    pub fn new(dialect: DialectId, namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self { namespace: str(namespace), name: str(name), dialect }
    }
}

impl fmt::Display for GangId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// How often the lease has changed hands (`spec.leaseTransitions`): the fencing token. Newer wins, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// `metadata.resourceVersion`. Comparable as a number since Kubernetes 1.35 (KEP-5504), and in every etcd-backed
/// API server before it; we compare only versions of one object. An unreadable one is 0, older than everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(pub u64);

impl ResourceVersion {
    /// Reads the text form; anything that is no number is version 0.
    pub fn parse(text: &str) -> Self {
        Self(text.parse().unwrap_or(0))
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
