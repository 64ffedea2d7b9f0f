//! The permissions that the service account needs: the rules of `manifests/base/rbac*.yaml`, one access
//! review for each.

use portcullis_core::dialect::{GroupResource, StatusWrite, group_resources};
use serde_json::{Value, json};

use crate::installation::POLICY_WEBHOOK_CONFIGURATION;

/// One permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Permission {
    pub(super) verb: &'static str,
    pub(super) group: &'static str,
    /// The resource, such as `pods` or `pods/status`.
    pub(super) resource: String,
    /// Name of the object; empty for any.
    pub(super) name: &'static str,
    /// Needed in the namespace of the installation only, not in all namespaces.
    pub(super) own_namespace: bool,
    /// Needed only if Portcullis manages its own certificates.
    pub(super) certificates: bool,
    /// Needed only with the component policies.
    pub(super) policies: bool,
}

/// A row of the tables below: verbs, group, resource, name.
type PermissionRow = (&'static [&'static str], &'static str, &'static str, &'static str);

const READ_VERBS: &[&str] = &["get", "list", "watch"];

const EVERYWHERE: &[PermissionRow] = &[
    (READ_VERBS, "", "nodes", ""),
    (READ_VERBS, "", "namespaces", ""),
    (READ_VERBS, "scheduling.k8s.io", "priorityclasses", ""),
    (READ_VERBS, "node.k8s.io", "runtimeclasses", ""),
    (&["get", "list", "watch", "patch"], "", "pods", ""),
    (&["create"], "", "pods/eviction", ""),
    (&["patch"], "", "pods/status", ""),
    (&["get", "list", "watch", "create", "delete"], "portcullis.dev", "gangs", ""),
    (&["update"], "portcullis.dev", "gangs/status", ""),
    (&["create", "patch"], "events.k8s.io", "events", ""),
    // For the desired number of pods of an elastic gang.
    (&["get"], "apps", "deployments", ""),
    (&["get"], "apps", "replicasets", ""),
    (&["get"], "apps", "statefulsets", ""),
    (&["get"], "batch", "jobs", ""),
];

const IN_OWN_NAMESPACE: &[PermissionRow] = &[
    (&["create"], "coordination.k8s.io", "leases", ""),
    (&["get", "patch"], "coordination.k8s.io", "leases", "portcullis"),
];

const CERTIFICATES: &[PermissionRow] = &[
    (&["get", "patch"], "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "portcullis"),
    (
        &["get", "patch"],
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        POLICY_WEBHOOK_CONFIGURATION,
    ),
    (&["get", "patch"], "admissionregistration.k8s.io", "validatingwebhookconfigurations", "portcullis"),
    (
        &["get", "patch"],
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        POLICY_WEBHOOK_CONFIGURATION,
    ),
];

const CERTIFICATES_IN_OWN_NAMESPACE: &[PermissionRow] =
    &[(&["create"], "", "secrets", ""), (&["get", "update"], "", "secrets", "portcullis-tls")];

const POLICIES: &[PermissionRow] = &[
    (&["get"], "admissionregistration.k8s.io", "mutatingwebhookconfigurations", POLICY_WEBHOOK_CONFIGURATION),
    (
        &["get"],
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        POLICY_WEBHOOK_CONFIGURATION,
    ),
];

const POLICIES_IN_OWN_NAMESPACE: &[PermissionRow] =
    &[(&["create"], "", "configmaps", ""), (&["get", "patch"], "", "configmaps", "portcullis-capacity")];

/// Returns all permissions.
pub(super) fn required_permissions() -> Vec<Permission> {
    let tables = [
        (EVERYWHERE, false, false, false),
        (IN_OWN_NAMESPACE, true, false, false),
        (CERTIFICATES, false, true, false),
        (CERTIFICATES_IN_OWN_NAMESPACE, true, true, false),
        (POLICIES, false, false, true),
        (POLICIES_IN_OWN_NAMESPACE, true, false, true),
    ];
    let mut needs: Vec<Permission> =
        group_resources().flat_map(|(_, resource)| group_permissions(resource)).collect();
    // RBAC ignores versions, so all versions of one kind are one permission.
    needs.sort_by_key(|need| (need.group, need.resource.clone(), need.verb));
    needs.dedup_by_key(|need| (need.group, need.resource.clone(), need.verb));
    for (lines, own_namespace, certificates, policies) in tables {
        for &(verbs, group, resource, name) in lines {
            needs.extend(verbs.iter().map(|&verb| Permission {
                verb,
                group,
                resource: resource.to_owned(),
                name,
                own_namespace,
                certificates,
                policies,
            }));
        }
    }
    needs
}

/// Returns the permissions for one kind of pod group: read, and write the status if the kind has one.
fn group_permissions(resource: &GroupResource) -> Vec<Permission> {
    let need = |verb, plural: String| Permission {
        verb,
        group: resource.group,
        resource: plural,
        name: "",
        own_namespace: false,
        certificates: false,
        policies: false,
    };
    let mut needs: Vec<Permission> =
        READ_VERBS.iter().map(|verb| need(verb, resource.plural.to_owned())).collect();
    match resource.status {
        StatusWrite::Never => {}
        StatusWrite::Subresource => needs.push(need("patch", format!("{}/status", resource.plural))),
        StatusWrite::Object => needs.push(need("patch", resource.plural.to_owned())),
    }
    needs
}

impl Permission {
    /// Returns the SubjectAccessReview of this permission.
    pub(super) fn access_review(&self, namespace: &str) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": format!("system:serviceaccount:{namespace}:portcullis"),
                "groups": [
                    "system:serviceaccounts",
                    format!("system:serviceaccounts:{namespace}"),
                    "system:authenticated"
                ],
                "resourceAttributes": {
                    "verb": self.verb,
                    "group": self.group,
                    "resource": resource,
                    "subresource": subresource,
                    "name": self.name,
                    "namespace": if self.own_namespace { namespace } else { "" }
                }
            }
        })
    }

    /// Returns a short text such as `patch pods/status`.
    pub(super) fn description(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let name = if self.name.is_empty() { String::new() } else { format!(" {}", self.name) };
        format!("{} {}{group}{name}", self.verb, self.resource)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns every (verb, group, resource, name, own namespace) that a manifest file grants.
    fn granted(file: &str) -> BTreeSet<(String, String, String, String, bool)> {
        let path = format!("{}/manifests/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let mut granted = BTreeSet::new();
        for document in text.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            let own_namespace = object["kind"] == "Role";
            for rule in object["rules"].as_array().into_iter().flatten() {
                let list = |key: &str| -> Vec<String> {
                    let items = rule[key].as_array().into_iter().flatten();
                    items.map(|item| item.as_str().unwrap().to_owned()).collect()
                };
                let names =
                    if rule["resourceNames"].is_null() { vec![String::new()] } else { list("resourceNames") };
                for verb in list("verbs") {
                    for group in list("apiGroups") {
                        for resource in list("resources") {
                            for name in &names {
                                let (verb, group) = (verb.clone(), group.clone());
                                granted.insert((verb, group, resource.clone(), name.clone(), own_namespace));
                            }
                        }
                    }
                }
            }
        }
        granted
    }

    #[test]
    fn the_manifests_grant_exactly_the_required_permissions() {
        for (file, certificates, policies) in [
            ("base/rbac.yaml", false, false),
            ("base/rbac-certificates.yaml", true, false),
            ("components/policies/rbac.yaml", false, true),
        ] {
            let asked: BTreeSet<_> = required_permissions()
                .into_iter()
                .filter(|need| (need.certificates, need.policies) == (certificates, policies))
                .map(|need| {
                    let owned = |text: &str| text.to_owned();
                    (
                        owned(need.verb),
                        owned(need.group),
                        owned(&need.resource),
                        owned(need.name),
                        need.own_namespace,
                    )
                })
                .collect();
            assert_eq!(granted(file), asked, "{file}");
        }
    }
}
