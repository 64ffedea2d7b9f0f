//! Checks of the component policies: is it registered, does the program know of it, are its files good, and is everything sent that
//! they are about.

use portcullis_policy::{Severity, SourceFile, load};
use serde_json::Value;

use super::checks::{APPLY, DoctorCheck, named};
use super::cluster_state::{ClusterState, Lookup};
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
pub(super) fn installed(state: &ClusterState) -> bool {
    registered(state).next().is_some() || asked_for(state)
}

/// The registrations of policies that are there.
pub(super) fn registered(state: &ClusterState) -> impl Iterator<Item = &Value> {
    [&state.policy_mutating, &state.policy_validating].into_iter().filter_map(Lookup::object)
}

/// Whether the replicas are started with policies.
fn asked_for(state: &ClusterState) -> bool {
    let containers =
        state.deployment.object().map(|object| &object["spec"]["template"]["spec"]["containers"]);
    let containers = containers.and_then(Value::as_array).into_iter().flatten();
    let arguments = containers.flat_map(|container| container["args"].as_array().into_iter().flatten());
    arguments.filter_map(Value::as_str).any(|argument| argument.starts_with("--policies"))
}

/// Nothing where the component is not installed.
pub(super) fn checks(state: &ClusterState) -> Vec<DoctorCheck> {
    if !installed(state) {
        return Vec::new();
    }
    std::iter::once(registration(state)).chain(files(state)).collect()
}

fn registration(state: &ClusterState) -> DoctorCheck {
    const NAME: &str = "policy webhooks";
    for found in [&state.policy_mutating, &state.policy_validating] {
        if let Lookup::Unknown(problem) = found {
            return DoctorCheck::unknown(NAME, problem);
        }
    }
    let there: Vec<&Value> = registered(state).collect();
    if there.len() < 2 {
        let kind = if state.policy_mutating.object().is_none() {
            "MutatingWebhookConfiguration"
        } else {
            "ValidatingWebhookConfiguration"
        };
        let says =
            format!("{kind} {POLICY_WEBHOOK_CONFIGURATION} is gone: its policies are asked about nothing");
        return DoctorCheck::fail(NAME, says, [APPLY]);
    }
    if !asked_for(state) {
        let says = "is registered, and the replicas are not started with --policies: pods that ask for GPUs are refused";
        return DoctorCheck::fail(NAME, says, [APPLY]);
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
            format!("{POLICY_WEBHOOK_CONFIGURATION} lacks {}", named(&lacking)),
            [APPLY],
        );
    }
    let changed = if changed.is_empty() {
        String::new()
    } else {
        format!(", with another failurePolicy than the component has in {}", named(&changed))
    };
    DoctorCheck::ok(NAME, format!("registered{changed}"))
}

/// The files as they lie in the cluster, whatever a replica goes by.
fn files(state: &ClusterState) -> Vec<DoctorCheck> {
    const NAME: &str = "policy files";
    let config_map = match &state.policy_files {
        Lookup::Object(config_map) => config_map,
        Lookup::Missing => {
            let says = format!("there is no ConfigMap {CONFIG_MAP}: new replicas do not start");
            return vec![DoctorCheck::fail(NAME, says, [APPLY])];
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
        let says = format!(
            "{} in ConfigMap {CONFIG_MAP}; running replicas keep the set they had, new ones do not start: {}",
            portcullis_text::counted(errors.len(), "error", "errors"),
            named(&errors)
        );
        return vec![DoctorCheck::fail(NAME, says, [look])];
    };
    let hash: String = set.hash().chars().take(12).collect();
    let uncovered =
        uncovered_policies(set.policies(), state.policy_mutating.object(), state.policy_validating.object());
    if uncovered.is_empty() {
        let names: Vec<&str> = set.policies().map(|policy| policy.name.as_str()).collect();
        let says = format!("set {hash} loads without an error: {}", named(&names));
        return vec![DoctorCheck::ok(NAME, says)];
    }
    vec![DoctorCheck::warn(NAME, named(&uncovered), [look])]
}
