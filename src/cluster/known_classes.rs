//! Keeps the names of all PriorityClasses and RuntimeClasses, for reviews. Every replica does this, because
//! every replica answers reviews.
//!
//! Invariant: a kind is `None` until one list of it is complete. While it cannot be read, the last state
//! stays.

use std::sync::Arc;

use arc_swap::ArcSwap;
use portcullis_core::admission::KnownClasses;
use portcullis_core::engine::Change;
use portcullis_edge::{WatchEvent, WatchedKey, WatchedKind, WatchedObject};
use tokio::sync::mpsc;

use super::client::Client;
use super::watch::WatchDriver;
use crate::telemetry::ClusterMetrics;

/// Watches both kinds and keeps `classes` up to date for as long as the future is polled.
pub(super) async fn watch_classes(
    client: Client,
    metrics: ClusterMetrics,
    classes: Arc<ArcSwap<KnownClasses>>,
) {
    let watches = WatchDriver::new(client, metrics);
    let each = |kind| keep_kind(watches.clone(), kind, Arc::clone(&classes));
    tokio::join!(each(WatchedKind::PriorityClasses), each(WatchedKind::RuntimeClasses));
}

async fn keep_kind(watches: WatchDriver, kind: WatchedKind, classes: Arc<ArcSwap<KnownClasses>>) {
    let (sender, mut events) = mpsc::channel(64);
    let keeping = async {
        let mut known = KnownClasses::default();
        let mut complete = false;
        while let Some(event) = events.recv().await {
            match event {
                WatchEvent::Changed(change) => apply(&mut known, &change),
                WatchEvent::ListComplete => {
                    complete = true;
                    // An empty list is known, too.
                    match kind {
                        WatchedKind::PriorityClasses => drop(known.priority_classes.get_or_insert_default()),
                        _ => drop(known.runtime_classes.get_or_insert_default()),
                    }
                }
            }
            if complete {
                classes.rcu(|classes| {
                    let mut classes = KnownClasses::clone(classes);
                    match kind {
                        WatchedKind::PriorityClasses => {
                            classes.priority_classes.clone_from(&known.priority_classes);
                        }
                        _ => classes.runtime_classes.clone_from(&known.runtime_classes),
                    }
                    classes
                });
            }
        }
    };
    tokio::join!(watches.follow_kind(kind, sender), keeping);
}

/// Adds or removes the name of a class.
fn apply(classes: &mut KnownClasses, change: &Change<WatchedObject, WatchedKey>) {
    match change {
        Change::Set(WatchedObject::PriorityClass(class)) => {
            classes.priority_classes.get_or_insert_default().insert(class.name.clone());
        }
        Change::Set(WatchedObject::RuntimeClass(name)) => {
            classes.runtime_classes.get_or_insert_default().insert(name.clone());
        }
        Change::Gone(WatchedKey::PriorityClass(name)) => {
            classes.priority_classes.get_or_insert_default().remove(name);
        }
        Change::Gone(WatchedKey::RuntimeClass(name)) => {
            classes.runtime_classes.get_or_insert_default().remove(name);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::model::str;

    use super::*;

    #[test]
    fn names_of_classes_follow_the_watch() {
        let mut classes = KnownClasses::default();
        apply(&mut classes, &Change::Set(WatchedObject::RuntimeClass(str("nvidia"))));
        assert_eq!(classes.runtime_classes.as_ref().map(std::collections::BTreeSet::len), Some(1));
        apply(&mut classes, &Change::Gone(WatchedKey::RuntimeClass(str("nvidia"))));
        assert_eq!(classes.runtime_classes.as_ref().map(std::collections::BTreeSet::len), Some(0));
        assert_eq!(classes.priority_classes, None);
    }
}
