//! Terminal sessions as tests: what a person types, and what comes back.
//!
//! ```text
//! $ kubectl get pods
//! NAME    READY   STATUS    RESTARTS   AGE
//! app     1/1     Running   0          …
//! ```
//!
//! `$ ` runs a line in a shell once, `$~ ` again and again until the output is as it stands there, `> ` continues the line above (a
//! here-document). `…` stands for any text within a line, a line of `…` alone for any lines. The width of columns does not count.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::cluster::Cluster;
use crate::wait::PATIENCE;

#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    command: String,
    is_repeated: bool,
    expected: Vec<String>,
}

fn steps(transcript: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in transcript.lines().map(str::trim_end) {
        let once = line.strip_prefix("$ ").map(|command| (command, false));
        let repeated = || line.strip_prefix("$~ ").map(|command| (command, true));
        if let Some((command, is_repeated)) = once.or_else(repeated) {
            steps.push(Step { command: command.to_owned(), is_repeated, expected: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            match line.strip_prefix('>') {
                Some(more) if step.expected.is_empty() => {
                    step.command.push('\n');
                    step.command.push_str(more.strip_prefix(' ').unwrap_or(more));
                }
                _ => step.expected.push(line.to_owned()),
            }
        } else {
            assert!(line.is_empty(), "a transcript begins with a command: {line}");
        }
    }
    for step in &mut steps {
        while step.expected.last().is_some_and(String::is_empty) {
            step.expected.pop();
        }
    }
    steps
}

/// Runs of spaces count as one.
fn narrow(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether `line` is `pattern`, in which `…` stands for anything.
fn line_matches(pattern: &str, line: &str) -> bool {
    let parts: Vec<&str> = pattern.split('…').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return pattern == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

fn matches(expected: &[String], lines: &[String]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "…" => (0..=lines.len()).any(|skip| matches(rest, &lines[skip..])),
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, others)| line_matches(first, line) && matches(rest, others)),
    }
}

fn lines(text: &str) -> Vec<String> {
    text.trim_end().lines().map(narrow).collect()
}

impl Cluster {
    /// Runs a session in `namespace` from the root of the repository, and compares all that it prints.
    ///
    /// # Panics
    /// At the first command that prints something else, with what it printed in the form of a transcript.
    #[track_caller]
    pub fn check(&self, namespace: &str, transcript: &str) {
        let steps = steps(transcript);
        assert!(!steps.is_empty(), "no line of the transcript begins with `$ `");
        for step in steps {
            let expected: Vec<String> = step.expected.iter().map(|line| narrow(line)).collect();
            let deadline = Instant::now() + PATIENCE;
            loop {
                let printed = self.shell(namespace, &step.command);
                if matches(&expected, &lines(&printed)) {
                    break;
                }
                assert!(
                    step.is_repeated && Instant::now() < deadline,
                    "$ {}\n{printed}\n--- was to be\n{}\n--- {}",
                    step.command,
                    step.expected.join("\n"),
                    self.recent_events(&format!("/namespaces/{namespace}/"))
                );
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    }

    /// What a line of shell prints, errors and all, in the order in which it came.
    fn shell(&self, namespace: &str, command: &str) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        let kubeconfig = format!("{}/{namespace}.kubeconfig", self.directory().display());
        if !std::path::Path::new(&kubeconfig).exists() {
            std::fs::copy(self.admin(), &kubeconfig).expect("the cluster's directory can be written to");
            let context = ["config", "set-context", "--current", "--namespace", namespace];
            crate::kubectl::run(self.kubectl_command(), std::path::Path::new(&kubeconfig), &context, "")
                .expect("kubectl runs")
                .good();
        }
        let output = Command::new("sh")
            .args(["-c", &format!("exec 2>&1\n{command}")])
            .current_dir(crate::binaries::root())
            .env("PATH", format!("{}:{path}", self.bin().display()))
            .env("KUBECONFIG", kubeconfig)
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .output()
            .expect("there is a shell");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_outputs_are_told_apart() {
        let read = steps("\n$ cat <<E\n> a\n> E\na\n\n$~ kubectl get pods\n> odd\nNAME\n");
        let step = |command: &str, is_repeated, expected: &[&str]| Step {
            command: command.to_owned(),
            is_repeated,
            expected: expected.iter().map(|line| (*line).to_owned()).collect(),
        };
        assert_eq!(
            read,
            [step("cat <<E\na\nE", false, &["a"]), step("kubectl get pods\nodd", true, &["NAME"])]
        );
    }

    #[test]
    fn the_whole_output_counts_but_its_columns() {
        let check = |expected: &str, printed: &str, is_so: bool| {
            assert_eq!(matches(&lines(expected), &lines(printed)), is_so, "{expected:?} {printed:?}");
        };
        check("NAME  AGE\napp   …", "NAME      AGE\napp       5s\n", true);
        check("app …", "app 5s\nmodel 5s", false);
        check("app …\n…", "app 5s\nmodel 5s", true);
        check("a…b…c", "a1b2c", true);
        check("a…b…c", "a1c2b", false);
        check("a…a", "a", false);
        check("", "", true);
        check("", "surprise", false);
    }
}
