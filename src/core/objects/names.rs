//! Every label, annotation, taint, gate, resource and group name that the project uses, in one place.

/// The scheduling gate of Portcullis. The project never adds or removes another gate.
pub const GATE: &str = "portcullis.dev/gang";
/// Annotation on a lifted VRAM pod: comma-separated indexes of the cards it may use (`0` or `0,1`).
pub const GPUS_ANNOTATION: &str = "portcullis.dev/gpus";
/// Annotation with which a new leader marks the pods it has fenced; its value is the epoch.
pub const FENCE_ANNOTATION: &str = "portcullis.dev/epoch";
/// Label and taint key of nodes whose cards are shared by memory.
pub const SHARING: &str = "portcullis.dev/gpu-sharing";
/// The value of [`SHARING`] that means "shared by VRAM".
pub const SHARING_VRAM: &str = "vram";
/// API group of the objects of Portcullis.
pub const API_GROUP: &str = "portcullis.dev";

/// Field manager of all writes by Portcullis (`metadata.managedFields`).
pub const FIELD_MANAGER: &str = "portcullis";

/// How long a gang may wait for its start, on the group object or where there is none on its pods: `120`,
/// `2m`, `1h30m`.
pub const TIMEOUT_ANNOTATION: &str = "portcullis.dev/timeout";
/// What happens to a gang that exceeds its timeout, on the group object or where there is none
/// on its pods: `requeue` or `delete`.
pub const ON_TIMEOUT_ANNOTATION: &str = "portcullis.dev/on-timeout";
/// Policy for a stale gang, which was complete and has lost members: `evict` or `keep`. On the same objects.
pub const ON_STALE_ANNOTATION: &str = "portcullis.dev/on-stale";
/// Policy for a torn gang, which is lifted and not bound in time: `hold` or `evict`. On the same objects.
pub const ON_TORN_ANNOTATION: &str = "portcullis.dev/on-torn";
/// Whether the members of a gang are tied to the node that was planned for them, in the same places: `true`,
/// or `false`.
pub const PIN_ANNOTATION: &str = "portcullis.dev/pin";
/// The node label of which a gang is to have one value where that can be, in the same places:
/// `topology.kubernetes.io/zone`.
pub const TOPOLOGY_ANNOTATION: &str = "portcullis.dev/topology";
/// Whether a gang takes as many members as the owners of its pods want, in the same places: `true`, or
/// `false`.
pub const ELASTIC_ANNOTATION: &str = "portcullis.dev/elastic";
/// For how long such a gang is left as it is first, in the same places: `60`, `2m`, `0s`; below zero without
/// end.
pub const STALE_GRACE_ANNOTATION: &str = "portcullis.dev/stale-grace";
/// Plain gangs: annotation or label that names the gang of a pod.
pub const GANG_KEY: &str = "portcullis.dev/gang";
/// Plain gangs: annotation or label with the number of members.
pub const GANG_SIZE_KEY: &str = "portcullis.dev/gang-size";
/// The native group of a pod, copied at admission: an API server without that feature drops the field it came
/// from.
pub const SCHEDULING_GROUP_ANNOTATION: &str = "portcullis.dev/scheduling-group";
/// On a StatefulSet whose pods are a gang, and on these pods: [`ORDERED_KEEP`] leaves it as it is, to start
/// its pods one after the other, and the engine reserves capacity for the missing ones.
pub const ORDERED_ANNOTATION: &str = "portcullis.dev/ordered";
/// The value of [`ORDERED_ANNOTATION`] that keeps the order.
pub const ORDERED_KEEP: &str = "keep";
/// The last manifest of `kubectl apply`.
pub const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Coscheduling: the label that links a pod to its PodGroup.
pub const COSCHEDULING_LABEL: &str = "scheduling.x-k8s.io/pod-group";
/// Coscheduling in old guides: the same.
pub const COSCHEDULING_OLD_LABEL: &str = "pod-group.scheduling.sigs.k8s.io/name";
/// Coscheduling in old guides: the number of members.
pub const COSCHEDULING_OLD_MIN_LABEL: &str = "pod-group.scheduling.sigs.k8s.io/min-available";
/// Coscheduling: API group of its PodGroup.
pub const COSCHEDULING_API_GROUP: &str = "scheduling.x-k8s.io";
/// Coscheduling: API group of its PodGroup in old guides.
pub const COSCHEDULING_OLD_API_GROUP: &str = "scheduling.sigs.k8s.io";

/// MPI operator: label with the role of a pod, `worker` or [`MPI_LAUNCHER`].
pub const MPI_ROLE_LABEL: &str = "training.kubeflow.org/job-role";
/// MPI operator: the pod that starts the program on all workers, and computes nothing itself.
pub const MPI_LAUNCHER: &str = "launcher";

/// Volcano: the annotation that links a pod to its PodGroup.
pub const VOLCANO_GROUP_ANNOTATION: &str = "scheduling.k8s.io/group-name";
/// Volcano: annotation and label with the task of a pod.
pub const VOLCANO_TASK_KEY: &str = "volcano.sh/task-spec";
/// Volcano: annotation of a group, how long it may wait.
pub const VOLCANO_WAITING_TIME: &str = "volcano.sh/sla-waiting-time";
/// Volcano: API group of its PodGroup.
pub const VOLCANO_API_GROUP: &str = "scheduling.volcano.sh";

/// LeaderWorkerSet: label with the name of the set.
pub const LWS_NAME_LABEL: &str = "leaderworkerset.sigs.k8s.io/name";
/// LeaderWorkerSet: label with the index of the replica; a leader has it only after the webhook of
/// LeaderWorkerSet.
pub const LWS_GROUP_INDEX_LABEL: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// LeaderWorkerSet: label with the place in the replica, 0 for its leader; a worker has it only after that
/// webhook.
pub const LWS_WORKER_INDEX_LABEL: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// LeaderWorkerSet: annotation with the number of pods of a replica.
pub const LWS_SIZE_ANNOTATION: &str = "leaderworkerset.sigs.k8s.io/size";
/// LeaderWorkerSet: annotation of sets whose workers are created only when their leader has a node.
pub const LWS_EXCLUSIVE_ANNOTATION: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";
/// LeaderWorkerSet: its API group.
pub const LWS_API_GROUP: &str = "leaderworkerset.x-k8s.io";

/// Kubernetes itself: API group of Deployments, ReplicaSets and StatefulSets.
pub const APPS_API_GROUP: &str = "apps";
/// Kubernetes itself: API group of Jobs.
pub const BATCH_API_GROUP: &str = "batch";
/// Kubernetes itself: API group of its Workload and PodGroup.
pub const NATIVE_API_GROUP: &str = "scheduling.k8s.io";

/// YuniKorn: label or annotation with the application of a pod.
pub const YUNIKORN_APP_ID: &str = "yunikorn.apache.org/app-id";
/// YuniKorn: the same, in older manifests.
pub const YUNIKORN_OLD_APP_ID: &str = "applicationId";
/// YuniKorn: the same, as Spark sets it.
pub const SPARK_APP_SELECTOR: &str = "spark-app-selector";
/// Spark: label with the role of a pod, an executor or [`SPARK_DRIVER`].
pub const SPARK_ROLE_LABEL: &str = "spark-role";
/// Spark: the pod that creates all others of its application when it runs.
pub const SPARK_DRIVER: &str = "driver";
/// YuniKorn: annotation of a member, its task group.
pub const YUNIKORN_TASK_GROUP_NAME: &str = "yunikorn.apache.org/task-group-name";
/// YuniKorn: annotation of the first pod, all task groups as JSON.
pub const YUNIKORN_TASK_GROUPS: &str = "yunikorn.apache.org/task-groups";
/// YuniKorn: annotation of the first pod, parameters of gang scheduling.
pub const YUNIKORN_POLICY_PARAMETERS: &str = "yunikorn.apache.org/schedulingPolicyParameters";

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

/// Labels by which a pod names its queue: of KAI, Kueue and YuniKorn.
pub const QUEUE_LABELS: &[&str] =
    &["kai.scheduler/queue", "kueue.x-k8s.io/queue-name", "yunikorn.apache.org/queue"];
/// Annotations by which a pod names its queue: of Volcano and YuniKorn.
pub const QUEUE_ANNOTATIONS: &[&str] = &["scheduling.volcano.sh/queue-name", "yunikorn.apache.org/queue"];

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
/// Source of a static pod, set by the kubelet.
pub const STATIC_POD_SOURCE: &str = "kubernetes.io/config.source";
/// Labels of nodes that name a domain of the network or a place, innermost first: `NVLink` domains as the GPU
/// operator and Topograph name them, tiers of switches by Topograph, Google and Amazon, zone, region.
/// Sources: <https://docs.nvidia.com/topograph/reference/node-labels-and-annotations>,
/// <https://kubernetes.io/docs/reference/labels-annotations-taints>, the labels of GKE (`gce-topology-*`) and
/// of Amazon's cloud provider (`network-node-layer-*`).
pub const TOPOLOGY_LEVELS: &[&str] = &[
    "nvidia.com/gpu.clique",
    "accelerator.topograph.run/sub-domain",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "fabric.topograph.run/tier-0",
    "network.topology.nvidia.com/leaf",
    "cloud.google.com/gce-topology-subblock",
    "topology.k8s.aws/network-node-layer-3",
    "fabric.topograph.run/tier-1",
    "network.topology.nvidia.com/spine",
    "cloud.google.com/gce-topology-block",
    "topology.k8s.aws/network-node-layer-2",
    "fabric.topograph.run/tier-2",
    "network.topology.nvidia.com/core",
    "topology.k8s.aws/network-node-layer-1",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];
/// Node label with the host's name.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// Taint of a cordoned node.
pub const TAINT_UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// The stock scheduler's name.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Schedulers that place gangs themselves: their pods are linked, gated and lifted, never pinned or
/// nominated.
pub const GANG_SCHEDULERS: &[&str] = &["kai-scheduler", "volcano", "yunikorn"];
