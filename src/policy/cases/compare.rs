//! Compares values with expected values.

use serde_json::Value as Json;

/// Returns where a value differs from an expected one: path, expected, actual. Objects may have further
/// fields, lists must have the same length, and an expected `null` means an absent field.
pub(super) fn unmet_expectations(wanted: &Json, found: &Json) -> Vec<(String, String, String)> {
    let mut differences = Vec::new();
    visit(wanted, Some(found), &mut String::new(), &mut differences);
    differences
}

fn visit(
    wanted: &Json,
    found: Option<&Json>,
    path: &mut String,
    differences: &mut Vec<(String, String, String)>,
) {
    let length = path.len();
    match (wanted, found) {
        (Json::Null, None | Some(Json::Null)) => {}
        (Json::Object(wanted), Some(Json::Object(found))) => {
            for (key, wanted) in wanted {
                if key.contains(['.', '/']) {
                    path.push_str(&format!("[{key}]"));
                } else {
                    path.push('.');
                    path.push_str(key);
                }
                visit(wanted, found.get(key), path, differences);
                path.truncate(length);
            }
        }
        (Json::Array(wanted), Some(Json::Array(found))) if wanted.len() == found.len() => {
            for (index, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                path.push_str(&format!("[{index}]"));
                visit(wanted, Some(found), path, differences);
                path.truncate(length);
            }
        }
        (wanted, Some(found)) if wanted == found => {}
        (wanted, found) => {
            let got = found.map_or_else(|| "not there".to_owned(), lines);
            let wanted = if wanted.is_null() { "not there".to_owned() } else { lines(wanted) };
            differences.push((path.clone(), wanted, got));
        }
    }
}

/// Returns the JSON patch from one value to the other.
pub(super) fn patch(before: &Json, after: &Json) -> Json {
    serde_json::to_value(json_patch::diff(before, after)).unwrap_or_default()
}

/// Returns a value as lines for comparison by eye: strings as they are, lists one item a line.
pub(super) fn lines(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Array(items) if !items.is_empty() => {
            items.iter().map(Json::to_string).collect::<Vec<_>>().join("\n")
        }
        Json::Object(_) => serde_json::to_string_pretty(value).unwrap_or_default(),
        other => other.to_string(),
    }
}
