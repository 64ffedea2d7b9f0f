//! Borrowed views of the JSON of pods, nodes and owners of pods.
//!
//! A view has the fields that Portcullis reads, and none is required: an absent field or `null` reads as the
//! default of its type.

use serde::{Deserialize, Deserializer};

use super::names;
use super::text::{Entries, Scalar, Text};

/// Reads `null` as the default of the type, as Go does.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

macro_rules! view {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident : $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
        #[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
        pub struct $name<'a> {
            $($(#[$field_doc])* #[serde(default, deserialize_with = "nullable")] pub $field: $type,)*
        }
    };
}

view! {
    /// `metadata` of any object.
    Meta {
        /// Empty on a CREATE that uses `generateName`.
        name: Text<'a>,
        /// Prefix of the name that the API server generates.
        generate_name: Text<'a>,
        /// Empty for cluster-scoped objects, and on some CREATE reviews.
        namespace: Text<'a>,
        /// Empty before the object is stored.
        uid: Text<'a>,
        /// Empty before the object is stored.
        resource_version: Text<'a>,
        /// Time of creation, RFC 3339.
        creation_timestamp: Text<'a>,
        /// Time of deletion; set while the object is being deleted.
        deletion_timestamp: Option<Text<'a>>,
        /// `metadata.generation`: the API server increments it with each change of the spec.
        generation: u64,
        /// Labels.
        labels: Entries<'a, Text<'a>>,
        /// Annotations.
        annotations: Entries<'a, Text<'a>>,
        /// Owners of the object.
        owner_references: Vec<OwnerReference<'a>>,
    }
}

view! {
    /// One of `metadata.ownerReferences`.
    OwnerReference {
        /// Group and version of the owner.
        api_version: Text<'a>,
        /// Kind of the owner.
        kind: Text<'a>,
        /// Name of the owner.
        name: Text<'a>,
        /// UID of the owner.
        uid: Text<'a>,
        /// Whether this owner manages the object.
        controller: bool,
    }
}

view! {
    /// A pod.
    PodView {
        /// `metadata`.
        metadata: Meta<'a>,
        /// `spec`.
        spec: PodSpec<'a>,
        /// `status`.
        status: PodStatus<'a>,
    }
}

view! {
    /// `spec` of a pod.
    PodSpec {
        /// The node that the pod is bound to; empty before.
        node_name: Text<'a>,
        /// Name of the scheduler that places the pod.
        scheduler_name: Text<'a>,
        /// Scheduling gates: while there is one, no scheduler places the pod.
        scheduling_gates: Vec<Named<'a>>,
        /// Containers.
        containers: Vec<Container<'a>>,
        /// Init containers, including native sidecars.
        init_containers: Vec<Container<'a>>,
        /// Pod-level resources.
        resources: ResourceRequirements<'a>,
        /// Overhead of the pod sandbox, which the RuntimeClass sets.
        overhead: Entries<'a, Scalar<'a>>,
        /// Labels that the node must have.
        node_selector: Entries<'a, Text<'a>>,
        /// Affinity. `None` when absent: a patch must then add the whole object.
        affinity: Option<Affinity<'a>>,
        /// Tolerated taints.
        tolerations: Vec<Toleration<'a>>,
        /// Priority; the API server resolves it from the PriorityClass.
        priority: i32,
        /// Name of the PriorityClass.
        priority_class_name: Text<'a>,
        /// Name of the RuntimeClass.
        runtime_class_name: Text<'a>,
        /// Claims of Dynamic Resource Allocation (DRA).
        resource_claims: Vec<Named<'a>>,
        /// Whether the pod uses the node's network.
        host_network: bool,
        /// Constraints on how pods spread over topology domains.
        topology_spread_constraints: Vec<TopologySpreadConstraint<'a>>,
        /// The native PodGroup of the pod (Kubernetes 1.36 and later).
        scheduling_group: Option<SchedulingGroup<'a>>,
        /// The Workload of the pod, and its group there (Kubernetes 1.35).
        workload_ref: Option<WorkloadRef<'a>>,
    }
}

view! {
    /// `spec.schedulingGroup`.
    SchedulingGroup {
        /// Name of a PodGroup in the namespace of the pod.
        pod_group_name: Text<'a>,
    }
}

view! {
    /// `spec.workloadRef`.
    WorkloadRef {
        /// Name of a Workload in the namespace of the pod.
        name: Text<'a>,
        /// Name of a pod group of that Workload.
        pod_group: Text<'a>,
        /// Key of the replica of that group; each replica is a gang.
        pod_group_replica_key: Text<'a>,
    }
}

view! {
    /// A list item whose name alone is read.
    Named {
        /// Name of the item.
        name: Text<'a>,
    }
}

view! {
    /// A container or init container.
    Container {
        /// Name, unique within the pod.
        name: Text<'a>,
        /// Requests and limits.
        resources: ResourceRequirements<'a>,
        /// `Always` makes an init container a sidecar.
        restart_policy: Text<'a>,
        /// Ports. Portcullis reads the host ports.
        ports: Vec<ContainerPort<'a>>,
        /// Environment variables.
        env: Option<Vec<EnvVar<'a>>>,
    }
}

view! {
    /// `resources` of a container or pod.
    ResourceRequirements {
        /// Requested amount of each resource.
        requests: Entries<'a, Scalar<'a>>,
        /// Maximum amount of each resource.
        limits: Entries<'a, Scalar<'a>>,
        /// DRA claims that the container uses.
        claims: Vec<Named<'a>>,
    }
}

view! {
    /// One port of a container.
    ContainerPort {
        /// Port on the node; 0 for none.
        host_port: u32,
        /// Address on the node; empty for all addresses.
        #[serde(rename = "hostIP")]
        host_ip: Text<'a>,
        /// Port in the container.
        container_port: u32,
        /// Protocol; empty means `TCP`.
        protocol: Text<'a>,
    }
}

view! {
    /// One environment variable.
    EnvVar {
        /// Its name.
        name: Text<'a>,
        /// Literal value.
        value: Option<Text<'a>>,
        /// Source of the value.
        value_from: Option<EnvSource<'a>>,
    }
}

view! {
    /// Source of the value of an environment variable. Other sources than a field of the pod are not read.
    EnvSource {
        /// The field of the pod that holds the value.
        field_ref: Option<FieldRef<'a>>,
    }
}

view! {
    /// A field of the pod, by path.
    FieldRef {
        /// Path of the field, such as `metadata.annotations['portcullis.dev/gpus']`.
        field_path: Text<'a>,
    }
}

view! {
    /// `spec.affinity`. Only required terms are read.
    Affinity {
        /// `nodeAffinity`; `None` when absent.
        node_affinity: Option<NodeAffinity<'a>>,
        /// `podAffinity`.
        pod_affinity: PodAffinity<'a>,
        /// `podAntiAffinity`.
        pod_anti_affinity: PodAffinity<'a>,
    }
}

/// `spec.affinity.podAffinity` or `podAntiAffinity`: the required terms.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct PodAffinity<'a> {
    /// Required terms. All of them count.
    #[serde(
        default,
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "nullable"
    )]
    pub required: Vec<PodAffinityTerm<'a>>,
}

view! {
    /// A required term of pod affinity or anti-affinity.
    PodAffinityTerm {
        /// Selects pods; absent selects none.
        label_selector: Option<LabelSelector<'a>>,
        /// Namespaces of the pods.
        namespaces: Vec<Text<'a>>,
        /// Selects further namespaces; absent selects none.
        namespace_selector: Option<LabelSelector<'a>>,
        /// Node label whose values are the domains.
        topology_key: Text<'a>,
        /// Keys whose value of the new pod is required. The API server adds them to the selector at create.
        match_label_keys: Vec<Text<'a>>,
        /// Keys whose value of the new pod is excluded. The API server adds them to the selector at create.
        mismatch_label_keys: Vec<Text<'a>>,
    }
}

view! {
    /// A label selector.
    LabelSelector {
        /// Labels with these values.
        match_labels: Entries<'a, Text<'a>>,
        /// Requirements on labels.
        match_expressions: Vec<NodeRequirement<'a>>,
    }
}

view! {
    /// One of `spec.topologySpreadConstraints`.
    TopologySpreadConstraint {
        /// Largest difference between a domain and the emptiest one.
        max_skew: i32,
        /// Node label whose values are the domains.
        topology_key: Text<'a>,
        /// `DoNotSchedule` or `ScheduleAnyway`.
        when_unsatisfiable: Text<'a>,
        /// Selects the pods that are counted; absent selects none.
        label_selector: Option<LabelSelector<'a>>,
        /// With fewer domains than this, the emptiest one counts as empty.
        min_domains: Option<i32>,
        /// Whether nodes that the pod's selector and affinity exclude are no domains: `Honor` when empty.
        node_affinity_policy: Text<'a>,
        /// Whether nodes with an untolerated taint are no domains: `Ignore` when empty.
        node_taints_policy: Text<'a>,
        /// Keys whose value of the pod is added to the selector.
        match_label_keys: Vec<Text<'a>>,
    }
}

/// `spec.affinity.nodeAffinity`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct NodeAffinity<'a> {
    /// Required terms.
    #[serde(default, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector<'a>>,
    /// Preferred terms. Only their number is used.
    #[serde(default, rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Option<Vec<serde::de::IgnoredAny>>,
}

view! {
    /// Required terms of node affinity, combined with OR.
    NodeSelector {
        /// Terms, at least one of which must match. A term without requirements matches no node.
        node_selector_terms: Vec<NodeSelectorTerm<'a>>,
    }
}

view! {
    /// A term: requirements, combined with AND.
    NodeSelectorTerm {
        /// Requirements on labels.
        match_expressions: Option<Vec<NodeRequirement<'a>>>,
        /// Requirements on fields. `metadata.name` is the only one that Kubernetes allows.
        match_fields: Option<Vec<NodeRequirement<'a>>>,
    }
}

view! {
    /// A requirement on a label or field.
    NodeRequirement {
        /// Key of the label, or path of the field.
        key: Text<'a>,
        /// Operator: `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
        operator: Text<'a>,
        /// Values that the operator compares with.
        values: Vec<Text<'a>>,
    }
}

view! {
    /// A toleration.
    Toleration {
        /// Key of the taint. An empty key with `Exists` tolerates every taint.
        key: Text<'a>,
        /// Operator: `Equal` (or empty) or `Exists`.
        operator: Text<'a>,
        /// Value of the taint.
        value: Text<'a>,
        /// Effect of the taint; empty for all effects.
        effect: Text<'a>,
    }
}

view! {
    /// `status` of a pod.
    PodStatus {
        /// Phase: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        phase: Text<'a>,
        /// The node that the scheduler intends to bind the pod to.
        nominated_node_name: Text<'a>,
        /// Conditions.
        conditions: Vec<Condition<'a>>,
        /// Status of each container, with its allocated resources (in-place resize).
        container_statuses: Vec<ContainerStatus<'a>>,
        /// Status of each init container.
        init_container_statuses: Vec<ContainerStatus<'a>>,
        /// Pod-level resources that kubelet has allocated (in-place resize of pod-level resources).
        allocated_resources: Entries<'a, Scalar<'a>>,
        /// Pod-level resources that are configured; absent before kubelet reports them.
        resources: Option<ResourceRequirements<'a>>,
    }
}

view! {
    /// Status of a container: the fields that affect capacity.
    ContainerStatus {
        /// Name of the container.
        name: Text<'a>,
        /// Resources that kubelet has allocated.
        allocated_resources: Entries<'a, Scalar<'a>>,
        /// Resources that are configured; absent before kubelet reports them.
        resources: Option<ResourceRequirements<'a>>,
    }
}

view! {
    /// A condition of any object.
    Condition {
        /// Type of the condition.
        r#type: Text<'a>,
        /// Status: `True`, `False` or `Unknown`.
        status: Text<'a>,
        /// Reason: a word for programs.
        reason: Text<'a>,
        /// Message for people.
        message: Text<'a>,
    }
}

view! {
    /// A StatefulSet: the fields that decide when its controller creates the pods.
    StatefulSetView {
        /// `metadata`.
        metadata: Meta<'a>,
        /// `spec`.
        spec: StatefulSetSpec<'a>,
    }
}

view! {
    /// `spec` of a StatefulSet.
    StatefulSetSpec {
        /// `OrderedReady` (or empty) or `Parallel`. Immutable.
        pod_management_policy: Text<'a>,
        /// `metadata` and `spec` of its pods.
        template: PodView<'a>,
    }
}

view! {
    /// A Deployment, ReplicaSet, StatefulSet or Job: the fields that set the number of its pods and their
    /// gang.
    OwnerView {
        /// `metadata`.
        metadata: Meta<'a>,
        /// `spec`.
        spec: OwnerSpec<'a>,
        /// `status`.
        status: OwnerStatus<'a>,
    }
}

view! {
    /// `spec` of an owner of pods.
    OwnerSpec {
        /// Wanted number of pods; absent means 1.
        replicas: Option<u32>,
        /// Job: maximum number of pods at the same time; absent means 1.
        parallelism: Option<u32>,
        /// Job: number of pods that must succeed; absent means that one success completes the Job.
        completions: Option<u32>,
        /// Job: whether it is suspended, and so has no pods.
        suspend: bool,
        /// `metadata` and `spec` of its pods.
        template: PodView<'a>,
    }
}

view! {
    /// `status` of an owner of pods. The fields are those of a Job.
    OwnerStatus {
        /// Number of succeeded pods.
        succeeded: u32,
        /// Finished pods that the other counts do not include yet.
        uncounted_terminated_pods: UncountedTerminatedPods<'a>,
        /// Conditions.
        conditions: Vec<Condition<'a>>,
    }
}

view! {
    /// `status.uncountedTerminatedPods` of a Job.
    UncountedTerminatedPods {
        /// UIDs of succeeded pods.
        succeeded: Vec<Text<'a>>,
    }
}

view! {
    /// A node.
    NodeView {
        /// `metadata`.
        metadata: Meta<'a>,
        /// `spec`.
        spec: NodeSpec<'a>,
        /// `status`.
        status: NodeStatus<'a>,
    }
}

view! {
    /// `spec` of a node.
    NodeSpec {
        /// Whether the node is cordoned.
        unschedulable: bool,
        /// Taints.
        taints: Vec<TaintView<'a>>,
    }
}

view! {
    /// A taint.
    TaintView {
        /// Key.
        key: Text<'a>,
        /// Value.
        value: Text<'a>,
        /// Effect: `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        effect: Text<'a>,
    }
}

view! {
    /// `status` of a node.
    NodeStatus {
        /// Amount of each resource that pods may use.
        allocatable: Entries<'a, Scalar<'a>>,
        /// Amount of each resource that the node has.
        capacity: Entries<'a, Scalar<'a>>,
        /// Conditions.
        conditions: Vec<Condition<'a>>,
    }
}

impl PodView<'_> {
    /// Whether the pod belongs to its node and runs as long as the node does: a static pod, its mirror pod,
    /// or a pod of a DaemonSet.
    #[must_use]
    pub fn is_node_bound(&self) -> bool {
        let annotations = &self.metadata.annotations;
        annotations.contains(names::MIRROR_POD)
            || annotations.contains(names::STATIC_POD_SOURCE)
            || self
                .metadata
                .owner_references
                .iter()
                .any(|owner| owner.kind.as_str() == "DaemonSet" && owner.api_version.starts_with("apps/"))
    }
}
