//! Kubernetes quantities (`100m`, `4Gi`, `1e3`, `.5`), read exactly as the API server reads them
//! (k8s.io/apimachinery, pkg/api/resource `ParseQuantity`). Held against a table made by that function: see the tests.

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

/// What stands after the digits: a power of ten or of two.
#[derive(Clone, Copy)]
enum Scale {
    Ten(i32),
    Two(u32),
}

impl Scale {
    fn read(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "n" => Self::Ten(-9),
            "u" => Self::Ten(-6),
            "m" => Self::Ten(-3),
            "" => Self::Ten(0),
            "k" => Self::Ten(3),
            "M" => Self::Ten(6),
            "G" => Self::Ten(9),
            "T" => Self::Ten(12),
            "P" => Self::Ten(15),
            "E" => Self::Ten(18),
            "Ki" => Self::Two(10),
            "Mi" => Self::Two(20),
            "Gi" => Self::Two(30),
            "Ti" => Self::Two(40),
            "Pi" => Self::Two(50),
            "Ei" => Self::Two(60),
            _ => {
                let power: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
                // Go keeps the low 32 bits of the exponent: `1e4294967297` is 10.
                let [a, b, c, d, ..] = power.to_le_bytes();
                Self::Ten(i32::from_le_bytes([a, b, c, d]))
            }
        })
    }

    /// The API server reads a suffix without any digit as zero where its parser takes the short way, and as an error
    /// where it does not.
    fn takes_no_digits(self) -> bool {
        match self {
            Self::Ten(power) => power >= -9,
            Self::Two(power) => power <= 40,
        }
    }

    /// Billionths of the number with these decimal digits, `places` of them after the point: rounded up, capped. Takes
    /// time linear in the number of digits, whatever the exponent.
    fn apply(self, digits: &[u8], places: i64) -> i128 {
        let (digits, power) = match self {
            Self::Ten(power) => (digits.to_vec(), i64::from(power)),
            Self::Two(shift) => (doubled(digits, shift), 0),
        };
        let Some(first) = digits.iter().position(|d| *d != 0) else { return 0 };
        let digits = &digits[first..];
        // The number of billionths is `digits` times ten to this power.
        let power = power - places + 9;
        // `length + power` digits stand before the point; a digit string is never longer than memory, so this holds.
        let before = i64::try_from(digits.len()).unwrap_or(i64::MAX).saturating_add(power);
        if before > 28 {
            return MOST * NANO;
        }
        if before <= 0 {
            return 1;
        }
        let before = usize::try_from(before).expect("between 1 and 28");
        let (kept, cut) = digits.split_at(before.min(digits.len()));
        let kept = kept.iter().chain(std::iter::repeat(&0)).take(before);
        let nano = kept.fold(0_i128, |sum, digit| sum * 10 + i128::from(*digit));
        (nano + i128::from(cut.iter().any(|d| *d != 0))).min(MOST * NANO)
    }
}

/// Decimal digits of the number times two to the power of `shift` (at most 60).
fn doubled(digits: &[u8], shift: u32) -> Vec<u8> {
    let mut product = Vec::with_capacity(digits.len() + 20);
    let mut carry: u128 = 0;
    for digit in digits.iter().rev() {
        carry += u128::from(*digit) << shift;
        product.push(u8::try_from(carry % 10).expect("a digit"));
        carry /= 10;
    }
    while carry > 0 {
        product.push(u8::try_from(carry % 10).expect("a digit"));
        carry /= 10;
    }
    product.reverse();
    product
}

/// For fuzzing: reads any text and checks what must hold of the outcome.
///
/// # Panics
/// When a promise is broken: an amount beyond the cap, or views of it that contradict each other.
pub fn fuzz_quantity(text: &str) {
    let Ok(quantity) = Quantity::parse(text) else { return };
    assert!(quantity.nano.abs() <= MOST * NANO, "{text:?} is capped");
    let (units, millis) = (i128::from(quantity.units()), i128::from(quantity.millis()));
    let positive = quantity.nano.max(0);
    assert!((positive..positive + NANO).contains(&(units * NANO)), "{text:?} rounds up to units");
    assert!(millis == MOST || (positive..positive + NANO / 1000).contains(&(millis * (NANO / 1000))));
    let opposite = match text.strip_prefix('-') {
        Some(rest) => rest.to_owned(),
        None => format!("-{}", text.strip_prefix('+').unwrap_or(text)),
    };
    if !opposite.starts_with("-+") && !opposite.starts_with('+') && !opposite.is_empty() {
        assert_eq!(
            Quantity::parse(&opposite).map(|q| -q.nano),
            Ok(quantity.nano),
            "{text:?} and its opposite"
        );
    }
}

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    /// [`QuantityError::Malformed`] for everything the API server refuses.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        Self::read(text).ok_or_else(|| QuantityError::Malformed(text.chars().take(64).collect()))
    }

    fn read(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let digits_end = |from: usize| {
            let rest = &unsigned.as_bytes()[from..];
            from + rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len())
        };
        let whole_end = digits_end(0);
        let (number_end, fraction) = if unsigned.as_bytes().get(whole_end) == Some(&b'.') {
            let end = digits_end(whole_end + 1);
            (end, &unsigned[whole_end + 1..end])
        } else {
            (whole_end, "")
        };
        let whole = &unsigned[..whole_end];
        let scale = Scale::read(&unsigned[number_end..])?;
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').collect();
        if digits.is_empty() {
            return scale.takes_no_digits().then_some(Self { nano: 0 });
        }
        let places = i64::try_from(fraction.len()).ok()?;
        let nano = scale.apply(&digits, places);
        Some(Self { nano: if negative { -nano } else { nano } })
    }

    /// Whole units, rounded up; negative amounts are nothing.
    pub fn units(self) -> u64 {
        u64::try_from(self.ceil(NANO)).unwrap_or(0)
    }

    /// Thousandths, rounded up; negative amounts are nothing.
    pub fn millis(self) -> u64 {
        u64::try_from(self.ceil(NANO / 1000).min(MOST)).unwrap_or(0)
    }

    /// Billionths, `u64::MAX` where that is too small; negative amounts are nothing.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.nano.max(0)).unwrap_or(u64::MAX)
    }

    fn ceil(self, unit: i128) -> i128 {
        -((-self.nano).div_euclid(unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `None` for an error.
    fn oracle() -> impl Iterator<Item = (String, Option<i128>)> {
        include_str!("quantity_cases.tsv").lines().filter(|line| !line.starts_with('#')).map(|line| {
            let mut fields = line.split('\t');
            let text = serde_json::from_str(fields.next().unwrap()).unwrap();
            (text, fields.next().unwrap().parse().ok())
        })
    }

    #[test]
    fn quantities_are_read_as_the_api_server_reads_them() {
        let wrong: Vec<_> = oracle()
            .map(|(text, expected)| (Quantity::parse(&text).ok().map(|q| q.nano), expected, text))
            .filter(|(read, expected, _)| read != expected)
            .collect();
        assert!(wrong.is_empty(), "(read, expected, text): {wrong:#?}");
        let count = |sound: bool| oracle().filter(|(_, nano)| nano.is_some() == sound).count();
        assert!(count(true) > 400 && count(false) > 200, "the table has both kinds");
    }

    #[test]
    fn amounts_round_up_and_absurd_ones_are_capped() {
        let check = |text: &str, units: u64, millis: u64, nanos: u64| {
            let q = Quantity::parse(text).unwrap();
            assert_eq!((q.units(), q.millis(), q.nanos()), (units, millis, nanos), "{text}");
        };
        let most = i64::MAX.unsigned_abs();
        check("100m", 1, 100, 100_000_000);
        check("4Gi", 4 << 30, (4 << 30) * 1000, (4 << 30) * 1_000_000_000);
        check(".5", 1, 500, 500_000_000);
        check("1e3", 1000, 1_000_000, 1_000_000_000_000);
        check("0.0000000001", 1, 1, 1);
        check("-1", 0, 0, 0);
        check("1e2147483647", most, most, u64::MAX);
        check("1e-2147483647", 1, 1, 1);
        check("9E", 9_000_000_000_000_000_000, most, u64::MAX);
    }

    #[test]
    fn no_text_hangs_or_breaks_it() {
        for (text, _) in oracle() {
            fuzz_quantity(&text);
        }
        for text in
            ["9".repeat(300_000), format!("0.{}1Ei", "0".repeat(300_000)), "é".to_owned(), "1é".to_owned()]
        {
            fuzz_quantity(&text);
        }
    }
}
