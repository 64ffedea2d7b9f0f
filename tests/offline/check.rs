//! Whole outputs and exit codes of `portcullis check` and `portcullis eval`.
//!
//! The goldens are in tests/data/policies/expected. `PORTCULLIS_UPDATE_GOLDENS=1 cargo test --test offline
//! check` rewrites them. Read the difference before you commit it.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Run {
    stdout: String,
    stderr: String,
    code: Option<i32>,
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/policies")
}

fn run(arguments: &[&str], input: &str) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(arguments)
        .current_dir(data())
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    // A command that needs no input may end before it is written.
    match child.stdin.take().expect("it is a pipe").write_all(input.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.expect("it is read"),
    }
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints UTF-8");
    Run { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code() }
}

/// Compares an output with its golden. Durations are replaced first.
fn golden(name: &str, found: &str) {
    let found = match found.split_once(", took ") {
        Some((before, after)) => {
            format!("{before}, took N{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => found.to_owned(),
    };
    let path = data().join("expected").join(name);
    if std::env::var_os("PORTCULLIS_UPDATE_GOLDENS").is_some() {
        fs::create_dir_all(path.parent().expect("it lies in a directory")).expect("it can be made");
        fs::write(&path, &found).expect("it can be written");
    }
    let wanted = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(found == wanted, "{name} differs from its golden:\n{found}");
}

#[test]
fn every_error_is_reported_at_its_place() {
    for (name, arguments, code) in [
        ("bad.txt", &["check", "bad"][..], 2),
        ("bad.json", &["check", "bad", "-o", "json"], 2),
        ("bad.sarif", &["check", "bad", "-o", "sarif"], 2),
        ("bad.github", &["check", "bad", "-o", "github"], 2),
        ("good.txt", &["check", "good"], 0),
        ("warned.txt", &["check", "warned"], 0),
        ("warned.txt", &["check", "--strict", "warned"], 1),
        ("good.json", &["check", "good", "-o", "json"], 0),
    ] {
        let run = run(arguments, "");
        assert_eq!((run.code, run.stderr.as_str()), (Some(code), ""), "{arguments:?}\n{}", run.stdout);
        golden(name, &run.stdout);
    }
}

#[test]
fn check_reads_standard_input_like_a_file() {
    let text = fs::read_to_string(data().join("good/team-label.yaml")).expect("it is committed");
    let good = run(&["check", "-"], &text);
    assert_eq!(good.code, Some(0), "{}{}", good.stdout, good.stderr);
    let bad = run(&["check", "-"], &text.replace("in variables.labels", "in variables.label"));
    assert_eq!(bad.code, Some(2));
    assert!(
        bad.stdout.contains("--> -:24:40") && bad.stdout.contains("did you mean \"labels\"?"),
        "{}",
        bad.stdout
    );
}

#[test]
fn an_unreadable_file_is_reported() {
    let run = run(&["check", "nowhere"], "");
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("cannot read nowhere"), "{}", run.stderr);
}

#[test]
fn eval_evaluates_expressions_over_objects() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {team: ml}}\nspec: {containers: [{name: c, image: 'x:latest'}]}\n";
    for (arguments, input, stdout, code) in [
        (&["eval", "1 + 1"][..], "", "2\nint, cost 1 of 1000000\n", 0),
        (&["eval", "object.metadata.labels.team", "-f", "-"], pod, "\"ml\"\nstring, cost 4 of 1000000\n", 0),
        (&["eval", "request.namespace", "-f", "-"], pod, "\"default\"\nstring, cost 2 of 1000000\n", 0),
        (
            &["eval", "object.spec.nodeName", "-f", "-"],
            pod,
            "no value: no such key: nodeName\nstring, cost 3 of 1000000\n",
            1,
        ),
        (
            &["eval", "objct.spec", "-f", "-"],
            pod,
            "error: undeclared reference to 'objct'\n  --> expression:1:1\n1 | objct.spec\n  | ^^^^^ did you mean \"object\"?\n",
            2,
        ),
        (
            &["eval", "params.data.label", "--params", "limits.yaml"],
            "",
            "\"team\"\ndyn, cost 3 of 1000000\n",
            0,
        ),
    ] {
        let run = run(arguments, input);
        assert_eq!((run.stdout.as_str(), run.code), (stdout, Some(code)), "{arguments:?}: {}", run.stderr);
    }
    let run = run(&["eval", "has(object.spec.contianers)", "-f", "-"], pod);
    assert_eq!(run.code, Some(0));
    assert!(
        run.stderr.contains("did you mean \"containers\"?"),
        "a misspelt field is warned of\n{}",
        run.stderr
    );
}

#[test]
fn the_examples_in_the_help_of_eval_succeed() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples-of-eval");
    fs::create_dir_all(&directory).expect("it can be made");
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a, resources: {limits: {cpu: 1}}}]}}";
    let review = "{apiVersion: admission.k8s.io/v1, kind: AdmissionReview, request: {uid: a, userInfo: {username: ada}}}";
    for (name, text) in [
        ("pod.yaml", pod),
        ("review.json", review),
        ("app.yaml", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 2}}"),
        ("limits.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {most: '3'}}"),
    ] {
        fs::write(directory.join(name), text).expect("it can be written");
    }
    let help = run(&["eval", "--help"], "").stdout;
    let mut tried = 0;
    for line in help.lines() {
        let Some((_, rest)) = line.split_once("portcullis eval '") else { continue };
        let (expression, rest) = rest.rsplit_once('\'').expect("it is quoted");
        let options = rest.split("   ").next().unwrap_or_default().split_whitespace();
        let options = options.map(|word| match directory.join(word) {
            path if path.exists() => path.display().to_string(),
            _ => word.to_owned(),
        });
        let arguments: Vec<String> =
            ["eval".to_owned(), expression.to_owned()].into_iter().chain(options).collect();
        let run = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), pod);
        assert_eq!(run.code, Some(0), "{line}\n{}{}", run.stdout, run.stderr);
        tried += 1;
    }
    assert_eq!(tried, 5, "{help}");
}

#[test]
fn check_and_eval_have_examples_in_their_help() {
    for command in ["check", "eval"] {
        let run = run(&[command, "--help"], "");
        assert_eq!(run.code, Some(0));
        assert!(run.stdout.contains("Examples:") && run.stdout.contains("Exit codes"), "{}", run.stdout);
    }
}
