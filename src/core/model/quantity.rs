//! Kubernetes quantities (`100m`, `4Gi`, `1e3`, `.5`), read exactly as the API server reads them
//! (k8s.io/apimachinery, pkg/api/resource).

/// A quantity in billionths, the finest step Kubernetes keeps; finer input is rounded up, away from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nano: i128,
}

/// Why a text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number, or a suffix Kubernetes does not know.
    #[error("{0:?} is not a quantity: expected a number such as 2, 0.5, 100m, 4Gi or 1e3")]
    Malformed(String),
}

const NANO: i128 = 1_000_000_000;
/// Values beyond this are capped to it, as the API server does.
const MOST: i128 = i64::MAX as i128;

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    /// [`QuantityError::Malformed`] for everything the API server refuses.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let malformed = || QuantityError::Malformed(text.to_owned());
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(malformed());
        }
        let (mut exponent, shift) = match suffix {
            "n" => (-9, 0),
            "u" => (-6, 0),
            "m" => (-3, 0),
            "" => (0, 0),
            "k" => (3, 0),
            "M" => (6, 0),
            "G" => (9, 0),
            "T" => (12, 0),
            "P" => (15, 0),
            "E" => (18, 0),
            "Ki" => (0, 10),
            "Mi" => (0, 20),
            "Gi" => (0, 30),
            "Ti" => (0, 40),
            "Pi" => (0, 50),
            "Ei" => (0, 60),
            _ => {
                let power = suffix.strip_prefix(['e', 'E']).ok_or_else(malformed)?;
                (power.parse::<i32>().map_err(|_| malformed())?, 0)
            }
        };
        exponent += 9;
        let mut nano: i128 = 0;
        let mut sticky = false;
        let fraction_digits = i32::try_from(fraction.len()).map_err(|_| malformed())?;
        let mut power = exponent.saturating_sub(fraction_digits);
        for digit in whole.bytes().chain(fraction.bytes()) {
            nano = nano.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
        }
        nano = nano.saturating_mul(1 << shift);
        while power > 0 && nano != 0 && nano < i128::MAX {
            nano = nano.saturating_mul(10);
            power -= 1;
        }
        while power < 0 && nano != 0 {
            sticky |= nano % 10 != 0;
            nano /= 10;
            power += 1;
        }
        nano = (nano + i128::from(sticky)).min(MOST * NANO);
        Ok(Self { nano: if negative { -nano } else { nano } })
    }

    /// Whole units, rounded up; negative amounts are nothing.
    pub fn units(self) -> u64 {
        u64::try_from(self.ceil(NANO)).unwrap_or(0)
    }

    /// Thousandths, rounded up; negative amounts are nothing.
    pub fn millis(self) -> u64 {
        u64::try_from(self.ceil(NANO / 1000).min(MOST)).unwrap_or(0)
    }

    /// Billionths; negative amounts are nothing.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.nano).unwrap_or(0)
    }

    fn ceil(self, unit: i128) -> i128 {
        -((-self.nano).div_euclid(unit))
    }
}
