//! The result of reading the keys by which a pod names its gang: membership, repairs, warnings,
//! contradictions.

use super::membership::Membership;
use crate::model::Finding;

/// What one dialect found in the keys of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MembershipReview {
    /// The gang after the repairs. `None` when the pod names none.
    pub membership: Option<Membership>,
    /// Keys that are missing and can be derived from other keys.
    pub repairs: Vec<MetadataRepair>,
    /// Warnings for the user, one line each.
    pub warnings: Vec<String>,
    /// Contradictions. A pod with one of them is rejected.
    pub faults: Vec<Finding>,
}

/// One key that admission adds to the metadata of the pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetadataRepair {
    /// The map that it belongs to.
    pub map: MetadataMap,
    /// The key.
    pub key: &'static str,
    /// The value.
    pub value: String,
    /// The key that the value was copied from. `None` where it comes from fields of the spec.
    pub source: Option<(MetadataMap, &'static str)>,
}

/// One of the two string maps in `metadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetadataMap {
    /// `metadata.labels`.
    Labels,
    /// `metadata.annotations`.
    Annotations,
}

impl MetadataMap {
    /// Name of the field in `metadata`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::Annotations => "annotations",
        }
    }
}

/// Maximum length of a label value. All legal characters are ASCII, so bytes are characters.
pub const MAX_LABEL_VALUE_BYTES: usize = 63;

/// Whether `value` is a legal label value: at most 63 characters, letters, digits, `-`, `_`, `.`, with a
/// letter or digit at both ends (k8s.io/apimachinery, util/validation `IsValidLabelValue`). The empty text is
/// legal.
pub fn is_label_value(value: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= MAX_LABEL_VALUE_BYTES
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_follow_the_rule_of_the_api_server() {
        let longest = "a".repeat(63);
        let too_long = "a".repeat(64);
        for (value, legal) in [
            ("", true),
            ("app-with-models", true),
            ("A.b_c-9", true),
            (longest.as_str(), true),
            (too_long.as_str(), false),
            ("-a", false),
            ("a.", false),
            ("a/b", false),
            ("a b", false),
            ("modèle", false),
        ] {
            assert_eq!(is_label_value(value), legal, "{value:?}");
        }
    }
}
