//! Checks of waiting pods: behind the gate of Portcullis, or for a scheduler that does not run.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::admission::AdmissionSettings;
use portcullis_core::objects::names;
use portcullis_core::pod::{Pod, PodPhase};

use super::checks::{DoctorCheck, FREE_ALL, named};
use super::cluster_state::{ClusterState, Lookup};

pub(super) fn checks(state: &ClusterState, pods: &[Pod], led: bool) -> Vec<DoctorCheck> {
    let mut checks = vec![schedulers(state, pods)];
    checks.extend(gates(state, pods, led));
    checks
}

fn schedulers(state: &ClusterState, pods: &[Pod]) -> DoctorCheck {
    const NAME: &str = "scheduler names";
    let mut waiting: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.node.is_none() && pod.phase == PodPhase::Pending) {
        waiting.entry(&pod.scheduler).or_default().push(pod);
    }
    let served: BTreeSet<&str> = pods
        .iter()
        .filter(|pod| pod.node.is_some())
        .map(|pod| &*pod.scheduler)
        .chain(state.leases.iter().map(String::as_str))
        .chain([names::DEFAULT_SCHEDULER])
        .collect();
    waiting.retain(|name, _| !served.contains(name));
    if waiting.is_empty() {
        return DoctorCheck::ok(NAME, "no pod waits for an unknown scheduler");
    }
    let message: Vec<String> = waiting
        .iter()
        .map(|(name, pods)| {
            let keys: Vec<String> = pods.iter().map(|pod| pod.key.to_string()).collect();
            format!("{name} ({})", named(&keys))
        })
        .collect();
    DoctorCheck::warn(
        NAME,
        format!("pods wait for schedulers that have bound no pod and hold no Lease: {}", named(&message)),
        [
            "# install that scheduler, or name it in --rewrite-schedulers (manifests/base/deployment.yaml), or remove",
            "# spec.schedulerName from the manifest; then create the pods again",
        ],
    )
}

fn gates(state: &ClusterState, pods: &[Pod], led: bool) -> Vec<DoctorCheck> {
    const NAME: &str = "gated pods";
    let gated: Vec<&Pod> = pods
        .iter()
        .filter(|pod| !pod.terminating && pod.gates.iter().any(|gate| &**gate == names::GATE))
        .collect();
    if gated.is_empty() {
        return vec![DoctorCheck::ok(NAME, "no pod waits behind the gate")];
    }
    let keys = |pods: &[&Pod]| -> Vec<String> { pods.iter().map(|pod| pod.key.to_string()).collect() };
    let gangs: BTreeSet<_> =
        gated.iter().filter_map(|pod| pod.membership.as_ref()).map(|m| &m.gang).collect();
    if !led {
        let installed = state.deployment != Lookup::Missing || state.mutating.object().is_some();
        let wait = if gated.len() == 1 { "waits" } else { "wait" };
        let message = format!(
            "{} {wait} behind the gate and no leader removes it: {}",
            portcullis_text::counted(gated.len(), "pod", "pods"),
            named(&keys(&gated))
        );
        let first = if installed {
            "# start a replica (see above); or, to start each pod without Portcullis:"
        } else {
            "# Portcullis was removed. To start each pod without it:"
        };
        return vec![DoctorCheck::fail(NAME, message, [first].into_iter().chain(FREE_ALL))];
    }
    let mut checks = Vec::new();
    let lost: Vec<&Pod> = gated.iter().copied().filter(|pod| pod.membership.is_none()).collect();
    if !lost.is_empty() {
        let message =
            format!("{} behind the gate but in no gang, so the gate is never removed", named(&keys(&lost)));
        checks.push(DoctorCheck::fail(NAME, message, free(&lost)));
    }
    let excluded = AdmissionSettings::default().excluded_namespaces;
    let outside: Vec<&Pod> =
        gated.iter().copied().filter(|pod| excluded.contains(&*pod.key.namespace)).collect();
    if !outside.is_empty() {
        let message =
            format!("{} behind the gate in a namespace that the webhook ignores", named(&keys(&outside)));
        checks.push(DoctorCheck::warn(NAME, message, free(&outside)));
    }
    if checks.is_empty() {
        let message = format!(
            "{} of {} behind the gate: kubectl get gangs -A",
            portcullis_text::counted(gated.len(), "pod", "pods"),
            portcullis_text::counted(gangs.len(), "gang", "gangs")
        );
        checks.push(DoctorCheck::ok(NAME, message));
    }
    checks
}

/// Commands that delete the gate guard, remove the gates of these pods, and install the guard again.
fn free(pods: &[&Pod]) -> Vec<String> {
    let mut lines = vec![FREE_ALL[0].to_owned()];
    lines.extend(pods.iter().take(3).map(|pod| {
        format!(
            r#"kubectl patch pod -n {} {} -p '{{"spec":{{"schedulingGates":[{{"$patch":"delete","name":"{}"}}]}}}}'"#,
            pod.key.namespace,
            pod.key.name,
            names::GATE
        )
    }));
    lines.push(super::checks::APPLY.to_owned());
    lines
}
