//! `portcullis demo`: a story in acts, played on the embedded cluster through the real webhook and the real engine.
//!
//! The story is a scenario file with expectations; this module only tells it. It fails when an expectation fails, so a
//! story that is not true cannot be told.

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

/// The story: file name, for messages, and text.
const STORY: [(&str, &str); 2] = [
    ("tests/scenarios/demo.yaml", include_str!("../../tests/scenarios/demo.yaml")),
    ("tests/scenarios/demo-three-nodes.yaml", include_str!("../../tests/scenarios/demo-three-nodes.yaml")),
];

/// The mark of the lines of a manifest that the story shows.
const MARK: &str = "# <-";

const EXAMPLES: &str = "\
Examples:
  portcullis demo               with a pause after each act when you watch it on a terminal
  portcullis demo --fast        without pauses
  portcullis demo --pace 10     10 seconds for each act

Nothing outside this process is touched: the cluster is simulated, the webhook listens on a free loopback port.
The story is tests/scenarios/demo.yaml; `portcullis simulate` plays it with every detail.

Exit codes: 0 the story is true, 1 something in it did not happen as told, 2 it could not be played.";

/// Watch a gang of pods being gated, planned and lifted, on an embedded cluster
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DemoArgs {
    /// No pauses (as in a pipe)
    #[arg(long, conflicts_with = "pace")]
    fast: bool,
    /// Seconds to pause after each act [default: 3 on a terminal, 0 in a pipe]
    #[arg(long, value_name = "SECONDS")]
    pace: Option<u16>,
}

/// What the whole story came to.
#[derive(Default)]
struct DemoTotals {
    acts: usize,
    held: usize,
    failures: Vec<String>,
    plans: usize,
    world_time: Duration,
    steps: u64,
}

pub(super) fn run(args: &DemoArgs) -> Result<ExitStatus> {
    let mut out = anstream::stdout().lock();
    let pause = match (args.fast, args.pace) {
        (true, _) => Duration::ZERO,
        (false, Some(seconds)) => Duration::from_secs(seconds.into()),
        (false, None) => Duration::from_secs(if std::io::stdout().is_terminal() { 3 } else { 0 }),
    };
    let desk = policies::desk()?;
    let webhook = LocalWebhook::start_with_policies(review_handler(AdmissionSettings::default()), Some(desk));
    let webhook = Arc::new(webhook.context("the demo needs a loopback port")?);
    let latencies = Arc::new(Mutex::new(Vec::new()));

    writeln!(out, "{}", styled(styles::HEAD, "Portcullis: the whole gang, or nobody"))?;
    let intro = format!(
        "Everything here is real except the machines: the cluster is simulated in this process, every pod passes the \
         webhook at https://{}, and the engine that plans and lifts is the one that would run in your cluster.",
        webhook.address()
    );
    for line in step_output::wrapped(&intro, "") {
        writeln!(out, "{line}")?;
    }

    let mut tally = DemoTotals::default();
    for (file, text) in STORY {
        let scenario = Scenario::parse(file, text)?;
        let mut runner = Runner::new(scenario, Some(admit(&webhook, &latencies)))?;
        writeln!(out)?;
        step_output::cards(&mut out, &runner.look().nodes)?;
        let mut index = 0;
        while let Some(step) = runner.next_step()? {
            tally.acts += 1;
            act(&mut out, tally.acts, &runner.scenario().steps[index].value, &step)?;
            index += 1;
            tally.held += step.expectations.iter().filter(|e| e.verdict.is_ok()).count();
            tally.plans += step.told.iter().filter(|told| told.note.reason == Reason::Lifted).count();
            if !step.is_as_expected() {
                step_output::expectations(&mut out, file, &step)?;
                tally
                    .failures
                    .extend(step.failures().into_iter().map(|failure| format!("{file}: {failure}")));
            }
            out.flush()?;
            std::thread::sleep(pause);
        }
        tally.world_time += runner.look().at;
        tally.steps += runner.cluster().steps();
    }
    tally.acts += 1;
    match policies::act(&mut out, tally.acts, &webhook)? {
        Ok(held) => tally.held += held,
        Err(failure) => tally.failures.push(failure),
    }
    std::thread::sleep(pause);
    close(&mut out, &tally, &latencies)?;
    Ok(if tally.failures.is_empty() { ExitStatus::Success } else { ExitStatus::Negative })
}

/// One act: heading, what it is about, the lines that matter, what happens, how the cards look then.
fn act(out: &mut impl Write, number: usize, told: &Step, step: &StepResult) -> Result<()> {
    let say = step.say.as_deref().unwrap_or_default();
    let (title, text) = say.split_once('\n').unwrap_or((say, ""));
    writeln!(out, "\n{}", styled(styles::HEAD, format!("Act {number}  {title}")))?;
    for line in step_output::wrapped(text, "  ") {
        writeln!(out, "{line}")?;
    }
    if let Some(manifest) = &told.apply {
        let lines: Vec<&str> = manifest.value.lines().filter(|line| line.contains(MARK)).collect();
        if !lines.is_empty() {
            writeln!(out)?;
        }
        for line in lines {
            let (field, why) = line.split_once(MARK).unwrap_or((line, ""));
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
    step_output::told(out, step)?;
    waiting(out, step)?;
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

/// What would help the gangs that wait; why they wait has just been told.
fn waiting(out: &mut impl Write, step: &StepResult) -> Result<()> {
    for gang in &step.gangs {
        if let Some(remedy) = &gang.status.remedy {
            for line in step_output::wrapped(&format!("what would help: {remedy}"), "  ") {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(())
}

/// The real webhook, over HTTPS; each answer is timed as its caller sees it.
fn admit(webhook: &Arc<LocalWebhook>, latencies: &Arc<Mutex<Vec<Duration>>>) -> WebhookCall {
    let (webhook, latencies) = (Arc::clone(webhook), Arc::clone(latencies));
    Box::new(move |hook, body| {
        let begun = Instant::now();
        let answer = webhook.review_blocking(hook, body);
        latencies.lock().expect("nobody panics while holding it").push(begun.elapsed());
        answer
    })
}

/// What was proved, in numbers.
fn close(out: &mut impl Write, tally: &DemoTotals, latencies: &Mutex<Vec<Duration>>) -> Result<()> {
    let mut times = latencies.lock().expect("nobody panics while holding it").clone();
    times.sort_unstable();
    let at =
        |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied();
    let micros = |time: Option<Duration>| time.unwrap_or_default().as_micros();
    writeln!(out, "\n{}", styled(styles::HEAD, "What was proved"))?;
    writeln!(
        out,
        "  {} acts, {} expectations held; {} gangs lifted, each by one durable plan",
        tally.acts, tally.held, tally.plans
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
        "  after each of {} events in {} of cluster time: all or none, no card overbooked, only our own gate",
        tally.steps,
        step_output::seconds(tally.world_time)
    )?;
    if tally.failures.is_empty() {
        writeln!(out, "  {}", styled(styles::GOOD, "the story is true"))?;
        writeln!(
            out,
            "\nNext: {} your own manifests, or {}",
            styled(styles::COMMAND, "portcullis review FILE"),
            styled(styles::COMMAND, "portcullis serve --standalone"),
        )?;
    } else {
        for failure in &tally.failures {
            writeln!(out, "  {} {failure}", styled(styles::BAD, "not true:"))?;
        }
    }
    Ok(())
}
