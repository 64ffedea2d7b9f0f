//! Words that the glossary replaces are used nowhere: not in names, comments, messages or pages.

use regex::Regex;

use super::files::{complain_except, files, pages, sources, text};

/// A pattern of retired words, and what to write instead. Identifiers are read as the words that they are
/// made of.
const RETIRED: &[(&str, &str)] = &[
    ("nobody|somebody|everybody|anybody|whoever|whomever|whom", "name the actor"),
    ("(is|are|was|were) (said|told)", "say who reports what: \"the engine reports\""),
    ("(let|lets) go|is let in", "remove the gate, release the reservation, or admit"),
    ("(members?|pods?|places?|those) to come|to come (place|member|record)s?", "placeholder"),
    ("takes its pods|take its pods", "schedulable, feasible"),
    ("what would help", "remedy"),
    ("herald|announcer|courtesy", "event recorder, group status sync"),
    ("licen[cs]ed|unlicensed|licen[cs]es?( (a|the|its|every) (lift|member|pod)s?)|licences?", "lift permit"),
    ("lapses?|lapsed", "timeout, expiry"),
    ("policy desk|patient thread|the patient", "review handler, slow lane"),
    ("hearing", "evaluation context"),
    ("patience", "timeout"),
    ("in force", "active"),
    ("comes? out as told", "ends as expected"),
    ("good right|riddle|by heart|in its tracks|as if nothing|in the way", "plain words"),
    (
        "(room|rooms) held|held room|(have|has|with|without|leaves?|waits? for( the)?|is) room|room for",
        "capacity, reservation",
    ),
    ("believes?", "name what the actor has observed"),
    ("goes? on (with|as|later|until|from|again)", "continues, resumes"),
    ("(says|said|told) so|so told|as it stands|how (it|they) stands?", "report, status"),
];

/// Where a pattern is right: files with words of others, the list itself, and former names in the changelog.
const QUOTED: &[&str] = &["tests/offline/tidy/words.rs", "tests/data/", ".github/CHANGELOG.md"];

/// A line with identifiers as separate words: `to_come` and `ToCome` read "to come".
fn as_words(line: &str) -> String {
    let mut words = String::with_capacity(line.len() + 8);
    let mut before = ' ';
    for c in line.chars() {
        if c.is_uppercase() && before.is_lowercase() {
            words.push(' ');
        }
        words.push(if c == '_' { ' ' } else { c });
        before = c;
    }
    words
}

fn retired() -> Vec<(Regex, &'static str)> {
    RETIRED
        .iter()
        .map(|(pattern, instead)| {
            let whole = format!(r"(?i)\b(?:{pattern})\b");
            (Regex::new(&whole).unwrap_or_else(|e| panic!("{pattern}: {e}")), *instead)
        })
        .collect()
}

#[test]
fn retired_words_are_not_used() {
    let retired = retired();
    let yaml = ["manifests", "policies", "tests/scenarios"].map(|directory| files(directory, "yaml"));
    let sessions = ["tests/exercises", "tests/installed"].map(|directory| files(directory, "txt"));
    let read = [sources(), pages(), yaml.concat(), sessions.concat(), files("tests", "go")].concat();
    let mut problems = Vec::new();
    for name in read {
        if QUOTED.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        for (index, line) in text(&name).lines().enumerate() {
            let words = as_words(line);
            for (pattern, instead) in &retired {
                if let Some(found) = pattern.find(&words) {
                    let found = found.as_str();
                    let problem = format!("{name}:{}: {found:?} is retired. Use: {instead}", index + 1);
                    problems.push((name.clone(), problem));
                }
            }
        }
    }
    complain_except("word", &problems);
}

#[test]
fn retired_words_are_found_in_prose_and_in_identifiers() {
    let retired = retired();
    let hits = |line: &str| retired.iter().any(|(pattern, _)| pattern.is_match(&as_words(line)));
    let found = [
        "Nobody watches.",
        "fn whoever_leads()",
        "struct MembersToCome;",
        "PATIENCE",
        "it is told",
        "without a licence",
        "RoomHeld",
        "its status says so",
    ];
    for line in found {
        assert!(hits(line), "{line}");
    }
    for line in ["license = \"Apache-2.0\"", "The engine reports it.", "to complain", "a patient's record"] {
        assert!(!hits(line), "{line}");
    }
}
