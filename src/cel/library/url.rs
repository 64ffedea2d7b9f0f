//! URLs, parsed as `net/url` of Go does. `url()` accepts an absolute URI or an absolute path.

use std::collections::BTreeMap;
use std::fmt;

use super::opaque::Opaque;
use super::{CallError, CallResult};
use crate::value::{Key, Text, Value, quote};

/// The parts of a URL, as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Url {
    written: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Url {
    /// Its length in bytes.
    pub(super) fn length(&self) -> usize {
        self.written.len()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

/// Splits off the scheme: a letter, then letters, digits and `+-.`.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn bad_escape(text: &str) -> Option<&str> {
    text.match_indices('%').map(|(at, _)| &text[at..]).find_map(|rest| {
        let fine = rest.as_bytes().get(1..3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let end = rest.char_indices().nth(3).map_or(rest.len(), |(at, _)| at);
        (!fine).then(|| &rest[..end])
    })
}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    /// The messages of `url.ParseRequestURI` of Go.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = |why: String| Err(format!("parse {}: {why}", quote(text)));
        if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            return refuse("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() {
            return refuse("empty url".to_owned());
        }
        let (scheme, rest) = match scheme(text) {
            Ok(found) => found,
            Err(why) => return refuse(why),
        };
        if scheme.is_empty() && !rest.starts_with('/') && rest != "*" {
            return refuse("invalid URI for request".to_owned());
        }
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !rest.starts_with('/') && !scheme.is_empty() {
            return Ok(Self {
                written: text.to_owned(),
                scheme: scheme.to_ascii_lowercase(),
                host: String::new(),
                path: String::new(),
                query: query.to_owned(),
            });
        }
        let (authority, path) =
            match rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///")) {
                Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
                None => ("", rest),
            };
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        if let Some(escape) = bad_escape(host).or_else(|| bad_escape(path)) {
            return refuse(format!("invalid URL escape {}", quote(escape)));
        }
        let port = host.rsplit_once(']').map_or(host, |(_, after)| after);
        if let Some(at) = port.find(':') {
            let port = &port[at..];
            if !port[1..].bytes().all(|b| b.is_ascii_digit()) {
                return refuse(format!("invalid port {} after host", quote(port)));
            }
        }
        if let Some(wrong) = host.find([' ', '"', '<', '>', '\\', '^', '`', '{', '|', '}']) {
            let character = &host[wrong..=wrong];
            return refuse(format!("invalid character {} in host name", quote(character)));
        }
        Ok(Self {
            written: text.to_owned(),
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path: escaped(path),
            query: query.to_owned(),
        })
    }

    fn hostname(&self) -> &str {
        if let Some(inner) = self.host.strip_prefix('[') {
            return inner.split(']').next().unwrap_or_default();
        }
        self.host.split_once(':').map_or(&self.host, |(name, _)| name)
    }

    fn port(&self) -> &str {
        let after = self.host.rsplit_once(']').map_or(self.host.as_str(), |(_, after)| after);
        after.split_once(':').map_or("", |(_, port)| port)
    }
}

/// A path with special characters as `%XX`. Existing escapes stay.
fn escaped(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*%[]".contains(&byte);
        if plain {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Decodes `%XX` and `+`; `None` for an invalid escape.
fn unescaped(text: &str) -> Option<String> {
    if bad_escape(text).is_some() {
        return None;
    }
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            other => out.push(other),
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

fn argument<'v>(values: &'v [Value<'_>]) -> Result<&'v Url, CallError> {
    match values.first() {
        Some(Value::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Url(url) => Ok(url),
            _ => Err(CallError::NoOverload),
        },
        _ => Err(CallError::NoOverload),
    }
}

pub(crate) fn url<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let text = values[0].as_str().ok_or(CallError::NoOverload)?;
    let refuse = |why| CallError::text(format!("URL parse error during conversion from string: {why}"));
    Url::parse(text).map(|url| Value::opaque(Opaque::Url(url))).map_err(refuse)
}

pub(crate) fn is_url<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(Url::parse(values[0].as_str().ok_or(CallError::NoOverload)?).is_ok()))
}

pub(crate) fn scheme_of<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::string(argument(values)?.scheme.as_str()))
}

pub(crate) fn host<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::string(argument(values)?.host.as_str()))
}

pub(crate) fn hostname<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::string(argument(values)?.hostname()))
}

pub(crate) fn port<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::string(argument(values)?.port()))
}

pub(crate) fn escaped_path<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::string(argument(values)?.path.as_str()))
}

pub(crate) fn query<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let mut found: BTreeMap<Key<'a>, Vec<Value<'a>>> = BTreeMap::new();
    for pair in argument(values)?.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(name), Some(value)) = (unescaped(name), unescaped(value)) {
            found.entry(Key::String(Text::Owned(name.into()))).or_default().push(Value::string(value));
        }
    }
    Ok(Value::map(found.into_iter().map(|(name, values)| (name, Value::list(values))).collect()))
}
