//! The queue of complete gangs: planning order, and which gangs the planner need not be asked about.
//!
//! Most gangs in a long queue ask for the same, and most events free no capacity. So gangs with equal
//! requests share an entry (`RequestSignature`), and one that does not fit stands for all behind it. A gang
//! that did not fit is not planned again before capacity is freed (`Snapshot::take_grown`), a node changes,
//! or the gang changes (`mark_for_planning`): assigning capacity to others cannot make it fit. So the cost of
//! an event does not depend on the number of waiting gangs. The plans equal those of planning every gang in
//! every round. A search that ran out of steps proves nothing: such a gang is planned in every round.
//!
//! Tests and the simulation compare each round with one that plans every gang, see [`PlanningObserver`].
//!
//! [`head_of_line`] reserves capacity for the oldest gang that does not fit. [`timeout`] ends attempts to
//! start. `minResources` of Coscheduling and Volcano (`planner/min_resources.rs`) is a sum over feasible
//! nodes. It is checked when all members of a gang without started members have nodes, and reserves nothing:
//! two groups may count the same free GPUs, and the first in the queue gets them.

pub(in crate::engine) mod head_of_line;
mod observer;
mod planning;
mod ranks;
mod request;
pub(in crate::engine) mod timeout;

pub use observer::{PlanningObserver, PlanningRound, QueuedGang};
pub(in crate::engine) use ranks::{Queue, QueueRank, RequestSignature};
