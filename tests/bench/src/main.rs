//! Benchmarks, printed as tables. Nothing here passes or fails: a person compares.
//!
//! `cargo run --release -p portcullis-bench -- webhook`
//! `cargo run --release -p portcullis-bench -- planner`

mod bodies;
mod planner;
mod webhook;

use std::process::ExitCode;

const USAGE: &str = "usage: portcullis-bench webhook [--reviewer core|stub] [--seconds N]
       portcullis-bench planner";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = arguments.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
    let outcome = match name {
        "webhook" => webhook::run(rest),
        "planner" => {
            planner::run();
            Ok(())
        }
        webhook::SERVER => webhook::serve(rest),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
