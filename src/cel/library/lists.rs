//! Functions of lists, sets and maps.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CallError, CallResult, operators};
use crate::types::Type;
use crate::value::{Key, List, Map, Value};

fn list<'v, 'a>(values: &'v [Value<'a>], index: usize) -> Result<&'v List<'a>, CallError> {
    match values.get(index) {
        Some(Value::List(list)) => Ok(list),
        _ => Err(CallError::NoOverload),
    }
}

/// An error unless values of this type have an order.
fn ordered(value: &Value<'_>) -> Result<(), CallError> {
    match value {
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::String(_)
        | Value::Bytes(_)
        | Value::Duration(_)
        | Value::Timestamp(_) => Ok(()),
        _ => Err(CallError::text("no such overload")),
    }
}

pub(crate) fn is_sorted<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let mut before: Option<Value<'_>> = None;
    for item in list(values, 0)?.iter() {
        ordered(&item)?;
        if before.is_some_and(|before| before.compare(&item) == Some(Ordering::Greater)) {
            return Ok(Value::Bool(false));
        }
        before = Some(item);
    }
    Ok(Value::Bool(true))
}

/// The sum of a list. For an empty list the evaluator returns the zero of the type that the checker found;
/// here it is `int`.
pub(crate) fn sum<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let mut total: Option<Value<'a>> = None;
    for item in list(values, 0)?.iter() {
        total = Some(match total {
            None => item,
            Some(before) => operators::add(&[before, item])?,
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

/// The sum of an empty list of a type.
pub(crate) fn zero<'a>(of: &Type) -> Value<'a> {
    match of {
        Type::Uint => Value::Uint(0),
        Type::Double => Value::Double(0.0),
        Type::Duration => Value::Duration(0),
        _ => Value::Int(0),
    }
}

fn extreme<'a>(values: &[Value<'a>], name: &str, replaces: Ordering) -> CallResult<'a> {
    let mut found: Option<Value<'a>> = None;
    for item in list(values, 0)?.iter() {
        ordered(&item)?;
        found = match found {
            Some(before) if before.compare(&item) != Some(replaces) => Some(before),
            _ => Some(item),
        };
    }
    found.ok_or_else(|| CallError::text(format!("{name} called on empty list")))
}

pub(crate) fn min<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    extreme(values, "min", Ordering::Greater)
}

pub(crate) fn max<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    extreme(values, "max", Ordering::Less)
}

pub(crate) fn first<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(list(values, 0)?.item(0).map_or(Value::Optional(None), Value::some))
}

pub(crate) fn last<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let list = list(values, 0)?;
    let item = list.len().checked_sub(1).and_then(|index| list.item(index));
    Ok(item.map_or(Value::Optional(None), Value::some))
}

pub(crate) fn distinct<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let mut kept: Vec<Value<'a>> = Vec::new();
    for item in list(values, 0)?.iter() {
        if !kept.iter().any(|known| known.equals(&item)) {
            kept.push(item);
        }
    }
    Ok(Value::list(kept))
}

pub(crate) fn flatten<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    fn into<'a>(list: &List<'a>, depth: i64, flat: &mut Vec<Value<'a>>) {
        for item in list.iter() {
            match item {
                Value::List(inner) if depth > 0 => into(&inner, depth - 1, flat),
                other => flat.push(other),
            }
        }
    }
    let depth = match values.get(1) {
        None => 1,
        Some(Value::Int(depth)) => *depth,
        Some(_) => return Err(CallError::NoOverload),
    };
    if depth < 0 {
        return Err(CallError::text("level must be non-negative"));
    }
    let mut flat = Vec::new();
    into(list(values, 0)?, depth, &mut flat);
    Ok(Value::list(flat))
}

pub(crate) fn range<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    match values[0] {
        Value::Int(end) => Ok(Value::list((0..end).map(Value::Int).collect())),
        _ => Err(CallError::NoOverload),
    }
}

pub(crate) fn reverse<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let mut items = list(values, 0)?.clone().into_vec();
    items.reverse();
    Ok(Value::list(items))
}

pub(crate) fn slice<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (Value::Int(start), Value::Int(end)) = (&values[1], &values[2]) else {
        return Err(CallError::NoOverload);
    };
    let list = list(values, 0)?;
    let refuse = |why: String| Err(CallError::text(format!("cannot slice({start}, {end}), {why}")));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return refuse("negative indexes not supported".to_owned());
    };
    if from > to {
        return refuse("start index must be less than or equal to end index".to_owned());
    }
    if to > list.len() {
        return refuse(format!("list is length {}", list.len()));
    }
    Ok(match list {
        List::Json(items) => Value::List(List::Json(&items[from..to])),
        List::Owned(items) => Value::list(items[from..to].to_vec()),
    })
}

fn sorted<'a>(items: &List<'a>, keys: &List<'a>) -> CallResult<'a> {
    if items.len() != keys.len() {
        let message = format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            items.len(),
            keys.len()
        );
        return Err(CallError::text(message));
    }
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.iter().zip(items.iter()).collect();
    if let Some((first, _)) = pairs.first() {
        if first.compare(first).is_none() && !matches!(first, Value::Double(_)) {
            return Err(CallError::text("list elements must be comparable"));
        }
        let kind = first.kind();
        if pairs.iter().any(|(key, _)| key.kind() != kind) {
            return Err(CallError::text("list elements must have the same type"));
        }
    }
    pairs.sort_by(|(a, _), (b, _)| a.compare(b).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, item)| item).collect()))
}

pub(crate) fn sort<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    sorted(list(values, 0)?, list(values, 0)?)
}

pub(crate) fn sort_by_keys<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    sorted(list(values, 0)?, list(values, 1)?)
}

fn has<'a>(list: &List<'a>, wanted: &Value<'a>) -> bool {
    list.iter().any(|item| item.equals(wanted))
}

pub(crate) fn sets_contains<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (whole, part) = (list(values, 0)?, list(values, 1)?);
    Ok(Value::Bool(part.iter().all(|item| has(whole, &item))))
}

pub(crate) fn sets_equivalent<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (first, second) = (list(values, 0)?, list(values, 1)?);
    let within = |part: &List<'a>, whole: &List<'a>| part.iter().all(|item| has(whole, &item));
    Ok(Value::Bool(within(second, first) && within(first, second)))
}

pub(crate) fn sets_intersects<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (first, second) = (list(values, 0)?, list(values, 1)?);
    Ok(Value::Bool(first.iter().any(|item| has(second, &item))))
}

/// Adds entries to a map, in place when no other value shares the map.
pub(crate) fn insert<'a>(map: Value<'a>, entries: Vec<(Value<'a>, Value<'a>)>) -> CallResult<'a> {
    let Value::Map(map) = map else { return Err(CallError::NoOverload) };
    let mut owned = match map {
        Map::Owned(owned) => owned,
        Map::Json(_) => {
            let copy: BTreeMap<Key<'a>, Value<'a>> =
                map.entries().into_iter().filter_map(|(key, value)| Some((Key::new(&key)?, value))).collect();
            Arc::new(copy)
        }
    };
    let changed = Arc::make_mut(&mut owned);
    for (key, value) in entries {
        let Some(new) = Key::new(&key) else {
            return Err(CallError::text(format!("unsupported key type: {}", key.kind().name())));
        };
        if changed.contains_key(&new) {
            let key = super::strings::plain(&key);
            return Err(CallError::text(format!("insert failed: key {key} already exists")));
        }
        changed.insert(new, value);
    }
    Ok(Value::Map(Map::Owned(owned)))
}

pub(crate) fn map_insert<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let entries = match values {
        [_, key, value] => vec![(key.clone(), value.clone())],
        [_, Value::Map(map)] => map.entries(),
        _ => return Err(CallError::NoOverload),
    };
    insert(values[0].clone(), entries)
}
