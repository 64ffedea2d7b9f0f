//! What admission makes of the keys by which a pod names its group: a membership, repairs, warnings, faults.

use super::Membership;
use crate::model::Finding;

/// The answer of one dialect for one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The gang, as it will be once the repairs are made. `None` when the pod names none.
    pub membership: Option<Membership>,
    /// Keys that are missing beside the ones that are there.
    pub repairs: Vec<Repair>,
    /// What the user should know, one line each.
    pub warnings: Vec<String>,
    /// Why the pod cannot be admitted.
    pub faults: Vec<Finding>,
}

/// One key to be written to the pod's metadata.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Repair {
    /// Which map it belongs into.
    pub map: MetadataMap,
    /// The key.
    pub key: &'static str,
    /// The value it gets.
    pub value: String,
    /// Where the value was taken from: a key that is there. `None` where it comes from fields of the spec.
    pub source: Option<(MetadataMap, &'static str)>,
}

/// One of the two maps of text in `metadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetadataMap {
    /// `metadata.labels`.
    Labels,
    /// `metadata.annotations`.
    Annotations,
}

impl MetadataMap {
    /// Name of the field within `metadata`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::Annotations => "annotations",
        }
    }
}

/// Most characters a label value can have.
pub const LABEL_VALUE_LONGEST: usize = 63;

/// Whether `value` may stand in a label: at most 63 characters, letters, digits, `-`, `_`, `.`, and a letter or digit
/// at both ends (k8s.io/apimachinery, util/validation `IsValidLabelValue`). Empty is legal there, and names nothing.
pub fn is_label_value(value: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= LABEL_VALUE_LONGEST
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_told_from_others() {
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
