//! The definitions of all variables and fields: name, type and documentation. The CEL declarations and
//! `policies/VARIABLES.md` are generated from them.

use portcullis_cel::Type;

/// The type of a variable or field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldType {
    Bool,
    Int,
    Double,
    Text,
    Texts,
    /// An object type with fields.
    Structure(&'static str),
    /// A map from string to an object type.
    Map(&'static str),
}

impl FieldType {
    pub(super) fn declared(self) -> Type {
        match self {
            Self::Bool => Type::Bool,
            Self::Int => Type::Int,
            Self::Double => Type::Double,
            Self::Text => Type::String,
            Self::Texts => Type::list(Type::String),
            Self::Structure(name) => Type::Struct(name.into()),
            Self::Map(name) => Type::map(Type::String, Type::Struct(name.into())),
        }
    }
}

/// A variable.
#[derive(Debug)]
pub(super) struct VariableDefinition {
    pub(super) name: &'static str,
    pub(super) kind: FieldType,
    /// Documentation of the variable.
    pub(super) summary: &'static str,
    /// An example expression.
    pub(super) example: &'static str,
}

/// An object type with fields.
#[derive(Debug)]
pub(super) struct TypeDefinition {
    pub(super) name: &'static str,
    pub(super) fields: &'static [FieldDefinition],
}

/// A field.
#[derive(Debug)]
pub(super) struct FieldDefinition {
    pub(super) name: &'static str,
    pub(super) kind: FieldType,
    pub(super) summary: &'static str,
}

const fn field(name: &'static str, kind: FieldType, summary: &'static str) -> FieldDefinition {
    FieldDefinition { name, kind, summary }
}

pub(super) const VARIABLES: &[VariableDefinition] = &[
    VariableDefinition {
        name: "gang",
        kind: FieldType::Structure("portcullis.Gang"),
        summary: "The gang that the object belongs to, or that it describes when it is a group object (PodGroup, Workload, LeaderWorkerSet). \
                  All fields are always present. If the object has no gang, strings are empty and numbers 0.",
        example: "!gang.named || gang.known",
    },
    VariableDefinition {
        name: "gpu",
        kind: FieldType::Structure("portcullis.Gpu"),
        summary: "What one pod requests of GPUs, over all its containers, as the scheduler counts them. Known without a cluster.",
        example: "gpu.whole <= 8 && gpu.conflicts.size() == 0",
    },
    VariableDefinition {
        name: "queue",
        kind: FieldType::Structure("portcullis.Queue"),
        summary: "The queue that the object names, and what the pods of gangs in that queue request. The limits of the queue itself (KAI's and \
                  Volcano's Queue objects) are not known: write the limit into the policy.",
        example: "queue.name != 'research' || queue.gpusAfter <= 32",
    },
    VariableDefinition {
        name: "quota",
        kind: FieldType::Structure("portcullis.Quota"),
        summary: "What the pods of the namespace request already. It is not a ResourceQuota and does not read one. It counts running and waiting pods, \
                  in gangs or not, from the leader's report, which is a few seconds and at most two minutes old.",
        example: "quota.gpusAfter <= 64",
    },
    VariableDefinition {
        name: "cluster",
        kind: FieldType::Structure("portcullis.Cluster"),
        summary: "The GPUs of the cluster and how many are free, from the leader's report, which is a few seconds and at most two minutes old.",
        example: "!cluster.known || gang.gpus <= cluster.cards",
    },
    VariableDefinition {
        name: "priorityClasses",
        kind: FieldType::Map("portcullis.PriorityClass"),
        summary: "The PriorityClasses of the cluster, by name.",
        example: "gang.priorityClass == '' || gang.priorityClass in priorityClasses",
    },
    VariableDefinition {
        name: "runtimeClasses",
        kind: FieldType::Map("portcullis.RuntimeClass"),
        summary: "The RuntimeClasses of the cluster, by name.",
        example: "'nvidia' in runtimeClasses",
    },
];

const DEMAND: [(&str, FieldType, &str); 11] = [
    ("known", FieldType::Bool, "Whether the numbers below are known. If not, reading one is an error."),
    ("gpus", FieldType::Int, "Whole GPUs requested by running and waiting pods."),
    ("gpusRunning", FieldType::Int, "Whole GPUs of running pods and of pods with a reservation."),
    ("gpusWaiting", FieldType::Int, "Whole GPUs of waiting pods."),
    (
        "gpusAfter",
        FieldType::Int,
        "`gpus` after admission of this object and its whole gang: compare it with a limit. Equals `gpus` unless the operation is CREATE.",
    ),
    ("vramMiB", FieldType::Int, "MiB of shared cards requested by running and waiting pods."),
    ("vramMiBRunning", FieldType::Int, "MiB of shared cards of running pods and of pods with a reservation."),
    ("vramMiBWaiting", FieldType::Int, "MiB of shared cards of waiting pods."),
    ("vramMiBAfter", FieldType::Int, "Like `gpusAfter`, for MiB of shared cards."),
    ("pods", FieldType::Int, "Pods that request GPUs."),
    ("gangs", FieldType::Int, "Gangs with such pods."),
];

/// Returns the fields of [`DEMAND`] after one further field.
const fn with_demand(own: FieldDefinition) -> [FieldDefinition; 12] {
    let d = DEMAND;
    [
        own,
        field(d[0].0, d[0].1, d[0].2),
        field(d[1].0, d[1].1, d[1].2),
        field(d[2].0, d[2].1, d[2].2),
        field(d[3].0, d[3].1, d[3].2),
        field(d[4].0, d[4].1, d[4].2),
        field(d[5].0, d[5].1, d[5].2),
        field(d[6].0, d[6].1, d[6].2),
        field(d[7].0, d[7].1, d[7].2),
        field(d[8].0, d[8].1, d[8].2),
        field(d[9].0, d[9].1, d[9].2),
        field(d[10].0, d[10].1, d[10].2),
    ]
}

const QUEUE: [FieldDefinition; 12] = with_demand(field(
    "name",
    FieldType::Text,
    "The queue of the group object (KAI, Volcano), else of the pod (KAI, Kueue, Volcano, YuniKorn); empty if none. \
     The numbers count gangs whose group object names it.",
));
const QUOTA: [FieldDefinition; 12] =
    with_demand(field("namespace", FieldType::Text, "The namespace of the request."));

pub(super) const STRUCTURES: &[TypeDefinition] = &[
    TypeDefinition {
        name: "portcullis.Gang",
        fields: &[
            field("named", FieldType::Bool, "Whether the pod names a gang or the object describes one."),
            field(
                "dialect",
                FieldType::Text,
                "The stack whose keys name the group: `kai`, `coscheduling`, `volcano`, `lws`, `native`, `yunikorn` or `plain`.",
            ),
            field(
                "name",
                FieldType::Text,
                "Name of the group. A group within a Workload is `workload/group`.",
            ),
            field("namespace", FieldType::Text, "Namespace of the group and of all its pods."),
            field("role", FieldType::Text, "The subgroup, task or role that the pod names within the gang."),
            field(
                "groupFound",
                FieldType::Bool,
                "Whether the group object is known or is this object. A group created a moment ago can still be unknown.",
            ),
            field(
                "groupKind",
                FieldType::Text,
                "Kind and API group of the group object: `PodGroup.scheduling.run.ai`.",
            ),
            field(
                "known",
                FieldType::Bool,
                "Whether the group object or the pod states the number of members.",
            ),
            field(
                "min",
                FieldType::Int,
                "Min member: how many members must exist before any of them starts; 0 if unknown.",
            ),
            field(
                "declared",
                FieldType::Int,
                "Number of members that the pod itself states (`portcullis.dev/gang-size`, the size of a replica, task groups); 0 if it states none.",
            ),
            field(
                "members",
                FieldType::Int,
                "Number of pods so far, without this one, from the status of the Gang object.",
            ),
            field("bound", FieldType::Int, "Number of members bound to a node."),
            field(
                "phase",
                FieldType::Text,
                "`Gathering`, `Waiting`, `Planned`, `Lifting`, `Admitted` or `Torn`; empty before its first pod.",
            ),
            field("reason", FieldType::Text, "The reason of the phase, one word."),
            field("message", FieldType::Text, "The message of the phase."),
            field("priorityClass", FieldType::Text, "The PriorityClass that the group object names."),
            field(
                "timeoutSeconds",
                FieldType::Int,
                "Maximum wait for the start, from the group or the pod; -1 if neither sets it.",
            ),
            field(
                "onTimeout",
                FieldType::Text,
                "`requeue` or `delete`, from the group or the pod; empty if neither sets it.",
            ),
            field(
                "onTorn",
                FieldType::Text,
                "`retry`, `hold` or `evict`, for a torn gang, from the same places.",
            ),
            field("onStale", FieldType::Text, "`evict` or `keep`, for a stale gang, from the same places."),
            field(
                "staleGraceSeconds",
                FieldType::Int,
                "Grace period of a stale gang before `onStale` applies; -1 if not set.",
            ),
            field(
                "elastic",
                FieldType::Bool,
                "Whether the gang is elastic: its size follows the owners of its pods.",
            ),
            field(
                "topology",
                FieldType::Text,
                "The node label whose value must be equal for all members; empty if not set.",
            ),
            field("pin", FieldType::Bool, "Whether members are pinned to their planned nodes."),
            field(
                "gpus",
                FieldType::Int,
                "Whole GPUs that the gang needs to start. Group object: `minResources`. Pod: its request times the members of its gang or subgroup. Without a gang: the pod or workload.",
            ),
            field("vramMiB", FieldType::Int, "Like `gpus`, for MiB of shared cards."),
            field(
                "conflicts",
                FieldType::Texts,
                "Errors in the keys that name the group, each with its field. Such a pod is denied in any case.",
            ),
        ],
    },
    TypeDefinition {
        name: "portcullis.Gpu",
        fields: &[
            field(
                "asks",
                FieldType::Bool,
                "Whether the pod requests whole GPUs, MIG slices or a share of a card.",
            ),
            field("whole", FieldType::Int, "Whole GPUs, of all vendors."),
            field(
                "shares",
                FieldType::Bool,
                "Whether the pod requests a share of a card (`gpu-memory`, `gpu-fraction`), even with an invalid value.",
            ),
            field("vramMiB", FieldType::Int, "MiB on each card of the share (`gpu-memory`)."),
            field(
                "fraction",
                FieldType::Double,
                "Fraction of each card of the share (`gpu-fraction`), below 1.",
            ),
            field(
                "devices",
                FieldType::Int,
                "Number of cards of the share (`gpu-fraction-num-devices`, else 1).",
            ),
            field(
                "totalVramMiB",
                FieldType::Int,
                "MiB over all cards of the share; 0 for a fraction, because the card size is unknown.",
            ),
            field("mig", FieldType::Int, "MIG slices, of all profiles."),
            field("claims", FieldType::Int, "Resource claims (DRA)."),
            field(
                "models",
                FieldType::Texts,
                "The GPU models that its node selector or required node affinity allows (`nvidia.com/gpu.product`); empty for any.",
            ),
            field(
                "conflicts",
                FieldType::Texts,
                "Contradictions in the GPU requests, each with its field. Such a pod is denied in any case.",
            ),
        ],
    },
    TypeDefinition { name: "portcullis.Queue", fields: &QUEUE },
    TypeDefinition { name: "portcullis.Quota", fields: &QUOTA },
    TypeDefinition {
        name: "portcullis.Cluster",
        fields: &[
            field(
                "known",
                FieldType::Bool,
                "Whether the leader's report is at most two minutes old. If not, reading another field is an error.",
            ),
            field(
                "models",
                FieldType::Map("portcullis.Model"),
                "By GPU model (`nvidia.com/gpu.product`, else `unknown`), with the fields below.",
            ),
            field("nodes", FieldType::Int, "Nodes with GPUs."),
            field(
                "cards",
                FieldType::Int,
                "Whole GPUs of any vendor, as pods request them: physical cards, or more with time-slicing.",
            ),
            field("freeCards", FieldType::Int, "Number of cards that a pod can get now."),
            field(
                "largestNodeCards",
                FieldType::Int,
                "Largest number of cards on one node: no pod can get more.",
            ),
            field("vramMiB", FieldType::Int, "MiB of all physical cards together."),
            field("freeVramMiB", FieldType::Int, "Free MiB on nodes that share their cards."),
            field("largestCardMiB", FieldType::Int, "MiB of the largest card: no share can be larger."),
            field("largestFreeMiB", FieldType::Int, "Free MiB of the shared card with the most free memory."),
        ],
    },
    TypeDefinition {
        name: "portcullis.Model",
        fields: &[
            field("nodes", FieldType::Int, "Nodes with such GPUs."),
            field("cards", FieldType::Int, "Whole GPUs, as `cluster.cards` counts them."),
            field("freeCards", FieldType::Int, "Number of cards that a pod can get now."),
            field("largestNodeCards", FieldType::Int, "Largest number of cards on one node."),
            field("vramMiB", FieldType::Int, "MiB of all such physical cards together."),
            field("freeVramMiB", FieldType::Int, "Free MiB on nodes that share them."),
            field("largestCardMiB", FieldType::Int, "MiB of the largest of them."),
            field("largestFreeMiB", FieldType::Int, "Free MiB of the shared card with the most free memory."),
        ],
    },
    TypeDefinition {
        name: "portcullis.PriorityClass",
        fields: &[
            field("value", FieldType::Int, "Higher values are scheduled first."),
            field("globalDefault", FieldType::Bool, "Whether the class applies to pods that name none."),
            field("preemptionPolicy", FieldType::Text, "`PreemptLowerPriority` or `Never`."),
        ],
    },
    TypeDefinition {
        name: "portcullis.RuntimeClass",
        fields: &[field("handler", FieldType::Text, "The handler of the container runtime.")],
    },
];
