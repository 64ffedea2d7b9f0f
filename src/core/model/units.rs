//! Amounts with their unit in the type. Amounts are integers, and arithmetic on them is checked or saturates.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! amount {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The amount 0.
            pub const ZERO: Self = Self(0);

            /// The sum; `None` on overflow, so that an absurd request does not wrap into a small one.
            pub fn checked_add(self, other: Self) -> Option<Self> {
                self.0.checked_add(other.0).map(Self)
            }

            /// The sum, at most the largest amount, which is larger than any capacity.
            #[must_use]
            pub fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// The difference; `None` when `other` is larger.
            pub fn checked_sub(self, other: Self) -> Option<Self> {
                self.0.checked_sub(other.0).map(Self)
            }

            /// The difference, at least zero.
            #[must_use]
            pub fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
    };
}

amount! {
    /// CPU in thousandths of a core.
    MilliCpu
}
amount! {
    /// Memory or storage in bytes.
    Bytes
}
amount! {
    /// GPU memory in MiB. KAI's code and the node labels use MiB, although the KAI tutorials say MB.
    VramMib
}

impl fmt::Display for MilliCpu {
    /// `4 cores`, `1 core`, `3.5 cores`, `250m cores`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 1000, self.0 % 1000) {
            (1, 0) => write!(f, "1 core"),
            (whole, 0) => write!(f, "{whole} cores"),
            (0, milli) => write!(f, "{milli}m cores"),
            (whole, milli) => {
                let fraction = format!("{milli:03}");
                write!(f, "{whole}.{} cores", fraction.trim_end_matches('0'))
            }
        }
    }
}

impl fmt::Display for Bytes {
    /// In the largest fitting binary unit, with one digit after the point: `64 GiB`, `1.5 GiB`, `512 MiB`,
    /// `100 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
            let one = 1_u64 << shift;
            if self.0 >= one {
                let tenths = u128::from(self.0) * 10 / u128::from(one);
                return if tenths % 10 == 0 {
                    write!(f, "{} {unit}", tenths / 10)
                } else {
                    write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl fmt::Display for VramMib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_displayed_with_units() {
        for (millis, text) in [
            (0, "0 cores"),
            (100, "100m cores"),
            (1000, "1 core"),
            (3500, "3.5 cores"),
            (1250, "1.25 cores"),
            (64_000, "64 cores"),
        ] {
            assert_eq!(MilliCpu(millis).to_string(), text);
        }
        for (bytes, text) in [
            (0, "0 B"),
            (1 << 30, "1 GiB"),
            (3 << 29, "1.5 GiB"),
            (512 << 20, "512 MiB"),
            (64 << 40, "64 TiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
