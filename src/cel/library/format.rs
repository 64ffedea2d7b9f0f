//! The function `format()` with placeholders `%s %d %f %e %b %x %X %o`, in version 2 of cel-go's strings
//! library. The checker uses the same parser for literal format strings.

use super::{CallError, CallResult, standard};
use crate::value::{Value, quote};

/// The conversion that a placeholder asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FormatClause {
    Text,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

impl FormatClause {
    /// The message for a value whose type does not fit.
    pub(crate) fn refusal(self, given: &str) -> String {
        let rule = match self {
            Self::Text => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("{rule}, was given {given}")
    }
}

/// A part of a format string.
pub(crate) enum FormatPiece<'t> {
    Text(&'t str),
    FormatClause(FormatClause),
}

/// The next part and the rest of the format string; `None` at the end.
pub(crate) fn piece(format: &str) -> Option<Result<(FormatPiece<'_>, &str), String>> {
    if format.is_empty() {
        return None;
    }
    let Some(rest) = format.strip_prefix('%') else {
        let end = format.find('%').unwrap_or(format.len());
        return Some(Ok((FormatPiece::Text(&format[..end]), &format[end..])));
    };
    if let Some(rest) = rest.strip_prefix('%') {
        return Some(Ok((FormatPiece::Text("%"), rest)));
    }
    Some(clause(rest).map(|(clause, rest)| (FormatPiece::FormatClause(clause), rest)))
}

fn clause(rest: &str) -> Result<(FormatClause, &str), String> {
    const PARSING: &str = "could not parse formatting clause";
    const DEFAULT: usize = 6;
    if rest.is_empty() {
        return Err("unexpected end of string".to_owned());
    }
    let mut precision = DEFAULT;
    let mut rest = rest;
    if let Some(after) = rest.strip_prefix('.') {
        let count = after.bytes().take_while(u8::is_ascii_digit).count();
        if count == after.len() {
            return Err(format!(
                "{PARSING}: error while parsing precision: could not find end of precision specifier"
            ));
        }
        precision = after[..count].parse().map_err(|_| {
            let digits = quote(&after[..count]);
            format!(
                "{PARSING}: error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {digits}: invalid syntax"
            )
        })?;
        rest = &after[count..];
    }
    let precision = precision.min(1_000);
    let letter = rest.chars().next().unwrap_or(' ');
    let clause = match letter {
        's' => FormatClause::Text,
        'd' => FormatClause::Decimal,
        'f' => FormatClause::Fixed(precision),
        'e' => FormatClause::Scientific(precision),
        'b' => FormatClause::Binary,
        'x' => FormatClause::Hex { upper: false },
        'X' => FormatClause::Hex { upper: true },
        'o' => FormatClause::Octal,
        // Go reads one byte here and shows it as a character.
        _ => {
            let byte = char::from(rest.as_bytes().first().copied().unwrap_or(b' '));
            return Err(format!("{PARSING}: unrecognized formatting clause \"{byte}\""));
        }
    };
    Ok((clause, &rest[1..]))
}

pub(crate) fn format<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (Some(mut rest), Value::List(arguments)) = (values[0].as_str(), &values[1]) else {
        return Err(CallError::NoOverload);
    };
    let mut out = String::new();
    let mut index = 0;
    loop {
        let starts_clause = rest.starts_with('%') && !rest.starts_with("%%");
        if starts_clause && index >= arguments.len() {
            return Err(CallError::text(format!("index {index} out of range")));
        }
        let Some(next) = piece(rest) else { break };
        let (piece, after) = next.map_err(CallError::text)?;
        rest = after;
        match piece {
            FormatPiece::Text(text) => out.push_str(text),
            FormatPiece::FormatClause(clause) => {
                let Some(argument) = arguments.item(index) else { break };
                index += 1;
                let written = write(clause, &argument)
                    .map_err(|why| CallError::text(format!("error during formatting: {why}")))?;
                out.push_str(&written);
            }
        }
    }
    Ok(Value::string(out))
}

fn write(clause: FormatClause, value: &Value<'_>) -> Result<String, String> {
    let kind = value.kind();
    let refuse = || Err(clause.refusal(kind.name()));
    Ok(match (clause, value) {
        (FormatClause::Text, value) => text(value)?,
        (FormatClause::Decimal, Value::Int(_) | Value::Uint(_)) => decimal(value),
        (FormatClause::Fixed(precision), value) => match double(value) {
            Some(number) => fixed(number, precision),
            None => return refuse(),
        },
        (FormatClause::Scientific(precision), value) => match double(value) {
            Some(number) => scientific(number, precision),
            None => return refuse(),
        },
        (FormatClause::Binary, Value::Bool(value)) => u8::from(*value).to_string(),
        (FormatClause::Binary, Value::Int(value)) => signed(*value, |value| format!("{value:b}")),
        (FormatClause::Binary, Value::Uint(value)) => format!("{value:b}"),
        (FormatClause::Octal, Value::Int(value)) => signed(*value, |value| format!("{value:o}")),
        (FormatClause::Octal, Value::Uint(value)) => format!("{value:o}"),
        (FormatClause::Hex { upper }, value) => {
            let written = match value {
                Value::Int(value) => signed(*value, |value| format!("{value:x}")),
                Value::Uint(value) => format!("{value:x}"),
                Value::String(text) => text.as_str().bytes().map(|byte| format!("{byte:02x}")).collect(),
                Value::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                _ => return refuse(),
            };
            if upper { written.to_uppercase() } else { written }
        }
        _ => return refuse(),
    })
}

fn signed(value: i64, write: fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", write(value.unsigned_abs()))
}

fn double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn special(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        return Some("NaN");
    }
    number.is_infinite().then_some(if number > 0.0 { "∞" } else { "-∞" })
}

/// A number with commas between thousands, as in the locale of the API server.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(special) = special(number) {
        return special.to_owned();
    }
    let plain = format!("{:.precision$}", number.abs());
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{dot}{fraction}")
}

/// A number such as `1.234000 × 10⁰³`.
fn scientific(number: f64, precision: usize) -> String {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    if let Some(special) = special(number) {
        return special.to_owned();
    }
    // The API server uses the precision as a width.
    let written = format!("{number:.6e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |rest| ("⁻", rest));
    let raised: String =
        format!("{exponent:0>2}").bytes().map(|digit| RAISED[usize::from(digit - b'0') % 10]).collect();
    let shown = format!("{digits}×10{sign}{raised}");
    format!("{shown:>precision$}")
}

fn decimal(value: &Value<'_>) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        _ => String::new(),
    }
}

fn text(value: &Value<'_>) -> Result<String, String> {
    match value {
        Value::Null => Ok("null".to_owned()),
        Value::List(_) | Value::Map(_) => member(value),
        Value::Optional(_) | Value::Opaque(_) | Value::Message(_) => {
            Err(FormatClause::Text.refusal(value.kind().name()))
        }
        other => standard::text(other).map(|text| text.as_str().to_owned()).ok_or_else(|| {
            "could not convert argument \"invalid UTF-8 in bytes, cannot convert to string\" to string"
                .to_owned()
        }),
    }
}

/// A value inside of a list or map, as a literal.
fn member(value: &Value<'_>) -> Result<String, String> {
    Ok(match value {
        Value::List(list) => {
            let items: Result<Vec<String>, String> = list.iter().map(|item| member(&item)).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, value) in map.entries() {
                if !matches!(key, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
                    return Err(format!("no formatting function for map key of type {}", key.kind().name()));
                }
                entries.push((member(&key)?, member(&value)?));
            }
            entries.sort();
            let entries: Vec<String> =
                entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Double(number) if number.is_finite() => format!("{number:.6}"),
        Value::Double(number) if number.is_nan() => "\"NaN\"".to_owned(),
        Value::Double(number) => if *number > 0.0 { "\"+Inf\"" } else { "\"-Inf\"" }.to_owned(),
        Value::String(text) => quote(text.as_str()),
        Value::Bytes(_) => format!("b{}", quote(&text(value)?)),
        Value::Timestamp(moment) => format!("timestamp({})", quote(&moment.to_string())),
        Value::Duration(_) => format!("duration({})", quote(&text(value)?)),
        Value::Optional(_) | Value::Opaque(_) | Value::Message(_) => {
            return Err(format!("no formatting function for {}", value.kind().name()));
        }
        other => text(other)?,
    })
}
