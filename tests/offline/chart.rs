//! Compares the generated templates of the Helm chart with the manifests that they repeat, without Go.
//!
//! `tests/chart` compares every choice of components and the templates that a person writes. This module
//! renders the generated templates alone: for the base, and for each component beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use portcullis_text::truncate::ellipsize_bytes;
use portcullis_text::yaml;
use serde_json::Value;

const NAMESPACE: &str = "portcullis-system";

/// Kinds whose templates a person writes.
const HAND_WRITTEN_KINDS: &[&str] = &["Deployment", "Namespace"];

/// Bytes that a difference shows of each value.
const MAX_SHOWN_BYTES: usize = 200;

/// The directory of each component, and the Helm value that enables it.
const COMPONENTS: &[(&str, &str)] = &[
    ("policies", "policies"),
    ("gate-fallback", "gateFallback"),
    ("cert-manager", "certManager"),
    ("pod-group-crds", "podGroupCRDs"),
];

/// Objects by kind and name.
type Objects = BTreeMap<String, Value>;

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests")
}

/// The objects of a text, with the place of the text for messages.
fn objects(place: &str, text: &str) -> Vec<Value> {
    let (documents, issues) = yaml::read(text, false);
    assert!(issues.is_empty(), "{place}: {issues:?}");
    documents.iter().map(yaml::Node::json).collect()
}

fn key(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// The objects that a kustomization lists as resources, with the labels that it adds.
fn resources(directory: &Path) -> Objects {
    let read = |file: &str| {
        let path = directory.join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        objects(&path.display().to_string(), &text)
    };
    let kustomization = &read("kustomization.yaml")[0];
    let files = kustomization["resources"].as_array().expect("a list of files");
    let labels = kustomization.pointer("/labels/0/pairs").and_then(Value::as_object);
    let mut found = Objects::new();
    for mut object in files.iter().flat_map(|file| read(file.as_str().expect("a file name"))) {
        for (label, value) in labels.into_iter().flatten() {
            object["metadata"]["labels"][label] = value.clone();
        }
        found.insert(key(&object), object);
    }
    found
}

/// Evaluates the template language of the generated templates: conditions on Helm values, and the namespace.
fn render(place: &str, template: &str, enabled: &BTreeSet<&str>) -> String {
    // Whether each open condition holds.
    let mut open: Vec<bool> = Vec::new();
    let mut text = String::new();
    for line in template.lines() {
        let action = line.strip_prefix("{{- ").and_then(|line| line.strip_suffix(" }}"));
        match action.map(|action| action.split(' ').collect::<Vec<_>>()).as_deref() {
            None if open.iter().all(|holds| *holds) => {
                text += &line.replace("{{ .Release.Namespace }}", NAMESPACE);
                text.push('\n');
            }
            None => {}
            Some(["if", condition @ .., value]) => {
                let name = value.strip_prefix(".Values.").and_then(|value| value.strip_suffix(".enabled"));
                let name = name.unwrap_or_else(|| panic!("{place}: unknown value in {line:?}"));
                let negated = match condition {
                    [] => false,
                    ["not"] => true,
                    _ => panic!("{place}: unknown condition in {line:?}"),
                };
                open.push(enabled.contains(name) != negated);
            }
            Some(["else"]) => {
                let innermost = open.last_mut().unwrap_or_else(|| panic!("{place}: else without if"));
                *innermost = !*innermost;
            }
            Some(["end"]) => {
                open.pop().unwrap_or_else(|| panic!("{place}: end without if"));
            }
            Some(_) => panic!("{place}: unknown action {line:?}"),
        }
    }
    assert!(open.is_empty(), "{place}: if without end");
    assert!(!text.contains("{{"), "{place}: unknown template action");
    text
}

/// The objects of the generated templates for the Helm values that are enabled.
fn rendered(enabled: &BTreeSet<&str>) -> Objects {
    let mut found = Objects::new();
    for entry in fs::read_dir(manifests().join("chart/templates/generated")).expect("the directory exists") {
        let path = entry.expect("a directory entry").path();
        let place = path.display().to_string();
        let template = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{place}: {error}"));
        for object in objects(&place, &render(&place, &template, enabled)) {
            let known = found.insert(key(&object), object);
            assert!(known.is_none(), "{place}: an object that another template has too");
        }
    }
    found
}

/// Adds the places at which two values differ, with both values.
fn differences(place: &str, manifest: &Value, chart: &Value, found: &mut Vec<String>) {
    match (manifest, chart) {
        (Value::Object(left), Value::Object(right)) => {
            for key in left.keys().chain(right.keys()).collect::<BTreeSet<_>>() {
                differences(&format!("{place}.{key}"), &manifest[key], &chart[key], found);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differences(&format!("{place}[{index}]"), left, right, found);
            }
        }
        _ if manifest == chart => {}
        _ => {
            let shown = |value: &Value| ellipsize_bytes(&value.to_string(), MAX_SHOWN_BYTES).into_owned();
            found.push(format!("{place}: manifest {}, chart {}", shown(manifest), shown(chart)));
        }
    }
}

/// The differences between objects of the manifests and objects of the chart with the same kind and name.
fn compare(manifest: &Objects, chart: &Objects) -> Vec<String> {
    let mut found = Vec::new();
    for (key, object) in manifest {
        if HAND_WRITTEN_KINDS.iter().any(|kind| object["kind"] == *kind) {
            continue;
        }
        match chart.get(key) {
            Some(copy) => differences(key, object, copy, &mut found),
            None => found.push(format!("{key}: the chart lacks it")),
        }
    }
    found
}

fn assert_no_differences(found: &[String]) {
    assert!(
        found.is_empty(),
        "manifests/chart/templates/generated is out of date: run `go run . write` in tests/chart\n{}",
        found.join("\n")
    );
}

#[test]
fn the_generated_templates_repeat_the_base() {
    let (manifest, chart) = (resources(&manifests().join("base")), rendered(&BTreeSet::new()));
    let mut found = compare(&manifest, &chart);
    let superfluous = chart.keys().filter(|key| !manifest.contains_key(*key));
    found.extend(superfluous.map(|key| format!("{key}: the base lacks it")));
    assert_no_differences(&found);
}

#[test]
fn the_generated_templates_repeat_the_resources_of_each_component() {
    for (directory, value) in COMPONENTS {
        let manifest = resources(&manifests().join("components").join(directory));
        assert!(!manifest.is_empty(), "{directory}");
        assert_no_differences(&compare(&manifest, &rendered(&BTreeSet::from([*value]))));
        let base = rendered(&BTreeSet::new());
        let always = manifest.keys().find(|key| base.contains_key(*key));
        assert_eq!(always, None, "a resource of {directory} is part of the chart without {value}");
    }
}

#[test]
fn a_field_that_only_one_side_has_is_a_difference() {
    let one = serde_json::json!({"kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [1, 2]}});
    let mut other = one.clone();
    other["spec"] = serde_json::json!({"ports": [1, 3], "clusterIP": "None"});
    let all = |object: &Value| Objects::from([(key(object), object.clone())]);
    assert_eq!(compare(&all(&one), &all(&one)), Vec::<String>::new());
    let found = compare(&all(&one), &all(&other));
    assert_eq!(
        found,
        [
            r#"Service/a.spec.clusterIP: manifest null, chart "None""#,
            "Service/a.spec.ports[1]: manifest 2, chart 3"
        ]
    );
    assert_eq!(compare(&all(&one), &Objects::new()), ["Service/a: the chart lacks it"]);
}
