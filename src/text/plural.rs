//! Counts in messages: `1 pod`, `2 pods`.

use std::fmt::Display;

/// A count with the matching form of a noun.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, singular: &str, plural: &str) -> String {
    let noun = if count == N::from(1) { singular } else { plural };
    format!("{count} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_takes_the_singular() {
        assert_eq!(counted(0_u32, "pod", "pods"), "0 pods");
        assert_eq!(counted(1_usize, "pod", "pods"), "1 pod");
        assert_eq!(counted(2_u64, "policy", "policies"), "2 policies");
    }
}
