//! What policies are about and the API server never asks us about: from values alone.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_policy::rules::Selected;
use serde_json::Value;

/// The name of both webhook configurations of the component policies. It sorts before `portcullis`, so that policies
/// change an object before it is gated.
pub(crate) const REGISTRATION: &str = "policies.portcullis.dev";

/// A sentence for each policy that is about something which the webhook configuration of its hook does not send. A configuration that is not
/// there is `None`, and nothing is said about its policies: where none is registered, nothing is meant to be.
pub(crate) fn unsent(
    selected: impl Iterator<Item = Selected>,
    mutating: Option<&Value>,
    validating: Option<&Value>,
) -> Vec<String> {
    let mut missed: BTreeMap<(bool, String), BTreeSet<String>> = BTreeMap::new();
    for one in selected {
        let Some(configuration) = (if one.mutates { mutating } else { validating }) else { continue };
        let sent: Vec<&Value> = list(&configuration["webhooks"]).flat_map(|hook| list(&hook["rules"])).collect();
        let missing = missing(&one, &sent);
        if !missing.is_empty() {
            missed.entry((one.mutates, one.policy)).or_default().extend(missing);
        }
    }
    let sentence = |((mutates, policy), what): ((bool, String), BTreeSet<String>)| {
        let kind = if mutates { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
        let what: Vec<String> = what.into_iter().collect();
        format!(
            "policy {policy} is about {}, which the API server does not send: add that to the rules of {kind} {REGISTRATION}",
            what.join(", ")
        )
    };
    missed.into_iter().map(sentence).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `CREATE pods`, `UPDATE deployments.apps`: what of a rule is not sent.
fn missing(selected: &Selected, sent: &[&Value]) -> Vec<String> {
    let mut missing = Vec::new();
    for operation in &selected.operations {
        for group in &selected.groups {
            for resource in &selected.resources {
                let covers = |one: &&&Value| {
                    names(&one["operations"], operation)
                        && names(&one["apiGroups"], group)
                        && (names(&one["resources"], resource) || names(&one["resources"], "*/*"))
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
        let check = |rule: [&[&str]; 3], expected: &str| {
            let [operations, groups, resources] = rule.map(|list| list.iter().map(|word| (*word).to_owned()).collect());
            let rule = || std::iter::once(Selected { policy: "p".to_owned(), mutates: false, operations, groups, resources });
            let rule: Vec<Selected> = rule().collect();
            let found = unsent(rule.iter().cloned(), None, Some(&sent)).concat();
            let expected = match expected {
                "" => String::new(),
                what => format!(
                    "policy p is about {what}, which the API server does not send: add that to the rules of \
                     ValidatingWebhookConfiguration policies.portcullis.dev"
                ),
            };
            assert_eq!(found, expected);
            assert_eq!(unsent(rule.into_iter(), None, None), Vec::<String>::new());
        };
        check([&["CREATE"], &[""], &["pods"]], "");
        check([&["DELETE"], &["batch"], &["jobs"]], "");
        check(
            rule(&["CREATE", "DELETE"], "", &["pods", "services"]),
            "CREATE services, DELETE pods, DELETE services",
        );
        check([&["CREATE"], &["apps"], &["deployments"]], "CREATE deployments.apps");
        check([&["*"], &[""], &["pods"]], "* pods");
    }
}
