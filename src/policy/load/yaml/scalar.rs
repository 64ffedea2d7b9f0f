//! What a scalar is worth, as Kubernetes' YAML library reads it: YAML 1.1 with the octal numbers of 1.2.

use serde_json::{Number, Value as Json};

/// A scalar without quotes.
///
/// # Errors
/// What JSON cannot say: infinity and what is no number.
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
        return Err(format!("{text} is a number that JSON does not have: put it in quotes if text is meant"));
    }
    Ok(number(text).unwrap_or_else(|| Json::String(text.to_owned())))
}

/// A scalar with one of YAML's own tags, `!!int` and so on.
///
/// # Errors
/// The tag is not known, or the text is not what it says.
pub(super) fn tagged(text: &str, tag: &str) -> Result<Json, String> {
    let value = match tag {
        "str" => return Ok(Json::String(text.to_owned())),
        "bool" | "int" | "float" | "null" => plain(text)?,
        _ => return Err(format!("the tag !!{tag} means nothing in Kubernetes: leave it out")),
    };
    let fits = match tag {
        "bool" => value.is_boolean(),
        "int" => value.is_i64() || value.is_u64(),
        "float" => value.is_number(),
        _ => value.is_null(),
    };
    if fits { Ok(value) } else { Err(format!("{text:?} is no {tag}, which its tag says it is")) }
}

fn number(text: &str) -> Option<Json> {
    let first = text.bytes().next()?;
    if !first.is_ascii_digit() && !matches!(first, b'+' | b'-' | b'.') {
        return None;
    }
    let digits = text.replace('_', "");
    if let Some(whole) = whole(&digits) {
        return Some(whole);
    }
    if !is_decimal(&digits) {
        return None;
    }
    let value: f64 = digits.parse().ok()?;
    // 1e3 is written as 1000 when it becomes JSON, and read as a whole number again.
    let shown = format!("{value}");
    if value.abs() < 1e21
        && let Ok(whole) = shown.parse::<i64>()
    {
        return Some(Json::from(whole));
    }
    Number::from_f64(value).map(Json::Number)
}

/// Whole numbers in the bases that Go knows: 0x, 0o, 0b, and octal by a leading zero.
fn whole(text: &str) -> Option<Json> {
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

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
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

    /// What `sigs.k8s.io/yaml` makes of the same texts.
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
    fn tags_are_taken_at_their_word() {
        assert_eq!(tagged("1", "str"), Ok(json!("1")));
        assert_eq!(tagged("1", "int"), Ok(json!(1)));
        assert!(tagged("one", "int").is_err());
        assert!(tagged("aGk=", "binary").is_err());
    }
}
