//! Checks of the component policies: is it registered, does the program know of it, are its files good, and is everything sent that
//! they are about.

use portcullis_policy::{Severity, SourceFile, load};
use serde_json::Value;

use super::gather::{Found, Gathered};
use super::judge::{APPLY, Check, count, named};
use crate::installation::POLICY_WEBHOOK_CONFIGURATION;
use crate::policy_coverage::uncovered_policies;

/// The ConfigMap of the component.
pub(super) const CONFIG_MAP: &str = "portcullis-policies";

/// Hooks of each configuration that refuse what nobody judges, and those that let it in.
const HOOKS: [(&str, &str); 5] = [
    ("gpu-pods.policies.portcullis.dev", "Fail"),
    ("pods.policies.portcullis.dev", "Ignore"),
    ("changes.policies.portcullis.dev", "Ignore"),
    ("workloads.policies.portcullis.dev", "Ignore"),
    ("groups.policies.portcullis.dev", "Ignore"),
];

/// Whether anything of it is installed.
pub(super) fn installed(seen: &Gathered) -> bool {
    registered(seen).next().is_some() || asked_for(seen)
}

/// The registrations of policies that are there.
pub(super) fn registered(seen: &Gathered) -> impl Iterator<Item = &Value> {
    [&seen.policy_mutating, &seen.policy_validating].into_iter().filter_map(Found::object)
}

/// Whether the replicas are started with policies.
fn asked_for(seen: &Gathered) -> bool {
    let containers = seen.deployment.object().map(|object| &object["spec"]["template"]["spec"]["containers"]);
    let containers = containers.and_then(Value::as_array).into_iter().flatten();
    let arguments = containers.flat_map(|container| container["args"].as_array().into_iter().flatten());
    arguments.filter_map(Value::as_str).any(|argument| argument.starts_with("--policies"))
}

/// Nothing where the component is not installed.
pub(super) fn checks(seen: &Gathered) -> Vec<Check> {
    if !installed(seen) {
        return Vec::new();
    }
    std::iter::once(registration(seen)).chain(files(seen)).collect()
}

fn registration(seen: &Gathered) -> Check {
    const NAME: &str = "policy webhooks";
    for found in [&seen.policy_mutating, &seen.policy_validating] {
        if let Found::Unknown(problem) = found {
            return Check::unknown(NAME, problem);
        }
    }
    let there: Vec<&Value> = registered(seen).collect();
    if there.len() < 2 {
        let kind = if seen.policy_mutating.object().is_none() {
            "MutatingWebhookConfiguration"
        } else {
            "ValidatingWebhookConfiguration"
        };
        let says =
            format!("{kind} {POLICY_WEBHOOK_CONFIGURATION} is gone: its policies are asked about nothing");
        return Check::fail(NAME, says, [APPLY]);
    }
    if !asked_for(seen) {
        let says = "is registered, and the replicas are not started with --policies: pods that ask for GPUs are refused";
        return Check::fail(NAME, says, [APPLY]);
    }
    let mut lacking = Vec::new();
    let mut changed = Vec::new();
    for (name, policy) in HOOKS {
        for configuration in &there {
            let mut hooks = configuration["webhooks"].as_array().into_iter().flatten();
            match hooks.find(|hook| hook["name"] == name) {
                None => lacking.push(name),
                Some(hook) if hook["failurePolicy"] != policy => changed.push(name),
                Some(_) => {}
            }
        }
    }
    if !lacking.is_empty() {
        return Check::warn(
            NAME,
            format!("{POLICY_WEBHOOK_CONFIGURATION} lacks {}", named(&lacking)),
            [APPLY],
        );
    }
    let changed = if changed.is_empty() {
        String::new()
    } else {
        format!(", with another failurePolicy than the component has in {}", named(&changed))
    };
    Check::ok(NAME, format!("registered{changed}"))
}

/// The files as they lie in the cluster, whatever a replica goes by.
fn files(seen: &Gathered) -> Vec<Check> {
    const NAME: &str = "policy files";
    let config_map = match &seen.policy_files {
        Found::Object(config_map) => config_map,
        Found::Missing => {
            let says = format!("there is no ConfigMap {CONFIG_MAP}: new replicas do not start");
            return vec![Check::fail(NAME, says, [APPLY])];
        }
        Found::Unknown(problem) => return vec![Check::unknown(NAME, problem)],
    };
    let data = config_map["data"].as_object().into_iter().flatten();
    let files: Vec<SourceFile> = data
        .map(|(name, text)| SourceFile {
            name: name.clone(),
            bytes: text.as_str().unwrap_or_default().as_bytes().to_owned(),
        })
        .collect();
    let loaded = load(&files);
    let look = format!("kubectl get configmap -n {} {CONFIG_MAP} -o yaml", seen.namespace);
    let Some(set) = loaded.set else {
        let errors: Vec<String> = loaded
            .problems
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .map(portcullis_policy::Problem::one_line)
            .collect();
        let says = format!(
            "{} in ConfigMap {CONFIG_MAP}; running replicas keep the set they had, new ones do not start: {}",
            count(errors.len(), "error"),
            named(&errors)
        );
        return vec![Check::fail(NAME, says, [look])];
    };
    let hash: String = set.hash().chars().take(12).collect();
    let uncovered =
        uncovered_policies(set.policies(), seen.policy_mutating.object(), seen.policy_validating.object());
    if uncovered.is_empty() {
        let names: Vec<&str> = set.policies().map(|policy| policy.name.as_str()).collect();
        let says = format!("set {hash} loads without an error: {}", named(&names));
        return vec![Check::ok(NAME, says)];
    }
    vec![Check::warn(NAME, named(&uncovered), [look])]
}
