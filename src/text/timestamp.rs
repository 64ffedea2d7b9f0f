//! RFC 3339 times between the years 1 and 9999.
//!
//! Source of what is accepted: the layout `time.RFC3339` as Go's `time.Parse` reads it, with which the API
//! server and CEL read times. The calendar is that of the crate jiff. No function reads a clock.

use std::cmp::Ordering;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::SignedDuration;
use jiff::civil::{self, DateTime};

/// A point in time, with the UTC offset it was written with. Comparison and equality ignore the offset.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    /// Seconds since 1970-01-01T00:00:00Z.
    seconds: i64,
    nanoseconds: u32,
    offset_seconds: i32,
}

/// A text that is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimestampError {
    /// The text is not an RFC 3339 time.
    #[error("not an RFC 3339 time such as 2027-01-31T00:00:00Z")]
    Malformed,
    /// The offset moves the time out of the years 1 to 9999.
    #[error("the time is not within the years 1 to 9999 in UTC")]
    OutOfRange,
}

/// How many digits of a second are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fraction {
    /// None: the format of `metav1.Time`.
    Seconds,
    /// Three, or none for a whole second.
    Millis,
    /// Six: the format of `metav1.MicroTime`.
    Micros,
    /// As many as needed, up to nine.
    Shortest,
}

/// 0001-01-01T00:00:00Z.
const MIN_SECONDS: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z.
const MAX_SECONDS: i64 = 253_402_300_799;
const NANOS_PER_SECOND: i128 = 1_000_000_000;
const UNIX_EPOCH_CIVIL: DateTime = civil::date(1970, 1, 1).at(0, 0, 0, 0);

impl Timestamp {
    /// The time in UTC of seconds since 1970 and nanoseconds; `None` outside of the years 1 to 9999.
    #[must_use]
    pub fn new(seconds: i64, nanoseconds: u32) -> Option<Self> {
        let is_valid = (MIN_SECONDS..=MAX_SECONDS).contains(&seconds) && nanoseconds < 1_000_000_000;
        is_valid.then_some(Self { seconds, nanoseconds, offset_seconds: 0 })
    }

    /// The time in UTC of milliseconds since 1970; later times become the last second of the year 9999.
    #[must_use]
    pub fn from_unix_millis(millis: u64) -> Self {
        let seconds = i64::try_from(millis / 1000).unwrap_or(MAX_SECONDS);
        let nanoseconds = u32::try_from(millis % 1000).unwrap_or(0) * 1_000_000;
        Self::new(seconds, nanoseconds).unwrap_or(Self {
            seconds: MAX_SECONDS,
            nanoseconds: 0,
            offset_seconds: 0,
        })
    }

    /// Reads an RFC 3339 time: fraction of any length after a point or comma, offset `Z` or `+hh:mm`.
    ///
    /// # Errors
    /// For every text that Go refuses.
    pub fn parse(text: &str) -> Result<Self, TimestampError> {
        let (moment, offset_seconds) = read(text).ok_or(TimestampError::Malformed)?;
        let (civil, nanoseconds) = moment;
        let local = civil.duration_since(UNIX_EPOCH_CIVIL).as_secs();
        let utc = Self::new(local - i64::from(offset_seconds), nanoseconds);
        utc.map(|utc| Self { offset_seconds, ..utc }).ok_or(TimestampError::OutOfRange)
    }

    /// Seconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds within the second.
    #[must_use]
    pub fn subsec_nanos(self) -> u32 {
        self.nanoseconds
    }

    /// Nanoseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn unix_nanos(self) -> i128 {
        i128::from(self.seconds) * NANOS_PER_SECOND + i128::from(self.nanoseconds)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z, rounded down; `None` before 1970.
    #[must_use]
    pub fn unix_millis(self) -> Option<u64> {
        u64::try_from(self.unix_nanos().div_euclid(1_000_000)).ok()
    }

    /// Whether this is 0001-01-01T00:00:00Z, the zero value of a time in Go.
    #[must_use]
    pub fn is_go_zero(self) -> bool {
        self.seconds == MIN_SECONDS && self.nanoseconds == 0
    }

    /// The time `nanoseconds` later, with the same offset; `None` when it leaves the range.
    #[must_use]
    pub fn checked_add_nanos(self, nanoseconds: i128) -> Option<Self> {
        let total = self.unix_nanos().checked_add(nanoseconds)?;
        let seconds = i64::try_from(total.div_euclid(NANOS_PER_SECOND)).ok()?;
        let rest = u32::try_from(total.rem_euclid(NANOS_PER_SECOND)).ok()?;
        Some(Self { offset_seconds: self.offset_seconds, ..Self::new(seconds, rest)? })
    }

    /// Nanoseconds from `earlier` to this time; `None` when they do not fit, after 292 years.
    #[must_use]
    pub fn nanos_since(self, earlier: Self) -> Option<i64> {
        i64::try_from(self.unix_nanos() - earlier.unix_nanos()).ok()
    }

    /// The UTC offset it was written with, in seconds.
    #[must_use]
    pub fn offset_seconds(self) -> i32 {
        self.offset_seconds
    }

    /// The date and time of day at a UTC offset in seconds; the nearest that jiff can represent at the ends
    /// of the range.
    #[must_use]
    pub fn civil(self, offset_seconds: i32) -> DateTime {
        let seconds = SignedDuration::from_secs(self.seconds + i64::from(offset_seconds));
        let since_epoch = seconds + SignedDuration::from_nanos(self.nanoseconds.into());
        let nearest = if self.seconds < 0 { DateTime::MIN } else { DateTime::MAX };
        UNIX_EPOCH_CIVIL.checked_add(since_epoch).unwrap_or(nearest)
    }

    /// RFC 3339 in UTC.
    #[must_use]
    pub fn format_utc(self, fraction: Fraction) -> String {
        Self { offset_seconds: 0, ..self }.format(fraction)
    }

    /// RFC 3339 at the offset it was written with.
    #[must_use]
    pub fn format(self, fraction: Fraction) -> String {
        let civil = self.civil(self.offset_seconds);
        let (date, time) = (civil.date(), civil.time());
        let mut text = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            date.year(),
            date.month(),
            date.day(),
            time.hour(),
            time.minute(),
            time.second()
        );
        let nanos = self.nanoseconds;
        match fraction {
            Fraction::Seconds => {}
            Fraction::Millis if nanos < 1_000_000 => {}
            Fraction::Millis => text.push_str(&format!(".{:03}", nanos / 1_000_000)),
            Fraction::Micros => text.push_str(&format!(".{:06}", nanos / 1_000)),
            Fraction::Shortest if nanos == 0 => {}
            Fraction::Shortest => text.push_str(format!(".{nanos:09}").trim_end_matches('0')),
        }
        if self.offset_seconds == 0 {
            text.push('Z');
        } else {
            let sign = if self.offset_seconds < 0 { '-' } else { '+' };
            let minutes = self.offset_seconds.abs() / 60;
            text.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
        }
        text
    }
}

/// The local date and time, the nanoseconds within the second, and the offset in seconds.
fn read(text: &str) -> Option<((DateTime, u32), i32)> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i32> {
        let digits = bytes.get(from..to)?;
        digits.iter().all(u8::is_ascii_digit).then(|| text[from..to].parse().ok())?
    };
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|(at, byte)| bytes.get(*at) != Some(byte)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let mut at = 19;
    let mut nanoseconds = 0;
    if matches!(bytes.get(at), Some(b'.' | b',')) {
        let digits = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let kept = &text[at + 1..at + 1 + digits.min(9)];
        nanoseconds = format!("{kept:0<9}").parse().ok()?;
        at += 1 + digits;
    }
    let offset_seconds = match bytes.get(at)? {
        b'Z' if bytes.len() == at + 1 => 0,
        sign @ (b'+' | b'-') if bytes.len() == at + 6 && bytes[at + 3] == b':' => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if hours > 24 || minutes > 60 {
                return None;
            }
            let seconds = hours * 3600 + minutes * 60;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let small = |value: i32| i8::try_from(value).ok();
    let year = i16::try_from(year).ok()?;
    let date =
        DateTime::new(year, small(month)?, small(day)?, small(hour)?, small(minute)?, small(second)?, 0);
    Some(((date.ok()?, nanoseconds), offset_seconds))
}

impl From<SystemTime> for Timestamp {
    /// The time in UTC; 1970 for earlier times, and the end of 9999 for later ones.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(MAX_SECONDS).min(MAX_SECONDS);
        Self { seconds, nanoseconds: since.subsec_nanos(), offset_seconds: 0 }
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.unix_nanos() == other.unix_nanos()
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        self.unix_nanos().cmp(&other.unix_nanos())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.format(Fraction::Shortest))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn times_are_read_as_go_reads_them() {
        for (text, seconds, nanos, offset) in [
            ("1970-01-01T00:00:00Z", 0, 0, 0),
            ("2000-02-29T12:34:56Z", 951_827_696, 0, 0),
            ("2026-11-21T13:00:00Z", 1_795_266_000, 0, 0),
            ("2026-11-21T14:00:00+01:00", 1_795_266_000, 0, 3600),
            ("2026-11-21T04:30:00-08:30", 1_795_266_000, 0, -30_600),
            ("1970-01-01T00:00:01.25Z", 1, 250_000_000, 0),
            ("1970-01-01T00:00:01,5Z", 1, 500_000_000, 0),
            ("1970-01-01T00:00:00.1234567899Z", 0, 123_456_789, 0),
            ("0001-01-01T00:00:00Z", MIN_SECONDS, 0, 0),
            ("9999-12-31T23:59:59Z", MAX_SECONDS, 0, 0),
        ] {
            let time = parse(text);
            assert_eq!(
                (time.seconds(), time.subsec_nanos(), time.offset_seconds()),
                (seconds, nanos, offset)
            );
        }
        for text in [
            "",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-1-1T0:0:0Z",
            "1970-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01t00:00:00z",
            "1970-01-01 00:00:00Z",
            "1970-01-01T00:00:00+0100",
            "1970-01-01T00:00:00+25:00",
            "+1970-01-01T00:00:00Z",
            "x970-01-01T00:00:00Z",
            "1970-01-01T00:00:00Zé",
        ] {
            assert_eq!(Timestamp::parse(text).err(), Some(TimestampError::Malformed), "{text}");
        }
        for text in ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"] {
            assert_eq!(Timestamp::parse(text).err(), Some(TimestampError::OutOfRange), "{text}");
        }
    }

    #[test]
    fn times_are_written_with_the_digits_that_are_asked_for() {
        for (text, fraction, expected) in [
            ("2026-11-21T13:00:00Z", Fraction::Shortest, "2026-11-21T13:00:00Z"),
            ("2026-11-21T13:00:00.042Z", Fraction::Shortest, "2026-11-21T13:00:00.042Z"),
            ("2026-11-21T13:00:00.042Z", Fraction::Seconds, "2026-11-21T13:00:00Z"),
            ("2026-11-21T13:00:00.042Z", Fraction::Millis, "2026-11-21T13:00:00.042Z"),
            ("2026-11-21T13:00:00.042Z", Fraction::Micros, "2026-11-21T13:00:00.042000Z"),
            ("2026-11-21T13:00:00Z", Fraction::Millis, "2026-11-21T13:00:00Z"),
            ("2026-11-21T13:00:00Z", Fraction::Micros, "2026-11-21T13:00:00.000000Z"),
            ("2026-11-21T13:00:00-08:30", Fraction::Shortest, "2026-11-21T13:00:00-08:30"),
        ] {
            assert_eq!(parse(text).format(fraction), expected);
        }
        assert_eq!(parse("2026-11-21T13:00:00-08:30").format_utc(Fraction::Seconds), "2026-11-21T21:30:00Z");
    }

    #[test]
    fn times_beyond_the_calendar_become_its_end() {
        let end = "9999-12-31T23:59:59Z";
        assert_eq!(Timestamp::from_unix_millis(u64::MAX).to_string(), end);
        assert_eq!(Timestamp::from(UNIX_EPOCH + Duration::from_secs(1 << 40)).to_string(), end);
        assert_eq!(Timestamp::from_unix_millis(1_795_266_000_042).to_string(), "2026-11-21T13:00:00.042Z");
        assert_eq!(Timestamp::new(MAX_SECONDS + 1, 0), None);
        assert_eq!(parse(end).checked_add_nanos(1_000_000_000), None);
    }

    #[test]
    fn times_with_different_offsets_are_equal_when_they_are_the_same_instant() {
        assert_eq!(parse("2026-11-21T14:00:00+01:00"), parse("2026-11-21T13:00:00Z"));
        assert!(parse("2026-11-21T14:00:00+02:00") < parse("2026-11-21T13:00:00Z"));
        let (early, late) = (parse("1970-01-01T00:00:00Z"), parse("1970-01-01T00:00:01.5Z"));
        assert_eq!(late.nanos_since(early), Some(1_500_000_000));
        assert_eq!(early.checked_add_nanos(1_500_000_000), Some(late));
        assert_eq!((late.unix_millis(), parse("1969-12-31T23:59:59Z").unix_millis()), (Some(1500), None));
    }
}
