//! Runs the fuzz entry points as ordinary tests, over the committed corpus and over bytes from a fixed seed.
//! So they check every change on stable Rust too.

use std::fs;
use std::path::PathBuf;

use portcullis_core::model::random::Random;
use portcullis_core::{admission, model};

/// The committed inputs of a target with their file names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let entries = fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let mut inputs: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry.expect("a readable directory").path();
            let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            (path.display().to_string(), bytes)
        })
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "no corpus for {target}");
    inputs
}

/// Up to `most` random bytes.
fn random_bytes(random: &mut Random, most: usize) -> Vec<u8> {
    let length = random.index(most);
    (0..length).map(|_| random.draw().to_le_bytes()[0]).collect()
}

/// A committed input with a few bytes changed, removed, or copied from another input.
fn mutated(random: &mut Random, inputs: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = inputs[random.index(inputs.len())].1.clone();
    for _ in 0..=random.index(4) {
        let at = random.index(bytes.len() + 1);
        match random.index(4) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] = random.draw().to_le_bytes()[0],
            2 if at < bytes.len() => {
                bytes.drain(at..(at + 1 + random.index(8)).min(bytes.len()));
            }
            _ => {
                let other = &inputs[random.index(inputs.len())].1;
                let from = random.index(other.len() + 1);
                let to = (from + random.index(40)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
        }
    }
    bytes
}

/// Runs an entry point over the corpus and over `rounds` random and mutated inputs. A failure prints the
/// input.
fn check(target: &str, rounds: usize, entry: fn(&[u8])) {
    let run = |name: &str, bytes: &[u8]| {
        let outcome = std::panic::catch_unwind(|| entry(bytes));
        assert!(outcome.is_ok(), "{target} fails on {name}: {}", bytes.escape_ascii());
    };
    let inputs = corpus(target);
    for (name, bytes) in &inputs {
        run(name, bytes);
    }
    let mut random = Random::new(7);
    for round in 0..rounds {
        run(&format!("random input {round}"), &random_bytes(&mut random, 64));
        run(&format!("mutated input {round}"), &mutated(&mut random, &inputs));
    }
}

#[test]
fn any_review_is_answered_or_refused() {
    check("review", 2000, admission::fuzz_review);
}

#[test]
fn any_quantity_is_read_or_refused() {
    check("quantity", 20_000, |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            model::quantity::fuzz_quantity(text);
        }
    });
}

#[test]
fn any_policy_file_is_loaded_or_refused() {
    check("policy", 400, portcullis_policy::fuzz_load);
}

#[test]
fn any_expression_is_evaluated_or_refused() {
    check("cel", 5_000, |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            portcullis_cel::fuzz_expression(text);
        }
    });
}

/// Each input is a whole run of the simulated cluster, so there are few. `PORTCULLIS_FUZZ_ROUNDS` sets the
/// number.
#[test]
fn any_events_keep_the_invariants() {
    let rounds = std::env::var("PORTCULLIS_FUZZ_ROUNDS").map_or(10, |text| text.parse().expect("a number"));
    check("events", rounds, portcullis_sim::fuzz_bytes);
}
