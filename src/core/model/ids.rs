//! Identities. Names are always scoped by namespace. Pods are identified by UID, because a name can be
//! reused.

use std::fmt;
use std::sync::Arc;

use portcullis_text::hash::fnv1a;
use serde::{Deserialize, Serialize};

/// A shared immutable string. The engine copies names between indexes far more often than it creates them.
pub type Str = Arc<str>;

/// Creates a [`Str`].
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
            /// The name as a string slice.
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
    /// `metadata.uid` of a pod. It is never reused, unlike the name.
    PodUid
}
name! {
    /// `metadata.name` of a node.
    NodeName
}

/// Namespace and name of a pod. A later pod can have the same key: see [`PodUid`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodKey {
    /// Namespace of the pod.
    pub namespace: Str,
    /// Name of the pod within its namespace.
    pub name: Str,
}

impl PodKey {
    /// The key of a pod in a namespace.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self { namespace: str(namespace), name: str(name) }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The API by which pods are grouped into a gang.
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
    /// The two labels or annotations of Portcullis itself.
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

    /// All dialects.
    pub const ALL: &'static [Self] =
        &[Self::Kai, Self::Coscheduling, Self::Volcano, Self::Lws, Self::Native, Self::Yunikorn, Self::Plain];
}

impl fmt::Display for DialectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The identity of a gang: a pod group of one dialect in one namespace. Two dialects may use the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GangId {
    /// Namespace of the group and of all its pods.
    pub namespace: Str,
    /// Name of the group.
    pub name: Str,
    /// The dialect of the group.
    pub dialect: DialectId,
}

impl GangId {
    /// The gang `namespace/name` of `dialect`.
    pub fn new(dialect: DialectId, namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self { namespace: str(namespace), name: str(name), dialect }
    }

    /// Name of the `Gang` object. It is a valid object name and unique in the namespace.
    ///
    /// For KAI it is the name of the group. For other dialects it ends in `.` and the dialect, and also for
    /// KAI groups whose name looks like that. A slash becomes a dot. For a group name that no object can
    /// have, invalid characters are replaced and a hash makes the name unique.
    pub fn object_name(&self) -> Str {
        let bare = self.dialect == DialectId::Kai && !ends_in_dialect(&self.name);
        let suffix = if bare { String::new() } else { format!(".{}", self.dialect) };
        let spelt = if self.name.contains('.') { None } else { Some(self.name.replace('/', ".")) };
        let spelt = spelt.unwrap_or_else(|| self.name.to_string());
        if is_object_name(&spelt) && spelt.len() + suffix.len() <= MAX_OBJECT_NAME_BYTES && !is_hashed(&spelt)
        {
            return str(format!("{spelt}{suffix}"));
        }
        let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let kept: String = self.name.chars().map(legal).take(MAX_OBJECT_NAME_BYTES - 40).collect();
        let kept = kept.trim_matches('-');
        let kept = if kept.is_empty() { String::new() } else { format!("{kept}.") };
        str(format!("{kept}{HASH_PREFIX}{:016x}{suffix}", fnv1a(&self.name)))
    }
}

/// Maximum length of an object name.
const MAX_OBJECT_NAME_BYTES: usize = 253;
/// Prefix of the last part of a name when that part is a hash.
const HASH_PREFIX: &str = "x-";

fn ends_in_dialect(name: &str) -> bool {
    let end = name.rsplit(['.', '/']).next().unwrap_or(name);
    name.contains(['.', '/']) && DialectId::ALL.iter().any(|dialect| dialect.as_str() == end)
}

fn is_hashed(name: &str) -> bool {
    let end = name.rsplit('.').next().and_then(|end| end.strip_prefix(HASH_PREFIX));
    end.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Whether an object can have the name (k8s.io/apimachinery, util/validation, `IsDNS1123Subdomain`).
fn is_object_name(name: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let part = |part: &str| {
        let bytes = part.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    name.len() <= MAX_OBJECT_NAME_BYTES && name.split('.').all(part)
}

impl fmt::Display for GangId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The number of times the lease changed its holder (`spec.leaseTransitions`). It is the fencing token: a
/// newer epoch wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// `metadata.resourceVersion`, compared only between versions of one object. Kubernetes guarantees the
/// numeric order since 1.35 (KEP-5504), and every API server on etcd had it before. An unreadable version is
/// 0, older than all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(pub u64);

impl ResourceVersion {
    /// Reads a version. A text that is not a number is version 0.
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
    fn gang_objects_have_valid_unique_names() {
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
            assert_eq!(seen.insert(made.clone(), name), None, "{dialect} {name}: {made} exists already");
        }
    }
}
