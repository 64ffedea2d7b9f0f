//! The queue of complete gangs: planning order, and which gangs the planner need not be asked about.
//!
//! Most gangs in a long queue ask for the same, and most events free no capacity. So gangs with equal
//! requests share an entry (`RequestSignature`), and one that does not fit stands for all behind it. A gang
//! that did not fit is not planned again before capacity is freed (`Snapshot::take_grown`), a node changes,
//! or the gang changes (`mark_for_planning`): assigning capacity to others cannot make it fit. So the cost of
//! an event does not depend on the number of waiting gangs. The plans equal those of planning every gang in
//! every round. A search that ran out of steps proves nothing: such a gang is planned in every round.
//!
//! Rules about other pods are an exception, because an added pod can make a gang with affinity fit. A gang
//! with such rules is planned again when a pod is added or changes (`Snapshot::take_pods_changed`), and after
//! every gang before it that was planned in the same round (`Queue::with_pod_rules`). A gang without rules
//! may be kept away by the anti-affinity of other pods. It does not stand for gangs with equal requests,
//! because their labels may differ.
//!
//! | file | holds |
//! |---|---|
//! | `ranks` | the queue as a data structure: ranks and request signatures |
//! | `request` | what a gang asks of the planner, and its rank |
//! | `planning` | a planning round: plans the gangs that may fit |
//! | [`head_of_line`] | the reservation for the oldest gang that does not fit |
//! | [`timeout`] | the start timeout of a gang, and what happens when it expires |
//! | `observer` | a read-only view of each planning round, for tests |
//!
//! Tests and the simulation compare each round with one that plans every gang, see [`PlanningObserver`].
//!
//! `minResources` of Coscheduling and Volcano (`planner/min_resources.rs`) is a sum over feasible nodes. It
//! is checked when all members of a gang without started members have nodes, and reserves nothing: two groups
//! may count the same free GPUs, and the first in the queue gets them.

pub(in crate::engine) mod head_of_line;
mod observer;
mod planning;
mod ranks;
mod request;
pub(in crate::engine) mod timeout;

pub use observer::{GangRank, PlanningObserver, PlanningRound, QueuedGang};
pub(in crate::engine) use ranks::{Queue, QueueRank, RequestSignature};
