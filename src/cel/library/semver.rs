//! Semantic versions. The normalised form also accepts a leading `v`, leading zeros and missing parts.

use std::cmp::Ordering;
use std::fmt;

use super::opaque::Opaque;
use super::{CallError, CallResult};
use crate::value::Value;

/// A semantic version.
#[derive(Clone, Debug, PartialEq)]
pub struct SemanticVersion {
    numbers: [u64; 3],
    before: Vec<String>,
    build: Vec<String>,
}

impl SemanticVersion {
    /// Its approximate length in bytes.
    pub(super) fn length(&self) -> usize {
        self.before.iter().chain(&self.build).map(|part| 1 + part.len()).sum()
    }
}

fn identifiers(text: &str) -> Vec<String> {
    text.split('.').map(str::to_owned).collect()
}

fn number(text: &str, part: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {part} number \"{text}\""));
    }
    if text.len() > 1 && text.starts_with('0') {
        let capital = part[..1].to_uppercase() + &part[1..];
        return Err(format!("{capital} number must not contain leading zeroes \"{text}\""));
    }
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing \"{text}\": value out of range"))
}

fn is_identifier(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

impl SemanticVersion {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let &[major, minor, rest] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let major = number(major, "major")?;
        let minor = number(minor, "minor")?;
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, before) =
            rest.split_once('-').map_or((rest, None), |(patch, before)| (patch, Some(before)));
        let patch = number(patch, "patch")?;
        let before = before.map(identifiers).unwrap_or_default();
        for identifier in &before {
            if identifier.is_empty() {
                return Err("Prerelease is empty".to_owned());
            }
            if identifier.bytes().all(|b| b.is_ascii_digit()) {
                if identifier.len() > 1 && identifier.starts_with('0') {
                    return Err(format!(
                        "Numeric PreRelease version must not contain leading zeroes \"{identifier}\""
                    ));
                }
            } else if !is_identifier(identifier) {
                return Err(format!("Invalid character(s) found in prerelease \"{identifier}\""));
            }
        }
        let build = build.map(identifiers).unwrap_or_default();
        for identifier in &build {
            if identifier.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_identifier(identifier) {
                return Err(format!("Invalid character(s) found in build meta data \"{identifier}\""));
            }
        }
        Ok(Self { numbers: [major, minor, patch], before, build })
    }

    fn normalised(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text
            .splitn(3, '.')
            .map(|part| {
                let bare = part.trim_start_matches('0');
                if part.len() > 1 && !bare.starts_with(|c: char| c.is_ascii_digit()) {
                    format!("0{bare}")
                } else if part.len() > 1 {
                    bare.to_owned()
                } else {
                    part.to_owned()
                }
            })
            .collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.before.is_empty(), other.before.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => {
                    let pairs = self.before.iter().zip(&other.before);
                    let differing = pairs.map(|(a, b)| compare_identifiers(a, b)).find(|order| order.is_ne());
                    differing.unwrap_or_else(|| self.before.len().cmp(&other.before.len()))
                }
            }
        })
    }
}

fn compare_identifiers(first: &str, second: &str) -> Ordering {
    match (first.parse::<u64>(), second.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => first.cmp(second),
    }
}

impl fmt::Display for SemanticVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if !self.before.is_empty() {
            write!(f, "-{}", self.before.join("."))?;
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build.join("."))?;
        }
        Ok(())
    }
}

fn read(values: &[Value<'_>]) -> Result<Result<SemanticVersion, String>, CallError> {
    let text = values[0].as_str().ok_or(CallError::NoOverload)?;
    Ok(match values.get(1) {
        Some(Value::Bool(true)) => SemanticVersion::normalised(text),
        _ => SemanticVersion::parse(text),
    })
}

pub(crate) fn semver<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    read(values)?.map(|version| Value::opaque(Opaque::Semver(version))).map_err(CallError::text)
}

pub(crate) fn is_semver<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(read(values)?.is_ok()))
}

fn version_part<'a>(values: &[Value<'a>], index: usize) -> CallResult<'a> {
    match &values[0] {
        Value::Opaque(opaque) => match opaque.as_ref() {
            Opaque::Semver(version) => {
                Ok(Value::Int(i64::try_from(version.numbers[index]).unwrap_or(i64::MAX)))
            }
            _ => Err(CallError::NoOverload),
        },
        _ => Err(CallError::NoOverload),
    }
}

pub(crate) fn major<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    version_part(values, 0)
}

pub(crate) fn minor<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    version_part(values, 1)
}

pub(crate) fn patch<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    version_part(values, 2)
}
