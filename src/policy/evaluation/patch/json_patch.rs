//! Applies RFC 6902 patches as the API server does. Its library differs from the RFC: indices can be
//! negative, `replace` sets an absent field, and `add` never replaces the whole document. Error messages are
//! those of the library.

use serde_json::{Map, Value as Json};

use super::size::{MAX_OBJECT_BYTES, SizeCounter};

/// One operation of a patch. Absent fields are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JsonPatchOperation {
    pub(crate) op: String,
    pub(crate) path: String,
    pub(crate) from: String,
    pub(crate) value: Option<Json>,
}

/// Why a patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatchFailure {
    /// A `test` failed: the object stays unchanged, and this is not an error.
    Test,
    Other(String),
}

const MISSING: &str = "missing value";

fn split(path: &str) -> Option<(Vec<String>, String)> {
    let mut parts: Vec<String> = portcullis_text::pointer::tokens(path).collect();
    let last = parts.pop()?;
    Some((parts, last))
}

/// Parses an index as Go does. Negative indices count from the end of `length` items.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let number: i64 = match key.strip_prefix('+').unwrap_or(key).parse() {
        Ok(number) => number,
        Err(_) => return Err(format!("strconv.Atoi: parsing \"{key}\": invalid syntax")),
    };
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let place = if number < 0 { number + length } else { number };
    if place < 0 || place >= length {
        return Err(format!("Unable to access invalid index: {number}: invalid index referenced"));
    }
    Ok(usize::try_from(place).unwrap_or(usize::MAX))
}

fn get<'d>(container: &'d Json, key: &str) -> Result<Option<&'d Json>, String> {
    match container {
        Json::Array(items) => Ok(items.get(index(key, items.len())?)),
        other => Ok(other.get(key)),
    }
}

/// Returns the container of the path's last step, and that step.
fn container<'d>(document: &'d mut Json, path: &str) -> Option<(&'d mut Json, String)> {
    let (parts, last) = split(path)?;
    let mut place = document;
    for part in parts {
        place = match place {
            Json::Array(items) => {
                let at = index(&part, items.len()).ok()?;
                items.get_mut(at)?
            }
            Json::Object(fields) => fields.get_mut(&part)?,
            _ => return None,
        };
    }
    matches!(place, Json::Array(_) | Json::Object(_)).then_some((place, last))
}

fn add(container: &mut Json, key: &str, value: Json) -> Result<(), String> {
    match container {
        Json::Array(items) if key == "-" => items.push(value),
        Json::Array(items) => {
            let at = index(key, items.len() + 1).map_err(|why| match why.strip_prefix("strconv") {
                Some(_) => format!("value was not a proper array index: '{key}': {why}"),
                None => why,
            })?;
            items.insert(at, value);
        }
        other => {
            if let Some(fields) = other.as_object_mut() {
                fields.insert(key.to_owned(), value);
            }
        }
    }
    Ok(())
}

fn remove(container: &mut Json, key: &str) -> Result<(), String> {
    match container {
        Json::Array(items) => {
            let at = index(key, items.len())?;
            items.remove(at);
            Ok(())
        }
        other => match other.as_object_mut().and_then(|fields| fields.remove(key)) {
            Some(_) => Ok(()),
            None => Err(format!("Unable to remove nonexistent key: {key}: {MISSING}")),
        },
    }
}

/// Applies a patch. The document is unusable after an error.
pub(crate) fn apply(document: &mut Json, patch: Vec<JsonPatchOperation>) -> Result<(), PatchFailure> {
    let mut copied_size = SizeCounter::new();
    for operation in patch {
        one(document, operation, &mut copied_size)?;
    }
    Ok(())
}

fn other(message: String) -> PatchFailure {
    PatchFailure::Other(message)
}

fn one(
    document: &mut Json,
    operation: JsonPatchOperation,
    copied_size: &mut SizeCounter,
) -> Result<(), PatchFailure> {
    let JsonPatchOperation { op, path, from, value } = operation;
    let given = value.is_some();
    let value = value.unwrap_or(Json::Null);
    match op.as_str() {
        "add" => {
            let (place, key) = container(document, &path).ok_or_else(|| {
                other(format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}"))
            })?;
            add(place, &key, value).map_err(|why| other(format!("error in add for path: '{path}': {why}")))
        }
        "remove" => {
            let (place, key) = container(document, &path).ok_or_else(|| {
                other(format!("remove operation does not apply: doc is missing path: \"{path}\": {MISSING}"))
            })?;
            remove(place, &key).map_err(|why| other(format!("error in remove for path: '{path}': {why}")))
        }
        "replace" if path.is_empty() => {
            if !matches!(value, Json::Object(_) | Json::Array(_) | Json::Null) {
                return Err(other("replace operation value must be object or array: %!w(<nil>)".into()));
            }
            *document = if value.is_null() { Json::Object(Map::new()) } else { value };
            Ok(())
        }
        "replace" => {
            let (place, key) = container(document, &path).ok_or_else(|| {
                other(format!("replace operation does not apply: doc is missing path: {path}: {MISSING}"))
            })?;
            match place {
                Json::Array(items) => match index(&key, items.len()) {
                    Ok(at) => items[at] = value,
                    Err(_) => {
                        return Err(other(format!(
                            "replace operation does not apply: doc is missing key: {path}: {MISSING}"
                        )));
                    }
                },
                place => _ = add(place, &key, value),
            }
            Ok(())
        }
        "move" | "copy" => transfer(document, &op, &path, &from, copied_size),
        "test" => test(document, &path, given.then_some(&value)),
        _ => Err(other(format!("Unexpected kind: {op}"))),
    }
}

fn transfer(
    document: &mut Json,
    op: &str,
    path: &str,
    from: &str,
    copied_size: &mut SizeCounter,
) -> Result<(), PatchFailure> {
    if from.is_empty() {
        return Err(other(format!(
            "{op} operation failed to decode from: operation, missing from field: {MISSING}"
        )));
    }
    let (place, key) = container(document, from).ok_or_else(|| {
        other(format!("{op} operation does not apply: doc is missing from path: {from}: {MISSING}"))
    })?;
    let found = get(place, &key).map_err(|why| {
        other(if op == "move" {
            format!("error in move for path: '{key}': {why}")
        } else {
            format!("error in copy for from: '{from}': {why}")
        })
    })?;
    if op == "copy" && found.is_some_and(|found| !copied_size.json(found)) {
        return Err(other(format!(
            "Unable to complete the copy, the accumulated size increase of copy exceeds the limit {MAX_OBJECT_BYTES}"
        )));
    }
    let found = found.cloned();
    if op == "move" {
        remove(place, &key).map_err(|why| other(format!("error in move for path: '{key}': {why}")))?;
    }
    let (place, key) = container(document, path).ok_or_else(|| {
        other(format!("{op} operation does not apply: doc is missing destination path: {path}: {MISSING}"))
    })?;
    add(place, &key, found.unwrap_or(Json::Null)).map_err(|why| {
        other(if op == "move" {
            format!("error in move for path: '{path}': {why}")
        } else {
            format!("error while adding value during copy: {why}")
        })
    })
}

/// An absent or null value equals only an operation without a value, as in the API server.
fn test(document: &mut Json, path: &str, value: Option<&Json>) -> Result<(), PatchFailure> {
    let same = if path.is_empty() {
        value == Some(&*document)
    } else {
        let (place, key) = container(document, path).ok_or_else(|| {
            other(format!("test operation does not apply: is missing path: {path}: {MISSING}"))
        })?;
        let found =
            get(place, &key).map_err(|why| other(format!("error in test for path: '{path}': {why}")))?;
        found.filter(|found| !found.is_null()) == value
    };
    if same { Ok(()) } else { Err(PatchFailure::Test) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::{JsonPatchOperation, PatchFailure, apply};

    fn operation(json: &Json) -> JsonPatchOperation {
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        JsonPatchOperation {
            op: text("op"),
            path: text("path"),
            from: text("from"),
            value: json.get("value").cloned(),
        }
    }

    /// Each copy doubles the copied size. Without a limit, forty copies make a trillion bytes.
    #[test]
    fn copies_of_copies_end() {
        let mut document = json!({ "a": { "text": "x".repeat(1000) } });
        let copy =
            |index: u32| operation(&json!({ "op": "copy", "from": "/a", "path": format!("/a/{index}") }));
        let why = apply(&mut document, (0..40).map(copy).collect());
        assert!(
            matches!(&why, Err(PatchFailure::Other(why)) if why.contains("accumulated size increase")),
            "{why:?}"
        );
        assert!(document.to_string().len() < 8 * 1024 * 1024);
    }

    #[test]
    fn operations_are_applied_as_by_the_api_server() {
        let document = json!({ "a": { "b": [1, 2, 3] }, "c/d": 1 });
        for (patch, expected) in [
            (
                json!({ "op": "add", "path": "/a/x", "value": 5 }),
                json!({ "a": { "b": [1, 2, 3], "x": 5 }, "c/d": 1 }),
            ),
            (
                json!({ "op": "add", "path": "/a/b/-", "value": 4 }),
                json!({ "a": { "b": [1, 2, 3, 4] }, "c/d": 1 }),
            ),
            (
                json!({ "op": "add", "path": "/a/b/-1", "value": 4 }),
                json!({ "a": { "b": [1, 2, 3, 4] }, "c/d": 1 }),
            ),
            (json!({ "op": "remove", "path": "/a/b/-1" }), json!({ "a": { "b": [1, 2] }, "c/d": 1 })),
            (
                json!({ "op": "replace", "path": "/new", "value": 1 }),
                json!({ "a": { "b": [1, 2, 3] }, "c/d": 1, "new": 1 }),
            ),
            (
                json!({ "op": "replace", "path": "/c~1d", "value": 2 }),
                json!({ "a": { "b": [1, 2, 3] }, "c/d": 2 }),
            ),
            (
                json!({ "op": "move", "from": "/c~1d", "path": "/a/c" }),
                json!({ "a": { "b": [1, 2, 3], "c": 1 } }),
            ),
            (
                json!({ "op": "copy", "from": "/a/b/0", "path": "/a/b/0" }),
                json!({ "a": { "b": [1, 1, 2, 3] }, "c/d": 1 }),
            ),
            (json!({ "op": "test", "path": "/a/b/0", "value": 1 }), document.clone()),
        ] {
            let mut changed = document.clone();
            assert_eq!(apply(&mut changed, vec![operation(&patch)]), Ok(()), "{patch}");
            assert_eq!(changed, expected, "{patch}");
        }
        for (patch, why) in [
            (
                json!({ "op": "remove", "path": "/a/x" }),
                "error in remove for path: '/a/x': Unable to remove nonexistent key: x: missing value",
            ),
            (
                json!({ "op": "add", "path": "/x/y", "value": 1 }),
                "add operation does not apply: doc is missing path: \"/x/y\": missing value",
            ),
            (
                json!({ "op": "add", "path": "/a/b/9", "value": 1 }),
                "error in add for path: '/a/b/9': Unable to access invalid index: 9: invalid index referenced",
            ),
            (
                json!({ "op": "copy", "path": "/a" }),
                "copy operation failed to decode from: operation, missing from field: missing value",
            ),
            (json!({ "op": "delete", "path": "/a" }), "Unexpected kind: delete"),
        ] {
            let found = apply(&mut document.clone(), vec![operation(&patch)]);
            assert_eq!(found, Err(PatchFailure::Other(why.into())), "{patch}");
        }
        let test = operation(&json!({ "op": "test", "path": "/a/b/0", "value": 2 }));
        let mut document = document;
        assert_eq!(apply(&mut document, vec![test]), Err(PatchFailure::Test));
    }
}
