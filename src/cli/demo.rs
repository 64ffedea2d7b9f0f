//! `portcullis demo`: plays two scenarios on the simulated cluster, through the real webhook and the real
//! engine.
//!
//! The scenarios have expectations. The demo fails if an expectation fails, so it cannot show anything that
//! is not true.

mod policies;

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use portcullis_core::admission::AdmissionSettings;
use portcullis_core::model::Reason;
use portcullis_sim::api::WebhookCall;
use portcullis_sim::scenario::{Runner, Scenario, Step, StepResult};

use super::exit_status::ExitStatus;
use super::step_output;
use super::styles::{self, styled};
use crate::webhook::{LocalWebhook, review_handler};

/// The scenarios: file name for messages, and text.
const SCENARIOS: [(&str, &str); 2] = [
    ("tests/scenarios/demo.yaml", include_str!("../../tests/scenarios/demo.yaml")),
    ("tests/scenarios/demo-three-nodes.yaml", include_str!("../../tests/scenarios/demo-three-nodes.yaml")),
];

/// Marks the lines of a manifest that the demo shows.
const SHOWN_LINE_MARK: &str = "# <-";

const EXAMPLES: &str = "\
Examples:
  portcullis demo               on a terminal: with a pause after each act
  portcullis demo --fast        without pauses
  portcullis demo --pace 10     with 10 seconds after each act

The demo changes nothing outside this process: the cluster is simulated, and the webhook listens on a free loopback port.
The main scenario is tests/scenarios/demo.yaml; `portcullis simulate` plays it with every detail.

Exit codes: 0 every expectation held, 1 an expectation failed, 2 the demo could not run.";

/// Watch how a gang is gated, planned and admitted, on a simulated cluster
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DemoArgs {
    /// Run without pauses
    #[arg(long, conflicts_with = "pace")]
    fast: bool,
    /// Seconds to pause after each act [default: 3 on a terminal, 0 in a pipe]
    #[arg(long, value_name = "SECONDS")]
    pace: Option<u16>,
}

/// Totals over all acts.
#[derive(Default)]
struct DemoTotals {
    acts: usize,
    held: usize,
    failures: Vec<String>,
    admitted_gangs: usize,
    cluster_time: Duration,
    steps: u64,
}

pub(super) fn run(args: &DemoArgs) -> Result<ExitStatus> {
    let mut out = anstream::stdout().lock();
    let pause = match (args.fast, args.pace) {
        (true, _) => Duration::ZERO,
        (false, Some(seconds)) => Duration::from_secs(seconds.into()),
        (false, None) => Duration::from_secs(if std::io::stdout().is_terminal() { 3 } else { 0 }),
    };
    let endpoints = policies::endpoints()?;
    let webhook =
        LocalWebhook::start_with_policies(review_handler(AdmissionSettings::default()), Some(endpoints));
    let webhook = Arc::new(webhook.context("the demo needs a loopback port")?);
    let latencies = Arc::new(Mutex::new(Vec::new()));

    writeln!(out, "{}", styled(styles::HEAD, "Portcullis: all pods of a gang start, or none"))?;
    let intro = format!(
        "Only the cluster is simulated, inside this process. Every pod passes the real webhook at https://{}, and the \
         engine is the one that runs in your cluster.",
        webhook.address()
    );
    for line in step_output::wrapped(&intro, "") {
        writeln!(out, "{line}")?;
    }

    let mut totals = DemoTotals::default();
    for (file, text) in SCENARIOS {
        let scenario = Scenario::parse(file, text)?;
        let mut runner = Runner::new(scenario, Some(admit(&webhook, &latencies)))?;
        writeln!(out)?;
        step_output::cards(&mut out, &runner.current_state().nodes)?;
        let mut index = 0;
        while let Some(step) = runner.next_step()? {
            totals.acts += 1;
            print_act(&mut out, totals.acts, &runner.scenario().steps[index].value, &step)?;
            index += 1;
            totals.held += step.expectations.iter().filter(|e| e.verdict.is_ok()).count();
            totals.admitted_gangs +=
                step.events.iter().filter(|event| event.note.reason == Reason::Lifted).count();
            if !step.is_as_expected() {
                step_output::expectations(&mut out, file, &step)?;
                totals
                    .failures
                    .extend(step.failures().into_iter().map(|failure| format!("{file}: {failure}")));
            }
            out.flush()?;
            std::thread::sleep(pause);
        }
        totals.cluster_time += runner.current_state().at;
        totals.steps += runner.cluster().steps();
    }
    totals.acts += 1;
    match policies::play_act(&mut out, totals.acts, &webhook)? {
        Ok(held) => totals.held += held,
        Err(failure) => totals.failures.push(failure),
    }
    std::thread::sleep(pause);
    print_results(&mut out, &totals, &latencies)?;
    Ok(if totals.failures.is_empty() { ExitStatus::Success } else { ExitStatus::Negative })
}

/// Prints one act: title, explanation, the marked lines of the manifest, what happens, and the use of the
/// cards.
fn print_act(out: &mut impl Write, number: usize, definition: &Step, step: &StepResult) -> Result<()> {
    let say = step.say.as_deref().unwrap_or_default();
    let (title, text) = say.split_once('\n').unwrap_or((say, ""));
    writeln!(out, "\n{}", styled(styles::HEAD, format!("Act {number}  {title}")))?;
    for line in step_output::wrapped(text, "  ") {
        writeln!(out, "{line}")?;
    }
    if let Some(manifest) = &definition.apply {
        let lines: Vec<&str> = manifest.value.lines().filter(|line| line.contains(SHOWN_LINE_MARK)).collect();
        if !lines.is_empty() {
            writeln!(out)?;
        }
        for line in lines {
            let (field, why) = line.split_once(SHOWN_LINE_MARK).unwrap_or((line, ""));
            let arrow = styled(styles::FAINT, format!("<-{why}"));
            writeln!(out, "    {:<55} {arrow}", field.trim())?;
        }
    }
    writeln!(out)?;
    step_output::terminal(out, step)?;
    writeln!(out)?;
    if !step.pods.is_empty() {
        step_output::pods(out, &step.pods)?;
    }
    step_output::events(out, step)?;
    print_remedies(out, step)?;
    step_output::cards(out, &step.nodes)?;
    let (held, all) =
        (step.expectations.iter().filter(|e| e.verdict.is_ok()).count(), step.expectations.len());
    let style = if step.is_as_expected() { styles::GOOD } else { styles::BAD };
    let time = step_output::seconds(step.took);
    writeln!(
        out,
        "  {}",
        styled(style, format!("{held} of {all} expectations hold ({time} of cluster time)"))
    )?;
    Ok(())
}

/// Prints the remedies of waiting gangs. The reasons were printed before.
fn print_remedies(out: &mut impl Write, step: &StepResult) -> Result<()> {
    for gang in &step.gangs {
        if let Some(remedy) = &gang.status.remedy {
            for line in step_output::wrapped(&format!("remedy: {remedy}"), "  ") {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(())
}

/// Returns the admission function of the simulated API server: it calls the real webhook over HTTPS and
/// records the latency.
fn admit(webhook: &Arc<LocalWebhook>, latencies: &Arc<Mutex<Vec<Duration>>>) -> WebhookCall {
    let (webhook, latencies) = (Arc::clone(webhook), Arc::clone(latencies));
    Box::new(move |hook, body| {
        let begun = Instant::now();
        let answer = webhook.review_blocking(hook, body);
        latencies.lock().expect("no thread panics while it holds the lock").push(begun.elapsed());
        answer
    })
}

/// Prints the results of all acts.
fn print_results(out: &mut impl Write, totals: &DemoTotals, latencies: &Mutex<Vec<Duration>>) -> Result<()> {
    let mut times = latencies.lock().expect("no thread panics while it holds the lock").clone();
    times.sort_unstable();
    let at =
        |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied();
    let micros = |time: Option<Duration>| time.unwrap_or_default().as_micros();
    writeln!(out, "\n{}", styled(styles::HEAD, "Results"))?;
    writeln!(
        out,
        "  {} acts, {} expectations held; {} gangs admitted, each by one durable plan",
        totals.acts, totals.held, totals.admitted_gangs
    )?;
    writeln!(
        out,
        "  {} reviews answered over HTTPS: p50 {} µs, p99 {} µs",
        times.len(),
        micros(at(50)),
        micros(at(99))
    )?;
    writeln!(
        out,
        "  checked after each of {} events in {} of cluster time: all or none, no card overbooked, no foreign gate removed",
        totals.steps,
        step_output::seconds(totals.cluster_time)
    )?;
    if totals.failures.is_empty() {
        writeln!(out, "  {}", styled(styles::GOOD, "every expectation held"))?;
        writeln!(
            out,
            "\nNext: {} for your own manifests, or {}",
            styled(styles::COMMAND, "portcullis review FILE"),
            styled(styles::COMMAND, "portcullis serve --standalone"),
        )?;
    } else {
        for failure in &totals.failures {
            writeln!(out, "  {} {failure}", styled(styles::BAD, "failed:"))?;
        }
    }
    Ok(())
}
