//! Tests of the simulation itself. They need no webhook other than the stub.

use super::scenario::{Runner, Scenario};
use super::stub_webhook;

fn play(text: &str) {
    let scenario = Scenario::parse("inline.yaml", text).unwrap_or_else(|e| panic!("{e}"));
    let mut runner = Runner::new(scenario, Some(stub_webhook::call())).unwrap_or_else(|e| panic!("{e}"));
    while let Some(step) = runner.next_step().unwrap_or_else(|e| panic!("{e}")) {
        let gangs: Vec<String> = step
            .gangs
            .iter()
            .map(|g| format!("{}: {:?} {}", g.name, g.status.phase, g.status.message))
            .collect();
        assert!(
            step.is_as_expected(),
            "step {}: {:#?}\n{gangs:#?}\n{:#?}",
            step.number,
            step.failures(),
            step.events
        );
    }
}

#[test]
fn a_gang_that_fits_starts_when_it_is_complete() {
    play(
        r#"
name: fits
cluster:
  nodes: [{name: gpu-1, cards: 1, vramMib: 32768, timeSliced: 4, shared: true}]
steps:
- apply: |
    apiVersion: scheduling.run.ai/v2alpha2
    kind: PodGroup
    metadata: {name: app}
    spec: {minMember: 2}
    ---
    apiVersion: v1
    kind: Pod
    metadata: {name: a, annotations: {pod-group-name: app, gpu-memory: "8000"}}
    spec: {containers: [{name: main}]}
  expect: {gated: [a]}
- apply: |
    apiVersion: v1
    kind: Pod
    metadata: {name: b, annotations: {pod-group-name: app, gpu-memory: "4000"}}
    spec: {containers: [{name: main}]}
  expect:
    running: [a, b]
    used: {gpu-1: [12000]}
    gangs: {app: {phase: Admitted}}
"#,
    );
}

#[test]
fn random_faults_break_no_invariant() {
    for seed in 0..40 {
        let options = super::fuzz::FuzzOptions::default();
        let scenario = super::fuzz::generate(seed);
        if let Err(failure) = super::fuzz::play(seed, &scenario, &options, stub_webhook::call()) {
            let small = super::fuzz::shrink(&failure, &options, stub_webhook::call);
            panic!("{failure}\n{}", super::fuzz::to_yaml(&small));
        }
    }
}

#[test]
fn a_generated_scenario_survives_the_file_format() {
    for seed in 0..20 {
        let scenario = super::fuzz::generate(seed);
        let text = super::fuzz::to_yaml(&scenario);
        let again = Scenario::parse("kept.yaml", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let options = super::fuzz::FuzzOptions::default();
        let first =
            super::fuzz::play(seed, &scenario, &options, stub_webhook::call()).map_err(|e| e.to_string());
        let second =
            super::fuzz::play(seed, &again, &options, stub_webhook::call()).map_err(|e| e.to_string());
        assert_eq!(first, second, "seed {seed}");
    }
}

/// Random bytes as a fuzzer tries them: 40 to 400.
fn some_bytes(seed: u64) -> Vec<u8> {
    let mut random = portcullis_core::model::random::Random::new(seed);
    (0..random.between(40, 400)).map(|_| random.draw().to_le_bytes()[0]).collect()
}

#[test]
fn a_changed_byte_changes_one_decision() {
    let bytes = some_bytes(1);
    let yaml = |bytes: &[u8]| super::fuzz::to_yaml(&super::fuzz::generate_from_bytes(bytes));
    assert_eq!(yaml(&bytes), yaml(&bytes));
    // The first byte switches one kind of fault on or off. The nodes, which later bytes decide, stay the
    // same.
    let (mut on, mut off) = (bytes.clone(), bytes);
    (on[0], off[0]) = (0, 99);
    let (on, off) = (super::fuzz::generate_from_bytes(&on), super::fuzz::generate_from_bytes(&off));
    let refused =
        |scenario: &Scenario| scenario.settings.random_faults.as_ref().map(|random| random.faults.refused);
    assert!(refused(&on) > Some(0), "{:?}", refused(&on));
    assert_eq!(refused(&off), Some(0));
    assert_eq!(format!("{:?}", on.cluster), format!("{:?}", off.cluster));
}
