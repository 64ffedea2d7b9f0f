//! Reading everything at the start of leading: gangs first, then pods, then the rest, each one consistently.
//!
//! Invariant: what is returned was read after this was called, and every follower goes on exactly where its list was
//! read. Nothing is watched before the engine has been given the lists.

use std::time::Duration;

use portcullis_core::engine::ListedObjects;

use super::announce::Announcer;
use super::client::Client;
use super::gangs::Directory;
use super::kinds::{Kind, Object};
use super::random::Backoff;
use super::trouble::{Complaints, Trouble};
use super::watch::Follower;
use crate::telemetry::ClusterMetrics;

/// Reads all that the engine has to know, and goes on trying until it has it. A group kind that is not installed, or that
/// we may not read, is an empty list; without our own objects, pods and nodes nothing can be planned.
pub(super) async fn read_everything(
    client: &Client,
    metrics: &ClusterMetrics,
    directory: &Directory,
    announcer: &Announcer,
    complaints: &Complaints,
) -> (ListedObjects, Vec<Follower>) {
    let mut world = ListedObjects {
        nodes: Some(Vec::new()),
        pods: Some(Vec::new()),
        groups: std::collections::BTreeMap::new(),
        gangs: Some(Vec::new()),
        priority_classes: Some(Vec::new()),
    };
    let mut followers = Vec::new();
    for kind in Kind::of_the_engine() {
        let mut follower =
            Follower::new(client.clone(), metrics.clone(), kind).telling(announcer).after(complaints);
        for object in read(&mut follower, &mut world).await {
            if let Object::Gang(record, uid) = &object {
                directory.note(&record.gang, uid);
            }
            object.add_to(&mut world);
        }
        followers.push(follower);
    }
    (world, followers)
}

async fn read(follower: &mut Follower, world: &mut ListedObjects) -> Vec<Object> {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        let mut objects = Vec::new();
        let trouble = match follower.list(|object| objects.push(object)).await {
            Ok(()) => {
                follower.all_is_well();
                return objects;
            }
            Err(trouble) => trouble,
        };
        let kind = follower.kind();
        let passed = kind.optional() && matches!(trouble, Trouble::Absent(_) | Trouble::Forbidden(_));
        if passed && kind == Kind::PriorityClasses {
            world.priority_classes = None;
        }
        follower.complain(&trouble);
        if passed {
            return Vec::new();
        }
        tokio::time::sleep(backoff.fail()).await;
    }
}
