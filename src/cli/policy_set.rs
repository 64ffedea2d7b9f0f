//! Policies and cluster facts from files, for commands that evaluate policies. It also locates rules in their
//! files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use portcullis_core::capacity::CapacityReport;
use portcullis_core::dialect;
use portcullis_policy::{
    ClusterData, Denial, PolicyEntry, PolicySet, Severity, SourceFile, load, render_problems,
};
use serde_json::{Value, json};

use super::manifest::{self, Document};
use crate::clock::seconds_now;
use crate::cluster::capacity;
use crate::policy_files;

/// A policy set with its files.
pub(super) struct LoadedPolicies {
    /// The compiled set.
    pub(super) set: PolicySet,
    files: Vec<SourceFile>,
}

impl LoadedPolicies {
    /// Loads a set. Prints its errors to stderr and returns `None` if it is invalid.
    ///
    /// # Errors
    /// If a path cannot be read.
    pub(super) fn load(paths: &[PathBuf]) -> Result<Option<Self>> {
        let (_, files) = policy_files::read_files(paths)?;
        let loaded = load(&files).warn_expired(seconds_now());
        let shown: Vec<_> = match &loaded.set {
            Some(_) => Vec::new(),
            None => loaded.problems.into_iter().filter(|p| p.severity == Severity::Error).collect(),
        };
        if !shown.is_empty() {
            anstream::eprintln!("{}", render_problems(&shown, &files));
        }
        Ok(loaded.set.map(|set| Self { set, files }))
    }

    /// Returns `FILE:LINE` of the rule that denies, or of its policy.
    pub(super) fn rule_location(&self, denial: &Denial) -> Option<String> {
        let named = self.set.policies().filter(|policy| policy.name == denial.policy);
        let places = named.map(|policy| {
            let document = self.document(policy);
            let has_rule = document.as_ref().is_some_and(|one| one.value.pointer(&denial.rule).is_some());
            let line = document.and_then(|one| one.line(&denial.rule));
            let line = line.map_or_else(|| policy.line.to_string(), |line| line.to_string());
            (has_rule, format!("{}:{line}", policy.file))
        });
        // A mutating and a validating policy may have the same name.
        places.min_by_key(|(has_rule, _)| !has_rule).map(|(_, place)| place)
    }

    /// Returns the document of a policy. The kind is compared as well, because bindings often have the same
    /// name.
    fn document(&self, policy: &PolicyEntry) -> Option<Document> {
        let file = self.files.iter().find(|file| file.name == policy.file)?;
        let documents = manifest::read(std::str::from_utf8(&file.bytes).ok()?).ok()?;
        documents.into_iter().find(|document| {
            document.value["kind"] == policy.kind && document.value["metadata"]["name"] == policy.name
        })
    }
}

/// Reads cluster facts from files as printed by kubectl: Namespaces, classes, Gangs, group objects and the
/// capacity ConfigMap.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn read_cluster_data(paths: &[PathBuf]) -> Result<ClusterData> {
    let mut data = ClusterData { now: seconds_now(), ..ClusterData::default() };
    for path in paths {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let documents =
            manifest::read(&text).map_err(|problem| anyhow::anyhow!("{name}: {}", problem.problem))?;
        for document in documents {
            add_object(&mut data, document.value);
        }
    }
    Ok(data)
}

fn add_object(data: &mut ClusterData, object: Value) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, name, namespace) = (text("/kind"), text("/metadata/name"), text("/metadata/namespace"));
    let (group, _) = text("/apiVersion").split_once('/').map_or_else(
        || (String::new(), String::new()),
        |(group, version)| (group.to_owned(), version.to_owned()),
    );
    match kind.as_str() {
        "Namespace" => drop(data.namespaces.insert(name, object)),
        "PriorityClass" => drop(data.priority_classes.get_or_insert_default().insert(name, object)),
        "RuntimeClass" => drop(data.runtime_classes.get_or_insert_default().insert(name, object)),
        "ConfigMap" if name == capacity::CONFIG_MAP_NAME => {
            let report = object["data"][capacity::CONFIG_MAP_KEY].as_str();
            let report = report.and_then(|json| serde_json::from_str::<CapacityReport>(json).ok());
            // Without a time the capacity never expires: the user wants the answer for the state in the file.
            data.capacity = report.map(|capacity| Arc::new(CapacityReport { at: None, ..capacity }));
        }
        "Gang" => drop(data.gangs.insert(format!("{namespace}/{name}"), object)),
        _ if object["items"].is_array() => {
            for item in object["items"].as_array().cloned().unwrap_or_default() {
                add_object(data, item);
            }
        }
        _ => {
            let known =
                dialect::group_kinds().any(|k| (k.resource().group, k.resource().kind) == (&*group, &*kind));
            if known {
                data.groups.insert(format!("{kind}.{group}/{namespace}/{name}"), object);
            }
        }
    }
}

/// Adds a namespace that is not in the files, with the one label that every namespace has.
pub(super) fn ensure_namespace(data: &mut ClusterData, namespace: &str) {
    if !namespace.is_empty() && !data.namespaces.contains_key(namespace) {
        let labels: BTreeMap<&str, &str> = [("kubernetes.io/metadata.name", namespace)].into();
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}});
        data.namespaces.insert(namespace.to_owned(), object);
    }
}
