//! Compares the evaluation with the API server's answers.
//!
//! `tests/cluster_tests/policies` records the cases of `tests/data/policies/differential/*.json` on a real
//! control plane. Decision, message, warnings, audit annotations and object must be equal.
//! `tests/data/policies/differences.json` lists intended differences, with the reason.

#![expect(clippy::disallowed_methods, reason = "the test reads recorded answers")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use portcullis_policy::evaluation::{CompiledPolicies, MutatingPolicy, ParamStore, ValidatingPolicy};
use portcullis_policy::{
    AdmissionRequest, ClusterData, Denial, Severity, SourceFile, ValidationResult, WorkBudget, load,
};
use serde_json::{Value as Json, json};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/policies")
}

/// Whether a field is a default. The API server sets defaults after each mutation; here it does so after the
/// answer of the webhook.
fn is_default(key: &str, value: &Json) -> bool {
    [
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        ("imagePullPolicy", json!("IfNotPresent")),
        ("imagePullPolicy", json!("Always")),
        ("resources", json!({})),
        ("protocol", json!("TCP")),
        ("apiVersion", json!("v1")),
        ("type", json!("")),
        ("name", json!("")),
    ]
    .contains(&(key, value.clone()))
}

/// Collects the differences between the object of the evaluation and that of the API server.
fn differs(ours: &Json, theirs: &Json, path: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Json::Object(ours), Json::Object(theirs)) => {
            for (key, value) in theirs {
                let path = format!("{path}.{key}");
                match ours.get(key) {
                    Some(ours) => differs(ours, value, &path, found),
                    None if is_default(key, value) => {}
                    None => found.push(format!("{path}: theirs has {value}")),
                }
            }
            for (key, value) in ours.iter().filter(|(key, _)| !theirs.contains_key(*key)) {
                // The next encoding drops null and empty values.
                let empty =
                    value.is_null() || value == &json!({}) || value == &json!([]) || value == &json!("");
                if !empty {
                    found.push(format!("{path}.{key}: ours has {value}"));
                }
            }
        }
        (Json::Array(ours), Json::Array(theirs)) if ours.len() == theirs.len() => {
            for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                differs(ours, theirs, &format!("{path}[{index}]"), found);
            }
        }
        _ if ours != theirs => found.push(format!("{path}: ours {ours}, theirs {theirs}")),
        _ => {}
    }
}

/// Returns `pods "a" is forbidden: `, with which the API server begins its denials.
fn subject(request: &Json) -> String {
    let resource = |key: &str| {
        request["requestResource"][key].as_str().or(request["resource"][key].as_str()).unwrap_or_default()
    };
    let kind = match resource("group") {
        "" => resource("resource").to_owned(),
        group => format!("{}.{group}", resource("resource")),
    };
    let text = |json: &Json| json.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let name = text(&request["name"])
        .or_else(|| text(&request["object"]["metadata"]["name"]))
        .unwrap_or_else(|| "Unknown".to_owned());
    format!("{kind} \"{name}\" is forbidden: ")
}

fn code(reason: &str) -> u64 {
    match reason {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        "InternalError" => 500,
        _ => 422,
    }
}

/// Returns denials in the form of the API server.
fn refusal(request: &Json, denials: &[Denial], mutating: bool) -> Json {
    let first = &denials[0];
    if mutating {
        let code = if first.reason == "InternalError" { 500 } else { 403 };
        let causes: Vec<Json> = denials.iter().map(|denial| json!({ "message": denial.message })).collect();
        let mut told =
            json!({ "code": code, "message": first.message, "reason": first.reason, "causes": causes });
        if code == 500 {
            told["causes"] = json!([{ "message": first.detail }]);
        }
        return told;
    }
    json!({
        "code": code(&first.reason), "message": format!("{}{}", subject(request), first.message),
        "reason": first.reason, "causes": [{ "message": first.message }],
    })
}

/// Returns the compiled policies of the valid documents of a case.
fn compile(case: &Json) -> CompiledPolicies {
    let documents = case["documents"].as_array().expect("documents");
    let (mut validating, mut mutating) = (Vec::new(), Vec::new());
    let mut diagnostics = Vec::new();
    let kind = |document: &Json| document["kind"].as_str().unwrap_or_default().to_owned();
    for document in documents {
        match kind(document).as_str() {
            "ValidatingAdmissionPolicy" => {
                validating.extend(ValidatingPolicy::compile(document, &mut diagnostics));
            }
            "MutatingAdmissionPolicy" => mutating.extend(MutatingPolicy::compile(document, &mut diagnostics)),
            _ => {}
        }
    }
    for document in documents {
        let name = document["spec"]["policyName"].as_str().unwrap_or_default();
        match kind(document).as_str() {
            "ValidatingAdmissionPolicyBinding" => {
                for policy in validating.iter_mut().filter(|policy| policy.name() == name) {
                    policy.bind(document, &mut diagnostics);
                }
            }
            "MutatingAdmissionPolicyBinding" => {
                for policy in mutating.iter_mut().filter(|policy| policy.name() == name) {
                    policy.bind(document, &mut diagnostics);
                }
            }
            _ => {}
        }
    }
    let mut params = ParamStore::default();
    for param in case["params"].as_array().into_iter().flatten() {
        params.add(param.clone());
    }
    CompiledPolicies::new(validating, mutating, params)
}

/// Returns the errors of the loader for each document of a case.
fn refusals(case: &Json) -> BTreeMap<usize, Vec<String>> {
    let documents = case["documents"].as_array().expect("documents");
    let params = case["params"].as_array().into_iter().flatten();
    let files: Vec<SourceFile> = documents
        .iter()
        .chain(params)
        .enumerate()
        .map(|(index, document)| SourceFile {
            name: format!("{index}.json"),
            bytes: serde_json::to_vec_pretty(document).expect("JSON"),
        })
        .collect();
    let mut refused: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for problem in load(&files).problems.iter().filter(|problem| problem.severity == Severity::Error) {
        let index = problem.file.trim_end_matches(".json").parse().expect("a position");
        refused.entry(index).or_default().push(problem.message.clone());
    }
    refused
}

/// Returns the differences of one request.
fn request(rules: &CompiledPolicies, cluster: &ClusterData, told: &Json) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mutating, validating) = (&told["mutating"], &told["validating"]);
    let mut ours: Option<Json> = None;
    if mutating.is_object() {
        let mutation =
            rules.mutate(&AdmissionRequest { json: mutating }, cluster, &WorkBudget::unlimited(), &|_| None);
        if !mutation.denials.is_empty() {
            ours = Some(refusal(mutating, &mutation.denials, true));
        } else if told["object"].is_object() {
            let object = mutation.object.unwrap_or_else(|| mutating["object"].clone());
            differs(&object, &told["object"], "", &mut wrong);
        }
    }
    if validating.is_object() && ours.is_none() {
        let validation =
            rules.validate(&AdmissionRequest { json: validating }, cluster, &WorkBudget::unlimited());
        if !validation.denials.is_empty() {
            ours = Some(refusal(validating, &validation.denials, false));
        }
        compare_notes(&validation, told, &mut wrong);
    }
    let expected = told["code"].as_u64().unwrap_or_default();
    match ours {
        None if expected >= 400
            && ["denied request: ", "Internal error occurred: "]
                .iter()
                .any(|words| told["message"].as_str().is_some_and(|message| message.contains(words))) =>
        {
            wrong.push(format!("ours allows it, theirs says {expected} {}", told["message"]));
        }
        Some(refusal) => {
            for key in ["code", "message", "reason", "causes"] {
                if refusal[key] != told[key] {
                    wrong.push(format!("{key}:\n      ours   {}\n      theirs {}", refusal[key], told[key]));
                }
            }
        }
        None => {}
    }
    wrong
}

fn compare_notes(validation: &ValidationResult, told: &Json, wrong: &mut Vec<String>) {
    let warnings: Vec<String> = told["warnings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .filter(|warning| warning.starts_with("Validation failed"))
        .map(str::to_owned)
        .collect();
    // The API server drops repeated values.
    let mut ours: Vec<String> = Vec::new();
    for warning in &validation.warnings {
        if !ours.contains(warning) {
            ours.push(warning.clone());
        }
    }
    if ours != warnings {
        wrong.push(format!("warnings:\n      ours   {ours:?}\n      theirs {warnings:?}"));
    }
    let decoded = |(key, value): (&String, String)| {
        (key.clone(), serde_json::from_str(&value).unwrap_or_else(|_| Json::String(value.clone())))
    };
    let audit: BTreeMap<String, Json> =
        validation.audit.iter().map(|(k, v)| decoded((k, v.clone()))).collect();
    let theirs: BTreeMap<String, Json> = told["audit"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| decoded((key, value.as_str().unwrap_or_default().to_owned())))
        .collect();
    if audit != theirs {
        wrong.push(format!("audit:\n      ours   {audit:?}\n      theirs {theirs:?}"));
    }
}

/// Returns the differences of one case.
fn check(case: &Json) -> Vec<String> {
    let mut wrong = Vec::new();
    let rules = compile(case);
    let refused = refusals(case);
    let documents = case["documents"].as_array().expect("documents");
    let told = case["refused"].as_array().expect("refusals");
    let any = told.iter().any(Json::is_string);
    for (index, (document, said)) in documents.iter().zip(told).enumerate() {
        match (said.as_str(), refused.get(&index)) {
            // Other documents can depend on a rejected one.
            (None, Some(ours)) if !any => wrong.push(format!("ours refuses {}: {ours:?}", document["kind"])),
            (Some(said), None) => wrong.push(format!("ours takes {}, theirs says {said}", document["kind"])),
            _ => {}
        }
    }
    let mut cluster = ClusterData::default();
    let name = case["namespace"]["metadata"]["name"].as_str().unwrap_or_default();
    cluster.namespaces.insert(name.to_owned(), case["namespace"].clone());
    for (index, told) in case["requests"].as_array().into_iter().flatten().enumerate() {
        let found = request(&rules, &cluster, told);
        wrong.extend(found.into_iter().map(|what| format!("request {index}: {what}")));
    }
    wrong
}

#[test]
fn answers_are_the_same_as_those_of_the_api_server() {
    let mut files: Vec<PathBuf> = fs::read_dir(data().join("differential"))
        .expect("the goldens")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let known: Json =
        serde_json::from_str(&fs::read_to_string(data().join("differences.json")).expect("the differences"))
            .expect("JSON");
    let only = std::env::var("PORTCULLIS_CASE").unwrap_or_default();
    let (mut count, mut requests, mut policies, mut excused) = (0, 0, 0, 0);
    let mut wrong = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).expect("a golden");
        let cases: Vec<Json> =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for case in
            cases.iter().filter(|case| case["case"].as_str().is_some_and(|name| name.starts_with(&only)))
        {
            let name = case["case"].as_str().unwrap_or_default();
            count += 1;
            requests += case["requests"].as_array().map_or(0, Vec::len);
            policies += case["documents"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|document| document["kind"].as_str().is_some_and(|kind| kind.ends_with("Policy")))
                .count();
            let found = check(case);
            match (found.is_empty(), known.get(name)) {
                (true, Some(_)) => {
                    wrong.push(format!("{name}: is in differences.json and is the same: take it out"));
                }
                (false, None) => wrong.push(format!("{name}:\n    {}", found.join("\n    "))),
                (false, Some(_)) => excused += 1,
                (true, None) => {}
            }
        }
    }
    println!(
        "{policies} policies in {count} cases, {requests} requests, {excused} cases differ as documented"
    );
    assert!(wrong.is_empty(), "{} of {count} cases:\n{}", wrong.len(), wrong.join("\n"));
    assert!(!only.is_empty() || policies > 2, "only {policies} policies");
}
