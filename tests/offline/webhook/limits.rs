//! Slow, idle and superfluous clients, while the others are served.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::{ANSWER, config, start, until_closed};

const HEAD: &str = "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_head_is_cut_while_others_are_served() {
    let mut config = config();
    config.connections.head = Duration::from_millis(200);
    let server = start(config).await;
    let mut kept = server.http1().await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = server.silent().await;
        stream.write_all(&HEAD.as_bytes()[..30]).await.unwrap();
        slow.push(stream);
    }
    // Says nothing at all after the handshake.
    slow.push(server.silent().await);
    kept.post("/mutate", "{}").await.is_answer();
    for stream in &mut slow {
        assert_eq!(until_closed(stream).await, "");
    }
    // An idle connection is not a slow head: it has outlived twenty of them.
    kept.post("/mutate", "{}").await.is_answer();
    server.metric_becomes("portcullis_connections", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_head_that_trickles_on_a_used_connection_is_cut_as_well() {
    let mut config = config();
    config.connections.head = Duration::from_millis(200);
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
    config.body_timeout = Duration::from_millis(200);
    let server = start(config).await;
    let mut slow = server.silent().await;
    slow.write_all(format!("{HEAD}content-length: 5000\r\n\r\n12345").as_bytes()).await.unwrap();
    server.post("/mutate", "{}").await.is_answer();
    let answer = until_closed(&mut slow).await;
    assert!(
        answer.starts_with("HTTP/1.1 408") && answer.contains("within 200 ms; 5 bytes had come"),
        "{answer}"
    );
    assert_eq!(server.metric("portcullis_requests_refused_total{reason=\"body_too_slow\"}").await, 1);
    assert_eq!(server.metric("portcullis_reviews_in_flight").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_body_that_is_broken_off_is_no_review() {
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
    config.connections.idle = Duration::from_millis(200);
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
    // Over HTTP/2 a frame says it, and the request that came with it is answered.
    let mut session = server.http2().await;
    let reply = session.post("/mutate", "{}").await;
    reply.is_answer();
    assert_eq!(reply.header("connection"), None);
    server.metric_becomes("portcullis_connections", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn when_full_it_says_so_at_once_and_serves_again_afterwards() {
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
async fn who_waits_is_served_in_turn_or_sent_away_or_past_its_deadline() {
    let mut config = config();
    (config.max_concurrent, config.max_waiting) = (1, 10);
    config.max_wait = Duration::from_millis(300);
    let server = start(config).await;
    let mut holder = server.http1().await;
    let held = tokio::spawn(async move { holder.post("/mutate", "hold").await });
    server.gate.wait_for(1);

    let reply = server.post("/mutate?timeout=10s", "{}").await;
    reply.is_refusal(429, &["No review ended within 300 ms"]);
    assert_eq!(reply.header("retry-after"), Some("1"));
    let reply = server.post("/mutate?timeout=100ms", "{}").await;
    reply.is_refusal(504, &["deadline", "waited for a review slot", "timeoutSeconds"]);
    assert_eq!(server.metric("portcullis_requests_refused_total{reason=\"deadline\"}").await, 1);

    let mut patient = server.http1().await;
    let waiting = tokio::spawn(async move { patient.post("/mutate", "{}").await });
    server.metric_becomes("portcullis_reviews_in_flight", 2).await;
    server.gate.open();
    held.await.unwrap().is_answer();
    waiting.await.unwrap().is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn policies_that_take_long_keep_nobody_else_waiting() {
    let mut config = config();
    (config.max_concurrent, config.max_waiting) = (1, 0);
    let server = start(config).await;
    let mut holder = server.http1().await;
    let held = tokio::spawn(async move { holder.post("/policies/validate", "hold").await });
    server.gate.wait_for(1);

    // The one place for quick reviews is free, for gangs and for policies.
    server.post("/mutate", "{}").await.is_answer();
    server.post("/policies/validate", "{}").await.is_answer();
    assert_eq!(server.metric("portcullis_policy_long_reviews_total").await, 1);
    // How many long ones there are is bounded, and so is how long they are waited for.
    server.post("/policies/mutate", "panic").await.is_refusal(429, &["waiting already"]);
    assert_eq!(server.metric("portcullis_policy_long_reviews_total").await, 1, "it never began");
    server.gate.open();
    held.await.unwrap().is_answer();
    server.post("/policies/mutate", "panic").await.is_refusal(500, &["a bug"]);
    server.post("/policies/mutate", "{}").await.is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deadline_covers_policies_that_take_long() {
    let server = start(config()).await;
    let reply = server.post("/policies/validate?timeout=100ms", "hold").await;
    reply.is_refusal(504, &["while its policies were evaluated", "timeoutSeconds"]);
    server.gate.open();
    server.post("/policies/validate", "{}").await.is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_review_that_comes_too_late_holds_its_body_and_counts_as_refused_alone() {
    let mut config = config();
    config.max_held_bytes = 1024;
    let server = start(config).await;
    let reply = server.post("/policies/validate?timeout=100ms", "hold").await;
    reply.is_refusal(504, &["while its policies were evaluated"]);
    // The thread that still reads the body has all of what may be held.
    server.post("/mutate", "{}").await.is_refusal(429, &["held in memory"]);
    server.gate.open();
    let freed = async || {
        for _ in 0..2000 {
            if server.post("/mutate", "{}").await.status == 200 {
                return;
            }
        }
        panic!("never given back");
    };
    freed().await;
    let of_policies =
        "portcullis_reviews_total{hook=\"policies_validate\",operation=\"CREATE\",verdict=\"allowed\"}";
    assert_eq!(server.metric(of_policies).await, 0, "nobody was given that decision");
    assert_eq!(server.metric("portcullis_requests_refused_total{reason=\"deadline\"}").await, 1);
    server.post("/policies/validate", "{}").await.is_answer();
    assert_eq!(server.metric(of_policies).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deadline_covers_the_body_too() {
    let server = start(config()).await;
    let mut slow = server.silent().await;
    let head = HEAD.replace("/mutate", "/mutate?timeout=100ms");
    slow.write_all(format!("{head}content-length: 5000\r\n\r\n12345").as_bytes()).await.unwrap();
    let answer = until_closed(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("body was received"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_bytes_of_all_bodies_together_are_bounded() {
    let mut config = config();
    config.max_held_bytes = 8 * 1024;
    let server = start(config).await;
    let mut hoarder = server.silent().await;
    let part = " ".repeat(6000);
    hoarder.write_all(format!("{HEAD}content-length: 6001\r\n\r\n{part}").as_bytes()).await.unwrap();
    server.metric_becomes("portcullis_reviews_in_flight", 1).await;
    let refused = async || {
        for _ in 0..2000 {
            let reply = server.post("/mutate", &part).await;
            if reply.status == 429 {
                return reply;
            }
        }
        panic!("never refused");
    };
    let reply = refused().await;
    reply.is_refusal(429, &["held in memory"]);
    server.post("/mutate", "small").await.is_answer();
    hoarder.write_all(b" ").await.unwrap();
    server.metric_becomes("portcullis_reviews_in_flight", 0).await;
    server.post("/mutate", &part).await.is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn more_connections_than_allowed_wait_their_turn() {
    let mut config = config();
    config.max_connections = 2;
    let server = start(config).await;
    let (mut one, mut two) = (server.http1().await, server.http1().await);
    one.post("/mutate", "{}").await.is_answer();
    two.post("/mutate", "{}").await.is_answer();
    let third = server.post("/mutate", "{}");
    let mut third = std::pin::pin!(third);
    let early = tokio::time::timeout(Duration::from_millis(200), &mut third).await;
    assert!(early.is_err(), "the third waits in the kernel's queue");
    assert_eq!(server.metric("portcullis_connections").await, 2);
    drop(one);
    third.await.is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_patch_that_fails_its_proof_is_our_fault_and_not_the_callers() {
    let server = start(config()).await;
    let mut session = server.http1().await;
    session.post("/mutate", "unpatchable").await.is_refusal(500, &["bug in Portcullis", "asked to"]);
    session.post("/mutate", "bad").await.is_refusal(400, &["asked to"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_panic_ends_one_request_and_not_its_connection() {
    let server = start(config()).await;
    let mut session = server.http1().await;
    for round in 1..=3 {
        session.post("/mutate", "panic").await.is_refusal(500, &["bug in Portcullis"]);
        session.post("/mutate", "{}").await.is_answer();
        assert_eq!(server.metric("portcullis_review_panics_total").await, round);
    }
    assert_eq!(server.metric("portcullis_reviews_in_flight").await, 0);
}
