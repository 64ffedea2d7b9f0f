//! Any text as a CEL expression: it is rejected, or evaluated within its budget.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| portcullis_cel::fuzz_expression(text));
