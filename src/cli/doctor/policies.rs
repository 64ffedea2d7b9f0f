//! Checks of the component policies: its webhook configurations, the option `--policies`, its files, and
//! whether the API server sends all requests that the policies match.

use portcullis_policy::{Severity, SourceFile, load};
use serde_json::Value;

use super::checks::{APPLY, DoctorCheck, named};
use super::cluster_state::{ClusterState, Lookup};
use crate::installation::POLICY_WEBHOOK_CONFIGURATION;
use crate::policy_coverage::uncovered_policies;

/// Name of the ConfigMap with the policy files.
pub(super) const CONFIG_MAP: &str = "portcullis-policies";

/// Hooks in each webhook configuration, with their failurePolicy.
const HOOKS: [(&str, &str); 5] = [
    ("gpu-pods.policies.portcullis.dev", "Fail"),
    ("pods.policies.portcullis.dev", "Ignore"),
    ("changes.policies.portcullis.dev", "Ignore"),
    ("workloads.policies.portcullis.dev", "Ignore"),
    ("groups.policies.portcullis.dev", "Ignore"),
];

/// Whether any part of the component is installed.
pub(super) fn installed(state: &ClusterState) -> bool {
    webhook_configurations(state).next().is_some() || replicas_use_policies(state)
}

/// The existing webhook configurations of the component.
pub(super) fn webhook_configurations(state: &ClusterState) -> impl Iterator<Item = &Value> {
    [&state.policy_mutating, &state.policy_validating].into_iter().filter_map(Lookup::object)
}

/// Whether the replicas run with `--policies`.
fn replicas_use_policies(state: &ClusterState) -> bool {
    let containers =
        state.deployment.object().map(|object| &object["spec"]["template"]["spec"]["containers"]);
    let containers = containers.and_then(Value::as_array).into_iter().flatten();
    let arguments = containers.flat_map(|container| container["args"].as_array().into_iter().flatten());
    arguments.filter_map(Value::as_str).any(|argument| argument.starts_with("--policies"))
}

/// Returns the checks of the component, or none if it is not installed.
pub(super) fn checks(state: &ClusterState) -> Vec<DoctorCheck> {
    if !installed(state) {
        return Vec::new();
    }
    std::iter::once(check_configurations(state)).chain(files(state)).collect()
}

fn check_configurations(state: &ClusterState) -> DoctorCheck {
    const NAME: &str = "policy webhooks";
    for found in [&state.policy_mutating, &state.policy_validating] {
        if let Lookup::Unknown(problem) = found {
            return DoctorCheck::unknown(NAME, problem);
        }
    }
    let there: Vec<&Value> = webhook_configurations(state).collect();
    if there.len() < 2 {
        let kind = if state.policy_mutating.object().is_none() {
            "MutatingWebhookConfiguration"
        } else {
            "ValidatingWebhookConfiguration"
        };
        let message =
            format!("{kind} {POLICY_WEBHOOK_CONFIGURATION} does not exist: its policies get no requests");
        return DoctorCheck::fail(NAME, message, [APPLY]);
    }
    if !replicas_use_policies(state) {
        let message = "registered, but the replicas run without --policies: the API server rejects pods that request GPUs";
        return DoctorCheck::fail(NAME, message, [APPLY]);
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
        return DoctorCheck::warn(
            NAME,
            format!("{POLICY_WEBHOOK_CONFIGURATION} has missing hooks: {}", named(&lacking)),
            [APPLY],
        );
    }
    let changed = if changed.is_empty() {
        String::new()
    } else {
        format!(", with a changed failurePolicy in {}", named(&changed))
    };
    DoctorCheck::ok(NAME, format!("registered{changed}"))
}

/// Checks the files in the ConfigMap. Replicas may still use a previous version.
fn files(state: &ClusterState) -> Vec<DoctorCheck> {
    const NAME: &str = "policy files";
    let config_map = match &state.policy_files {
        Lookup::Object(config_map) => config_map,
        Lookup::Missing => {
            let message = format!("ConfigMap {CONFIG_MAP} does not exist: new replicas do not start");
            return vec![DoctorCheck::fail(NAME, message, [APPLY])];
        }
        Lookup::Unknown(problem) => return vec![DoctorCheck::unknown(NAME, problem)],
    };
    let data = config_map["data"].as_object().into_iter().flatten();
    let files: Vec<SourceFile> = data
        .map(|(name, text)| SourceFile {
            name: name.clone(),
            bytes: text.as_str().unwrap_or_default().as_bytes().to_owned(),
        })
        .collect();
    let loaded = load(&files);
    let look = format!("kubectl get configmap -n {} {CONFIG_MAP} -o yaml", state.namespace);
    let Some(set) = loaded.set else {
        let errors: Vec<String> = loaded
            .problems
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .map(portcullis_policy::Problem::one_line)
            .collect();
        let message = format!(
            "{} in ConfigMap {CONFIG_MAP}; running replicas keep their active set, new replicas do not start: {}",
            portcullis_text::counted(errors.len(), "error", "errors"),
            named(&errors)
        );
        return vec![DoctorCheck::fail(NAME, message, [look])];
    };
    let hash: String = set.hash().chars().take(12).collect();
    let uncovered =
        uncovered_policies(set.policies(), state.policy_mutating.object(), state.policy_validating.object());
    if uncovered.is_empty() {
        let names: Vec<&str> = set.policies().map(|policy| policy.name.as_str()).collect();
        let message = format!("set {hash} loads without errors: {}", named(&names));
        return vec![DoctorCheck::ok(NAME, message)];
    }
    vec![DoctorCheck::warn(NAME, named(&uncovered), [look])]
}
