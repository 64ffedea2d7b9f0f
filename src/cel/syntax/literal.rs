//! Quotes and escapes of string and bytes literals.

/// The length of the escape at the start of `bytes`; `None` when the grammar has no such escape.
pub(super) fn escape_length(bytes: &[u8]) -> Option<usize> {
    let hex = |count: usize| {
        bytes.get(2..2 + count).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit)).map(|_| 2 + count)
    };
    match bytes.get(1)? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => Some(2),
        b'x' | b'X' => hex(2),
        b'u' => hex(4),
        b'U' => hex(8),
        b'0'..=b'3' => bytes.get(2..4).filter(|d| d.iter().all(|b| (b'0'..=b'7').contains(b))).map(|_| 4),
        _ => None,
    }
}

/// The bytes of a literal, which is given with its prefix and quotes. For strings they are UTF-8.
///
/// # Errors
/// For an escape that names no character, and for one that bytes literals do not allow.
pub(super) fn unescape(written: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    let text = if is_bytes { &written[1..] } else { written };
    let raw = text.starts_with(['r', 'R']);
    let text = if raw { &text[1..] } else { text };
    let quotes =
        if text.len() >= 6 && (text.starts_with("\"\"\"") || text.starts_with("'''")) { 3 } else { 1 };
    let text = text[quotes..text.len() - quotes].replace("\r\n", "\n").replace('\r', "\n");
    if raw || !text.contains('\\') {
        return Ok(text.into_bytes());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        let length = escape_length(rest.as_bytes()).ok_or("unable to unescape string")?;
        escape(&rest[1..length], is_bytes, &mut out)?;
        rest = &rest[length..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

fn escape(escape: &str, is_bytes: bool, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let first = escape.as_bytes()[0];
    let plain = match first {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        other => other,
    };
    let code = match first {
        b'x' | b'X' | b'u' | b'U' => u32::from_str_radix(&escape[1..], 16),
        b'0'..=b'3' => u32::from_str_radix(escape, 8),
        _ => {
            out.push(plain);
            return Ok(());
        }
    }
    .map_err(|_| "unable to unescape string")?;
    if is_bytes {
        if matches!(first, b'u' | b'U') {
            return Err("unable to unescape string");
        }
        out.push(u8::try_from(code).map_err(|_| "unable to unescape string")?);
        return Ok(());
    }
    let character = char::from_u32(code).ok_or("invalid unicode code point")?;
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(())
}
