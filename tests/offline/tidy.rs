//! House rules as a test: what a reviewer would otherwise have to say again and again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `directory` with this extension, relative to the root, in order.
fn files(directory: &str, extension: &str) -> Vec<String> {
    fn visit(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
        for entry in entries {
            let path = entry.expect("a readable directory").path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "target") {
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
        .map(|path| path.strip_prefix(&root).expect("it lies below the root").display().to_string())
        .collect();
    names.sort();
    names
}

fn sources() -> Vec<String> {
    [files("src", "rs"), files("tests", "rs"), files("fuzz", "rs")].concat()
}

fn text(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn complain(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// The modules that a file declares without a body (`mod x;`, in any visibility): name, and file where `#[path]` says so.
fn declared(source: &str) -> Vec<(String, Option<String>)> {
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

/// Files the compiler sees when it starts at `entry`; `entry`'s own modules lie beside it.
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
    for (name, path) in declared(&text(entry)) {
        if let Some(path) = path {
            reach(&beside.join(path).display().to_string(), false, reached);
            continue;
        }
        reach(&own.join(format!("{name}.rs")).display().to_string(), false, reached);
        reach(&own.join(&name).join("mod.rs").display().to_string(), false, reached);
    }
}

#[test]
fn every_source_file_is_compiled() {
    let mut reached = BTreeSet::new();
    for entry in [
        "src/lib.rs",
        "src/main.rs",
        "src/core/lib.rs",
        "src/cel/lib.rs",
        "src/policy/lib.rs",
        "src/sim/lib.rs",
        "src/text/lib.rs",
        "tests/bench/src/main.rs",
        "tests/cluster/src/lib.rs",
        "tests/cluster/src/main.rs",
    ] {
        reach(entry, true, &mut reached);
    }
    for name in sources() {
        let directory = Path::new(&name).parent().expect("a file lies in a directory");
        // Cargo makes a target of each file right in these, and of each directory with a main.rs in tests.
        let is_target = directory == Path::new("tests")
            || directory == Path::new("fuzz/fuzz_targets")
            || [
                "src/core/tests",
                "src/core/examples",
                "src/core/benches",
                "src/cel/tests",
                "src/cel/examples",
                "src/policy/tests",
                "src/policy/examples",
                "src/sim/tests",
            ]
            .iter()
            .any(|d| directory == Path::new(d))
            || (directory.parent() == Some(Path::new("tests")) && name.ends_with("/main.rs"));
        if is_target {
            reach(&name, true, &mut reached);
        }
    }
    let orphans: Vec<String> = sources()
        .into_iter()
        .filter(|name| !reached.contains(name))
        .map(|name| format!("{name}: no `mod` leads to it, so it is never compiled: declare it or delete it"))
        .collect();
    complain(&orphans);
}

#[test]
fn every_file_says_what_it_is_for() {
    let silent: Vec<String> = sources()
        .into_iter()
        .filter(|name| {
            let text = text(name);
            !text.lines().any(|line| line.starts_with("//!")) && !text.starts_with("#![doc")
        })
        .map(|name| format!("{name}: has no //! that says what it owns"))
        .collect();
    complain(&silent);
}

#[test]
fn files_are_one_idea_long() {
    const LINES: usize = 700;
    let long: Vec<String> = sources()
        .into_iter()
        .filter_map(|name| {
            let lines = text(&name).lines().count();
            (lines > LINES)
                .then(|| format!("{name}: {lines} lines, more than {LINES}: it holds two ideas, split it"))
        })
        .collect();
    complain(&long);
}

#[test]
fn nothing_is_left_lying_about() {
    // Written in two halves, so that this file does not find itself.
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

#[test]
fn the_core_stays_pure() {
    let manifest = text("src/core/Cargo.toml");
    let dependencies: Vec<&str> = manifest
        .lines()
        .skip_while(|line| !line.starts_with("[dependencies]"))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .collect();
    assert!(dependencies.contains(&"serde"), "the dependencies were not found: {dependencies:?}");
    let impure: Vec<String> = ["tokio", "kube", "rustls", "axum", "rand", "chrono", "time", "getrandom"]
        .into_iter()
        .filter(|name| dependencies.contains(name))
        .map(|name| {
            format!("src/core/Cargo.toml: {name} has no place in the core: pass the value in instead")
        })
        .collect();
    complain(&impure);

    let mut sneaked = Vec::new();
    for name in files("src/core", "rs") {
        for (index, line) in text(&name).lines().enumerate() {
            for word in ["HashMap", "HashSet", "Instant::now", "SystemTime::now", "std::net"] {
                if line.contains(word) && !line.trim_start().starts_with("//") {
                    sneaked.push(format!("{name}:{}: {word} in the core makes its answers vary", index + 1));
                }
            }
        }
    }
    complain(&sneaked);
}

#[test]
fn the_top_level_is_what_it_is_agreed_to_be() {
    let visible: BTreeSet<String> = fs::read_dir(root())
        .expect("the root is readable")
        .map(|entry| entry.expect("a readable entry").file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.') && name != "target")
        .collect();
    let agreed = "Cargo.lock Cargo.toml LICENSE README.md certs fuzz manifests policies src tests";
    assert_eq!(visible.into_iter().collect::<Vec<_>>().join(" "), agreed);
}

#[test]
fn modules_are_found_in_every_visibility() {
    let source = "mod a;\npub mod b;\npub(crate) mod c;\n    mod d;\nmod e {\n// mod f;\n#[path = \"x.rs\"]\nmod tests;";
    let found: Vec<String> = declared(source)
        .into_iter()
        .map(|(name, path)| path.map_or(name.clone(), |path| format!("{name}={path}")))
        .collect();
    assert_eq!(found, ["a", "b", "c", "d", "tests=x.rs"]);
}
