//! Access to values of a JSON document by pointer, without allocation.

use serde_json::Value as Json;

/// Returns the text at a pointer whose steps are plain object keys; empty if there is none. Matching calls
/// this for every policy, so it allocates nothing.
pub(crate) fn text<'a>(json: &'a Json, pointer: &str) -> &'a str {
    let found = pointer.split('/').skip(1).try_fold(json, |json, name| json.get(name));
    found.and_then(Json::as_str).unwrap_or_default()
}

/// Returns the value at a JSON pointer, like [`Json::pointer`], which allocates for every step.
pub(crate) fn value_at<'j>(json: &'j Json, pointer: &str) -> Option<&'j Json> {
    if pointer.contains('~') {
        return json.pointer(pointer);
    }
    pointer.split('/').skip(1).try_fold(json, |value, step| match value {
        Json::Object(fields) => fields.get(step),
        Json::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}
