//! `portcullis simulate`: plays a scenario file on the embedded cluster and shows every step.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use portcullis_core::admission::{self, Settings};
use portcullis_core::sim::api::Admit;
use portcullis_core::sim::scenario::{Runner, Scenario, StepResult};
use serde_json::json;

use super::paint::{self, styled};
use super::{Outcome, stage};

const EXAMPLES: &str = "\
Examples:
  portcullis simulate tests/scenarios/demo.yaml            every step, what kubectl shows, what was expected
  portcullis simulate tests/scenarios/demo.yaml --json     one JSON object for each step, one a line

A scenario is a YAML file: a cluster, steps (apply, delete, taint, advance, fault ...) and what must be seen after
each of them. Manifests in it are ordinary Kubernetes YAML. The same file gives the same run on any machine.

Exit codes:
  0  everything was as expected, and no rule was broken
  1  an expectation did not hold (file and line are named), or a rule was broken
  2  the scenario could not be read or played";

/// Play a scenario file on an embedded cluster and check what it expects
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    /// Scenario files (YAML)
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<PathBuf>,
    /// For programs: one JSON object for each step, one a line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> Result<Outcome> {
    let mut outcome = Outcome::Good;
    for path in &options.scenarios {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
        outcome = outcome.max(play(&file, &text, options.json)?);
    }
    Ok(outcome)
}

fn play(file: &str, text: &str, as_json: bool) -> Result<Outcome> {
    let mut out = anstream::stdout().lock();
    let mut runner = Runner::new(Scenario::parse(file, text)?, Some(admit()))?;
    if !as_json {
        let scenario = runner.scenario();
        writeln!(out, "{}", styled(paint::HEAD, format!("{} ({file})", scenario.name)))?;
        for line in stage::wrapped(&scenario.story, "  ") {
            writeln!(out, "{line}")?;
        }
        stage::cards(&mut out, &runner.look().nodes)?;
    }
    let (mut steps, mut held, mut failed) = (0, 0, Vec::new());
    while let Some(step) = runner.next_step()? {
        steps += 1;
        held += step.expectations.iter().filter(|e| e.verdict.is_ok()).count();
        failed.extend(step.failures());
        if as_json {
            writeln!(out, "{}", stage::record(&step))?;
        } else {
            show(&mut out, file, &step)?;
        }
    }
    if !as_json {
        let verdict = if failed.is_empty() {
            styled(paint::GOOD, format!("{steps} steps, {held} expectations held, no rule was broken"))
        } else {
            styled(paint::BAD, format!("{steps} steps, {held} expectations held, {} failures", failed.len()))
        };
        writeln!(out, "\n{verdict}")?;
    } else if !failed.is_empty() {
        writeln!(out, "{}", json!({"file": file, "failures": failed}))?;
    }
    Ok(if failed.is_empty() { Outcome::Good } else { Outcome::No })
}

fn show(out: &mut impl Write, file: &str, step: &StepResult) -> Result<()> {
    let title = format!("step {} ({file}:{}, {} into it)", step.number, step.line, stage::seconds(step.at));
    writeln!(out, "\n{}", styled(paint::HEAD, title))?;
    for line in stage::wrapped(step.say.as_deref().unwrap_or_default(), "  ") {
        writeln!(out, "{line}")?;
    }
    stage::terminal(out, step)?;
    stage::told(out, step)?;
    stage::pods(out, &step.pods)?;
    stage::gangs(out, &step.gangs)?;
    stage::cards(out, &step.nodes)?;
    stage::expectations(out, file, step)?;
    Ok(())
}

/// The webhook as a function call: the same decision, without the network.
fn admit() -> Admit {
    let settings = Settings::default();
    Box::new(move |hook, body| {
        admission::answer(&settings, hook, body)
            .map(|answer| answer.body)
            .map_err(|problem| problem.to_string())
    })
}
