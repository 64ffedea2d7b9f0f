//! The kinds that the simulated API server knows.

use std::fmt;

use serde_json::Value;

use super::ApiStatus;
use portcullis_core::dialect::{self, GroupKind, StatusWrite};
use portcullis_core::model::{Str, str};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $api_version:literal, $plural:literal, $namespaced:literal;)*) => {
        /// A kind of object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ObjectKind {
            $($(#[$doc])* $name,)*
            /// A group object of a dialect.
            Group(GroupKind),
        }

        impl ObjectKind {
            /// All kinds.
            pub fn all() -> impl Iterator<Item = Self> {
                [$(Self::$name),*].into_iter().chain(dialect::group_kinds().map(Self::Group))
            }

            /// `kind`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::Group(kind) => kind.resource().kind,
                }
            }

            /// `apiVersion`: group and version, the group empty for core.
            pub fn group_version(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$name => $api_version.split_once('/').unwrap_or(("", $api_version)),)*
                    Self::Group(kind) => (kind.resource().group, kind.resource().version),
                }
            }

            /// Plural name, as in URLs and messages.
            pub fn plural(self) -> &'static str {
                match self {
                    $(Self::$name => $plural,)*
                    Self::Group(kind) => kind.resource().plural,
                }
            }

            /// Whether objects of the kind belong to a namespace.
            pub fn namespaced(self) -> bool {
                match self { $(Self::$name => $namespaced,)* Self::Group(_) => true }
            }
        }
    };
}

kinds! {
    /// A node.
    Node: "v1", "nodes", false;
    /// A pod.
    Pod: "v1", "pods", true;
    /// The `Gang` object of Portcullis.
    Gang: "portcullis.dev/v1alpha1", "gangs", true;
    /// A priority class.
    PriorityClass: "scheduling.k8s.io/v1", "priorityclasses", false;
    /// A namespace.
    Namespace: "v1", "namespaces", false;
    /// A Deployment.
    Deployment: "apps/v1", "deployments", true;
    /// A ReplicaSet.
    ReplicaSet: "apps/v1", "replicasets", true;
    /// A StatefulSet.
    StatefulSet: "apps/v1", "statefulsets", true;
    /// A Job.
    Job: "batch/v1", "jobs", true;
    /// A lease.
    Lease: "coordination.k8s.io/v1", "leases", true;
}

impl ObjectKind {
    /// The kind of this manifest.
    ///
    /// # Errors
    /// The message of kubectl for an unknown kind.
    pub fn of(object: &Value) -> Result<Self, ApiStatus> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or("");
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self::all().find(|k| k.as_str() == kind && k.group_version() == (group, version)).ok_or_else(|| {
            let message = format!("no matches for kind \"{kind}\" in version \"{api_version}\"");
            ApiStatus::new(404, "NotFound", message)
        })
    }

    /// The kind by one of the names that kubectl accepts: `pod`, `pods`, `Pod`,
    /// `podgroups.scheduling.volcano.sh`, or with the version as well,
    /// `podgroups.v1alpha2.scheduling.k8s.io`.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let (bare, rest) = name.split_once('.').unwrap_or((&name, ""));
        Self::all().find(|k| {
            let (group, version) = k.group_version();
            let qualified =
                rest.is_empty() || rest == group || rest.strip_prefix(version) == Some(&format!(".{group}"));
            qualified && (k.as_str().eq_ignore_ascii_case(bare) || k.plural() == bare)
        })
    }

    /// The prefix that kubectl prints before names of this kind: `pod`, `podgroup.scheduling.run.ai`.
    pub fn kubectl_name(self) -> String {
        let lower = self.as_str().to_ascii_lowercase();
        match self.group_version() {
            ("", _) => lower,
            (group, _) => format!("{lower}.{group}"),
        }
    }

    /// The group of its resource in messages: `podgroups.scheduling.run.ai`.
    pub fn qualified_plural(self) -> String {
        match self.group_version() {
            ("", _) => self.plural().to_owned(),
            (group, _) => format!("{}.{group}", self.plural()),
        }
    }

    /// Whether `status` can only be written through the `status` subresource.
    pub(super) fn isolates_status(self) -> bool {
        match self {
            Self::Pod | Self::Gang => true,
            Self::Group(kind) => kind.resource().status == StatusWrite::Subresource,
            _ => false,
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The identity of an object. `namespace` is empty for cluster-scoped kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind.
    pub kind: ObjectKind,
    /// Namespace.
    pub namespace: Str,
    /// Name.
    pub name: Str,
}

impl ObjectKey {
    /// The object `namespace/name` of this kind. The namespace is dropped for cluster-scoped kinds.
    pub fn new(kind: ObjectKind, namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        let namespace = if kind.namespaced() { str(namespace) } else { str("") };
        Self { kind, namespace, name: str(name) }
    }
}

impl fmt::Display for ObjectKey {
    /// As kubectl names it: `pod/app-server`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.kubectl_name(), self.name)
    }
}
