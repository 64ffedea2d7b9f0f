//! The tutorials that users paste, on a real control plane, as they type them.
//!
//! Each file in `tests/exercises` is a terminal session: lines after `$` are typed into a shell (`>` goes on with a here
//! document), what follows is what has to come back, whole. Ages, times and identities are replaced by words. What only
//! looks (`get`, `describe`) is looked at again for a while before it is called wrong; what changes something is typed once.
//! `PORTCULLIS_UPDATE_GOLDENS=1 cargo test --test exercises` writes the sessions anew; the difference is what to read.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use portcullis_test_cluster::{Cluster, Options, Portcullis, ProgramOptions, Version, available};
use serde_json::Value;

/// How long an output may take to become what it should be.
const PATIENCE: Duration = Duration::from_secs(20);
/// When sessions are written anew: how long nothing must have changed in an output.
const SETTLED: Duration = Duration::from_millis(2500);

struct Step {
    /// As typed, here documents included.
    command: String,
    /// As in the file, to be written back.
    typed: Vec<String>,
    /// Comments before it.
    remarks: Vec<String>,
    expected: String,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exercises")
}

fn read_session(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut remarks = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let remarks = std::mem::take(&mut remarks);
            steps.push(Step {
                command: command.to_owned(),
                typed: vec![line.to_owned()],
                remarks,
                expected: String::new(),
            });
        } else if line.starts_with('#') || line.is_empty() {
            remarks.push(line.to_owned());
        } else {
            let step = steps.last_mut().unwrap_or_else(|| panic!("output before the first command: {line}"));
            match line.strip_prefix("> ").or_else(|| (line == ">").then_some("")) {
                Some(more) if step.expected.is_empty() => {
                    step.typed.push(line.to_owned());
                    step.command.push('\n');
                    step.command.push_str(more);
                }
                // A blank line within an output is written as a dot, because an empty one ends it.
                _ => {
                    step.expected.push_str(if line == "." { "" } else { line });
                    step.expected.push('\n');
                }
            }
        }
    }
    steps
}

fn write_session(steps: &[(Step, String)]) -> String {
    let mut text = String::new();
    for (step, output) in steps {
        for line in step.remarks.iter().chain(&step.typed) {
            let _ = writeln!(text, "{line}");
        }
        for line in output.lines() {
            let _ = writeln!(text, "{}", if line.is_empty() { "." } else { line });
        }
    }
    text
}

/// What differs from run to run and means nothing: times, ages, identities.
fn normal(output: &str) -> String {
    let lines = output.lines().map(|line| {
        let kept = line.trim_end();
        let indent = &kept[..kept.len() - kept.trim_start().len()];
        for (field, word) in [
            ("UID:", "<uid>"),
            ("Uid:", "<uid>"),
            ("Resource Version:", "<version>"),
            ("Creation Timestamp:", "<time>"),
            ("Last Transition Time:", "<time>"),
            ("Start Time:", "<time>"),
            ("Since:", "<time>"),
            ("Deadline:", "<time>"),
            ("Epoch:", "<epoch>"),
            ("Transition ID:", "<number>"),
        ] {
            if let Some(rest) = kept.trim_start().strip_prefix(field) {
                let gap = &rest[..rest.len() - rest.trim_start().len()];
                return format!("{indent}{field}{gap}{word}");
            }
        }
        words(kept)
    });
    lines.fold(String::new(), |mut text, line| {
        text.push_str(&line);
        text.push('\n');
        text
    })
}

/// Replaces ages (`12s`, `3m4s`) that stand alone, and keeps the columns of what comes before them.
fn words(line: &str) -> String {
    let is_age = |word: &str| {
        let mut digits = false;
        !word.is_empty()
            && word.ends_with(['s', 'm', 'h', 'd'])
            && word.chars().all(|c| {
                digits |= c.is_ascii_digit();
                c.is_ascii_digit() || "smhd".contains(c)
            })
            && digits
    };
    let mut text = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let gap = rest.len() - rest.trim_start().len();
        let end = rest[gap..].find(char::is_whitespace).map_or(rest.len(), |at| gap + at);
        let word = &rest[gap..end];
        let after = &rest[end..];
        if is_age(word) {
            // The width of what follows depends on the age; one space stands for it.
            text.push_str(&rest[..gap]);
            text.push_str("<age>");
            rest = after;
            if !rest.trim_start().is_empty() {
                text.push_str("   ");
                rest = rest.trim_start();
            }
        } else {
            text.push_str(&rest[..end]);
            rest = after;
        }
    }
    text
}

struct Shell {
    path: String,
    kubeconfig: PathBuf,
}

impl Shell {
    /// A directory with a `kubectl` in front of the path.
    fn new(cluster: &Cluster) -> Self {
        let bin = cluster.directory().join("bin");
        fs::create_dir_all(&bin).expect("a directory for kubectl");
        let command: Vec<String> =
            cluster.kubectl_command().iter().map(|word| format!("'{}'", word.to_string_lossy())).collect();
        let script = bin.join("kubectl");
        fs::write(&script, format!("#!/bin/sh\nexec {} \"$@\"\n", command.join(" "))).expect("kubectl");
        let mut mode = fs::metadata(&script).expect("kubectl").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        fs::set_permissions(&script, mode).expect("kubectl");
        let program = Path::new(env!("CARGO_BIN_EXE_portcullis")).parent().expect("a directory");
        let path =
            format!("{}:{}:{}", bin.display(), program.display(), std::env::var("PATH").unwrap_or_default());
        Self { path, kubeconfig: cluster.admin().to_path_buf() }
    }

    /// Standard output and error together, as on a terminal.
    fn run(&self, command: &str) -> String {
        let output = Command::new("sh")
            .args(["-c", &format!("exec 2>&1\n{command}")])
            .current_dir(directory())
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            .output()
            .expect("a shell");
        normal(&String::from_utf8_lossy(&output.stdout))
    }

    /// Types a command; if it only looks, until it shows what is expected or time is up.
    fn type_in(&self, step: &Step, update: bool) -> String {
        let words: Vec<&str> = step.command.split_whitespace().collect();
        let looks = matches!(words.as_slice(), ["kubectl", "get" | "describe", ..] | ["portcullis", ..]);
        let mut output = self.run(&step.command);
        if !looks {
            return output;
        }
        let (begun, mut same_since) = (Instant::now(), Instant::now());
        let settled = |output: &str, same_since: Instant| {
            if update { same_since.elapsed() > SETTLED } else { output == step.expected }
        };
        while !settled(&output, same_since) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(200));
            let again = self.run(&step.command);
            if again != output {
                same_since = Instant::now();
                output = again;
            }
        }
        output
    }
}

/// Takes away what the last session left, down to the nodes.
fn clear(cluster: &Cluster) {
    for kind in ["deployments", "statefulsets", "jobs", "pods", "podgroups.scheduling.run.ai"] {
        cluster.kubectl(&[
            "delete",
            kind,
            "--all",
            "-n",
            "default",
            "--force",
            "--grace-period=0",
            "--wait=true",
        ]);
    }
    cluster.kubectl(&["delete", "nodes", "--all"]);
    cluster.kubectl(&["delete", "priorityclass", "inference", "--ignore-not-found"]);
    cluster.wait_until("all gangs are gone", || {
        let gangs = cluster.api().get("/apis/portcullis.dev/v1alpha1/gangs").unwrap_or(Value::Null);
        gangs["items"].as_array().is_some_and(Vec::is_empty)
    });
    cluster.kubectl(&["delete", "events.events.k8s.io", "--all", "-n", "default"]);
}

#[test]
fn the_exercises_work_as_they_read() {
    if !available(Version::default()) {
        return;
    }
    let cluster = Cluster::start(&Options::default()).unwrap_or_else(|error| panic!("{error:#}"));
    let _portcullis = Portcullis::start(&cluster, ProgramOptions::new(env!("CARGO_BIN_EXE_portcullis")))
        .unwrap_or_else(|error| panic!("{error:#}"));
    let shell = Shell::new(&cluster);
    let update = std::env::var_os("PORTCULLIS_UPDATE_GOLDENS").is_some();
    let only = std::env::var("PORTCULLIS_EXERCISE").unwrap_or_default();
    let mut files: Vec<PathBuf> = fs::read_dir(directory())
        .expect("tests/exercises")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .filter(|path| path.file_stem().is_some_and(|name| name.to_string_lossy().starts_with(&only)))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no sessions");
    let mut wrong = Vec::new();
    for file in files {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let steps = read_session(&fs::read_to_string(&file).expect("a session"));
        let mut seen = Vec::new();
        for step in steps {
            let output = shell.type_in(&step, update);
            if output != step.expected && !update {
                wrong.push(format!(
                    "{name}: $ {}\n--- expected\n{}--- came\n{output}",
                    step.typed.join("\n"),
                    step.expected
                ));
                // What follows builds on it.
                break;
            }
            seen.push((step, output));
        }
        if update {
            fs::write(&file, write_session(&seen)).expect("the session is written");
        }
        clear(&cluster);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn ages_and_times_are_told_from_other_words() {
    for (line, expected) in [
        ("app-with-models   Waiting   3/3   4m12s", "app-with-models   Waiting   3/3   <age>"),
        (
            "  Normal  Lifted  2s (x3 over 5m)  portcullis  message 3/3",
            "  Normal  Lifted  <age>   (x3 over 5m)  portcullis  message 3/3",
        ),
        ("  UID:   0b3c", "  UID:   <uid>"),
        ("model-1 needs 8000 MiB", "model-1 needs 8000 MiB"),
    ] {
        assert_eq!(normal(line), format!("{expected}\n"));
    }
}
