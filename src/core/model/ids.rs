//! Identities. Names are scoped by namespace, always; pods are told apart by UID, because names come back.

use std::fmt;
use std::sync::Arc;

use portcullis_text::hash::fnv1a;
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
    /// PodGroups of scheduler-plugins.
    Coscheduling,
    /// `scheduling.volcano.sh/v1beta1` PodGroups.
    Volcano,
    /// Replicas of LeaderWorkerSets.
    Lws,
    /// Workloads and PodGroups of Kubernetes itself.
    Native,
    /// Task groups of Apache YuniKorn.
    Yunikorn,
    /// Our own two keys.
    Plain,
}

impl DialectId {
    /// The name used in the `Gang` object, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kai => "kai",
            Self::Coscheduling => "coscheduling",
            Self::Volcano => "volcano",
            Self::Lws => "lws",
            Self::Native => "native",
            Self::Yunikorn => "yunikorn",
            Self::Plain => "plain",
        }
    }

    /// All of them.
    pub const ALL: &'static [Self] =
        &[Self::Kai, Self::Coscheduling, Self::Volcano, Self::Lws, Self::Native, Self::Yunikorn, Self::Plain];
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

    /// Name of the `Gang` object: a legal object name, and no two gangs of a namespace have the same.
    ///
    /// KAI's is the bare name of the group; others end in `.` and the dialect, and so do the few of KAI that would look
    /// like one of them. A slash becomes a dot. What no object can be called is spelt as far as it goes, and told apart by
    /// a hash.
    pub fn object_name(&self) -> Str {
        let bare = self.dialect == DialectId::Kai && !ends_in_dialect(&self.name);
        let suffix = if bare { String::new() } else { format!(".{}", self.dialect) };
        let spelt = if self.name.contains('.') { None } else { Some(self.name.replace('/', ".")) };
        let spelt = spelt.unwrap_or_else(|| self.name.to_string());
        if is_object_name(&spelt) && spelt.len() + suffix.len() <= LONGEST && !is_hashed(&spelt) {
            return str(format!("{spelt}{suffix}"));
        }
        let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let kept: String = self.name.chars().map(legal).take(LONGEST - 40).collect();
        let kept = kept.trim_matches('-');
        let kept = if kept.is_empty() { String::new() } else { format!("{kept}.") };
        str(format!("{kept}{HASHED}{:016x}{suffix}", fnv1a(&self.name)))
    }
}

/// Most characters an object name can have.
const LONGEST: usize = 253;
/// What the last part of a name begins with where it is a hash.
const HASHED: &str = "x-";

fn ends_in_dialect(name: &str) -> bool {
    let end = name.rsplit(['.', '/']).next().unwrap_or(name);
    name.contains(['.', '/']) && DialectId::ALL.iter().any(|dialect| dialect.as_str() == end)
}

fn is_hashed(name: &str) -> bool {
    let end = name.rsplit('.').next().and_then(|end| end.strip_prefix(HASHED));
    end.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Whether an object may be called so (k8s.io/apimachinery, util/validation `IsDNS1123Subdomain`).
fn is_object_name(name: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let part = |part: &str| {
        let bytes = part.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    name.len() <= LONGEST && name.split('.').all(part)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gang_objects_have_legal_names_of_their_own() {
        use DialectId::{Coscheduling, Kai, Lws, Native, Volcano};
        let long = "g".repeat(253);
        let mut seen = std::collections::BTreeMap::new();
        for (dialect, name, expected) in [
            (Kai, "app", Some("app")),
            (Kai, "a.b", Some("a.b")),
            (Kai, "app.volcano", Some("app.volcano.kai")),
            (Kai, "app.kai", Some("app.kai.kai")),
            (Kai, long.as_str(), Some(long.as_str())),
            (Volcano, "app", Some("app.volcano")),
            (Volcano, "app.volcano", Some("app.volcano.volcano")),
            (Volcano, long.as_str(), None),
            (Coscheduling, "app", Some("app.coscheduling")),
            (Coscheduling, "App_1", Some("app-1.x-b9a51db492c70ec8.coscheduling")),
            (Coscheduling, "app-1", Some("app-1.coscheduling")),
            (Kai, "App/1", None),
            (Kai, "___", None),
            (Kai, "app-1.x-b9a51db492c70ec8", None),
            (Lws, "vllm-0", Some("vllm-0.lws")),
            (Native, "training-job/workers", Some("training-job.workers.native")),
            (Native, "training-job/workers/0", Some("training-job.workers.0.native")),
            (Native, "training.job/workers", None),
            (Native, "training/job.workers", None),
        ] {
            let made = GangId::new(dialect, "ns", name).object_name();
            if let Some(expected) = expected {
                assert_eq!(&*made, expected, "{dialect} {name}");
            }
            assert!(is_object_name(&made), "{dialect} {name}: {made}");
            assert_eq!(seen.insert(made.clone(), name), None, "{dialect} {name}: {made} is there already");
        }
    }
}
