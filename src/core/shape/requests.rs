//! Effective resource requests of a pod, by kube-scheduler's rule (k8s.io/component-helpers,
//! resource/helpers.go `PodRequests`).

use crate::model::{Bytes, MilliCpu, Resources, str};
use crate::objects::text::{Entries, Scalar};
use crate::objects::view::{Container, PodView, ResourceRequirements};
use crate::objects::{read_resource, read_resources};

/// The requests that a pod charges to its node.
///
/// - The larger of two amounts: the sum of all containers and sidecars, and the largest init container with
///   the sidecars that started before it.
/// - Pod-level resources replace this amount where the pod has them.
/// - An in-place resize holds the larger of old and new requests.
/// - The overhead of the sandbox is added.
///
/// Amounts are rounded up for each container (cpu to thousandths), so the sum is never less than the
/// scheduler's.
///
/// # Errors
/// A sentence that names the field with the invalid quantity.
pub fn effective_requests(pod: &PodView<'_>) -> Result<Resources, String> {
    let (spec, status) = (&pod.spec, &pod.status);
    let resize = Resize::of(pod);
    let mut running = Resources::default();
    for (index, container) in spec.containers.iter().enumerate() {
        let needs = declared(&container.resources, &format!("spec.containers[{index}].resources"))?;
        running.add(&resize.container(container, needs)?);
    }
    let mut sidecars = Resources::default();
    let mut starting = Resources::default();
    for (index, container) in spec.init_containers.iter().enumerate() {
        let mut needs = declared(&container.resources, &format!("spec.initContainers[{index}].resources"))?;
        if container.restart_policy.as_str() == "Always" {
            needs = resize.container(container, needs)?;
            running.add(&needs);
            sidecars.add(&needs);
            needs = sidecars.clone();
        } else {
            needs.add(&sidecars);
        }
        starting.raise(&needs);
    }
    running.raise(&starting);

    let mut pod_level = read_resources(&spec.resources.requests, "spec.resources.requests")?;
    let limits = read_resources(&spec.resources.limits, "spec.resources.limits")?;
    if let Some(actuated) = &status.resources {
        let actuated = read_resources(&actuated.requests, "status.resources.requests")?;
        let allocated = read_resources(&status.allocated_resources, "status.allocatedResources")?;
        pod_level = resize.effective(&pod_level, actuated, &allocated);
    }
    // A limit without a request: the API server defaults the request to the sum of the containers, or else to
    // the limit.
    let requested = |name: &str| spec.resources.requests.contains(name);
    let limited = |name: &str| !requested(name) && spec.resources.limits.contains(name);
    if requested("cpu") {
        running.cpu = pod_level.cpu;
    } else if limited("cpu") && running.cpu == MilliCpu::ZERO {
        running.cpu = limits.cpu;
    }
    if requested("memory") {
        running.memory = pod_level.memory;
    } else if limited("memory") && running.memory == Bytes::ZERO {
        running.memory = limits.memory;
    }
    let huge = |list: &Entries<'_, Scalar<'_>>| -> Vec<String> {
        list.iter().map(|(name, _)| name.to_owned()).filter(|name| name.starts_with("hugepages-")).collect()
    };
    for name in huge(&spec.resources.requests) {
        set_extended(&mut running, &name, pod_level.extended(&name));
    }
    for name in huge(&spec.resources.limits) {
        if limited(&name) && running.extended(&name) == 0 {
            set_extended(&mut running, &name, limits.extended(&name));
        }
    }
    running.add(&read_resources(&spec.overhead, "spec.overhead")?);
    Ok(running)
}

fn set_extended(resources: &mut Resources, name: &str, amount: u64) {
    if amount == 0 {
        resources.extended.remove(name);
    } else {
        resources.extended.insert(str(name), amount);
    }
}

/// The in-place resize of a running pod: its status may hold more than its spec requests.
struct Resize<'p, 'a> {
    pod: &'p PodView<'a>,
    /// The kubelet never grants the new spec, so the spec does not count.
    infeasible: bool,
}

impl<'p, 'a> Resize<'p, 'a> {
    fn of(pod: &'p PodView<'a>) -> Self {
        let pending = pod.status.conditions.iter().find(|c| c.r#type.as_str() == "PodResizePending");
        Self { pod, infeasible: pending.is_some_and(|c| c.reason.as_str() == "Infeasible") }
    }

    fn container(&self, container: &Container<'_>, spec: Resources) -> Result<Resources, String> {
        let status = &self.pod.status;
        // Container names are unique in a pod. Where both lists have the name, the status of the init
        // container counts.
        let mut statuses = status.init_container_statuses.iter().chain(&status.container_statuses);
        let Some(status) = statuses.find(|s| s.name == container.name) else { return Ok(spec) };
        let Some(actuated) = &status.resources else { return Ok(spec) };
        let place = |field: &str| format!("status of container {:?}, {field}", container.name.as_str());
        let actuated = read_resources(&actuated.requests, &place("resources.requests"))?;
        let allocated = read_resources(&status.allocated_resources, &place("allocatedResources"))?;
        Ok(self.effective(&spec, actuated, &allocated))
    }

    fn effective(&self, spec: &Resources, actuated: Resources, allocated: &Resources) -> Resources {
        let mut held = actuated;
        held.raise(allocated);
        if !self.infeasible {
            held.raise(spec);
        }
        held
    }
}

/// Requests of a container. A limit replaces a missing request, as the API server defaults it.
fn declared(resources: &ResourceRequirements<'_>, path: &str) -> Result<Resources, String> {
    let mut all = read_resources(&resources.requests, &format!("{path}.requests"))?;
    for (name, quantity) in resources.limits.iter() {
        if !resources.requests.contains(name) {
            read_resource(&mut all, name, quantity, &format!("{path}.limits"))?;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(pod: &str) -> Result<Value, String> {
        let view: PodView<'_> = serde_json::from_str(pod).unwrap();
        let requests = effective_requests(&view)?;
        let mut all = serde_json::Map::new();
        let named = [
            ("cpu", requests.cpu.0),
            ("memory", requests.memory.0),
            ("ephemeral-storage", requests.ephemeral_storage.0),
        ];
        let extended = requests.extended.iter().map(|(name, amount)| (&**name, *amount));
        for (name, amount) in named.into_iter().chain(extended).filter(|(_, amount)| *amount > 0) {
            all.insert(name.to_owned(), amount.into());
        }
        Ok(Value::Object(all))
    }

    #[test]
    fn requests_are_what_the_scheduler_counts() {
        let cases = include_str!("requests_cases.tsv").lines().filter(|line| !line.starts_with('#'));
        let mut count = 0;
        for line in cases {
            let (pod, expected) = line.split_once('\t').unwrap();
            let expected: Value = serde_json::from_str(expected).unwrap();
            assert_eq!(read(pod).unwrap(), expected, "{pod}");
            count += 1;
        }
        assert!(count >= 50, "{count} pods");
    }

    #[test]
    fn what_the_api_server_would_default_is_counted() {
        let check = |spec: Value, expected: Value| {
            assert_eq!(read(&json!({ "spec": spec }).to_string()).unwrap(), expected, "{spec}");
        };
        let container = |resources: Value| json!([{ "name": "c", "resources": resources }]);
        check(
            json!({ "containers": container(json!({ "limits": { "cpu": "2", "nvidia.com/gpu": 1 }, "requests": { "cpu": 1 } })) }),
            json!({ "cpu": 1000, "nvidia.com/gpu": 1 }),
        );
        check(
            json!({ "containers": container(json!({ "requests": { "cpu": "1" } })), "resources": { "limits": { "cpu": "3", "memory": "1Ki" } } }),
            json!({ "cpu": 1000, "memory": 1024 }),
        );
        // The API server lets ephemeral containers ask for nothing.
        check(
            json!({
                "containers": container(json!({ "requests": { "cpu": "1" } })),
                "ephemeralContainers": [{ "name": "debug", "image": "shell:1", "targetContainerName": "c" }],
            }),
            json!({ "cpu": 1000 }),
        );
        check(
            json!({ "containers": container(json!(null)), "resources": null, "overhead": null }),
            json!({}),
        );
    }

    #[test]
    fn an_unreadable_quantity_is_named_with_its_place() {
        let pod = json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1x" } } }] } });
        let error = read(&pod.to_string()).unwrap_err();
        assert!(
            error.starts_with(r#"spec.containers[0].resources.requests[cpu]: "1x" is not a quantity"#),
            "{error}"
        );
    }
}
