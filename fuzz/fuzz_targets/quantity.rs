//! Any text as a Kubernetes quantity: read or refused, never a panic, and never a wrong amount.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| portcullis_core::model::quantity::fuzz_quantity(text));
