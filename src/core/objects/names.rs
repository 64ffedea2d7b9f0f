//! Every label, annotation, taint, gate, resource and group name the project knows, in one place.

/// The scheduling gate we add and remove. No other gate is ever touched.
pub const GATE: &str = "portcullis.dev/gang";
/// Annotation on a lifted VRAM pod: comma-separated indexes of the cards it may use (`0` or `0,1`).
pub const GPUS_ANNOTATION: &str = "portcullis.dev/gpus";
/// Annotation with which a new leader marks the pods it has fenced; its value is the epoch.
pub const FENCE_ANNOTATION: &str = "portcullis.dev/epoch";
/// Label and taint key of nodes whose cards are shared by memory.
pub const SHARING: &str = "portcullis.dev/gpu-sharing";
/// The value of [`SHARING`] that means "shared by VRAM".
pub const SHARING_VRAM: &str = "vram";
/// API group of our own objects.
pub const API_GROUP: &str = "portcullis.dev";

/// The name under which the API server keeps what we write (`metadata.managedFields`).
pub const FIELD_MANAGER: &str = "portcullis";

/// KAI: the annotation that links a pod to its PodGroup.
pub const KAI_GROUP_ANNOTATION: &str = "pod-group-name";
/// KAI tutorials: the label by which users select the pods of a group.
pub const KAI_GROUP_LABEL: &str = "kai.scheduler/podgroup";
/// KAI: the label that puts a pod into a subgroup; absent means [`KAI_DEFAULT_SUBGROUP`].
pub const KAI_SUBGROUP_LABEL: &str = "kai.scheduler/subgroup-name";
/// KAI: the subgroup of pods that name none.
pub const KAI_DEFAULT_SUBGROUP: &str = "default";
/// KAI: API group of its PodGroup.
pub const KAI_API_GROUP: &str = "scheduling.run.ai";

/// MiB of one card's memory.
pub const GPU_MEMORY: &str = "gpu-memory";
/// Share of one card, between 0 and 1.
pub const GPU_FRACTION: &str = "gpu-fraction";
/// On how many cards the share is wanted.
pub const GPU_FRACTION_NUM_DEVICES: &str = "gpu-fraction-num-devices";
/// Which container the share is for.
pub const GPU_FRACTION_CONTAINER: &str = "gpu-fraction-container-name";
/// CUDA multi-process service.
pub const MPS: &str = "mps";

/// A whole NVIDIA GPU.
pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
/// A time-sliced NVIDIA GPU where the device plugin renames it (`renameByDefault`).
pub const NVIDIA_GPU_SHARED: &str = "nvidia.com/gpu.shared";
/// A whole AMD GPU.
pub const AMD_GPU: &str = "amd.com/gpu";
/// A whole Intel GPU.
pub const INTEL_GPU: &str = "gpu.intel.com/i915";
/// Prefix of MIG slices (`nvidia.com/mig-1g.5gb`).
pub const NVIDIA_MIG_PREFIX: &str = "nvidia.com/mig-";
/// Node label: physical cards.
pub const NVIDIA_GPU_COUNT: &str = "nvidia.com/gpu.count";
/// Node label: memory of each card in MiB.
pub const NVIDIA_GPU_MEMORY: &str = "nvidia.com/gpu.memory";
/// Node label: time-slicing multiplies allocatable by this.
pub const NVIDIA_GPU_REPLICAS: &str = "nvidia.com/gpu.replicas";
/// Node label: product name; time-sliced cards end in `-SHARED`.
pub const NVIDIA_GPU_PRODUCT: &str = "nvidia.com/gpu.product";
/// Node label: `time-slicing`, `mps` or `none`.
pub const NVIDIA_GPU_SHARING_STRATEGY: &str = "nvidia.com/gpu.sharing-strategy";
/// Node label: `single` or `mixed` where MIG is on.
pub const NVIDIA_MIG_STRATEGY: &str = "nvidia.com/mig.strategy";
/// Environment variable by which the NVIDIA container toolkit hands out cards.
pub const NVIDIA_VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Name of the RuntimeClass that GPU operators install.
pub const NVIDIA_RUNTIME_CLASS: &str = "nvidia";

/// Set by kubelet on the API copy of a static pod.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";
/// Says where the kubelet got a static pod from.
pub const STATIC_POD_SOURCE: &str = "kubernetes.io/config.source";
/// Node label with the host's name.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// Taint of a cordoned node.
pub const TAINT_UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// The stock scheduler's name.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Schedulers that place gangs themselves: their pods are linked, gated and lifted, never pinned or nominated.
pub const GANG_SCHEDULERS: &[&str] = &["kai-scheduler", "volcano", "yunikorn"];
