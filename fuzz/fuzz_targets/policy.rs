//! Any bytes as a policy file: the result is a policy set or a list of errors with valid places, and does not
//! vary.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_policy::fuzz_load(bytes));
