//! Borrowed views of the JSON of pods and nodes: only the fields we need, every one of them optional.

use serde::{Deserialize, Deserializer};

use super::text::{Entries, Scalar, Text};

/// Reads `null` as the default, as Go does.
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
        /// Prefix of the name the API server will make.
        generate_name: Text<'a>,
        /// Empty for cluster-scoped objects, and on some CREATE reviews.
        namespace: Text<'a>,
        /// Empty before the object is stored.
        uid: Text<'a>,
        /// Empty before the object is stored.
        resource_version: Text<'a>,
        /// RFC 3339.
        creation_timestamp: Text<'a>,
        /// Set while the object is going away.
        deletion_timestamp: Option<Text<'a>>,
        /// Counts changes of the spec.
        generation: u64,
        /// Labels.
        labels: Entries<'a, Text<'a>>,
        /// Annotations.
        annotations: Entries<'a, Text<'a>>,
        /// Owners.
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
        /// The node the pod is bound to.
        node_name: Text<'a>,
        /// Who is to place it.
        scheduler_name: Text<'a>,
        /// What holds it back.
        scheduling_gates: Vec<Named<'a>>,
        /// Containers.
        containers: Vec<Container<'a>>,
        /// Init containers, native sidecars among them.
        init_containers: Vec<Container<'a>>,
        /// Pod-level resources.
        resources: ResourceRequirements<'a>,
        /// What the sandbox itself costs.
        overhead: Entries<'a, Scalar<'a>>,
        /// Labels the node must have.
        node_selector: Entries<'a, Text<'a>>,
        /// Affinity, present or not (its presence decides how a patch must be written).
        affinity: Option<Affinity<'a>>,
        /// Taints it puts up with.
        tolerations: Vec<Toleration<'a>>,
        /// Resolved priority.
        priority: i32,
        /// Name of the PriorityClass.
        priority_class_name: Text<'a>,
        /// Name of the RuntimeClass.
        runtime_class_name: Text<'a>,
        /// DRA claims.
        resource_claims: Vec<Named<'a>>,
        /// Shares the node's network.
        host_network: bool,
        /// The native group it belongs to (1.36 and later).
        scheduling_group: Option<SchedulingGroup<'a>>,
        /// The group of a Workload it belongs to (1.35).
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
        /// Name of one of its groups.
        pod_group: Text<'a>,
        /// Tells replicas of that group apart.
        pod_group_replica_key: Text<'a>,
    }
}

view! {
    /// Anything of which only the name matters.
    Named {
        /// Its name.
        name: Text<'a>,
    }
}

view! {
    /// A container or init container.
    Container {
        /// Unique within the pod.
        name: Text<'a>,
        /// Requests and limits.
        resources: ResourceRequirements<'a>,
        /// `Always` makes an init container a sidecar.
        restart_policy: Text<'a>,
        /// Ports, for the host ports among them.
        ports: Vec<ContainerPort<'a>>,
        /// Environment.
        env: Option<Vec<EnvVar<'a>>>,
    }
}

view! {
    /// `resources` of a container or pod.
    ResourceRequirements {
        /// What it is promised.
        requests: Entries<'a, Scalar<'a>>,
        /// What it may use at most.
        limits: Entries<'a, Scalar<'a>>,
        /// DRA claims it uses.
        claims: Vec<Named<'a>>,
    }
}

view! {
    /// One port of a container.
    ContainerPort {
        /// Port on the node, 0 for none.
        host_port: u32,
        /// Address on the node; empty is all of them.
        #[serde(rename = "hostIP")]
        host_ip: Text<'a>,
        /// Port in the container.
        container_port: u32,
        /// `TCP` when empty.
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
        /// Where the value comes from.
        value_from: Option<EnvSource<'a>>,
    }
}

view! {
    /// Where the value of an environment variable comes from, as far as we write or read it.
    EnvSource {
        /// A field of the pod.
        field_ref: Option<FieldRef<'a>>,
    }
}

view! {
    /// A field of the pod, by path.
    FieldRef {
        /// For example `metadata.annotations['portcullis.dev/gpus']`.
        field_path: Text<'a>,
    }
}

view! {
    /// `spec.affinity`, the node part of it.
    Affinity {
        /// `nodeAffinity`, present or not.
        node_affinity: Option<NodeAffinity<'a>>,
    }
}

/// `spec.affinity.nodeAffinity`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct NodeAffinity<'a> {
    /// Hard requirement.
    #[serde(default, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector<'a>>,
    /// Soft wishes: only how many there are matters.
    #[serde(default, rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Option<Vec<serde::de::IgnoredAny>>,
}

view! {
    /// ORed terms.
    NodeSelector {
        /// Any one of these must match. A term with no requirements matches nothing.
        node_selector_terms: Vec<NodeSelectorTerm<'a>>,
    }
}

view! {
    /// ANDed requirements.
    NodeSelectorTerm {
        /// On labels.
        match_expressions: Option<Vec<NodeRequirement<'a>>>,
        /// On fields; only `metadata.name` exists.
        match_fields: Option<Vec<NodeRequirement<'a>>>,
    }
}

view! {
    /// One requirement on a label or field.
    NodeRequirement {
        /// Label or field.
        key: Text<'a>,
        /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`.
        operator: Text<'a>,
        /// Operands.
        values: Vec<Text<'a>>,
    }
}

view! {
    /// One toleration.
    Toleration {
        /// Taint key; empty with `Exists` tolerates everything.
        key: Text<'a>,
        /// `Equal` when empty, or `Exists`.
        operator: Text<'a>,
        /// Taint value.
        value: Text<'a>,
        /// Taint effect; empty is all of them.
        effect: Text<'a>,
    }
}

view! {
    /// `status` of a pod.
    PodStatus {
        /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
        phase: Text<'a>,
        /// Where the scheduler means to put it.
        nominated_node_name: Text<'a>,
        /// Conditions.
        conditions: Vec<Condition<'a>>,
        /// What kubelet has allocated, per container (in-place resize).
        container_statuses: Vec<ContainerStatus<'a>>,
        /// The same for init containers.
        init_container_statuses: Vec<ContainerStatus<'a>>,
        /// Pod-level allocation (in-place resize of pod-level resources).
        allocated_resources: Entries<'a, Scalar<'a>>,
        /// Pod-level resources as they are in force; absent before the kubelet has said so.
        resources: Option<ResourceRequirements<'a>>,
    }
}

view! {
    /// The part of a container's status that bears on capacity.
    ContainerStatus {
        /// Name of the container.
        name: Text<'a>,
        /// What kubelet has admitted.
        allocated_resources: Entries<'a, Scalar<'a>>,
        /// What is in force; absent before the kubelet has said so.
        resources: Option<ResourceRequirements<'a>>,
    }
}

view! {
    /// A condition of any object.
    Condition {
        /// Its type.
        r#type: Text<'a>,
        /// `True`, `False`, `Unknown`.
        status: Text<'a>,
        /// Machine-readable cause.
        reason: Text<'a>,
        /// Sentence.
        message: Text<'a>,
    }
}

view! {
    /// A StatefulSet, as far as it decides how its pods come into being.
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
        /// `OrderedReady` when empty, or `Parallel`. Cannot be changed later.
        pod_management_policy: Text<'a>,
        /// `metadata` and `spec` of its pods.
        template: PodView<'a>,
    }
}

view! {
    /// A Deployment, ReplicaSet, StatefulSet or Job, as far as it says how many pods it wants, and of which
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
        /// How many pods; 1 where it is not said.
        replicas: Option<u32>,
        /// Of a Job: how many pods at the same time; 1 where it is not said.
        parallelism: Option<u32>,
        /// Of a Job: how many pods have to end well; any one where it is not said.
        completions: Option<u32>,
        /// Of a Job: it has no pods for now.
        suspend: bool,
        /// `metadata` and `spec` of its pods.
        template: PodView<'a>,
    }
}

view! {
    /// `status` of an owner of pods: that of a Job.
    OwnerStatus {
        /// How many pods have ended well.
        succeeded: u32,
        /// Pods that have ended and are not counted yet.
        uncounted_terminated_pods: UncountedTerminatedPods<'a>,
        /// Conditions.
        conditions: Vec<Condition<'a>>,
    }
}

view! {
    /// `status.uncountedTerminatedPods` of a Job.
    UncountedTerminatedPods {
        /// UIDs of those that have ended well.
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
        /// Cordoned.
        unschedulable: bool,
        /// Taints.
        taints: Vec<TaintView<'a>>,
    }
}

view! {
    /// One taint.
    TaintView {
        /// Key.
        key: Text<'a>,
        /// Value.
        value: Text<'a>,
        /// `NoSchedule`, `PreferNoSchedule`, `NoExecute`.
        effect: Text<'a>,
    }
}

view! {
    /// `status` of a node.
    NodeStatus {
        /// What pods may use.
        allocatable: Entries<'a, Scalar<'a>>,
        /// What is there.
        capacity: Entries<'a, Scalar<'a>>,
        /// Conditions.
        conditions: Vec<Condition<'a>>,
    }
}
