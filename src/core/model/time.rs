//! Time as a value. The core never asks what time it is.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Milliseconds since the Unix epoch, as told by whoever calls. Serialises as RFC 3339 in UTC, with milliseconds where
/// there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// This time, `later` on; saturates at the end of time.
    #[must_use]
    pub fn after(self, later: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long it is since `earlier`; zero when `earlier` lies ahead (clocks jump).
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Reads an RFC 3339 UTC timestamp as the API server writes them (`2026-11-21T13:00:00Z`, fractions allowed).
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let text = text.strip_suffix('Z')?;
        let (date, clock) = text.split_once('T')?;
        let mut date = date.splitn(3, '-').map(str::parse::<i64>);
        let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
        let mut clock = clock.splitn(3, ':').map(str::parse::<u64>);
        let (hour, minute, second) = (clock.next()?.ok()?, clock.next()?.ok()?, clock.next()?.ok()?);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let mut millis = 0;
        for i in 0..3 {
            let digit = fraction.as_bytes().get(i).map_or(Some(0), |b| char::from(*b).to_digit(10))?;
            millis = millis * 10 + u64::from(digit);
        }
        let days = u64::try_from(days_from_civil(year, month, day)).ok()?;
        Some(Self(((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + millis))
    }
}

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar (the well-known era arithmetic).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The year, month and day of a count of days since 1970-01-01: the inverse of [`days_from_civil`].
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

impl fmt::Display for Time {
    /// RFC 3339 in UTC, whole seconds, as the API server writes `metav1.Time`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let (year, month, day) = civil_from_days(seconds / 86_400);
        let of_day = seconds % 86_400;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60
        )
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 % 1000 {
            0 => serializer.collect_str(self),
            millis => {
                let whole = self.to_string();
                serializer.collect_str(&format_args!("{}.{millis:03}Z", whole.trim_end_matches('Z')))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let unreadable = || de::Error::custom(format!("{text:?} is no RFC 3339 time in UTC"));
        Self::parse_rfc3339(&text).ok_or_else(unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_read_and_written_as_the_api_server_does() {
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
        for bad in
            ["", "1970-01-01", "1970-13-01T00:00:00Z", "x-01-01T00:00:00Z", "1970-01-01T00:00:00+01:00"]
        {
            assert_eq!(Time::parse_rfc3339(bad), None, "{bad}");
        }
    }
}
