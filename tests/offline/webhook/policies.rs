//! The real binary with policy files: evaluated, changed and broken while it runs, and with a candidate set.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use portcullis::webhook::{ReviewClient, Route};
use portcullis_core::admission::Hook;
use serde_json::{Value, json};

use super::binary::{Running, directory, serve, start};
use super::harness::WAIT_TIMEOUT;

/// A policy that requires a label, with its binding.
fn wants(label: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: wants-{label}}}
spec:
  matchConstraints:
    resourceRules: [{{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}}]
  validations:
    - expression: \"'{label}' in object.metadata.?labels.orValue({{}})\"
      message: \"metadata.labels[{label}]: say it\"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: wants-{label}}}
spec: {{policyName: wants-{label}, validationActions: [Deny]}}
"
    )
}

fn review(labels: &Value) -> Vec<u8> {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "kind": kind, "resource": resource, "name": "x", "namespace": "ml", "operation": "CREATE",
            "userInfo": {"username": "dev"},
            "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": labels}, "spec": {"containers": []}},
        }
    })
    .to_string()
    .into_bytes()
}

/// The address in the printed line with this prefix.
fn address(running: &Running, begin: &str) -> SocketAddr {
    let line = running.lines.iter().find_map(|line| line.trim().strip_prefix(begin)).unwrap();
    line.split('/').next().unwrap().parse().unwrap()
}

fn get(admin: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn becomes(admin: SocketAddr, path: &str, part: &str) -> String {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        let text = get(admin, path);
        if text.contains(part) {
            return text;
        }
        assert!(Instant::now() < deadline, "after {WAIT_TIMEOUT:?} {path} does not have {part}:\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Writes a file in one step, so that a reload never reads a part of it.
fn write(path: &Path, name: &str, text: &str) {
    fs::create_dir_all(path).unwrap();
    let whole = path.with_extension("new");
    fs::write(&whole, text).unwrap();
    fs::rename(whole, path.join(name)).unwrap();
}

#[tokio::test]
async fn policies_are_evaluated_reloaded_and_compared_with_a_candidate() {
    let home = directory("policies");
    let (live, shadow, certificates) = (home.join("live"), home.join("shadow"), home.join("certs"));
    write(&live, "team.yaml", &wants("team"));
    write(&shadow, "team.yaml", &wants("team"));
    write(&shadow, "owner.yaml", &wants("owner"));
    let text = |path: &Path| path.display().to_string();
    let (certificates, shadow) = (text(&certificates), text(&shadow));
    let running =
        start(&["--certs-dir", &certificates, "--policies", &text(&live), "--shadow-policies", &shadow]);
    let (web, admin) = (address(&running, "reviews   https://"), address(&running, "probes    http://"));
    let client = ReviewClient::new(web, &fs::read_to_string(home.join("certs/ca.crt")).unwrap()).unwrap();
    let ask = async |labels: Value| -> Value {
        let body = client.send(Route::Policies(Hook::Validate), review(&labels)).await.unwrap();
        serde_json::from_slice::<Value>(&body).unwrap()["response"].clone()
    };
    let denied = ask(json!({})).await;
    assert_eq!(denied["status"]["details"]["causes"][0]["field"], "metadata.labels[team]", "{denied}");
    assert_eq!(ask(json!({"team": "a"})).await["allowed"], true);
    // The result of the candidate is counted and changes no answer.
    becomes(
        admin,
        "/metrics",
        r#"portcullis_policy_shadow_differences_total{policy="wants-owner",change="would_deny"} 1"#,
    );
    let metrics = get(admin, "/metrics");
    assert!(metrics.contains(r#"portcullis_policy_denials_total{policy="wants-team"} 1"#), "{metrics}");
    let listed = get(admin, "/policies");
    assert!(listed.contains("wants-team") && listed.contains("team.yaml"), "{listed}");

    write(&live, "queue.yaml", &wants("queue"));
    becomes(admin, "/policies", "wants-queue");
    let both = ask(json!({})).await;
    assert_eq!(both["status"]["details"]["causes"].as_array().map(Vec::len), Some(2), "{both}");
    becomes(admin, "/metrics", r#"portcullis_policy_reloads_total{result="success"} 1"#);

    // An invalid file keeps the active set, and the error names its place.
    write(&live, "queue.yaml", &wants("queue").replace("object.metadata", "object.metdata"));
    let ready = becomes(admin, "/readyz?verbose", "failed and the previous set stays active");
    assert!(
        ready.starts_with("HTTP/1.1 200") && ready.contains("queue.yaml:8:") && ready.contains("^^^^^^^"),
        "{ready}"
    );
    assert_eq!(ask(json!({})).await["status"]["details"]["causes"].as_array().map(Vec::len), Some(2));
    becomes(admin, "/metrics", r#"portcullis_policy_reloads_total{result="failed"} 1"#);

    // The corrected file is loaded.
    write(&live, "queue.yaml", &wants("queue"));
    becomes(admin, "/metrics", r#"portcullis_policy_reloads_total{result="success"} 2"#);
    assert!(!get(admin, "/readyz?verbose").contains("failed"));
    drop(running);
    fs::remove_dir_all(home).unwrap();
}

#[test]
fn a_start_with_an_invalid_policy_fails_and_prints_the_error() {
    let home = directory("bad policies");
    write(&home, "team.yaml", &wants("team").replace("object.metadata", "object.metdata"));
    let output = serve(&["--policies", &home.display().to_string()]).output().unwrap();
    let problem = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{problem}");
    assert!(problem.contains("team.yaml:8:") && problem.contains("did you mean \"metadata\"?"), "{problem}");
    fs::remove_dir_all(home).unwrap();
}

#[tokio::test]
async fn an_invalid_candidate_changes_nothing_and_is_compared_once_it_is_valid() {
    let home = directory("bad candidate");
    let (live, shadow) = (home.join("live"), home.join("shadow"));
    write(&live, "team.yaml", &wants("team"));
    write(&shadow, "owner.yaml", &wants("owner").replace("object.metadata", "object.metdata"));
    let text = |path: &Path| path.display().to_string();
    let running = start(&[
        "--certs-dir",
        &text(&home.join("certs")),
        "--policies",
        &text(&live),
        "--shadow-policies",
        &text(&shadow),
    ]);
    let (web, admin) = (address(&running, "reviews   https://"), address(&running, "probes    http://"));
    let client = ReviewClient::new(web, &fs::read_to_string(home.join("certs/ca.crt")).unwrap()).unwrap();
    let ask = async |labels: Value| -> Value {
        let body = client.send(Route::Policies(Hook::Validate), review(&labels)).await.unwrap();
        serde_json::from_slice::<Value>(&body).unwrap()["response"]["allowed"].clone()
    };
    assert_eq!(ask(json!({})).await, false);
    assert_eq!(ask(json!({"team": "a"})).await, true);
    let listed = get(admin, "/policies");
    assert!(listed.contains("\"hash\": null") && listed.contains("owner.yaml:8:"), "{listed}");
    assert!(get(admin, "/metrics").contains("portcullis_policy_shadow_skipped_total 0"));

    write(&shadow, "owner.yaml", &wants("owner"));
    becomes(admin, "/metrics", r#"portcullis_policy_set_info{role="shadow""#);
    assert!(!get(admin, "/policies").contains("lastReload"));
    assert_eq!(ask(json!({"team": "a"})).await, true);
    becomes(
        admin,
        "/metrics",
        r#"portcullis_policy_shadow_differences_total{policy="wants-owner",change="would_deny"} 1"#,
    );

    // Without a candidate file, the last valid candidate is still compared.
    fs::remove_dir_all(&shadow).unwrap();
    let listed = becomes(admin, "/policies", "lastReload");
    assert!(listed.contains("cannot read") && !listed.contains("\"hash\": null"), "{listed}");
    drop(running);
    fs::remove_dir_all(home).unwrap();
}

#[tokio::test]
async fn policy_paths_without_policies_return_an_error() {
    let home = directory("no policies");
    let running = start(&["--certs-dir", &home.display().to_string()]);
    let web = address(&running, "reviews   https://");
    let client = ReviewClient::new(web, &fs::read_to_string(home.join("ca.crt")).unwrap()).unwrap();
    let refused =
        client.send(Route::Policies(Hook::Mutate), review(&json!({}))).await.unwrap_err().to_string();
    assert!(refused.contains("404") && refused.contains("--policies"), "{refused}");
    let admin = address(&running, "probes    http://");
    assert!(get(admin, "/policies").contains("without --policies"));
    drop(running);
    fs::remove_dir_all(home).unwrap();
}
