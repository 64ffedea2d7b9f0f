//! House rules as tests: what a reviewer would otherwise repeat in every review.

mod files;
mod logs;
mod names;
mod pages;
mod rooms;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use files::{complain, files, root, sources, text};

/// Lines of a source file. A longer file holds two ideas.
const MAX_SOURCE_LINES: usize = 700;

/// The modules that a file declares without a body (`mod x;`, in any visibility): name, and file where
/// `#[path]` names one.
fn declared_modules(source: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let mut path = None;
    for line in source.lines().map(str::trim_start) {
        if let Some(rest) = line.strip_prefix("#[path = \"") {
            path = rest.split_once('"').map(|(file, _)| file.to_owned());
            continue;
        }
        let bare = line.strip_prefix("pub").map_or(line, |rest| {
            let rest = rest.trim_start();
            rest.strip_prefix('(')
                .and_then(|rest| rest.split_once(')'))
                .map_or(rest, |(_, rest)| rest.trim_start())
        });
        if let Some((name, _)) = bare.strip_prefix("mod ").and_then(|rest| rest.split_once(';')) {
            found.push((name.trim().to_owned(), path.take()));
        }
    }
    found
}

/// Adds the files that the compiler sees when it starts at `entry`. The modules of a crate root lie beside
/// it.
fn reach(entry: &str, is_root: bool, reached: &mut BTreeSet<String>) {
    if !root().join(entry).is_file() || !reached.insert(entry.to_owned()) {
        return;
    }
    let path = Path::new(entry);
    let beside = path.parent().expect("a file lies in a directory");
    let own = match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("mod") => beside.to_path_buf(),
        _ if is_root => beside.to_path_buf(),
        stem => beside.join(stem.expect("a file has a name")),
    };
    for (name, path) in declared_modules(&text(entry)) {
        if let Some(path) = path {
            reach(&beside.join(path).display().to_string(), false, reached);
            continue;
        }
        reach(&own.join(format!("{name}.rs")).display().to_string(), false, reached);
        reach(&own.join(&name).join("mod.rs").display().to_string(), false, reached);
    }
}

/// Whether Cargo makes a target of a file: the root of a library or a program, an integration test, an
/// example, a fuzz target.
fn is_target(name: &str) -> bool {
    let directory = Path::new(name).parent().expect("a file lies in a directory");
    let package = |path: &Path| root().join(path).join("Cargo.toml").is_file();
    let parent = directory.parent().unwrap_or(directory);
    let last = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // The packages of this repository keep their library in src/NAME/lib.rs or in src/lib.rs.
    let is_crate_root = (name.ends_with("/lib.rs") || name.ends_with("/main.rs"))
        && (package(directory) || (last == "src" && package(parent)) || parent == Path::new("tests"));
    let is_single_file = ["tests", "examples", "benches", "fuzz_targets"].contains(&last) && package(parent);
    is_crate_root || is_single_file
}

#[test]
fn every_source_file_is_compiled() {
    let mut reached = BTreeSet::new();
    for name in sources().iter().filter(|name| is_target(name)) {
        reach(name, true, &mut reached);
    }
    let orphans: Vec<String> = sources()
        .into_iter()
        .filter(|name| !reached.contains(name))
        .map(|name| format!("{name}: no `mod` declares it, so it is never compiled: declare it or delete it"))
        .collect();
    complain(&orphans);
}

#[test]
fn every_file_has_a_doc_comment() {
    let silent: Vec<String> = sources()
        .into_iter()
        .filter(|name| {
            let text = text(name);
            !text.lines().any(|line| line.starts_with("//!")) && !text.starts_with("#![doc")
        })
        .map(|name| format!("{name}: has no //! that says what it holds"))
        .collect();
    complain(&silent);
}

#[test]
fn source_files_are_short() {
    let long: Vec<String> = sources()
        .into_iter()
        .filter_map(|name| {
            let lines = text(&name).lines().count();
            (lines > MAX_SOURCE_LINES)
                .then(|| format!("{name}: {lines} lines, more than {MAX_SOURCE_LINES}: split it"))
        })
        .collect();
    complain(&long);
}

#[test]
fn no_unfinished_code_is_committed() {
    // Written in two halves, so that this file does not match.
    let banned = [
        concat!("to", "do!("),
        concat!("db", "g!("),
        concat!("unimpl", "emented!("),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    let mut left = Vec::new();
    for name in sources() {
        for (index, line) in text(&name).lines().enumerate() {
            for word in banned.iter().filter(|word| line.contains(**word)) {
                left.push(format!("{name}:{}: {word} is not for committed code", index + 1));
            }
        }
    }
    complain(&left);
}

/// Crates without I/O, clocks and randomness.
const PURE: &[&str] = &["src/core", "src/cel", "src/edge", "src/policy", "src/sim", "src/text"];

#[test]
fn pure_crates_depend_on_nothing_impure() {
    let mut impure = Vec::new();
    for directory in PURE.iter().filter(|directory| root().join(directory).is_dir()) {
        let manifest = text(&format!("{directory}/Cargo.toml"));
        let dependencies: Vec<&str> = manifest
            .lines()
            .skip_while(|line| !line.starts_with("[dependencies]"))
            .filter_map(|line| line.split(['.', ' ', '=']).next())
            .collect();
        for name in ["tokio", "kube", "rustls", "axum", "rand", "chrono", "time", "getrandom"] {
            if dependencies.contains(&name) {
                impure.push(format!(
                    "{directory}/Cargo.toml: {name} has no place here: pass the value in instead"
                ));
            }
        }
    }
    complain(&impure);
    assert!(text("src/core/Cargo.toml").lines().any(|line| line.starts_with("serde")), "the core reads JSON");
}

#[test]
fn the_core_uses_nothing_whose_order_or_value_varies() {
    let mut varying = Vec::new();
    for name in files("src/core", "rs") {
        for (index, line) in text(&name).lines().enumerate() {
            for word in ["HashMap", "HashSet", "Instant::now", "SystemTime::now", "std::net"] {
                if line.contains(word) && !line.trim_start().starts_with("//") {
                    varying.push(format!("{name}:{}: {word} in the core makes its answers vary", index + 1));
                }
            }
        }
    }
    complain(&varying);
}

#[test]
fn the_top_level_holds_the_agreed_files() {
    let visible: BTreeSet<String> = fs::read_dir(root())
        .expect("the root is readable")
        .map(|entry| entry.expect("a readable entry").file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.') && name != "target")
        .collect();
    let agreed =
        "Cargo.lock Cargo.toml LICENSE README.md certs fuzz manifests policies rust-toolchain.toml src tests";
    assert_eq!(visible.into_iter().collect::<Vec<_>>().join(" "), agreed);
}

#[test]
fn modules_are_found_in_every_visibility() {
    let source = "mod a;\npub mod b;\npub(crate) mod c;\n    mod d;\nmod e {\n// mod f;\n#[path = \"x.rs\"]\nmod tests;";
    let found: Vec<String> = declared_modules(source)
        .into_iter()
        .map(|(name, path)| path.map_or(name.clone(), |path| format!("{name}={path}")))
        .collect();
    assert_eq!(found, ["a", "b", "c", "d", "tests=x.rs"]);
}
