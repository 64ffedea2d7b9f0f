//! Replaces the replicas and rotates the authority while pods are created continuously. No create may fail.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use portcullis_core::objects::names;
use portcullis_test_cluster::wait::WAIT_TIMEOUT;
use portcullis_test_cluster::{Node, Portcullis, Signal};
use serde_json::{Value, json};

use super::points::{ProcessState, process_state};
use super::stage::{Gang, MemberRequest, Stage, cluster, program};

const SECRET: &str = "/api/v1/namespaces/portcullis-system/secrets/portcullis-tls";

#[test]
fn no_create_fails_while_replicas_and_authority_are_replaced() {
    let Some(cluster) = cluster() else { return };
    let node = Node { cpus: 10_000, memory_gib: 10_000, pods: 10_000, ..Node::plain("large") };
    cluster.create_nodes(&[node]).unwrap();
    let mut options = program(&cluster);
    options.flags.push("--shutdown-delay=3s".to_owned());
    let portcullis = Portcullis::start(&cluster, options).unwrap();
    let stage = Stage::new(&cluster, &portcullis);
    let stream = Stream::default();
    stage.watched(|| {
        std::thread::scope(|scope| {
            let end = super::stage::SetOnDrop(&stream.over);
            for thread in 0..3 {
                let (stage, stream) = (&stage, &stream);
                scope.spawn(move || stream.run(stage, thread));
            }
            // The rotation of the authority takes a minute, the replacement of the replicas less.
            cluster.api().merge(SECRET, &json!({"data": {"ca.key": null}})).unwrap();
            let before = cluster.api().get(SECRET).unwrap()["data"]["tls.crt"].clone();
            for old in 0..2 {
                replace(&stage, old);
            }
            cluster.wait_for(2 * WAIT_TIMEOUT, SECRET, "the new authority has signed", |secret| {
                !secret["data"]["ca.key"].is_null() && secret["data"]["tls.crt"] != before
            });
            std::thread::sleep(Duration::from_secs(3));
            drop(end);
        });
        let failures = stream.failures.lock().unwrap();
        let made = stream.made.load(Ordering::Relaxed);
        println!("{made} pods created");
        assert!(failures.is_empty(), "{} of {made} creates failed:\n{}", failures.len(), failures.join("\n"));
        stage.settle("after the rollout");
        let gangs = cluster.api().get("/apis/portcullis.dev/v1alpha1/gangs").unwrap();
        let torn = |gang: &&Value| gang["status"]["conditions"].to_string().contains("Torn");
        assert_eq!(gangs["items"].as_array().unwrap().iter().find(torn), None);
    });
}

/// Replaces a replica as a rolling update does: starts a new one, waits until it is ready, and stops the old
/// one. The old one stays in the Service until it is seen not ready.
fn replace(stage: &Stage<'_>, old: usize) {
    let portcullis = stage.portcullis;
    let new = portcullis.add().unwrap();
    portcullis.wait_ready(new).unwrap();
    portcullis.signal(old, Signal::TERM).unwrap();
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while process_state(portcullis, old) != ProcessState::Dead {
        assert!(Instant::now() < deadline, "portcullis-{old} does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    portcullis.balancer().remove(&format!("portcullis-{old}"));
    portcullis.kill(old);
}

/// Creates about thirty pods a second.
#[derive(Default)]
struct Stream {
    over: AtomicBool,
    made: AtomicU32,
    failures: Mutex<Vec<String>>,
}

impl Stream {
    fn run(&self, stage: &Stage<'_>, thread: u32) {
        let namespace = stage.namespace("stream");
        let mut here: Vec<Gang> = Vec::new();
        for index in 0.. {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            let next = Instant::now() + Duration::from_millis(300);
            let gang = Gang::new(&namespace, &format!("gang-{thread}-{index}"), 3, MemberRequest::NoGpu);
            stage.create_group(&gang);
            for member in 0..gang.members {
                self.create(stage, &gang, member);
            }
            here.push(gang);
            if here.len() > 20 {
                stage.delete_gang(&here.remove(0));
            }
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    /// One attempt, because a user of kubectl does not retry.
    fn create(&self, stage: &Stage<'_>, gang: &Gang, member: u32) {
        let path = format!("/api/v1/namespaces/{}/pods", gang.namespace);
        let pod = gang.pod(member);
        self.made.fetch_add(1, Ordering::Relaxed);
        let failure =
            match stage.cluster.api().send(http::Method::POST, &path, "application/json", Some(&pod)) {
                Ok(answer) if answer.code == 201 => {
                    let gates = answer.body["spec"]["schedulingGates"].to_string();
                    if gates.contains(names::GATE) {
                        return;
                    }
                    format!("no gate: {gates}")
                }
                Ok(answer) => format!("{} {}", answer.code, answer.body["message"]),
                Err(error) => format!("{error:#}"),
            };
        self.failures.lock().unwrap().push(failure);
    }
}
