//! Values of users in messages: cut to a length, quoted, and safe for a terminal.

use std::borrow::Cow;

/// Characters of a user's value that a message repeats.
const MAX_QUOTED_CHARS: usize = 64;

/// The first `max` characters of a text.
pub fn first_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

/// As much of a text as fits `max` bytes, cut between characters.
pub fn first_bytes(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// The text, or its start and an ellipsis: at most `max` bytes, cut between characters.
pub fn ellipsize_bytes(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}…", first_bytes(text, max.saturating_sub('…'.len_utf8()))))
}

/// A user's value for a message: in quotes, control characters escaped, cut after 64 characters.
pub fn quoted(value: &str) -> String {
    let start = first_chars(value, MAX_QUOTED_CHARS);
    if start.len() == value.len() {
        return format!("{value:?}");
    }
    format!("{start:?} (cut, {} characters)", value.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_and_control_characters_escaped() {
        assert_eq!(quoted("a\tb"), r#""a\tb""#);
        assert_eq!(quoted("8000"), "\"8000\"");
        assert_eq!(quoted(&"x".repeat(64)), format!("\"{}\"", "x".repeat(64)));
        assert!(quoted(&"é".repeat(1000)).ends_with("(cut, 1000 characters)"));
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!((first_chars("aé", 1), first_chars("aé", 2), first_chars("aé", 9)), ("a", "aé", "aé"));
        assert_eq!((first_bytes("aé", 2), first_bytes("aé", 3), first_bytes("", 3)), ("a", "aé", ""));
        assert_eq!(ellipsize_bytes("short", 5), "short");
        let cut = ellipsize_bytes("éééé", 7);
        assert_eq!((&*cut, cut.len()), ("éé…", 7));
        assert_eq!(ellipsize_bytes("ééé", 0), "…");
    }
}
