//! The variables of an admission policy, as the API server declares them. `object`, `oldObject` and `params`
//! are `dyn`, because one policy can match many kinds. A second check against a schema finds misspelt fields.

use crate::environment::{Env, StructFields};
use crate::types::Type;

fn structure(name: &str) -> Type {
    Type::Struct(name.into())
}

fn fields(fields: &[(&str, Type)]) -> StructFields {
    fields.iter().map(|(name, declared)| ((*name).to_owned(), declared.clone())).collect()
}

impl Env {
    /// The environment of a policy: `object`, `oldObject`, `request`, `namespaceObject`, and `params` when
    /// the policy has a `paramKind`.
    #[must_use]
    pub fn admission(has_params: bool) -> Self {
        use Type::{Bool, Dyn, Int, String, Timestamp};
        let texts = || Type::list(String);
        let text_map = || Type::map(String, String);
        let kind = structure("kubernetes.GroupVersionKind");
        let resource = structure("kubernetes.GroupVersionResource");
        let env = Self::new()
            .structure(
                "kubernetes.GroupVersionKind",
                fields(&[("group", String), ("version", String), ("kind", String)]),
            )
            .structure(
                "kubernetes.GroupVersionResource",
                fields(&[("group", String), ("version", String), ("resource", String)]),
            )
            .structure(
                "kubernetes.UserInfo",
                fields(&[
                    ("username", String),
                    ("uid", String),
                    ("groups", texts()),
                    ("extra", Type::map(String, texts())),
                ]),
            )
            .structure(
                "kubernetes.AdmissionRequest",
                fields(&[
                    ("kind", kind.clone()),
                    ("resource", resource.clone()),
                    ("subResource", String),
                    ("requestKind", kind),
                    ("requestResource", resource),
                    ("requestSubResource", String),
                    ("name", String),
                    ("namespace", String),
                    ("operation", String),
                    ("userInfo", structure("kubernetes.UserInfo")),
                    ("dryRun", Bool),
                    ("options", Dyn),
                ]),
            )
            .structure("kubernetes.NamespaceSpec", fields(&[("finalizers", texts())]))
            .structure(
                "kubernetes.NamespaceCondition",
                fields(&[
                    ("status", String),
                    ("type", String),
                    ("lastTransitionTime", Timestamp),
                    ("message", String),
                    ("reason", String),
                ]),
            )
            .structure(
                "kubernetes.NamespaceStatus",
                fields(&[
                    ("conditions", Type::list(structure("kubernetes.NamespaceCondition"))),
                    ("phase", String),
                ]),
            )
            .structure(
                "kubernetes.NamespaceMetadata",
                fields(&[
                    ("name", String),
                    ("generateName", String),
                    ("namespace", String),
                    ("labels", text_map()),
                    ("annotations", text_map()),
                    ("UID", String),
                    ("creationTimestamp", Timestamp),
                    ("deletionGracePeriodSeconds", Int),
                    ("deletionTimestamp", Timestamp),
                    ("generation", Int),
                    ("resourceVersion", String),
                    ("finalizers", texts()),
                ]),
            )
            .structure(
                "kubernetes.Namespace",
                fields(&[
                    ("metadata", structure("kubernetes.NamespaceMetadata")),
                    ("spec", structure("kubernetes.NamespaceSpec")),
                    ("status", structure("kubernetes.NamespaceStatus")),
                ]),
            )
            .variable("object", Dyn)
            .variable("oldObject", Dyn)
            .variable("request", structure("kubernetes.AdmissionRequest"))
            .variable("namespaceObject", structure("kubernetes.Namespace"));
        if has_params { env.variable("params", Dyn) } else { env }
    }
}
