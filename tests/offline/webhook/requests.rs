//! Single requests: valid ones, and each invalid one with its status and its reason.

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;

use super::harness::{ANSWER, config, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_is_kept_and_used_again() {
    let server = start(config()).await;
    for http2 in [false, true] {
        let mut session = if http2 { server.http2().await } else { server.http1().await };
        for _ in 0..20 {
            session.post("/mutate?timeout=5s", "{}").await.is_answer();
        }
        assert_eq!(server.metric("portcullis_connections").await, 1);
        drop(session);
        server.metric_becomes("portcullis_connections", 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_invalid_request_gets_its_status_and_a_reason() {
    let server = start(config()).await;
    // Method, path, media type, body; then the status and words of the reason.
    type Case =
        (&'static str, &'static str, Option<&'static str>, &'static str, u16, &'static [&'static str]);
    let cases: &[Case] = &[
        ("POST", "/mutate", Some("application/json"), "{}", 200, &[]),
        ("POST", "/validate", Some("application/json; charset=utf-8"), "{}", 200, &[]),
        ("POST", "/mutate", Some("text/plain"), "{}", 415, &["\"text/plain\"", "application/json"]),
        ("POST", "/mutate", None, "{}", 415, &["no content type", "application/json"]),
        ("GET", "/mutate", None, "", 405, &["GET", "POST", "AdmissionReview"]),
        ("DELETE", "/validate", None, "", 405, &["DELETE", "POST"]),
        ("POST", "/mutat", Some("application/json"), "{}", 404, &["/mutat.", "/mutate", "/validate"]),
        ("GET", "/", None, "", 404, &["/mutate", "/validate"]),
        ("GET", "/metrics", None, "", 404, &["/mutate"]),
        (
            "POST",
            "/mutate",
            Some("application/json"),
            "bad",
            400,
            &["not an AdmissionReview", "admission.k8s.io/v1"],
        ),
        ("POST", "/mutate", Some("application/json"), "panic", 500, &["bug in Portcullis"]),
    ];
    for (method, path, media_type, body, status, words) in cases {
        for mut session in [server.http1().await, server.http2().await] {
            let mut request = Request::builder().method(*method).uri(*path);
            if let Some(media_type) = media_type {
                request = request.header("content-type", *media_type);
            }
            let reply = session.send(request.body(Full::from((*body).to_owned())).unwrap()).await.unwrap();
            if *status == 200 {
                reply.is_answer();
                assert_eq!(reply.header("content-type"), Some("application/json"));
            } else {
                reply.is_refusal(*status, words);
                assert_eq!(reply.header("allow"), (*status == 405).then_some("POST"), "{method} {path}");
            }
            session.post("/mutate", "{}").await.is_answer();
        }
    }
    for (reason, count) in
        [("wrong_media_type", 4), ("wrong_method", 4), ("unknown_path", 6), ("bad_review", 2), ("panic", 2)]
    {
        let series = format!("portcullis_requests_refused_total{{reason=\"{reason}\"}}");
        assert_eq!(server.metric(&series).await, count, "{series}");
    }
    assert_eq!(server.metric("portcullis_review_panics_total").await, 2);
    assert_eq!(server.metric("portcullis_reviews_in_flight").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_production_reviewer_refuses_bodies_that_are_not_reviews() {
    let webhook =
        portcullis::webhook::LocalWebhook::start(portcullis_core::admission::AdmissionSettings::default())
            .unwrap();
    for body in ["", "{", "[]", "{}", r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#]
    {
        let error = webhook
            .review(portcullis_core::admission::Hook::Mutate, body.as_bytes())
            .await
            .expect_err("no review")
            .to_string();
        assert!(error.contains("400") && error.contains("admission.k8s.io/v1"), "{body:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_body_of_the_maximum_size_is_accepted_and_one_byte_more_is_refused() {
    let server = start(config()).await;
    let limit = 7 * 1024 * 1024;
    for mut session in [server.http1().await, server.http2().await] {
        for (size, accepted) in [(limit, true), (limit + 1, false)] {
            let body = Full::from(Bytes::from(vec![b' '; size]));
            let request =
                Request::post("/mutate").header("content-type", "application/json").body(body).unwrap();
            let reply = session.send(request).await.unwrap();
            if accepted {
                reply.is_answer();
            } else {
                reply.is_refusal(413, &["larger than 7340032 bytes", "3 MiB"]);
            }
        }
    }
    assert_eq!(server.metric("portcullis_requests_refused_total{reason=\"body_too_large\"}").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_body_without_a_content_length_is_bounded() {
    let mut config = config();
    config.max_body_bytes = 1000;
    let server = start(config).await;
    let head =
        "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let chunk = |size: usize| format!("{size:x}\r\n{}\r\n", " ".repeat(size));
    let chunked = |sizes: &[usize]| {
        let chunks: String = sizes.iter().map(|size| chunk(*size)).collect();
        format!("{head}transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
    };
    let answer = server.raw(chunked(&[600, 400])).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(ANSWER), "{answer}");
    let answer = server.raw(chunked(&[600, 400, 1])).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("larger than 1000 bytes"), "{answer}");
    // A client that sends "Expect: 100-continue" gets the refusal before it sends the body.
    let answer = server.raw(format!("{head}content-length: 1001\r\nexpect: 100-continue\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn probes_and_metrics_are_on_the_plain_port_only() {
    let server = start(config()).await;
    for path in ["/healthz", "/livez", "/readyz"] {
        let reply = server.admin(path).await;
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, "ok\n"), "{path}");
    }
    let verbose = server.admin("/readyz?verbose").await;
    assert_eq!(verbose.text, "[+]serving ok\n[+]certificate ok\nreadyz check passed\n");
    assert_eq!(server.admin("/mutate").await.status, 404);
    assert_eq!(server.post("/readyz", "").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_metrics_are_well_formed_and_count() {
    let server = start(config()).await;
    for _ in 0..3 {
        server.post("/mutate", "{}").await.is_answer();
    }
    let text = server.admin("/metrics").await.text;
    assert!(text.ends_with("# EOF\n"));
    let mut described = Vec::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.contains(':') && help.ends_with('.'), "the help text says what to do: {line}");
            described.push(name.to_owned());
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let name = series.split('{').next().unwrap();
            assert!(described.iter().any(|known| name.starts_with(known.as_str())), "{name} has a help text");
            assert!(name.starts_with("portcullis_"), "{line}");
        }
    }
    let mutated = "portcullis_reviews_total{hook=\"mutate\",operation=\"CREATE\",verdict=\"allowed\"}";
    assert_eq!(server.metric(mutated).await, 3);
    assert_eq!(server.metric("portcullis_review_duration_seconds_count{hook=\"mutate\"}").await, 3);
    assert_eq!(server.metric("portcullis_review_duration_seconds_count{hook=\"validate\"}").await, 0);
}
