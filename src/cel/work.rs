//! The work of operations: what they take beyond their cost in the API server. See
//! [`crate::MAX_EXPRESSION_WORK`].

use crate::value::Value;

/// Bytes of a string that count as one unit of work.
const BYTES_PER_WORK_UNIT: usize = 256;

/// The work of reading a string, bytes or opaque value.
pub(crate) fn read_work(value: &Value<'_>) -> u64 {
    let length = match value {
        Value::String(text) => text.as_str().len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Opaque(opaque) => opaque.length(),
        _ => 0,
    };
    (length / BYTES_PER_WORK_UNIT) as u64
}

/// The number of values in a value, itself included, plus the work of reading its strings.
pub(crate) fn walk_work(value: &Value<'_>) -> u64 {
    match value {
        Value::List(list) => list.iter().fold(1, |sum: u64, item| sum.saturating_add(walk_work(&item))),
        Value::Map(map) => {
            map.entries().iter().fold(1, |sum: u64, (_, value)| sum.saturating_add(1 + walk_work(value)))
        }
        Value::Message(message) => {
            message.fields.values().fold(1, |sum: u64, value| sum.saturating_add(1 + walk_work(value)))
        }
        Value::Optional(Some(inner)) => walk_work(inner),
        other => 1 + read_work(other),
    }
}

/// The work of comparing two values, in the worst case: when they are equal.
pub(crate) fn comparison_work<'a>(first: &Value<'a>, second: &Value<'a>) -> u64 {
    let all = |pairs: &mut dyn Iterator<Item = u64>| pairs.fold(1, u64::saturating_add);
    match (first, second) {
        (Value::List(a), Value::List(b)) if a.len() == b.len() => {
            all(&mut a.iter().zip(b.iter()).map(|(a, b)| comparison_work(&a, &b)))
        }
        (Value::Map(a), Value::Map(b)) if a.len() == b.len() => {
            let entries = a.entries();
            all(&mut entries.iter().map(|(key, a)| 1 + b.find(key).map_or(0, |b| comparison_work(a, &b))))
        }
        (Value::Message(a), Value::Message(b)) if a.fields.len() == b.fields.len() => {
            let of = |name| b.fields.get(name);
            all(&mut a.fields.iter().map(|(name, a)| 1 + of(name).map_or(0, |b| comparison_work(a, b))))
        }
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => comparison_work(a, b),
        _ => 1 + read_work(first).min(read_work(second)),
    }
}

/// The work of a call that its cost does not cover.
pub(crate) fn call_work(function: &str, values: &[Value<'_>]) -> u64 {
    /// Copying this many entries or items is one unit of work.
    const COPIES_PER_WORK_UNIT: u64 = 4;
    let items = |index: usize| match values.get(index) {
        Some(Value::List(list)) => list.len() as u64,
        Some(Value::Map(map)) => map.len() as u64,
        _ => 1,
    };
    let own = match (function, values) {
        ("@in", [Value::List(_) | Value::Map(_), Value::List(list)]) => walk_work(&Value::List(list.clone())),
        ("distinct", [list]) => walk_work(list).saturating_mul(items(0)),
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [first, second]) => walk_work(first)
            .saturating_mul(items(1))
            .saturating_add(walk_work(second).saturating_mul(items(0))),
        ("indexOf" | "lastIndexOf", [list @ Value::List(_), _]) => walk_work(list),
        // These functions write their argument into the result or into an error.
        ("format", [_, written]) | ("join" | "optional.unwrap" | "unwrapOpt", [written, ..]) => {
            walk_work(written)
        }
        ("flatten", [list, ..]) => walk_work(list),
        ("_+_", [Value::List(_), Value::List(_)]) => items(0).saturating_add(items(1)) / COPIES_PER_WORK_UNIT,
        ("cel.@mapInsert", _) => items(0).saturating_add(items(1)) / COPIES_PER_WORK_UNIT,
        ("isSorted" | "sum" | "min" | "max", [_]) => items(0) / COPIES_PER_WORK_UNIT,
        ("getQuery", [url]) => read_work(url).saturating_mul(8),
        (name, [Value::Timestamp(_), _]) if name.starts_with("get") => 10,
        _ => 0,
    };
    values.iter().fold(own, |sum, value| sum.saturating_add(read_work(value)))
}
