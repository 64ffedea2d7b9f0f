//! Arithmetic, order and membership. An overflow is an error.

use std::cmp::Ordering;

use super::{CallError, CallResult};
use crate::value::{Map, Value};

const INT_OVERFLOW: CallError = CallError::Text(std::borrow::Cow::Borrowed("integer overflow"));
const UINT_OVERFLOW: CallError = CallError::Text(std::borrow::Cow::Borrowed("unsigned integer overflow"));
const DURATION_OVERFLOW: CallError = INT_OVERFLOW;
const TIMESTAMP_OVERFLOW: CallError = CallError::Text(std::borrow::Cow::Borrowed("timestamp overflow"));

/// The error of an operator for types that it does not take. It names no function.
const NO_OVERLOAD: CallError = CallError::Text(std::borrow::Cow::Borrowed("no such overload"));

fn int<'a>(result: Option<i64>) -> CallResult<'a> {
    result.map(Value::Int).ok_or(INT_OVERFLOW)
}

fn uint<'a>(result: Option<u64>) -> CallResult<'a> {
    result.map(Value::Uint).ok_or(UINT_OVERFLOW)
}

fn duration<'a>(result: Option<i64>) -> CallResult<'a> {
    result.map(Value::Duration).ok_or(DURATION_OVERFLOW)
}

/// The error for a first operand: types without the operator have no function of that name.
fn unknown<'a>(first: &Value<'_>, known: fn(&Value<'_>) -> bool) -> CallResult<'a> {
    Err(if known(first) { NO_OVERLOAD } else { CallError::NoOverload })
}

pub(crate) fn add<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match (&arguments[0], &arguments[1]) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => Ok(Value::string([a.as_str(), b.as_str()].concat())),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes([&a[..], &b[..]].concat().into())),
        (Value::List(a), Value::List(b)) => {
            let mut items = a.clone().into_vec();
            items.extend(b.iter());
            Ok(Value::list(items))
        }
        (Value::Duration(a), Value::Duration(b)) => duration(a.checked_add(*b)),
        (Value::Timestamp(moment), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(moment)) => {
            moment.checked_add_nanos(i128::from(*by)).map(Value::Timestamp).ok_or(TIMESTAMP_OVERFLOW)
        }
        (first, _) => unknown(first, |value| {
            matches!(
                value,
                Value::Int(_)
                    | Value::Uint(_)
                    | Value::Double(_)
                    | Value::String(_)
                    | Value::Bytes(_)
                    | Value::List(_)
                    | Value::Duration(_)
                    | Value::Timestamp(_)
            )
        }),
    }
}

pub(crate) fn subtract<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match (&arguments[0], &arguments[1]) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => duration(a.checked_sub(*b)),
        (Value::Timestamp(moment), Value::Duration(by)) => {
            moment.checked_add_nanos(-i128::from(*by)).map(Value::Timestamp).ok_or(TIMESTAMP_OVERFLOW)
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => duration(a.nanos_since(*b)),
        (first, _) => unknown(first, |value| {
            matches!(
                value,
                Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_) | Value::Timestamp(_)
            )
        }),
    }
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

pub(crate) fn multiply<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match (&arguments[0], &arguments[1]) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_mul(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_mul(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        (first, _) => unknown(first, is_number),
    }
}

pub(crate) fn divide<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match (&arguments[0], &arguments[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            Err(CallError::text("division by zero"))
        }
        (Value::Int(a), Value::Int(b)) => int(a.checked_div(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_div(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        (first, _) => unknown(first, is_number),
    }
}

pub(crate) fn modulo<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match (&arguments[0], &arguments[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            Err(CallError::text("modulus by zero"))
        }
        (Value::Int(a), Value::Int(b)) => int(a.checked_rem(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_rem(*b)),
        (first, _) => unknown(first, |value| matches!(value, Value::Int(_) | Value::Uint(_))),
    }
}

pub(crate) fn negate<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match &arguments[0] {
        Value::Int(value) => int(value.checked_neg()),
        Value::Double(value) => Ok(Value::Double(-value)),
        first => unknown(first, |value| matches!(value, Value::Bool(_) | Value::Duration(_))),
    }
}

pub(crate) fn not<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    match &arguments[0] {
        Value::Bool(value) => Ok(Value::Bool(!value)),
        _ => Err(NO_OVERLOAD),
    }
}

fn order<'a>(arguments: &[Value<'a>], accept: fn(Ordering) -> bool) -> CallResult<'a> {
    let (first, second) = (&arguments[0], &arguments[1]);
    if matches!(first, Value::Double(number) if number.is_nan()) {
        return Err(CallError::text("NaN values cannot be ordered"));
    }
    if let Some(order) = first.compare(second) {
        return Ok(Value::Bool(accept(order)));
    }
    if is_number(first) && is_number(second) {
        return Err(CallError::text("NaN values cannot be ordered"));
    }
    unknown(first, |value| {
        is_number(value)
            || matches!(
                value,
                Value::Bool(_)
                    | Value::String(_)
                    | Value::Bytes(_)
                    | Value::Duration(_)
                    | Value::Timestamp(_)
            )
    })
}

pub(crate) fn less<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    order(arguments, Ordering::is_lt)
}

pub(crate) fn less_equals<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    order(arguments, Ordering::is_le)
}

pub(crate) fn greater<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    order(arguments, Ordering::is_gt)
}

pub(crate) fn greater_equals<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    order(arguments, Ordering::is_ge)
}

pub(crate) fn within<'a>(arguments: &[Value<'a>]) -> CallResult<'a> {
    let wanted = &arguments[0];
    let found = match &arguments[1] {
        Value::List(list) => list.iter().any(|item| item.equals(wanted)),
        Value::Map(map @ (Map::Json(_) | Map::Owned(_))) => map.find(wanted).is_some(),
        _ => return Err(NO_OVERLOAD),
    };
    Ok(Value::Bool(found))
}
