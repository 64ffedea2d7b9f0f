//! Keeps what reviews may know of the cluster: the names of all PriorityClasses and RuntimeClasses. Every replica does
//! this, because every replica answers reviews.
//!
//! Invariant: a kind is `None` until it was read to its end once, and while it may not be read it stays as it was.

use std::sync::Arc;

use arc_swap::ArcSwap;
use portcullis_core::admission::KnownClasses;
use tokio::sync::mpsc;

use super::client::Client;
use super::kinds::{Kind, note_fact};
use super::watch::{Follower, Seen};
use crate::telemetry::ClusterMetrics;

/// Follows both kinds for as long as it is polled.
pub(super) async fn keep(client: Client, metrics: ClusterMetrics, facts: Arc<ArcSwap<KnownClasses>>) {
    let each = |kind| keep_kind(client.clone(), metrics.clone(), kind, Arc::clone(&facts));
    tokio::join!(each(Kind::PriorityClasses), each(Kind::RuntimeClasses));
}

async fn keep_kind(client: Client, metrics: ClusterMetrics, kind: Kind, facts: Arc<ArcSwap<KnownClasses>>) {
    let (out, mut seen) = mpsc::channel(64);
    let follower = Follower::new(client, metrics, kind);
    let keeping = async {
        let mut known = KnownClasses::default();
        let mut complete = false;
        while let Some(news) = seen.recv().await {
            match news {
                Seen::Change(change) => note_fact(&mut known, &change),
                Seen::Complete => {
                    complete = true;
                    // An empty list is known, too.
                    match kind {
                        Kind::PriorityClasses => drop(known.priority_classes.get_or_insert_default()),
                        _ => drop(known.runtime_classes.get_or_insert_default()),
                    }
                }
            }
            if complete {
                facts.rcu(|facts| {
                    let mut facts = KnownClasses::clone(facts);
                    match kind {
                        Kind::PriorityClasses => facts.priority_classes.clone_from(&known.priority_classes),
                        _ => facts.runtime_classes.clone_from(&known.runtime_classes),
                    }
                    facts
                });
            }
        }
    };
    tokio::join!(follower.follow(out), keeping);
}
