//! The quantity library: functions of CEL over Kubernetes quantities.

use portcullis_text::Quantity;

use super::opaque::Opaque;
use super::{CallError, CallResult};
use crate::value::Value;

fn argument(values: &[Value<'_>], index: usize) -> Result<Quantity, CallError> {
    match values.get(index) {
        Some(Value::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Quantity(quantity) => Ok(*quantity),
            _ => Err(CallError::NoOverload),
        },
        _ => Err(CallError::NoOverload),
    }
}

/// The second argument: a quantity or an integer.
fn operand(values: &[Value<'_>]) -> Result<Quantity, CallError> {
    match values.get(1) {
        Some(Value::Int(value)) => Ok(Quantity::from_integer(*value)),
        _ => argument(values, 1),
    }
}

pub(crate) fn quantity<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let text = values[0].as_str().ok_or(CallError::NoOverload)?;
    Quantity::parse(text)
        .map(|quantity| Value::opaque(Opaque::Quantity(quantity)))
        .map_err(|error| CallError::text(error.api_server_message()))
}

pub(crate) fn is_quantity<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let text = values[0].as_str().ok_or(CallError::NoOverload)?;
    Ok(Value::Bool(Quantity::parse(text).is_ok()))
}

pub(crate) fn is_integer<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(argument(values, 0)?.as_integer().is_some()))
}

pub(crate) fn as_integer<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    argument(values, 0)?
        .as_integer()
        .map(Value::Int)
        .ok_or(CallError::text("cannot convert value to integer"))
}

pub(crate) fn as_float<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Double(argument(values, 0)?.as_float()))
}

pub(crate) fn sign<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let sign = argument(values, 0)?.nanos().signum();
    Ok(Value::Int(i64::try_from(sign).unwrap_or(0)))
}

pub(crate) fn add<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::opaque(Opaque::Quantity(argument(values, 0)?.plus(operand(values)?))))
}

pub(crate) fn subtract<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::opaque(Opaque::Quantity(argument(values, 0)?.minus(operand(values)?))))
}
