//! Any bytes as a run of the simulated cluster with user actions and faults. Every invariant is checked after
//! every event.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_sim::fuzz_bytes(bytes));
