//! "Did you mean": the known name that is closest to a wrong one.

/// Longer names are not compared: the distance takes time quadratic in the length.
const MAX_NAME_BYTES: usize = 253;

/// The name among `known` that the user probably meant: the first of the fewest edits, when these are few
/// enough. Upper and lower case count as the same letter.
pub fn closest<'n>(wrong: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if wrong.len() > MAX_NAME_BYTES {
        return None;
    }
    let is_candidate = |name: &&str| name.len() <= MAX_NAME_BYTES && *name != wrong && !name.is_empty();
    let lower = wrong.to_lowercase();
    let distance = |name: &str| strsim::osa_distance(&lower, &name.to_lowercase());
    let scored = known.into_iter().filter(is_candidate).map(|name| (distance(name), name));
    let (distance, name) = scored.min_by_key(|(distance, _)| *distance)?;
    let length = wrong.chars().count().max(name.chars().count());
    (distance < length.min(2 + length / 6)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_close_enough_are_suggested_and_others_are_not() {
        for (wrong, known, expected) in [
            ("app-with-model", vec!["app-with-models"], Some("app-with-models")),
            ("Inference", vec!["train", "inference"], Some("inference")),
            ("ISQUANTITY", vec!["quantity", "isQuantity"], Some("isQuantity")),
            ("a", vec!["A"], Some("A")),
            ("mdoel", vec!["server", "model"], Some("model")),
            ("cache", vec!["model"], None),
            ("a", vec!["b"], None),
            ("same", vec!["same"], None),
            ("x", vec![], None),
        ] {
            assert_eq!(closest(wrong, known), expected, "{wrong}");
        }
    }
}
