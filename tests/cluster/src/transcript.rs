//! Terminal sessions as tests: commands and their expected output.
//!
//! ```text
//! $ kubectl get pods
//! NAME    READY   STATUS    RESTARTS   AGE
//! app     1/1     Running   0          …
//! ```
//!
//! `$ ` runs a line in a shell once, `$~ ` repeats it until the output matches the expected one, `> `
//! continues the line above (a here-document). `…` stands for any text within a line, a line of `…` alone for
//! any lines. The width of columns does not count. Lines that begin with `#` are remarks. In a Markdown file
//! the sessions are the blocks that begin with "```console"; one that stands in a comment is played as well,
//! and not shown to readers.
//!
//! `PORTCULLIS_UPDATE_GOLDENS=1` rewrites sessions in files with the actual output, with `…` for ages, times
//! and identities. A command whose output matches is left unchanged, so a `…` that an author has written
//! stays.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::wait::WAIT_TIMEOUT;

/// How long an output must be stable before it is recorded.
const SETTLE_TIME: Duration = Duration::from_millis(2500);

#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    /// The lines before the command.
    remarks: Vec<String>,
    command: String,
    is_repeated: bool,
    expected: Vec<String>,
}

fn steps(transcript: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut remarks = Vec::new();
    for line in transcript.lines().map(str::trim_end) {
        if line.starts_with('#') {
            remarks.push(line.to_owned());
            continue;
        }
        let once = line.strip_prefix("$ ").map(|command| (command, false));
        let repeated = || line.strip_prefix("$~ ").map(|command| (command, true));
        if let Some((command, is_repeated)) = once.or_else(repeated) {
            let remarks = std::mem::take(&mut remarks);
            steps.push(Step { remarks, command: command.to_owned(), is_repeated, expected: Vec::new() });
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

/// A part of a Markdown file.
#[derive(Debug, PartialEq, Eq)]
enum PageSection<'t> {
    /// Text outside of sessions, fences included.
    Prose(&'t str),
    /// The lines between the fences of a session.
    Session(&'t str),
}

fn parts(text: &str) -> Vec<PageSection<'_>> {
    let mut parts = Vec::new();
    let (mut begun, mut at, mut inside) = (0, 0, false);
    for line in text.split_inclusive('\n') {
        let next = at + line.len();
        let fence = line.trim_end();
        if inside && fence == "```" {
            parts.push(PageSection::Session(&text[begun..at]));
            (begun, inside) = (at, false);
        } else if !inside && fence == "```console" {
            parts.push(PageSection::Prose(&text[begun..next]));
            (begun, inside) = (next, true);
        }
        at = next;
    }
    assert!(!inside, "a block ```console has no end");
    parts.push(PageSection::Prose(&text[begun..]));
    parts
}

/// The line with each run of spaces as one space.
fn narrow(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether `line` matches `pattern`, in which `…` matches any text.
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

/// A line as it is recorded: text that varies from run to run becomes `…`.
fn with_placeholders(line: &str) -> String {
    const FIELDS: [&str; 9] = [
        "UID:",
        "Resource Version:",
        "Creation Timestamp:",
        "Last Transition Time:",
        "Last Update Time:",
        "Start Time:",
        "Since:",
        "Deadline:",
        "Epoch:",
    ];
    let field = FIELDS.iter().find(|field| line.trim_start().starts_with(*field));
    if let Some((before, after)) =
        field.and_then(|field| line.split_at_checked(line.find(field)? + field.len()))
    {
        let gap = after.len() - after.trim_start().len();
        return format!("{before}{}…", &after[..gap]);
    }
    let mut text = String::new();
    for (index, word) in line.split(' ').enumerate() {
        let separator = if index == 0 { "" } else { " " };
        let written = if is_age(word) || is_address(word) { "…".to_owned() } else { without_suffix(word) };
        let _ = write!(text, "{separator}{written}");
    }
    text.trim_end().to_owned()
}

/// The characters of the random suffix in pod names that controllers generate.
fn without_suffix(word: &str) -> String {
    const ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";
    let is_random = |part: &str| part.len() == 5 && part.chars().all(|c| ALPHABET.contains(c));
    let (stem, rest) = word.split_at(word.find([',', ';', ':', '[']).unwrap_or(word.len()));
    match stem.rsplit_once('-') {
        Some((name, suffix)) if is_random(suffix) => format!("{name}-…{rest}"),
        _ => word.to_owned(),
    }
}

/// `4s`, `2m3s`, `1h`.
fn is_age(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h', 'd'])
        && word.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c))
}

fn is_address(word: &str) -> bool {
    word.parse::<std::net::Ipv4Addr>().is_ok()
}

fn as_written(step: &Step, printed: &str) -> String {
    let mut text = String::new();
    for remark in &step.remarks {
        let _ = writeln!(text, "{remark}");
    }
    let sign = if step.is_repeated { "$~ " } else { "$ " };
    let _ = writeln!(text, "{sign}{}", step.command.replace('\n', "\n> "));
    for line in printed.trim_end().lines() {
        let _ = writeln!(text, "{}", with_placeholders(line));
    }
    text
}

impl Cluster {
    /// Runs [`Cluster::check`] over a session in a file, or rewrites the file.
    ///
    /// # Panics
    /// As `check`; and when the file cannot be read or written.
    #[track_caller]
    pub fn check_file(&self, namespace: &str, file: &Path) {
        self.check_file_with(namespace, file, "");
    }

    /// As [`Cluster::check_file`], with lines of shell before each command that set variables of the session.
    ///
    /// # Panics
    /// As `check_file`.
    #[track_caller]
    pub fn check_file_with(&self, namespace: &str, file: &Path, settings: &str) {
        let named = |error: std::io::Error| -> String { panic!("{}: {error}", file.display()) };
        let text = fs::read_to_string(file).unwrap_or_else(named);
        let is_markdown = file.extension().is_some_and(|extension| extension == "md");
        let parts = if is_markdown { parts(&text) } else { vec![PageSection::Session(&text)] };
        let is_session = |part: &PageSection<'_>| matches!(part, PageSection::Session(_));
        assert!(parts.iter().any(is_session), "{} has no block that begins with ```console", file.display());
        eprintln!("{}", file.display());
        let write = std::env::var_os("PORTCULLIS_UPDATE_GOLDENS").is_some();
        let mut written = String::new();
        for part in parts {
            match part {
                PageSection::Prose(text) => written.push_str(text),
                PageSection::Session(text) if write => {
                    let came = steps(text).into_iter().map(|step| {
                        let printed = self.settled(namespace, &step, settings);
                        let expected: Vec<String> = step.expected.iter().map(|line| narrow(line)).collect();
                        let stands = matches(&expected, &lines(&printed));
                        as_written(&step, &if stands { step.expected.join("\n") } else { printed })
                    });
                    written.push_str(&came.collect::<Vec<_>>().join("\n"));
                }
                PageSection::Session(text) => self.check_with(namespace, text, settings),
            }
        }
        if write {
            fs::write(file, written).map(|()| String::new()).unwrap_or_else(named);
        }
    }

    /// The output of a step. A repeated step runs until its output is stable.
    fn settled(&self, namespace: &str, step: &Step, settings: &str) -> String {
        let command = format!("{settings}{}", step.command);
        let mut printed = self.shell(namespace, &command);
        let (begun, mut since) = (Instant::now(), Instant::now());
        while step.is_repeated && since.elapsed() < SETTLE_TIME && begun.elapsed() < WAIT_TIMEOUT {
            std::thread::sleep(Duration::from_millis(200));
            let again = self.shell(namespace, &command);
            let plain = |text: &str| text.lines().map(with_placeholders).collect::<Vec<_>>();
            if plain(&again) != plain(&printed) {
                since = Instant::now();
            }
            printed = again;
        }
        printed
    }

    /// Runs a session in `namespace` from the root of the repository, and compares its output.
    ///
    /// # Panics
    /// At the first command with another output, with the actual output as a session.
    #[track_caller]
    pub fn check(&self, namespace: &str, transcript: &str) {
        self.check_with(namespace, transcript, "");
    }

    #[track_caller]
    fn check_with(&self, namespace: &str, transcript: &str, settings: &str) {
        let steps = steps(transcript);
        assert!(!steps.is_empty(), "no line of the transcript begins with `$ `");
        for step in steps {
            let expected: Vec<String> = step.expected.iter().map(|line| narrow(line)).collect();
            let deadline = Instant::now() + WAIT_TIMEOUT;
            loop {
                let printed = self.shell(namespace, &format!("{settings}{}", step.command));
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
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// The output of a line of shell, stdout and stderr in their order.
    fn shell(&self, namespace: &str, command: &str) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        let kubeconfig = format!("{}/{namespace}.kubeconfig", self.directory().display());
        if !Path::new(&kubeconfig).exists() {
            fs::copy(self.admin(), &kubeconfig).expect("the cluster's directory can be written to");
            let context = ["config", "set-context", "--current", "--namespace", namespace];
            crate::kubectl::run(self.kubectl_command(), Path::new(&kubeconfig), &context, "")
                .expect("kubectl runs")
                .expect_success();
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
    fn commands_and_outputs_are_distinguished() {
        let read = steps("\n$ cat <<E\n> a\n> E\na\n\n$~ kubectl get pods\n> odd\nNAME\n");
        let step = |command: &str, is_repeated, expected: &[&str]| Step {
            remarks: Vec::new(),
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
    fn sessions_are_found_in_a_guide() {
        let text = "Type:\n```console\n$ a\nb\n```\nand\n```text\nno\n```\n";
        let expected = [
            PageSection::Prose("Type:\n```console\n"),
            PageSection::Session("$ a\nb\n"),
            PageSection::Prose("```\nand\n```text\nno\n```\n"),
        ];
        assert_eq!(parts(text), expected);
        assert_eq!(parts("nothing\n"), [PageSection::Prose("nothing\n")]);
    }

    #[test]
    fn random_parts_of_the_output_become_placeholders() {
        for (line, written) in [
            ("app-with-models   Waiting   3/3   4m12s", "app-with-models   Waiting   3/3   …"),
            (
                "  Normal  Lifted  2s (x3 over 5m)  portcullis  3/3",
                "  Normal  Lifted  … (x3 over 5m)  portcullis  3/3",
            ),
            ("  UID:   0b3c", "  UID:   …"),
            ("render-x7k2p train-0-bbbbb, worker-1", "render-… train-0-…, worker-1"),
            ("app   1/1   Running   0   5s   10.0.0.1   gpu-1", "app   1/1   Running   0   …   …   gpu-1"),
            ("model-1 needs 8000 MiB", "model-1 needs 8000 MiB"),
        ] {
            assert_eq!(with_placeholders(line), written);
        }
        let session = "# why\n$~ kubectl get pods\nNAME   AGE\napp    …\n";
        assert_eq!(as_written(&steps(session)[0], "NAME   AGE\napp    7s\n"), session);
    }

    #[test]
    fn the_output_is_compared_without_column_padding() {
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
