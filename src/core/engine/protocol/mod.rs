//! How the engine talks to the API server, and how it carries a plan out.
//!
//! | file | holds |
//! |---|---|
//! | [`messages`] | inputs and outputs of the engine |
//! | [`wire`] | the outputs as requests to the API server, and the responses as inputs |
//! | [`gang_record`] | the content of the `Gang` object: status and durable plan |
//! | [`condition`] | one condition in that status |
//! | [`placeholder`] | one placeholder in that plan |
//! | [`gang_object`] | when the `Gang` object is created, written and deleted |
//! | [`plan_progress`] | the state machine of a plan |
//! | [`plan_transition`] | charges, permits and planning that go with each transition |
//! | [`plan_review`] | whether a plan can still be carried out and is in time |
//! | [`plan_execution`] | nominates and lifts members |
//! | [`lift_trial`] | tries the lifts of a gang with a dry run before the first one |
//! | [`leadership`] | takeover, lift permits and answers; keeps a deposed leader from acting |
//!
//! What the engine does to a member follows from the pod as the engine knows it, never from earlier requests:
//!
//! | the member is | the engine |
//! |---|---|
//! | gated and not nominated, and nominations are on | nominates it |
//! | gated, without a lift permit | reads the lease |
//! | gated, and its lift is not tried | tries its lift, or that of a member that is alike, with a dry run |
//! | gated, tried, with a lift permit for its version | lifts it |
//! | changed since the last read | reads it |
//! | the target of a lift without an answer | fences it |
//!
//! So a new leader continues in the same way as the old one, and there is no recovery code besides the
//! takeover.
//!
//! # Fencing
//!
//! No clock keeps a deposed leader from acting. Four rules do. `engine/tests/explore` searches every order of
//! events in small clusters with two leaders, and shows for each rule how a card is overbooked without it.
//!
//! | [rule](crate::engine::SafetyRule) | meaning | code |
//! |---|---|---|
//! | `Verify` | lifts are sent after the plan is durable and the lease was read after that | `verify_lease` |
//! | `LiftPermit` | a lift tests the version of the pod that was known before that read | `grant_permits` |
//! | `Fence` | a new leader writes every still-gated member of every plan it finds | `take_over` |
//! | `NewerEpoch` | a leader that reads a newer epoch steps down | `observe_gang_object` |
//!
//! # Pins
//!
//! A member with a share of a card is always tied to its node with required node affinity, because no
//! scheduler looks at cards. A member with whole GPUs gets preferred affinity if it is nominated, and
//! required affinity otherwise. kube-scheduler tries a nominated node first, but a preferred node only among
//! the nodes that it scores: one in two in a cluster of 200 nodes. With preferred affinity alone, 300 gangs
//! on capacity for 200 ended with 54 torn gangs. With a nomination, preferred affinity is enough, and a node
//! that dies before the bind does not block the member.

pub(in crate::engine) mod condition;
mod gang_object;
pub(in crate::engine) mod gang_record;
pub(in crate::engine) mod leadership;
mod lift_trial;
pub(in crate::engine) mod messages;
pub(in crate::engine) mod placeholder;
mod plan_execution;
pub(in crate::engine) mod plan_progress;
mod plan_review;
mod plan_transition;
pub mod wire;

pub use condition::{Condition, ConditionStatus, ConditionType};
pub use gang_record::{GangRecord, GangStatus, Phase, PlanRecord, PlannedMember, TornRecord};
pub use messages::{
    Action, Change, Effect, Event, GangEvent, ListedObjects, NodePinning, PodRef, Refusal, RequestOutcome,
    RequestTarget,
};
pub use placeholder::Placeholder;
