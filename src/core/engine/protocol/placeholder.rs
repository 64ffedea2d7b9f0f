//! A placeholder in a durable plan: reserved capacity for a member whose pod does not exist yet.
//!
//! The `Gang` object stores what counts against a node: amounts, cards and ports. The constraints on the node
//! were applied with the plan and are not stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::gpu::{GpuShare, ShareSize};
use crate::model::{Bytes, MilliCpu, NodeName, Quantity, Resources, Str, VramMib, str};
use crate::shape::{HostPort, Shape};

/// The reservation for one missing member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "SerializedPlaceholder", try_from = "SerializedPlaceholder")]
pub struct Placeholder {
    /// Number of the placeholder, unique in its plan.
    pub number: u32,
    /// The role of the missing member.
    pub role: Option<Str>,
    /// The node.
    pub node: NodeName,
    /// The cards, by index on the node.
    pub gpus: Vec<u32>,
    /// Resource requests, share of cards and host ports, without any constraint on the node.
    pub shape: Arc<Shape>,
}

impl Placeholder {
    /// The part of a shape that counts against a node.
    pub(in crate::engine) fn amounts(shape: &Shape) -> Arc<Shape> {
        Arc::new(Shape {
            requests: shape.requests.clone(),
            share: shape.share,
            host_ports: shape.host_ports.clone(),
            ..Shape::default()
        })
    }

    /// Whether a pod of this shape requests no more than the placeholder reserves.
    pub(in crate::engine) fn accommodates(&self, shape: &Shape) -> bool {
        let (has, wants) = (&self.shape.requests, &shape.requests);
        let shares = match (self.shape.share, shape.share) {
            (None, None) => true,
            (Some(has), Some(wants)) => {
                let enough = match (has.size, wants.size) {
                    (ShareSize::Vram(has), ShareSize::Vram(wants)) => wants <= has,
                    (ShareSize::Fraction(has), ShareSize::Fraction(wants)) => wants <= has,
                    _ => false,
                };
                enough && has.devices == wants.devices
            }
            _ => false,
        };
        shares
            && wants.cpu <= has.cpu
            && wants.memory <= has.memory
            && wants.ephemeral_storage <= has.ephemeral_storage
            && wants.extended.iter().all(|(name, amount)| *amount <= has.extended(name))
            && shape.host_ports.is_subset(&self.shape.host_ports)
    }
}

/// The serialized form.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SerializedPlaceholder {
    #[serde(default)]
    number: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<Str>,
    node: NodeName,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gpus: Vec<u32>,
    /// Quantities by resource.
    #[serde(default)]
    requests: BTreeMap<Str, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vram_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_billionths: Option<u64>,
    /// `TCP/8080`, or with an address `TCP/8080/10.0.0.1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    host_ports: Vec<String>,
}

impl From<Placeholder> for SerializedPlaceholder {
    fn from(place: Placeholder) -> Self {
        let Shape { requests, share, host_ports, .. } = &*place.shape;
        let plain = [
            ("cpu", requests.cpu.0, "m"),
            ("memory", requests.memory.0, ""),
            ("ephemeral-storage", requests.ephemeral_storage.0, ""),
        ];
        let plain = plain.into_iter().filter(|(_, amount, _)| *amount > 0);
        let plain = plain.map(|(name, amount, unit)| (str(name), format!("{amount}{unit}")));
        let extended = requests.extended.iter().map(|(name, amount)| (name.clone(), amount.to_string()));
        let size = share.map(|share| share.size);
        Self {
            number: place.number,
            role: place.role,
            node: place.node,
            gpus: place.gpus,
            requests: plain.chain(extended).collect(),
            vram_mib: size.and_then(|size| match size {
                ShareSize::Vram(mib) => Some(mib.0),
                ShareSize::Fraction(_) => None,
            }),
            gpu_billionths: size.and_then(|size| match size {
                ShareSize::Vram(_) => None,
                ShareSize::Fraction(billionths) => Some(billionths),
            }),
            host_ports: host_ports.iter().map(format_port).collect(),
        }
    }
}

impl TryFrom<SerializedPlaceholder> for Placeholder {
    type Error = String;

    fn try_from(written: SerializedPlaceholder) -> Result<Self, String> {
        let mut requests = Resources::default();
        for (name, text) in &written.requests {
            let amount = Quantity::parse(text).map_err(|e| format!("requests[{name}]: {e}"))?;
            match &**name {
                "cpu" => requests.cpu = MilliCpu(amount.millis()),
                "memory" => requests.memory = Bytes(amount.units()),
                "ephemeral-storage" => requests.ephemeral_storage = Bytes(amount.units()),
                _ => {
                    requests.extended.insert(name.clone(), amount.units());
                }
            }
        }
        let size = (written.vram_mib.map(|mib| ShareSize::Vram(VramMib(mib))))
            .or(written.gpu_billionths.map(ShareSize::Fraction));
        // The number of cards is the number of devices.
        let devices = u32::try_from(written.gpus.len()).unwrap_or(u32::MAX);
        let ports: Option<_> = written.host_ports.iter().map(|text| parse_port(text)).collect();
        let host_ports = ports.ok_or_else(|| format!("hostPorts: {:?}", written.host_ports))?;
        let share = size.map(|size| GpuShare { size, devices });
        let shape = Shape { requests, share, host_ports, ..Shape::default() };
        Ok(Self {
            number: written.number,
            role: written.role,
            node: written.node,
            gpus: written.gpus,
            shape: Arc::new(shape),
        })
    }
}

fn format_port((address, protocol, port): &HostPort) -> String {
    if address.is_empty() { format!("{protocol}/{port}") } else { format!("{protocol}/{port}/{address}") }
}

fn parse_port(text: &str) -> Option<HostPort> {
    let mut parts = text.splitn(3, '/');
    let (protocol, port) = (parts.next()?, parts.next()?.parse().ok()?);
    Some((str(parts.next().unwrap_or("")), str(protocol), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Pod;

    fn shape(annotations: &str, requests: &str) -> Shape {
        let pod = format!(
            r#"{{"metadata":{{"name":"a","uid":"a","annotations":{annotations}}},
                "spec":{{"nodeSelector":{{"a":"b"}},"containers":[{{"name":"c","ports":[{{"hostPort":80}}],"resources":{{"requests":{requests}}}}}]}}}}"#
        );
        Shape::clone(&Pod::read(&pod).unwrap().shape)
    }

    fn place(shape: &Shape, gpus: &[u32]) -> Placeholder {
        let shape = Placeholder::amounts(shape);
        Placeholder { number: 7, role: Some(str("worker")), node: "n".into(), gpus: gpus.to_vec(), shape }
    }

    #[test]
    fn a_placeholder_is_read_as_it_was_written() {
        let check = |annotations: &str, requests: &str, gpus: &[u32], text: &str| {
            let place = place(&shape(annotations, requests), gpus);
            let written = serde_json::to_string(&place).unwrap();
            assert_eq!(written, text);
            assert_eq!(serde_json::from_str::<Placeholder>(&written).unwrap(), place);
        };
        check(
            "{}",
            r#"{"cpu":"1500m","memory":"1Gi","nvidia.com/gpu":"2"}"#,
            &[],
            r#"{"number":7,"role":"worker","node":"n","requests":{"cpu":"1500m","memory":"1073741824","nvidia.com/gpu":"2"},"hostPorts":["TCP/80"]}"#,
        );
        check(
            r#"{"gpu-memory":"4000","gpu-fraction-num-devices":"2"}"#,
            "{}",
            &[0, 1],
            r#"{"number":7,"role":"worker","node":"n","gpus":[0,1],"requests":{},"vramMib":4000,"hostPorts":["TCP/80"]}"#,
        );
        check(
            r#"{"gpu-fraction":"0.25"}"#,
            "{}",
            &[3],
            r#"{"number":7,"role":"worker","node":"n","gpus":[3],"requests":{},"gpuBillionths":250000000,"hostPorts":["TCP/80"]}"#,
        );
        assert!(serde_json::from_str::<Placeholder>(r#"{"node":"n","requests":{"cpu":"x"}}"#).is_err());
    }

    #[test]
    fn a_pod_that_requests_no_more_takes_the_placeholder() {
        let none = "{}";
        let check = |held: (&str, &str), pod: (&str, &str), fits: bool| {
            let held = place(&shape(held.0, held.1), &[0]);
            assert_eq!(held.accommodates(&shape(pod.0, pod.1)), fits, "{held:?} {pod:?}");
        };
        let two = r#"{"cpu":"2","memory":"1Gi","nvidia.com/gpu":"1"}"#;
        check((none, two), (none, two), true);
        check((none, two), (none, r#"{"cpu":"1"}"#), true);
        check((none, two), (none, r#"{"cpu":"2001m"}"#), false);
        check((none, two), (none, r#"{"memory":"2Gi"}"#), false);
        check((none, two), (none, r#"{"nvidia.com/gpu":"2"}"#), false);
        check((none, two), (none, r#"{"example.com/nic":"1"}"#), false);
        let (four, eight) = (r#"{"gpu-memory":"4000"}"#, r#"{"gpu-memory":"8000"}"#);
        check((eight, none), (four, none), true);
        check((four, none), (eight, none), false);
        check((four, none), (none, none), false);
        check((none, none), (four, none), false);
        check((r#"{"gpu-fraction":"0.5"}"#, none), (four, none), false);
    }
}
