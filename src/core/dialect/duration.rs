//! How long a gang may wait, as the stacks write it: bare seconds, or a duration of Go (`1h30m`).

use std::time::Duration;

use crate::model::quoted;

/// A time above zero; bare numbers are seconds. `None` for everything else.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let nanos = match text.parse::<u64>() {
        Ok(seconds) => u128::from(seconds).checked_mul(1_000_000_000)?,
        Err(_) => parts(text)?,
    };
    let millis = u64::try_from(nanos / 1_000_000).ok()?;
    (millis > 0).then(|| Duration::from_millis(millis))
}

/// For how long something is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grace {
    /// So long.
    For(Duration),
    /// Without end.
    Never,
}

/// A time of grace: any duration, and one below zero means without end, as in KAI. `None` for everything else.
pub(super) fn grace(text: &str) -> Option<Grace> {
    let text = text.trim();
    let (below, size) = match text.strip_prefix('-') {
        Some(size) => (true, size),
        None => (false, text),
    };
    let none = size.parse::<u64>().map_or_else(|_| parts(size) == Some(0), |seconds| seconds == 0);
    match (parse(size), below) {
        (Some(time), false) => Some(Grace::For(time)),
        (Some(_), true) => Some(Grace::Never),
        (None, _) => none.then_some(Grace::For(Duration::ZERO)),
    }
}

/// Nanoseconds of a duration of Go: numbers, each with its unit.
fn parts(mut text: &str) -> Option<u128> {
    let mut total: u128 = 0;
    if text.is_empty() {
        return None;
    }
    while !text.is_empty() {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = text.split_at(end);
        let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(unit_end);
        let nanos: u128 = match unit {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" | "µs" | "μs" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u64>().ok() };
        let fraction = fraction.get(..fraction.len().min(9))?;
        let tens = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        total += u128::from(digits(whole)?) * nanos + u128::from(digits(fraction)?) * nanos / tens;
        text = rest;
    }
    Some(total)
}

/// What to say of a text that is none.
pub(super) fn doubt(key: &str, text: &str) -> String {
    format!(
        "{key} is {}, and not understood: write seconds (\"120\") or a duration (\"2m\", \"1h30m\")",
        quoted(text)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_seconds_or_as_go_writes_them() {
        for (text, millis) in [
            ("120", Some(120_000)),
            (" 60 ", Some(60_000)),
            ("2m", Some(120_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5s", Some(1_500)),
            (".5h", Some(1_800_000)),
            ("250ms", Some(250)),
            ("1h0.000000000000001s", Some(3_600_000)),
            ("0", None),
            ("0s", None),
            ("1us", None),
            ("-5s", None),
            ("", None),
            ("h", None),
            (".s", None),
            ("5 m", None),
            ("5d", None),
            ("1.2.3s", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(parse(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn a_grace_may_be_none_or_without_end() {
        let seconds = |n| Some(Grace::For(Duration::from_secs(n)));
        for (text, expected) in [
            ("60s", seconds(60)),
            ("1m30s", seconds(90)),
            ("5", seconds(5)),
            ("0s", seconds(0)),
            ("0", seconds(0)),
            ("-0s", seconds(0)),
            ("-1s", Some(Grace::Never)),
            ("-1", Some(Grace::Never)),
            ("--1s", None),
            ("-", None),
            ("", None),
            ("later", None),
        ] {
            assert_eq!(grace(text), expected, "{text:?}");
        }
    }
}
