//! `portcullis simulate`: plays a scenario file on the simulated cluster and prints every step.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use portcullis_core::admission::AdmissionSettings;
use portcullis_sim::fuzz;
use portcullis_sim::scenario::{Runner, Scenario, StepResult};
use serde_json::json;

use super::exit_status::ExitStatus;
use super::planning_case;
use super::seeds::{self, SeedRange};
use super::step_output;
use super::styles::{self, styled};

const EXAMPLES: &str = "\
Examples:
  portcullis simulate tests/scenarios/demo.yaml            every step, the output of kubectl, the expectations
  portcullis simulate tests/scenarios/demo.yaml --json     one JSON object per step and line
  portcullis simulate --seeds 1..1000                      random clusters with random faults, on all cores
  portcullis simulate --seed 7                             one of them, step by step
  portcullis simulate --seed 7 --shrink > shrunk.yaml      a failing seed, reduced to the steps that matter
  portcullis simulate --case refuted-plan.json             plan the case of a refuted plan again

A scenario is a YAML file: a cluster, steps (apply, delete, taint, advance, fault ...) and expectations after each step.
Its manifests are ordinary Kubernetes YAML. The same file or seed gives the same run on every machine.

Exit codes:
  0  everything was as expected, and no invariant was violated
  1  an expectation did not hold (file and line are named), a rule was broken, or a plan is refuted again
  2  the scenario could not be read or played";

/// Play scenarios, or random faults by seed, on a simulated cluster and check all invariants
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SimulateArgs {
    /// Scenario files (YAML)
    #[arg(required_unless_present_any = ["seed", "seeds", "case"], value_name = "SCENARIO")]
    scenarios: Vec<PathBuf>,
    /// Play the random scenario of this seed, step by step
    #[arg(long, value_name = "NUMBER", conflicts_with = "scenarios")]
    seed: Option<u64>,
    /// Reduce the scenario of a failing seed to the steps that matter, and print it
    #[arg(long, requires = "seed", conflicts_with = "json")]
    shrink: bool,
    /// Play all random scenarios of a range, both ends included, and print the failures
    #[arg(long, value_name = "FIRST..LAST", conflicts_with_all = ["scenarios", "seed"])]
    seeds: Option<SeedRange>,
    /// Plan again what the leader's path /refuted-plan has returned
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenarios", "seed", "seeds"])]
    case: Option<PathBuf>,
    /// Print one JSON object per step and line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &SimulateArgs) -> Result<ExitStatus> {
    if let Some(seed) = args.seed {
        return seeds::play_seed(seed, args.shrink, args.json);
    }
    if let Some(range) = &args.seeds {
        return seeds::play_range(range, args.json);
    }
    if let Some(path) = &args.case {
        return planning_case::plan_again(path);
    }
    let mut outcome = ExitStatus::Success;
    for path in &args.scenarios {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
        outcome = outcome.max(play(&file, &text, args.json)?);
    }
    Ok(outcome)
}

fn play(file: &str, text: &str, as_json: bool) -> Result<ExitStatus> {
    let webhook = fuzz::webhook(AdmissionSettings::default());
    play_steps(file, &mut Runner::new(Scenario::parse(file, text)?, Some(webhook))?, as_json)
}

/// Plays the remaining steps of a scenario and prints each one.
pub(super) fn play_steps(file: &str, runner: &mut Runner, as_json: bool) -> Result<ExitStatus> {
    let mut out = anstream::stdout().lock();
    if !as_json {
        let scenario = runner.scenario();
        writeln!(out, "{}", styled(styles::HEAD, format!("{} ({file})", scenario.name)))?;
        for line in step_output::wrapped(&scenario.description, "  ") {
            writeln!(out, "{line}")?;
        }
        step_output::cards(&mut out, &runner.current_state().nodes)?;
    }
    let (mut steps, mut held, mut failed) = (0, 0, Vec::new());
    while let Some(step) = runner.next_step()? {
        steps += 1;
        held += step.expectations.iter().filter(|e| e.verdict.is_ok()).count();
        failed.extend(step.failures());
        if as_json {
            writeln!(out, "{}", step_output::record(&step))?;
        } else {
            print_step(&mut out, file, &step)?;
        }
    }
    if !as_json {
        let verdict = if failed.is_empty() {
            styled(
                styles::GOOD,
                format!("{steps} steps, {held} expectations held, no invariant was violated"),
            )
        } else {
            styled(styles::BAD, format!("{steps} steps, {held} expectations held, {} failures", failed.len()))
        };
        writeln!(out, "\n{verdict}")?;
    } else if !failed.is_empty() {
        writeln!(out, "{}", json!({"file": file, "failures": failed}))?;
    }
    Ok(if failed.is_empty() { ExitStatus::Success } else { ExitStatus::Negative })
}

fn print_step(out: &mut impl Write, file: &str, step: &StepResult) -> Result<()> {
    let title = format!("step {} ({file}:{}, at {})", step.number, step.line, step_output::seconds(step.at));
    writeln!(out, "\n{}", styled(styles::HEAD, title))?;
    for line in step_output::wrapped(step.say.as_deref().unwrap_or_default(), "  ") {
        writeln!(out, "{line}")?;
    }
    step_output::terminal(out, step)?;
    step_output::events(out, step)?;
    step_output::pods(out, &step.pods)?;
    step_output::gangs(out, &step.gangs)?;
    step_output::cards(out, &step.nodes)?;
    step_output::expectations(out, file, step)?;
    Ok(())
}
