//! From a byte of a text to the byte of the file that says it: through the indentation of block scalars, folded lines and escapes.

use std::ops::Range;

use granit_parser::ScalarStyle;

/// The bytes of the file that say the bytes `within` of a text. `raw` is how the text is written, from byte `start` of the file on.
///
/// White space moves where lines are folded and indented, all else stands in the same order: so what is counted is what is no white
/// space.
pub(in super::super) fn locate(
    raw: &str,
    start: usize,
    style: ScalarStyle,
    text: &str,
    within: Range<usize>,
) -> Range<usize> {
    let visible = written(raw, style);
    let count = |until: usize| {
        text.char_indices().take_while(|(at, _)| *at < until).filter(|(_, c)| !c.is_whitespace()).count()
    };
    let before = count(within.start);
    let is_visible =
        text.get(within.start..).and_then(|rest| rest.chars().next()).is_some_and(|c| !c.is_whitespace());
    if !is_visible {
        // White space or the end: behind what stands before it.
        let at = before.checked_sub(1).and_then(|last| visible.get(last)).map_or(0, |range| range.end);
        return start + at..start + at;
    }
    let end = count(within.end.max(within.start + 1));
    let from = visible.get(before).map_or(raw.len(), |range| range.start);
    let to = end.checked_sub(1).and_then(|last| visible.get(last)).map_or(from, |range| range.end);
    start + from..start + to.max(from)
}

/// The bytes of each character that is no white space.
fn written(raw: &str, style: ScalarStyle) -> Vec<Range<usize>> {
    match style {
        ScalarStyle::Literal | ScalarStyle::Folded => {
            // The first line holds the indicators.
            let body = raw.find('\n').map_or(raw.len(), |end| end + 1);
            visible(raw, if raw.starts_with(['|', '>']) { body } else { 0 })
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
        ScalarStyle::Plain => visible(raw, 0),
    }
}

fn visible(raw: &str, from: usize) -> Vec<Range<usize>> {
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
                // Two halves of a surrogate pair are one character.
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
