//! Places where a test kills or stops this very process, between two effects. Compiled under the feature
//! `failpoints` alone; in the ordinary program there is nothing to set off.
//!
//! `PORTCULLIS_FAILPOINT="after:WriteGang:1=kill,before:Lift:3=stop"`: after the first write of a gang has
//! been answered, kill -9; before the third lift is sent, SIGSTOP. `PORTCULLIS_FAILPOINT=@FILE` has the same
//! in a file that is looked at every time, so that a process can be set up while it runs; what is new in it
//! is counted from then on.

#[cfg(feature = "failpoints")]
use std::sync::Mutex;

/// On which side of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// It has not been sent.
    Before,
    /// It has been answered, and the engine does not know it yet.
    After,
}

/// Called around every request of the engine with the name of its action.
#[cfg(not(feature = "failpoints"))]
pub(super) fn reached(_side: Side, _action: &str) {}

/// Called around every request of the engine with the name of its action.
#[cfg(feature = "failpoints")]
pub(super) fn reached(side: Side, action: &str) {
    static ARMED: Mutex<(String, Vec<Point>)> = Mutex::new((String::new(), Vec::new()));
    let mut armed = ARMED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let text = wanted();
    if text != armed.0 {
        *armed = (text.clone(), parse(&text));
    }
    for point in armed.1.iter_mut().filter(|point| point.side == side && point.action == action) {
        if point.left > 0 {
            point.left -= 1;
            if point.left == 0 {
                tracing::warn!(?side, action, signal = point.signal, "a fail point is reached");
                let process = std::process::id().to_string();
                let arguments = ["-c", STRIKE, "strike", point.signal, &process];
                let _ = std::process::Command::new("sh").args(arguments).status();
            }
        }
    }
}

/// Signals need a system call, and unsafe code is forbidden here: a shell does it. It comes back when the
/// process is seen to have stopped: on a busy machine that takes a while, and until then it would go on.
#[cfg(feature = "failpoints")]
const STRIKE: &str = r#"
kill "$1" "$2"
tries=500
while test $tries -gt 0 && read -r _ _ state _ <"/proc/$2/stat" && test "$state" != T; do
  tries=$((tries - 1))
  sleep 0.01
done
"#;

#[cfg(feature = "failpoints")]
fn wanted() -> String {
    let text = std::env::var("PORTCULLIS_FAILPOINT").unwrap_or_default();
    match text.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).unwrap_or_default(),
        None => text,
    }
}

#[cfg(feature = "failpoints")]
struct Point {
    side: Side,
    action: String,
    left: u32,
    signal: &'static str,
}

#[cfg(feature = "failpoints")]
fn parse(text: &str) -> Vec<Point> {
    let point = |text: &str| {
        let (place, signal) = text.trim().split_once('=')?;
        let mut place = place.split(':');
        let side = match place.next()? {
            "before" => Side::Before,
            "after" => Side::After,
            _ => return None,
        };
        let action = place.next()?.to_owned();
        let left = place.next().map_or(Some(1), |count| count.parse().ok())?;
        let signal = match signal {
            "kill" => "-KILL",
            "stop" => "-STOP",
            _ => return None,
        };
        Some(Point { side, action, left, signal })
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
