//! Conversions, sizes, parts of timestamps and durations, and optional values.

use jiff::civil::DateTime;
use portcullis_text::duration;
use portcullis_text::timestamp::TimestampError;

use super::{CallError, CallResult};
use crate::value::{Text, Timestamp, Value, civil_in_zone, double_text, number as exact, parse_double};

pub(crate) fn size<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match &arguments[0] {
        value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_)) => {
            Ok(Value::Int(i64::try_from(value.size()).unwrap_or(i64::MAX)))
        }
        _ => Err(CallError::NoOverload),
    }
}

fn unconvertible<'a>(value: &Value<'_>, to: &str) -> CallResult<'a> {
    Err(CallError::text(format!("type conversion error from '{}' to '{to}'", value.kind().name())))
}

pub(crate) fn to_bool<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match &arguments[0] {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(text) => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => unconvertible(&arguments[0], "bool"),
        },
        other => unconvertible(other, "bool"),
    }
}

pub(crate) fn to_bytes<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match &arguments[0] {
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
        Value::String(text) => Ok(Value::Bytes(text.as_str().as_bytes().into())),
        other => unconvertible(other, "bytes"),
    }
}

pub(crate) fn to_double<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    let value = &arguments[0];
    let converted = value.as_double().or_else(|| value.as_str().and_then(parse_double));
    converted.map_or_else(|| unconvertible(value, "double"), |value| Ok(Value::Double(value)))
}

pub(crate) fn to_int<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    let value = &arguments[0];
    let overflow = || CallError::text("integer overflow");
    match value {
        Value::Int(number) | Value::Duration(number) => Ok(Value::Int(*number)),
        Value::Uint(number) => i64::try_from(*number).map(Value::Int).map_err(|_| overflow()),
        Value::Double(number) => exact::truncate_int(*number).map(Value::Int).ok_or_else(overflow),
        Value::Timestamp(moment) => Ok(Value::Int(moment.seconds())),
        Value::String(text) => text
            .as_str()
            .parse()
            .map_or_else(|_| unconvertible(value, "int"), |number| Ok(Value::Int(number))),
        other => unconvertible(other, "int"),
    }
}

pub(crate) fn to_uint<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    let value = &arguments[0];
    let overflow = || CallError::text("unsigned integer overflow");
    match value {
        Value::Uint(number) => Ok(Value::Uint(*number)),
        Value::Int(number) => u64::try_from(*number).map(Value::Uint).map_err(|_| overflow()),
        Value::Double(number) => exact::truncate_uint(*number).map(Value::Uint).ok_or_else(overflow),
        Value::String(text) if !text.as_str().starts_with('+') => text
            .as_str()
            .parse()
            .map_or_else(|_| unconvertible(value, "uint"), |number| Ok(Value::Uint(number))),
        other => unconvertible(other, "uint"),
    }
}

/// A value as `string()` and the placeholder `%s` write it.
pub(crate) fn text<'a>(value: &Value<'a>) -> Option<Text<'a>> {
    let made = match value {
        Value::String(text) => return Some(text.clone()),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => double_text(*value),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok()?,
        Value::Duration(value) => duration::format_seconds(*value),
        Value::Timestamp(moment) => moment.to_string(),
        Value::Type(of) => of.name().to_owned(),
        Value::Opaque(opaque) => opaque.to_string(),
        _ => return None,
    };
    Some(Text::Owned(made.into()))
}

pub(crate) fn to_string<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    let value = &arguments[0];
    match text(value) {
        Some(text) => Ok(Value::String(text)),
        None if matches!(value, Value::Bytes(_)) => {
            Err(CallError::text("invalid UTF-8 in bytes, cannot convert to string"))
        }
        None => unconvertible(value, "string"),
    }
}

pub(crate) fn to_duration<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match &arguments[0] {
        Value::Duration(value) => Ok(Value::Duration(*value)),
        Value::String(text) => duration::parse_nanos(text.as_str()).map_or_else(
            || unconvertible(&arguments[0], "google.protobuf.Duration"),
            |value| Ok(Value::Duration(value)),
        ),
        other => unconvertible(other, "google.protobuf.Duration"),
    }
}

pub(crate) fn to_timestamp<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    const TYPE_NAME: &str = "google.protobuf.Timestamp";
    match &arguments[0] {
        Value::Timestamp(moment) => Ok(Value::Timestamp(*moment)),
        Value::Int(seconds) => Timestamp::new(*seconds, 0)
            .map(Value::Timestamp)
            .ok_or_else(|| CallError::text("timestamp overflow")),
        Value::String(text) => match Timestamp::parse(text.as_str()) {
            Ok(moment) => Ok(Value::Timestamp(moment)),
            Err(TimestampError::OutOfRange) => Err(CallError::text("timestamp overflow")),
            Err(TimestampError::Malformed) => unconvertible(&arguments[0], TYPE_NAME),
        },
        other => unconvertible(other, TYPE_NAME),
    }
}

/// A part of the date and time in the zone of the second argument, or in UTC.
fn date_part<'a>(arguments: &[Value<'a>], of: fn(&DateTime) -> i64) -> CallResult<'a> {
    let zone = arguments.get(1).and_then(Value::as_str).unwrap_or_default();
    match &arguments[0] {
        Value::Timestamp(moment) => {
            civil_in_zone(*moment, zone).map(|civil| Value::Int(of(&civil))).map_err(CallError::text)
        }
        _ => Err(CallError::NoOverload),
    }
}

pub(crate) fn full_year<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    date_part(arguments, |civil| civil.year().into())
}

pub(crate) fn month<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    date_part(arguments, |civil| i64::from(civil.month()) - 1)
}

pub(crate) fn day_of_year<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    date_part(arguments, |civil| i64::from(civil.day_of_year()) - 1)
}

pub(crate) fn day_of_month<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    date_part(arguments, |civil| i64::from(civil.day()) - 1)
}

pub(crate) fn date<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    date_part(arguments, |civil| civil.day().into())
}

pub(crate) fn day_of_week<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    date_part(arguments, |civil| civil.weekday().to_sunday_zero_offset().into())
}

const NANOS_PER_MILLI: i64 = 1_000_000;

/// A part of a timestamp, or a duration in whole units.
fn part_or_units<'a>(arguments: &[Value<'a>], unit: i64, of: fn(&DateTime) -> i64) -> CallResult<'a> {
    match &arguments[0] {
        Value::Duration(value) => Ok(Value::Int(value / unit)),
        _ => date_part(arguments, of),
    }
}

pub(crate) fn hours<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    part_or_units(arguments, 3_600_000 * NANOS_PER_MILLI, |civil| civil.hour().into())
}

pub(crate) fn minutes<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    part_or_units(arguments, 60_000 * NANOS_PER_MILLI, |civil| civil.minute().into())
}

pub(crate) fn seconds<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    part_or_units(arguments, 1_000 * NANOS_PER_MILLI, |civil| civil.second().into())
}

pub(crate) fn milliseconds<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    part_or_units(arguments, NANOS_PER_MILLI, |civil| civil.millisecond().into())
}

pub(crate) fn of_non_zero<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    let value = &arguments[0];
    Ok(if value.is_zero() { Value::Optional(None) } else { Value::some(value.clone()) })
}

pub(crate) fn has_value<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match &arguments[0] {
        Value::Optional(inner) => Ok(Value::Bool(inner.is_some())),
        _ => Err(CallError::NoOverload),
    }
}

pub(crate) fn optional_value<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match &arguments[0] {
        Value::Optional(Some(inner)) => Ok(inner.as_ref().clone()),
        Value::Optional(None) => Err(CallError::text("optional.none() dereference")),
        _ => Err(CallError::NoOverload),
    }
}

pub(crate) fn unwrap<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    let Value::List(list) = &arguments[0] else { return Err(CallError::NoOverload) };
    let mut items = Vec::new();
    for item in list.iter() {
        match item {
            Value::Optional(Some(inner)) => items.push(inner.as_ref().clone()),
            Value::Optional(None) => {}
            other => return Err(CallError::text(format!("value {other} is not optional"))),
        }
    }
    Ok(Value::list(items))
}
