//! Random scenarios: a seed decides the cluster, the gangs, the actions of users and all faults.
//!
//! A seed becomes a [`Scenario`] and is then played. So a failing one can be shrunk by removing steps, and
//! saved as a file. Swarm testing: each seed has some kinds of faults switched off, because faults hide one
//! another. At the end the faults stop, the cluster must settle, and every gang that fits must have started.

mod generate;
mod scenario_yaml;

use std::fmt;

pub use generate::{generate, generate_from_bytes};
pub use scenario_yaml::to_yaml;

use super::api::WebhookCall;
use super::cluster::Violation;
use super::scenario::{Runner, Scenario};
use portcullis_core::admission::{self, Hook, KnownClasses};

/// Options of a run besides its seed.
#[derive(Clone, Debug, Default)]
pub struct FuzzOptions {
    /// Whether a failure contains a trace of everything that happened.
    pub trace: bool,
    /// A safety rule of the engine to disable, to check that the run detects it.
    #[cfg(feature = "sabotage")]
    pub disabled_rule: Option<portcullis_core::engine::SafetyRule>,
}

/// The result of a run without violations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of steps of the scenario.
    pub operations: u64,
    /// Number of simulated events.
    pub happenings: u64,
    /// Number of admission reviews.
    pub reviews: u64,
    /// Number of admitted gangs at the end.
    pub admitted: u64,
    /// Number of waiting gangs at the end.
    pub waiting: u64,
    /// Number of changes of the leader.
    pub leaders: u64,
}

impl Stats {
    /// Adds the numbers of another run.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.happenings += other.happenings;
        self.reviews += other.reviews;
        self.admitted += other.admitted;
        self.waiting += other.waiting;
        self.leaders += other.leaders;
    }
}

/// A run that violated an invariant or failed an expectation.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Seed.
    pub seed: u64,
    /// Number of the failing step, from 1.
    pub step: usize,
    /// Violated invariants.
    pub violations: Vec<Violation>,
    /// All problems, one sentence each.
    pub problems: Vec<String>,
    /// Trace, where the options enable it.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} fails at step {}:", self.seed, self.step)?;
        for problem in &self.problems {
            writeln!(f, "  {problem}")?;
        }
        write!(f, "replay: cargo run --release -- simulate --seed {}", self.seed)
    }
}

/// The webhook of Portcullis, called without a network.
pub fn webhook(settings: admission::AdmissionSettings) -> WebhookCall {
    Box::new(move |hook: Hook, body: &[u8]| {
        admission::handle_review(&settings, &KnownClasses::default(), hook, body)
            .map(|answer| answer.body)
            .map_err(|e| e.to_string())
    })
}

/// Generates the scenario of this seed and plays it with the webhook of Portcullis.
///
/// # Errors
/// The first failing step.
pub fn fuzz(seed: u64, options: &FuzzOptions) -> Result<Stats, Box<Failure>> {
    play(seed, &generate(seed), options, webhook(admission::AdmissionSettings::default()))
}

/// Generates the scenario of these bytes and plays it as [`fuzz`] does. For a fuzzer, which changes bytes to
/// change decisions.
///
/// # Panics
/// When a step fails. The message has the problems and the scenario as a file for `portcullis simulate`.
pub fn fuzz_bytes(bytes: &[u8]) {
    let scenario = generate_from_bytes(bytes);
    let played =
        play(0, &scenario, &FuzzOptions::default(), webhook(admission::AdmissionSettings::default()));
    if let Err(failure) = played {
        let (step, problems) = (failure.step, failure.problems.join("\n  "));
        panic!(
            "fails at step {step}:\n  {problems}\nreplay: cargo run --release -- simulate, with this file:\n{}",
            to_yaml(&scenario)
        );
    }
}

/// Plays a generated scenario.
///
/// # Errors
/// The first failing step.
pub fn play(
    seed: u64,
    scenario: &Scenario,
    options: &FuzzOptions,
    admit: WebhookCall,
) -> Result<Stats, Box<Failure>> {
    let fail = |step, violations: Vec<Violation>, mut problems: Vec<String>| {
        problems.extend(violations.iter().map(ToString::to_string));
        Box::new(Failure { seed, step, violations, problems, trace: Vec::new() })
    };
    let mut cluster = scenario.settings.options();
    cluster.trace = options.trace;
    #[cfg(feature = "sabotage")]
    {
        cluster.settings.disabled_rule = options.disabled_rule;
    }
    let mut runner = Runner::with_options(cluster, scenario.clone(), Some(admit))
        .map_err(|error| fail(0, Vec::new(), vec![error.to_string()]))?;
    let mut stats = Stats::default();
    loop {
        let step = runner.next_step();
        stats.operations += 1;
        let number = usize::try_from(stats.operations).unwrap_or(usize::MAX);
        match step {
            Err(error) => return Err(fail(number, Vec::new(), vec![error.to_string()])),
            Ok(None) => break,
            Ok(Some(result)) if result.is_as_expected() => {}
            Ok(Some(result)) => {
                let unexpected = result.expectations.iter();
                let unexpected = unexpected.filter_map(|e| {
                    Some(format!("expected that {}, but {}", e.text, e.verdict.as_ref().err()?))
                });
                let mut failure = fail(number, result.violations.clone(), unexpected.collect());
                failure.trace = runner.take_trace();
                return Err(failure);
            }
        }
    }
    let seen = runner.current_state();
    let admitted = seen
        .gangs
        .iter()
        .filter(|gang| gang.status.phase == portcullis_core::engine::Phase::Admitted)
        .count();
    stats.admitted = u64::try_from(admitted).unwrap_or(0);
    stats.waiting = u64::try_from(seen.gangs.len()).unwrap_or(0) - stats.admitted;
    stats.happenings = runner.cluster().steps();
    stats.reviews = runner.cluster().api.webhook.calls();
    stats.leaders = runner.cluster().api.lease_transitions().0;
    Ok(stats)
}

/// Removes steps of a failing run as long as it still violates one of the same invariants.
pub fn shrink(failure: &Failure, options: &FuzzOptions, admit: impl Fn() -> WebhookCall) -> Scenario {
    let invariants: Vec<_> = failure.violations.iter().map(|violation| violation.invariant).collect();
    let same = |scenario: &Scenario| match play(failure.seed, scenario, options, admit()) {
        Ok(_) => false,
        Err(other) => {
            invariants.is_empty() && other.violations.is_empty()
                || other.violations.iter().any(|violation| invariants.contains(&violation.invariant))
        }
    };
    let mut best = generate(failure.seed);
    // Steps after the failure do not matter.
    let mut cut = best.clone();
    cut.steps.truncate(failure.step);
    if same(&cut) {
        best = cut;
    }
    let mut chunk = best.steps.len() / 2;
    while chunk > 0 {
        let mut from = 0;
        while from < best.steps.len() {
            let mut candidate = best.clone();
            candidate.steps.drain(from..(from + chunk).min(best.steps.len()));
            if same(&candidate) {
                best = candidate;
            } else {
                from += chunk;
            }
        }
        chunk /= 2;
    }
    best
}
