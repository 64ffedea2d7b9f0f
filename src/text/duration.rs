//! Go durations: `1h30m`, `1.5s`, `500ms`.
//!
//! Source: `time.ParseDuration` of the Go standard library. Its unit is the nanosecond, and its range that of
//! an `i64`: a duration has at most 292 years.

use std::time::Duration;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Nanoseconds of a Go duration, with a sign where it has one; `None` for a text that Go refuses.
pub fn parse_nanos(text: &str) -> Option<i64> {
    let is_negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        total = total.checked_add(scale(number, nanos_per_unit(unit)?)?)?;
        if total > i128::from(i64::MAX) + i128::from(is_negative) {
            return None;
        }
        rest = next;
    }
    i64::try_from(if is_negative { -total } else { total }).ok()
}

/// A Go duration that is not negative; `None` for every other text.
pub fn parse(text: &str) -> Option<Duration> {
    u64::try_from(parse_nanos(text)?).ok().map(Duration::from_nanos)
}

fn nanos_per_unit(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        // Go accepts both characters: the micro sign and the Greek letter.
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => NANOS_PER_SECOND,
        "m" => 60 * NANOS_PER_SECOND,
        "h" => 3600 * NANOS_PER_SECOND,
        _ => return None,
    })
}

/// A decimal number times `unit`. Digits below a nanosecond are cut off, as in Go.
fn scale(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
    // An hour has 3.6e12 nanoseconds, so later digits are worth less than one.
    let kept = &fraction[..fraction.len().min(18)];
    let part = if kept.is_empty() {
        0
    } else {
        kept.parse::<i128>().ok()? * unit / 10_i128.pow(u32::try_from(kept.len()).ok()?)
    };
    Some(whole * unit + part)
}

/// Writes nanoseconds as seconds: `5400s`, `-1.5s`. Like `Duration.Seconds` of Go, which cel-go uses, it goes
/// through a double, so durations of more than a hundred days lose their last nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "Go converts to the nearest double")]
pub fn format_seconds(nanos: i64) -> String {
    let seconds = (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9;
    format!("{seconds}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `time.ParseDuration` of Go 1.26 returns, in nanoseconds.
    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("5s", Some(5_000_000_000)),
            ("500ms", Some(500_000_000)),
            ("1m30s", Some(90_000_000_000)),
            ("1h30m", Some(5_400_000_000_000)),
            ("1.5s", Some(1_500_000_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(1_000_000_000)),
            ("+2s", Some(2_000_000_000)),
            ("-1.5s", Some(-1_500_000_000)),
            ("250us", Some(250_000)),
            ("250µs", Some(250_000)),
            ("250μs", Some(250_000)),
            ("1.9ns", Some(1)),
            ("1h0.000000000000001s", Some(3_600_000_000_000)),
            ("0", Some(0)),
            ("-0", Some(0)),
            ("+0", Some(0)),
            ("0s", Some(0)),
            ("2562047h47m16.854775807s", Some(i64::MAX)),
            ("-2562047h47m16.854775808s", Some(i64::MIN)),
            ("2562047h47m16.854775808s", None),
            ("3000000h", None),
            ("", None),
            ("+", None),
            ("-", None),
            ("--1s", None),
            ("5", None),
            ("s", None),
            (".", None),
            (".s", None),
            ("1.2.3s", None),
            ("5 s", None),
            ("5sec", None),
            ("5S", None),
            ("5d", None),
            ("ns5", None),
            ("5s5", None),
            ("99999999999999999999h", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(parse_nanos(text), expected, "{text:?}");
            let positive = expected.and_then(|nanos| u64::try_from(nanos).ok());
            assert_eq!(parse(text), positive.map(Duration::from_nanos), "{text:?}");
        }
    }

    #[test]
    fn durations_are_written_in_seconds() {
        for (nanos, text) in [
            (0, "0s"),
            (5_400_000_000_000, "5400s"),
            (-1_500_000_000, "-1.5s"),
            (1, "0.000000001s"),
            (i64::MIN, "-9223372036.854776s"),
        ] {
            assert_eq!(format_seconds(nanos), text);
        }
    }
}
