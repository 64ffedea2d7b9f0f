//! Any bytes as a run of cluster events and faults: the rules of the engine hold after every step.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portcullis_core::sim::fuzz_bytes(data));
