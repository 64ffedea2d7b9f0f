//! Low-priority threads for work that no request waits for.
//!
//! Invariant: a thread that runs for the life of the process survives a panic of its work and logs it.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Starts a thread with the lowest CPU priority.
pub(crate) fn spawn_background(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work = || {
        // On Linux, nice() changes this thread only. If the system forbids it, the thread runs with normal
        // priority.
        let _ = rustix::process::nice(19);
        work();
    };
    thread::Builder::new().name(name.to_owned()).spawn(work).map(|_| ())
}

/// Starts such a thread, which runs `iteration` until it breaks. Each iteration begins by waiting for
/// something.
pub(crate) fn spawn_background_loop(
    name: &'static str,
    iteration: impl FnMut() -> ControlFlow<()> + Send + 'static,
) -> io::Result<()> {
    let log_panic = move |panic: &str| {
        tracing::error!(
            thread = name,
            panic,
            "background thread panicked and continues: this is a bug in Portcullis, please report it"
        );
    };
    spawn_background(name, move || run_loop(iteration, log_panic))
}

/// Runs iterations until one breaks. Reports a panic unless it is the same as the previous one.
fn run_loop(mut iteration: impl FnMut() -> ControlFlow<()>, mut report: impl FnMut(&str)) {
    let mut reported = None;
    loop {
        match caught(&mut iteration) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return,
            Err(panic) => {
                if reported.as_ref() != Some(&panic) {
                    report(&panic);
                }
                reported = Some(panic);
            }
        }
    }
}

/// Runs `work` and returns its result, or the message of its panic. The state that `work` changes must
/// tolerate being left half changed.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_continues_after_a_panic_and_reports_each_message_once() {
        let (mut count, mut reported) = (0, Vec::new());
        let iteration = || {
            count += 1;
            match count {
                2..=4 => panic!("index 7"),
                6 => panic!("turn {count}"),
                8 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        };
        run_loop(iteration, |panic| reported.push(panic.to_owned()));
        assert_eq!(reported, ["index 7", "turn 6"]);
        assert_eq!(count, 8);
    }

    #[test]
    fn caught_returns_the_result_or_the_panic_message() {
        assert_eq!(caught(|| 1), Ok(1));
        let odd: Result<(), String> = caught(|| std::panic::panic_any(1));
        assert_eq!(odd, Err("no text".to_owned()));
    }
}
