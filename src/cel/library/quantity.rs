//! Quantities with the arithmetic of CEL: signs, sums, and whether a value is kept as a whole number. The core's quantity is for
//! capacity, which is never negative; this one follows Go's in what `isInteger()` and `asInteger()` say.

use std::cmp::Ordering;
use std::fmt;

use super::opaque::Opaque;
use super::{Fault, Outcome};
use crate::value::{Value, number as exact};

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Style {
    Decimal,
    Exponent,
    Binary,
}

/// A number with a suffix such as `1500m` or `16Gi`.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    /// `value` times ten to the power of `scale`, when it fits; arithmetic keeps this form while it can.
    small: Option<(i64, i32)>,
    nanos: i128,
    style: Style,
}

const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";
const NANO: i128 = 1_000_000_000;

fn power(of: u32) -> Option<i128> {
    10_i128.checked_pow(of)
}

/// Ten's or two's exponent of a suffix.
fn suffix(text: &str) -> Option<(Style, i32)> {
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if let Some(at) = decimal.iter().position(|known| *known == text) {
        return Some((Style::Decimal, i32::try_from(at).ok()? * 3 - 9));
    }
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(at) = binary.iter().position(|known| *known == text) {
        return Some((Style::Binary, i32::try_from(at).ok()? * 10 + 10));
    }
    let exponent: i64 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
    // Kubernetes reads 64 bits and keeps 32 of them.
    let [a, b, c, d, ..] = exponent.to_le_bytes();
    Some((Style::Exponent, i32::from_le_bytes([a, b, c, d])))
}

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    /// The messages of Go's parser.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let negative = text.starts_with('-');
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, rest) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let letters = rest.find(|c: char| !"eEinumkKMGTP".contains(c)).unwrap_or(rest.len());
        let after = rest[letters..].strip_prefix(['+', '-']).unwrap_or(&rest[letters..]);
        if text.is_empty() || fraction.contains('.') || !after.bytes().all(|b| b.is_ascii_digit()) {
            return Err(FORMAT);
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(FORMAT);
        }
        let (style, exponent) = suffix(rest).ok_or(SUFFIX)?;
        let whole = whole.trim_start_matches('0');
        let digits = format!("{whole}{fraction}");
        let count = |text: &str| i32::try_from(text.len()).unwrap_or(i32::MAX / 4);
        let sign = |value: i128| if negative { -value } else { value };

        let (scale, precision, factor) = if style != Style::Binary {
            (exponent, 18 - count(&digits), 1)
        } else if fraction.is_empty() {
            (0, 15 - count(whole) - exponent * 3 / 10 - 1, 1_i64 << exponent)
        } else {
            (0, -1, 1)
        };
        let scale = scale.saturating_sub(count(fraction));
        if precision >= 0 && (-9..=100).contains(&scale) {
            let digits = if digits.is_empty() { "0" } else { &digits };
            if let Some(value) = digits.parse::<i64>().ok().and_then(|value| value.checked_mul(factor)) {
                let value = if negative { -value } else { value };
                let small = Some((value, scale));
                return Ok(Self { small, nanos: nanos_of(value, scale), style });
            }
        }
        let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().unwrap_or(i128::MAX) };
        let (ten, two) = if style == Style::Binary { (-count(fraction), exponent) } else { (scale, 0) };
        let shifted = mantissa.saturating_mul(1_i128 << two);
        let nanos = scaled(shifted, ten.saturating_add(9));
        let style = if style == Style::Binary && nanos < NANO { Style::Decimal } else { style };
        Ok(Self { small: None, nanos: sign(nanos), style })
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    fn integer(&self) -> Option<i64> {
        let (value, scale) = self.small?;
        let scale = u32::try_from(scale).ok()?;
        value.checked_mul(i64::try_from(power(scale)?).ok()?)
    }

    fn plus(&self, other: &Self, sign: i64) -> Self {
        let nanos = self.nanos.saturating_add(other.nanos.saturating_mul(sign.into()));
        let small = match (self.small, other.small) {
            (Some((0, _)), Some((value, scale))) => value.checked_mul(sign).map(|value| (value, scale)),
            (Some(kept), Some((0, _))) => Some(kept),
            (Some((a, x)), Some((b, y))) => {
                let scale = x.min(y);
                let lift = |value: i64, from: i32| {
                    let factor = i64::try_from(power(u32::try_from(from - scale).ok()?)?).ok()?;
                    value.checked_mul(factor)
                };
                let sum = lift(a, x).zip(lift(b, y)).and_then(|(a, b)| a.checked_add(b.checked_mul(sign)?));
                sum.map(|value| (value, scale))
            }
            _ => None,
        };
        let style = if self.nanos == 0 { other.style } else { self.style };
        Self { small, nanos, style }
    }
}

fn nanos_of(value: i64, scale: i32) -> i128 {
    scaled(value.unsigned_abs().into(), scale + 9) * i128::from(value.signum())
}

/// Times a power of ten; what is less than one is rounded up.
fn scaled(value: i128, scale: i32) -> i128 {
    let factor = power(scale.unsigned_abs());
    if scale >= 0 {
        return if value == 0 { 0 } else { value.saturating_mul(factor.unwrap_or(i128::MAX)) };
    }
    match factor {
        Some(factor) => value / factor + i128::from(value % factor != 0),
        None => i128::from(value != 0),
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.style == Style::Binary && self.nanos.abs() >= 1024 * NANO && self.nanos % NANO == 0 {
            let (mut value, mut steps) = (self.nanos / NANO, 0);
            while value % 1024 == 0 && steps < 6 {
                value /= 1024;
                steps += 1;
            }
            return write!(f, "{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][steps]);
        }
        let (mut value, mut steps) = (self.nanos, 0);
        while value % 1000 == 0 && steps < 9 {
            value /= 1000;
            steps += 1;
        }
        if self.style == Style::Exponent && steps != 3 {
            return write!(f, "{value}e{}", i32::try_from(steps).unwrap_or(0) * 3 - 9);
        }
        write!(f, "{value}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][steps])
    }
}

fn argument<'v>(values: &'v [Value<'_>], index: usize) -> Result<&'v Quantity, Fault> {
    match values.get(index) {
        Some(Value::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Quantity(quantity) => Ok(quantity),
            _ => Err(Fault::NoOverload),
        },
        _ => Err(Fault::NoOverload),
    }
}

/// The second argument, a quantity or a whole number.
fn operand(values: &[Value<'_>]) -> Result<Quantity, Fault> {
    match values.get(1) {
        Some(Value::Int(value)) => {
            Ok(Quantity { small: Some((*value, 0)), nanos: nanos_of(*value, 0), style: Style::Exponent })
        }
        _ => argument(values, 1).cloned(),
    }
}

pub(crate) fn quantity<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    let text = values[0].as_str().ok_or(Fault::NoOverload)?;
    Quantity::parse(text).map(|quantity| Value::opaque(Opaque::Quantity(quantity))).map_err(Fault::text)
}

pub(crate) fn is_quantity<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    let text = values[0].as_str().ok_or(Fault::NoOverload)?;
    Ok(Value::Bool(Quantity::parse(text).is_ok()))
}

pub(crate) fn is_integer<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(argument(values, 0)?.integer().is_some()))
}

pub(crate) fn as_integer<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    argument(values, 0)?.integer().map(Value::Int).ok_or(Fault::text("cannot convert value to integer"))
}

pub(crate) fn as_float<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    let quantity = argument(values, 0)?;
    let value = match quantity.small {
        Some((value, 0)) => exact::from_int(value),
        Some((value, scale)) if scale > 0 => exact::from_int(value) * 10_f64.powi(scale),
        Some((value, scale)) => exact::from_int(value) / 10_f64.powi(-scale),
        None => {
            let whole = i64::try_from(quantity.nanos / NANO).unwrap_or(i64::MAX);
            let rest = i64::try_from(quantity.nanos % NANO).unwrap_or(0);
            exact::from_int(whole) + exact::from_int(rest) / 1e9
        }
    };
    Ok(Value::Double(value))
}

pub(crate) fn sign<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    let sign = argument(values, 0)?.nanos.signum();
    Ok(Value::Int(i64::try_from(sign).unwrap_or(0)))
}

pub(crate) fn add<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::opaque(Opaque::Quantity(argument(values, 0)?.plus(&operand(values)?, 1))))
}

pub(crate) fn subtract<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::opaque(Opaque::Quantity(argument(values, 0)?.plus(&operand(values)?, -1))))
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering::{Equal, Greater, Less};

    use super::{Quantity, SUFFIX};

    #[test]
    fn exponents_of_any_size_compare_by_what_they_say() {
        let of = |text: &str| Quantity::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        for (first, expected, second) in [
            ("1e2147483647", Greater, "9Ei"),
            ("1E+2147483647", Greater, "9Ei"),
            ("1e2147483639", Greater, "9Ei"),
            ("1e0000000000000000000002147483647", Greater, "9Ei"),
            ("0.001e2147483647", Greater, "9Ei"),
            ("9999999999999999999e2147483647", Greater, "9Ei"),
            ("-1e2147483647", Less, "-9Ei"),
            ("1e-2147483647", Equal, "1n"),
            ("1e-2147483648", Equal, "1n"),
            ("1.5e-2147483648", Equal, "1n"),
            ("1e-0000000000000000000002147483647", Equal, "1n"),
            ("-1e-2147483647", Equal, "-1n"),
            ("0e2147483647", Equal, "0"),
            ("0e-2147483647", Equal, "0"),
            ("1e000000000000000000000000000003", Equal, "1k"),
            // Kubernetes keeps 32 bits of an exponent that has more.
            ("1e4294967299", Equal, "1k"),
            ("1e-4294967293", Equal, "1k"),
            ("1e9223372036854775807", Equal, "100m"),
        ] {
            assert_eq!(of(first).compare(&of(second)), expected, "{first} and {second}");
            assert!(!of(first).to_string().is_empty());
        }
        for text in ["1e9223372036854775808", "1e-9223372036854775809", "1e99999999999999999999999"] {
            assert_eq!(Quantity::parse(text), Err(SUFFIX), "{text}");
        }
    }
}
