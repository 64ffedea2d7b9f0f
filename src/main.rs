//! The binary: parse, run, map to an exit code. Everything else is the library's.

use std::process::ExitCode;

fn main() -> ExitCode {
    portcullis::cli::main()
}
