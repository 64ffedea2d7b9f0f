//! Any bytes as a policy file: a set or a list of problems at places that are there, the same way every time.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_policy::fuzz_load(bytes));
