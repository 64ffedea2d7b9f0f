//! Records how the API server evaluates policies. The test creates the policies of
//! `tests/data/policies/differential/*.yaml` on a real control plane, sends their requests, and compares
//! every answer with the `.json` beside them. The tests of `src/policy` compare the evaluation with the
//! same files.
//!
//! `PORTCULLIS_UPDATE_GOLDENS=1 cargo cluster-tests policies` rewrites the files.

mod cases;
mod recorder;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};

use portcullis_test_cluster::{Version, available};
use serde_json::Value as Json;

use self::cases::Case;
use self::stage::Stage;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/policies/differential")
}

/// The names of the files without their extension.
fn topics() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(data())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn the_api_server_answers_as_recorded() {
    if !available(Version::default()) {
        return;
    }
    let update = std::env::var_os("PORTCULLIS_UPDATE_GOLDENS").is_some();
    let topics = topics();
    let mut cases: Vec<Case> = Vec::new();
    for topic in &topics {
        let text = fs::read_to_string(data().join(format!("{topic}.yaml"))).unwrap();
        let read: Json = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{topic}.yaml: {e}"));
        cases.extend(read.as_array().unwrap().iter().map(|case| Case::new(topic, case)));
    }
    let mut names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    names.sort_unstable();
    let twice: Vec<&[&str]> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");

    let stage = Stage::new(&cases);
    let answers = stage.play(&cases);
    let mut wrong = Vec::new();
    for topic in &topics {
        let found: Vec<&Json> = cases
            .iter()
            .zip(&answers)
            .filter(|(case, _)| case.topic == *topic)
            .map(|(_, answer)| answer)
            .collect();
        let path = data().join(format!("{topic}.json"));
        if update {
            let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
            fs::write(&path, format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let written: Vec<Json> = serde_json::from_str(&text).unwrap();
        if written.len() != found.len() {
            wrong.push(format!("{topic}: {} cases, {} are written down", found.len(), written.len()));
        }
        for (found, written) in found.into_iter().zip(&written) {
            if in_fixed_order(&found.to_string()) != in_fixed_order(&written.to_string()) {
                wrong.push(format!("{topic}: {}\n  now     {found}\n  written {written}", found["case"]));
            }
        }
    }
    let count = cases.len();
    assert!(wrong.is_empty(), "{} of {count} cases:\n{}", wrong.len(), wrong.join("\n"));
    println!("{count} cases");
}

/// An answer with the fields of each list of atomic fields sorted. The API server prints them in the random
/// order of a Go map.
fn in_fixed_order(answer: &str) -> String {
    const LIST: &str = "may not mutate atomic arrays, maps or structs: ";
    let mut parts = answer.split(LIST);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (list, rest) = part.split_at(part.find('"').unwrap_or(part.len()));
        let mut fields: Vec<&str> = list.split(", ").collect();
        fields.sort_unstable();
        text = format!("{text}{LIST}{}{rest}", fields.join(", "));
    }
    text
}

#[test]
fn lists_of_atomic_fields_are_compared_without_their_order() {
    let answer = |fields: &str| {
        format!(r#"{{"message":"may not mutate atomic arrays, maps or structs: {fields}","code":422}}"#)
    };
    assert_eq!(in_fixed_order(&answer(".spec.b, .spec.a")), answer(".spec.a, .spec.b"));
    assert_ne!(in_fixed_order(&answer(".spec.b, .spec.a")), in_fixed_order(&answer(".spec.a")));
}
