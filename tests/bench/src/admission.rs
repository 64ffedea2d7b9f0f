//! The admission decision alone, from bytes to bytes on one thread: no network, no TLS, no HTTP.
//!
//! The table `webhook` shows the cost of the webhook around it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::ensure;
use portcullis_core::admission::{AdmissionSettings, AdmissionVerdict, Hook, KnownClasses, handle_review};

use crate::bodies;

const WARM_UP: usize = 2_000;
const ROUNDS: usize = 50_000;

/// Measures and prints the table.
pub(crate) fn run() -> anyhow::Result<()> {
    println!("admission: one decision, one thread, {ROUNDS} rounds each");
    println!(
        "{:<9} {:<26} {:<10} {:>6} {:>12} {:>9} {:>9}",
        "hook", "pod", "verdict", "bytes", "decisions/s", "p50 µs", "p99 µs"
    );
    let settings = AdmissionSettings::default();
    for managed_fields in [false, true] {
        let new = bodies::gpu_pod(managed_fields);
        let patched = bodies::patched(&new)?;
        let plain = bodies::plain_pod(managed_fields);
        row(&settings, Hook::Mutate, "gang member, new", AdmissionVerdict::Patched, &new)?;
        row(&settings, Hook::Validate, "gang member, as patched", AdmissionVerdict::Allowed, &patched)?;
        row(&settings, Hook::Mutate, "no gang, no share", AdmissionVerdict::Untouched, &plain)?;
        row(&settings, Hook::Validate, "no gang, no share", AdmissionVerdict::Untouched, &plain)?;
    }
    Ok(())
}

/// Checks the verdict, so that the table measures the decision that it names.
fn row(
    settings: &AdmissionSettings,
    hook: Hook,
    pod: &str,
    verdict: AdmissionVerdict,
    body: &[u8],
) -> anyhow::Result<()> {
    for _ in 0..WARM_UP {
        let summary = handle_review(settings, &KnownClasses::default(), hook, black_box(body))?.summary;
        ensure!(summary.verdict == verdict, "{pod}: expected {verdict:?}, got {summary:?}");
    }
    let mut times = Vec::with_capacity(ROUNDS);
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        black_box(handle_review(settings, &KnownClasses::default(), hook, black_box(body))?);
        times.push(start.elapsed());
    }
    let rate = f64::from(u32::try_from(ROUNDS)?) / begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let micros = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e6);
    println!(
        "{:<9} {pod:<26} {:<10} {:>6} {rate:>12.0} {:>9} {:>9}",
        hook.as_str(),
        verdict.as_str(),
        body.len(),
        micros(times[ROUNDS / 2]),
        micros(times[ROUNDS * 99 / 100]),
    );
    Ok(())
}
