//! Numbers: exact conversions, order across types, and the number formats of Go.

use std::cmp::Ordering;

use super::Value;

const TWO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_64: f64 = 18_446_744_073_709_551_616.0;

/// The nearest double of an integer.
#[expect(clippy::cast_precision_loss, reason = "CEL converts to the nearest double")]
pub(crate) fn from_int(value: i64) -> f64 {
    value as f64
}

/// The nearest double of an unsigned integer.
#[expect(clippy::cast_precision_loss, reason = "CEL converts to the nearest double")]
pub(crate) fn from_uint(value: u64) -> f64 {
    value as f64
}

/// The integer part, if it fits. The end points of the range do not fit, as in cel-go.
#[expect(clippy::cast_possible_truncation, reason = "the range was looked at, the fraction is cut off")]
pub(crate) fn truncate_int(value: f64) -> Option<i64> {
    (value > -TWO_63 && value < TWO_63).then_some(value as i64)
}

/// The integer part, if it fits an unsigned integer.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range was looked at, the fraction is cut off"
)]
pub(crate) fn truncate_uint(value: f64) -> Option<u64> {
    (0.0..TWO_64).contains(&value).then_some(value as u64)
}

pub(super) fn exact_int(value: f64) -> Option<i64> {
    truncate_int(value).filter(|whole| from_int(*whole) == value)
}

pub(super) fn exact_uint(value: f64) -> Option<u64> {
    truncate_uint(value).filter(|whole| from_uint(*whole) == value)
}

/// The order of two numbers, which may have different types.
pub(super) fn compare(first: &Value<'_>, second: &Value<'_>) -> Option<Ordering> {
    match (first, second) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        _ => first.as_double()?.partial_cmp(&second.as_double()?),
    }
}

/// A double in the format `%g` of Go: the shortest digits that read back as the same number.
pub(crate) fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        return go_exponent(digits, exponent);
    }
    format!("{value}")
}

fn go_exponent(digits: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Reads a double as `strconv.ParseFloat` of Go does.
pub(crate) fn parse_double(text: &str) -> Option<f64> {
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    let negative = text.starts_with('-');
    let special = match bare.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => Some(f64::INFINITY),
        "nan" if bare.len() == text.len() => Some(f64::NAN),
        _ => None,
    };
    if let Some(special) = special {
        return Some(if negative { -special } else { special });
    }
    if !bare.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let value = text.parse::<f64>().ok()?;
    value.is_finite().then_some(value)
}
