//! The cost of a run: CPU time and memory of every process, and the requests to the API server.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, ensure};
use portcullis::cluster::Client;

/// User and system time and memory of a process, from `/proc`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Seconds of CPU.
    pub(crate) cpu: f64,
    /// Current resident memory, in MB of a million bytes.
    pub(crate) resident_mb: f64,
    /// Peak resident memory.
    pub(crate) peak_mb: f64,
}

/// Reads the usage of a process.
pub(crate) fn usage(process: u32) -> anyhow::Result<Usage> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name = stat.rsplit_once(')').context("/proc/PID/stat has no name")?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u32 = fields[11].parse::<u32>()? + fields[12].parse::<u32>()?;
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let megabytes = |field: &str| -> anyhow::Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
        let kib: u32 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(f64::from(kib) * 1024.0 / 1e6)
    };
    // The clock tick is a hundredth of a second on every Linux that Rust supports.
    Ok(Usage {
        cpu: f64::from(ticks) / 100.0,
        resident_mb: megabytes("VmRSS:")?,
        peak_mb: megabytes("VmHWM:")?,
    })
}

/// The request counters of the API server, by `VERB resource/subresource`.
pub(super) type Requests = BTreeMap<String, f64>;

/// Reads the request counters of the API server.
pub(super) async fn requests(api: &Client) -> anyhow::Result<Requests> {
    let reply = api.get("/metrics").await?;
    ensure!(reply.ok(), "the API server shows no metrics: {}", reply.message());
    let text = String::from_utf8_lossy(&reply.body);
    let mut requests = Requests::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("apiserver_request_total{") else { continue };
        let Some((labels, value)) = rest.rsplit_once("} ") else { continue };
        let label = |name: &str| {
            labels
                .split("\",")
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\""))
                .unwrap_or("")
                .trim_end_matches('"')
        };
        let (verb, resource, subresource) = (label("verb"), label("resource"), label("subresource"));
        let slash = if subresource.is_empty() { "" } else { "/" };
        *requests.entry(format!("{verb} {resource}{slash}{subresource}")).or_default() +=
            value.parse::<f64>().unwrap_or(0.0);
    }
    Ok(requests)
}

/// The requests between two readings.
pub(super) fn between(before: &Requests, after: &Requests) -> Requests {
    let change = |(key, value): (&String, &f64)| {
        let change = value - before.get(key).copied().unwrap_or(0.0);
        (change > 0.0).then(|| (key.clone(), change))
    };
    after.iter().filter_map(change).collect()
}
