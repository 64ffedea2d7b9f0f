//! Compares the views of pods and nodes with the typed objects of a Kubernetes release.
//!
//! Every field of a view is optional, so a misspelt field would always read as absent, and no other test
//! would fail. Here every field gets its own value under the name in the schema of Kubernetes. The views are
//! written out in full: a new field without a value here does not compile.

mod nodes;
mod owners;
mod pod_rules;
mod pods;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use portcullis_core::objects::text::{Entries, Scalar, Text};
use portcullis_core::objects::view;

const MI: u64 = 1 << 20;
const GI: u64 = 1 << 30;

/// `Some` text of a typed object.
fn set(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn text(text: &str) -> Text<'_> {
    Text(text.into())
}

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn map(pairs: Pairs<'_>) -> Option<BTreeMap<String, String>> {
    Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

fn quantities(pairs: Pairs<'_>) -> Option<BTreeMap<String, Quantity>> {
    Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), Quantity((*value).to_owned()))).collect())
}

/// The same pairs as a view holds them, sorted by key as in a typed map.
fn entries<'a>(pairs: Pairs<'a>) -> Entries<'a, Text<'a>> {
    Entries(pairs.iter().map(|(key, value)| (text(key), text(value))).collect())
}

fn scalars<'a>(pairs: Pairs<'a>) -> Entries<'a, Scalar<'a>> {
    Entries(pairs.iter().map(|(key, value)| (text(key), Scalar(text(value)))).collect())
}

fn time(text: &str) -> Option<meta::Time> {
    Some(meta::Time(text.parse().expect("a time")))
}

const LABELS: Pairs<'_> = &[("kai.scheduler/podgroup", "app"), ("kai.scheduler/subgroup-name", "workers")];
const ANNOTATIONS: Pairs<'_> =
    &[("gpu-memory", "8000"), ("pod-group-name", "app"), ("portcullis.dev/gpus", "0,2")];

fn typed_meta(name: &str, labels: Pairs<'_>) -> meta::ObjectMeta {
    meta::ObjectMeta {
        name: set(name),
        generate_name: set("worker-"),
        namespace: set("training"),
        uid: set("uid-1"),
        resource_version: set("4711"),
        creation_timestamp: time("2026-11-21T09:14:03Z"),
        deletion_timestamp: time("2026-11-21T10:00:00Z"),
        generation: Some(3),
        labels: map(labels),
        annotations: map(ANNOTATIONS),
        owner_references: Some(vec![meta::OwnerReference {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            name: "job".to_owned(),
            uid: "uid-2".to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..meta::ObjectMeta::default()
    }
}

fn meta_view<'a>(name: &'a str, labels: Pairs<'a>) -> view::Meta<'a> {
    view::Meta {
        name: text(name),
        generate_name: text("worker-"),
        namespace: text("training"),
        uid: text("uid-1"),
        resource_version: text("4711"),
        creation_timestamp: text("2026-11-21T09:14:03Z"),
        deletion_timestamp: Some(text("2026-11-21T10:00:00Z")),
        generation: 3,
        labels: entries(labels),
        annotations: entries(ANNOTATIONS),
        owner_references: vec![view::OwnerReference {
            api_version: text("batch/v1"),
            kind: text("Job"),
            name: text("job"),
            uid: text("uid-2"),
            controller: true,
        }],
    }
}
