//! From when to when a certificate is good, and when to renew it. Pure: the time is an argument.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;

use super::CertificateError;

/// How often a renewing task looks at the wall clock. A short look beats one long sleep: a machine that was
/// suspended, or whose clock was set, is noticed within this time.
pub const RENEWAL_CHECK: Duration = Duration::from_secs(60);

/// From when to when a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first instant.
    pub not_before: SystemTime,
    /// The last instant.
    pub not_after: SystemTime,
}

impl Validity {
    /// Whether the certificate is good at `now`.
    pub fn holds_at(&self, now: SystemTime) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// When to renew: after two thirds of its life, which leaves a third to notice that renewing fails.
    pub fn renewal_time(&self) -> SystemTime {
        let life = self.not_after.duration_since(self.not_before).unwrap_or_default();
        self.not_before + life / 3 * 2
    }

    /// Whether it is time to renew. Also true before `not_before`: a clock that jumped back makes the
    /// certificate useless just as well.
    pub fn renewal_is_due(&self, now: SystemTime) -> bool {
        now < self.not_before || now >= self.renewal_time()
    }
}

/// The certificate as a tree of fields.
///
/// # Errors
/// When it is no X.509.
pub(super) fn parsed<'a>(
    certificate: &'a CertificateDer<'_>,
) -> Result<X509Certificate<'a>, CertificateError> {
    x509_parser::parse_x509_certificate(certificate)
        .map(|(_, parsed)| parsed)
        .map_err(|error| CertificateError::Undecodable(error.to_string()))
}

/// The dates of a certificate.
///
/// # Errors
/// When it is no X.509, or dated before 1970.
pub fn validity_of(certificate: &CertificateDer<'_>) -> Result<Validity, CertificateError> {
    let certificate = parsed(certificate)?;
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
