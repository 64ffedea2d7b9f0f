//! `GangPolicy`: rules for gangs and GPUs without CEL.
//!
//! A `GangPolicy` is translated to one validating and one mutating policy with their bindings. Their
//! expressions use the variables of [`crate::variables`]; there is no second evaluation. Defaults for the
//! life of a gang (timeouts, torn and stale gangs) become annotations on group objects and pods, because the
//! engine already reads those. They are set only where neither group nor pod has a value.
//!
//! This module owns the fields and their defaults ([`GANG_POLICY_FIELDS`]), the contradictions between them,
//! and the translation. Diagnostics point into the document.

mod contradictions;
mod fields;
mod limits;
#[cfg(test)]
mod tests;
mod translate;

use serde_json::{Map, Value as Json};

pub use fields::{GANG_POLICY_FIELDS, GangPolicyField};

use crate::diagnostic::{Diagnostic, Severity};

/// The kind of the documents.
pub const GANG_POLICY_KIND: &str = "GangPolicy";
/// Group and version of the documents.
pub const GANG_POLICY_API_VERSION: &str = "portcullis.dev/v1alpha1";

/// Translates a `GangPolicy` to policies and bindings of `admissionregistration.k8s.io/v1` with the same
/// name. `None` if one of the added diagnostics is an error; they point into `document`.
#[must_use]
pub fn translate(document: &Json, diagnostics: &mut Vec<Diagnostic>) -> Option<Vec<Json>> {
    let mut found = fields::check(document);
    if !found.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        contradictions::check(document, &mut found);
    }
    let wrong = found.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    diagnostics.append(&mut found);
    (!wrong).then(|| translate::translate(document))
}

/// Returns a JSON Schema of the documents for editors, as `yaml-language-server` reads it.
#[must_use]
pub fn editor_schema() -> Json {
    let mut root = Map::new();
    for setting in GANG_POLICY_FIELDS {
        fields::add_to_schema(setting, &mut root);
    }
    serde_json::json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": GANG_POLICY_KIND,
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": { "const": GANG_POLICY_API_VERSION },
            "kind": { "const": GANG_POLICY_KIND },
            "metadata": { "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } } },
            "spec": { "type": "object", "additionalProperties": false, "properties": root },
        },
    })
}

/// Returns a field of the spec by its path; `None` if it is absent.
fn get<'d>(document: &'d Json, path: &str) -> Option<&'d Json> {
    let mut value = document.get("spec")?;
    for step in path.split('.') {
        value = value.get(step)?;
    }
    Some(value).filter(|value| !value.is_null())
}

fn text<'d>(document: &'d Json, path: &str) -> Option<&'d str> {
    get(document, path).and_then(Json::as_str)
}

fn count(document: &Json, path: &str) -> Option<u64> {
    get(document, path).and_then(Json::as_u64)
}

fn memory(document: &Json, path: &str) -> Option<u64> {
    get(document, path).and_then(fields::memory_mib)
}

fn texts<'d>(document: &'d Json, path: &str) -> Vec<&'d str> {
    let items = get(document, path).and_then(Json::as_array);
    items.into_iter().flatten().filter_map(Json::as_str).collect()
}
