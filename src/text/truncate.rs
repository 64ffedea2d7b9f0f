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

/// The start of a text for a message of one line, at most `max` bytes: unprintable characters, such as line
/// breaks and changes of the writing direction, become spaces, and a cut text ends in an ellipsis.
pub fn one_line(text: &str, max: usize) -> String {
    // A character has at most four bytes, so the rest of the text cannot be in the result.
    let start = first_bytes(text, max.saturating_mul(4).saturating_add(4));
    let unprintable = |c: char| c.is_control() || c.escape_debug().len() > 2;
    let line: String = start.chars().map(|c| if unprintable(c) { ' ' } else { c }).collect();
    ellipsize_bytes(line.trim(), max).into_owned()
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

    #[test]
    fn a_line_has_only_printable_characters() {
        assert_eq!(
            one_line("0/2 nodes \"a\" are\navailable\t\u{202e}x\u{1b}[1m \n", 99),
            "0/2 nodes \"a\" are available  x [1m"
        );
        assert_eq!(one_line(&"\u{0}".repeat(1000), 8), "");
        assert_eq!(one_line(&"é".repeat(1_000_000), 8), "éé…");
    }
}
