//! The real binary in standalone mode, started from the command line.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

/// The running binary. Dropping it kills the process.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) lines: Vec<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("portcullis it's {name} {}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

pub(crate) fn serve(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    command
        .args(["serve", "--standalone", "--bind", "127.0.0.1:0", "--admin-bind", "127.0.0.1:0"])
        .args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts the binary and reads its output up to the last line of the start.
pub(crate) fn start(arguments: &[&str]) -> Running {
    let mut child = serve(arguments).stderr(Stdio::null()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = Vec::new();
    for line in output.lines().map(Result::unwrap) {
        let last = line.starts_with("Ctrl-C");
        lines.push(line);
        if last {
            break;
        }
    }
    Running { child, lines }
}

impl Running {
    fn curl_line(&self) -> &str {
        self.lines
            .iter()
            .find(|line| line.trim_start().starts_with("curl "))
            .expect("a curl line is printed")
            .trim()
    }

    fn signal(&self, name: &str) {
        let status =
            Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

fn shell(line: &str) -> Output {
    Command::new("sh").args(["-c", line]).output().unwrap()
}

fn curl_is_installed() -> bool {
    Command::new("curl").arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn the_printed_curl_line_works_as_pasted() {
    if !curl_is_installed() {
        eprintln!("left out: curl is not installed");
        return;
    }
    let directory = directory("curl");
    let running = start(&["--certs-dir", directory.to_str().unwrap()]);
    assert!(running.lines.iter().all(|line| !line.contains('\u{1b}')), "no colours in a pipe");
    let output = shell(running.curl_line());
    let (answer, problem) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{problem}");
    // An error is plain text, and a review of another request has another uid. Neither is a valid answer.
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
    assert_eq!(
        (&answer["apiVersion"], &answer["kind"]),
        (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
    );
    assert_eq!(answer["response"]["uid"], json!("705ab4f5-6393-11e8-b7cc-42010a800002"));

    // Without the CA the connection fails, so the printed file is what makes it succeed.
    let untrusting = running.curl_line().replace("--cacert", "--proxy-cacert");
    assert!(!shell(&untrusting).status.success());
    drop(running);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_printed_curl_line_shows_the_denial() {
    if !curl_is_installed() {
        eprintln!("left out: curl is not installed");
        return;
    }
    let directory = directory("denial");
    let running = start(&["--certs-dir", directory.to_str().unwrap()]);
    let answer: Value = serde_json::from_slice(&shell(running.curl_line()).stdout).unwrap();
    let (annotation, limit) =
        ("metadata.annotations[gpu-memory]", "spec.containers[0].resources.limits[nvidia.com/gpu]");
    let way_out = "Keep one: remove the annotation gpu-memory for a whole GPU, or remove nvidia.com/gpu to share a card.";
    let at_annotation = format!(
        "cannot request both GPU and GPU memory: this pod asks for 8000 MiB of a shared card and, in container \"model\", \
         for 1 whole GPU (limits nvidia.com/gpu). {way_out}"
    );
    let at_limit = format!(
        "cannot request both GPU and GPU memory: \"1\" contradicts the annotation gpu-memory (\"8000\"). {way_out}"
    );
    let cause = |field: &str, message: &str| json!({"reason": "FieldValueForbidden", "message": message, "field": field});
    let expected = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "allowed": false,
            "status": {
                "status": "Failure",
                "code": 422,
                "reason": "Invalid",
                "message": format!("Pod \"model-1\" is invalid: {annotation}: {at_annotation}; {limit}: {at_limit}"),
                "details": {
                    "name": "model-1",
                    "kind": "Pod",
                    "causes": [cause(annotation, &at_annotation), cause(limit, &at_limit)]
                }
            }
        }
    });
    assert_eq!(answer, expected, "{answer:#}");
    drop(running);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_first_signal_drains_and_the_second_ends_at_once() {
    let directory = directory("signal");
    let mut polite = start(&["--certs-dir", directory.to_str().unwrap()]);
    polite.signal("TERM");
    assert_eq!(polite.child.wait().unwrap().code(), Some(0));

    let mut hurried = start(&["--certs-dir", directory.to_str().unwrap(), "--shutdown-delay", "1h"]);
    hurried.signal("INT");
    // The kernel merges pending signals of one kind, so the second signal is sent until the process ends.
    let code = loop {
        std::thread::sleep(std::time::Duration::from_millis(20));
        if let Some(status) = hurried.child.try_wait().unwrap() {
            break status.code();
        }
        hurried.signal("TERM");
    };
    assert_eq!(code, Some(1));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_port_in_use_is_reported_with_its_flag() {
    let directory = directory("taken");
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    for flag in ["--bind", "--admin-bind"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        let (other, free) =
            if flag == "--bind" { ("--admin-bind", "127.0.0.1:0") } else { ("--bind", "127.0.0.1:0") };
        command.args(["serve", "--standalone", flag, &address, other, free]);
        let output = command.args(["--certs-dir", directory.to_str().unwrap()]).output().unwrap();
        let problem = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(problem.contains(&address) && problem.contains(&format!("({flag})")), "{problem}");
    }
}

#[test]
fn a_given_certificate_is_served_and_an_incomplete_one_is_refused() {
    let directory = directory("given");
    let made = start(&["--certs-dir", directory.to_str().unwrap()]);
    let (certificate, key) = (directory.join("tls.crt"), directory.join("tls.key"));
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let other = directory.join("other");
    let given = start(&["--tls-cert", certificate, "--tls-key", key, "--certs-dir", other.to_str().unwrap()]);
    assert!(!other.join("tls.key").exists(), "a given certificate replaces the generated one");
    if curl_is_installed() {
        let output = shell(given.curl_line());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let output = serve(&["--tls-cert", certificate]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "clap's own");
    let output = serve(&["--tls-cert", certificate, "--tls-key", certificate]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("tls.crt"));
    drop((made, given));
    std::fs::remove_dir_all(directory).unwrap();
}
