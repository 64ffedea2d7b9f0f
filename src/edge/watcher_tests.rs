//! The watcher: delays, forbidden and absent kinds, unreadable objects. `src/cluster/watch_tests.rs` tests it
//! over HTTP.

use std::time::Duration;

use portcullis_core::engine::Change;
use portcullis_core::model::random::Random;

use crate::{
    Monotonic, ReadFailure, WatchEnd, WatchEvent, WatchedKey, WatchedKind, Watcher, WatcherReport,
    WatcherStep,
};

fn pod(name: &str, containers: &str) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"x","name":"{name}","uid":"{name}","resourceVersion":"5"}},"spec":{{"containers":{containers}}}}}"#
    )
}

fn list(items: &[String]) -> String {
    format!(r#"{{"metadata":{{"resourceVersion":"4"}},"items":[{}]}}"#, items.join(","))
}

fn seconds(seconds: u64) -> Monotonic {
    Monotonic(Duration::from_secs(seconds))
}

/// A watcher of pods after a list of `a`.
fn listed() -> Watcher {
    let mut watcher = Watcher::new(WatchedKind::Pods, 500, Random::new(1));
    assert!(matches!(watcher.step(seconds(0)), WatcherStep::List(_)));
    watcher.page(Ok(list(&[pod("a", "[]")]).as_bytes()), seconds(0));
    assert_eq!(watcher.take_events().len(), 2);
    watcher
}

/// The same with an open watch.
fn watching() -> Watcher {
    let mut watcher = listed();
    assert!(matches!(watcher.step(seconds(0)), WatcherStep::OpenWatch(_)));
    watcher.opened(Ok(()), seconds(0));
    assert_eq!(watcher.step(seconds(0)), WatcherStep::ReadLine);
    watcher
}

fn delay(watcher: &mut Watcher, now: Monotonic) -> Duration {
    match watcher.step(now) {
        WatcherStep::Wait(until) => until.since(now),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_watch_that_delivered_resumes_at_once_and_one_that_did_not_backs_off() {
    let mut watcher = watching();
    watcher.line(br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#, seconds(1));
    watcher.ended(WatchEnd::Closed, seconds(1));
    assert_eq!(delay(&mut watcher, seconds(1)), Duration::from_millis(10));
    let mut last = Duration::ZERO;
    for round in 2..6 {
        let step = watcher.step(seconds(round * 10));
        assert!(matches!(&step, WatcherStep::OpenWatch(watch) if watch.resource_version == "9"), "{step:?}");
        watcher.opened(Ok(()), seconds(round * 10));
        watcher.ended(WatchEnd::Broken("test".to_owned()), seconds(round * 10));
        let next = delay(&mut watcher, seconds(round * 10));
        assert!(next >= last && next >= Duration::from_millis(100), "{next:?} after {last:?}");
        last = next;
    }
    assert!(last >= Duration::from_millis(800), "{last:?}");
}

#[test]
fn an_absent_kind_loses_its_objects_and_is_listed_again_after_seconds() {
    let mut watcher = listed();
    watcher.step(seconds(1));
    watcher.opened(Err(ReadFailure::Absent("no".to_owned())), seconds(1));
    let gone = WatchEvent::Changed(Change::Gone(WatchedKey::Pod("a".into())));
    assert_eq!(watcher.take_events(), [gone, WatchEvent::ListComplete]);
    let wait = delay(&mut watcher, seconds(1));
    assert!((4..=6).contains(&wait.as_secs()), "{wait:?}");
    assert!(matches!(watcher.step(seconds(8)), WatcherStep::List(_)));
}

#[test]
fn a_forbidden_kind_keeps_its_objects_and_its_version() {
    let mut watcher = listed();
    watcher.step(seconds(1));
    watcher.opened(Err(ReadFailure::Forbidden("no".to_owned())), seconds(1));
    assert_eq!(watcher.take_events(), []);
    let wait = delay(&mut watcher, seconds(1));
    assert!((10..=20).contains(&wait.as_secs()), "{wait:?}");
    let step = watcher.step(seconds(30));
    assert!(matches!(&step, WatcherStep::OpenWatch(watch) if watch.resource_version == "4"), "{step:?}");
}

#[test]
fn an_unreadable_object_is_reported_once_until_it_was_readable_again() {
    let mut watcher = watching();
    watcher.take_reports();
    let mut first = |containers: &str| {
        let object = pod("a", containers);
        watcher.line(format!(r#"{{"type":"MODIFIED","object":{object}}}"#).as_bytes(), seconds(1));
        watcher.take_reports().into_iter().find_map(|report| match report {
            WatcherReport::Unreadable { first, object, .. } => {
                assert_eq!(object.map(|object| object.name.to_string()), Some("a".to_owned()));
                Some(first)
            }
            _ => None,
        })
    };
    assert_eq!(first("7"), Some(true));
    assert_eq!(first("8"), Some(false));
    assert_eq!(first("[]"), None);
    assert_eq!(first("7"), Some(true));
}
