//! The validity period of a certificate and its renewal time. Pure: the time is an argument.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;

use super::CertificateError;

/// Interval at which a renewal task compares the wall clock with the renewal time. One long sleep would miss
/// that the machine was suspended or its clock was set.
pub const RENEWAL_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first instant.
    pub not_before: SystemTime,
    /// The last instant.
    pub not_after: SystemTime,
}

impl Validity {
    /// Whether the certificate is valid at `now`.
    pub fn holds_at(&self, now: SystemTime) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// Returns the renewal time: after two thirds of the period. The last third is left to repair a failing
    /// renewal.
    pub fn renewal_time(&self) -> SystemTime {
        let life = self.not_after.duration_since(self.not_before).unwrap_or_default();
        self.not_before + life / 3 * 2
    }

    /// Whether the renewal is due. Also true before `not_before`, because the certificate is invalid after
    /// the clock has jumped back, too.
    pub fn renewal_is_due(&self, now: SystemTime) -> bool {
        now < self.not_before || now >= self.renewal_time()
    }
}

/// Parses a certificate.
///
/// # Errors
/// If it is not X.509.
pub(super) fn parse_certificate<'a>(
    certificate: &'a CertificateDer<'_>,
) -> Result<X509Certificate<'a>, CertificateError> {
    x509_parser::parse_x509_certificate(certificate)
        .map(|(_, parsed)| parsed)
        .map_err(|error| CertificateError::Undecodable(error.to_string()))
}

/// Returns the validity period of a certificate.
///
/// # Errors
/// If it is not X.509, or a date lies before 1970.
pub fn validity_of(certificate: &CertificateDer<'_>) -> Result<Validity, CertificateError> {
    let certificate = parse_certificate(certificate)?;
    let instant = |seconds: i64| {
        let seconds = u64::try_from(seconds)
            .map_err(|_| CertificateError::Undecodable("it is dated before 1970".to_owned()))?;
        Ok::<_, CertificateError>(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    };
    let validity = certificate.validity();
    Ok(Validity {
        not_before: instant(validity.not_before.timestamp())?,
        not_after: instant(validity.not_after.timestamp())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn check(now: u64, holds: bool, due: bool) {
        let validity = Validity { not_before: at(10 * DAY), not_after: at(40 * DAY) };
        assert_eq!(
            (validity.holds_at(at(now)), validity.renewal_is_due(at(now))),
            (holds, due),
            "at {now} s"
        );
    }

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_life() {
        check(10 * DAY - 1, false, true);
        check(10 * DAY, true, false);
        check(30 * DAY - 1, true, false);
        check(30 * DAY, true, true);
        check(40 * DAY, true, true);
        check(40 * DAY + 1, false, true);
    }

    #[test]
    fn a_certificate_that_ends_before_it_begins_is_always_due() {
        let validity = Validity { not_before: at(100), not_after: at(50) };
        assert!(validity.renewal_is_due(at(75)) && validity.renewal_is_due(at(100)));
        assert!(!validity.holds_at(at(75)));
    }
}
