//! The takeover: order of the kinds, optional kinds, retries.

use std::time::Duration;

use portcullis_core::model::random::Random;

use crate::{ListRequest, Monotonic, ReadFailure, Takeover, TakeoverStep, WatchedKind, WatcherStep};

const EMPTY: &[u8] = br#"{"metadata":{"resourceVersion":"7"},"items":[]}"#;

/// Runs a takeover with these answers. Returns it when done, and every list that it asked for.
fn run(
    mut answer: impl FnMut(WatchedKind, &ListRequest, usize) -> Result<Vec<u8>, ReadFailure>,
) -> (Takeover, Vec<WatchedKind>, Monotonic) {
    let mut takeover = Takeover::new(500, &mut Random::new(1));
    let (mut now, mut asked) = (Monotonic::default(), Vec::new());
    loop {
        match takeover.step(now) {
            TakeoverStep::Wait(until) => now = until,
            TakeoverStep::Done => return (takeover, asked, now),
            TakeoverStep::List(kind, request) => {
                let answer = answer(kind, &request, asked.len());
                asked.push(kind);
                takeover.page(answer.as_deref().map_err(Clone::clone), now);
            }
        }
    }
}

#[test]
fn kinds_are_listed_in_the_order_of_the_engine_and_each_watch_resumes_at_its_list() {
    let (takeover, asked, _) = run(|_, _, _| Ok(EMPTY.to_vec()));
    assert_eq!(asked, WatchedKind::engine_kinds());
    let result = takeover.finish();
    assert_eq!(result.listed.priority_classes, Some(Vec::new()));
    for mut watcher in result.watchers {
        let step = watcher.step(Monotonic::default());
        assert!(
            matches!(&step, WatcherStep::OpenWatch(request) if request.resource_version == "7"),
            "{step:?}"
        );
    }
}

#[test]
fn absent_and_forbidden_optional_kinds_are_skipped_and_listed_again_later() {
    let (takeover, asked, now) = run(|kind, _, _| match kind {
        WatchedKind::Groups(_) => Err(ReadFailure::Absent("no CRD".to_owned())),
        WatchedKind::PriorityClasses => Err(ReadFailure::Forbidden("no".to_owned())),
        _ => Ok(EMPTY.to_vec()),
    });
    assert_eq!((asked, now), (WatchedKind::engine_kinds(), Monotonic::default()));
    let result = takeover.finish();
    assert_eq!(result.listed.priority_classes, None);
    for mut watcher in result.watchers {
        let retried = matches!(watcher.step(Monotonic(Duration::from_secs(30))), WatcherStep::List(_));
        assert_eq!(retried, watcher.kind().optional(), "{:?}", watcher.kind());
    }
}

#[test]
fn a_required_kind_is_listed_until_it_can_be_read_and_pages_of_a_failed_list_are_dropped() {
    let pod = |name: &str| {
        format!(
            r#"{{"metadata":{{"namespace":"x","name":"{name}","uid":"{name}","resourceVersion":"1"}},"spec":{{"containers":[]}}}}"#
        )
    };
    let mut pages = 0;
    let (takeover, _, now) =
        run(|kind, request, _| {
            if kind != WatchedKind::Pods {
                return Ok(EMPTY.to_vec());
            }
            pages += 1;
            match (pages, request.continue_token.as_str()) {
                (1, "") => Err(ReadFailure::Forbidden("not yet".to_owned())),
                (2, "") => Ok(format!(
                    r#"{{"metadata":{{"resourceVersion":"1","continue":"x"}},"items":[{}]}}"#,
                    pod("old")
                )
                .into_bytes()),
                (3, "x") => Err(ReadFailure::Expired("too old".to_owned())),
                _ => Ok(format!(r#"{{"metadata":{{"resourceVersion":"2"}},"items":[{}]}}"#, pod("new"))
                    .into_bytes()),
            }
        });
    assert!(now.0 > Duration::ZERO && now.0 < Duration::from_secs(1), "{now:?}");
    let pods = takeover.finish().listed.pods.expect("pods are listed");
    let names: Vec<&str> = pods.iter().map(|pod| &*pod.key.name).collect();
    assert_eq!(names, ["new"]);
}
