//! Runs random faults over many seeds.
//!
//! `PORTCULLIS_SEEDS` sets the number of seeds (default 100; CI runs 10,000), and `PORTCULLIS_FIRST_SEED` the
//! first seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use portcullis_core::admission;
use portcullis_sim::fuzz::{self, Failure, FuzzOptions, Stats};

fn number(name: &str, usual: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is no number")),
        Err(_) => usual,
    }
}

#[test]
fn no_seed_breaks_an_invariant() {
    let first = number("PORTCULLIS_FIRST_SEED", 0);
    let count = number("PORTCULLIS_SEEDS", 100);
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(Stats::default());
    let failures: Mutex<Vec<Box<Failure>>> = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    match fuzz::fuzz(first + index, &FuzzOptions::default()) {
                        Ok(stats) => total.lock().expect("no thread panics with it").add(&stats),
                        Err(failure) => {
                            failures.lock().expect("no thread panics with it").push(failure);
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    if index > 0 && index.is_multiple_of(1000) {
                        eprintln!("{index} of {count} seeds");
                    }
                }
            });
        }
    });
    let stats = total.into_inner().expect("no thread panics with it");
    eprintln!("{stats:?}");
    let mut failures = failures.into_inner().expect("no thread panics with it");
    failures.sort_by_key(|failure| failure.seed);
    if let Some(failure) = failures.first() {
        let webhook = || fuzz::webhook(admission::AdmissionSettings::default());
        let small = fuzz::shrink(failure, &FuzzOptions::default(), webhook);
        panic!("{failure}\nshrunk to {} steps:\n{}", small.steps.len(), fuzz::to_yaml(&small));
    }
    // Guards against runs without admissions or takeovers, which would test too little.
    assert!(count < 100 || (stats.admitted > count / 2 && stats.waiting > count / 10), "{stats:?}");
    assert!(count < 100 || stats.leaders > count + count / 4, "{stats:?}");
}
