//! What the engine knows of the pods of each gang and of their group.
//!
//! [`observe`] takes in what watches, lists and answers say. [`groups`] decides which description of a gang applies.
//! [`counts`] counts members. [`elastic`] follows the owners of the pods of an elastic gang. [`placeholders`] reserves
//! capacity for members whose pods do not exist yet. [`stale`] looks after gangs that have lost members.
//!
//! # Which description of a gang applies
//!
//! The group object describes a gang. Of several group objects the first kind counts. Without a group object the members
//! describe it, if they declare its size (`Membership::declared`). Waiting members that declare different sizes wait until
//! they agree (`MembersDisagree`); started members have been counted already. If group object and pods differ, the object
//! counts, and an event and the condition `SizeAgrees` report the difference.
//!
//! # Which members count
//!
//! | for | counts | does not count |
//! |---|---|---|
//! | the quorum | ready members, started members that are not being deleted, succeeded members | failed and evicted pods; succeeded pods of an earlier run |
//! | capacity | a pod on a node until it is gone or has ended; a planned pod until it is bound | |
//!
//! A succeeded member counts as in Volcano: the retry of one index of a Job is a replacement, however many other members
//! have succeeded. A succeeded member belongs to an earlier run once no pod of the gang runs and no waiting pod has the
//! owner of an ended one. Coscheduling and KAI never count succeeded members, so that left-over pods of yesterday do not
//! complete the gang of today.

pub(in crate::engine) mod counts;
pub(in crate::engine) mod elastic;
pub(in crate::engine) mod groups;
pub(in crate::engine) mod observe;
pub(in crate::engine) mod pending;
pub(in crate::engine) mod placeholders;
pub(in crate::engine) mod stale;

pub(in crate::engine) use counts::{MemberCounts, role};
