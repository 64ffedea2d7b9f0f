//! Namespaces, with the labels that rules of pods select them by.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ReadError;
use super::view::Meta;
use crate::model::{Str, str};

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace {
    /// Name.
    pub name: Str,
    /// Labels.
    pub labels: BTreeMap<Str, Str>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct NamespaceView<'a> {
    #[serde(default)]
    metadata: Meta<'a>,
}

impl Namespace {
    /// Reads a namespace from its JSON.
    ///
    /// # Errors
    /// When it is no JSON, or has no name.
    pub fn read(json: &str) -> Result<Self, ReadError> {
        let fail = |problem: String| ReadError { kind: "Namespace", name: "?".to_owned(), problem };
        let NamespaceView { metadata } =
            serde_json::from_str(json).map_err(|error| fail(error.to_string()))?;
        if metadata.name.is_empty() {
            return Err(fail("metadata.name is missing".to_owned()));
        }
        let labels = metadata.labels.iter().map(|(key, value)| (str(key), str(value.as_str()))).collect();
        Ok(Self { name: str(metadata.name.as_str()), labels })
    }
}
