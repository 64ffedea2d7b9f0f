//! Durations in annotations and group objects: seconds without a unit (`120`), or a Go duration (`1h30m`).

use std::time::Duration;

use portcullis_text::duration::parse as parse_go;

use crate::model::quoted;

/// Parses a duration above zero. A number without a unit is seconds. `None` for everything else.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let nanos = match text.parse::<u64>() {
        Ok(seconds) => u128::from(seconds).checked_mul(1_000_000_000)?,
        Err(_) => parse_go(text)?.as_nanos(),
    };
    let millis = u64::try_from(nanos / 1_000_000).ok()?;
    (millis > 0).then(|| Duration::from_millis(millis))
}

/// How long the engine leaves a stale gang alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GracePeriod {
    /// For this time.
    For(Duration),
    /// Without end.
    Forever,
}

/// Parses a grace period. Zero is allowed, and a negative duration means without end, as in KAI.
pub(super) fn grace_period(text: &str) -> Option<GracePeriod> {
    let text = text.trim();
    let (negative, size) = match text.strip_prefix('-') {
        Some(size) => (true, size),
        None => (false, text),
    };
    if negative && size.starts_with(['+', '-']) {
        return None;
    }
    let is_zero =
        size.parse::<u64>().map_or_else(|_| parse_go(size) == Some(Duration::ZERO), |seconds| seconds == 0);
    match (parse(size), negative) {
        (Some(time), false) => Some(GracePeriod::For(time)),
        (Some(_), true) => Some(GracePeriod::Forever),
        (None, _) => is_zero.then_some(GracePeriod::For(Duration::ZERO)),
    }
}

/// The message for a text that is not a duration.
pub(super) fn invalid_duration(key: &str, text: &str) -> String {
    format!(
        "{key} is {}, which is not a duration: write seconds (\"120\") or a duration (\"2m\", \"1h30m\")",
        quoted(text)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_or_go_durations() {
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
    fn a_grace_period_may_be_zero_or_without_end() {
        let seconds = |n| Some(GracePeriod::For(Duration::from_secs(n)));
        for (text, expected) in [
            ("60s", seconds(60)),
            ("1m30s", seconds(90)),
            ("5", seconds(5)),
            ("0s", seconds(0)),
            ("0", seconds(0)),
            ("-0s", seconds(0)),
            ("-1s", Some(GracePeriod::Forever)),
            ("-1", Some(GracePeriod::Forever)),
            ("--1s", None),
            ("-+1s", None),
            ("-", None),
            ("", None),
            ("later", None),
        ] {
            assert_eq!(grace_period(text), expected, "{text:?}");
        }
    }
}
