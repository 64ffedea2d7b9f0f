//! The fields of the kinds that policies are about: names, types, how lists are merged. Data of Kubernetes 1.36 and of the PodGroup
//! definitions in `manifests/components/pod-group-crds`, written by `tests/cel/schemas` (its head says how) and read when it is first asked for.
//!
//! Owns what is known of kinds. Kinds that are not here are not known: nothing is said against their fields.

mod types;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value as Json;

pub use types::{declare, type_of, types};

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueShape {
    /// A mapping with fields of known names.
    Object,
    /// A mapping of any keys to values of one kind.
    Map,
    /// A list.
    List,
    /// Text.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A whole number or text, such as a port or a quantity.
    IntegerOrText,
    /// Anything.
    Any,
}

/// How two values of a list become one when configuration is applied: `x-kubernetes-list-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListMergeType {
    /// One replaces the other.
    Atomic,
    /// A set of scalars.
    Set,
    /// Items are the same when these fields are.
    Map(&'static [&'static str]),
}

/// A value of a kind: a field, an item, a whole object.
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

/// A resource that an API server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct ServedResource {
    /// API group, empty for core.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// `pods`, or for a subresource `pods/status`.
    pub resource: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Kind of its objects.
    pub kind: &'static str,
    definition: &'static str,
}

impl ServedResource {
    /// The fields of its objects.
    #[must_use]
    pub fn schema(&self) -> Option<&'static Schema> {
        CATALOGUE.definitions.get(self.definition)
    }

    /// The name of the type of its objects in expressions.
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

/// Every resource that is known, by group, version and resource.
#[must_use]
pub fn served_resources() -> &'static [ServedResource] {
    &CATALOGUE.resources
}

impl Schema {
    /// The fields of a kind, if it is known.
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

    /// What stands behind a reference.
    fn meant(&'static self) -> &'static Self {
        self.reference.and_then(|name| CATALOGUE.definitions.get(name)).unwrap_or(self)
    }

    /// What a value of it must be.
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

    /// The fields of an object, by name.
    pub fn fields(&'static self) -> impl Iterator<Item = (&'static str, &'static Self)> {
        self.meant().properties.iter().map(|(name, field)| (*name, field))
    }

    /// A field of an object.
    #[must_use]
    pub fn field(&'static self, name: &str) -> Option<&'static Self> {
        self.meant().properties.get(name)
    }

    /// The values of a map.
    #[must_use]
    pub fn values(&'static self) -> Option<&'static Self> {
        self.meant().values.as_deref()
    }

    /// The items of a list.
    #[must_use]
    pub fn items(&'static self) -> Option<&'static Self> {
        self.meant().items.as_deref()
    }

    /// The fields that an object must have.
    #[must_use]
    pub fn required(&'static self) -> &'static [&'static str] {
        &self.meant().required
    }

    /// What text must look like: `byte`, `date-time`; none when it may be anything.
    #[must_use]
    pub fn format(&'static self) -> Option<&'static str> {
        self.meant().format
    }

    /// The texts that are allowed; none when all are.
    #[must_use]
    pub fn choices(&'static self) -> &'static [&'static str] {
        &self.meant().choices
    }

    /// Whether an object may have other fields than those that are named.
    #[must_use]
    pub fn is_open(&'static self) -> bool {
        self.meant().open || self.meant().embedded
    }

    /// How a list is merged. Lists that say nothing are replaced.
    #[must_use]
    pub fn list_type(&'static self) -> ListMergeType {
        let meant = self.meant();
        match self.list.or(meant.list) {
            Some("set") => ListMergeType::Set,
            Some("map") => ListMergeType::Map(if self.keys.is_empty() { &meant.keys } else { &self.keys }),
            _ => ListMergeType::Atomic,
        }
    }

    /// Whether an object or map is replaced as a whole when configuration is applied: `x-kubernetes-map-type: atomic`.
    #[must_use]
    pub fn is_atomic_map(&'static self) -> bool {
        self.map.or(self.meant().map) == Some("atomic")
    }

    /// What a field is when it is left out.
    #[must_use]
    pub fn default_value(&'static self) -> Option<&'static Json> {
        self.default.as_ref().or(self.meant().default.as_ref())
    }

    /// The name of the definition that a reference names.
    pub(crate) fn definition(&self) -> Option<&'static str> {
        self.reference
    }
}

#[cfg(test)]
mod tests;
