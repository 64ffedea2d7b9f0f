//! Fail points: places between two effects where a test kills or stops this process. They exist only with the
//! feature `failpoints`.
//!
//! `PORTCULLIS_FAILPOINT="after:WriteGang:1=kill,before:Lift:3=stop"` sends SIGKILL after the response to the
//! first write of a gang, and SIGSTOP before the third lift is sent. `PORTCULLIS_FAILPOINT=@FILE` reads the
//! same from a file at every fail point, so a test can set fail points while the process runs. A changed file
//! resets all counts.

#[cfg(feature = "failpoints")]
use std::sync::Mutex;

#[cfg(feature = "failpoints")]
use rustix::process::{Signal, getpid, kill_process};

/// Position of a fail point relative to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The request has not been sent.
    Before,
    /// The response has arrived, and the engine has not read it.
    After,
}

/// Marks one side of a request of the engine. An armed fail point of the action kills or pauses the process.
#[cfg(not(feature = "failpoints"))]
pub(super) fn reached(_side: Side, _action: &str) {}

/// Marks one side of a request of the engine. An armed fail point of the action kills or pauses the process.
#[cfg(feature = "failpoints")]
pub(super) fn reached(side: Side, action: &str) {
    static ARMED: Mutex<(String, Vec<FailPoint>)> = Mutex::new((String::new(), Vec::new()));
    let mut armed = ARMED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let text = configured_points();
    if text != armed.0 {
        *armed = (text.clone(), parse(&text));
    }
    for point in armed.1.iter_mut().filter(|point| point.side == side && point.action == action) {
        if point.remaining > 0 {
            point.remaining -= 1;
            if point.remaining == 0 {
                tracing::warn!(?side, action, signal = ?point.signal, "fail point reached");
                send_to_this_process(point.signal);
            }
        }
    }
}

/// Sends a signal to this process, and returns after the kernel has delivered it. Another thread may receive
/// SIGSTOP, so on a busy machine the calling thread would otherwise run on for a while.
#[cfg(feature = "failpoints")]
fn send_to_this_process(signal: Signal) {
    if let Err(error) = kill_process(getpid(), signal) {
        panic!("a fail point cannot send {signal:?} to this process: {error}");
    }
    // When a thread takes SIGSTOP off the queue, the kernel marks all threads as stopping in the same step.
    // This thread then stops at the end of its next system call.
    while is_pending(signal) {
        std::thread::yield_now();
    }
}

/// Whether the signal is in the queue of this process: bit N - 1 of `ShdPnd` in `/proc/self/status`.
#[cfg(feature = "failpoints")]
fn is_pending(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux provides /proc/self/status");
    let pending = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("ShdPnd:")?.trim(), 16).ok())
        .expect("/proc/self/status has the line ShdPnd");
    (pending >> (signal.as_raw() - 1)) & 1 == 1
}

#[cfg(feature = "failpoints")]
fn configured_points() -> String {
    let text = std::env::var("PORTCULLIS_FAILPOINT").unwrap_or_default();
    match text.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).unwrap_or_default(),
        None => text,
    }
}

#[cfg(feature = "failpoints")]
struct FailPoint {
    side: Side,
    action: String,
    remaining: u32,
    signal: Signal,
}

#[cfg(feature = "failpoints")]
fn parse(text: &str) -> Vec<FailPoint> {
    let point = |text: &str| {
        let (place, signal) = text.trim().split_once('=')?;
        let mut place = place.split(':');
        let side = match place.next()? {
            "before" => Side::Before,
            "after" => Side::After,
            _ => return None,
        };
        let action = place.next()?.to_owned();
        let remaining = place.next().map_or(Some(1), |count| count.parse().ok())?;
        let signal = match signal {
            "kill" => Signal::KILL,
            "stop" => Signal::STOP,
            _ => return None,
        };
        Some(FailPoint { side, action, remaining, signal })
    };
    let points = text.split(',').filter(|text| !text.trim().is_empty());
    points
        .map(|text| {
            point(text).unwrap_or_else(|| {
                panic!("PORTCULLIS_FAILPOINT: {text:?} is not SIDE:ACTION:COUNT=kill|stop")
            })
        })
        .collect()
}
