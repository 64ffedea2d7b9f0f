//! The JSON value of a YAML scalar, as sigs.k8s.io/yaml reads it: YAML 1.1 with the octal numbers of 1.2.

use serde_json::{Number, Value as Json};

/// The value of a scalar without quotes.
///
/// # Errors
/// For infinity and NaN, which JSON does not have.
pub(super) fn plain(text: &str) -> Result<Json, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Json::Null),
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => {
            return Ok(Json::Bool(true));
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => {
            return Ok(Json::Bool(false));
        }
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(format!("{text} is a number that JSON does not have: quote it to get a string"));
    }
    Ok(number(text).unwrap_or_else(|| Json::String(text.to_owned())))
}

/// The value of a scalar with a tag of YAML itself, such as `!!int`.
///
/// # Errors
/// For an unknown tag, and for a text that does not match its tag.
pub(super) fn tagged(text: &str, tag: &str) -> Result<Json, String> {
    let value = match tag {
        "str" => return Ok(Json::String(text.to_owned())),
        "bool" | "int" | "float" | "null" => plain(text)?,
        _ => return Err(format!("Kubernetes does not know the tag !!{tag}: remove it")),
    };
    let fits = match tag {
        "bool" => value.is_boolean(),
        "int" => value.is_i64() || value.is_u64(),
        "float" => value.is_number(),
        _ => value.is_null(),
    };
    if fits { Ok(value) } else { Err(format!("{text:?} has the tag !!{tag} and is not of that type")) }
}

fn number(text: &str) -> Option<Json> {
    let first = text.bytes().next()?;
    if !first.is_ascii_digit() && !matches!(first, b'+' | b'-' | b'.') {
        return None;
    }
    let digits = text.replace('_', "");
    if let Some(integer) = integer(&digits) {
        return Some(integer);
    }
    if !is_decimal(&digits) {
        return None;
    }
    let value: f64 = digits.parse().ok()?;
    // sigs.k8s.io/yaml converts 1e3 to the JSON number 1000, which is then an integer.
    let shown = format!("{value}");
    if value.abs() < 1e21
        && let Ok(whole) = shown.parse::<i64>()
    {
        return Some(Json::from(whole));
    }
    Number::from_f64(value).map(Json::Number)
}

/// An integer in one of the bases that Go knows: 0x, 0o, 0b, and octal by a leading zero.
fn integer(text: &str) -> Option<Json> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = rest.to_ascii_lowercase();
    let (base, digits) = if let Some(digits) = lower.strip_prefix("0x") {
        (16, digits)
    } else if let Some(digits) = lower.strip_prefix("0o") {
        (8, digits)
    } else if let Some(digits) = lower.strip_prefix("0b") {
        (2, digits)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    if !digits.bytes().next()?.is_ascii_alphanumeric() {
        return None;
    }
    let value = u64::from_str_radix(digits, base).ok()?;
    if !negative {
        return Some(Json::from(value));
    }
    let value = i64::try_from(i128::from(value).checked_neg()?).ok()?;
    Some(Json::from(value))
}

/// Whether a text matches `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_decimal(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa = match mantissa.split_once('.') {
        Some((before, after)) => {
            all_digits(before) && all_digits(after) && !(before.is_empty() && after.is_empty())
        }
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    let exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    mantissa && exponent
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The expected values are those of `sigs.k8s.io/yaml`.
    #[test]
    fn scalars_are_read_as_kubernetes_reads_them() {
        for (text, expected) in [
            ("yes", json!(true)),
            ("On", json!(true)),
            ("y", json!(true)),
            ("n", json!(false)),
            ("oFF", json!("oFF")),
            ("null", json!(null)),
            ("~", json!(null)),
            ("7", json!(7)),
            ("-7", json!(-7)),
            ("+7", json!(7)),
            ("0777", json!(511)),
            ("0o17", json!(15)),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("1_000", json!(1000)),
            ("08", json!(8)),
            ("1e3", json!(1000)),
            ("1.50", json!(1.5)),
            (".5", json!(0.5)),
            ("1.", json!(1)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("1.2.3", json!("1.2.3")),
            ("2024-01-01", json!("2024-01-01")),
            ("10:30", json!("10:30")),
            ("-", json!("-")),
            (".", json!(".")),
            ("8Gi", json!("8Gi")),
            ("0x", json!("0x")),
            ("0-1", json!("0-1")),
            ("<<", json!("<<")),
        ] {
            assert_eq!(plain(text), Ok(expected), "{text}");
        }
        assert!(plain(".inf").is_err() && plain("-.Inf").is_err() && plain(".nan").is_err());
    }

    #[test]
    fn a_tag_decides_the_type_of_a_scalar() {
        assert_eq!(tagged("1", "str"), Ok(json!("1")));
        assert_eq!(tagged("1", "int"), Ok(json!(1)));
        assert!(tagged("one", "int").is_err());
        assert!(tagged("aGk=", "binary").is_err());
    }
}
