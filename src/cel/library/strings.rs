//! Functions of strings. Positions count characters.

use std::sync::Arc;

use super::{CallError, CallResult};
use crate::value::{Text, Value};

/// Maximum length of a string that a function returns. An expression that exceeds it is treated as hostile.
const MAX_STRING_BYTES: usize = 64 << 20;

fn arguments<'v>(values: &'v [Value<'_>], index: usize) -> Result<&'v str, CallError> {
    values.get(index).and_then(Value::as_str).ok_or(CallError::NoOverload)
}

fn number(values: &[Value<'_>], index: usize) -> Result<Option<i64>, CallError> {
    match values.get(index) {
        None => Ok(None),
        Some(Value::Int(value)) => Ok(Some(*value)),
        Some(_) => Err(CallError::NoOverload),
    }
}

fn out_of_range<'a>(index: i64) -> CallResult<'a> {
    Err(CallError::text(format!("index out of range: {index}")))
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// The byte offset of a character. The end of the text counts as a character.
fn byte_of(text: &str, character: usize) -> Option<usize> {
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(character)
}

pub(crate) fn contains<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(arguments(values, 0)?.contains(arguments(values, 1)?)))
}

pub(crate) fn starts_with<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(arguments(values, 0)?.starts_with(arguments(values, 1)?)))
}

pub(crate) fn ends_with<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(arguments(values, 0)?.ends_with(arguments(values, 1)?)))
}

/// A part of a string, borrowed where the string is.
fn substring_of<'a>(value: &Value<'a>, from: usize, to: usize) -> Value<'a> {
    match value {
        Value::String(Text::Borrowed(text)) => Value::text(&text[from..to]),
        other => Value::string(&other.as_str().unwrap_or_default()[from..to]),
    }
}

pub(crate) fn char_at<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (text, index) = (arguments(values, 0)?, number(values, 1)?.unwrap_or(0));
    let position = usize::try_from(index).ok().and_then(|index| byte_of(text, index));
    let Some(from) = position else { return out_of_range(index) };
    let to = from + text[from..].chars().next().map_or(0, char::len_utf8);
    Ok(substring_of(&values[0], from, to))
}

pub(crate) fn index_of<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    if let Value::List(list) = &values[0] {
        let found = list.iter().position(|item| item.equals(&values[1]));
        return Ok(position(found));
    }
    let (text, wanted, offset) =
        (arguments(values, 0)?, arguments(values, 1)?, number(values, 2)?.unwrap_or(0));
    if wanted.is_empty() {
        return Ok(Value::Int(offset));
    }
    let Ok(from) = usize::try_from(offset) else { return out_of_range(offset) };
    let Some(start) = byte_of(text, from) else { return Ok(Value::Int(-1)) };
    Ok(position(text[start..].find(wanted).map(|at| from + length(&text[start..start + at]))))
}

fn position<'a>(found: Option<usize>) -> Value<'a> {
    Value::Int(found.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1))
}

pub(crate) fn last_index_of<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    if let Value::List(list) = &values[0] {
        let found =
            (0..list.len()).rev().find(|at| list.item(*at).is_some_and(|item| item.equals(&values[1])));
        return Ok(position(found));
    }
    let (text, wanted) = (arguments(values, 0)?, arguments(values, 1)?);
    let Some(offset) = number(values, 2)? else {
        if wanted.is_empty() {
            return Ok(position(Some(length(text))));
        }
        return Ok(position(text.rfind(wanted).map(|at| length(&text[..at]))));
    };
    if wanted.is_empty() {
        return Ok(Value::Int(offset));
    }
    let Ok(from) = usize::try_from(offset) else { return out_of_range(offset) };
    if from >= length(text) {
        return Ok(Value::Int(-1));
    }
    let end = byte_of(text, from + length(wanted)).unwrap_or(text.len());
    Ok(position(text[..end].rfind(wanted).map(|at| length(&text[..at]))))
}

pub(crate) fn lower<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::string(arguments(values, 0)?.to_ascii_lowercase()))
}

pub(crate) fn upper<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::string(arguments(values, 0)?.to_ascii_uppercase()))
}

pub(crate) fn replace<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (text, old, new) = (arguments(values, 0)?, arguments(values, 1)?, arguments(values, 2)?);
    let limit = number(values, 3)?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let count = if old.is_empty() { length(text) + 1 } else { text.matches(old).count() }.min(limit);
    if count.saturating_mul(new.len()).saturating_add(text.len()) > MAX_STRING_BYTES {
        return Err(CallError::text("operation cancelled: actual cost limit exceeded"));
    }
    Ok(Value::string(text.replacen(old, new, limit)))
}

/// Splits at a separator. An empty separator splits into characters. The last part holds the rest when the
/// limit is reached.
fn pieces<'t>(text: &'t str, separator: &str, limit: Option<i64>) -> Vec<&'t str> {
    let limit = match limit {
        Some(0) => return Vec::new(),
        Some(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    if !separator.is_empty() {
        return text.splitn(limit, separator).collect();
    }
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if found.len() + 1 == limit {
            found.push(rest);
            return found;
        }
        let (character, after) = rest.split_at(first.len_utf8());
        found.push(character);
        rest = after;
    }
    found
}

pub(crate) fn split<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (separator, limit) = (arguments(values, 1)?, number(values, 2)?);
    let parts = match &values[0] {
        Value::String(Text::Borrowed(text)) => {
            pieces(text, separator, limit).into_iter().map(Value::text).collect()
        }
        other => {
            let text = other.as_str().ok_or(CallError::NoOverload)?;
            pieces(text, separator, limit).into_iter().map(Value::string).collect()
        }
    };
    Ok(Value::list(parts))
}

pub(crate) fn substring<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (text, start, end) = (arguments(values, 0)?, number(values, 1)?.unwrap_or(0), number(values, 2)?);
    if let Some(end) = end.filter(|end| start > *end) {
        return Err(CallError::text(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let place = |index: i64| usize::try_from(index).ok().and_then(|index| byte_of(text, index));
    let Some(from) = place(start) else { return out_of_range(start) };
    let to = match end {
        None => text.len(),
        Some(end) => match place(end) {
            Some(to) => to,
            None => return out_of_range(end),
        },
    };
    Ok(substring_of(&values[0], from, to))
}

pub(crate) fn trim<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let text = arguments(values, 0)?;
    let start = text.len() - text.trim_start().len();
    let end = start + text[start..].trim_end().len();
    Ok(substring_of(&values[0], start, end))
}

pub(crate) fn join<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let Value::List(list) = &values[0] else { return Err(CallError::NoOverload) };
    let separator = values.get(1).map_or(Ok(""), |_| arguments(values, 1))?;
    let mut joined = String::new();
    for (index, item) in list.iter().enumerate() {
        if index > 0 {
            joined.push_str(separator);
        }
        let Value::String(text) = &item else {
            return Err(CallError::text(format!("join: invalid input: {}", plain(&item))));
        };
        joined.push_str(text.as_str());
        if joined.len() > MAX_STRING_BYTES {
            return Err(CallError::text("operation cancelled: actual cost limit exceeded"));
        }
    }
    Ok(Value::String(Text::Owned(Arc::from(joined))))
}

/// A value as `%v` of Go prints it in messages: strings without quotes.
pub(crate) fn plain(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        other => {
            super::standard::text(other).map_or_else(|| other.to_string(), |text| text.as_str().to_owned())
        }
    }
}

pub(crate) fn quote<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let mut quoted = String::from("\"");
    for character in arguments(values, 0)?.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    Ok(Value::string(quoted))
}

pub(crate) fn escape_key<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::string(portcullis_text::pointer::escape(arguments(values, 0)?)))
}
