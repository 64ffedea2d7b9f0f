//! Type names are unique within a crate, so that a name alone says where the type is.

use std::collections::BTreeMap;

use super::files::{complain_except, is_test, sources, text};

/// The crate of a source file: its directory and its name. The first directory that matches counts.
const CRATES: &[(&str, &str)] = &[
    ("src/core/", "core"),
    ("src/cel/", "cel"),
    ("src/policy/", "policy"),
    ("src/edge/", "edge"),
    ("src/sim/", "sim"),
    ("src/text/", "text"),
    ("tests/bench/", "bench"),
    ("tests/cluster/", "test-cluster"),
    ("src/", "portcullis"),
];

pub(super) fn crate_of(file: &str) -> Option<&'static str> {
    CRATES.iter().find(|(directory, _)| file.starts_with(directory)).map(|(_, name)| *name)
}

/// The name of the type that a line declares, in any visibility. Associated types are indented and do not
/// count.
pub(super) fn declared_type(line: &str) -> Option<&str> {
    let bare = line.trim_start();
    let bare = bare.strip_prefix("pub").map_or(bare, |rest| {
        rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest)
    });
    let (keyword, rest) = bare.trim_start().split_once(' ')?;
    let counts = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    (counts && name.starts_with(char::is_uppercase)).then_some(name)
}

/// The lines before the first `#[cfg(test)]` module with a body: such a module is the last item of its file.
pub(super) fn without_tests(source: &str) -> impl Iterator<Item = &str> {
    let mut lines = source.lines().peekable();
    std::iter::from_fn(move || {
        let line = lines.next()?;
        let module = lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        (line != "#[cfg(test)]" || !module).then_some(line)
    })
}

#[test]
fn type_names_are_unique_within_a_crate() {
    let mut declared: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for file in sources().into_iter().filter(|file| !is_test(file)) {
        let Some(name) = crate_of(&file) else { continue };
        let source = text(&file);
        for (index, line) in without_tests(&source).enumerate() {
            if let Some(found) = declared_type(line) {
                let places = declared.entry((name, found.to_owned())).or_default();
                places.push(format!("{file}:{}", index + 1));
            }
        }
    }
    let twice = declared.into_iter().filter(|(_, places)| places.len() > 1);
    let problems = twice.map(|((krate, name), places)| {
        let subject = format!("{krate} {name}");
        (subject, format!("crate {krate} declares the type {name} more than once: {}", places.join(", ")))
    });
    complain_except("type", &problems.collect::<Vec<_>>());
}

#[test]
fn declarations_of_types_are_found_in_every_visibility() {
    let cases = [
        ("struct A;", Some("A")),
        ("pub enum B {", Some("B")),
        ("pub(crate) trait C<'a> {", Some("C")),
        ("    pub(super) struct D<T>(T);", Some("D")),
        ("type E = u8;", Some("E")),
        ("    type Output = u8;", None),
        ("// struct F;", None),
        ("let structure = 1;", None),
    ];
    for (line, name) in cases {
        assert_eq!(declared_type(line), name, "{line}");
    }
    let source = "struct A;\n#[cfg(test)]\nmod tests;\nstruct B;\n#[cfg(test)]\nmod more {\nstruct A;\n}\n";
    let found: Vec<&str> = without_tests(source).filter_map(declared_type).collect();
    assert_eq!(found, ["A", "B"]);
}
