//! Merges an apply configuration into an object by the schema of its kind, as Kubernetes' structured merge
//! does. Lists and maps merge by key. A configuration must not contain what the schema calls atomic.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use crate::schema::{ListMergeType, Schema, ValueShape};

/// The schema of a value, or none if the kind is unknown. Lists of unknown kinds are atomic.
#[derive(Clone, Copy)]
enum MergeSchema {
    Of(&'static Schema),
    Unknown,
}

impl MergeSchema {
    fn field(self, name: &str) -> Result<Self, &'static str> {
        let Self::Of(schema) = self else { return Ok(Self::Unknown) };
        if let Some(field) = schema.field(name) {
            return Ok(Self::Of(field));
        }
        match schema.values() {
            Some(values) => Ok(Self::Of(values)),
            None if schema.is_open() || schema.shape() != ValueShape::Object => Ok(Self::Unknown),
            None => Err("field not declared in schema"),
        }
    }

    fn items(self) -> Self {
        match self {
            Self::Of(schema) => schema.items().map_or(Self::Unknown, Self::Of),
            Self::Unknown => Self::Unknown,
        }
    }

    fn list(self) -> ListMergeType {
        match self {
            Self::Of(schema) => schema.list_type(),
            Self::Unknown => ListMergeType::Atomic,
        }
    }

    fn is_atomic_map(self) -> bool {
        matches!(self, Self::Of(schema) if schema.is_atomic_map())
    }

    fn shape(self) -> ValueShape {
        match self {
            Self::Of(schema) => schema.shape(),
            Self::Unknown => ValueShape::Any,
        }
    }
}

/// Errors as path and message.
type MergeErrors = Vec<(String, String)>;

/// Returns the errors of a merge in the API server's format.
fn format_errors(errors: &MergeErrors) -> String {
    let one = |(path, what): &(String, String)| {
        if path.is_empty() { what.clone() } else { format!("{path}: {what}") }
    };
    match errors.as_slice() {
        [only] => one(only),
        several => {
            let lines: Vec<String> = several.iter().map(|error| format!("  {}", one(error))).collect();
            format!("errors:\n{}", lines.join("\n"))
        }
    }
}

fn go_value(value: &Json) -> String {
    match value {
        Json::String(text) => format!("&value.valueUnstructured{{Value:\"{text}\"}}"),
        Json::Array(_) => "&value.valueUnstructured{Value:[]interface {}{...}}".to_owned(),
        Json::Object(_) => "&value.valueUnstructured{Value:map[string]interface {}{...}}".to_owned(),
        other => format!("&value.valueUnstructured{{Value:{other}}}"),
    }
}

fn go_pointer(value: &Json) -> String {
    match value {
        Json::String(text) => format!("&{{{text}}}"),
        other => format!("&{{{other}}}"),
    }
}

fn go_type(value: &Json) -> &'static str {
    match value {
        Json::String(_) => "string",
        Json::Bool(_) => "bool",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
        _ => "int64",
    }
}

/// Validates a value against its schema.
fn validate(kind: MergeSchema, value: &Json, path: &str, errors: &mut MergeErrors) {
    let wrong = match (kind.shape(), value) {
        (_, Json::Null) => None,
        (ValueShape::Object | ValueShape::Map, Json::Object(_)) | (ValueShape::Any, Json::Object(_)) => {
            for (key, value) in value.as_object().into_iter().flatten() {
                let path = format!("{path}.{key}");
                match kind.field(key) {
                    Ok(kind) => validate(kind, value, &path, errors),
                    Err(why) => {
                        errors.push((path, why.to_owned()));
                        return;
                    }
                }
            }
            None
        }
        (ValueShape::List | ValueShape::Any, Json::Array(items)) => {
            validate_items(kind, items, path, errors);
            None
        }
        (ValueShape::Object | ValueShape::Map, _) => Some(format!("expected map, got {}", go_pointer(value))),
        (ValueShape::List, _) => Some(format!("expected list, got {}", go_pointer(value))),
        (ValueShape::Text, Json::String(_))
        | (ValueShape::Boolean, Json::Bool(_))
        | (ValueShape::Integer | ValueShape::Number, Json::Number(_)) => None,
        (ValueShape::Text, _) => match kind {
            // Timestamps and bytes have other formats; they are validated later.
            MergeSchema::Of(schema)
                if schema.format().is_some_and(|format| format != "byte") && !is_container(value) =>
            {
                None
            }
            _ => Some(format!("expected string, got {}", go_value(value))),
        },
        (ValueShape::Boolean, _) => Some(format!("expected boolean, got {}", go_pointer(value))),
        (ValueShape::Integer | ValueShape::Number, _) => {
            Some(format!("expected numeric (int or float), got {}", go_type(value)))
        }
        (ValueShape::IntegerOrText, _) if is_container(value) => {
            Some(format!("expected any scalar, got {}", go_pointer(value)))
        }
        (ValueShape::IntegerOrText | ValueShape::Any, _) => None,
    };
    errors.extend(wrong.map(|wrong| (path.to_owned(), wrong)));
}

fn is_container(value: &Json) -> bool {
    matches!(value, Json::Array(_) | Json::Object(_))
}

fn validate_items(kind: MergeSchema, items: &[Json], path: &str, errors: &mut MergeErrors) {
    let mut seen: Vec<String> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let place = if matches!(kind.list(), ListMergeType::Atomic) {
            format!("[{index}]")
        } else {
            match element(kind, item) {
                Ok(place) => {
                    if seen.contains(&place) {
                        errors.push((path.to_owned(), format!("duplicate entries for key {place}")));
                    }
                    seen.push(place.clone());
                    place
                }
                Err(why) => {
                    errors.push((path.to_owned(), format!("element {index}: {why}")));
                    return;
                }
            }
        };
        validate(kind.items(), item, &format!("{path}{place}"), errors);
    }
}

/// Returns the identity of an item in its list: `[name="main"]`.
fn element(kind: MergeSchema, item: &Json) -> Result<String, String> {
    match kind.list() {
        ListMergeType::Atomic => Err("invalid indexing of non-associative list".into()),
        ListMergeType::Set => match item {
            Json::Object(_) => Err("associative list without keys has an element that's a map type".into()),
            Json::Array(_) => Err("not supported: associative list with lists as elements".into()),
            Json::Null => Err("associative list without keys has an element that's an explicit null".into()),
            other => Ok(format!("[={other}]")),
        },
        ListMergeType::Map(keys) => {
            let fields = match item {
                Json::Object(fields) => fields,
                Json::Null => return Err("associative list with keys may not have a null element".into()),
                _ => return Err("associative list with keys may not have non-map elements".into()),
            };
            let mut found: Vec<(&str, Cow<'_, Json>)> = Vec::new();
            for key in keys {
                if let Some(value) = fields.get(*key) {
                    found.push((key, Cow::Borrowed(value)));
                } else if let MergeSchema::Of(items) = kind.items()
                    && let Some(field) = items.field(key)
                {
                    // The API server gives required key fields their zero value as default.
                    let zero = match field.shape() {
                        ValueShape::Text if items.required().contains(key) => {
                            Some(Json::String(String::new()))
                        }
                        ValueShape::Integer if items.required().contains(key) => Some(Json::from(0)),
                        _ => None,
                    };
                    found.extend(
                        field.default_value().cloned().or(zero).map(|value| (*key, Cow::Owned(value))),
                    );
                }
            }
            if found.is_empty() {
                let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    keys.join(" ")
                ));
            }
            found.sort_by_key(|(key, _)| *key);
            let found: Vec<String> = found.iter().map(|(key, value)| format!("{key}={value}")).collect();
            Ok(format!("[{}]", found.join(",")))
        }
    }
}

/// Collects the paths of atomic values, which a configuration must not contain.
fn collect_atomic_paths(kind: MergeSchema, value: &Json, path: &str, found: &mut Vec<String>) {
    match value {
        Json::Object(fields) => {
            if kind.is_atomic_map() {
                found.push(path.to_owned());
            }
            for (key, value) in fields {
                // The API server does not descend into maps here.
                if let MergeSchema::Of(schema) = kind
                    && let Some(field) = schema.field(key)
                {
                    collect_atomic_paths(MergeSchema::Of(field), value, &format!("{path}.{key}"), found);
                }
            }
        }
        Json::Array(items) => {
            if matches!(kind.list(), ListMergeType::Atomic) {
                found.push(path.to_owned());
            }
            for (index, item) in items.iter().enumerate() {
                collect_atomic_paths(kind.items(), item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

fn is_empty(value: Option<&Json>) -> bool {
    match value {
        None | Some(Json::Null) => true,
        Some(Json::Object(fields)) => fields.is_empty(),
        Some(Json::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// Merges one side, the other or both. `None` if nothing is left.
fn merge(kind: MergeSchema, live: Option<&Json>, wanted: Option<&Json>) -> Option<Json> {
    let leaf = || wanted.or(live).cloned();
    if is_empty(live) && is_empty(wanted) {
        return leaf();
    }
    let is = |value: Option<&Json>, map: bool| match value {
        None | Some(Json::Null) => true,
        Some(Json::Object(_)) => map,
        Some(Json::Array(_)) => !map,
        Some(_) => false,
    };
    if is(live, true) && is(wanted, true) {
        if kind.is_atomic_map() {
            return leaf();
        }
        return merge_maps(kind, live.and_then(Json::as_object), wanted.and_then(Json::as_object));
    }
    if is(live, false) && is(wanted, false) {
        if matches!(kind.list(), ListMergeType::Atomic) {
            return leaf();
        }
        let items =
            |value: Option<&Json>| value.and_then(Json::as_array).map_or(&[][..], Vec::as_slice).to_vec();
        return merge_lists(kind, &items(live), &items(wanted));
    }
    leaf()
}

fn merge_maps(
    kind: MergeSchema,
    live: Option<&Map<String, Json>>,
    wanted: Option<&Map<String, Json>>,
) -> Option<Json> {
    let mut merged = Map::new();
    let keys = live.into_iter().flatten().chain(wanted.into_iter().flatten()).map(|(key, _)| key);
    for key in keys {
        if merged.contains_key(key) {
            continue;
        }
        let of = |map: Option<&'_ Map<String, Json>>| map.and_then(|map| map.get(key)).cloned();
        let (live, wanted) = (of(live), of(wanted));
        let kind = kind.field(key).unwrap_or(MergeSchema::Unknown);
        if let Some(value) = merge(kind, live.as_ref(), wanted.as_ref()) {
            merged.insert(key.clone(), value);
        }
    }
    (!merged.is_empty()).then_some(Json::Object(merged))
}

/// Merges two lists. Items that only the object has keep their place; items of the configuration keep their
/// order.
fn merge_lists(kind: MergeSchema, live: &[Json], wanted: &[Json]) -> Option<Json> {
    let places = |items: &[Json]| -> Vec<String> {
        items.iter().map(|item| element(kind, item).unwrap_or_default()).collect()
    };
    let (live_places, wanted_places) = (places(live), places(wanted));
    // A duplicate item of the object is replaced by null, as in the API server.
    let of_live = |place: &String| {
        let mut found =
            live_places.iter().zip(live).filter(|(known, _)| *known == place).map(|(_, item)| item);
        let first = found.next();
        if found.next().is_some() { Some(&Json::Null) } else { first }
    };
    let of_wanted =
        |place: &String| wanted_places.iter().position(|known| known == place).and_then(|at| wanted.get(at));
    let mut shared = wanted_places.iter().filter(|place| live_places.contains(*place));
    let mut next = shared.next();
    let mut done: Vec<&String> = Vec::new();
    let mut merged = Vec::with_capacity(live.len().max(wanted.len()));
    let (mut l, mut r) = (0, 0);
    let items = kind.items();
    while l < live.len() || r < wanted.len() {
        if l < live.len() && r < wanted.len() {
            let place = &live_places[l];
            if *place == wanted_places[r] {
                done.push(place);
                merged.extend(merge(items, of_live(place), of_wanted(place)));
                l += 1;
                r += 1;
                next = shared.next();
                continue;
            }
            if wanted_places.contains(place) && next.is_some_and(|next| next != place) {
                l += 1;
                continue;
            }
        }
        if l < live.len() {
            let place = &live_places[l];
            if !wanted_places.contains(place) {
                merged.extend(merge(items, live.get(l), None));
                l += 1;
                continue;
            }
            if done.contains(&place) {
                l += 1;
            }
        }
        if r < wanted.len() {
            let place = &wanted_places[r];
            done.push(place);
            merged.extend(merge(items, of_live(place), of_wanted(place)));
            r += 1;
            if next == Some(place) {
                next = shared.next();
            }
        }
    }
    (!merged.is_empty()).then_some(Json::Array(merged))
}

/// Merges a configuration into an object of a kind.
///
/// # Errors
/// The API server's text after `error applying patch: `.
pub(crate) fn apply(
    schema: Option<&'static Schema>,
    live: &Json,
    configuration: &Json,
) -> Result<Json, String> {
    let kind = schema.map_or(MergeSchema::Unknown, MergeSchema::Of);
    let mut errors = MergeErrors::new();
    validate(kind, configuration, "", &mut errors);
    if !errors.is_empty() {
        return Err(format!("failed to convert patch object to typed object: {}", format_errors(&errors)));
    }
    let mut found = Vec::new();
    collect_atomic_paths(kind, configuration, "", &mut found);
    if !found.is_empty() {
        let found = found.join(", ");
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {found}"
        ));
    }
    Ok(merge(kind, Some(live), Some(configuration)).unwrap_or(Json::Object(Map::new())))
}
