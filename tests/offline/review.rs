//! Whole outputs and exit codes of `portcullis review`, from the real binary.
//!
//! Each case is a file of tests/data/review with a golden in `expected/`: the command line, stdout, stderr
//! and the exit code. `PORTCULLIS_UPDATE_GOLDENS=1 cargo test --test offline review` rewrites the goldens.
//! Read the difference before you commit it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/review")
}

/// Runs the binary in the directory of the test data, so that file names in the output are short and do not
/// vary.
fn run(arguments: &[&str], input: &str) -> (String, Option<i32>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(arguments)
        .current_dir(data())
        .env_remove("CLICOLOR_FORCE")
        .env_remove("RUST_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    // A command may end before it has read its input, and then closes the pipe.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    let mut transcript = format!("$ portcullis {}\n{stdout}", arguments.join(" "));
    if !stderr.is_empty() {
        let _ = write!(transcript, "--- stderr\n{stderr}");
    }
    let _ = writeln!(transcript, "--- exit {}", output.status.code().unwrap_or(-1));
    (transcript, output.status.code())
}

fn check(golden: &str, arguments: &[&str], exit: i32) {
    let (transcript, code) = run(arguments, "");
    let path = data().join("expected").join(format!("{golden}.txt"));
    if std::env::var_os("PORTCULLIS_UPDATE_GOLDENS").is_some() {
        std::fs::create_dir_all(data().join("expected")).expect("the directory can be made");
        std::fs::write(&path, &transcript).expect("the golden can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(transcript == expected, "{golden} differs.\n=== expected\n{expected}\n=== got\n{transcript}");
    assert_eq!(code, Some(exit), "{golden}: scripts rely on the exit code\n{transcript}");
}

#[test]
fn review_admits_and_gates_the_tutorial() {
    check("app-with-models", &["review", "app-with-models.yaml"], 0);
}

#[test]
fn review_prints_the_tutorial_as_patches() {
    check("app-with-models.patch", &["review", "app-with-models.yaml", "-o", "patch"], 0);
}

#[test]
fn review_prints_the_tutorial_as_objects() {
    check("app-with-models.yaml", &["review", "app-with-models.yaml", "-o", "yaml"], 0);
}

#[test]
fn contradictions_are_reported_with_their_field() {
    check("contradictions", &["review", "contradictions.yaml"], 1);
}

#[test]
fn contradictions_are_printed_as_json() {
    check("contradictions.json", &["review", "contradictions.yaml", "-o", "json"], 1);
}

#[test]
fn pod_templates_are_reviewed_as_their_pods() {
    check("workloads", &["review", "workloads.yaml", "--namespace", "train"], 1);
}

#[test]
fn changes_to_a_stateful_set_are_printed() {
    check("stateful-set", &["review", "stateful-set.yaml"], 0);
}

#[test]
fn a_recorded_review_is_answered() {
    check("review", &["review", "review.json"], 0);
}

#[test]
fn policies_deny_and_warn_about_pods_and_other_kinds() {
    check("policed", &["review", "--policies", "policies", "policed.yaml"], 1);
}

#[test]
fn invalid_yaml_is_reported_with_its_line() {
    check("broken", &["review", "broken.yaml"], 2);
}

#[test]
fn an_unquoted_number_is_explained() {
    check("unquoted", &["review", "unquoted.yaml"], 2);
}

#[test]
fn an_unreadable_group_is_reported() {
    check("bad-group", &["review", "bad-group.yaml"], 2);
}

#[test]
fn a_missing_file_is_reported() {
    check("missing", &["review", "no-such-file.yaml"], 2);
}

#[test]
fn review_reads_standard_input_like_a_file() {
    let text = std::fs::read_to_string(data().join("app-with-models.yaml")).expect("it is committed");
    let (from_stdin, code) = run(&["review", "-"], &text);
    let (from_file, _) = run(&["review", "app-with-models.yaml"], "");
    let body = |transcript: &str| transcript.split_once('\n').map(|(_, body)| body.to_owned());
    assert_eq!(body(&from_stdin.replace("<stdin>", "app-with-models.yaml")), body(&from_file));
    assert_eq!(code, Some(0));
}

#[test]
fn colour_is_printed_only_on_request() {
    let (plain, _) = run(&["review", "unquoted.yaml"], "");
    let (coloured, _) = run(&["review", "unquoted.yaml", "--color", "always"], "");
    assert!(!plain.contains('\u{1b}'), "a pipe gets plain text");
    assert!(coloured.contains('\u{1b}'), "--color always prints colours");
}

#[test]
fn bad_arguments_exit_with_2() {
    for arguments in [&["review"][..], &["no-such-command"], &["review", "x", "-o", "xml"]] {
        let (transcript, code) = run(arguments, "");
        assert_eq!(code, Some(2), "{transcript}");
    }
}

/// `portcullis review huge.yaml | head -1` must end without a panic and without a message.
#[test]
#[cfg(unix)]
fn a_closed_output_pipe_is_not_an_error() {
    let mut big = String::new();
    for index in 0..5000 {
        let _ = write!(big, "apiVersion: v1\nkind: Service\nmetadata:\n  name: s{index}\n---\n");
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(["review", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    drop(child.stdout.take());
    child.stdin.take().expect("it is piped").write_all(big.as_bytes()).expect("it reads everything first");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "no message");
    assert_eq!(output.status.code(), Some(0));
}
