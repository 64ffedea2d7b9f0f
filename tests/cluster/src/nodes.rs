//! Simulated nodes with GPUs.

use anyhow::{Result, bail};
use portcullis_core::objects::names;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::Api;
use crate::cluster::{Cluster, map};

/// The description of a node to create.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The number of physical cards. A node without cards has no GPU label.
    pub gpus: u32,
    /// Memory of each card in MiB.
    pub gpu_memory_mib: u64,
    /// Product label, such as `NVIDIA-H100-80GB-HBM3`.
    pub product: String,
    /// The number of replicas that time-slicing advertises for each card; 1 for no time-slicing.
    pub replicas: u32,
    /// Whether the node shares its cards by memory, which adds a label and a taint.
    pub shared: bool,
    /// CPUs.
    pub cpus: u32,
    /// Memory in GiB.
    pub memory_gib: u32,
    /// The maximum number of pods.
    pub pods: u32,
    /// More labels.
    pub labels: Vec<(String, String)>,
}

impl Node {
    /// A node with `cards` 80 GiB cards for whole-GPU requests.
    pub fn whole(name: &str, gpus: u32) -> Self {
        Self {
            name: name.to_owned(),
            gpus,
            gpu_memory_mib: 81_920,
            product: "NVIDIA-H100-80GB-HBM3".to_owned(),
            replicas: 1,
            shared: false,
            cpus: 128,
            memory_gib: 1024,
            pods: 110,
            labels: Vec::new(),
        }
    }

    /// A node with shared cards.
    pub fn shared(name: &str, gpus: u32, gpu_memory_mib: u64) -> Self {
        Self {
            gpu_memory_mib,
            product: "Tesla-V100-SXM2-32GB".to_owned(),
            shared: true,
            ..Self::whole(name, gpus)
        }
    }

    /// A node without a GPU.
    pub fn plain(name: &str) -> Self {
        Self::whole(name, 0)
    }

    /// The node as an object for the API server.
    pub fn object(&self) -> Value {
        let mut labels = map(&[
            (names::HOSTNAME_LABEL, &self.name),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ]);
        let mut capacity = map(&[
            ("cpu", &self.cpus.to_string()),
            ("memory", &format!("{}Gi", self.memory_gib)),
            ("pods", &self.pods.to_string()),
        ]);
        if self.gpus > 0 {
            labels.extend(map(&[
                (names::NVIDIA_GPU_COUNT, &self.gpus.to_string()),
                (names::NVIDIA_GPU_MEMORY, &self.gpu_memory_mib.to_string()),
                (names::NVIDIA_GPU_PRODUCT, &self.product),
                (names::NVIDIA_GPU_REPLICAS, &self.replicas.to_string()),
            ]));
            capacity.extend(map(&[(names::NVIDIA_GPU, &(self.gpus * self.replicas).to_string())]));
        }
        let mut taints = Vec::new();
        if self.shared {
            labels.extend(map(&[(names::SHARING, names::SHARING_VRAM)]));
            taints.push(json!({"key": names::SHARING, "value": names::SHARING_VRAM, "effect": "NoSchedule"}));
        }
        labels.extend(self.labels.iter().cloned());
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"taints": taints},
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "nodeInfo": {"kubeletVersion": "fake", "operatingSystem": "linux", "architecture": "amd64"},
            },
        })
    }
}

impl Cluster {
    /// Creates nodes with concurrent requests.
    ///
    /// # Errors
    /// The first refusal.
    pub fn create_nodes(&self, nodes: &[Node]) -> Result<()> {
        let (api, nodes) = (self.api(), nodes.to_vec());
        api.runtime().block_on(async {
            let mut tasks = JoinSet::new();
            for node in nodes {
                let client = api.client();
                if tasks.len() >= 32
                    && let Some(answer) = tasks.join_next().await
                {
                    accepted(&answer??)?;
                }
                tasks.spawn(async move {
                    let object = node.object();
                    Api::request(
                        client,
                        http::Method::POST,
                        "/api/v1/nodes",
                        "application/json",
                        Some(&object),
                    )
                    .await
                });
            }
            while let Some(answer) = tasks.join_next().await {
                accepted(&answer??)?;
            }
            Ok(())
        })
    }
}

fn accepted(answer: &crate::api::Answer) -> Result<()> {
    if answer.code >= 400 {
        bail!("creating a node: {}", answer.body["message"]);
    }
    Ok(())
}
