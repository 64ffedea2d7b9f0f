//! Stable hashes: the same text has the same hash on every machine and in every version.

use sha2::{Digest, Sha256};

/// FNV-1a with 64 bits, for names. It does not resist an attacker: collisions are easy to make.
pub fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// SHA-256 of a list of parts, in hexadecimal. The length of each part counts, so moving a byte to the next
/// part changes the hash.
pub fn sha256_hex<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of the FNV authors (isthe.com/chongo/tech/comp/fnv).
    #[test]
    fn fnv1a_has_the_published_values() {
        for (text, hash) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(fnv1a(text), hash, "{text}");
        }
    }

    #[test]
    fn the_borders_of_parts_change_the_hash() {
        let hash = |parts: &[&str]| sha256_hex(parts.iter().map(|part| part.as_bytes()));
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_eq!(hash(&["ab", "c"]), hash(&["ab", "c"]));
        assert_eq!(hash(&[]), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
