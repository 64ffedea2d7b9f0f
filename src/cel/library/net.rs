//! IP addresses and CIDR networks. All functions are pure computations: nothing is resolved.

use std::net::{IpAddr, Ipv6Addr};

use super::opaque::Opaque;
use super::{CallError, CallResult};
use crate::value::{Value, quote};

fn text<'v>(values: &'v [Value<'_>], index: usize) -> Result<&'v str, CallError> {
    values.get(index).and_then(Value::as_str).ok_or(CallError::NoOverload)
}

fn address(values: &[Value<'_>]) -> Result<IpAddr, CallError> {
    match values.first() {
        Some(Value::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Ip(address) => Ok(*address),
            _ => Err(CallError::NoOverload),
        },
        _ => Err(CallError::NoOverload),
    }
}

fn network(values: &[Value<'_>], index: usize) -> Result<(IpAddr, u8), CallError> {
    match values.get(index) {
        Some(Value::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Cidr(address, prefix) => Ok((*address, *prefix)),
            _ => Err(CallError::NoOverload),
        },
        _ => Err(CallError::NoOverload),
    }
}

/// The reason why Go's parser refuses an address, for common mistakes.
fn reason(raw: &str) -> String {
    let quoted = quote(raw);
    let why = if raw.is_empty() {
        "unable to parse IP".to_owned()
    } else if raw.contains(':') {
        let after = raw.find("::").map_or("", |at| &raw[at + 2..]);
        if let Some(at) = after.find("::") {
            return format!("ParseAddr({quoted}): multiple :: in address (at {})", quote(&after[at + 1..]));
        }
        return format!("ParseAddr({quoted}): {}", reason_of_six(raw));
    } else if raw.contains('.') {
        let parts: Vec<&str> = raw.split('.').collect();
        match raw.find(|c: char| !c.is_ascii_digit() && c != '.') {
            Some(at) => {
                return format!("ParseAddr({quoted}): unexpected character (at {})", quote(&raw[at..]));
            }
            None if parts.iter().any(|part| part.is_empty()) => {
                let doubled = raw.find("..").map_or(raw.len().saturating_sub(1), |at| at + 1);
                let at = if raw.starts_with('.') { 0 } else { doubled };
                return format!(
                    "ParseAddr({quoted}): IPv4 field must have at least one digit (at {})",
                    quote(&raw[at..])
                );
            }
            None if parts.iter().any(|part| part.len() > 1 && part.starts_with('0')) => {
                "IPv4 field has octet with leading zero".to_owned()
            }
            None if parts.iter().any(|part| part.parse::<u8>().is_err()) => {
                "IPv4 field has value >255".to_owned()
            }
            None if parts.len() < 4 => "IPv4 address too short".to_owned(),
            None => "IPv4 address too long".to_owned(),
        }
    } else {
        "unable to parse IP".to_owned()
    };
    format!("ParseAddr({quoted}): {why}")
}

fn reason_of_six(raw: &str) -> &'static str {
    match raw.matches(':').count() {
        0..7 if !raw.contains("::") => "address string too short",
        _ => "unable to parse IP",
    }
}

fn parse_address(raw: &str) -> Result<IpAddr, String> {
    if raw.contains(':') && raw.contains('%') {
        return Err(format!("IP address {} with zone value is not allowed", quote(raw)));
    }
    match raw.parse::<IpAddr>() {
        Ok(IpAddr::V6(six)) if is_mapped(six) => {
            Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(raw)))
        }
        Ok(address) => Ok(address),
        Err(_) => Err(format!(
            "IP Address {} parse error during conversion from string: {}",
            quote(raw),
            reason(raw)
        )),
    }
}

fn is_mapped(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}

fn parse_network(raw: &str) -> Result<(IpAddr, u8), String> {
    let refuse = |why: String| {
        Err(format!(
            "network address parse error during conversion from string: network address parse error during conversion from string: {why}"
        ))
    };
    let quoted = quote(raw);
    let Some((address, prefix)) = raw.rsplit_once('/') else {
        return refuse(format!("netip.ParsePrefix({quoted}): no '/'"));
    };
    let address = match address.parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) => return refuse(format!("netip.ParsePrefix({quoted}): {}", reason(address))),
    };
    let canonical = prefix.len() == 1 || !prefix.starts_with(['0', '+']);
    let Some(length) =
        prefix.parse::<u8>().ok().filter(|_| canonical && prefix.bytes().all(|b| b.is_ascii_digit()))
    else {
        let digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit()) && canonical;
        return refuse(if digits {
            format!("netip.ParsePrefix({quoted}): prefix length out of range")
        } else {
            format!("netip.ParsePrefix({quoted}): bad bits after slash: {}", quote(prefix))
        });
    };
    if length > bits(address) {
        return refuse(format!("netip.ParsePrefix({quoted}): prefix length out of range"));
    }
    match address {
        IpAddr::V6(six) if is_mapped(six) => Err(format!(
            "network address parse error during conversion from string: IPv4-mapped IPv6 address {quoted} is not allowed"
        )),
        address => Ok((address, length)),
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first `prefix` bits of an address.
fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(four) => {
            let kept = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(four) & kept).into())
        }
        IpAddr::V6(six) => {
            let kept = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(six) & kept).into())
        }
    }
}

fn contains(network: (IpAddr, u8), address: IpAddr) -> bool {
    network.0.is_ipv4() == address.is_ipv4() && mask(address, network.1) == mask(network.0, network.1)
}

pub(crate) fn ip<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    if let Ok((address, _)) = network(values, 0) {
        return Ok(Value::opaque(Opaque::Ip(address)));
    }
    parse_address(text(values, 0)?).map(|address| Value::opaque(Opaque::Ip(address))).map_err(CallError::text)
}

pub(crate) fn is_ip<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(parse_address(text(values, 0)?).is_ok()))
}

pub(crate) fn is_canonical<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let raw = text(values, 0)?;
    parse_address(raw).map(|address| Value::Bool(address.to_string() == raw)).map_err(CallError::text)
}

pub(crate) fn family<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Int(if address(values)?.is_ipv4() { 4 } else { 6 }))
}

pub(crate) fn is_unspecified<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(address(values)?.is_unspecified()))
}

pub(crate) fn is_loopback<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(address(values)?.is_loopback()))
}

fn link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

pub(crate) fn is_link_local_unicast<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(link_local_unicast(address(values)?)))
}

pub(crate) fn is_link_local_multicast<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(match address(values)? {
        IpAddr::V4(four) => four.octets()[..3] == [224, 0, 0],
        IpAddr::V6(six) => six.segments()[0] & 0xff0f == 0xff02,
    }))
}

pub(crate) fn is_global_unicast<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let address = address(values)?;
    let broadcast = matches!(address, IpAddr::V4(four) if four.is_broadcast());
    let special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    Ok(Value::Bool(!(special || broadcast || link_local_unicast(address))))
}

pub(crate) fn cidr<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (address, prefix) = parse_network(text(values, 0)?).map_err(CallError::text)?;
    Ok(Value::opaque(Opaque::Cidr(address, prefix)))
}

pub(crate) fn is_cidr<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Bool(parse_network(text(values, 0)?).is_ok()))
}

pub(crate) fn contains_ip<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let network = network(values, 0)?;
    let wanted = match values.get(1).and_then(Value::as_str) {
        // The API server loses the parse error here.
        Some(raw) => parse_address(raw).map_err(|_| CallError::text("no such overload"))?,
        None => address(&values[1..])?,
    };
    Ok(Value::Bool(contains(network, wanted)))
}

pub(crate) fn contains_cidr<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let outer = network(values, 0)?;
    let inner = match values.get(1).and_then(Value::as_str) {
        Some(raw) => parse_network(raw).map_err(CallError::text)?,
        None => network(values, 1)?,
    };
    Ok(Value::Bool(outer.1 <= inner.1 && contains(outer, inner.0)))
}

pub(crate) fn prefix_length<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    Ok(Value::Int(network(values, 0)?.1.into()))
}

pub(crate) fn masked<'a>(values: &[Value<'a>]) -> CallResult<'a> {
    let (address, prefix) = network(values, 0)?;
    Ok(Value::opaque(Opaque::Cidr(mask(address, prefix), prefix)))
}
