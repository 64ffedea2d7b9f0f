//! A large cluster: the memory for its pods, and the duration of a takeover.
//!
//! The pods exist before Portcullis starts, because tens of thousands of webhook calls are another benchmark.
//! No process runs for them. Four fifths of the pods are bound and every card is in use, so that the
//! remaining gangs wait.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use portcullis_test_cluster::{Api, Cluster, Node, Options, Part, Portcullis, ProgramOptions};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::cluster::account::usage;
use crate::cluster::binary;

const NAMESPACE: &str = "bench";
/// Members of a gang, and cards of a node.
const SIZE: usize = 8;

/// Fills a cluster with pods (default 50,000) and prints a table: `[PODS]`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let pods: usize = match arguments {
        [] => 50_000,
        [number] => number.parse().with_context(|| format!("{number} is no number of pods"))?,
        _ => bail!("one number of pods, no more"),
    };
    let binary = binary()?;
    let without = vec![Part::Scheduler, Part::ControllerManager, Part::Kubelets];
    let cluster = Cluster::start(&Options { without, ..Options::default() })?;
    let filled = fill(&cluster, pods)?;

    eprintln!("  two replicas ...");
    let portcullis = Portcullis::start(&cluster, ProgramOptions::new(binary))?;
    let has_read = |number: usize| contains(&portcullis.log(number), "takeover complete");
    let leader = wait_for("a leader to read everything", || (0..2).find(|number| has_read(*number)))?;
    let told = settled(&cluster, filled.waiting)?;
    let memory = |number: usize| -> anyhow::Result<String> {
        let process = portcullis.process(number).context("it runs")?;
        let usage = usage(process)?;
        Ok(format!("{:.0} MB ({:.0} at most)", usage.resident_mb, usage.peak_mb))
    };
    let (leads, follows) = (memory(leader)?, memory(1 - leader)?);

    eprintln!("  the leader is killed ...");
    let killed = Instant::now();
    portcullis.kill(leader);
    wait_for("another leader", || contains(&portcullis.log(1 - leader), "acquired the lease").then_some(()))?;
    let leading = killed.elapsed();
    wait_for("it to read everything", || has_read(1 - leader).then_some(()))?;
    let took = killed.elapsed();
    std::thread::sleep(Duration::from_secs(10));

    println!(
        "{pods} pods of {} bytes on {} nodes, {} gangs wait",
        filled.bytes, filled.nodes, filled.waiting
    );
    println!("  leader, resident             {leads}");
    println!("  follower, resident           {follows}");
    println!("  new leader, resident         {}", memory(1 - leader)?);
    println!("  leader killed to next leads  {:.1} s", leading.as_secs_f64());
    println!("  ... to everything read       {:.1} s", took.as_secs_f64());
    println!("  start to all gangs told      {:.1} s", told.as_secs_f64());
    Ok(())
}

/// The numbers of created objects.
struct Filled {
    nodes: usize,
    /// The number of gangs that do not fit.
    waiting: usize,
    /// The size of a bound pod as JSON from the API server.
    bytes: usize,
}

fn fill(cluster: &Cluster, pods: usize) -> anyhow::Result<Filled> {
    let gangs = pods / 5 / SIZE;
    // This many gangs hold all cards, and the same number waits.
    let nodes = gangs.max(1);
    let (members, others) = (gangs * SIZE, pods - 2 * gangs * SIZE);
    eprintln!("  {nodes} nodes, {pods} pods ...");
    let all: Vec<Node> =
        (0..nodes).map(|n| Node { pods: 250, ..Node::whole(&format!("node-{n:04}"), 8) }).collect();
    cluster.create_nodes(&all)?;
    let components = Path::new("manifests/components/pod-group-crds").display().to_string();
    cluster.kubectl(&["apply", "-k", &components]).expect_success();
    cluster
        .kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"])
        .expect_success();
    let api = cluster.api();
    api.create("/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}}))?;
    let node = |number: usize| format!("node-{:04}", number % nodes);
    let groups = (0..2 * gangs).map(|gang| {
        let group = json!({
            "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": format!("gang-{gang}")}, "spec": {"minMember": SIZE},
        });
        (format!("/apis/scheduling.run.ai/v2alpha2/namespaces/{NAMESPACE}/podgroups"), group)
    });
    let bound = (0..members).map(|number| pod(number, Some(number / SIZE), Some(&node(number / SIZE))));
    let waiting = (members..2 * members).map(|number| pod(number, Some(number / SIZE), None));
    let plain = (2 * members..2 * members + others).map(|number| pod(number, None, Some(&node(number))));
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let all = groups.chain(bound.chain(waiting).chain(plain).map(|pod| (path.clone(), pod)));
    api.runtime().block_on(create_all(api, all))?;
    let sample = api.get(&format!("{path}/pod-{}", 2 * members))?;
    Ok(Filled { nodes, waiting: gangs, bytes: sample.to_string().len() })
}

async fn create_all(api: &Api, objects: impl Iterator<Item = (String, Value)>) -> anyhow::Result<()> {
    let (slots, mut tasks) = (Arc::new(Semaphore::new(32)), JoinSet::new());
    for (path, object) in objects {
        let slot = Arc::clone(&slots).acquire_owned().await?;
        let client = api.client();
        tasks.spawn(async move {
            let answer =
                Api::request(client, http::Method::POST, &path, "application/json", Some(&object)).await?;
            drop(slot);
            answer.into_result()
        });
        while let Some(done) = tasks.try_join_next() {
            done??;
        }
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// A pod as controllers create it, with probes, volumes, environment and an owner. A gang member requests a
/// card, and has the gate unless it is bound.
fn pod(number: usize, gang: Option<usize>, node: Option<&str>) -> Value {
    let name = format!("pod-{number}");
    let owner = format!("workload-{}", number / SIZE);
    let environment: Vec<Value> = (0..8)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value-{n}-of-{name}")}))
        .collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    let mut requests = json!({"cpu": "100m", "memory": "256Mi"});
    if gang.is_some() {
        requests["nvidia.com/gpu"] = json!(1);
    }
    let limits = requests.clone();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": owner, "pod-template-hash": "5d9c7b8f6d"},
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": "8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4"},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": owner, "controller": true,
                "uid": format!("00000000-0000-4000-8000-{:012}", number / SIZE),
            }],
        },
        "spec": {
            "containers": [{
                "name": "main", "image": "registry.example/team/service@sha256:8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4",
                "args": ["--config=/etc/service/config.yaml", "--log-format=json"],
                "env": environment, "ports": [{"name": "http", "containerPort": 8080}],
                "livenessProbe": probe, "readinessProbe": probe,
                "resources": {"requests": requests, "limits": limits},
                "volumeMounts": [{"name": "config", "mountPath": "/etc/service"}, {"name": "scratch", "mountPath": "/tmp"}],
            }],
            "volumes": [{"name": "config", "configMap": {"name": owner}}, {"name": "scratch", "emptyDir": {}}],
        },
    });
    if let Some(gang) = gang {
        let gang = format!("gang-{gang}");
        pod["metadata"]["labels"]["kai.scheduler/podgroup"] = json!(gang);
        pod["metadata"]["annotations"]["pod-group-name"] = json!(gang);
    }
    match node {
        Some(node) => pod["spec"]["nodeName"] = json!(node),
        None => pod["spec"]["schedulingGates"] = json!([{"name": "portcullis.dev/gang"}]),
    }
    pod
}

/// The time until every waiting gang has its status.
fn settled(cluster: &Cluster, waiting: usize) -> anyhow::Result<Duration> {
    let began = Instant::now();
    wait_for("every gang to say that it waits", || {
        let gangs = cluster.api().get("/apis/portcullis.dev/v1alpha1/gangs").ok()?;
        let gangs = gangs["items"].as_array()?;
        (gangs.iter().filter(|gang| gang["status"]["phase"] == "Waiting").count() >= waiting).then_some(())
    })?;
    Ok(began.elapsed())
}

/// Whether a log contains this text.
fn contains(log: &Path, words: &str) -> bool {
    std::fs::read_to_string(log).is_ok_and(|text| text.contains(words))
}

fn wait_for<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        if let Some(found) = is_so() {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "waited five minutes for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
