//! Handshakes: versions, protocols, certificates and their swap.

use std::time::{Duration, SystemTime};

use portcullis::certs::{AUTHORITY_LIFETIME, Authority, CertificateNames};
use rustls::ProtocolVersion;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::harness::{Session, config, start, start_at};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tls_1_2_and_1_3_and_http_1_and_2_are_served() {
    let server = start(config()).await;
    for (version, negotiated) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        for protocols in [&["http/1.1"][..], &["h2"], &["h2", "http/1.1"], &[]] {
            let stream = server.tls(protocols, &[version]).await.unwrap();
            let session = stream.get_ref().1;
            assert_eq!(session.protocol_version(), Some(negotiated));
            let expected = protocols.first().map(|protocol| protocol.as_bytes());
            assert_eq!(session.alpn_protocol(), expected);
            let mut session = Session::over(stream).await;
            session.post("/mutate", "{}").await.is_answer();
            session.post("/validate", "{}").await.is_answer();
        }
    }
    assert_eq!(server.metric("portcullis_tls_handshake_failures_total").await, 0);
}

/// A TLS 1.1 ClientHello as bytes, because rustls cannot send one.
fn old_hello() -> Vec<u8> {
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    hello.push(0);
    hello.extend([0, 4, 0xc0, 0x09, 0x00, 0x2f]);
    hello.extend([1, 0]);
    // A signature algorithm that the server supports, so that only the version is wrong.
    hello.extend([0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    record
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn old_tls_versions_and_other_protocols_get_an_alert_and_are_counted() {
    let server = start(config()).await;
    for (bytes, alert) in [(old_hello(), Some(70)), (b"POST /mutate HTTP/1.1\r\n\r\n".to_vec(), None)] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(answer.first(), Some(&21), "an alert: {answer:?}");
        if let Some(alert) = alert {
            assert_eq!(answer.last(), Some(&alert), "protocol_version: {answer:?}");
        }
    }
    server.metric_becomes("portcullis_tls_handshake_failures_total", 2).await;
    server.post("/mutate", "{}").await.is_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_trusts_another_authority_does_not_connect() {
    let server = start(config()).await;
    let other = Authority::new(SystemTime::now()).unwrap();
    let error = server.tls_trusting(&other, &[], rustls::ALL_VERSIONS).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    server.metric_becomes("portcullis_tls_handshake_failures_total", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_new_certificate_applies_to_new_connections_only() {
    let server = start(config()).await;
    let shown = async || server.silent().await.get_ref().1.peer_certificates().unwrap()[0].clone();
    let first = shown().await;
    let mut open = server.http1().await;
    open.post("/mutate", "{}").await.is_answer();

    let next = server.authority.issue(&CertificateNames::loopback(), SystemTime::now()).unwrap();
    server.live.replace(next.server_certificate().unwrap());
    open.post("/mutate", "{}").await.is_answer();
    let second = shown().await;
    assert_ne!(first, second);
    assert_eq!(second, next.certificate);
    open.post("/mutate", "{}").await.is_answer();

    let seconds = next.validity.not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(server.metric("portcullis_tls_certificate_not_after_seconds").await, seconds);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stalled_handshake_is_cut_and_delays_no_other_connection() {
    let mut config = config();
    // A healthy handshake does not take this long, even on a busy machine.
    config.connections.handshake = Duration::from_millis(1500);
    let server = start(config).await;
    let mut stalled = TcpStream::connect(server.address).await.unwrap();
    stalled.write_all(&[22, 3, 1]).await.unwrap();
    server.post("/mutate", "{}").await.is_answer();
    let mut rest = Vec::new();
    let _ = stalled.read_to_end(&mut rest).await;
    server.metric_becomes("portcullis_tls_handshake_failures_total", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_expired_certificate_makes_the_webhook_not_ready() {
    let ready = start(config()).await;
    assert_eq!(ready.admin("/readyz").await.status, 200);
    let late = start_at(config(), || SystemTime::now() + AUTHORITY_LIFETIME).await;
    let reply = late.admin("/readyz").await;
    assert_eq!(reply.status, 503);
    assert!(reply.text.contains("[-]certificate failed: expired"), "{}", reply.text);
    assert_eq!(late.admin("/livez").await.status, 200);
}
