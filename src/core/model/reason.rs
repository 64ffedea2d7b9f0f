//! Reason codes. A code never changes, and conditions, events, logs and metrics use the same one.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A reason code. Its name is the text in conditions and events.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason { $($(#[$doc])* $name),* }

        impl Reason {
            /// All reasons, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The text that users see.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }
    };
}

impl Reason {
    /// Whether the reason keeps a complete gang from being scheduled.
    pub fn is_unschedulable(self) -> bool {
        matches!(
            self,
            Self::InsufficientVram
                | Self::InsufficientExtended
                | Self::InsufficientCpu
                | Self::InsufficientMemory
                | Self::InsufficientEphemeralStorage
                | Self::TooManyPods
                | Self::HostPortConflict
                | Self::UntoleratedTaint
                | Self::NodeAffinityMismatch
                | Self::PodAffinityMismatch
                | Self::RefusedByScheduler
                | Self::TopologySpread
                | Self::NodeUnavailable
                | Self::NoSharedNode
                | Self::MissingVramLabel
                | Self::NoNodes
                | Self::Fragmented
                | Self::HeadOfLineReservation
                | Self::SearchExhausted
                | Self::PlanRefuted
                | Self::PlanDropped
                | Self::LiftRefused
                | Self::Torn
        )
    }
}

reasons! {
    /// The gang has fewer live members than `minMember`.
    Gathering,
    /// Pods name a group object that does not exist.
    GroupNotFound,
    /// Waiting members declare different sizes of their gang.
    MembersDisagree,
    /// Members declare a size other than that of the group object. The group object wins.
    SizesDiffer,
    /// Whether the owners of the pods determine the number of members.
    Elastic,
    /// The group names a PriorityClass that does not exist.
    PriorityClassNotFound,
    /// A member has a scheduling gate of another controller.
    ForeignGate,
    /// The group object or a member could not be read.
    Unreadable,
    /// The gang is complete and waits for the planner.
    Queued,
    /// Not enough GPU memory, on one card or on all cards.
    InsufficientVram,
    /// Not enough whole GPUs or another extended resource.
    InsufficientExtended,
    /// Not enough CPU.
    InsufficientCpu,
    /// Not enough memory.
    InsufficientMemory,
    /// Not enough ephemeral storage.
    InsufficientEphemeralStorage,
    /// Nodes have reached their maximum number of pods.
    TooManyPods,
    /// A host port is in use.
    HostPortConflict,
    /// Nodes have taints that the pods do not tolerate.
    UntoleratedTaint,
    /// Too few nodes match the node selector or the required node affinity.
    NodeAffinityMismatch,
    /// Too few nodes meet the required affinity and anti-affinity between pods.
    PodAffinityMismatch,
    /// Topology spread constraints allow too few nodes.
    TopologySpread,
    /// The scheduler refused an equal pod on nodes that look feasible.
    RefusedByScheduler,
    /// Nodes are cordoned or not ready.
    NodeUnavailable,
    /// Pods request GPU memory and no node is a shared node.
    NoSharedNode,
    /// Nodes have GPUs and no label with the amount of GPU memory.
    MissingVramLabel,
    /// The cluster has no nodes.
    NoNodes,
    /// Each member fits on a node, but not all at the same time.
    Fragmented,
    /// The free capacity is a head-of-line reservation of an older gang.
    HeadOfLineReservation,
    /// Some members have started, and capacity is reserved for their placeholders.
    Reserved,
    /// The engine released the reservations of placeholders.
    ReservationReleased,
    /// The gang did not start within its timeout.
    SchedulingTimeout,
    /// The gang was complete and has lost members.
    StaleJob,
    /// The planner reached its search limit without a result.
    SearchExhausted,
    /// The check of plans refuted the plan of the gang: a defect of the planner.
    PlanRefuted,
    /// A plan for the whole gang is durable.
    Planned,
    /// The engine is removing scheduling gates.
    Lifting,
    /// All scheduling gates are removed.
    Lifted,
    /// Every planned member is bound to a node.
    Admitted,
    /// The deadline passed before every member was bound.
    Torn,
    /// The basis of the plan changed before any gate was removed. The engine plans again.
    PlanDropped,
    /// The API server refuses to remove the gate of a member: a policy, a webhook or a limit. No gate was
    /// removed.
    LiftRefused,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
