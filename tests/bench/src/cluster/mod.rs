//! Gangs on a real control plane: waiting times, gangs a second, and the cost for each process.
//!
//! Every run has a new control plane, and all processes share the cores. The floor is measured in the same
//! invocation, because only ratios to it can be compared between machines. No figure comes from the program
//! itself: the loader measures times, and the kernel and the API server measure costs.

pub(crate) mod account;
mod floor;
mod follow;
mod load;
mod marks;

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
pub(crate) use floor::{PROCESS as FLOOR, process as floor_process};
use portcullis::cluster::Client;
use portcullis_test_cluster::{Cluster, Node, Options, Portcullis, ProgramOptions};
use serde_json::json;

use crate::webhook::presented;
use account::{Requests, Usage};
use marks::Marks;

/// How gangs arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrival {
    /// This many concurrent creates, as fast as the answers come. If interleaved, the first members of all
    /// gangs come first.
    InFlight { creates: usize, interleaved: bool },
    /// One gang at each interval, with its pods one after the other.
    Steady(Duration),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    title: &'static str,
    gangs: usize,
    size: usize,
    arrival: Arrival,
    /// The number of gangs that fit on 200 nodes with 8 GPUs.
    room: usize,
    /// Whether the floor applies to this row.
    floor: bool,
}

const NODES: usize = 200;

const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "load",
        title: "200 gangs of 8, 20 creates in flight",
        gangs: 200,
        size: 8,
        arrival: Arrival::InFlight { creates: 20, interleaved: false },
        room: 200,
        floor: true,
    },
    Scenario {
        name: "steady",
        title: "60 gangs of 8, two a second",
        gangs: 60,
        size: 8,
        arrival: Arrival::Steady(Duration::from_millis(500)),
        room: 60,
        floor: true,
    },
    Scenario {
        name: "large",
        title: "one gang of 512, 20 creates in flight",
        gangs: 1,
        size: 512,
        arrival: Arrival::InFlight { creates: 20, interleaved: false },
        room: 1,
        floor: true,
    },
    Scenario {
        name: "crowd",
        title: "300 gangs of 8 created interleaved, capacity for 200",
        gangs: 300,
        size: 8,
        arrival: Arrival::InFlight { creates: 20, interleaved: true },
        room: 200,
        floor: false,
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Floor,
    Portcullis,
}

impl System {
    fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Portcullis => "portcullis",
        }
    }
}

/// Runs the named scenarios or all: `[NAME...] [--only floor|portcullis] [--then COMMAND]`. A shell runs the
/// command after Portcullis is installed, with KUBECONFIG set. With it one can measure a part of the
/// registration.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (mut names, mut only, mut then) = (Vec::new(), None, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--only" => only = Some(rest.next().context("--only needs floor or portcullis")?.as_str()),
            "--then" => then = Some(rest.next().context("--then needs a command")?.as_str()),
            name if SCENARIOS.iter().any(|s| s.name == name) => names.push(name),
            other => bail!("no scenario {other}: there are {}", SCENARIOS.map(|s| s.name).join(", ")),
        }
    }
    for scenario in SCENARIOS.iter().filter(|s| names.is_empty() || names.contains(&s.name)) {
        println!("{} ({} nodes of 8 GPUs, everything on the cores of this machine)", scenario.title, NODES);
        let mut columns = Vec::new();
        for system in [System::Floor, System::Portcullis] {
            let wanted = only.is_none_or(|only| only == system.name())
                && (system == System::Portcullis || scenario.floor);
            if wanted {
                eprintln!("  {} ...", system.name());
                columns.push((system, measure(*scenario, system, then)?));
            }
        }
        print_table(scenario, &columns);
        println!();
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// The result of one run.
struct Outcome {
    begun: Instant,
    marks: Vec<Vec<marks::Mark>>,
    /// CPU seconds of the run and memory, by process.
    costs: BTreeMap<String, (f64, Usage)>,
    requests: Requests,
}

/// The system under test: its processes, kept alive.
enum Running<'a> {
    Floor(Child),
    Portcullis(Portcullis<'a>),
}

/// Builds the program, so that no outdated binary is measured.
pub(crate) fn binary() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built =
        Command::new(cargo).args(["build", "--release", "--quiet", "--bin", "portcullis"]).status()?;
    ensure!(built.success(), "the program cannot be built");
    Ok(std::env::current_exe()?.with_file_name("portcullis"))
}

impl<'a> Running<'a> {
    fn start(system: System, cluster: &'a Cluster) -> anyhow::Result<Self> {
        match system {
            System::Portcullis => {
                let options = ProgramOptions { replicas: 1, ..ProgramOptions::new(binary()?) };
                Ok(Self::Portcullis(Portcullis::start(cluster, options)?))
            }
            System::Floor => {
                cluster.kubectl(&["apply", "-k", "manifests/components/pod-group-crds"]).expect_success();
                cluster.wait("/apis/scheduling.run.ai/v2alpha2/podgroups", "it is served", |list| {
                    list["items"].is_array()
                });
                let mut child = Command::new(std::env::current_exe()?)
                    .arg(FLOOR)
                    .arg(cluster.admin())
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()?;
                let mut output = BufReader::new(child.stdout.take().context("piped")?);
                let (address, ca_pem) = presented(&mut output)?;
                let registration = floor::registration(address, &ca_pem);
                cluster.kubectl_with(&["create", "-f", "-"], &registration.to_string()).expect_success();
                Ok(Self::Floor(child))
            }
        }
    }

    fn processes(&self) -> Vec<u32> {
        match self {
            Self::Floor(child) => vec![child.id()],
            Self::Portcullis(portcullis) => {
                (0..portcullis.replicas()).filter_map(|number| portcullis.process(number)).collect()
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Self::Floor(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs one row on a new control plane.
fn measure(scenario: Scenario, system: System, then: Option<&str>) -> anyhow::Result<Outcome> {
    let cluster = Cluster::start(&Options::default())?;
    let nodes: Vec<Node> = (0..NODES).map(|n| Node::whole(&format!("node-{n:03}"), 8)).collect();
    cluster.create_nodes(&nodes)?;
    let running = Running::start(system, &cluster)?;
    if let Some(command) = then.filter(|_| system == System::Portcullis) {
        let path = std::env::var("PATH").unwrap_or_default();
        let done = Command::new("sh")
            .args(["-c", command])
            .env("KUBECONFIG", cluster.admin())
            .env("PATH", format!("{}:{path}", cluster.bin().display()))
            .stdout(std::io::stderr())
            .status()?;
        ensure!(done.success(), "{command} failed");
        std::thread::sleep(Duration::from_secs(3));
    }
    let mut processes: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (part, id) in cluster.own().processes() {
        processes.insert(part.name().to_owned(), vec![id]);
    }
    processes.insert(system.name().to_owned(), running.processes());
    processes.insert("loader".to_owned(), vec![std::process::id()]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(drive(scenario, cluster.admin(), &processes))
}

async fn drive(
    scenario: Scenario,
    kubeconfig: &Path,
    processes: &BTreeMap<String, Vec<u32>>,
) -> anyhow::Result<Outcome> {
    let api = Client::from_kubeconfig(kubeconfig).await?;
    load::create(&api, "/api/v1/namespaces", &json!({"metadata": {"name": load::NAMESPACE}})).await?;
    warm_up(&api).await?;
    let marks = Marks::new(scenario.gangs, scenario.size);
    let watch = marks::watch(&api, &marks).await?;
    let (asked, spent) = (account::requests(&api).await?, usage(processes)?);
    let begun = load::run(&api, &marks, (scenario.gangs, scenario.size), scenario.arrival).await?;
    load::settle(&marks, scenario.room, Duration::from_secs(10), Duration::from_secs(120)).await;
    // The cost includes the work after a bind: the kubelet and the last status writes.
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(!watch.is_finished(), "the loader's watch ended, so the times are wrong");
    watch.abort();
    let requests = account::between(&asked, &account::requests(&api).await?);
    let costs = usage(processes)?.into_iter().map(|(name, after)| {
        let before = spent.get(&name).copied().unwrap_or_default();
        (name, (after.cpu - before.cpu, Usage { resident_mb: before.resident_mb, ..after }))
    });
    let costs = costs.collect();
    let marks = marks.all().clone();
    Ok(Outcome { begun, marks, costs, requests })
}

/// The CPU time of all processes with this name, and the memory of the largest.
fn usage(processes: &BTreeMap<String, Vec<u32>>) -> anyhow::Result<BTreeMap<String, Usage>> {
    let sum = |ids: &Vec<u32>| -> anyhow::Result<Usage> {
        ids.iter().try_fold(Usage::default(), |sum, id| {
            let one = account::usage(*id)?;
            Ok(Usage {
                cpu: sum.cpu + one.cpu,
                resident_mb: sum.resident_mb.max(one.resident_mb),
                peak_mb: sum.peak_mb.max(one.peak_mb),
            })
        })
    };
    processes.iter().map(|(name, ids)| Ok((name.clone(), sum(ids)?))).collect()
}

/// Runs one gang before the measurement, to warm up connections, compiled expressions and caches.
async fn warm_up(api: &Client) -> anyhow::Result<()> {
    const GANG: &str = "warm-up";
    let (pods, groups) = load::paths();
    load::create(api, &groups, &load::group(GANG, 2)).await?;
    for member in 0..2 {
        load::create(api, &pods, &load::pod(GANG, member, GANG)).await?;
    }
    let selector = format!("{pods}?labelSelector={}%3D{GANG}", marks::LABEL);
    let deadline = Instant::now() + Duration::from_secs(30);
    let list = async |path: &str| -> anyhow::Result<Vec<serde_json::Value>> {
        let reply = api.get(path).await?;
        let list: serde_json::Value = serde_json::from_slice(&reply.body)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    };
    let bound = |pods: &[serde_json::Value]| {
        pods.len() == 2 && pods.iter().all(|p| p["spec"]["nodeName"].is_string())
    };
    while !bound(&list(&selector).await?) {
        ensure!(Instant::now() < deadline, "the first gang was not bound within 30 s; is the system up?");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let delete = |path: String| async move {
        api.request(http::Method::DELETE, &path, "application/json", Vec::new()).await
    };
    for member in 0..2 {
        delete(format!("{pods}/{GANG}-{member}")).await?;
    }
    delete(format!("{groups}/{GANG}")).await?;
    while !list(&selector).await?.is_empty() {
        ensure!(Instant::now() < deadline, "the first gang was not deleted within 30 s");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

/// `p50 / p99` of these times.
fn percentiles(mut times: Vec<Duration>, unit: Unit) -> String {
    if times.is_empty() {
        return "-".to_owned();
    }
    times.sort_unstable();
    let at = |per_mille: usize| {
        let time = times[(times.len() * per_mille / 1000).min(times.len() - 1)];
        match unit {
            Unit::Millis => format!("{:.0}", time.as_secs_f64() * 1e3),
            Unit::Seconds => format!("{:.2}", time.as_secs_f64()),
        }
    };
    format!("{} / {}", at(500), at(990))
}

#[derive(Clone, Copy)]
enum Unit {
    Millis,
    Seconds,
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

/// The cells of one system, in the order of the rows.
fn cells(scenario: &Scenario, outcome: &Outcome) -> Vec<(String, String)> {
    let gangs = &outcome.marks;
    let pods = || gangs.iter().flatten();
    let whole: Vec<&Vec<marks::Mark>> =
        gangs.iter().filter(|gang| gang.iter().all(|m| m.bound.is_some())).collect();
    let torn = gangs
        .iter()
        .filter(|g| g.iter().any(|m| m.free.is_some()) && g.iter().any(|m| m.bound.is_none()))
        .count();
    let last =
        |gang: &[marks::Mark], of: fn(&marks::Mark) -> Option<Instant>| gang.iter().filter_map(of).max();
    let since_created = |of: fn(&marks::Mark) -> Option<Instant>| -> Vec<Duration> {
        let waits = whole
            .iter()
            .filter_map(|g| Some(last(g, of)?.saturating_duration_since(last(g, |m| m.created)?)));
        waits.collect()
    };
    let spread = whole.iter().filter_map(|g| {
        let first = g.iter().filter_map(|m| m.free).min()?;
        Some(last(g, |m| m.free)?.duration_since(first))
    });
    let end = |of: fn(&marks::Mark) -> Option<Instant>| {
        whole
            .iter()
            .filter_map(|g| last(g, of))
            .max()
            .map(|at| at.duration_since(outcome.begun).as_secs_f64())
    };
    let rate = |seconds: Option<f64>| {
        seconds.map_or("-".to_owned(), |s| format!("{:.1} ({s:.1} s)", number(whole.len()) / s))
    };
    let mut rows = vec![
        (
            "pod create p50 / p99, ms".to_owned(),
            percentiles(pods().filter(|m| m.created.is_some()).map(|m| m.took).collect(), Unit::Millis),
        ),
        (
            "last create to all gates gone p50 / p99, ms".to_owned(),
            percentiles(since_created(|m| m.free), Unit::Millis),
        ),
        (
            "last create to all bound p50 / p99, ms".to_owned(),
            percentiles(since_created(|m| m.bound), Unit::Millis),
        ),
        (
            "first to last gate of a gang p50 / p99, ms".to_owned(),
            percentiles(spread.collect(), Unit::Millis),
        ),
        ("first create to last gate gone p50 / p99, s".to_owned(), {
            let of = |g: &&Vec<marks::Mark>| {
                let first = g.iter().filter_map(|m| Some(m.created? - m.took)).min()?;
                Some(last(g, |m| m.free)?.duration_since(first))
            };
            percentiles(whole.iter().filter_map(of).collect(), Unit::Seconds)
        }),
        ("gangs/s to the last gate gone".to_owned(), rate(end(|m| m.free))),
        ("gangs/s to the last pod bound".to_owned(), rate(end(|m| m.bound))),
        ("gangs whole / torn".to_owned(), format!("{} / {torn}", whole.len())),
    ];
    let per_gang = |count: f64| count / number(scenario.gangs);
    let total: f64 =
        outcome.costs.iter().filter(|(name, _)| *name != "loader").map(|(_, (cpu, _))| cpu).sum();
    rows.push(("CPU of all but the loader, ms a gang".to_owned(), format!("{:.1}", per_gang(total) * 1e3)));
    for (name, (cpu, memory)) in &outcome.costs {
        let name = if name == "floor" || name == "portcullis" { "the system itself" } else { name };
        rows.push((
            format!("{name}: CPU s (ms a gang); MB before, peak"),
            format!(
                "{cpu:.2} ({:.1}); {:.0}, {:.0}",
                per_gang(*cpu) * 1e3,
                memory.resident_mb,
                memory.peak_mb
            ),
        ));
    }
    for (what, count) in outcome.requests.iter().filter(|(_, count)| per_gang(**count) >= 0.05) {
        rows.push((format!("asked: {what}, a gang"), format!("{:.2}", per_gang(*count))));
    }
    rows
}

fn print_table(scenario: &Scenario, columns: &[(System, Outcome)]) {
    let columns: Vec<(&str, Vec<(String, String)>)> =
        columns.iter().map(|(system, outcome)| (system.name(), cells(scenario, outcome))).collect();
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in columns.iter().flat_map(|(_, rows)| rows) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort_by_key(|name| name.starts_with("asked: "));
    print!("{:<58}", "");
    for (system, _) in &columns {
        print!(" {system:>24}");
    }
    println!();
    for name in names {
        print!("{name:<58}");
        for (_, rows) in &columns {
            let cell = rows.iter().find(|(row, _)| row == name).map_or("-", |(_, cell)| cell);
            print!(" {cell:>24}");
        }
        println!();
    }
}
