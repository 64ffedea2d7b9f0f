//! Benchmarks, printed as tables: `cargo run --release -p portcullis-bench -- planner`.

mod planner;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("planner") => planner::run(),
        _ => eprintln!("usage: portcullis-bench planner"),
    }
}
