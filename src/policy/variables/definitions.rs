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
                  All fields are always there; where the object has to do with no gang, texts are empty and numbers 0.",
        example: "!gang.named || gang.known",
    },
    VariableDefinition {
        name: "gpu",
        kind: FieldType::Structure("portcullis.Gpu"),
        summary: "What one pod asks of GPUs, over all its containers, as the scheduler counts them. Known without a cluster.",
        example: "gpu.whole <= 8 && gpu.conflicts.size() == 0",
    },
    VariableDefinition {
        name: "queue",
        kind: FieldType::Structure("portcullis.Queue"),
        summary: "The queue that the object names, and what the pods of gangs in that queue ask for. What a queue may have (the limits of KAI's and \
                  Volcano's Queue objects) is not known: say the limit in the policy.",
        example: "queue.name != 'research' || queue.gpusAfter <= 32",
    },
    VariableDefinition {
        name: "quota",
        kind: FieldType::Structure("portcullis.Quota"),
        summary: "What the pods of the namespace ask for already. It is no ResourceQuota, and knows of none: it counts pods that run and pods that wait, \
                  in gangs or not, as the leading replica saw them some seconds ago, never more than two minutes.",
        example: "quota.gpusAfter <= 64",
    },
    VariableDefinition {
        name: "cluster",
        kind: FieldType::Structure("portcullis.Cluster"),
        summary: "What GPUs the cluster has, and what was free of them when the leading replica last looked: some seconds ago, never more than two minutes.",
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
    (
        "known",
        FieldType::Bool,
        "Whether the numbers below are known; where they are not, asking for one is an error.",
    ),
    ("gpus", FieldType::Int, "Whole GPUs asked for, by pods that run and pods that wait."),
    ("gpusRunning", FieldType::Int, "Whole GPUs of pods that run or have their place."),
    ("gpusWaiting", FieldType::Int, "Whole GPUs of pods that wait."),
    (
        "gpusAfter",
        FieldType::Int,
        "Whole GPUs asked for once this object is let in, with all members of its gang: the number to hold against a limit. On anything but a CREATE the same as `gpus`.",
    ),
    ("vramMiB", FieldType::Int, "MiB of shared cards asked for, by pods that run and pods that wait."),
    ("vramMiBRunning", FieldType::Int, "MiB of shared cards of pods that run or have their place."),
    ("vramMiBWaiting", FieldType::Int, "MiB of shared cards of pods that wait."),
    ("vramMiBAfter", FieldType::Int, "As `gpusAfter`, for MiB of shared cards."),
    ("pods", FieldType::Int, "Pods that ask for GPUs."),
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
    "Name of the queue: of the group object (KAI, Volcano), else of the pod's label or annotation (KAI, Kueue, Volcano, YuniKorn). Empty where none is named. \
     The numbers count gangs whose group object names it.",
));
const QUOTA: [FieldDefinition; 12] =
    with_demand(field("namespace", FieldType::Text, "The namespace of the request."));

pub(super) const STRUCTURES: &[TypeDefinition] = &[
    TypeDefinition {
        name: "portcullis.Gang",
        fields: &[
            field(
                "named",
                FieldType::Bool,
                "Whether there is a gang: the pod names one, or the object describes one.",
            ),
            field(
                "dialect",
                FieldType::Text,
                "The stack whose way of naming groups it uses: `kai`, `coscheduling`, `volcano`, `lws`, `native`, `yunikorn` or `plain`.",
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
                "Whether its group object is known, or is this object. One that was made a moment ago may not have been seen yet.",
            ),
            field(
                "groupKind",
                FieldType::Text,
                "Kind and group of that object: `PodGroup.scheduling.run.ai`.",
            ),
            field(
                "known",
                FieldType::Bool,
                "Whether anybody says how many members it takes: the group object, or the pod itself.",
            ),
            field(
                "min",
                FieldType::Int,
                "How many members must be there before any of them starts; 0 where nobody says.",
            ),
            field(
                "declared",
                FieldType::Int,
                "How many the pod itself says (`portcullis.dev/gang-size`, the size of a replica, task groups); 0 where it does not.",
            ),
            field(
                "members",
                FieldType::Int,
                "How many pods it has so far, without this one, as the Gang object last said.",
            ),
            field("bound", FieldType::Int, "How many of them are on a node."),
            field(
                "phase",
                FieldType::Text,
                "`Gathering`, `Waiting`, `Planned`, `Lifting`, `Admitted` or `Torn`; empty before its first pod.",
            ),
            field("reason", FieldType::Text, "Why it is in that phase, in one word."),
            field("message", FieldType::Text, "Why it is in that phase, in a sentence."),
            field("priorityClass", FieldType::Text, "The PriorityClass that the group object names."),
            field(
                "timeoutSeconds",
                FieldType::Int,
                "How long it may wait for its start, as the group or the pod says; -1 where neither does.",
            ),
            field(
                "onTimeout",
                FieldType::Text,
                "`requeue` or `delete`, as the group or the pod says; empty where neither does.",
            ),
            field(
                "onTorn",
                FieldType::Text,
                "`hold` or `evict`, for a gang that has started in part only, likewise.",
            ),
            field("onStale", FieldType::Text, "`evict` or `keep`, likewise."),
            field(
                "staleGraceSeconds",
                FieldType::Int,
                "For how long it is left as it is once it has lost members; -1 where nobody says.",
            ),
            field(
                "elastic",
                FieldType::Bool,
                "Whether it takes as many members as the owners of its pods want.",
            ),
            field(
                "topology",
                FieldType::Text,
                "The node label of which all members are to meet one value; empty where neither says one.",
            ),
            field(
                "pin",
                FieldType::Bool,
                "Whether its members are tied to the nodes that were planned for them.",
            ),
            field(
                "gpus",
                FieldType::Int,
                "Whole GPUs that its start takes: of a group object what `minResources` says; of a pod what it asks for, as if every member (of its subgroup, where there are subgroups) asked for as much. A pod in no gang counts alone, a workload by its replicas.",
            ),
            field("vramMiB", FieldType::Int, "The same for MiB of shared cards."),
            field(
                "conflicts",
                FieldType::Texts,
                "What is wrong with the keys by which the pod names its group, each with its field; such a pod is refused in any case.",
            ),
        ],
    },
    TypeDefinition {
        name: "portcullis.Gpu",
        fields: &[
            field(
                "asks",
                FieldType::Bool,
                "Whether it asks for whole GPUs, MIG slices or a share of a card.",
            ),
            field("whole", FieldType::Int, "Whole GPUs, of all vendors."),
            field(
                "shares",
                FieldType::Bool,
                "Whether it asks for a share of a card (`gpu-memory`, `gpu-fraction`), readable or not.",
            ),
            field("vramMiB", FieldType::Int, "MiB on each card of the share (`gpu-memory`)."),
            field("fraction", FieldType::Double, "Part of each card of the share (`gpu-fraction`), below 1."),
            field(
                "devices",
                FieldType::Int,
                "On how many cards the share is (`gpu-fraction-num-devices`, else 1).",
            ),
            field(
                "totalVramMiB",
                FieldType::Int,
                "MiB over all cards of the share; 0 for a fraction, because the size of the card is not known.",
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
                "Every way in which its requests contradict themselves, each with its field; such a pod is refused in any case.",
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
                "Whether the leading replica has told within the last two minutes; where it has not, asking for any other field is an error.",
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
                "Whole GPUs of any vendor, as pods ask for them: physical cards, or more where time-slicing makes several of each.",
            ),
            field("freeCards", FieldType::Int, "How many of them a pod can get now."),
            field(
                "largestNodeCards",
                FieldType::Int,
                "The most of them that one node has: no pod can ever get more.",
            ),
            field("vramMiB", FieldType::Int, "MiB of all physical cards together."),
            field("freeVramMiB", FieldType::Int, "Free MiB on nodes that share their cards."),
            field("largestCardMiB", FieldType::Int, "MiB of the largest card: no share can ever be more."),
            field("largestFreeMiB", FieldType::Int, "Free MiB of the shared card that has most."),
        ],
    },
    TypeDefinition {
        name: "portcullis.Model",
        fields: &[
            field("nodes", FieldType::Int, "Nodes with such GPUs."),
            field("cards", FieldType::Int, "Whole GPUs, as `cluster.cards` counts them."),
            field("freeCards", FieldType::Int, "How many of them a pod can get now."),
            field("largestNodeCards", FieldType::Int, "The most of them that one node has."),
            field("vramMiB", FieldType::Int, "MiB of all such physical cards together."),
            field("freeVramMiB", FieldType::Int, "Free MiB on nodes that share them."),
            field("largestCardMiB", FieldType::Int, "MiB of the largest of them."),
            field("largestFreeMiB", FieldType::Int, "Free MiB of the shared one that has most."),
        ],
    },
    TypeDefinition {
        name: "portcullis.PriorityClass",
        fields: &[
            field("value", FieldType::Int, "Higher goes first."),
            field("globalDefault", FieldType::Bool, "Whether it is the class of pods that name none."),
            field("preemptionPolicy", FieldType::Text, "`PreemptLowerPriority` or `Never`."),
        ],
    },
    TypeDefinition {
        name: "portcullis.RuntimeClass",
        fields: &[field("handler", FieldType::Text, "The handler of the container runtime.")],
    },
];
