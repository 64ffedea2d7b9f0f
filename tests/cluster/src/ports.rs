//! Free ports of the loopback address.
//!
//! They are below the range that the kernel uses for outgoing connections, so that a restarted part finds its
//! port free. Another process may still take a port before the part listens on it. The caller then tries
//! again with another port.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

/// Below 32768, the first port that Linux uses for outgoing connections.
const FIRST_PORT: u16 = 20_000;
const PORT_COUNT: u16 = 12_000;

/// The ports that this process has returned. It returns none twice, even if no process listens there yet.
static RETURNED_PORTS: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port on which no process listens now.
///
/// # Errors
/// When none is found in thousands of tries.
pub fn free() -> Result<u16> {
    let mut given = RETURNED_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let start = nanos.wrapping_add(std::process::id().wrapping_mul(7919)) % u32::from(PORT_COUNT);
    for step in 0..u32::from(PORT_COUNT) {
        let Ok(offset) = u16::try_from((start + step) % u32::from(PORT_COUNT)) else { continue };
        let port = FIRST_PORT + offset;
        if !given.contains(&port) && TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok()
        {
            given.insert(port);
            return Ok(port);
        }
    }
    bail!("no free port between {FIRST_PORT} and {}", FIRST_PORT + PORT_COUNT)
}
