//! Any bytes as a Kubernetes quantity: read or refused, never a panic, and never a wrong amount.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portcullis_core::admission::fuzz_quantity(data));
