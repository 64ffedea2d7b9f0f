//! Benchmarks, printed as tables. They assert nothing.
//!
//! `cargo run --release -p portcullis-bench` runs them all; one alone with `cargo run --release -p
//! portcullis-bench -- admission`, `planner`, `queue`, `webhook`, `policies`, `cluster` or `memory`.

mod admission;
mod bodies;
mod cluster;
mod memory;
mod planner;
mod policies;
mod queue;
mod webhook;

use std::process::ExitCode;

const USAGE: &str = "usage: portcullis-bench [all]      every benchmark in turn
       portcullis-bench admission  one decision, bytes to bytes, without a network
       portcullis-bench planner    one decision of the planner on large clusters
       portcullis-bench queue      one event while hundreds of gangs wait
       portcullis-bench webhook    reviews over TLS [--reviewer core|stub] [--seconds N]
       portcullis-bench policies   reviews by policy files over TLS, and a reload under load; not part of all
       portcullis-bench cluster    gangs on a real control plane [load|steady|large|crowd]... [--only floor|portcullis]
       portcullis-bench memory     a real control plane with 50,000 pods [PODS]; not part of all";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = arguments.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
    let outcome = match name {
        "" | "all" => all(),
        "admission" => admission::run(),
        "webhook" => webhook::run(rest),
        "cluster" => cluster::run(rest),
        "memory" => memory::run(rest),
        "policies" => policies::run(rest),
        cluster::FLOOR => cluster::floor_process(rest),
        "planner" => {
            planner::run();
            Ok(())
        }
        "queue" => {
            queue::run();
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

/// The quick benchmarks come first.
fn all() -> anyhow::Result<()> {
    admission::run()?;
    println!();
    planner::run();
    println!();
    queue::run();
    println!();
    webhook::run(&[])?;
    println!();
    cluster::run(&[])
}
