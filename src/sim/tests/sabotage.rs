//! The random-fault run finds planted bugs. This shows that each check of the run can fail.
//!
//! `cargo test --profile checked --package portcullis-sim --features sabotage --test sabotage`

use portcullis_core::admission;
use portcullis_core::engine::SafetyRule;
use portcullis_core::model::random::Random;
use portcullis_core::planner::sabotage::scramble_ties;
use portcullis_sim::cluster::Invariant as Broken;
use portcullis_sim::fuzz::{Failure, FuzzOptions, fuzz, generate_from_bytes, play, webhook};
use portcullis_sim::scenario::{Runner, Scenario};

/// The maximum number of seeds. A few hundred find most bugs. A missing fence takes a few thousand, because
/// node pins give the next leader nearly the same information.
const BUDGET: u64 = 16000;

/// The first run that violates one of these invariants. Runs that violate only others are skipped.
fn first_failure(options: &FuzzOptions, expected: &[Broken]) -> Option<Box<Failure>> {
    let breaks = |failure: &Failure| failure.violations.iter().any(|v| expected.contains(&v.invariant));
    (0..BUDGET).find_map(|seed| fuzz(seed, options).err().filter(|failure| breaks(failure)))
}

/// Disables a safety rule of the engine. The runs must then violate one of the expected invariants.
fn check(rule: SafetyRule, expected: &[Broken]) {
    let options = FuzzOptions { disabled_rule: Some(rule), ..FuzzOptions::default() };
    let failure = first_failure(&options, expected).unwrap_or_else(|| {
        panic!("without the rule {rule:?} no seed of {BUDGET} breaks one of {expected:?}")
    });
    // The same seed passes with the rule enabled, so the failure comes from the planted bug.
    if let Err(failure) = fuzz(failure.seed, &FuzzOptions::default()) {
        panic!("this fails without any planted bug: {failure}");
    }
}

#[test]
fn without_reservations_cards_are_overbooked() {
    check(SafetyRule::Reserve, &[Broken::NeverOverbook]);
}

/// Between 40 and 400 random bytes, as a fuzzer supplies them.
fn fuzzer_input(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..random.between(40, 400)).map(|_| random.draw().to_le_bytes()[0]).collect()
}

#[test]
fn fuzzer_inputs_find_a_planted_bug_as_seeds_do() {
    let run = |bytes: &[u8], disabled_rule| {
        let options = FuzzOptions { disabled_rule, ..FuzzOptions::default() };
        play(0, &generate_from_bytes(bytes), &options, webhook(admission::AdmissionSettings::default()))
    };
    let found = (0..2000).map(fuzzer_input).find(|bytes| run(bytes, Some(SafetyRule::Reserve)).is_err());
    let found = found.expect("one of 2000 inputs notices that reservations are missing");
    run(&found, None).unwrap_or_else(|failure| panic!("this fails without any planted bug: {failure}"));
}

#[test]
fn lifting_before_the_plan_is_durable_is_found() {
    check(SafetyRule::RecordFirst, &[Broken::AllOrNone]);
}

#[test]
fn a_reservation_that_is_never_released_is_found() {
    check(SafetyRule::ReleaseOnDelete, &[Broken::Liveness]);
}

#[test]
fn lifting_any_version_of_a_pod_is_found() {
    check(SafetyRule::LiftPermit, &[Broken::AllOrNone, Broken::NeverOverbook]);
}

#[test]
fn takeover_without_fencing_is_found() {
    check(SafetyRule::Fence, &[Broken::AllOrNone, Broken::NeverOverbook]);
}

/// Runs the scenario of a scale-up without a rule. An expectation of the scenario must fail.
fn check_scenario(rule: SafetyRule) {
    let text = include_str!("../../../tests/scenarios/a12-scale-up-waits-as-a-whole.yaml");
    let good = |disabled: Option<SafetyRule>| {
        let scenario = Scenario::parse("story.yaml", text).expect("it reads well");
        let mut options = scenario.settings.options();
        options.settings.disabled_rule = disabled;
        let admit = webhook(admission::AdmissionSettings::default());
        let mut runner = Runner::with_options(options, scenario, Some(admit)).expect("it begins");
        std::iter::from_fn(|| runner.next_step().expect("it can be done")).all(|step| step.is_as_expected())
    };
    assert!(good(None), "every expectation holds with every rule enabled");
    assert!(!good(Some(rule)), "every expectation holds without the rule {rule:?}");
}

#[test]
fn scale_up_one_pod_at_a_time_is_found() {
    check_scenario(SafetyRule::GrowTogether);
}

#[test]
fn planning_without_reading_the_owners_is_found() {
    check_scenario(SafetyRule::AskOwners);
}

#[test]
fn deleting_a_gang_that_is_not_durably_expired_is_found() {
    check(SafetyRule::ExpireFirst, &[Broken::OwnGateOnly]);
}

#[test]
fn ignoring_an_expiry_of_another_leader_is_found() {
    check(SafetyRule::ObserveExpired, &[Broken::AllOrNone]);
}

#[test]
fn unstable_ties_are_found() {
    scramble_ties(Some(1));
    // The checker finds it, or the engine itself, which plans everything twice in debug builds.
    let noticed = |seed: &u64| {
        let played = std::panic::catch_unwind(|| fuzz(*seed, &FuzzOptions::default()));
        let unstable =
            |failure: Box<Failure>| failure.violations.iter().any(|v| v.invariant == Broken::Determinism);
        played.map_or(true, |result| result.is_err_and(unstable))
    };
    let seed = (0..BUDGET).find(noticed);
    scramble_ties(None);
    let seed = seed.expect("an unstable plan is noticed");
    if let Err(failure) = fuzz(seed, &FuzzOptions::default()) {
        panic!("this fails without any planted bug: {failure}");
    }
}
