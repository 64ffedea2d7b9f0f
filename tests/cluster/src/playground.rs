//! The test cluster for interactive use. It keeps running after `up` ends, until `down`.
//!
//! The directory `target/cluster/playground` holds its list of processes, kubeconfig, logs and data.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::api::Api;
use crate::binaries::{Binaries, root, scratch};
use crate::cluster::Cluster;
use crate::control_plane::{ControlPlane, Options};
use crate::guard::Process;
use crate::nodes::Node;
use crate::ports;
use crate::program::{ProgramOptions, install, recipe, redirect, wait_answering, wait_gating};
use crate::wait::has_condition;

/// Objects that GPU clusters usually have: a priority class for inference, and the runtime class of NVIDIA.
const CLASSES: &str = "\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: inference}
value: 125
description: Models that answer requests.
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: nvidia
";

fn directory() -> PathBuf {
    scratch().join("playground")
}

fn kubeconfig() -> PathBuf {
    directory().join("admin.kubeconfig")
}

/// The processes that `up` started: name and process group.
fn processes() -> Vec<(String, i32)> {
    let text = fs::read_to_string(directory().join("processes")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, group)| Some((name.to_owned(), group.parse().ok()?)))
        .collect()
}

/// Whether the process still belongs to the playground. The system reuses process ids.
fn is_ours(process: i32) -> bool {
    let place = fs::read_link(format!("/proc/{process}/cwd"));
    place.map_or(!Path::new("/proc/self").exists(), |place| {
        fs::canonicalize(directory()).is_ok_and(|own| own == place)
    })
}

/// Whether the API server of a playground answers.
fn answers() -> bool {
    kubeconfig().is_file()
        && processes().iter().any(|(_, process)| is_ours(*process))
        && Api::new(&kubeconfig()).and_then(|api| api.get("/readyz")).is_ok()
}

/// Starts the playground, unless it is up.
///
/// # Errors
/// Names the part that did not start, and why. No process is left then.
pub fn up() -> Result<()> {
    if answers() {
        println!("The playground is up already.");
        print_instructions();
        return Ok(());
    }
    kill_remaining();
    let began = Instant::now();
    let step = |what: &str| eprintln!("{:>4} s  {what}", began.elapsed().as_secs());
    let binary = program()?;

    step("looking for the control plane");
    Binaries::of(Options::default().version)?;
    step("etcd, API server, scheduler, controllers, fake kubelets");
    let cluster = Cluster::of(ControlPlane::start_in(&Options::default(), &directory())?)?;

    step("nodes with GPUs");
    let mut nodes = vec![Node::whole("gpu-1", 8), Node::whole("gpu-2", 8)];
    nodes.extend((1..=3).map(|number| Node::shared(&format!("shared-{number}"), 1, 32_768)));
    cluster.create_nodes(&nodes)?;
    let classes = cluster.apply("default", CLASSES);
    if classes.code != 0 {
        bail!("{}", classes.stderr);
    }

    step("Portcullis: kubectl apply -k manifests/");
    let mut options = ProgramOptions::new(binary);
    options.flags.push("--shutdown-delay=0s".to_owned());
    install(&cluster, &options.components)?;
    let (webhook, admin) = (ports::free()?, ports::free()?);
    redirect(&cluster, webhook)?;
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let recipe = recipe(&cluster, &options, "portcullis-0", loopback(webhook), loopback(admin))?;
    let mut portcullis = recipe.start(cluster.guard())?;
    wait_answering(&cluster, loopback(admin), &mut portcullis)?;
    wait_gating(&cluster)?;

    detach(&cluster, &portcullis)?;
    step("ready");
    print_instructions();
    Ok(())
}

/// Writes the list of processes and detaches them, so that they outlive this process.
fn detach(cluster: &Cluster, portcullis: &Process) -> Result<()> {
    let mut text: String =
        cluster.own().processes().iter().map(|(part, process)| format!("{part} {process}\n")).collect();
    text.push_str(&format!("portcullis {}\n", portcullis.id()));
    fs::write(directory().join("processes"), text)?;
    cluster.own().detach();
    Ok(())
}

/// The binary beside this one.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.with_file_name("portcullis");
    if !path.is_file() {
        bail!(
            "{} is not there: run `cargo build`, or start the playground by tests/cluster/up",
            path.display()
        );
    }
    Ok(path)
}

fn print_instructions() {
    let here = std::env::current_dir().unwrap_or_default();
    let root = root();
    let shown = |path: &Path| path.strip_prefix(&here).unwrap_or(path).display().to_string();
    let path = if on_path("kubectl") {
        String::new()
    } else {
        format!("  export PATH='{}':$PATH      # has kubectl\n", directory().join("bin").display())
    };
    let program = program().map_or("portcullis".to_owned(), |program| shown(&program));
    let text = format!(
        "
A Kubernetes cluster of your own, with Portcullis. In your shell:

  export KUBECONFIG='{kubeconfig}'
{path}
1. An app and the two models it calls, 20,000 MiB of GPU memory in all: the three start together or not at all.

  kubectl apply -f {example}
  kubectl get gangs
  kubectl get pods -o wide

2. Without capacity the gang waits as one, and its status names what is short. Then it starts:

  kubectl delete -f {example}
  kubectl cordon shared-1 shared-2 shared-3
  kubectl apply -f {example}
  sleep 2; kubectl get gangs
  kubectl describe gang app-with-models
  kubectl uncordon shared-3
  sleep 2; kubectl get gangs

3. Mistakes are refused while you watch, each with its place and its fix:

  kubectl create namespace try
  kubectl apply -n try -f {mistakes}

4. Is everything as it should be?

  {program} doctor

gpu-1 and gpu-2 have 8 cards each, given out whole; shared-1 to shared-3 have one card of 32 GiB each, shared by memory.
The nodes are made up and no container runs; everything else is real. Logs: {logs}
When you have had enough: {down}
",
        kubeconfig = kubeconfig().display(),
        example = shown(&root.join("manifests/examples/app-with-models.yaml")),
        mistakes = shown(&root.join("tests/data/review/contradictions.yaml")),
        logs = shown(&directory()),
        down = shown(&root.join("tests/cluster/down")),
    );
    // A closed pipe, as from `head`, is not an error.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Ends the playground and removes all of it.
///
/// # Errors
/// When its directory cannot be removed.
pub fn down() -> Result<()> {
    if !directory().exists() {
        println!("There is no playground.");
        return Ok(());
    }
    let ended = kill_remaining();
    if directory().exists() {
        bail!("{} cannot be removed", directory().display());
    }
    println!("The playground is gone: {ended} processes ended, {} removed.", directory().display());
    Ok(())
}

/// Ends the remaining processes of a playground, and returns their number.
fn kill_remaining() -> usize {
    let mut groups: Vec<i32> = processes().into_iter().map(|(_, group)| group).collect();
    // The API server ends before etcd.
    groups.reverse();
    groups.retain(|group| is_ours(*group));
    for group in &groups {
        if let Some(group) = Pid::from_raw(*group) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while groups.iter().any(|group| is_ours(*group)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = fs::remove_dir_all(directory());
    groups.len()
}

/// Prints the state of the playground.
///
/// # Errors
/// When the API server does not answer.
pub fn status() -> Result<()> {
    if processes().is_empty() {
        println!("There is no playground. {} starts one.", root().join("tests/cluster/up").display());
        return Ok(());
    }
    for (name, process) in processes() {
        let state = if is_ours(process) { "running" } else { "ended" };
        let _ = writeln!(std::io::stdout(), "{name:<24} {process:>8}  {state}");
    }
    let api = Api::new(&kubeconfig())?;
    let nodes = api.get("/api/v1/nodes").context("the API server does not answer")?;
    let empty = Vec::new();
    let nodes: &Vec<Value> = nodes["items"].as_array().unwrap_or(&empty);
    let ready = nodes.iter().filter(|node| has_condition(node, "Ready")).count();
    let _ = writeln!(std::io::stdout(), "{ready} of {} nodes are ready", nodes.len());
    print_instructions();
    Ok(())
}

/// Runs `kubectl` with the kubeconfig of the playground, for users without a kubectl.
///
/// # Errors
/// When there is no playground.
pub fn kubectl(arguments: &[String]) -> Result<i32> {
    if !answers() {
        bail!("there is no playground");
    }
    let status = Command::new(directory().join("bin/kubectl"))
        .args(arguments)
        .env("KUBECONFIG", kubeconfig())
        .status()?;
    Ok(status.code().unwrap_or(1))
}
