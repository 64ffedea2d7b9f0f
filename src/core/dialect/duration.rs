//! How long a gang may wait, as the stacks write it: bare seconds, or a duration of Go (`1h30m`).

use std::time::Duration;

use portcullis_text::duration::parse as parse_go;

use crate::model::quoted;

/// A time above zero; bare numbers are seconds. `None` for everything else.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let nanos = match text.parse::<u64>() {
        Ok(seconds) => u128::from(seconds).checked_mul(1_000_000_000)?,
        Err(_) => parse_go(text)?.as_nanos(),
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
    if below && size.starts_with(['+', '-']) {
        return None;
    }
    let none =
        size.parse::<u64>().map_or_else(|_| parse_go(size) == Some(Duration::ZERO), |seconds| seconds == 0);
    match (parse(size), below) {
        (Some(time), false) => Some(Grace::For(time)),
        (Some(_), true) => Some(Grace::Never),
        (None, _) => none.then_some(Grace::For(Duration::ZERO)),
    }
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
            ("-+1s", None),
            ("-", None),
            ("", None),
            ("later", None),
        ] {
            assert_eq!(grace(text), expected, "{text:?}");
        }
    }
}
