//! When a request must be answered: the API server says it in the URL.

use std::time::Duration;

/// The longest `timeoutSeconds` that Kubernetes lets a webhook have.
const LONGEST: Duration = Duration::from_secs(30);

/// How long a request may take: `?timeout=` of its URL minus a margin for the way back, or `default` minus the same
/// when there is none, or none that makes sense.
pub(super) fn time_allowed(query: Option<&str>, default: Duration) -> Duration {
    let asked = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .find_map(|pair| pair.strip_prefix("timeout="))
        .and_then(go_duration)
        .filter(|asked| !asked.is_zero())
        .unwrap_or(default)
        .min(LONGEST);
    asked - margin(asked)
}

/// A tenth, half a second at most.
fn margin(asked: Duration) -> Duration {
    (asked / 10).min(Duration::from_millis(500))
}

/// Parses a duration as Go prints and reads it (`time.ParseDuration`): `5s`, `1.5s`, `500ms`, `1m30s`. `None` for
/// anything else, also for what is negative or does not fit.
pub(crate) fn go_duration(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after
            .find(|character: char| character.is_ascii_digit() || character == '.')
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        total = total.checked_add(nanoseconds(number, unit)?)?;
        rest = next;
    }
    (!text.is_empty()).then_some(())?;
    u64::try_from(total).ok().map(Duration::from_nanos)
}

fn nanoseconds(number: &str, unit: &str) -> Option<u128> {
    let scale: u128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(scale)?;
    let mut place = scale;
    // Digits below a nanosecond are cut off, as Go does.
    for digit in fraction.chars() {
        place /= 10;
        total = total.checked_add(place * u128::from(digit.to_digit(10)?))?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_reads_them() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(go_duration(text), expected.map(Duration::from_micros), "{text:?}");
        };
        check("5s", Some(5_000_000));
        check("500ms", Some(500_000));
        check("1m30s", Some(90_000_000));
        check("1.5s", Some(1_500_000));
        check(".5s", Some(500_000));
        check("1.s", Some(1_000_000));
        check("+2s", Some(2_000_000));
        check("1h", Some(3_600_000_000));
        check("250us", Some(250));
        check("250µs", Some(250));
        check("0", Some(0));
        for bad in ["", "5", "-5s", "s", ".s", "5 s", "5sec", "5S", "1.2.3s", "ns5", "99999999999999999999h"]
        {
            check(bad, None);
        }
    }

    #[test]
    fn a_request_is_given_its_timeout_less_a_margin() {
        let check = |query: Option<&str>, expected_ms: u64| {
            let allowed = time_allowed(query, Duration::from_secs(10));
            assert_eq!(allowed, Duration::from_millis(expected_ms), "{query:?}");
        };
        check(Some("timeout=5s"), 4_500);
        check(Some("timeout=30s"), 29_500);
        check(Some("timeout=1s"), 900);
        check(Some("dryRun=All&timeout=500ms"), 450);
        check(None, 9_500);
        check(Some("timeout=soon"), 9_500);
        check(Some("timeout=0s"), 9_500);
        check(Some("timeout=-1s"), 9_500);
        check(Some("timeout=24h"), 29_500);
        check(Some("nottimeout=1s"), 9_500);
    }
}
