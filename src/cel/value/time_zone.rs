//! Time zones of CEL's time functions. The zones come from a bundled database, so every machine gives the
//! same answer.

use std::sync::LazyLock;

use jiff::civil::DateTime;
use jiff::tz::TimeZoneDatabase;
use portcullis_text::Timestamp;

/// The bundled zones. The zones of the machine would be read from its disk, and differ between machines.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The date and time of day in a zone: empty or `UTC`, a name such as `Europe/Berlin`, or an offset such as
/// `-08:00`.
///
/// # Errors
/// The message of cel-go for an unknown zone.
pub(crate) fn civil_in_zone(time: Timestamp, zone: &str) -> Result<DateTime, String> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let number = |text: &str| {
            text.parse::<i32>()
                .map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", super::quote(text)))
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let signed = if zone.starts_with('-') { -i64::from(minutes) } else { i64::from(minutes) };
        let total = (i64::from(hours) * 60 + signed) * 60;
        return Ok(time.civil(i32::try_from(total).unwrap_or(0)));
    }
    if matches!(zone, "" | "UTC") {
        return Ok(time.civil(0));
    }
    let found = ZONES.get(zone).map_err(|_| format!("unknown time zone {zone}"))?;
    let nanoseconds = i32::try_from(time.subsec_nanos()).unwrap_or(0);
    let instant = jiff::Timestamp::new(time.seconds(), nanoseconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    Ok(found.to_datetime(instant))
}
