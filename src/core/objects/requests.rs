//! What a pod asks of a node, by the scheduler's own rule (k8s.io/component-helpers, resource/helpers.go `PodRequests`).

use super::text::{Entries, Scalar};
use super::view::{Container, ContainerStatus, PodView};
use crate::model::{Bytes, MilliCpu, Quantity, Resources, str};

/// The requests that count against a node: the larger of "all containers and sidecars together" and "the most that any
/// init container needs beside the sidecars started before it"; pod-level resources in place of that where given; what
/// an in-place resize still holds; and the overhead of the sandbox.
///
/// # Errors
/// A sentence naming the field whose quantity cannot be read.
pub fn effective_requests(pod: &PodView<'_>) -> Result<Resources, String> {
    let spec = &pod.spec;
    let refused = pod.status.conditions.iter().any(|c| {
        c.r#type.as_str() == "PodResizePending"
            && c.status.as_str() == "True"
            && c.reason.as_str() == "Infeasible"
    });
    let mut running = Resources::default();
    for (index, container) in spec.containers.iter().enumerate() {
        let path = format_args!("spec.containers[{index}]").to_string();
        running.add(&container_requests(container, &pod.status.container_statuses, refused, &path)?);
    }
    let mut sidecars = Resources::default();
    let mut starting = Resources::default();
    for (index, container) in spec.init_containers.iter().enumerate() {
        let path = format_args!("spec.initContainers[{index}]").to_string();
        let mut needs = container_requests(container, &pod.status.init_container_statuses, refused, &path)?;
        if container.restart_policy.as_str() == "Always" {
            running.add(&needs);
            sidecars.add(&needs);
            needs = sidecars.clone();
        } else {
            needs.add(&sidecars);
        }
        starting.raise(&needs);
    }
    running.raise(&starting);

    let pod_level = declared(&spec.resources.requests, &spec.resources.limits, "spec.resources")?;
    let mut in_force = amounts(&pod.status.resources.requests, "status.resources.requests")?;
    in_force.raise(&amounts(&pod.status.allocated_resources, "status.allocatedResources")?);
    let covers = |name: &str| spec.resources.requests.contains(name) || spec.resources.limits.contains(name);
    if covers("cpu") {
        running.cpu = pod_level.cpu.max(in_force.cpu);
    }
    if covers("memory") {
        running.memory = pod_level.memory.max(in_force.memory);
    }
    for (name, amount) in &pod_level.extended {
        if name.starts_with("hugepages-") {
            running.extended.insert(name.clone(), *amount);
        }
    }
    running.add(&amounts(&spec.overhead, "spec.overhead")?);
    Ok(running)
}

fn container_requests(
    container: &Container<'_>,
    statuses: &[ContainerStatus<'_>],
    resize_refused: bool,
    path: &str,
) -> Result<Resources, String> {
    let wanted = declared(&container.resources.requests, &container.resources.limits, path)?;
    let Some(status) = statuses.iter().find(|s| s.name == container.name) else { return Ok(wanted) };
    let mut held = amounts(&status.resources.requests, path)?;
    held.raise(&amounts(&status.allocated_resources, path)?);
    if resize_refused && held != Resources::default() {
        return Ok(held);
    }
    held.raise(&wanted);
    Ok(held)
}

/// Requests, with limits standing in where a request is missing: the API server defaults them so.
fn declared(
    requests: &Entries<'_, Scalar<'_>>,
    limits: &Entries<'_, Scalar<'_>>,
    path: &str,
) -> Result<Resources, String> {
    let mut all = amounts(requests, path)?;
    for (name, quantity) in limits.iter() {
        if !requests.contains(name) {
            put(&mut all, name, quantity, path)?;
        }
    }
    Ok(all)
}

/// Reads a resource list.
pub(super) fn amounts(list: &Entries<'_, Scalar<'_>>, path: &str) -> Result<Resources, String> {
    let mut resources = Resources::default();
    for (name, quantity) in list.iter() {
        put(&mut resources, name, quantity, path)?;
    }
    Ok(resources)
}

fn put(resources: &mut Resources, name: &str, quantity: &Scalar<'_>, path: &str) -> Result<(), String> {
    let quantity = Quantity::parse(&quantity.0).map_err(|e| format!("{path} {name}: {e}"))?;
    match name {
        "cpu" => resources.cpu = MilliCpu(quantity.millis()),
        "memory" => resources.memory = Bytes(quantity.units()),
        "ephemeral-storage" => resources.ephemeral_storage = Bytes(quantity.units()),
        "pods" => {}
        _ => {
            if quantity.units() > 0 {
                resources.extended.insert(str(name), quantity.units());
            }
        }
    }
    Ok(())
}
