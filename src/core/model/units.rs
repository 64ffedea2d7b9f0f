//! Amounts with their unit in the type. Capacity is integers only, and arithmetic on it is checked.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! amount {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0);

            /// The sum, or `None` when it does not fit: an absurd request must not wrap into a small one.
            pub fn checked_add(self, other: Self) -> Option<Self> {
                self.0.checked_add(other.0).map(Self)
            }

            /// The sum, stuck at the largest amount there is: larger than any capacity, so it never fits.
            #[must_use]
            pub fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// What is left after `other` is taken; `None` when there is not so much.
            pub fn checked_sub(self, other: Self) -> Option<Self> {
                self.0.checked_sub(other.0).map(Self)
            }

            /// What is left after `other` is taken, or nothing.
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
    /// GPU memory in MiB. The tutorials say MB; KAI's code and the node labels say MiB, and so do we.
    VramMib
}

impl fmt::Display for MilliCpu {
    /// `4 cores`, `1 core`, `3.5 cores`, `250m cores`: whole cores where they are whole.
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
    /// The largest binary unit that loses nothing worth reading: `64 GiB`, `1.5 GiB`, `512 MiB`, `100 B`.
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
    fn amounts_read_as_a_person_would_say_them() {
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
