//! The quantity library: functions of CEL over Kubernetes quantities.

use portcullis_text::Quantity;

use super::opaque::Opaque;
use super::{Fault, Outcome};
use crate::value::Value;

fn argument(values: &[Value<'_>], index: usize) -> Result<Quantity, Fault> {
    match values.get(index) {
        Some(Value::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Quantity(quantity) => Ok(*quantity),
            _ => Err(Fault::NoOverload),
        },
        _ => Err(Fault::NoOverload),
    }
}

/// The second argument: a quantity or an integer.
fn operand(values: &[Value<'_>]) -> Result<Quantity, Fault> {
    match values.get(1) {
        Some(Value::Int(value)) => Ok(Quantity::from_integer(*value)),
        _ => argument(values, 1),
    }
}

pub(crate) fn quantity<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    let text = values[0].as_str().ok_or(Fault::NoOverload)?;
    Quantity::parse(text)
        .map(|quantity| Value::opaque(Opaque::Quantity(quantity)))
        .map_err(|error| Fault::text(error.api_server_message()))
}

pub(crate) fn is_quantity<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    let text = values[0].as_str().ok_or(Fault::NoOverload)?;
    Ok(Value::Bool(Quantity::parse(text).is_ok()))
}

pub(crate) fn is_integer<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(argument(values, 0)?.as_integer().is_some()))
}

pub(crate) fn as_integer<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    argument(values, 0)?.as_integer().map(Value::Int).ok_or(Fault::text("cannot convert value to integer"))
}

pub(crate) fn as_float<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Double(argument(values, 0)?.as_float()))
}

pub(crate) fn sign<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    let sign = argument(values, 0)?.nanos().signum();
    Ok(Value::Int(i64::try_from(sign).unwrap_or(0)))
}

pub(crate) fn add<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::opaque(Opaque::Quantity(argument(values, 0)?.plus(operand(values)?))))
}

pub(crate) fn subtract<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::opaque(Opaque::Quantity(argument(values, 0)?.minus(operand(values)?))))
}
