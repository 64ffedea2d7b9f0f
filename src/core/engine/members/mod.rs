//! What the engine knows of the pods of each gang and of their group.
//!
//! | file | holds |
//! |---|---|
//! | [`observe`] | takes in objects from watches, lists and answers |
//! | [`declarations`] | what a member declares about its gang |
//! | [`groups`] | which description of a gang applies |
//! | [`counts`] | the members by state |
//! | [`charges`] | what members and placeholders are charged to the snapshot |
//! | [`missing`] | the members whose pods do not exist yet |
//! | [`placeholders`] | reserves capacity for them |
//! | [`node_fitness`] | whether a node can still be used as a plan says |
//! | [`elastic`] | reads the owners of the pods of an elastic gang |
//! | [`owner_tally`] | the members of an elastic gang by owner |
//! | [`elastic_size`] | the size of an elastic gang, and its members that start alone |
//! | [`refusals`] | remembers where a scheduler did not bind a member |
//! | [`torn`] | retries of gangs that are not bound in time |
//! | [`stale`] | gangs that have lost members |
//! | [`pending`] | members and pods that ask for capacity, for reports |
//!
//! # Which description of a gang applies
//!
//! The group object describes a gang. Of several group objects the first kind counts. Without a group object
//! the members describe it, if they declare its size (`Membership::declared`). Waiting members that declare
//! different sizes wait until they agree (`MembersDisagree`); started members have been counted already. If
//! group object and pods differ, the object counts, and an event and the condition `SizeAgrees` report the
//! difference.
//!
//! # Which members count
//!
//! - For the quorum: ready members, started members that are not being deleted, and succeeded members. Failed
//!   and evicted pods do not count, and neither do succeeded pods of an earlier run.
//! - For capacity: a pod on a node until it is gone or has ended, and a planned pod until it is bound.
//!
//! A succeeded member counts as in Volcano: the retry of one index of a Job is a replacement, however many
//! other members have succeeded. A succeeded member belongs to an earlier run once no pod of the gang runs
//! and no waiting pod has the owner of an ended one. Coscheduling and KAI never count succeeded members, so
//! that left-over pods of yesterday do not complete the gang of today.

pub(in crate::engine) mod charges;
pub(in crate::engine) mod counts;
mod declarations;
mod elastic;
mod elastic_size;
mod groups;
pub(in crate::engine) mod missing;
pub(in crate::engine) mod node_fitness;
mod observe;
pub(in crate::engine) mod owner_tally;
pub(in crate::engine) mod pending;
pub(in crate::engine) mod placeholders;
mod refusals;
mod stale;
mod torn;

pub(in crate::engine) use counts::{MemberCounts, RoleCounts, role};
pub(in crate::engine) use declarations::MemberDeclaration;
