//! `portcullis simulate --seed` and `--seeds`: random clusters with random faults. All invariants are checked
//! after every event.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use portcullis_core::admission::AdmissionSettings;
use portcullis_sim::fuzz::{self, Failure, FuzzOptions, Stats};
use portcullis_sim::scenario::Runner;
use serde_json::json;

use super::exit_status::ExitStatus;
use super::simulate;
use super::styles::{self, styled};

/// A range stops after this number of failed seeds.
const MAX_FAILED_SEEDS: usize = 10;

/// A range of seeds such as `1..100`, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeedRange(RangeInclusive<u64>);

impl FromStr for SeedRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let help = || format!("{text:?} is not a range of seeds: write FIRST..LAST, for example 1..1000");
        let (first, last) = text.split_once("..").ok_or_else(help)?;
        let (first, last) = (first.parse().map_err(|_| help())?, last.parse().map_err(|_| help())?);
        if first > last { Err(help()) } else { Ok(Self(first..=last)) }
    }
}

impl fmt::Display for SeedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.0.start(), self.0.end())
    }
}

/// Plays one seed and prints every step.
pub(super) fn play_seed(seed: u64, shrink: bool, as_json: bool) -> Result<ExitStatus> {
    let options = FuzzOptions::default();
    let file = format!("seed {seed}");
    if shrink {
        let mut out = anstream::stdout().lock();
        return Ok(match fuzz::fuzz(seed, &options) {
            Ok(_) => {
                writeln!(
                    anstream::stderr().lock(),
                    "{file} violates no invariant: there is nothing to shrink"
                )?;
                ExitStatus::Success
            }
            Err(failure) => {
                writeln!(anstream::stderr().lock(), "{failure}\nshrinking it to the steps that matter ...")?;
                let scenario =
                    fuzz::shrink(&failure, &options, || fuzz::webhook(AdmissionSettings::default()));
                write!(out, "{}", fuzz::to_yaml(&scenario))?;
                ExitStatus::Negative
            }
        });
    }
    let scenario = fuzz::generate(seed);
    let settings = scenario.settings.options();
    let mut runner =
        Runner::with_options(settings, scenario, Some(fuzz::webhook(AdmissionSettings::default())))?;
    let outcome = simulate::play_steps(&file, &mut runner, as_json)?;
    if outcome != ExitStatus::Success {
        print_replay_commands(&mut anstream::stderr().lock(), seed)?;
    }
    Ok(outcome)
}

/// Plays a range of seeds on all cores and prints the failures.
pub(super) fn play_range(seeds: &SeedRange, as_json: bool) -> Result<ExitStatus> {
    let (first, last) = (*seeds.0.start(), *seeds.0.end());
    let progress = progress(last - first + 1);
    let next = AtomicU64::new(first);
    let (stats, failures) = (Mutex::new((0_u64, Stats::default())), Mutex::new(Vec::<Box<Failure>>::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > last
                || failures.lock().expect("no thread panics while it holds the lock").len()
                    >= MAX_FAILED_SEEDS
            {
                return;
            }
            match fuzz::fuzz(seed, &FuzzOptions::default()) {
                Ok(one) => {
                    let mut stats = stats.lock().expect("no thread panics while it holds the lock");
                    stats.0 += 1;
                    stats.1.add(&one);
                }
                Err(failure) => {
                    failures.lock().expect("no thread panics while it holds the lock").push(failure);
                }
            }
            progress.inc(1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    progress.finish_and_clear();
    let (clean, stats) = stats.into_inner().expect("no thread panics while it holds the lock");
    let mut failures = failures.into_inner().expect("no thread panics while it holds the lock");
    failures.sort_by_key(|failure| failure.seed);
    report(seeds, clean, &stats, &failures, as_json)?;
    Ok(if failures.is_empty() { ExitStatus::Success } else { ExitStatus::Negative })
}

fn report(
    seeds: &SeedRange,
    clean: u64,
    stats: &Stats,
    failures: &[Box<Failure>],
    as_json: bool,
) -> Result<()> {
    let mut out = anstream::stdout().lock();
    if as_json {
        let failures: Vec<_> = failures
            .iter()
            .map(|f| json!({"seed": f.seed, "step": f.step, "problems": f.problems}))
            .collect();
        let report = json!({"seeds": seeds.to_string(), "clean": clean, "steps": stats.operations,
            "events": stats.happenings, "reviews": stats.reviews, "admitted": stats.admitted,
            "waiting": stats.waiting, "leaders": stats.leaders, "failures": failures});
        writeln!(out, "{report}")?;
        return Ok(());
    }
    for failure in failures {
        writeln!(out, "{} seed {}, step {}", styled(styles::BAD, "✗"), failure.seed, failure.step)?;
        for problem in &failure.problems {
            writeln!(out, "  {problem}")?;
        }
        print_replay_commands(&mut out, failure.seed)?;
    }
    let style = if failures.is_empty() { styles::GOOD } else { styles::BAD };
    writeln!(out, "{}", styled(style, format!("seeds {seeds}: {clean} clean, {} failed", failures.len())))?;
    writeln!(
        out,
        "  {} steps, {} events, {} reviews, {} leaders; {} gangs admitted, {} left waiting with a reason",
        stats.operations, stats.happenings, stats.reviews, stats.leaders, stats.admitted, stats.waiting
    )?;
    Ok(())
}

/// Prints the commands that replay and shrink a seed.
fn print_replay_commands(out: &mut impl Write, seed: u64) -> Result<()> {
    let command = format!("portcullis simulate --seed {seed}");
    writeln!(out, "  replay: {}", styled(styles::COMMAND, &command))?;
    writeln!(out, "  shrink: {}", styled(styles::COMMAND, format!("{command} --shrink > shrunk.yaml")))?;
    Ok(())
}

/// Returns a progress bar, hidden if stderr is not a terminal.
fn progress(length: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("  {bar:40} {pos}/{len} seeds, {per_sec}, {eta} to go");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_include_both_ends() {
        for (text, range) in
            [("1..3", Some(1..=3)), ("7..7", Some(7..=7)), ("3..1", None), ("1", None), ("a..b", None)]
        {
            assert_eq!(text.parse::<SeedRange>().ok().map(|seeds| seeds.0), range, "{text}");
        }
    }
}
