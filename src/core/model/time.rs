//! Time as a value. The core never reads a clock: the caller passes the time in.

use std::fmt;
use std::time::Duration;

use portcullis_text::Timestamp;
use portcullis_text::timestamp::Fraction;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Milliseconds since the Unix epoch. Serialises as RFC 3339 in UTC, with milliseconds where it has any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// This time plus `later`, saturating.
    #[must_use]
    pub fn after(self, later: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The time since `earlier`; zero when `earlier` is in the future, because clocks jump.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Reads an RFC 3339 time in UTC, as the API server writes it: `2026-11-21T13:00:00Z`, with or without a
    /// fraction. `None` for other texts, other offsets and times before 1970.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let time = text.ends_with('Z').then(|| Timestamp::parse(text).ok())??;
        time.unix_millis().map(Self)
    }
}

impl fmt::Display for Time {
    /// RFC 3339 in UTC with whole seconds: the format of `metav1.Time`. Times after the year 9999 show its
    /// end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Timestamp::from_unix_millis(self.0).format_utc(Fraction::Seconds))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Timestamp::from_unix_millis(self.0).format_utc(Fraction::Millis))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let error = || de::Error::custom(format!("{text:?} is not an RFC 3339 time in UTC"));
        Self::parse_rfc3339(&text).ok_or_else(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_as_the_api_server_does() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:34:56Z", 951_827_696_000),
            ("2026-11-21T13:00:00Z", 1_795_266_000_000),
        ] {
            assert_eq!(Time::parse_rfc3339(text), Some(Time(millis)), "{text}");
            assert_eq!(Time(millis).to_string(), text);
        }
        for (millis, json) in [
            (1_795_266_000_000, r#""2026-11-21T13:00:00Z""#),
            (1_795_266_000_042, r#""2026-11-21T13:00:00.042Z""#),
        ] {
            assert_eq!(serde_json::to_string(&Time(millis)).expect("a time serialises"), json);
            assert_eq!(serde_json::from_str::<Time>(json).expect("and is read back"), Time(millis));
        }
        assert!(serde_json::from_str::<Time>("17952").is_err());
        assert_eq!(Time::parse_rfc3339("1970-01-01T00:00:01.25Z"), Some(Time(1250)));
        for bad in [
            "",
            "1970-01-01",
            "1970-13-01T00:00:00Z",
            "x-01-01T00:00:00Z",
            "1970-01-01T00:00:00+01:00",
            "1969-12-31T23:59:59Z",
            "2026-02-30T00:00:00Z",
            "2026-1-1T0:0:0Z",
            "2026-01-01T00:00:60Z",
        ] {
            assert_eq!(Time::parse_rfc3339(bad), None, "{bad}");
        }
        assert_eq!(Time(u64::MAX).to_string(), "9999-12-31T23:59:59Z");
    }
}
