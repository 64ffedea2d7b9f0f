//! The loader rejects the documents that the API server rejects, and no others. The documents are in
//! `tests/data/policies/differential`, with the API server's answers that `tests/cluster_tests/policies`
//! records.

#![expect(clippy::disallowed_methods, reason = "the test reads recorded answers")]

use std::fs;
use std::path::Path;

use portcullis_policy::{Severity, SourceFile, load};
use serde_json::Value as Json;

fn cases() -> Vec<Json> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/policies/differential");
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable directory").path()).collect();
    paths.sort();
    let recorded = paths.iter().filter(|path| path.extension().is_some_and(|suffix| suffix == "json"));
    recorded
        .flat_map(|path| {
            let text = fs::read_to_string(path).expect("it is text");
            let cases: Vec<Json> =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            cases
        })
        .collect()
}

fn list<'c>(case: &'c Json, key: &str) -> &'c [Json] {
    case[key].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn the_loader_rejects_exactly_the_documents_that_the_api_server_rejects() {
    let cases = cases();
    assert!(cases.len() > 150, "there are only {} cases", cases.len());
    let known: Json = serde_json::from_str(include_str!("../../../tests/data/policies/differences.json"))
        .expect("it is JSON");
    let mut wrong = Vec::new();
    for case in &cases {
        let name = case["case"].as_str().unwrap_or_default();
        let documents = list(case, "documents");
        let file = |(at, document): (usize, &Json)| SourceFile {
            name: format!("{at:02}.json"),
            bytes: document.to_string().into_bytes(),
        };
        let files: Vec<SourceFile> =
            documents.iter().chain(list(case, "params")).enumerate().map(file).collect();
        let loaded = load(&files);
        let errors: Vec<&str> = loaded
            .problems
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            // The loader also reports the binding of a rejected policy, because the policy is missing.
            .filter(|problem| !problem.message.contains("in these files"))
            .map(|problem| problem.message.as_str())
            .collect();
        let refused: Vec<&str> = list(case, "refused").iter().filter_map(Json::as_str).collect();
        // `differences.json` lists the documents that only the loader rejects, with the reason.
        if errors.is_empty() != refused.is_empty() && known.get(name).is_none() {
            wrong.push(format!("{name}\n  API server: {refused:?}\n  here: {errors:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
