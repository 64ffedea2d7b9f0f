//! Any bytes as an admission review: the answer is well formed, its patch applies, and a second review
//! changes nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portcullis_core::admission::fuzz_review(data));
