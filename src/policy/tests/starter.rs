//! Tests of the starter set in `policies/`: every file loads, alone and with all others, every case passes,
//! and the head comments show the real messages.

#![expect(clippy::disallowed_methods, reason = "the test reads the starter policies")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use portcullis_policy::cases::CaseVerdict;
use portcullis_policy::{PolicySet, Severity, SourceFile, load, read_test_suites, render_problems};

fn files() -> Vec<SourceFile> {
    let directory = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies"));
    let mut files: Vec<SourceFile> = fs::read_dir(directory)
        .expect("it is there")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "yaml"))
        .map(|path| SourceFile {
            name: path.file_name().expect("a file has a name").to_string_lossy().into_owned(),
            bytes: fs::read(&path).expect("it can be read"),
        })
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

fn is_cases(file: &SourceFile) -> bool {
    file.name.ends_with(".test.yaml")
}

/// Loads files that must have no problems, not even warnings.
fn loaded(files: &[SourceFile]) -> PolicySet {
    let loaded = load(files);
    assert!(loaded.problems.is_empty(), "{}", render_problems(&loaded.problems, files));
    loaded.set.expect("there are no problems")
}

fn text(file: &SourceFile) -> &str {
    std::str::from_utf8(&file.bytes).expect("it is text")
}

/// Returns the head comment after the line with `looks like:`, with single spaces.
fn shown(file: &SourceFile) -> Option<String> {
    let mut lines = text(file).lines().take_while(|line| line.starts_with('#'));
    lines.find(|line| line.contains("looks like:"))?;
    let words: Vec<&str> = lines.flat_map(|line| line.trim_start_matches('#').split_whitespace()).collect();
    Some(words.join(" "))
}

#[test]
fn every_file_loads_alone_and_with_all_others() {
    let files = files();
    let policies: Vec<SourceFile> = files.iter().filter(|file| !is_cases(file)).cloned().collect();
    assert!(policies.len() >= 15, "{} files", policies.len());
    loaded(&policies);
    for file in &policies {
        loaded(std::slice::from_ref(file));
        let tests = file.name.replace(".yaml", ".test.yaml");
        assert!(files.iter().any(|other| other.name == tests), "{}: there is no {tests}", file.name);
    }
}

#[test]
fn every_case_passes_and_every_policy_has_an_effect() {
    let files = files();
    let mut said: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut allowed: BTreeMap<String, usize> = BTreeMap::new();
    for file in files.iter().filter(|file| is_cases(file)) {
        let cases = read_test_suites(file);
        assert!(cases.problems.is_empty(), "{}", render_problems(&cases.problems, &files));
        for (suite, _) in cases.suites {
            let policy =
                suite.policies.first().cloned().unwrap_or_else(|| file.name.replace(".test.yaml", ".yaml"));
            let set = loaded(&[files.iter().find(|file| file.name == policy).expect("it is there").clone()]);
            for case in &suite.cases {
                let report = case.run(&set, &[], 0);
                assert!(
                    report.mismatches.is_empty(),
                    "{}: {}: {:#?}",
                    file.name,
                    case.name,
                    report.mismatches
                );
                let told = said.entry(policy.clone()).or_default();
                told.extend(report.denials.iter().chain(&report.warnings).cloned());
                if told.is_empty() && !report.policies.is_empty() {
                    told.push("(changes objects)".to_owned());
                }
                *allowed.entry(policy.clone()).or_default() +=
                    usize::from(report.verdict == CaseVerdict::Allowed);
            }
        }
    }
    for file in files.iter().filter(|file| !is_cases(file)) {
        let said = said.get(&file.name).map(Vec::as_slice).unwrap_or_default();
        assert!(!said.is_empty(), "{}: no case denies, warns or changes anything", file.name);
        assert!(
            allowed.get(&file.name).is_some_and(|count| *count > 0),
            "{}: no case allows anything",
            file.name
        );
        match shown(file) {
            Some(shown) => {
                assert!(
                    said.iter().any(|said| said.contains(&shown)),
                    "{}: no case gives the message\n{shown}\nbut\n{}",
                    file.name,
                    said.join("\n")
                );
            }
            None => assert!(
                text(file).contains("# Nothing is refused"),
                "{}: the comment shows no denial",
                file.name
            ),
        }
        assert!(text(file).contains("# Why: "), "{}: the comment does not say why", file.name);
    }
}

#[test]
fn policies_that_use_nothing_of_portcullis_use_none_of_its_variables() {
    let movable: Vec<SourceFile> = files()
        .into_iter()
        .filter(|file| {
            let comment: Vec<&str> = text(file).lines().take_while(|line| line.starts_with('#')).collect();
            let words: Vec<&str> =
                comment.iter().flat_map(|line| line.trim_start_matches('#').split_whitespace()).collect();
            words.join(" ").contains("Uses nothing of Portcullis")
        })
        .collect();
    assert_eq!(movable.len(), 4, "{:?}", movable.iter().map(|file| &file.name).collect::<Vec<_>>());
    for file in &movable {
        for line in text(file).lines().filter(|line| !line.trim_start().starts_with('#')) {
            for word in line.split(|c: char| !c.is_alphanumeric() && !"._-/".contains(c)) {
                let (name, field) = word.split_once('.').unwrap_or((word, ""));
                let ours =
                    !field.is_empty() && portcullis_policy::variables::names().any(|ours| ours == name);
                assert!(!ours, "{}: {word}: {line}", file.name);
            }
        }
    }
    assert!(load(&movable).problems.iter().all(|problem| problem.severity < Severity::Error));
}

/// Returns the YAML blocks of the guide.
fn blocks(guide: &str) -> Vec<String> {
    let parts = guide.split("```yaml\n").skip(1);
    parts.filter_map(|part| part.split_once("```").map(|(block, _)| block.to_owned())).collect()
}

#[test]
fn the_examples_of_the_guide_work() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/README.md");
    let guide = fs::read_to_string(path).expect("it is there");
    let policies: Vec<SourceFile> = files().into_iter().filter(|file| !is_cases(file)).collect();
    let blocks = blocks(&guide);
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        let is_test = block.contains("kind: PolicyTest");
        let name = if is_test { "team-limits.test.yaml" } else { "zz-example.yaml" };
        let file = SourceFile { name: name.to_owned(), bytes: block.into_bytes() };
        if is_test {
            let cases = read_test_suites(&file);
            assert!(cases.problems.is_empty(), "{}", render_problems(&cases.problems, &[file]));
            let set = loaded(&[policies
                .iter()
                .find(|file| file.name == "team-limits.yaml")
                .expect("it is there")
                .clone()]);
            for (suite, _) in cases.suites {
                for case in &suite.cases {
                    assert_eq!(case.run(&set, &[], 0).mismatches, [], "{}", case.name);
                }
            }
        } else {
            let all: Vec<SourceFile> = policies.iter().cloned().chain([file]).collect();
            loaded(&all);
        }
    }
    for file in &policies {
        assert!(guide.contains(&format!("]({})", file.name)), "{} is not in the guide", file.name);
    }
}
