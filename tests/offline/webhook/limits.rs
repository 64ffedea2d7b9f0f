//! Limits for slow, idle and surplus clients, while other clients are served.
//!
//! A limit is long enough that a busy machine does not reach it by accident, so these tests get slower there
//! and do not fail.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::{ANSWER, config, start, until_closed, wait_until};

/// A limit that a test waits out, but that a healthy client does not reach even on a busy machine.
const SHORT_LIMIT: Duration = Duration::from_millis(1500);

const HEAD: &str = "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_head_is_cut_while_others_are_served() {
    let mut config = config();
    config.connections.head = SHORT_LIMIT;
    let server = start(config).await;
    let mut kept = server.http1().await;
    kept.post("/mutate", "{}").await.is_answer();
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = server.silent().await;
        // On a busy machine the server may have closed the connection already.
        let _ = stream.write_all(&HEAD.as_bytes()[..30]).await;
        slow.push(stream);
    }
    // A client that sends nothing after the handshake.
    slow.push(server.silent().await);
    kept.post("/mutate", "{}").await.is_answer();
    for stream in &mut slow {
        assert_eq!(until_closed(stream).await, "");
    }
    // The kept connection was idle for longer than the limit for a head, and is still open.
    kept.post("/mutate", "{}").await.is_answer();
    server.metric_becomes("portcullis_connections", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_head_on_a_reused_connection_is_cut() {
    let mut config = config();
    config.connections.head = SHORT_LIMIT;
    let server = start(config).await;
    let mut stream = server.silent().await;
    stream.write_all(format!("{HEAD}content-length: 2\r\n\r\n{{}}").as_bytes()).await.unwrap();
    let mut first = String::new();
    while !first.ends_with(ANSWER) {
        first.push(char::from(stream.read_u8().await.unwrap()));
    }
    stream.write_all(&HEAD.as_bytes()[..10]).await.unwrap();
    assert_eq!(until_closed(&mut stream).await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_body_is_cut_while_others_are_served() {
    let mut config = config();
    config.body_timeout = SHORT_LIMIT;
    let server = start(config).await;
    let mut slow = server.silent().await;
    slow.write_all(format!("{HEAD}content-length: 5000\r\n\r\n12345").as_bytes()).await.unwrap();
    server.post("/mutate", "{}").await.is_answer();
    let answer = until_closed(&mut slow).await;
    assert!(
        answer.starts_with("HTTP/1.1 408") && answer.contains("within 1500 ms; 5 bytes were received"),
        "{answer}"
    );
    assert_eq!(server.metric("portcullis_requests_refused_total{reason=\"body_too_slow\"}").await, 1);
    assert_eq!(server.metric("portcullis_reviews_in_flight").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_aborted_body_is_not_reviewed() {
    let server = start(config()).await;
    let mut stream = server.silent().await;
    stream.write_all(format!("{HEAD}content-length: 5000\r\n\r\n12345").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    until_closed(&mut stream).await;
    server.metric_becomes("portcullis_reviews_in_flight", 0).await;
    server.metric_becomes("portcullis_connections", 0).await;
    server.post("/mutate", "{}").await.is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_idle_connection_is_closed() {
    let mut config = config();
    config.connections.idle = SHORT_LIMIT;
    let server = start(config).await;
    let (mut one, mut two) = (server.http1().await, server.http2().await);
    one.post("/mutate", "{}").await.is_answer();
    two.post("/mutate", "{}").await.is_answer();
    server.metric_becomes("portcullis_connections", 0).await;
    assert!(one.try_post("/mutate", "{}").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_old_connection_is_asked_to_close_after_an_answer() {
    let mut config = config();
    config.connections.age = Duration::ZERO;
    let server = start(config).await;
    let reply = server.post("/mutate", "{}").await;
    reply.is_answer();
    assert_eq!(reply.header("connection"), Some("close"));
    server.metric_becomes("portcullis_connections", 0).await;
    // Over HTTP/2 a GOAWAY frame replaces the header, and the request of the connection is answered.
    let mut session = server.http2().await;
    let reply = session.post("/mutate", "{}").await;
    reply.is_answer();
    assert_eq!(reply.header("connection"), None);
    server.metric_becomes("portcullis_connections", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_full_webhook_refuses_at_once_and_serves_again_later() {
    let mut config = config();
    (config.max_concurrent, config.max_waiting) = (1, 0);
    let server = start(config).await;
    let mut holder = server.http1().await;
    let held = tokio::spawn(async move { holder.post("/mutate", "hold").await });
    server.gate.wait_for(1);

    let reply = server.post("/mutate", "{}").await;
    reply.is_refusal(429, &["waiting already", "add replicas"]);
    assert_eq!((reply.header("retry-after"), reply.header("connection")), (Some("1"), Some("close")));
    assert_eq!(server.metric("portcullis_requests_refused_total{reason=\"busy\"}").await, 1);
    assert_eq!(server.metric("portcullis_reviews_in_flight").await, 1);

    server.gate.open();
    held.await.unwrap().is_answer();
    server.post("/mutate", "{}").await.is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_waiting_request_is_served_or_refused_or_times_out() {
    let mut config = config();
    (config.max_concurrent, config.max_waiting) = (1, 10);
    config.max_wait = 2 * SHORT_LIMIT;
    let server = start(config).await;
    let mut holder = server.http1().await;
    let held = tokio::spawn(async move { holder.post("/mutate", "hold").await });
    server.gate.wait_for(1);

    let reply = server.post("/mutate?timeout=30s", "{}").await;
    reply.is_refusal(429, &["No review ended within 3000 ms"]);
    assert_eq!(reply.header("retry-after"), Some("1"));
    let reply = server.post("/mutate?timeout=1500ms", "{}").await;
    reply.is_refusal(504, &["deadline", "waited for a review slot", "timeoutSeconds"]);
    assert_eq!(server.metric("portcullis_requests_refused_total{reason=\"deadline\"}").await, 1);

    let mut second = server.http1().await;
    let waiting = tokio::spawn(async move { second.post("/mutate", "{}").await });
    server.metric_becomes("portcullis_reviews_in_flight", 2).await;
    server.gate.open();
    held.await.unwrap().is_answer();
    waiting.await.unwrap().is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_policies_do_not_delay_other_reviews() {
    let mut config = config();
    (config.max_concurrent, config.max_waiting) = (1, 0);
    let server = start(config).await;
    let mut holder = server.http1().await;
    let held = tokio::spawn(async move { holder.post("/policies/validate", "hold").await });
    server.gate.wait_for(1);

    // The one slot for quick reviews is free, for gangs and for policies.
    server.post("/mutate", "{}").await.is_answer();
    server.post("/policies/validate", "{}").await.is_answer();
    assert_eq!(server.metric("portcullis_policy_long_reviews_total").await, 1);
    // The number of slow reviews is bounded, and so is the time that a request waits for one.
    server.post("/policies/mutate", "panic").await.is_refusal(429, &["waiting already"]);
    assert_eq!(server.metric("portcullis_policy_long_reviews_total").await, 1, "the review never began");
    server.gate.open();
    held.await.unwrap().is_answer();
    server.post("/policies/mutate", "panic").await.is_refusal(500, &["a bug"]);
    server.post("/policies/mutate", "{}").await.is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_deadline_covers_slow_policies() {
    let server = start(config()).await;
    let reply = server.post("/policies/validate?timeout=1500ms", "hold").await;
    reply.is_refusal(504, &["while its policies were evaluated", "timeoutSeconds"]);
    server.gate.open();
    server.post("/policies/validate", "{}").await.is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_late_review_keeps_its_body_charged_and_counts_as_refused() {
    let mut config = config();
    config.max_held_bytes = 1024;
    let server = start(config).await;
    let reply = server.post("/policies/validate?timeout=1500ms", "hold").await;
    reply.is_refusal(504, &["while its policies were evaluated"]);
    // The thread of the late review still holds a body of the maximum total size.
    server.post("/mutate", "{}").await.is_refusal(429, &["held in memory"]);
    server.gate.open();
    wait_until("the bytes of the late review are released", async || {
        server.post("/mutate", "{}").await.status == 200
    })
    .await;
    let of_policies =
        "portcullis_reviews_total{hook=\"policies_validate\",operation=\"CREATE\",verdict=\"allowed\"}";
    assert_eq!(server.metric(of_policies).await, 0, "no client received that decision");
    assert_eq!(server.metric("portcullis_requests_refused_total{reason=\"deadline\"}").await, 1);
    server.post("/policies/validate", "{}").await.is_answer();
    assert_eq!(server.metric(of_policies).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_deadline_covers_the_body() {
    let server = start(config()).await;
    let mut slow = server.silent().await;
    let head = HEAD.replace("/mutate", "/mutate?timeout=100ms");
    slow.write_all(format!("{head}content-length: 5000\r\n\r\n12345").as_bytes()).await.unwrap();
    let answer = until_closed(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("body was received"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_total_size_of_all_bodies_is_bounded() {
    let mut config = config();
    config.max_held_bytes = 8 * 1024;
    let server = start(config).await;
    let mut hoarder = server.silent().await;
    let part = " ".repeat(6000);
    hoarder.write_all(format!("{HEAD}content-length: 6001\r\n\r\n{part}").as_bytes()).await.unwrap();
    server.metric_becomes("portcullis_reviews_in_flight", 1).await;
    wait_until("a large body is refused", async || server.post("/mutate", &part).await.status == 429).await;
    server.post("/mutate", &part).await.is_refusal(429, &["held in memory"]);
    server.post("/mutate", "small").await.is_answer();
    hoarder.write_all(b" ").await.unwrap();
    server.metric_becomes("portcullis_reviews_in_flight", 0).await;
    server.post("/mutate", &part).await.is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connections_above_the_limit_wait() {
    let mut config = config();
    config.max_connections = 2;
    let server = start(config).await;
    let (mut one, mut two) = (server.http1().await, server.http1().await);
    one.post("/mutate", "{}").await.is_answer();
    two.post("/mutate", "{}").await.is_answer();
    let third = server.post("/mutate", "{}");
    let mut third = std::pin::pin!(third);
    let early = tokio::time::timeout(Duration::from_millis(200), &mut third).await;
    assert!(early.is_err(), "the third connection waits in the queue of the kernel");
    assert_eq!(server.metric("portcullis_connections").await, 2);
    drop(one);
    third.await.is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_patch_that_fails_verification_is_a_server_error() {
    let server = start(config()).await;
    let mut session = server.http1().await;
    session.post("/mutate", "unpatchable").await.is_refusal(500, &["bug in Portcullis", "asked to"]);
    session.post("/mutate", "bad").await.is_refusal(400, &["asked to"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_panic_fails_one_request_and_keeps_the_connection() {
    let server = start(config()).await;
    let mut session = server.http1().await;
    for round in 1..=3 {
        session.post("/mutate", "panic").await.is_refusal(500, &["bug in Portcullis"]);
        session.post("/mutate", "{}").await.is_answer();
        assert_eq!(server.metric("portcullis_review_panics_total").await, round);
    }
    assert_eq!(server.metric("portcullis_reviews_in_flight").await, 0);
}
