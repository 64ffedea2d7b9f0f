//! Capital letters: a phrase becomes a sentence in a message.

/// The text with its first character in upper case.
pub fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_character_changes() {
        assert_eq!(capitalized("wait for default/a to end"), "Wait for default/a to end");
        assert_eq!(capitalized("élan"), "Élan");
        assert_eq!(capitalized(""), "");
    }
}
