//! Any text as a Kubernetes quantity: it is read or rejected, without a panic and without a wrong amount.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| portcullis_core::model::quantity::fuzz_quantity(text));
