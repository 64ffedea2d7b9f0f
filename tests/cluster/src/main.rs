//! `test-cluster`: the test cluster for interactive use. `tests/cluster/up` and `tests/cluster/down` call it.

use std::process::ExitCode;

use portcullis_test_cluster::playground;

const USAGE: &str = "\
usage: test-cluster up       start a Kubernetes cluster with GPU nodes and Portcullis, here, without containers
       test-cluster status   say what runs of it
       test-cluster kubectl ARGUMENTS
       test-cluster down     end it and remove all of it";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("up") if arguments.len() == 1 => playground::up(),
        Some("down") if arguments.len() == 1 => playground::down(),
        Some("status") if arguments.len() == 1 => playground::status(),
        Some("kubectl") => match playground::kubectl(&arguments[1..]) {
            Ok(code) => return ExitCode::from(u8::try_from(code).unwrap_or(1)),
            Err(error) => Err(error),
        },
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
