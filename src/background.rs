//! Threads for what must not slow down anybody who waits for an answer.

use std::io;
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
