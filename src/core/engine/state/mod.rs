//! What the engine remembers of each gang, and what the logic of one gang may read besides it.
//!
//! A [`Gang`] owns its members and everything that the engine knows of it. Its logic is methods of `Gang` in
//! the folders [`super::members`], [`super::protocol`], [`super::queue`] and [`super::status`]: they change
//! this gang, read the rest of the engine through an [`EngineView`], and push requests and events to
//! [`Effects`]. They never see another gang. `Engine` does what concerns several gangs: charges, the queue,
//! timers, leadership.
//!
//! | file | holds |
//! |---|---|
//! | `gang` | a gang with everything that the engine remembers of it |
//! | `lift` | how far the lifts of a plan are tried |
//! | `member` | a member, and the requests about it |
//! | `owners` | the owners of an elastic gang's pods |
//! | `group_objects` | what group objects say about gangs |
//! | `group_status` | the writes of a group object's status |
//! | `timeout` | the attempts of a gang to start |
//! | `retry` | delays after failed requests |
//! | `view` | what the logic of one gang may read besides the gang |
//! | `effects` | where the logic puts its output |

mod effects;
mod gang;
mod group_objects;
mod group_status;
mod lift;
mod member;
mod owners;
mod retry;
mod timeout;
mod view;

pub(super) use effects::{Effects, StepContext};
pub(super) use gang::{
    Gang, GangObject, GangObjectRequest, ObjectSync, PendingStatus, StaleState, StatusDigest,
};
pub(super) use group_objects::GroupObjects;
pub(super) use group_status::GroupStatusSync;
pub(super) use lift::{LiftTrial, Liftable, RefusedLift};
pub(super) use member::{MemberState, PodRequest};
pub(super) use owners::{CountedOwner, ElasticState, OwnerLookup, OwnerReadRound, deployment_of};
pub(super) use retry::{RetrySlots, RetryTimer};
pub(super) use timeout::{TimeoutState, format_seconds};
pub(super) use view::EngineView;
