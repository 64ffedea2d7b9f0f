//! Any bytes as a seed: a cluster, what people do to it and what goes wrong, with every rule checked after every event.
#![no_main]

use portcullis_core::sim::fuzz::{FuzzOptions, fuzz};

libfuzzer_sys::fuzz_target!(|seed: u64| {
    if let Err(failure) = fuzz(seed, &FuzzOptions::default()) {
        panic!("{failure}");
    }
});
