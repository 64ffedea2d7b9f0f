//! Dialects: which gang a pod belongs to, and when that gang is complete.
//!
//! Each gang scheduling stack (KAI, Coscheduling, Volcano, ...) names gangs in its own labels, annotations
//! and objects. A dialect reads the words of one stack and translates them into the shared types of this
//! room. The rest of the crate uses the shared types only. A dialect never looks at capacity.
//!
//! | file | holds |
//! |---|---|
//! | [`dialect_trait`] | [`Dialect`](dialect_trait::Dialect): the functions that a stack implements |
//! | [`registry`] | the list of all dialects, and the functions that call the right one |
//! | [`mod@membership`] | [`Membership`]: gang and role of a pod, and what the pod declares |
//! | [`membership_review`] | [`MembershipReview`]: missing keys, warnings, contradictions |
//! | [`group`], [`group_reader`] | [`Group`]: what a group object states about its gangs; its readers |
//! | [`quorum`] | [`Quorum`]: when a gang is complete |
//! | [`gang_policies`] | [`GangPolicies`]: timeout, stale and torn gangs, pins, topology, elastic size |
//! | [`future_members`] | [`FutureMembers`]: members that are created only after others have started |
//! | [`mod@group_status`], [`mod@group_event`] | status and events of a group object, in its stack's terms |
//!
//! # Add a dialect
//!
//! | step | where |
//! |---|---|
//! | 1. Name it | a variant of [`DialectId`](crate::model::DialectId) |
//! | 2. Add its labels, annotations and API groups | [`objects::names`](crate::objects::names) |
//! | 3. Implement [`Dialect`](dialect_trait::Dialect) | the folder `dialect/<stack>`, with its tests |
//! | 4. Register it | one line in `DIALECTS` of `registry.rs` |
//! | 5. Describe its pods and group objects for the tests | one line in `stack_fixtures.rs` of `sim` |
//! | 6. Let the engine read its group objects | RBAC in `manifests/base`; see [`group_resources`] |
//!
//! The conformance tests then run every rule against the new dialect and report what is missing.

mod coscheduling;
mod dialect_trait;
mod duration;
mod future_members;
mod gang_policies;
mod group;
mod group_event;
mod group_reader;
mod group_status;
mod kai;
mod lws;
mod membership;
mod membership_review;
mod native;
mod plain;
mod quorum;
mod registry;
mod volcano;
mod yunikorn;

pub use future_members::{FutureMembers, WorkerTemplate};
pub use gang_policies::{GangPolicies, OnStale, OnTimeout, OnTorn};
pub use group::{Group, GroupKey, GroupKind, GroupObject, GroupResource, StatusWrite};
pub use group_event::{GroupEvent, GroupEventContext};
pub use group_status::{GroupPhase, GroupStatus, StoredStatus};
pub use membership::{Membership, PodDeclaration};
pub use membership_review::{
    MAX_LABEL_VALUE_BYTES, MembershipReview, MetadataMap, MetadataRepair, is_label_value,
};
pub use quorum::Quorum;
pub(crate) use registry::{
    contradicts, group_event, has_group_objects, is_status_final, role_field, size_key, status_of,
};
pub use registry::{
    field, group_kinds, group_resources, group_status, membership, objects_by_kind, review_membership,
    template_group,
};
