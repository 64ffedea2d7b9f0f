//! What policies are about and the API server never asks us about: from values alone.

use portcullis_policy::Listed;
use portcullis_policy::spec::ResourceRule;
use serde_json::Value;

/// The name of both webhook configurations of the component policies. It sorts before `portcullis`, so that policies
/// change an object before it is gated.
pub(crate) const REGISTRATION: &str = "policies.portcullis.dev";

/// A sentence for each policy that is about something which the webhook configuration of its hook does not send. A configuration that is not
/// there is `None`, and nothing is said about its policies: where none is registered, nothing is meant to be.
pub(crate) fn unsent<'p>(
    policies: impl Iterator<Item = &'p Listed>,
    mutating: Option<&Value>,
    validating: Option<&Value>,
) -> Vec<String> {
    let mut sentences = Vec::new();
    for policy in policies {
        for (rules, configuration, kind) in [
            (&policy.changes, mutating, "MutatingWebhookConfiguration"),
            (&policy.judges, validating, "ValidatingWebhookConfiguration"),
        ] {
            let Some(configuration) = configuration else { continue };
            let sent: Vec<&Value> =
                list(&configuration["webhooks"]).flat_map(|hook| list(&hook["rules"])).collect();
            let mut missing: Vec<String> = rules.iter().flat_map(|rule| missing(rule, &sent)).collect();
            missing.sort();
            missing.dedup();
            if !missing.is_empty() {
                sentences.push(format!(
                    "{} {} is about {}, which the API server does not send: add them to the rules of {kind} {REGISTRATION}",
                    policy.kind,
                    policy.name,
                    missing.join(", ")
                ));
            }
        }
    }
    sentences
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `CREATE pods`, `UPDATE deployments.apps`: what of a rule is not sent.
fn missing(rule: &ResourceRule, sent: &[&Value]) -> Vec<String> {
    let all = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    let mut missing = Vec::new();
    for operation in all(&rule.operations) {
        for group in all(&rule.api_groups) {
            for resource in all(&rule.resources) {
                let covers = |one: &&&Value| {
                    names(&one["operations"], &operation)
                        && names(&one["apiGroups"], &group)
                        && list(&one["resources"])
                            .filter_map(Value::as_str)
                            .any(|word| holds(word, &resource))
                };
                if !sent.iter().any(|one| covers(&one)) {
                    let dot = if group.is_empty() { "" } else { "." };
                    missing.push(format!("{operation} {resource}{dot}{group}"));
                }
            }
        }
    }
    missing
}

/// Whether a list of a rule has this word or all words.
fn names(words: &Value, word: &str) -> bool {
    list(words).any(|one| one == word || one == "*")
}

/// Whether one word for resources means all that another one means, as the API server reads them: `*` is no subresource, and `pods/*` is
/// pods as well.
fn holds(word: &str, resource: &str) -> bool {
    let parts = |text| str::split_once(text, '/').unwrap_or((text, ""));
    let (sent, asked) = (parts(word), parts(resource));
    (sent.0 == "*" || sent.0 == asked.0) && (sent.1 == "*" || sent.1 == asked.1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_about_what_is_not_sent_is_named_with_what_to_add() {
        let sent = json!({"webhooks": [
            {"rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "resources": ["pods"]}]},
            {"rules": [{"operations": ["*"], "apiGroups": ["batch"], "resources": ["*"]}]},
        ]});
        let check = |rule: Value, expected: &str| {
            let policy = Listed {
                kind: "ValidatingAdmissionPolicy".to_owned(),
                name: "p".to_owned(),
                judges: vec![serde_json::from_value(rule).expect("a rule")],
                ..Listed::default()
            };
            let found = unsent(std::iter::once(&policy), None, Some(&sent)).concat();
            let expected = match expected {
                "" => String::new(),
                what => format!(
                    "ValidatingAdmissionPolicy p is about {what}, which the API server does not send: add them to the rules of \
                     ValidatingWebhookConfiguration policies.portcullis.dev"
                ),
            };
            assert_eq!(found, expected);
            assert_eq!(unsent(std::iter::once(&policy), None, None), Vec::<String>::new());
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
    fn a_star_for_resources_means_what_the_api_server_takes_it_for() {
        let check = |word: &str, sent: &[&str], not_sent: &[&str]| {
            for resource in sent {
                assert!(holds(word, resource), "{word} sends {resource}");
            }
            for resource in not_sent {
                assert!(!holds(word, resource), "{word} does not send {resource}");
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
