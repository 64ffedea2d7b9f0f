//! A follower against an API server of a few prepared answers: pages, gaps, what cannot be read, kinds that
//! come later.

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

/// What was asked, and what is answered next.
#[derive(Default)]
struct Script {
    asked: Vec<String>,
    answers: VecDeque<(u16, String)>,
}

/// A server that gives these answers in turn, each on a connection of its own; after the last one it says
/// nothing more.
async fn server(answers: &[(u16, &str)]) -> (Client, Arc<Mutex<Script>>) {
    let answers = answers.iter().map(|(code, body)| (*code, (*body).to_owned())).collect();
    let script = Arc::new(Mutex::new(Script { asked: Vec::new(), answers }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let shared = Arc::clone(&script);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(answer(connection, Arc::clone(&shared)));
        }
    });
    let uri = format!("http://{address}").parse().expect("a URI");
    (Client::new(kube::Config::new(uri)).expect("plain HTTP needs nothing"), script)
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
        script.asked.push(path);
        script.answers.pop_front()
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

/// What a follower of pods tells, in short: `+name@version`, `-name`, `.` at the end of a list.
async fn told(answers: &[(u16, &str)], count: usize) -> (Vec<String>, Vec<String>) {
    let (client, script) = server(answers).await;
    let (out, mut seen) = mpsc::channel(16);
    let watches = WatchDriver::new(client, ClusterMetrics::default());
    let following = tokio::spawn(async move { watches.follow_kind(WatchedKind::Pods, out).await });
    let mut told = Vec::new();
    while told.len() < count {
        told.push(match seen.recv().await.expect("a follower goes on for as long as somebody listens") {
            WatchEvent::Changed(Change::Set(WatchedObject::Pod(pod))) => {
                format!("+{}@{}", pod.key.name, pod.resource_version)
            }
            WatchEvent::Changed(Change::Gone(WatchedKey::Pod(uid))) => format!("-{uid}"),
            WatchEvent::ListComplete => ".".to_owned(),
            other @ WatchEvent::Changed(_) => format!("{other:?}"),
        });
    }
    // Until the follower has asked again, so that what it asks for is known too.
    while script.lock().unwrap_or_else(PoisonError::into_inner).asked.len() <= answers.len() {
        tokio::task::yield_now().await;
    }
    drop(seen);
    following.await.expect("a follower does not panic");
    let asked = script.lock().unwrap_or_else(PoisonError::into_inner).asked.clone();
    let asked = asked.iter().map(|path| shown(path)).collect();
    (told, asked)
}

/// `list`, `list continue=X`, `watch from V`.
fn shown(path: &str) -> String {
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
async fn a_list_comes_in_pages_and_the_watch_goes_on_from_there() {
    let pages = [list(7, "a/b", &[pod("a", 5)]), list(7, "", &[pod("b", 6)])];
    let changes = [
        line("ADDED", &pod("c", 8)),
        line("MODIFIED", &pod("a", 9)),
        line("DELETED", &pod("b", 10)),
        line("BOOKMARK", r#"{"metadata":{"resourceVersion":"40"}}"#),
    ]
    .concat();
    let (told, asked) = told(&[(200, &pages[0]), (200, &pages[1]), (200, &changes)], 6).await;
    assert_eq!(told, ["+a@5", "+b@6", ".", "+c@8", "+a@9", "-b"]);
    assert_eq!(asked, ["list", "list continue=a%2Fb", "watch from 7", "watch from 40"]);
}

#[tokio::test]
async fn what_was_missed_in_a_gap_is_told_after_it() {
    let first = list(7, "", &[pod("a", 5), pod("b", 6)]);
    let expired = line("ERROR", &status(410));
    let second = list(20, "", &[pod("b", 12), pod("c", 13)]);
    let (told, asked) = told(&[(200, &first), (200, &expired), (200, &second)], 7).await;
    assert_eq!(told, ["+a@5", "+b@6", ".", "+b@12", "+c@13", "-a", "."]);
    assert_eq!(asked, ["list", "watch from 7", "list", "watch from 20"]);
}

#[tokio::test]
async fn a_list_whose_pages_expire_begins_again() {
    let first = list(7, "next", &[pod("a", 5)]);
    let gone = status(410);
    let again = list(9, "", &[pod("a", 5)]);
    let (told, asked) = told(&[(200, &first), (410, &gone), (200, &again)], 3).await;
    assert_eq!(told, ["+a@5", "+a@5", "."]);
    assert_eq!(asked, ["list", "list continue=next", "list", "watch from 9"]);
}

#[tokio::test]
async fn what_cannot_be_read_keeps_its_last_reading() {
    let first = list(7, "", &[pod("a", 5), pod("b", 6)]);
    let watch = [line("MODIFIED", &bad("a", 8)), line("ERROR", &status(410))].concat();
    let second = list(9, "", &[bad("a", 8), pod("c", 9)]);
    let end = line("DELETED", &bad("a", 10));
    let (told, asked) = told(&[(200, &first), (200, &watch), (200, &second), (200, &end)], 7).await;
    assert_eq!(told, ["+a@5", "+b@6", ".", "+c@9", "-b", ".", "-a"], "a is there until it is gone");
    assert_eq!(asked.last().map(String::as_str), Some("watch from 10"));
}

#[tokio::test]
async fn an_api_server_that_fails_is_asked_again_where_it_was() {
    let first = list(7, "", &[pod("a", 5)]);
    let failure = status(500);
    let change = line("MODIFIED", &pod("a", 8));
    let (told, asked) = told(&[(503, &failure), (200, &first), (500, &failure), (200, &change)], 3).await;
    assert_eq!(told, ["+a@5", ".", "+a@8"]);
    assert_eq!(asked, ["list", "list", "watch from 7", "watch from 7", "watch from 8"]);
}
