//! Named formats of Kubernetes, such as labels, names and dates, and the messages of the API server for texts
//! that do not match.

use std::sync::LazyLock;

use regex::Regex;

use super::opaque::Opaque;
use super::url::Url;
use super::{CallError, CallResult, Implementation, regexp};
use crate::value::{Timestamp, Value};

/// A named format.
#[derive(Debug)]
pub struct NamedFormat {
    /// Its name in Kubernetes.
    pub name: &'static str,
    function: &'static str,
    check: fn(&str) -> Vec<String>,
    /// The size of its pattern, for costs.
    pub(crate) pattern: u64,
}

impl PartialEq for NamedFormat {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function
    }
}

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const OLD_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

/// A pattern that the whole text must match.
struct NamePattern {
    source: &'static str,
    rule: &'static str,
    examples: &'static [&'static str],
    longest: usize,
    regex: LazyLock<Option<Regex>>,
}

macro_rules! pattern {
    ($name:ident, $source:expr, $longest:expr, $rule:expr, $examples:expr) => {
        static $name: NamePattern = NamePattern {
            source: $source,
            rule: $rule,
            examples: &$examples,
            longest: $longest,
            regex: LazyLock::new(|| regexp::compile(&format!("^{}$", $source)).ok()),
        };
    };
}

pattern!(
    DNS_LABEL,
    LABEL,
    63,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
    ["my-name", "123-abc"]
);
pattern!(
    DNS_SUBDOMAIN,
    SUBDOMAIN,
    253,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    ["example.com"]
);
pattern!(
    DNS_OLD_LABEL,
    OLD_LABEL,
    63,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
    ["my-name", "abc-123"]
);
pattern!(
    KEY_NAME,
    KEY,
    63,
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    ["MyName", "my.name", "123-abc"]
);
pattern!(
    VALUE,
    LABEL_VALUE,
    63,
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    ["MyValue", "my_value", "12345"]
);
pattern!(UUID, "(?i:[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12})", usize::MAX, "", [""]);

impl NamePattern {
    fn is_match(&self, text: &str) -> bool {
        self.regex.as_ref().is_some_and(|regex| regex.is_match(text))
    }

    fn refusal(&self) -> String {
        let examples: Vec<String> = self.examples.iter().map(|example| format!("'{example}', ")).collect();
        format!(
            "{} (e.g. {}regex used for validation is '{}')",
            self.rule,
            examples.join(" or "),
            self.source
        )
    }

    fn check(&self, text: &str, unit: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        if text.len() > self.longest {
            wrong.push(too_long(self.longest, unit));
        }
        if !self.is_match(text) {
            wrong.push(self.refusal());
        }
        wrong
    }

    fn check_prefix(&self, text: &str) -> Vec<String> {
        match text.strip_suffix('-') {
            Some(rest) if !rest.is_empty() && rest.is_char_boundary(rest.len() - 1) => {
                self.check(&format!("{}a", &rest[..rest.len() - 1]), CHARACTERS)
            }
            _ => self.check(text, CHARACTERS),
        }
    }
}

// The API server has two copies of these rules, with different words for the unit.
const CHARACTERS: &str = "characters";
const BYTES: &str = "bytes";

fn too_long(longest: usize, unit: &str) -> String {
    format!("must be no more than {longest} {unit}")
}

fn qualified_name(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (prefix, name) = match parts.as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            let rule = KEY_NAME.refusal();
            let hint = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {rule} {hint}")];
        }
    };
    let mut wrong = Vec::new();
    if prefix == Some("") {
        wrong.push("prefix part must be non-empty".to_owned());
    } else if let Some(prefix) = prefix {
        wrong.extend(DNS_SUBDOMAIN.check(prefix, BYTES).into_iter().map(|why| format!("prefix part {why}")));
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > KEY_NAME.longest {
        wrong.push(format!("name part {}", too_long(KEY_NAME.longest, BYTES)));
    }
    if !KEY_NAME.is_match(name) {
        wrong.push(format!("name part {}", KEY_NAME.refusal()));
    }
    wrong
}

fn require(fine: bool, why: &str) -> Vec<String> {
    if fine { Vec::new() } else { vec![why.to_owned()] }
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_ok()
}

/// Whether a text is a date and time. `T` may be upper or lower case, as in the strict format of the API
/// server.
fn is_moment(text: &str) -> bool {
    Timestamp::parse(&text.to_ascii_uppercase()).is_ok()
}

macro_rules! formats {
    ($($function:literal, $name:literal, $pattern:literal, $check:expr;)*) => {
        static FORMATS: &[NamedFormat] = &[
            $(NamedFormat { name: $name, function: $function, check: $check, pattern: $pattern }),*
        ];
    };
}

formats! {
    "format.dns1123Label", "DNS1123Label", 30, |text| DNS_LABEL.check(text, CHARACTERS);
    "format.dns1123Subdomain", "DNS1123Subdomain", 60, |text| DNS_SUBDOMAIN.check(text, CHARACTERS);
    "format.dns1035Label", "DNS1035Label", 30, |text| DNS_OLD_LABEL.check(text, CHARACTERS);
    "format.qualifiedName", "QualifiedName", 60, qualified_name;
    "format.dns1123LabelPrefix", "DNS1123LabelPrefix", 30, |text| DNS_LABEL.check_prefix(text);
    "format.dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60, |text| DNS_SUBDOMAIN.check_prefix(text);
    "format.dns1035LabelPrefix", "DNS1035LabelPrefix", 30, |text| DNS_OLD_LABEL.check_prefix(text);
    "format.labelValue", "LabelValue", 40, |text| VALUE.check(text, BYTES);
    "format.uri", "URI", 1103, |text| Url::parse(text).err().into_iter().collect();
    "format.uuid", "uuid", 70, |text| require(UUID.is_match(text), "does not match the UUID format");
    "format.byte", "byte", 84, |text| require(is_base64(text), "invalid base64");
    "format.date", "date", 71, |text| require(is_date(text), "invalid date");
    "format.datetime", "datetime", 71, |text| require(is_moment(text), "invalid datetime");
}

fn value<'a>(function: &str) -> Option<Value<'a>> {
    let found = FORMATS.iter().find(|format| format.function == function)?;
    Some(Value::opaque(Opaque::Format(found)))
}

/// The function without arguments that returns a named format.
pub(crate) fn constant(name: &str) -> Option<Implementation> {
    macro_rules! constants {
        ($($function:literal)*) => {
            Some(match name {
                $($function => |_| value($function).ok_or(CallError::NoOverload),)*
                _ => return None,
            })
        };
    }
    constants!(
        "format.dns1123Label" "format.dns1123Subdomain" "format.dns1035Label" "format.qualifiedName"
        "format.dns1123LabelPrefix" "format.dns1123SubdomainPrefix" "format.dns1035LabelPrefix" "format.labelValue"
        "format.uri" "format.uuid" "format.byte" "format.date" "format.datetime"
    )
}

pub(crate) fn named<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let name = values[0].as_str().ok_or(CallError::NoOverload)?;
    Ok(value(&format!("format.{name}")).map_or(Value::Optional(None), Value::some))
}

pub(crate) fn validate<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (Value::Opaque(opaque), Some(text)) = (&values[0], values[1].as_str()) else {
        return Err(CallError::NoOverload);
    };
    let Opaque::Format(format) = opaque.as_ref() else { return Err(CallError::NoOverload) };
    let wrong = (format.check)(text);
    if wrong.is_empty() {
        return Ok(Value::Optional(None));
    }
    Ok(Value::some(Value::list(wrong.into_iter().map(Value::string).collect())))
}
