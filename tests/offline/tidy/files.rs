//! The files that the house rules read, and the list of exceptions.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `directory` with this extension, relative to the root, in order.
pub(super) fn files(directory: &str, extension: &str) -> Vec<String> {
    fn visit(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
        for entry in entries {
            let path = entry.expect("a readable directory").path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "target" && name != ".git") {
                    visit(&path, extension, found);
                }
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    let root = root();
    visit(&root.join(directory), extension, &mut found);
    let mut names: Vec<String> = found
        .into_iter()
        .map(|path| path.strip_prefix(&root).expect("the file is below the root").display().to_string())
        .collect();
    names.sort();
    names
}

/// Every Rust source file of the repository.
pub(super) fn sources() -> Vec<String> {
    [files("src", "rs"), files("tests", "rs"), files("fuzz", "rs")].concat()
}

/// Every Markdown file of the repository.
pub(super) fn pages() -> Vec<String> {
    files("", "md")
}

/// The text of a file, named relative to the root.
pub(super) fn text(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Whether a source file holds tests only, by its name or its directory.
pub(super) fn is_test(name: &str) -> bool {
    let path = Path::new(name);
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    // Below tests/, only the two libraries for tests are not themselves tests.
    let library = name.starts_with("tests/bench/") || name.starts_with("tests/cluster/");
    stem == "tests" || stem.ends_with("_tests") || (name.contains("tests/") && !library)
}

/// Fails with one problem a line.
pub(super) fn complain(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// Lines `CHECK SUBJECT`: what a check still accepts. The list only shrinks.
const EXCEPTIONS: &str = "tests/offline/tidy/exceptions.txt";

/// Fails with every problem whose subject has no exception, and with every exception that has no problem.
///
/// `PORTCULLIS_UPDATE_GOLDENS=1` removes exceptions without a problem from the file instead. It never adds
/// one.
pub(super) fn complain_except(check: &str, problems: &[(String, String)]) {
    // Tests run in parallel, and each rewrites the same file.
    static FILE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one_at_a_time = FILE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let list = fs::read_to_string(root().join(EXCEPTIONS)).unwrap_or_default();
    let accepted: BTreeSet<&str> =
        list.lines().filter_map(|line| line.strip_prefix(check)?.strip_prefix(' ')).collect();
    let found: BTreeSet<&str> = problems.iter().map(|(subject, _)| subject.as_str()).collect();
    let unneeded: BTreeSet<String> =
        accepted.iter().filter(|subject| !found.contains(*subject)).map(|s| format!("{check} {s}")).collect();
    if std::env::var_os("PORTCULLIS_UPDATE_GOLDENS").is_some() && !unneeded.is_empty() {
        let kept: String =
            list.lines().filter(|line| !unneeded.contains(*line)).map(|line| format!("{line}\n")).collect();
        fs::write(root().join(EXCEPTIONS), kept).expect("the list of exceptions can be written");
    }
    let mut lines: Vec<String> = problems
        .iter()
        .filter(|(subject, _)| !accepted.contains(subject.as_str()))
        .map(|(_, problem)| problem.clone())
        .collect();
    if std::env::var_os("PORTCULLIS_UPDATE_GOLDENS").is_none() {
        lines.extend(unneeded.iter().map(|line| {
            format!("{EXCEPTIONS}: the exception {line:?} is not needed any more: remove its line")
        }));
    }
    complain(&lines);
}
