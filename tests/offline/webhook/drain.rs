//! Shutdown: the webhook is not ready first, then refuses new connections, and finishes running reviews.

use std::time::Duration;

use portcullis::webhook::ShutdownReport;
use tokio::net::TcpStream;

use super::harness::{config, start, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stopping_webhook_is_not_ready_but_serves_until_the_shutdown_delay_ends() {
    let mut config = config();
    config.shutdown_delay = Duration::from_secs(3600);
    let mut server = start(config).await;
    let mut open = server.http1().await;
    let reply = open.post("/mutate", "{}").await;
    assert_eq!(reply.header("connection"), None);

    server.stop();
    wait_until("the webhook is not ready", async || server.admin("/readyz").await.status == 503).await;
    let reply = server.admin("/readyz").await;
    assert_eq!(reply.status, 503);
    assert!(reply.text.contains("draining"), "{}", reply.text);
    assert_eq!(server.admin("/livez").await.status, 200, "a restart would not help");

    let reply = open.post("/mutate", "{}").await;
    reply.is_answer();
    assert_eq!(reply.header("connection"), Some("close"));
    let reply = server.post("/mutate", "{}").await;
    reply.is_answer();
    assert_eq!(reply.header("connection"), Some("close"));
    server.http2().await.post("/mutate", "{}").await.is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn running_reviews_finish_and_new_connections_are_refused() {
    let mut server = start(config()).await;
    let idle = server.http1().await;
    let mut sessions = [server.http1().await, server.http2().await].into_iter();
    let (mut one, mut two) = (sessions.next().unwrap(), sessions.next().unwrap());
    let first = tokio::spawn(async move { one.post("/mutate", "hold").await });
    let second = tokio::spawn(async move { two.post("/mutate", "hold").await });
    server.gate.wait_for(2);

    server.stop();
    wait_until("the port is closed", async || TcpStream::connect(server.address).await.is_err()).await;
    assert_eq!(server.admin("/readyz").await.status, 503, "the admin port answers until the end");

    server.gate.open();
    first.await.unwrap().is_answer();
    second.await.unwrap().is_answer();
    assert_eq!(server.ended().await, ShutdownReport { connections_cut: 0 });
    drop(idle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reviews_past_the_drain_timeout_are_cut_and_counted() {
    let mut config = config();
    config.drain_timeout = Duration::from_millis(100);
    config.body_timeout = Duration::from_secs(3600);
    let mut server = start(config).await;
    let mut stuck = server.silent().await;
    let head = "POST /mutate?timeout=30s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n1";
    tokio::io::AsyncWriteExt::write_all(&mut stuck, head.as_bytes()).await.unwrap();
    server.metric_becomes("portcullis_reviews_in_flight", 1).await;
    server.stop();
    assert_eq!(server.ended().await, ShutdownReport { connections_cut: 1 });
}
