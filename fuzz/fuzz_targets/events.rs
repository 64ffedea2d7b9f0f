//! Any bytes as decisions: a cluster, what people do to it and what goes wrong, with every rule checked after
//! every event.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_sim::fuzz_bytes(bytes));
