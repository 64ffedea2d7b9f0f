//! The tokenizer. It decides which characters form a token and does not interpret tokens.

use super::Issue;

/// The kind of a token. Its text is in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    End,
    Ident,
    Escaped,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    /// An operator or bracket, or one of the words `in`, `true`, `false`, `null`.
    Symbol(&'static str),
}

/// A token and its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpannedToken {
    pub(super) token: Token,
    pub(super) start: usize,
    pub(super) end: usize,
}

const SYMBOLS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%",
];
const WORDS: [&str; 4] = ["in", "true", "false", "null"];

/// All tokens, with `End` at the end. A character that starts no token is reported as an issue and skipped.
pub(super) fn tokens(source: &str, issues: &mut Vec<Issue>) -> Vec<SpannedToken> {
    let bytes = source.as_bytes();
    // The capacity assumes that most tokens are names.
    let mut found = Vec::with_capacity(source.len() / 4 + 8);
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if matches!(rest[0], b' ' | b'\t' | b'\r' | b'\n' | 0x0c) {
            at += 1;
            continue;
        }
        if rest.starts_with(b"//") {
            at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            continue;
        }
        let scanned = text(rest)
            .or_else(|| number(rest))
            .or_else(|| word(source, at))
            .or_else(|| escaped(rest))
            .or_else(|| {
                SYMBOLS.iter().find(|s| rest.starts_with(s.as_bytes())).map(|s| (Token::Symbol(s), s.len()))
            });
        if let Some((token, length)) = scanned {
            found.push(SpannedToken { token, start: at, end: at + length });
            at += length;
        } else {
            let wrong = source[at..].chars().next().unwrap_or(' ');
            issues.push(Issue::new(at, format!("Syntax error: token recognition error at: '{wrong}'")));
            at += wrong.len_utf8();
        }
    }
    found.push(SpannedToken { token: Token::End, start: source.len(), end: source.len() });
    found
}

fn count(bytes: &[u8], accept: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|b| accept(**b)).count()
}

fn number(bytes: &[u8]) -> Option<(Token, usize)> {
    if bytes.starts_with(b"0x") {
        let hex = count(&bytes[2..], |b| b.is_ascii_hexdigit());
        if hex > 0 {
            return Some(unsigned(bytes, 2 + hex, Token::Int));
        }
    }
    let whole = count(bytes, |b| b.is_ascii_digit());
    let mut length = whole;
    let mut token = Token::Int;
    if bytes.get(length) == Some(&b'.') {
        let fraction = count(&bytes[length + 1..], |b| b.is_ascii_digit());
        if fraction > 0 {
            length += 1 + fraction;
            token = Token::Double;
        }
    }
    if length == 0 {
        return None;
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = bytes.get(length + 1 + sign..).map_or(0, |rest| count(rest, |b| b.is_ascii_digit()));
        if exponent > 0 {
            length += 1 + sign + exponent;
            token = Token::Double;
        }
    }
    Some(unsigned(bytes, length, token))
}

fn unsigned(bytes: &[u8], length: usize, token: Token) -> (Token, usize) {
    if token == Token::Int && matches!(bytes.get(length), Some(b'u' | b'U')) {
        return (Token::Uint, length + 1);
    }
    (token, length)
}

fn word(source: &str, at: usize) -> Option<(Token, usize)> {
    let bytes = &source.as_bytes()[at..];
    if !(bytes[0].is_ascii_alphabetic() || bytes[0] == b'_') {
        return None;
    }
    let length = count(bytes, |b| b.is_ascii_alphanumeric() || b == b'_');
    let text = &source[at..at + length];
    let token = WORDS.iter().find(|word| **word == text).map_or(Token::Ident, |word| Token::Symbol(word));
    Some((token, length))
}

fn escaped(bytes: &[u8]) -> Option<(Token, usize)> {
    if bytes[0] != b'`' {
        return None;
    }
    let inner = count(&bytes[1..], |b| b.is_ascii_alphanumeric() || b"_.-/ ".contains(&b));
    (inner > 0 && bytes.get(1 + inner) == Some(&b'`')).then_some((Token::Escaped, inner + 2))
}

/// A complete string or bytes literal.
fn text(bytes: &[u8]) -> Option<(Token, usize)> {
    quoted(bytes, true).or_else(|| quoted(bytes, false))
}

/// A literal with three quotes or with one. Three opening quotes without closing ones are an empty literal
/// and more.
fn quoted(bytes: &[u8], triple: bool) -> Option<(Token, usize)> {
    let mut prefix = 0;
    let mut token = Token::String;
    let mut raw = false;
    if matches!(bytes[0], b'b' | b'B') {
        token = Token::Bytes;
        prefix = 1;
    }
    if matches!(bytes.get(prefix), Some(b'r' | b'R')) {
        raw = true;
        prefix += 1;
    }
    let quote = *bytes.get(prefix)?;
    if quote != b'"' && quote != b'\'' {
        return None;
    }
    if triple && !bytes[prefix..].starts_with(&[quote; 3]) {
        return None;
    }
    let mut at = prefix + if triple { 3 } else { 1 };
    loop {
        let byte = *bytes.get(at)?;
        if byte == quote && (!triple || bytes[at..].starts_with(&[quote; 3])) {
            return Some((token, at + if triple { 3 } else { 1 }));
        }
        if byte == b'\\' && !raw {
            at += super::literal::escape_length(&bytes[at..])?;
        } else if !triple && matches!(byte, b'\n' | b'\r') {
            return None;
        } else {
            at += 1;
        }
    }
}
