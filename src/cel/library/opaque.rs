//! Opaque values: quantities, IP addresses, URLs, semantic versions and named formats.

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;

use portcullis_text::Quantity;

use super::named_formats::NamedFormat;
use super::semver::SemanticVersion;
use super::url::Url;
use super::{CallError, CallResult};
use crate::types::Type;
use crate::value::Value;

/// A value of a Kubernetes type whose fields CEL does not see.
#[derive(Clone, Debug, PartialEq)]
pub enum Opaque {
    /// `kubernetes.Quantity`
    Quantity(Quantity),
    /// `kubernetes.URL`
    Url(Url),
    /// `net.IP`
    Ip(IpAddr),
    /// `net.CIDR`: address and prefix length.
    Cidr(IpAddr, u8),
    /// `kubernetes.Semver`
    Semver(SemanticVersion),
    /// `kubernetes.NamedFormat`
    Format(&'static NamedFormat),
}

impl Opaque {
    /// The type of the value.
    #[must_use]
    pub fn kind(&self) -> Type {
        match self {
            Self::Quantity(_) => Type::Struct("kubernetes.Quantity".into()),
            Self::Url(_) => Type::Struct("kubernetes.URL".into()),
            Self::Ip(_) => Type::Opaque("net.IP".into(), [].into()),
            Self::Cidr(..) => Type::Opaque("net.CIDR".into(), [].into()),
            Self::Semver(_) => Type::Struct("kubernetes.Semver".into()),
            Self::Format(_) => Type::Struct("kubernetes.NamedFormat".into()),
        }
    }

    /// The size for cost computation.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Self::Ip(IpAddr::V4(_)) => 4,
            Self::Ip(IpAddr::V6(_)) => 16,
            Self::Cidr(_, prefix) => u64::from(*prefix).div_ceil(8),
            _ => 1,
        }
    }

    /// The length of the text it was made from, for types of unbounded length.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::Url(url) => url.length(),
            Self::Semver(version) => version.length(),
            _ => 0,
        }
    }

    /// Whether two values are equal: quantities by amount, versions without build metadata.
    #[must_use]
    pub fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Semver(a), Self::Semver(b)) => a.compare(b) == Ordering::Equal,
            (a, b) => a == b,
        }
    }
}

impl fmt::Display for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity(quantity) => write!(f, "{quantity}"),
            Self::Url(url) => write!(f, "{url}"),
            Self::Ip(address) => write!(f, "{address}"),
            Self::Cidr(address, prefix) => write!(f, "{address}/{prefix}"),
            Self::Semver(version) => write!(f, "{version}"),
            Self::Format(format) => f.write_str(format.name),
        }
    }
}

fn order(values: &[Value<'_>]) -> Result<Ordering, CallError> {
    let (Value::Opaque(first), Value::Opaque(second)) = (&values[0], &values[1]) else {
        return Err(CallError::NoOverload);
    };
    match (first.as_ref(), second.as_ref()) {
        (Opaque::Quantity(a), Opaque::Quantity(b)) => Ok(a.cmp(b)),
        (Opaque::Semver(a), Opaque::Semver(b)) => Ok(a.compare(b)),
        _ => Err(CallError::NoOverload),
    }
}

pub(crate) fn is_greater<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(order(values)?.is_gt()))
}

pub(crate) fn is_less<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(order(values)?.is_lt()))
}

pub(crate) fn compare_to<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Int(order(values)? as i64))
}
