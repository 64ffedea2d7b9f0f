//! The table of exercises and the guides are complete: every row names files that exist, and a cluster test
//! plays every guide.

use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_guide_is_tested_and_linked_from_the_readme() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let this = fs::read_to_string(repository().join("tests/cluster_tests/exercises.rs")).unwrap();
    for entry in fs::read_dir(repository().join("manifests/examples")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
            assert!(this.contains(&format!("\"{name}\"")), "no test plays {name}");
            assert!(
                readme.contains(&format!("manifests/examples/{name}")),
                "the README does not name {name}"
            );
        }
    }
}

/// The words in backquotes of a table cell.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_exercise_is_in_the_table_and_names_existing_files() {
    let rows = |letter: char, last: u32| (1..=last).map(move |number| format!("{letter}{number}"));
    let mut missing: Vec<String> =
        rows('A', 15).chain(rows('B', 5)).chain(rows('C', 9)).chain(rows('D', 5)).collect();
    missing.retain(|row| row != "C6");
    let table = fs::read_to_string(repository().join("tests/exercises/README.md")).unwrap();
    // A row with an empty first cell continues the exercise above it.
    let mut current: Option<&str> = None;
    for line in table.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", row, _, session, scenario, ""] = cells.as_slice() else { continue };
        if let Some(at) = missing.iter().position(|missing| missing == row) {
            missing.remove(at);
            current = Some(row);
        } else if !row.is_empty() || current.is_none() {
            assert!(["", "---"].contains(row), "{row} has two rows, or is not an exercise");
            continue;
        }
        let row = current.unwrap_or_default();
        for (cell, directory, ending) in
            [(session, "tests/exercises", ""), (scenario, "tests/scenarios", ".yaml")]
        {
            let names = quoted(cell);
            assert!(!names.is_empty(), "{row}: {cell:?} names no file");
            for name in names {
                let file = repository().join(directory).join(format!("{name}{ending}"));
                assert!(file.is_file(), "{row}: there is no {}", file.display());
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new(), "without a row");
}
