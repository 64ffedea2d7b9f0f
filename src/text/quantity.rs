//! Kubernetes quantities (`100m`, `4Gi`, `1e3`, `.5`), read exactly as the API server reads them.
//!
//! Source: `ParseQuantity` and `Quantity` of k8s.io/apimachinery, pkg/api/resource. `quantity_cases.tsv`
//! holds what that code makes of each input; `tests/cel/quantities` writes the table, and the tests below
//! compare every row.
//!
//! Go keeps a quantity in one of two forms: a 64-bit value with a power of ten, or a decimal of any length.
//! `isInteger` and the conversion to a float depend on the form, so this type keeps it too.
//!
//! One difference: amounts of more than 1.7e29 units (2^127 billionths) saturate. Go keeps all their digits.

use std::cmp::Ordering;
use std::fmt;

use crate::truncate::first_chars;

/// A quantity: an amount in billionths, and the notation it was written in.
///
/// Comparison and equality look at the amount alone: `1000m` equals `1`.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// The amount in billionths; finer input is rounded up, away from zero.
    nanos: i128,
    /// Go's short form. `None` where Go keeps a decimal of any length.
    short: Option<ShortForm>,
    notation: Notation,
}

/// `value` times ten to the power of `scale` (`int64Amount` in Go).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShortForm {
    value: i64,
    scale: i32,
}

/// How a quantity is written (`Format` in Go).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    /// Decimal suffixes: `m`, `k`, `M`.
    DecimalSuffix,
    /// An exponent: `1e3`.
    Exponent,
    /// Binary suffixes: `Ki`, `Mi`.
    BinarySuffix,
}

/// A text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a quantity: expected a number such as 2, 0.5, 100m, 4Gi or 1e3")]
pub struct QuantityError {
    /// The first characters of the text.
    text: String,
    kind: QuantityErrorKind,
}

/// What the API server finds wrong with a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuantityErrorKind {
    Format,
    Suffix,
    Numeric,
}

impl QuantityError {
    /// The message of the API server for this error (`ErrFormatWrong`, `ErrSuffix`, `ErrNumeric`).
    pub fn api_server_message(&self) -> &'static str {
        match self.kind {
            QuantityErrorKind::Format => {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            QuantityErrorKind::Suffix => "unable to parse quantity's suffix",
            QuantityErrorKind::Numeric => "unable to parse numeric part of quantity",
        }
    }
}

const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// Saturated amounts stay within this, so that every amount has an opposite.
const MIN_NANOS: i128 = -i128::MAX;
/// The API server caps amounts with a binary suffix at this many units.
const MAX_BINARY_UNITS: i128 = i64::MAX as i128;
/// Characters of a wrong text that the error repeats.
const MAX_ERROR_TEXT_CHARS: usize = 64;
/// Digits that always fit a 64-bit integer (`maxInt64Factors` in Go).
const MAX_SHORT_DIGITS: usize = 18;
/// Decimal digits that always fit 127 bits.
const MAX_NANO_DIGITS: i64 = 38;

/// The parts of a quantity's text (`parseQuantityString` in Go).
struct Parts<'t> {
    is_negative: bool,
    /// Digits before the point, without leading zeros; `0` where none is left.
    whole: &'t str,
    /// Digits after the point.
    fraction: &'t str,
    suffix: &'t str,
    /// Whether the text has any digit before its suffix.
    has_digits: bool,
}

/// Splits a text into its parts; `None` when the text does not have the form of a quantity.
fn split(text: &str) -> Option<Parts<'_>> {
    if text.is_empty() {
        return None;
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits_end = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = unsigned.split_at(digits_end(unsigned));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(after) => after.split_at(digits_end(after)),
        None => ("", rest),
    };
    let after_letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let exponent = after_letters.strip_prefix(['+', '-']).unwrap_or(after_letters);
    if digits_end(exponent) != exponent.len() {
        return None;
    }
    let whole = digits.trim_start_matches('0');
    Some(Parts {
        is_negative: text.starts_with('-'),
        whole: if whole.is_empty() { "0" } else { whole },
        fraction,
        suffix,
        has_digits: !digits.is_empty() || !fraction.is_empty(),
    })
}

/// The notation of a suffix, and its power of ten or of two.
fn read_suffix(suffix: &str) -> Option<(Notation, i32)> {
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let place_in = |list: &[&str]| list.iter().position(|s| *s == suffix).and_then(|i| i32::try_from(i).ok());
    if let Some(place) = place_in(&DECIMAL) {
        return Some((Notation::DecimalSuffix, place * 3 - 9));
    }
    if let Some(place) = place_in(&BINARY) {
        return Some((Notation::BinarySuffix, place * 10 + 10));
    }
    let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    // Go reads 64 bits and keeps the low 32: `1e4294967297` is 10.
    let [a, b, c, d, ..] = exponent.to_le_bytes();
    Some((Notation::Exponent, i32::from_le_bytes([a, b, c, d])))
}

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    /// For every text that the API server refuses.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let error = |kind| QuantityError { text: first_chars(text, MAX_ERROR_TEXT_CHARS).to_owned(), kind };
        let parts = split(text).ok_or_else(|| error(QuantityErrorKind::Format))?;
        let (notation, exponent) =
            read_suffix(parts.suffix).ok_or_else(|| error(QuantityErrorKind::Suffix))?;
        if let Some(short) = parts.short_form(notation, exponent) {
            return Ok(Self { nanos: short.nanos(), short: Some(short), notation });
        }
        if !parts.has_digits {
            return Err(error(QuantityErrorKind::Numeric));
        }
        Ok(parts.long_form(notation, exponent))
    }

    /// The quantity of a whole number, as CEL's `add` and `sub` make it.
    pub fn from_integer(value: i64) -> Self {
        let short = ShortForm { value, scale: 0 };
        Self { nanos: short.nanos(), short: Some(short), notation: Notation::Exponent }
    }

    /// Billionths.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Whole units, rounded up: 0 for a negative amount, at most `i64::MAX`.
    pub fn units(self) -> u64 {
        self.ceil(NANOS_PER_UNIT)
    }

    /// Thousandths, rounded up: 0 for a negative amount, at most `i64::MAX`.
    pub fn millis(self) -> u64 {
        self.ceil(NANOS_PER_UNIT / 1000)
    }

    /// The amount in steps of `step` billionths, rounded up, from 0 to `i64::MAX`.
    fn ceil(self, step: i128) -> u64 {
        let steps = self.nanos / step + i128::from(self.nanos % step > 0);
        u64::try_from(steps.clamp(0, i64::MAX.into())).unwrap_or(0)
    }

    /// The amount as an integer (`AsInt64`); `None` where Go says no, also for `1000m`.
    pub fn as_integer(self) -> Option<i64> {
        let ShortForm { value, scale } = self.short?;
        let scale = u32::try_from(scale).ok()?;
        if value == 0 {
            return Some(0);
        }
        value.checked_mul(10_i64.checked_pow(scale)?)
    }

    /// The amount as a float (`AsApproximateFloat64`), with Go's rounding.
    #[expect(clippy::cast_precision_loss, reason = "Go converts to the nearest double")]
    pub fn as_float(self) -> f64 {
        match self.short {
            Some(ShortForm { value, scale: 0 }) => value as f64,
            Some(ShortForm { value, scale }) => value as f64 * power_of_ten(scale),
            None => self.nanos as f64 * power_of_ten(-9),
        }
    }

    /// The sum, in the notation of `self` unless that is zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.combine(other, other.short, self.nanos.saturating_add(other.nanos))
    }

    /// The difference, in the notation of `self` unless that is zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let negated = other.short.and_then(|short| short.negate());
        self.combine(other, negated, self.nanos.saturating_sub(other.nanos))
    }

    fn combine(self, other: Self, addend: Option<ShortForm>, nanos: i128) -> Self {
        let short = self.short.zip(addend).and_then(|(short, addend)| short.add(addend));
        let notation = if self.nanos == 0 { other.notation } else { self.notation };
        Self { nanos: nanos.max(MIN_NANOS), short, notation }
    }
}

impl Parts<'_> {
    /// Go's short form, where the text has so few digits that Go takes the short way.
    fn short_form(&self, notation: Notation, exponent: i32) -> Option<ShortForm> {
        let (scale, factor) = if notation == Notation::BinarySuffix {
            let spare = 14 - usize::try_from(exponent * 3 / 10).ok()?.min(14);
            if !self.fraction.is_empty() || self.whole.len() > spare {
                return None;
            }
            (0, 1_i64 << exponent)
        } else {
            if self.whole.len() + self.fraction.len() > MAX_SHORT_DIGITS {
                return None;
            }
            (exponent.saturating_sub(i32::try_from(self.fraction.len()).ok()?), 1)
        };
        if scale < -9 {
            return None;
        }
        let digit = |value: i64, digit: u8| value.checked_mul(10)?.checked_add(i64::from(digit - b'0'));
        let value =
            self.whole.bytes().chain(self.fraction.bytes()).try_fold(0, digit)?.checked_mul(factor)?;
        Some(ShortForm { value: if self.is_negative { -value } else { value }, scale })
    }

    /// The decimal of any length, rounded to billionths and capped as the API server does.
    fn long_form(&self, notation: Notation, exponent: i32) -> Quantity {
        let digits = self.whole.bytes().chain(self.fraction.bytes()).map(|b| b - b'0').collect();
        let places = i64::try_from(self.fraction.len()).unwrap_or(i64::MAX);
        let mut notation = notation;
        let nanos = if notation == Notation::BinarySuffix {
            let nanos = round_to_nanos(&shift_left(digits, exponent.unsigned_abs()), -places);
            // Go writes binary amounts below one unit with a decimal suffix.
            if nanos > 0 && nanos < NANOS_PER_UNIT {
                notation = Notation::DecimalSuffix;
            }
            nanos.min(MAX_BINARY_UNITS * NANOS_PER_UNIT)
        } else {
            round_to_nanos(&digits, i64::from(exponent).saturating_sub(places))
        };
        Quantity { nanos: if self.is_negative { -nanos } else { nanos }, short: None, notation }
    }
}

impl ShortForm {
    fn nanos(self) -> i128 {
        if self.value == 0 {
            return 0;
        }
        let factor = 10_i128.checked_pow(self.scale.saturating_add(9).unsigned_abs()).unwrap_or(i128::MAX);
        i128::from(self.value).saturating_mul(factor).max(MIN_NANOS)
    }

    fn negate(self) -> Option<Self> {
        Some(Self { value: self.value.checked_neg()?, ..self })
    }

    /// The sum (`int64Amount.Add`); `None` when it does not fit.
    fn add(self, other: Self) -> Option<Self> {
        if other.value == 0 {
            return Some(self);
        }
        if self.value == 0 {
            return Some(other);
        }
        let scale = self.scale.min(other.scale);
        let at_scale = |short: Self| {
            let steps = short.scale.checked_sub(scale)?.unsigned_abs();
            short.value.checked_mul(10_i64.checked_pow(steps)?)
        };
        Some(Self { value: at_scale(self)?.checked_add(at_scale(other)?)?, scale })
    }
}

/// Ten to the power of `exponent`, rounded as Go's `math.Pow10` rounds: the product or quotient of two table
/// entries.
fn power_of_ten(exponent: i32) -> f64 {
    let nearest = |power: i32| format!("1e{power}").parse().unwrap_or(f64::INFINITY);
    match exponent {
        0..=308 => nearest(exponent / 32 * 32) * nearest(exponent % 32),
        -323..0 => nearest(exponent / 32 * 32) / nearest(-exponent % 32),
        ..-323 => 0.0,
        _ => f64::INFINITY,
    }
}

/// Billionths of `digits` times ten to the power of `power`: rounded up, saturating. Linear in the number of
/// digits, whatever the power.
fn round_to_nanos(digits: &[u8], power: i64) -> i128 {
    let Some(first) = digits.iter().position(|digit| *digit != 0) else { return 0 };
    let digits = &digits[first..];
    // The digits of the result that stand before the point of a billionth.
    let kept = i64::try_from(digits.len()).unwrap_or(i64::MAX).saturating_add(power).saturating_add(9);
    if kept <= 0 {
        return 1;
    }
    if kept > MAX_NANO_DIGITS + 1 {
        return i128::MAX;
    }
    let kept = usize::try_from(kept).unwrap_or(0);
    let (whole, cut) = digits.split_at(kept.min(digits.len()));
    let whole = whole.iter().chain(std::iter::repeat(&0)).take(kept);
    let push = |sum: i128, digit: &u8| sum.saturating_mul(10).saturating_add(i128::from(*digit));
    whole.fold(0, push).saturating_add(i128::from(cut.iter().any(|digit| *digit != 0)))
}

/// The decimal digits of a number times two to the power of `shift` (at most 60).
fn shift_left(digits: Vec<u8>, shift: u32) -> Vec<u8> {
    let mut product = Vec::with_capacity(digits.len() + 20);
    let mut carry: u128 = 0;
    let mut push = |carry: &mut u128| {
        product.push(u8::try_from(*carry % 10).expect("a digit is below 10"));
        *carry /= 10;
    };
    for digit in digits.into_iter().rev() {
        carry += u128::from(digit) << shift;
        push(&mut carry);
    }
    while carry > 0 {
        push(&mut carry);
    }
    product.reverse();
    product
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    /// The canonical text (`CanonicalizeBytes`): the largest suffix that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let is_whole = self.nanos % NANOS_PER_UNIT == 0;
        if self.notation == Notation::BinarySuffix && self.nanos.abs() >= 1024 * NANOS_PER_UNIT && is_whole {
            let (value, steps) = reduce(self.nanos / NANOS_PER_UNIT, 1024, 6);
            return write!(f, "{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][steps]);
        }
        let (value, steps) = reduce(self.nanos, 1000, usize::MAX);
        match self.notation {
            Notation::Exponent if steps == 3 => write!(f, "{value}"),
            Notation::Exponent => write!(f, "{value}e{}", i128::try_from(steps).unwrap_or(0) * 3 - 9),
            // Beyond `E` the API server writes no suffix at all.
            _ => {
                let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].get(steps);
                write!(f, "{value}{}", suffix.unwrap_or(&""))
            }
        }
    }
}

/// Divides by `base` while nothing is lost, at most `limit` times; returns the rest and the number of
/// divisions.
fn reduce(mut value: i128, base: i128, limit: usize) -> (i128, usize) {
    let mut steps = 0;
    while steps < limit && value != 0 && value % base == 0 {
        value /= base;
        steps += 1;
    }
    (value, steps)
}

/// Fuzz target: reads any text and checks what must hold of the result.
///
/// # Panics
/// When an invariant of quantities is broken.
#[doc(hidden)]
pub fn fuzz_quantity(text: &str) {
    let Ok(quantity) = Quantity::parse(text) else { return };
    let max_units = i64::MAX.unsigned_abs();
    let (units, millis) = (quantity.units(), quantity.millis());
    let positive = quantity.nanos.clamp(0, i128::from(max_units) * NANOS_PER_UNIT);
    let rounds_up = |amount: u64, step: i128| {
        let nanos = i128::from(amount) * step;
        nanos >= positive && nanos - positive < step
    };
    assert!(rounds_up(units, NANOS_PER_UNIT), "{text:?} rounds up to units");
    assert!(
        millis == max_units || rounds_up(millis, NANOS_PER_UNIT / 1000),
        "{text:?} rounds up to thousandths"
    );
    let opposite = match text.strip_prefix('-') {
        Some(rest) => rest.to_owned(),
        None => format!("-{}", text.strip_prefix('+').unwrap_or(text)),
    };
    if !opposite.starts_with("-+") && !opposite.starts_with('+') && !opposite.is_empty() {
        let nanos = Quantity::parse(&opposite).map(|quantity| -quantity.nanos);
        assert_eq!(nanos, Ok(quantity.nanos), "{text:?} and its opposite");
    }
    let written = quantity.to_string();
    let read =
        Quantity::parse(&written).unwrap_or_else(|e| panic!("{text:?} is written as {written:?}: {e}"));
    let is_lossless = quantity.nanos.abs() < 1_000_000_000_000 * 1_000_000_000_000_000_000;
    assert!(!is_lossless || read == quantity, "{text:?} is written as {written:?}");
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering::{Equal, Greater, Less};

    use super::*;

    /// A row of the table that Go writes.
    struct Row {
        input: String,
        /// Billionths, `over`, `under` or the kind of error.
        nanos: String,
        canonical: String,
        integer: String,
        float: String,
    }

    fn table() -> Vec<Row> {
        let rows = include_str!("quantity_cases.tsv").lines().filter(|line| !line.starts_with('#'));
        rows.map(|line| {
            let mut fields = line.split('\t').map(str::to_owned);
            let input = fields.next().expect("an input");
            let mut field = || fields.next().unwrap_or_else(|| "-".to_owned());
            Row {
                input: serde_json::from_str(&input).expect("a JSON string"),
                nanos: field(),
                canonical: field(),
                integer: field(),
                float: field(),
            }
        })
        .collect()
    }

    fn error_name(error: &QuantityError) -> &'static str {
        match error.kind {
            QuantityErrorKind::Format => "format",
            QuantityErrorKind::Suffix => "suffix",
            QuantityErrorKind::Numeric => "numeric",
        }
    }

    #[test]
    fn every_input_of_the_table_is_read_as_the_api_server_reads_it() {
        let rows = table();
        let mut wrong = Vec::new();
        for row in &rows {
            let mut expect = |what: &str, found: String, expected: &str| {
                if found != expected {
                    wrong.push(format!("{:?}: {what} is {found}, not {expected}", row.input));
                }
            };
            let quantity = match Quantity::parse(&row.input) {
                Ok(quantity) => quantity,
                Err(error) => {
                    expect("the error", error_name(&error).to_owned(), &row.nanos);
                    continue;
                }
            };
            if matches!(row.nanos.as_str(), "over" | "under") {
                let bound = if row.nanos == "over" { i128::MAX } else { -i128::MAX };
                expect("the amount", quantity.nanos().to_string(), &bound.to_string());
                continue;
            }
            expect("the amount", quantity.nanos().to_string(), &row.nanos);
            expect("the canonical text", quantity.to_string(), &row.canonical);
            let integer = quantity.as_integer().map_or_else(|| "-".to_owned(), |value| value.to_string());
            expect("the integer", integer, &row.integer);
            let float: f64 = row.float.parse().expect("a float");
            expect("the float", quantity.as_float().to_string(), &float.to_string());
        }
        assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), rows.len());
        let count = |is_error: bool| {
            let errors = ["format", "suffix", "numeric"];
            rows.iter().filter(|row| errors.contains(&row.nanos.as_str()) == is_error).count()
        };
        assert!(count(false) > 400 && count(true) > 200, "the table has quantities and errors");
    }

    #[test]
    fn units_and_thousandths_round_up_and_are_capped() {
        let check = |text: &str, units: u64, millis: u64, nanos: i128| {
            let q = Quantity::parse(text).unwrap();
            assert_eq!((q.units(), q.millis(), q.nanos()), (units, millis, nanos), "{text}");
        };
        let max = i64::MAX.unsigned_abs();
        check("100m", 1, 100, 100_000_000);
        check("4Gi", 4 << 30, (4 << 30) * 1000, (4 << 30) * NANOS_PER_UNIT);
        check(".5", 1, 500, 500_000_000);
        check("1e3", 1000, 1_000_000, 1_000_000_000_000);
        check("0.0000000001", 1, 1, 1);
        check("-1", 0, 0, -NANOS_PER_UNIT);
        check("1e2147483647", max, max, i128::MAX);
        check("1e-2147483647", 1, 1, 1);
        check("9E", 9_000_000_000_000_000_000, max, 9_000_000_000_000_000_000 * NANOS_PER_UNIT);
        check("10E", max, max, 10_000_000_000_000_000_000 * NANOS_PER_UNIT);
    }

    #[test]
    fn exponents_of_any_size_compare_by_amount() {
        let parse = |text: &str| Quantity::parse(text).unwrap_or_else(|e| panic!("{e}"));
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
            // The API server keeps 32 bits of an exponent that has more.
            ("1e4294967299", Equal, "1k"),
            ("1e-4294967293", Equal, "1k"),
            ("1e9223372036854775807", Equal, "100m"),
        ] {
            assert_eq!(parse(first).cmp(&parse(second)), expected, "{first} and {second}");
            assert!(!parse(first).to_string().is_empty());
        }
        for text in ["1e9223372036854775808", "1e-9223372036854775809", "1e99999999999999999999999"] {
            let kind = Quantity::parse(text).map_err(|error| error.kind);
            assert_eq!(kind, Err(QuantityErrorKind::Suffix), "{text}");
        }
    }

    #[test]
    fn zero_takes_the_notation_and_the_form_of_the_other_operand() {
        let parse = |text: &str| Quantity::parse(text).unwrap();
        assert_eq!(parse("0").plus(parse("2Ki")).to_string(), "2Ki");
        assert_eq!(parse("1Ki").minus(parse("1Ki")).as_integer(), Some(0));
        assert_eq!(parse("0").plus(parse("0m")).as_integer(), Some(0));
        assert_eq!(parse("500m").plus(parse("500m")).as_integer(), None);
    }

    #[test]
    fn hostile_texts_are_read_in_linear_time() {
        for row in table() {
            fuzz_quantity(&row.input);
        }
        for text in
            ["9".repeat(300_000), format!("0.{}1Ei", "0".repeat(300_000)), "é".to_owned(), "1é".to_owned()]
        {
            fuzz_quantity(&text);
        }
    }
}
