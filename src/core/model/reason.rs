//! Why something is as it is: one code for each, stable for ever, used alike in conditions, events, logs and metrics.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A stable reason code, spelled as it appears in conditions and events.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason { $($(#[$doc])* $name),* }

        impl Reason {
            /// Every reason there is, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name as users see it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }
    };
}

impl Reason {
    /// Whether a gang of which all members are here cannot start for this reason.
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
                | Self::NodeUnavailable
                | Self::NoSharedNode
                | Self::MissingVramLabel
                | Self::NoNodes
                | Self::Fragmented
                | Self::RoomHeld
                | Self::SearchExhausted
                | Self::PlanDropped
                | Self::Torn
        )
    }
}

reasons! {
    /// Members are missing: fewer than `minMember` live ones exist.
    Gathering,
    /// Pods name a group object that does not exist.
    GroupNotFound,
    /// Members that wait say different sizes of their gang.
    MembersDisagree,
    /// Members say another size than their group object, which counts.
    SizesDiffer,
    /// Whether the owners of its pods say how many members it takes.
    Elastic,
    /// The group names a PriorityClass that does not exist.
    PriorityClassNotFound,
    /// A member is held by somebody else's scheduling gate.
    ForeignGate,
    /// The group object or a member could not be read.
    Unreadable,
    /// The gang is complete; the planner has not looked at it yet.
    Queued,
    /// Short of GPU memory on one card, or on cards as a whole.
    InsufficientVram,
    /// Short of whole GPUs or of another extended resource.
    InsufficientExtended,
    /// Short of cpu.
    InsufficientCpu,
    /// Short of memory.
    InsufficientMemory,
    /// Short of ephemeral storage.
    InsufficientEphemeralStorage,
    /// Nodes are full by number of pods.
    TooManyPods,
    /// A host port is taken.
    HostPortConflict,
    /// Taints that the pods do not tolerate.
    UntoleratedTaint,
    /// Node selector or required node affinity matches too few nodes.
    NodeAffinityMismatch,
    /// Nodes are cordoned or not ready.
    NodeUnavailable,
    /// GPU memory is asked for and no node is a shared node.
    NoSharedNode,
    /// Nodes have GPUs but no label that says how much memory they have.
    MissingVramLabel,
    /// The cluster has no nodes.
    NoNodes,
    /// Each member fits somewhere, but not all at once.
    Fragmented,
    /// There is room, and it is held for a larger gang that has waited for long.
    RoomHeld,
    /// Some have started, and room is held for those that are made after them.
    Reserved,
    /// Room that was held for members to come is let go.
    RoomReleased,
    /// It has not started within its timeout.
    SchedulingTimeout,
    /// It was whole, and has lost members since.
    StaleJob,
    /// The planner stopped searching before it could be sure.
    SearchExhausted,
    /// A plan for the whole gang is durable.
    Planned,
    /// Gates are being removed.
    Lifting,
    /// All gates are gone.
    Lifted,
    /// Every planned member is bound to a node.
    Admitted,
    /// The deadline passed and not every member is bound.
    Torn,
    /// What the plan stood on changed before anything was lifted; it is made anew.
    PlanDropped,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
