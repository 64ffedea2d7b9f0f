//! Finds requests that policies match but no webhook configuration sends. Pure: objects in, messages out.

use portcullis_policy::PolicyEntry;
use portcullis_policy::api::ResourceRule;
use serde_json::Value;

use crate::installation::POLICY_WEBHOOK_CONFIGURATION;

/// Returns a message for each policy that matches requests which the webhook configuration of its hook does
/// not send. A missing configuration is `None` and gives no messages, because then the administrator wants no
/// such webhook.
pub(crate) fn uncovered_policies<'p>(
    policies: impl Iterator<Item = &'p PolicyEntry>,
    mutating: Option<&Value>,
    validating: Option<&Value>,
) -> Vec<String> {
    let mut messages = Vec::new();
    for policy in policies {
        for (rules, configuration, kind) in [
            (&policy.mutates, mutating, "MutatingWebhookConfiguration"),
            (&policy.validates, validating, "ValidatingWebhookConfiguration"),
        ] {
            let Some(configuration) = configuration else { continue };
            let sent: Vec<&Value> =
                list(&configuration["webhooks"]).flat_map(|hook| list(&hook["rules"])).collect();
            let mut missing: Vec<String> = rules.iter().flat_map(|rule| missing(rule, &sent)).collect();
            missing.sort();
            missing.dedup();
            if !missing.is_empty() {
                messages.push(format!(
                    "{} {} matches {}, which the API server does not send: add them to the rules of {kind} \
                     {POLICY_WEBHOOK_CONFIGURATION}",
                    policy.kind,
                    policy.name,
                    missing.join(", ")
                ));
            }
        }
    }
    messages
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the requests of a rule that are not sent, such as `CREATE pods` or `UPDATE deployments.apps`.
fn missing(rule: &ResourceRule, sent: &[&Value]) -> Vec<String> {
    let all = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    let mut missing = Vec::new();
    for operation in all(&rule.operations) {
        for group in all(&rule.api_groups) {
            for resource in all(&rule.resources) {
                let covers = |sent_rule: &&&Value| {
                    lists_or_wildcard(&sent_rule["operations"], &operation)
                        && lists_or_wildcard(&sent_rule["apiGroups"], &group)
                        && list(&sent_rule["resources"])
                            .filter_map(Value::as_str)
                            .any(|pattern| pattern_covers(pattern, &resource))
                };
                if !sent.iter().any(|sent_rule| covers(&sent_rule)) {
                    let dot = if group.is_empty() { "" } else { "." };
                    missing.push(format!("{operation} {resource}{dot}{group}"));
                }
            }
        }
    }
    missing
}

/// Whether a list of a rule contains this value or `*`.
fn lists_or_wildcard(values: &Value, value: &str) -> bool {
    list(values).any(|listed| listed == value || listed == "*")
}

/// Whether one resource pattern covers another, as the API server matches them: `*` covers no subresources,
/// and `pods/*` covers pods as well.
fn pattern_covers(pattern: &str, resource: &str) -> bool {
    let parts = |text| str::split_once(text, '/').unwrap_or((text, ""));
    let (sent, wanted) = (parts(pattern), parts(resource));
    (sent.0 == "*" || sent.0 == wanted.0) && (sent.1 == "*" || sent.1 == wanted.1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_with_unsent_requests_is_named_with_the_rules_to_add() {
        let sent = json!({"webhooks": [
            {"rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "resources": ["pods"]}]},
            {"rules": [{"operations": ["*"], "apiGroups": ["batch"], "resources": ["*"]}]},
        ]});
        let check = |rule: Value, expected: &str| {
            let policy = PolicyEntry {
                kind: "ValidatingAdmissionPolicy".to_owned(),
                name: "p".to_owned(),
                validates: vec![serde_json::from_value(rule).expect("a rule")],
                ..PolicyEntry::default()
            };
            let found = uncovered_policies(std::iter::once(&policy), None, Some(&sent)).concat();
            let expected = match expected {
                "" => String::new(),
                requests => format!(
                    "ValidatingAdmissionPolicy p matches {requests}, which the API server does not send: add them to the rules of \
                     ValidatingWebhookConfiguration policies.portcullis.dev"
                ),
            };
            assert_eq!(found, expected);
            assert_eq!(uncovered_policies(std::iter::once(&policy), None, None), Vec::<String>::new());
        };
        let rule = |operations: &[&str], group: &str, resources: &[&str]| json!({"operations": operations, "apiGroups": [group], "resources": resources, "apiVersions": ["v1"]});
        check(rule(&["CREATE"], "", &["pods"]), "");
        check(rule(&["DELETE"], "batch", &["jobs"]), "");
        check(
            rule(&["CREATE", "DELETE"], "", &["pods", "services"]),
            "CREATE services, DELETE pods, DELETE services",
        );
        check(rule(&["CREATE"], "apps", &["deployments"]), "CREATE deployments.apps");
        check(rule(&["*"], "", &["pods"]), "* pods");
    }

    #[test]
    fn resource_wildcards_cover_what_the_api_server_matches() {
        let check = |pattern: &str, covered: &[&str], not_covered: &[&str]| {
            for resource in covered {
                assert!(pattern_covers(pattern, resource), "{pattern} covers {resource}");
            }
            for resource in not_covered {
                assert!(!pattern_covers(pattern, resource), "{pattern} does not cover {resource}");
            }
        };
        check("pods", &["pods"], &["pods/exec", "pods/*", "*", "services"]);
        check("*", &["pods", "*"], &["pods/exec", "pods/*", "*/exec", "*/*"]);
        check("pods/exec", &["pods/exec"], &["pods", "pods/attach", "pods/*", "*/exec"]);
        check("pods/*", &["pods", "pods/exec", "pods/*"], &["services", "services/proxy", "*/*"]);
        check("*/exec", &["pods/exec", "*/exec"], &["pods", "pods/attach", "pods/*"]);
        check("*/*", &["pods", "pods/exec", "pods/*", "*/exec", "*", "*/*"], &[]);
    }
}
