//! The random-fault run: one number makes a cluster, gangs, what people do to them, and everything that goes wrong.
//!
//! A seed is first turned into a [`Scenario`] and then played, so that a failing one can be shrunk by leaving steps out
//! and be kept as a file. Swarm style: each seed has some kinds of faults switched off altogether, because faults hide
//! one another. Then the faults stop and the cluster must come to rest with everything started that fits.

mod generate;
mod scenario_yaml;

use std::fmt;

pub use generate::{generate, generate_from_bytes};
pub use scenario_yaml::to_yaml;

use super::api::WebhookCall;
use super::cluster::Violation;
use super::scenario::{Runner, Scenario};
use portcullis_core::admission::{self, Hook, KnownClasses};

/// What a run is made with besides its seed.
#[derive(Clone, Debug, Default)]
pub struct FuzzOptions {
    /// Whether everything that happens is written down into the failure.
    pub trace: bool,
    /// A rule of the engine that is taken away, to see that the run notices.
    #[cfg(feature = "sabotage")]
    pub disabled_rule: Option<portcullis_core::engine::SafetyRule>,
}

/// What a clean run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Steps of the scenario.
    pub operations: u64,
    /// Things that happened in the cluster.
    pub happenings: u64,
    /// Admission reviews answered.
    pub reviews: u64,
    /// Gangs that were admitted at the end.
    pub admitted: u64,
    /// Gangs that waited at the end, with a reason.
    pub waiting: u64,
    /// How often the lease changed hands.
    pub leaders: u64,
}

impl Stats {
    /// Adds another run.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.happenings += other.happenings;
        self.reviews += other.reviews;
        self.admitted += other.admitted;
        self.waiting += other.waiting;
        self.leaders += other.leaders;
    }
}

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// At which step, from 1.
    pub step: usize,
    /// Which rules, and how.
    pub violations: Vec<Violation>,
    /// What else was not as it should be.
    pub problems: Vec<String>,
    /// What happened, if that was asked for.
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

/// The webhook of this program, called without a network between.
pub fn webhook(settings: admission::AdmissionSettings) -> WebhookCall {
    Box::new(move |hook: Hook, body: &[u8]| {
        admission::handle_review(&settings, &KnownClasses::default(), hook, body)
            .map(|answer| answer.body)
            .map_err(|e| e.to_string())
    })
}

/// Makes the scenario of this seed and plays it through our own webhook.
///
/// # Errors
/// The first rule that was broken.
pub fn fuzz(seed: u64, options: &FuzzOptions) -> Result<Stats, Box<Failure>> {
    play(seed, &generate(seed), options, webhook(admission::AdmissionSettings::default()))
}

/// Makes the scenario of these bytes and plays it as [`fuzz`] does: for a fuzzer, which changes bytes to change decisions.
///
/// # Panics
/// When a rule is broken: with the rules, and with the scenario as a file that `portcullis simulate` plays.
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
/// The first rule that was broken.
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
    let seen = runner.look();
    let admitted = seen
        .gangs
        .iter()
        .filter(|gang| gang.status.phase == portcullis_core::engine::Phase::Admitted)
        .count();
    stats.admitted = u64::try_from(admitted).unwrap_or(0);
    stats.waiting = u64::try_from(seen.gangs.len()).unwrap_or(0) - stats.admitted;
    stats.happenings = runner.cluster().steps();
    stats.reviews = runner.cluster().api.webhook.calls();
    stats.leaders = runner.cluster().api.lease.transitions.0;
    Ok(stats)
}

/// Leaves out steps of a failing run as long as it still breaks one of the same rules.
pub fn shrink(failure: &Failure, options: &FuzzOptions, admit: impl Fn() -> WebhookCall) -> Scenario {
    let rules: Vec<_> = failure.violations.iter().map(|violation| violation.invariant).collect();
    let same = |scenario: &Scenario| match play(failure.seed, scenario, options, admit()) {
        Ok(_) => false,
        Err(other) => {
            rules.is_empty() && other.violations.is_empty()
                || other.violations.iter().any(|violation| rules.contains(&violation.invariant))
        }
    };
    let mut best = generate(failure.seed);
    // What comes after the failure has no part in it.
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
