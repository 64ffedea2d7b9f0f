//! Tests of the watch driver against an API server with scripted responses: pages, gaps, unreadable objects,
//! errors.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_core::engine::Change;
use portcullis_edge::{WatchEvent, WatchedKey, WatchedKind, WatchedObject};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::client::Client;
use super::watch::WatchDriver;
use crate::telemetry::ClusterMetrics;

/// The requests so far and the remaining responses.
#[derive(Default)]
struct Script {
    requests: Vec<String>,
    responses: VecDeque<(u16, String)>,
}

/// Starts a server that sends these responses in turn, each on its own connection. It never answers further
/// requests.
async fn server(responses: &[(u16, &str)]) -> (Client, Arc<Mutex<Script>>) {
    let responses = responses.iter().map(|(code, body)| (*code, (*body).to_owned())).collect();
    let script = Arc::new(Mutex::new(Script { requests: Vec::new(), responses }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("the listener is bound");
    let shared = Arc::clone(&script);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(answer(connection, Arc::clone(&shared)));
        }
    });
    let uri = format!("http://{address}").parse().expect("a URI");
    (Client::new(kube::Config::new(uri)).expect("plain HTTP needs no credentials"), script)
}

async fn answer(mut connection: TcpStream, script: Arc<Mutex<Script>>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match connection.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let next = {
        let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
        script.requests.push(path);
        script.responses.pop_front()
    };
    let Some((code, body)) = next else {
        return std::future::pending().await;
    };
    let head = format!("HTTP/1.1 {code} x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = connection.write_all(format!("{head}{body}").as_bytes()).await;
}

fn pod(name: &str, version: u32) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"ns","name":"{name}","uid":"{name}","resourceVersion":"{version}"}},"spec":{{"containers":[]}}}}"#
    )
}

fn bad(name: &str, version: u32) -> String {
    pod(name, version).replace("\"containers\":[]", "\"containers\":7")
}

fn list(version: u32, more: &str, items: &[String]) -> String {
    let items = items.join(",");
    format!(
        r#"{{"kind":"PodList","metadata":{{"resourceVersion":"{version}","continue":"{more}"}},"items":[{items}]}}"#
    )
}

fn line(what: &str, object: &str) -> String {
    format!("{{\"type\":\"{what}\",\"object\":{object}}}\n")
}

fn status(code: u16) -> String {
    format!(r#"{{"kind":"Status","message":"no","code":{code}}}"#)
}

/// Follows pods until `count` events. Returns the events as `+name@version`, `-name` and `.` for the end of a
/// list, and the requests.
async fn follow_pods(responses: &[(u16, &str)], count: usize) -> (Vec<String>, Vec<String>) {
    let (client, script) = server(responses).await;
    let (out, mut seen) = mpsc::channel(16);
    let watches = WatchDriver::new(client, ClusterMetrics::default());
    let following = tokio::spawn(async move { watches.follow_kind(WatchedKind::Pods, out).await });
    let mut events = Vec::new();
    while events.len() < count {
        events.push(match seen.recv().await.expect("the driver runs until the receiver is dropped") {
            WatchEvent::Changed(Change::Set(WatchedObject::Pod(pod))) => {
                format!("+{}@{}", pod.key.name, pod.resource_version)
            }
            WatchEvent::Changed(Change::Gone(WatchedKey::Pod(uid))) => format!("-{uid}"),
            WatchEvent::ListComplete => ".".to_owned(),
            other @ WatchEvent::Changed(_) => format!("{other:?}"),
        });
    }
    // Waits for the request after the last response, so that the result includes it.
    while script.lock().unwrap_or_else(PoisonError::into_inner).requests.len() <= responses.len() {
        tokio::task::yield_now().await;
    }
    drop(seen);
    following.await.expect("the driver does not panic");
    let requests = script.lock().unwrap_or_else(PoisonError::into_inner).requests.clone();
    let requests = requests.iter().map(|path| short(path)).collect();
    (events, requests)
}

/// Returns a request in short: `list`, `list continue=X`, `watch from V`.
fn short(path: &str) -> String {
    let value = |key: &str| {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')).unwrap_or("").to_owned()
    };
    match (value("watch").as_str(), value("continue").as_str()) {
        ("1", _) => format!("watch from {}", value("resourceVersion")),
        (_, "") => "list".to_owned(),
        (_, token) => format!("list continue={token}"),
    }
}

#[tokio::test]
async fn the_watch_starts_at_the_version_of_a_paged_list() {
    let pages = [list(7, "a/b", &[pod("a", 5)]), list(7, "", &[pod("b", 6)])];
    let changes = [
        line("ADDED", &pod("c", 8)),
        line("MODIFIED", &pod("a", 9)),
        line("DELETED", &pod("b", 10)),
        line("BOOKMARK", r#"{"metadata":{"resourceVersion":"40"}}"#),
    ]
    .concat();
    let (events, requests) = follow_pods(&[(200, &pages[0]), (200, &pages[1]), (200, &changes)], 6).await;
    assert_eq!(events, ["+a@5", "+b@6", ".", "+c@8", "+a@9", "-b"]);
    assert_eq!(requests, ["list", "list continue=a%2Fb", "watch from 7", "watch from 40"]);
}

#[tokio::test]
async fn changes_that_the_watch_missed_are_reported_after_the_next_list() {
    let first = list(7, "", &[pod("a", 5), pod("b", 6)]);
    let expired = line("ERROR", &status(410));
    let second = list(20, "", &[pod("b", 12), pod("c", 13)]);
    let (events, requests) = follow_pods(&[(200, &first), (200, &expired), (200, &second)], 7).await;
    assert_eq!(events, ["+a@5", "+b@6", ".", "+b@12", "+c@13", "-a", "."]);
    assert_eq!(requests, ["list", "watch from 7", "list", "watch from 20"]);
}

#[tokio::test]
async fn a_list_restarts_after_its_continue_token_expired() {
    let first = list(7, "next", &[pod("a", 5)]);
    let gone = status(410);
    let again = list(9, "", &[pod("a", 5)]);
    let (events, requests) = follow_pods(&[(200, &first), (410, &gone), (200, &again)], 3).await;
    assert_eq!(events, ["+a@5", "+a@5", "."]);
    assert_eq!(requests, ["list", "list continue=next", "list", "watch from 9"]);
}

#[tokio::test]
async fn an_unreadable_object_keeps_its_last_readable_version() {
    let first = list(7, "", &[pod("a", 5), pod("b", 6)]);
    let watch = [line("MODIFIED", &bad("a", 8)), line("ERROR", &status(410))].concat();
    let second = list(9, "", &[bad("a", 8), pod("c", 9)]);
    let end = line("DELETED", &bad("a", 10));
    let (events, requests) =
        follow_pods(&[(200, &first), (200, &watch), (200, &second), (200, &end)], 7).await;
    assert_eq!(events, ["+a@5", "+b@6", ".", "+c@9", "-b", ".", "-a"], "pod a exists until it is deleted");
    assert_eq!(requests.last().map(String::as_str), Some("watch from 10"));
}

#[tokio::test]
async fn a_failed_request_is_repeated() {
    let first = list(7, "", &[pod("a", 5)]);
    let failure = status(500);
    let change = line("MODIFIED", &pod("a", 8));
    let (events, requests) =
        follow_pods(&[(503, &failure), (200, &first), (500, &failure), (200, &change)], 3).await;
    assert_eq!(events, ["+a@5", ".", "+a@8"]);
    assert_eq!(requests, ["list", "list", "watch from 7", "watch from 7", "watch from 8"]);
}
