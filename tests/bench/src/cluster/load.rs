//! The load: gangs of plain GPU pods with a group object each, as a user creates them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use http::Method;
use portcullis::cluster::Client;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, Semaphore};

use super::Arrival;
use super::marks::{LABEL, Marks};

/// The namespace of the load.
pub(super) const NAMESPACE: &str = "bench";

/// The group object of a gang.
pub(super) fn group(name: &str, size: usize) -> Value {
    json!({
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"minMember": size},
    })
}

/// A member: about 1 KB, one container, one GPU.
pub(super) fn pod(gang: &str, member: usize, label: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": NAMESPACE,
            "name": format!("{gang}-{member}"),
            "labels": {"app": "trainer", "kai.scheduler/podgroup": gang, LABEL: label},
            "annotations": {"pod-group-name": gang},
        },
        "spec": {
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "trainer",
                "image": "registry.example/team/trainer:2.4.1",
                "command": ["python", "train.py", "--epochs=10"],
                "env": [
                    {"name": "RANK", "value": member.to_string()},
                    {"name": "MASTER_ADDR", "value": format!("{gang}-0.{gang}")},
                ],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}},
            }],
        },
    })
}

/// Creates an object. Any status other than 201 ends the run.
pub(super) async fn create(api: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let reply = api.request(Method::POST, path, "application/json", object.to_string().into_bytes()).await?;
    ensure!(reply.ok(), "POST {path} was answered with {}: {}", reply.code, reply.message());
    Ok(())
}

/// Path of the pods and of the groups.
pub(super) fn paths() -> (String, String) {
    (
        format!("/api/v1/namespaces/{NAMESPACE}/pods"),
        format!("/apis/scheduling.run.ai/v2alpha2/namespaces/{NAMESPACE}/podgroups"),
    )
}

/// Creates all gangs and waits for the last answer. Returns the time of the first request.
pub(super) async fn run(
    api: &Client,
    marks: &Arc<Marks>,
    (gangs, size): (usize, usize),
    arrival: Arrival,
) -> anyhow::Result<Instant> {
    let begun = Instant::now();
    match arrival {
        Arrival::Steady(every) => {
            let mut tasks = Vec::new();
            for gang in 0..gangs {
                tokio::time::sleep_until((begun + every * u32::try_from(gang)?).into()).await;
                tasks.push(tokio::spawn(one_gang(api.clone(), Arc::clone(marks), gang, size)));
            }
            for task in tasks {
                task.await??;
            }
        }
        Arrival::InFlight { creates, interleaved } => {
            let order: Vec<(usize, usize)> = if interleaved {
                (0..size).flat_map(|member| (0..gangs).map(move |gang| (gang, member))).collect()
            } else {
                (0..gangs).flat_map(|gang| (0..size).map(move |member| (gang, member))).collect()
            };
            let slots = Arc::new(Semaphore::new(creates));
            let groups: Arc<Vec<OnceCell<()>>> = Arc::new((0..gangs).map(|_| OnceCell::new()).collect());
            let mut tasks = Vec::new();
            for (gang, member) in order {
                let slot = Arc::clone(&slots).acquire_owned().await?;
                let (api, marks, groups) = (api.clone(), Arc::clone(marks), Arc::clone(&groups));
                tasks.push(tokio::spawn(async move {
                    // The group before its pods, as `kubectl apply` does.
                    groups[gang].get_or_try_init(|| new_group(&api, gang, size)).await?;
                    let outcome = new_pod(&api, &marks, gang, member).await;
                    drop(slot);
                    outcome
                }));
            }
            for task in tasks {
                task.await??;
            }
        }
    }
    Ok(begun)
}

async fn one_gang(api: Client, marks: Arc<Marks>, gang: usize, size: usize) -> anyhow::Result<()> {
    new_group(&api, gang, size).await?;
    for member in 0..size {
        new_pod(&api, &marks, gang, member).await?;
    }
    Ok(())
}

async fn new_group(api: &Client, gang: usize, size: usize) -> anyhow::Result<()> {
    create(api, &paths().1, &group(&format!("gang-{gang}"), size)).await
}

async fn new_pod(api: &Client, marks: &Marks, gang: usize, member: usize) -> anyhow::Result<()> {
    let object = pod(&format!("gang-{gang}"), member, "load");
    let sent = Instant::now();
    create(api, &paths().0, &object).await?;
    marks.created(gang, member, sent);
    Ok(())
}

/// Waits until every gang is bound, no pod has been bound for `idle`, or the time limit is reached.
pub(super) async fn settle(marks: &Marks, wanted: usize, idle: Duration, most: Duration) {
    let (begun, mut last, mut moved) = (Instant::now(), marks.bound(), Instant::now());
    while last.0 < wanted && moved.elapsed() < idle && begun.elapsed() < most {
        let _ = tokio::time::timeout(Duration::from_millis(500), marks.changed.notified()).await;
        let now = marks.bound();
        if now != last {
            (last, moved) = (now, Instant::now());
        }
    }
}
