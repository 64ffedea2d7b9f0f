//! Maps bytes of a string value to bytes of the file, through block indentation, folded lines and escapes.

use std::ops::Range;

use granit_parser::ScalarStyle;

/// The bytes of the file that hold the bytes `within` of `text`. `raw` is the scalar as the file writes it,
/// from byte `start` of the file on.
///
/// Folding and indentation change white space only; all other characters keep their order. So the function
/// counts characters that are not white space.
pub fn locate(raw: &str, start: usize, style: ScalarStyle, text: &str, within: Range<usize>) -> Range<usize> {
    let visible = visible_chars(raw, style);
    let count = |until: usize| {
        text.char_indices().take_while(|(at, _)| *at < until).filter(|(_, c)| !c.is_whitespace()).count()
    };
    let before = count(within.start);
    let is_visible =
        text.get(within.start..).and_then(|rest| rest.chars().next()).is_some_and(|c| !c.is_whitespace());
    if !is_visible {
        // White space or the end: the position after the previous visible character.
        let at = before.checked_sub(1).and_then(|last| visible.get(last)).map_or(0, |range| range.end);
        return start + at..start + at;
    }
    let end = count(within.end.max(within.start + 1));
    let from = visible.get(before).map_or(raw.len(), |range| range.start);
    let to = end.checked_sub(1).and_then(|last| visible.get(last)).map_or(from, |range| range.end);
    start + from..start + to.max(from)
}

/// The byte range of each character that is not white space.
fn visible_chars(raw: &str, style: ScalarStyle) -> Vec<Range<usize>> {
    match style {
        ScalarStyle::Literal | ScalarStyle::Folded => {
            // The first line holds the indicators.
            let body = raw.find('\n').map_or(raw.len(), |end| end + 1);
            visible_from(raw, if raw.starts_with(['|', '>']) { body } else { 0 })
        }
        ScalarStyle::SingleQuoted => {
            let mut found: Vec<Range<usize>> = Vec::new();
            let mut characters = raw.char_indices().skip(1).peekable();
            while let Some((at, character)) = characters.next() {
                if character == '\'' {
                    if characters.next_if(|(_, next)| *next == '\'').is_none() {
                        break;
                    }
                    found.push(at..at + 2);
                } else if !character.is_whitespace() {
                    found.push(at..at + character.len_utf8());
                }
            }
            found
        }
        ScalarStyle::DoubleQuoted => double_quoted(raw),
        ScalarStyle::Plain => visible_from(raw, 0),
    }
}

fn visible_from(raw: &str, from: usize) -> Vec<Range<usize>> {
    raw[from..]
        .char_indices()
        .filter(|(_, character)| !character.is_whitespace())
        .map(|(at, character)| from + at..from + at + character.len_utf8())
        .collect()
}

fn double_quoted(raw: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut characters = raw.char_indices().skip(1);
    let mut half = None;
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => break,
            '\\' => {
                let Some((_, escape)) = characters.next() else { break };
                let digits = match escape {
                    'x' => 2,
                    'u' => 4,
                    'U' => 8,
                    _ => 0,
                };
                let end = (at + 1 + escape.len_utf8() + digits).min(raw.len());
                let code = raw.get(end - digits..end).and_then(|digits| u32::from_str_radix(digits, 16).ok());
                if digits > 0 {
                    for _ in 0..digits {
                        characters.next();
                    }
                }
                // The two escapes of a surrogate pair are one character.
                if let Some(0xD800..=0xDBFF) = code {
                    half = Some(at);
                    continue;
                }
                let meant = match (escape, code) {
                    (_, Some(0xDC00..=0xDFFF)) => Some('\u{10000}'),
                    (_, Some(code)) if digits > 0 => char::from_u32(code),
                    ('n' | 't' | 'r' | 'v' | 'f' | 'N' | '_' | 'L' | 'P' | ' ' | '\t' | '\n' | '\r', _) => {
                        None
                    }
                    (other, _) => Some(other),
                };
                let from = half.take().unwrap_or(at);
                if meant.is_some_and(|meant| !meant.is_whitespace()) {
                    found.push(from..end);
                }
            }
            _ if character.is_whitespace() => {}
            _ => found.push(at..at + character.len_utf8()),
        }
    }
    found
}
