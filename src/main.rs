//! The binary: parse, run, map to an exit code.

fn main() {}
