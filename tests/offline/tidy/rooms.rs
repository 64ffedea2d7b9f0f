//! The arrows between rooms and between files: what may use what, read from `src/ARCHITECTURE.md` and from
//! the sources.
//!
//! A room is a directory or a file right below `src` or `src/core`. Tests may use any room.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::files::{complain, complain_except, files, is_test, root, text};
use super::names::without_tests;

/// The page with the table of rooms, and the heading of the table.
const PAGE: &str = "src/ARCHITECTURE.md";
const HEADING: &str = "## Allowed edges";

/// The room of text formats, which every other room may use. The table does not repeat it.
const FOR_ALL: &str = "text";

/// Crates whose top-level modules are rooms of their own, by the name of the crate in a path.
const SPLIT: &[(&str, &str)] = &[("portcullis_core", "core/"), ("portcullis", "")];

/// The table below the heading: each room and the rooms that it may use.
fn allowed(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let (_, section) = page.split_once(HEADING).unwrap_or_else(|| panic!("{PAGE} has no {HEADING:?}"));
    let section = section.split("\n## ").next().unwrap_or(section);
    let quoted =
        |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let rows = section.lines().filter_map(|line| line.strip_prefix('|')?.split_once('|'));
    let mut table: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // A room with many edges has several rows.
    for (rooms, uses) in rows {
        for room in quoted(rooms) {
            table.entry(room).or_default().extend(quoted(uses));
        }
    }
    table
}

/// The room of a source file; `None` for the root of a crate, which only names its modules.
fn room_of(file: &str) -> Option<String> {
    let path = file.strip_prefix("src/")?;
    let mut parts = path.split('/');
    let first = parts.next()?;
    let (prefix, name) = if first == "core" { ("core/", parts.next()?) } else { ("", first) };
    match name.strip_suffix(".rs").unwrap_or(name) {
        "lib" | "main" => None,
        name => Some(format!("{prefix}{name}")),
    }
}

/// Source without comments, and without the tests at its end.
fn code(source: &str) -> String {
    without_tests(source)
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .fold(String::new(), |text, line| text + line + "\n")
}

/// The paths of a use tree: `a::{b, c::D}` has `a b` and `a c D`.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        return vec![path.split("::").map(|part| part.trim().to_owned()).collect()];
    };
    let prefix: Vec<String> =
        prefix.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let mut branches = vec![String::new()];
    let mut depth = 0_i32;
    for c in inner.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match (c, depth) {
            (',', 0) => branches.push(String::new()),
            _ => branches.last_mut().expect("there is always one").push(c),
        }
    }
    let branches = branches.iter().filter(|branch| !branch.trim().is_empty());
    branches
        .flat_map(|branch| expand(branch))
        .map(|path| prefix.iter().cloned().chain(path).collect())
        .collect()
}

/// The paths of all `use` statements, re-exports included.
fn used(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut statement: Option<String> = None;
    for line in code.lines() {
        let start = line.trim_start();
        let start = match start.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(')').map_or(rest, |(_, rest)| rest),
            Some(rest) => rest,
            None => start,
        };
        if let Some(rest) = start.trim_start().strip_prefix("use ").filter(|_| statement.is_none()) {
            statement = Some(rest.to_owned());
        } else if let Some(open) = &mut statement {
            open.push_str(line.trim());
        }
        if let Some((tree, _)) = statement.as_ref().and_then(|open| open.split_once(';')) {
            paths.extend(expand(tree));
            statement = None;
        }
    }
    paths
}

/// Full paths inside of code: `crate::a::b` and `portcullis_core::a::b`, besides those of `use` statements.
fn mentioned(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for start in ["crate::", "portcullis_"] {
        for (at, _) in code.match_indices(start) {
            let inside = code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
            let rest = &code[at..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
            let path: Vec<String> = rest[..end].split("::").map(str::to_owned).collect();
            if !inside && path.len() > 1 {
                paths.push(path);
            }
        }
    }
    paths
}

/// The room that a path of `file` leads to, if it is another room.
fn target(file: &str, path: &[String], rooms: &BTreeSet<String>) -> Option<String> {
    let first = path.first()?.as_str();
    let own = room_of(file)?;
    let split = match first {
        "crate" if file.starts_with("src/core/") => "core/",
        // A crate that is one room.
        "crate"
            if ["src/cel/", "src/edge/", "src/policy/", "src/sim/", "src/text/"]
                .iter()
                .any(|d| file.starts_with(d)) =>
        {
            return None;
        }
        "crate" => "",
        other => match SPLIT.iter().find(|(name, _)| *name == other) {
            Some((_, prefix)) => prefix,
            None => {
                let room = other.strip_prefix("portcullis_")?.to_owned();
                return (room != own).then_some(room);
            }
        },
    };
    let room = format!("{split}{}", path.get(1)?);
    (room != own && rooms.contains(&room)).then_some(room)
}

/// Production sources: no tests.
fn production() -> Vec<String> {
    files("src", "rs").into_iter().filter(|file| !is_test(file) && !file.contains("/examples/")).collect()
}

#[test]
fn rooms_use_only_what_the_table_allows() {
    let table = allowed(&text(PAGE));
    let mut problems = Vec::new();
    let mut needed: BTreeSet<(String, String)> = BTreeSet::new();
    let sources = production();
    let rooms: BTreeSet<String> = sources.iter().filter_map(|file| room_of(file)).collect();
    for room in rooms.iter().filter(|room| !table.contains_key(*room)) {
        problems.push((room.clone(), format!("{PAGE}: the table of {HEADING:?} has no row for {room}")));
    }
    for room in table.keys().filter(|room| !rooms.contains(*room)) {
        problems.push((room.clone(), format!("{PAGE}: there is no room {room}")));
    }
    for file in &sources {
        let Some(own) = room_of(file) else { continue };
        let code = code(&text(file));
        for path in used(&code).into_iter().chain(mentioned(&code)) {
            let Some(room) = target(file, &path, &rooms).filter(|room| room != FOR_ALL) else { continue };
            needed.insert((own.clone(), room.clone()));
            if table.get(&own).is_some_and(|uses| !uses.contains(&room)) {
                let path = path.join("::");
                let problem = format!("{file}: {own} may not use {room} ({path}): see {HEADING:?} in {PAGE}");
                problems.push((format!("{own} -> {room}"), problem));
            }
        }
    }
    for (own, uses) in &table {
        for room in uses.iter().filter(|room| !needed.contains(&(own.clone(), (*room).clone()))) {
            let subject = format!("{own} -> {room}");
            problems.push((subject, format!("{PAGE}: {own} does not use {room} any more: remove the edge")));
        }
    }
    problems.sort();
    problems.dedup();
    complain_except("edge", &problems);
}

#[test]
fn the_table_of_rooms_has_no_circle() {
    let mut left = allowed(&text(PAGE));
    // Takes away, again and again, the rooms that use none of those that are left.
    while let Some(last) = left
        .iter()
        .find(|(_, uses)| !uses.iter().any(|room| left.contains_key(room)))
        .map(|(room, _)| room.clone())
    {
        left.remove(&last);
    }
    let circle: Vec<&str> = left.keys().map(String::as_str).collect();
    assert!(circle.is_empty(), "{PAGE}: the allowed edges have a circle among {}", circle.join(", "));
}

/// The files of a crate, and the `use` paths of each.
struct Sources {
    directory: &'static str,
    paths: BTreeMap<String, Vec<Vec<String>>>,
}

impl Sources {
    fn of(directory: &'static str, skipped: &[&str]) -> Self {
        let mine = |file: &String| {
            file.starts_with(directory) && !skipped.iter().any(|other| file.starts_with(other))
        };
        let paths = production().into_iter().filter(mine).map(|file| {
            let paths = used(&code(&text(&file)));
            (file, paths)
        });
        Self { directory, paths: paths.collect() }
    }

    /// The module path of a file within its crate.
    fn module(&self, file: &str) -> Vec<String> {
        let path = file.strip_prefix(self.directory).unwrap_or(file);
        let path = path.strip_suffix(".rs").unwrap_or(path);
        let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
        if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
            parts.pop();
        }
        parts
    }

    fn file_of(&self, module: &[String]) -> Option<String> {
        let path = format!("{}{}", self.directory, module.join("/"));
        let path = path.trim_end_matches('/');
        let candidates = [format!("{path}.rs"), format!("{path}/mod.rs"), format!("{path}/lib.rs")];
        candidates.into_iter().find(|file| self.paths.contains_key(file))
    }

    /// The file that a path of `file` leads to. A re-export is followed to where the item is declared.
    fn resolve(&self, file: &str, path: &[String], depth: usize) -> Option<String> {
        let module = self.module(file);
        let mut full = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" => module,
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            // A module that is declared in this file.
            first if self.file_of(&[module.as_slice(), &[first.to_owned()]].concat()).is_some() => {
                [module.as_slice(), &[first.to_owned()]].concat()
            }
            _ => return None,
        };
        for part in &path[1..] {
            if part == "super" {
                full.pop();
            } else {
                full.push(part.clone());
            }
        }
        let known = (0..=full.len()).rev().find_map(|length| Some((length, self.file_of(&full[..length])?)));
        let (length, found) = known?;
        let item = full.get(length);
        let exported = item.filter(|_| depth < 4 && found != file).and_then(|item| {
            let paths = self.paths[&found].iter();
            paths
                .filter(|path| path.last() == Some(item))
                .find_map(|path| self.resolve(&found, path, depth + 1))
        });
        Some(exported.unwrap_or(found))
    }
}

/// Files in different directories may not use each other in a circle. `mod.rs` gathers its directory and does
/// not count.
#[test]
fn files_of_different_directories_form_no_circle() {
    let crates = [
        Sources::of("src/core/", &[]),
        Sources::of("src/cel/", &[]),
        Sources::of("src/policy/", &[]),
        Sources::of("src/edge/", &[]),
        Sources::of("src/sim/", &[]),
        Sources::of("src/text/", &[]),
        Sources::of("src/", &["src/core/", "src/cel/", "src/edge/", "src/policy/", "src/sim/", "src/text/"]),
    ];
    let mut problems = Vec::new();
    for sources in &crates {
        let gathers = |file: &str| ["/mod.rs", "/lib.rs", "/main.rs"].iter().any(|end| file.ends_with(end));
        let mut edges: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (file, paths) in sources.paths.iter().filter(|(file, _)| !gathers(file)) {
            let targets = paths.iter().filter_map(|path| sources.resolve(file, path, 0));
            edges.insert(file, targets.filter(|found| found != file && !gathers(found)).collect());
        }
        let reaches = |from: &str, to: &str| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(file) = open.pop() {
                if file == to {
                    return true;
                }
                if seen.insert(file) {
                    open.extend(edges.get(file).into_iter().flatten().map(String::as_str));
                }
            }
            false
        };
        for (file, targets) in &edges {
            for used in targets.iter().filter(|used| Path::new(used).parent() != Path::new(file).parent()) {
                if reaches(used, file) {
                    let problem = format!("{file} uses {used}, which leads back to it: break the circle");
                    problems.push((format!("{file} -> {used}"), problem));
                }
            }
        }
    }
    complain_except("circle", &problems);
}

#[test]
fn paths_are_read_from_use_statements_and_from_code() {
    let source = "pub(crate) use crate::a::{B, c::{D, E as F}};\nuse super::g;\n// use crate::no::H;\n\
                  fn f() { crate::i::j(); portcullis_core::k::L::new(); }\n#[cfg(test)]\nmod tests {\nuse crate::z::Z;\n}\n";
    let code = code(source);
    let joined = |paths: Vec<Vec<String>>| -> Vec<String> { paths.iter().map(|p| p.join("::")).collect() };
    assert_eq!(joined(used(&code)), ["crate::a::B", "crate::a::c::D", "crate::a::c::E", "super::g"]);
    let found = joined(mentioned(&code));
    assert!(found.contains(&"crate::i::j".to_owned()), "{found:?}");
    assert!(found.contains(&"portcullis_core::k::L::new".to_owned()), "{found:?}");
    assert!(!found.iter().any(|path| path.contains("::z")), "{found:?}");
}

#[test]
fn the_table_is_read_from_its_section() {
    let page = "| `x` | `y` |\n## Allowed edges\n\n| room | may use |\n|---|---|\n| `a`, `b` | `c`, `d` |\n| `c` | |\n| `a` | `e` |\n\n## More\n| `e` | `f` |\n";
    let table = allowed(page);
    assert_eq!(table.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(table["a"].iter().collect::<Vec<_>>(), ["c", "d", "e"]);
    assert_eq!(table["b"].iter().collect::<Vec<_>>(), ["c", "d"]);
    assert!(table["c"].is_empty());
    complain(&[]);
    assert!(root().join(PAGE).is_file());
}
