//! Threads for what must not slow down anybody who waits for an answer.
//!
//! Invariant: a thread that goes on for ever outlives a panic, which is a bug, and says so.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Starts a thread that runs when nobody else wants the core.
pub(crate) fn background(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work = || {
        // Of this thread alone; where it is not allowed, it runs like all others.
        let _ = rustix::process::nice(19);
        work();
    };
    thread::Builder::new().name(name.to_owned()).spawn(work).map(|_| ())
}

/// Starts such a thread for turn after turn, until one says that it was the last. Each begins by waiting for something.
pub(crate) fn turns(
    name: &'static str,
    turn: impl FnMut() -> ControlFlow<()> + Send + 'static,
) -> io::Result<()> {
    let tell = move |panic: &str| {
        tracing::error!(
            thread = name,
            panic,
            "this thread has panicked, which is a bug in Portcullis: report it. It goes on, and says this once"
        );
    };
    background(name, move || repeat(turn, tell))
}

/// Takes turns, and tells of one that panics: once, as long as they say the same.
fn repeat(mut turn: impl FnMut() -> ControlFlow<()>, mut tell: impl FnMut(&str)) {
    let mut told = None;
    loop {
        match caught(&mut turn) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return,
            Err(panic) => {
                if told.as_ref() != Some(&panic) {
                    tell(&panic);
                }
                told = Some(panic);
            }
        }
    }
}

/// What work comes to, or what it said when it panicked. What it was changing must bear being left half way.
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
    fn turns_go_on_after_one_that_panics_and_each_text_is_told_once() {
        let (mut count, mut told) = (0, Vec::new());
        let turn = || {
            count += 1;
            match count {
                2..=4 => panic!("index 7"),
                6 => panic!("turn {count}"),
                8 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        };
        repeat(turn, |panic| told.push(panic.to_owned()));
        assert_eq!(told, ["index 7", "turn 6"]);
        assert_eq!(count, 8);
    }

    #[test]
    fn work_comes_to_what_it_gives_or_says() {
        assert_eq!(caught(|| 1), Ok(1));
        let odd: Result<(), String> = caught(|| std::panic::panic_any(1));
        assert_eq!(odd, Err("no text".to_owned()));
    }
}
