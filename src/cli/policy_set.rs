//! Policy files for commands that evaluate them: a set, what is known of a cluster, and the place of every rule.
//!
//! Never decides anything: the set does.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use portcullis_core::dialect;
use portcullis_policy::{
    CapacityReport, ClusterData, Denial, PolicyEntry, PolicySet, Severity, SourceFile, load, render_problems,
};
use serde_json::{Value, json};

use super::manifest::{self, Document};
use crate::clock::seconds_now;
use crate::cluster::capacity;
use crate::policy_files;

/// A set with its files.
pub(super) struct LoadedPolicies {
    /// What is evaluated.
    pub(super) set: PolicySet,
    files: Vec<SourceFile>,
}

impl LoadedPolicies {
    /// Loads a set. What is wrong with it goes to standard error; `None` when it cannot be used.
    ///
    /// # Errors
    /// When a path cannot be read.
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

    /// `FILE:LINE` of the rule that refuses, or of its policy.
    pub(super) fn place(&self, denial: &Denial) -> Option<String> {
        let named = self.set.policies().filter(|policy| policy.name == denial.policy);
        let places = named.map(|policy| {
            let document = self.document(policy);
            let has_rule = document.as_ref().is_some_and(|one| one.value.pointer(&denial.rule).is_some());
            let line = document.and_then(|one| one.line(&denial.rule));
            let line = line.map_or_else(|| policy.line.to_string(), |line| line.to_string());
            (has_rule, format!("{}:{line}", policy.file))
        });
        // A policy that changes and one that judges may have the same name.
        places.min_by_key(|(has_rule, _)| !has_rule).map(|(_, place)| place)
    }

    /// A policy as it is written. Parameters and bindings often have its name, too.
    fn document(&self, policy: &PolicyEntry) -> Option<Document> {
        let file = self.files.iter().find(|file| file.name == policy.file)?;
        let documents = manifest::read(std::str::from_utf8(&file.bytes).ok()?).ok()?;
        documents.into_iter().find(|document| {
            document.value["kind"] == policy.kind && document.value["metadata"]["name"] == policy.name
        })
    }
}

/// What files say of a cluster: Namespaces, classes, Gangs, group objects and the ConfigMap of the capacity, as kubectl prints them.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn world(paths: &[PathBuf]) -> Result<ClusterData> {
    let mut world = ClusterData { now: seconds_now(), ..ClusterData::default() };
    for path in paths {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let documents =
            manifest::read(&text).map_err(|problem| anyhow::anyhow!("{name}: {}", problem.problem))?;
        for document in documents {
            note(&mut world, document.value);
        }
    }
    Ok(world)
}

fn note(world: &mut ClusterData, object: Value) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, name, namespace) = (text("/kind"), text("/metadata/name"), text("/metadata/namespace"));
    let (group, _) = text("/apiVersion").split_once('/').map_or_else(
        || (String::new(), String::new()),
        |(group, version)| (group.to_owned(), version.to_owned()),
    );
    match kind.as_str() {
        "Namespace" => drop(world.namespaces.insert(name, object)),
        "PriorityClass" => drop(world.priority_classes.get_or_insert_default().insert(name, object)),
        "RuntimeClass" => drop(world.runtime_classes.get_or_insert_default().insert(name, object)),
        "ConfigMap" if name == capacity::NAME => {
            let told = object["data"][capacity::KEY].as_str();
            let told = told.and_then(|json| serde_json::from_str::<CapacityReport>(json).ok());
            // A file is as good today as when it was written: whoever names it wants to know what would be then.
            world.capacity = told.map(|capacity| Arc::new(CapacityReport { at: None, ..capacity }));
        }
        "Gang" => drop(world.gangs.insert(format!("{namespace}/{name}"), object)),
        _ if object["items"].is_array() => {
            for item in object["items"].as_array().cloned().unwrap_or_default() {
                note(world, item);
            }
        }
        _ => {
            let known =
                dialect::group_kinds().any(|k| (k.resource().group, k.resource().kind) == (&*group, &*kind));
            if known {
                world.groups.insert(format!("{kind}.{group}/{namespace}/{name}"), object);
            }
        }
    }
}

/// A namespace of which nothing is known but its name has the label that every namespace has.
pub(super) fn with_namespace(world: &mut ClusterData, namespace: &str) {
    if !namespace.is_empty() && !world.namespaces.contains_key(namespace) {
        let labels: BTreeMap<&str, &str> = [("kubernetes.io/metadata.name", namespace)].into();
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}});
        world.namespaces.insert(namespace.to_owned(), object);
    }
}
