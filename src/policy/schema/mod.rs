//! The schema catalog: fields, types and list merge rules of the kinds that policies match.
//!
//! The data covers Kubernetes 1.36 and the PodGroup definitions in `manifests/components/pod-group-crds`.
//! `tests/cel/schemas` generates it; the head of that program explains how. It is parsed on first use. Kinds
//! that are not in the catalog are unknown, and their fields are not checked.

mod types;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value as Json;

pub use types::{declare, type_of, types};

/// The JSON type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueShape {
    /// An object with known fields.
    Object,
    /// An object with any keys and values of one type.
    Map,
    /// An array.
    List,
    /// A string.
    Text,
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// An integer or a string, such as a port or a quantity.
    IntegerOrText,
    /// Any value.
    Any,
}

/// How apply configuration merges a list: `x-kubernetes-list-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListMergeType {
    /// The new list replaces the old one.
    Atomic,
    /// Scalars, merged as a set.
    Set,
    /// Items with equal values in these key fields are merged.
    Map(&'static [&'static str]),
}

/// The schema of a value: a field, an item or a whole object.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schema {
    #[serde(rename = "$ref")]
    reference: Option<&'static str>,
    #[serde(rename = "type")]
    kind: Option<&'static str>,
    format: Option<&'static str>,
    required: Vec<&'static str>,
    #[serde(rename = "enum")]
    choices: Vec<&'static str>,
    default: Option<Json>,
    properties: BTreeMap<&'static str, Schema>,
    items: Option<Box<Schema>>,
    #[serde(rename = "additionalProperties")]
    values: Option<Box<Schema>>,
    #[serde(rename = "x-kubernetes-list-type")]
    list: Option<&'static str>,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    keys: Vec<&'static str>,
    #[serde(rename = "x-kubernetes-map-type")]
    map: Option<&'static str>,
    #[serde(rename = "x-kubernetes-int-or-string")]
    int_or_string: bool,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    open: bool,
    #[serde(rename = "x-kubernetes-embedded-resource")]
    embedded: bool,
}

/// A resource that the API server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct ServedResource {
    /// API group, empty for core.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// `pods`, or `pods/status` for a subresource.
    pub resource: &'static str,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
    /// The kind of its objects.
    pub kind: &'static str,
    definition: &'static str,
}

impl ServedResource {
    /// Returns the schema of its objects.
    #[must_use]
    pub fn schema(&self) -> Option<&'static Schema> {
        CATALOGUE.definitions.get(self.definition)
    }

    /// Returns the CEL type name of its objects.
    #[must_use]
    pub fn definition(&self) -> &'static str {
        self.definition
    }
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
struct SchemaCatalog {
    resources: Vec<ServedResource>,
    definitions: BTreeMap<&'static str, Schema>,
}

static CATALOGUE: LazyLock<SchemaCatalog> = LazyLock::new(|| {
    serde_json::from_str(include_str!("schemas.json")).expect("the committed data is read by a test")
});

/// Returns all known resources, ordered by group, version and resource.
#[must_use]
pub fn served_resources() -> &'static [ServedResource] {
    &CATALOGUE.resources
}

impl Schema {
    /// Returns the schema of a kind, if it is known.
    #[must_use]
    pub fn of(group: &str, version: &str, kind: &str) -> Option<&'static Self> {
        served_resources()
            .iter()
            .find(|one| one.group == group && one.version == version && one.kind == kind)
            .filter(|one| !one.resource.contains('/'))
            .or_else(|| {
                served_resources()
                    .iter()
                    .find(|one| one.kind == kind && one.group == group && one.version == version)
            })?
            .schema()
    }

    /// Resolves a `$ref`.
    fn meant(&'static self) -> &'static Self {
        self.reference.and_then(|name| CATALOGUE.definitions.get(name)).unwrap_or(self)
    }

    /// Returns the JSON type of the value.
    #[must_use]
    pub fn shape(&'static self) -> ValueShape {
        let meant = self.meant();
        match meant.kind {
            _ if meant.int_or_string => ValueShape::IntegerOrText,
            Some("object") if !meant.properties.is_empty() => ValueShape::Object,
            Some("object") if meant.values.is_some() => ValueShape::Map,
            Some("array") => ValueShape::List,
            Some("string") => ValueShape::Text,
            Some("integer") => ValueShape::Integer,
            Some("number") => ValueShape::Number,
            Some("boolean") => ValueShape::Boolean,
            _ => ValueShape::Any,
        }
    }

    /// Returns the fields of an object, by name.
    pub fn fields(&'static self) -> impl Iterator<Item = (&'static str, &'static Self)> {
        self.meant().properties.iter().map(|(name, field)| (*name, field))
    }

    /// Returns a field of an object.
    #[must_use]
    pub fn field(&'static self, name: &str) -> Option<&'static Self> {
        self.meant().properties.get(name)
    }

    /// Returns the schema of a map's values.
    #[must_use]
    pub fn values(&'static self) -> Option<&'static Self> {
        self.meant().values.as_deref()
    }

    /// Returns the schema of a list's items.
    #[must_use]
    pub fn items(&'static self) -> Option<&'static Self> {
        self.meant().items.as_deref()
    }

    /// Returns the names of the required fields.
    #[must_use]
    pub fn required(&'static self) -> &'static [&'static str] {
        &self.meant().required
    }

    /// Returns the format of a string (`byte`, `date-time`), if it has one.
    #[must_use]
    pub fn format(&'static self) -> Option<&'static str> {
        self.meant().format
    }

    /// Returns the allowed strings; empty if all are allowed.
    #[must_use]
    pub fn choices(&'static self) -> &'static [&'static str] {
        &self.meant().choices
    }

    /// Whether an object may have fields that the schema does not name.
    #[must_use]
    pub fn is_open(&'static self) -> bool {
        self.meant().open || self.meant().embedded
    }

    /// Returns how a list is merged. The default is atomic.
    #[must_use]
    pub fn list_type(&'static self) -> ListMergeType {
        let meant = self.meant();
        match self.list.or(meant.list) {
            Some("set") => ListMergeType::Set,
            Some("map") => ListMergeType::Map(if self.keys.is_empty() { &meant.keys } else { &self.keys }),
            _ => ListMergeType::Atomic,
        }
    }

    /// Whether apply configuration replaces an object or map as a whole: `x-kubernetes-map-type: atomic`.
    #[must_use]
    pub fn is_atomic_map(&'static self) -> bool {
        self.map.or(self.meant().map) == Some("atomic")
    }

    /// Returns the default of an absent field.
    #[must_use]
    pub fn default_value(&'static self) -> Option<&'static Json> {
        self.default.as_ref().or(self.meant().default.as_ref())
    }

    /// Returns the name that a `$ref` refers to.
    pub(crate) fn definition(&self) -> Option<&'static str> {
        self.reference
    }
}

#[cfg(test)]
mod tests;
