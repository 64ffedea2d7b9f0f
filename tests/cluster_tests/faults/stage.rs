//! A cluster with Portcullis, and the steps that the fault tests share.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use portcullis_core::objects::names;
use portcullis_test_cluster::wait::WAIT_TIMEOUT;
use portcullis_test_cluster::{Cluster, Options, Portcullis, ProgramOptions, Version, available};
use serde_json::{Value, json};

use super::checker::ClusterObjects;

pub(crate) const PODGROUPS: &str = "/apis/scheduling.run.ai/v2alpha2";
pub(crate) const GANGS: &str = "/apis/portcullis.dev/v1alpha1";

/// A new cluster for a test; `None` where fault tests cannot run.
pub(crate) fn cluster() -> Option<Cluster> {
    static REPORTED: Once = Once::new();
    if !cfg!(feature = "failpoints") {
        // The test runner captures `eprintln!` of a test that passes, so this writes to stderr directly.
        let left_out =
            "left out the faults on a real Kubernetes: cargo cluster-tests --features failpoints faults";
        REPORTED.call_once(|| {
            let _ = writeln!(std::io::stderr(), "{left_out}");
        });
        return None;
    }
    available(Version::default()).then(|| Cluster::start(&Options::default()).unwrap())
}

/// Two replicas with debug logs, and a file for each that sets its fail points.
pub(crate) fn program(cluster: &Cluster) -> ProgramOptions {
    let mut options = ProgramOptions::new(env!("CARGO_BIN_EXE_portcullis"));
    let points = format!("@{}/{{name}}.failpoint", cluster.directory().display());
    options.environment = vec![
        ("PORTCULLIS_FAILPOINT".to_owned(), points),
        ("PORTCULLIS_LOG".to_owned(), "info,portcullis=debug".to_owned()),
    ];
    options
}

/// The request of each member of a gang.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemberRequest {
    /// MiB of one card.
    Vram(u64),
    /// Whole cards.
    Whole(u64),
    /// No GPU.
    NoGpu,
}

/// The description of a gang to create.
#[derive(Clone, Debug)]
pub(crate) struct Gang {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) members: u32,
    pub(crate) ask: MemberRequest,
}

impl Gang {
    pub(crate) fn new(namespace: &str, name: &str, members: u32, ask: MemberRequest) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), members, ask }
    }

    pub(crate) fn pod(&self, index: u32) -> Value {
        let name = &self.name;
        let mut annotations = json!({names::KAI_GROUP_ANNOTATION: name});
        let mut limits = json!({"cpu": "1", "memory": "1Gi"});
        match self.ask {
            MemberRequest::Vram(mib) => annotations[names::GPU_MEMORY] = mib.to_string().into(),
            MemberRequest::Whole(cards) => limits[names::NVIDIA_GPU] = cards.to_string().into(),
            MemberRequest::NoGpu => {}
        }
        json!({
            "metadata": {
                "name": format!("{name}-{index}"), "annotations": annotations,
                "labels": {names::KAI_GROUP_LABEL: name, "gang": name},
            },
            "spec": {"containers": [{"name": "main", "image": "example.com/nothing", "resources": {"limits": limits}}]},
        })
    }

    pub(crate) fn group(&self) -> Value {
        json!({
            "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": self.name}, "spec": {"minMember": self.members},
        })
    }

    pub(crate) fn path(&self) -> String {
        format!("{GANGS}/namespaces/{}/gangs/{}", self.namespace, self.name)
    }
}

/// A cluster with Portcullis and the violations seen so far.
pub(crate) struct Stage<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) portcullis: &'a Portcullis<'a>,
    /// Safety violations seen so far.
    seen: Mutex<BTreeSet<String>>,
    over: AtomicBool,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(cluster: &'a Cluster, portcullis: &'a Portcullis<'a>) -> Self {
        Self { cluster, portcullis, seen: Mutex::default(), over: AtomicBool::new(false) }
    }

    /// Runs a function while a thread looks continuously for violations.
    pub(crate) fn watched(&self, story: impl FnOnce()) {
        std::thread::scope(|scope| {
            let sentry = scope.spawn(|| self.watch());
            let end = SetOnDrop(&self.over);
            story();
            drop(end);
            let looks = sentry.join().unwrap();
            assert!(looks > 0, "the checker never ran");
        });
        self.assert_no_violation("while all this was played");
    }

    fn watch(&self) -> u32 {
        let mut looks = 0;
        let mut suspects = Vec::new();
        while !self.over.load(Ordering::Relaxed) {
            // Nothing changes while the API server is stopped.
            if let Ok(state) = ClusterObjects::read(self.cluster.api()) {
                looks += 1;
                let never = state.safety_violations();
                // Pods and gangs are read one after the other, so a violation counts when it is seen twice.
                let certain = never.iter().filter(|wrong| suspects.contains(*wrong));
                self.seen.lock().unwrap().extend(certain.cloned());
                suspects = never;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        looks
    }

    #[track_caller]
    fn assert_no_violation(&self, what: &str) {
        let seen = self.seen.lock().unwrap().clone();
        assert!(seen.is_empty(), "{what}: this may never be so:\n{}", Vec::from_iter(seen).join("\n"));
    }

    /// Waits until the cluster has settled without a violation.
    #[track_caller]
    pub(crate) fn settle(&self, what: &str) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            self.assert_no_violation(what);
            let wrong = match ClusterObjects::read_all(self.cluster.api()) {
                Ok(state) => {
                    let mut wrong = state.safety_violations();
                    wrong.extend(state.liveness_violations());
                    wrong.extend(self.leaders());
                    wrong
                }
                Err(error) => vec![format!("{error:#}")],
            };
            if wrong.is_empty() {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{what}: after {WAIT_TIMEOUT:?} still\n{}\n{}",
                wrong.join("\n"),
                self.cluster.recent_events("")
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Whether one replica leads, by its own metric and by the lease.
    fn leaders(&self) -> Option<String> {
        let holder = self.portcullis.leader();
        let running = (0..self.portcullis.replicas()).filter(|n| self.portcullis.process(*n).is_some());
        let leading: Vec<usize> = running.filter(|n| self.leads(*n)).collect();
        let wrong = holder.is_none() || leading != holder.iter().copied().collect::<Vec<_>>();
        wrong.then(|| format!("the lease names {holder:?}, and {leading:?} lead"))
    }

    fn leads(&self, replica: usize) -> bool {
        let ask = || -> std::io::Result<String> {
            let address =
                self.portcullis.admin(replica).ok_or_else(|| std::io::Error::other("no such replica"))?;
            let mut connection = TcpStream::connect(address)?;
            connection.set_read_timeout(Some(Duration::from_secs(1)))?;
            connection.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
            let mut text = String::new();
            connection.read_to_string(&mut text)?;
            Ok(text)
        };
        ask().is_ok_and(|text| text.lines().any(|line| line == "portcullis_leader 1"))
    }

    /// Creates a namespace, with retries.
    #[track_caller]
    pub(crate) fn namespace(&self, name: &str) -> String {
        let mut made = String::new();
        retry("a namespace", || match self.cluster.namespace(name) {
            Ok(namespace) => {
                made = namespace;
                Ok(())
            }
            Err(error) => Err(format!("{error:#}")),
        });
        made
    }

    /// Creates a pod without a gang that never fits. While it waits, the engine nominates members before it
    /// lifts them.
    #[track_caller]
    pub(crate) fn create_rival(&self, namespace: &str) {
        let resources = json!({"requests": {"cpu": "10k"}});
        let container = json!({"name": "main", "image": "example.com/nothing", "resources": resources});
        let pod = json!({"metadata": {"name": "rival"}, "spec": {"containers": [container]}});
        self.create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod);
    }

    /// Creates an object with retries, as a controller does.
    #[track_caller]
    pub(crate) fn create(&self, collection: &str, object: &Value) {
        retry(&format!("{collection} {}", object["metadata"]["name"]), || {
            let answer =
                self.cluster.api().send(http::Method::POST, collection, "application/json", Some(object));
            match answer {
                // The object exists: the answer to an earlier attempt was lost.
                Ok(answer) if answer.code < 300 || answer.code == 409 => Ok(()),
                Ok(answer) => Err(format!("{} {}", answer.code, answer.body["message"])),
                Err(error) => Err(format!("{error:#}")),
            }
        });
    }

    #[track_caller]
    pub(crate) fn create_pods(&self, gang: &Gang) {
        for index in 0..gang.members {
            self.create(&format!("/api/v1/namespaces/{}/pods", gang.namespace), &gang.pod(index));
        }
    }

    #[track_caller]
    pub(crate) fn create_group(&self, gang: &Gang) {
        self.create(&format!("{PODGROUPS}/namespaces/{}/podgroups", gang.namespace), &gang.group());
    }

    #[track_caller]
    pub(crate) fn create_gang(&self, gang: &Gang) {
        self.create_group(gang);
        self.create_pods(gang);
    }

    /// Deletes the pods and the group of a gang at once.
    #[track_caller]
    pub(crate) fn delete_gang(&self, gang: &Gang) {
        let (namespace, name) = (&gang.namespace, &gang.name);
        let paths = [
            format!("{PODGROUPS}/namespaces/{namespace}/podgroups/{name}"),
            format!("/api/v1/namespaces/{namespace}/pods?labelSelector=gang={name}&gracePeriodSeconds=0"),
        ];
        for path in paths {
            retry(&path, || self.cluster.api().delete(&path).map_err(|error| format!("{error:#}")));
        }
    }

    /// Waits until a gang is in this phase.
    #[track_caller]
    pub(crate) fn wait_phase(&self, gang: &Gang, phase: &str) -> Value {
        let what = format!("{} is {phase}", gang.name);
        self.cluster.wait(&gang.path(), &what, |object| object["status"]["phase"] == phase)
    }

    /// The phase of a gang, if it has one.
    pub(crate) fn phase(&self, gang: &Gang) -> String {
        let found = self.cluster.api().find(&gang.path()).ok().flatten().unwrap_or_default();
        found["status"]["phase"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the namespace has no Gang object.
    #[track_caller]
    pub(crate) fn wait_gone(&self, namespace: &str) {
        let path = format!("{GANGS}/namespaces/{namespace}/gangs");
        self.cluster.wait(&path, "the Gang objects are deleted", |list| {
            list["items"].as_array().is_some_and(Vec::is_empty)
        });
    }
}

/// Sets a flag when dropped, also when a test panics, because a scope waits for its threads.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls the function until it succeeds.
#[track_caller]
pub(crate) fn retry(what: &str, mut attempt: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while let Err(problem) = attempt() {
        assert!(Instant::now() < deadline, "{what}: {problem}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
