//! Moments and durations as Go reads and writes them. Time zones come from a bundled database; nothing asks what time it is.

use std::cmp::Ordering;
use std::sync::LazyLock;

use jiff::civil::DateTime;
use jiff::tz::TimeZoneDatabase;
use jiff::{SignedDuration, civil};

/// A moment between the years 1 and 9999, with the offset it was written with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timestamp {
    seconds: i64,
    nanoseconds: i32,
    offset: i32,
}

/// Seconds of year 1 and of the end of year 9999.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;
const EPOCH: DateTime = civil::date(1970, 1, 1).at(0, 0, 0, 0);
/// The bundled zones: those of the machine would be read from its disk, and differ from the next machine's.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
const BILLION: i128 = 1_000_000_000;

impl Timestamp {
    /// A moment by seconds since 1970 and nanoseconds, in UTC; none outside of the years 1 to 9999.
    #[must_use]
    pub fn new(seconds: i64, nanoseconds: i32) -> Option<Self> {
        (FIRST..=LAST).contains(&seconds).then_some(Self { seconds, nanoseconds, offset: 0 })
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn seconds(&self) -> i64 {
        self.seconds
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.seconds == FIRST && self.nanoseconds == 0
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.total().cmp(&other.total())
    }

    fn total(&self) -> i128 {
        i128::from(self.seconds) * BILLION + i128::from(self.nanoseconds)
    }

    /// Moved by nanoseconds.
    pub(crate) fn plus(self, nanoseconds: i128) -> Option<Self> {
        let total = self.total() + nanoseconds;
        let seconds = i64::try_from(total.div_euclid(BILLION)).ok()?;
        let rest = i32::try_from(total.rem_euclid(BILLION)).ok()?;
        Some(Self { offset: self.offset, ..Self::new(seconds, rest)? })
    }

    /// Nanoseconds from `other` to this.
    pub(crate) fn since(&self, other: &Self) -> Option<i64> {
        i64::try_from(self.total() - other.total()).ok()
    }

    /// The date and time that clocks show, at this offset in seconds.
    fn civil(&self, offset: i32) -> DateTime {
        let seconds = SignedDuration::from_secs(self.seconds + i64::from(offset));
        let at = EPOCH.checked_add(seconds + SignedDuration::from_nanos(self.nanoseconds.into()));
        at.unwrap_or(if self.seconds < 0 { DateTime::MIN } else { DateTime::MAX })
    }

    /// The date and time in a zone: empty or `UTC`, a name such as `Europe/Berlin`, or an offset such as `-08:00`.
    pub(crate) fn within(&self, zone: &str) -> Result<DateTime, String> {
        if let Some((hours, minutes)) = zone.split_once(':') {
            let number = |text: &str| {
                text.parse::<i32>()
                    .map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", super::quote(text)))
            };
            let (hours, minutes) = (number(hours)?, number(minutes)?);
            let signed = if zone.starts_with('-') { -i64::from(minutes) } else { i64::from(minutes) };
            let total = (i64::from(hours) * 60 + signed) * 60;
            return Ok(self.civil(i32::try_from(total).unwrap_or(0)));
        }
        if matches!(zone, "" | "UTC") {
            return Ok(self.civil(0));
        }
        let found = ZONES.get(zone).map_err(|_| format!("unknown time zone {zone}"))?;
        let moment =
            jiff::Timestamp::new(self.seconds, self.nanoseconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        Ok(found.to_datetime(moment))
    }

    /// RFC 3339 with as many digits as needed, at the offset it was written with, or in UTC.
    pub(crate) fn text(&self, utc: bool) -> String {
        let offset = if utc { 0 } else { self.offset };
        let civil = self.civil(offset);
        let mut text = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            civil.year(),
            civil.month(),
            civil.day(),
            civil.hour(),
            civil.minute(),
            civil.second()
        );
        if self.nanoseconds != 0 {
            let fraction = format!("{:09}", self.nanoseconds);
            text.push('.');
            text.push_str(fraction.trim_end_matches('0'));
        }
        if offset == 0 {
            text.push('Z');
        } else {
            let sign = if offset < 0 { '-' } else { '+' };
            let minutes = offset.abs() / 60;
            text.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
        }
        text
    }
}

/// Reads RFC 3339 as Go does: fraction of any length, offset `Z` or `+hh:mm`. The inner none is a moment out of range.
#[expect(clippy::option_option, reason = "no timestamp at all, and one out of range, are two answers")]
pub(crate) fn parse_timestamp(text: &str) -> Option<Option<Timestamp>> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
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
    let offset = match bytes.get(at)? {
        b'Z' if bytes.len() == at + 1 => 0,
        sign @ (b'+' | b'-') if bytes.len() == at + 6 && bytes[at + 3] == b':' => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if hours > 24 || minutes > 60 {
                return None;
            }
            let seconds = i32::try_from(hours * 3600 + minutes * 60).ok()?;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let small = |value: i64| i8::try_from(value).ok();
    let year = i16::try_from(year).ok()?;
    let civil =
        DateTime::new(year, small(month)?, small(day)?, small(hour)?, small(minute)?, small(second)?, 0)
            .ok()?;
    let local = civil.duration_since(EPOCH).as_secs();
    let seconds = local - i64::from(offset);
    Some(Timestamp::new(seconds, nanoseconds).map(|moment| Timestamp { offset, ..moment }))
}

/// Reads a duration such as `1h30m`, `-1.5s` or `300ms`, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        let mut length = whole;
        let mut fraction = "";
        if rest.as_bytes().get(whole) == Some(&b'.') {
            let digits = rest[whole + 1..].bytes().take_while(u8::is_ascii_digit).count();
            fraction = &rest[whole + 1..whole + 1 + digits];
            length += 1 + digits;
            if digits == 0 && whole == 0 {
                return None;
            }
        }
        if length == 0 {
            return None;
        }
        let value: i128 = if whole == 0 { 0 } else { rest[..whole].parse::<u64>().ok()?.into() };
        rest = &rest[length..];
        let name = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit: i128 = match &rest[..name] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => BILLION,
            "m" => 60 * BILLION,
            "h" => 3600 * BILLION,
            _ => return None,
        };
        rest = &rest[name..];
        total += value * unit;
        let kept = &fraction[..fraction.len().min(18)];
        if !kept.is_empty() {
            let scale = 10_i128.pow(u32::try_from(kept.len()).ok()?);
            total += kept.parse::<i128>().ok()? * unit / scale;
        }
        if total > i128::from(i64::MAX) + i128::from(negative) {
            return None;
        }
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Seconds as `string()` writes a duration.
pub(crate) fn duration_text(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let total = nanoseconds.unsigned_abs();
    let (whole, fraction) = (total / 1_000_000_000, total % 1_000_000_000);
    if fraction == 0 {
        return format!("{sign}{whole}s");
    }
    let fraction = format!("{fraction:09}");
    format!("{sign}{whole}.{}s", fraction.trim_end_matches('0'))
}
