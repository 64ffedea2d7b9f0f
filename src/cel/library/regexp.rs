//! Regular expressions. Go uses the syntax of RE2, and so does the crate `regex` with few differences, which
//! this module rewrites. In Go, `\d`, `\w`, `\s` and `\b` know ASCII only, a lone brace is a character, and
//! classes have no set operations. Matching takes time linear in the text, and a compiled pattern has a
//! bounded size.

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};

use super::{CallError, CallResult};
use crate::value::{Text, Value};

/// Compiles a pattern.
///
/// # Errors
/// The message of Go's parser for common mistakes, and that of the crate `regex` for others.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let fail = |why: &str, part: &str| Err(format!("error parsing regexp: {why}: `{part}`"));
    if let Some((why, part)) = fault(pattern) {
        return fail(why, part);
    }
    RegexBuilder::new(&rewrite(pattern))
        .size_limit(1 << 21)
        .dfa_size_limit(1 << 21)
        .build()
        .or_else(|_| fail("invalid or unsupported Perl syntax", pattern))
}

/// The work of compiling a pattern, in units of a budget. Compilation takes from 20 µs to many milliseconds.
/// Counted repetitions and classes with many ranges make it slow.
pub(crate) fn work(pattern: &str) -> u64 {
    const ANY: u64 = 1_000;
    const UNIT: u64 = 8;
    let parsed = regex_syntax::parse(&rewrite(pattern));
    parsed.map_or(ANY, |parsed| size(&parsed).saturating_mul(UNIT).saturating_add(ANY))
}

/// The number of steps of a pattern with every repetition expanded.
fn size(pattern: &Hir) -> u64 {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(Class::Unicode(class)) => {
            // A character of several bytes takes several steps.
            let steps: u64 = if class.is_ascii() { 1 } else { 16 };
            steps + class.ranges().len() as u64
        }
        HirKind::Class(Class::Bytes(class)) => 1 + class.ranges().len() as u64,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            size(&repetition.sub).saturating_mul(times.into())
        }
        HirKind::Capture(capture) => size(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().fold(0, |sum: u64, part| sum.saturating_add(size(part)))
        }
    }
}

/// Common mistakes, with the names that Go has for them.
fn fault(pattern: &str) -> Option<(&'static str, &str)> {
    let bytes = pattern.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    let mut repeatable = false;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => {
                if at + 1 == bytes.len() {
                    return Some(("trailing backslash at end of expression", ""));
                }
                at += 1;
                repeatable = true;
            }
            b'[' => {
                let Some(end) = class_end(bytes, at) else {
                    return Some(("missing closing ]", &pattern[at..]));
                };
                at = end;
                repeatable = true;
            }
            b'(' => {
                depth += 1;
                repeatable = false;
                if bytes.get(at + 1) == Some(&b'?') {
                    at += 1;
                    if matches!(bytes.get(at + 1), Some(b'=' | b'!')) {
                        return Some(("invalid or unsupported Perl syntax", &pattern[at - 1..at + 2]));
                    }
                }
            }
            b')' => {
                if depth == 0 {
                    return Some(("unexpected )", pattern));
                }
                depth -= 1;
                repeatable = true;
            }
            b'*' | b'+' | b'?' => {
                if !repeatable {
                    return Some(("missing argument to repetition operator", &pattern[at..=at]));
                }
                if bytes.get(at + 1) == Some(&b'?') {
                    at += 1;
                }
                if matches!(bytes.get(at + 1), Some(b'*' | b'+' | b'?')) {
                    let start = if bytes[at] == b'?' && at > 0 && matches!(bytes[at - 1], b'*' | b'+' | b'?')
                    {
                        at - 1
                    } else {
                        at
                    };
                    return Some(("invalid nested repetition operator", &pattern[start..at + 2]));
                }
            }
            b'|' => repeatable = false,
            _ => repeatable = true,
        }
        at += 1;
    }
    (depth > 0).then_some(("missing closing )", pattern))
}

/// The end of the class that starts at `from`.
fn class_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 1;
    if bytes.get(at) == Some(&b'^') {
        at += 1;
    }
    let first = at;
    loop {
        match bytes.get(at)? {
            b']' if at > first => return Some(at),
            b'\\' => at += 1,
            b'[' if bytes.get(at + 1) == Some(&b':') => {
                let end = bytes[at..].windows(2).position(|pair| pair == b":]");
                at += end.map_or(0, |end| end + 1);
            }
            _ => {}
        }
        at += 1;
    }
}

/// Whether a counted repetition starts here. Go reads any other brace as a character.
fn is_repetition(rest: &str) -> bool {
    let Some((inner, _)) = rest[1..].split_once('}') else { return false };
    let (low, high) = inner.split_once(',').unwrap_or((inner, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    !low.is_empty() && digits(low) && digits(high)
}

fn rewrite(pattern: &str) -> String {
    let bytes = pattern.as_bytes();
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut class: Option<usize> = None;
    let mut at = 0;
    while let Some(character) = pattern[at..].chars().next() {
        if class == Some(at) {
            class = None;
            out.push(']');
            at += 1;
            continue;
        }
        let length = character.len_utf8();
        match character {
            '\\' => {
                let Some(next) = pattern[at + 1..].chars().next() else { break };
                match (next, class.is_some()) {
                    ('d', true) => out.push_str("0-9"),
                    ('w', true) => out.push_str("0-9A-Za-z_"),
                    ('s', true) => out.push_str("\\t\\n\\x0c\\r "),
                    ('d', false) => out.push_str("[0-9]"),
                    ('D', _) => out.push_str("[^0-9]"),
                    ('w', false) => out.push_str("[0-9A-Za-z_]"),
                    ('W', _) => out.push_str("[^0-9A-Za-z_]"),
                    ('s', false) => out.push_str("[\\t\\n\\x0c\\r ]"),
                    ('S', _) => out.push_str("[^\\t\\n\\x0c\\r ]"),
                    ('b', false) => out.push_str("(?-u:\\b)"),
                    ('Q', false) => {
                        let rest = &pattern[at + 2..];
                        let quoted = rest.split("\\E").next().unwrap_or(rest);
                        out.push_str(&regex::escape(quoted));
                        at += 2 + quoted.len() + if rest.len() > quoted.len() { 2 } else { 0 };
                        continue;
                    }
                    _ => {
                        out.push('\\');
                        out.push(next);
                    }
                }
                at += 1 + next.len_utf8();
                continue;
            }
            '[' if class.is_none() => {
                class = class_end(bytes, at);
                out.push('[');
                if bytes.get(at + 1) == Some(&b'^') {
                    out.push('^');
                    at += 1;
                }
                if bytes.get(at + 1) == Some(&b']') {
                    out.push_str("\\]");
                    at += 1;
                }
            }
            '[' if bytes.get(at + 1) == Some(&b':') => {
                let name = pattern[at..].find(":]").map_or(1, |end| end + 2);
                out.push_str(&pattern[at..at + name]);
                at += name;
                continue;
            }
            '[' | '&' | '~' if class.is_some() => {
                out.push('\\');
                out.push(character);
            }
            '-' if class.is_some() && bytes.get(at + 1) == Some(&b'-') => out.push_str("\\-"),
            '{' if class.is_none() && !is_repetition(&pattern[at..]) => out.push_str("\\{"),
            '}' if class.is_none() && !closes_repetition(&pattern[..at]) => out.push_str("\\}"),
            other => out.push(other),
        }
        at += length;
    }
    out
}

fn closes_repetition(before: &str) -> bool {
    before.rfind('{').is_some_and(|open| is_repetition(&format!("{}}}", &before[open..])))
}

fn arguments<'v>(values: &'v [Value<'_>]) -> Result<(&'v str, &'v str), CallError> {
    match (values[0].as_str(), values[1].as_str()) {
        (Some(text), Some(pattern)) => Ok((text, pattern)),
        _ => Err(CallError::NoOverload),
    }
}

pub(crate) fn matches<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (text, pattern) = arguments(values)?;
    compile(pattern).map(|regex| Value::Bool(regex.is_match(text))).map_err(CallError::text)
}

fn illegal(why: &str) -> CallError {
    CallError::text(format!("Illegal regex: {why}"))
}

pub(crate) fn find<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    apply("find", &compile(arguments(values)?.1).map_err(|why| illegal(&why))?, values)
}

pub(crate) fn find_all<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    apply("findAll", &compile(arguments(values)?.1).map_err(|why| illegal(&why))?, values)
}

/// Calls `matches`, `find` or `findAll` with a compiled pattern.
pub(crate) fn apply<'a>(function: &str, regex: &Regex, values: &[Value<'a>]) -> CallResult<'a> {
    let text = values[0].as_str().ok_or(CallError::NoOverload)?;
    let part = |from: usize, to: usize| match &values[0] {
        Value::String(Text::Borrowed(whole)) => Value::text(&whole[from..to]),
        _ => Value::string(&text[from..to]),
    };
    match function {
        "matches" => Ok(Value::Bool(regex.is_match(text))),
        "find" => {
            Ok(regex.find(text).map_or_else(|| Value::text(""), |found| part(found.start(), found.end())))
        }
        _ => {
            let limit = match values.get(2) {
                None => usize::MAX,
                Some(Value::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
                Some(_) => return Err(CallError::NoOverload),
            };
            Ok(Value::list(regex.find_iter(text).take(limit).map(|m| part(m.start(), m.end())).collect()))
        }
    }
}
