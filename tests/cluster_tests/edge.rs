//! The cluster edge on a real control plane: lists, watches, lease and requests, without the webhook.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use portcullis::cluster::{self, Client};
use portcullis::telemetry::Metrics;
use portcullis_core::admission::KnownClasses;
use portcullis_test_cluster::{Cluster, Node, Options, Version, available};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/portcullis-system/leases/portcullis";

/// The cluster edge of one replica, in this process.
struct Replica<'a> {
    runtime: &'a Runtime,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
    facts: Arc<ArcSwap<KnownClasses>>,
}

impl<'a> Replica<'a> {
    fn start(runtime: &'a Runtime, cluster: &Cluster, name: &str) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let facts = Arc::new(ArcSwap::from_pointee(KnownClasses::default()));
        let options = cluster::ClusterOptions {
            identity: cluster::identity(name),
            ..cluster::ClusterOptions::new("portcullis-system")
        };
        let (kubeconfig, kept) = (cluster.program().to_path_buf(), Arc::clone(&facts));
        let running = runtime.spawn(async move {
            let client =
                Client::from_kubeconfig(&kubeconfig).await.expect("the kubeconfig of the test cluster");
            let shutdown = async move {
                let _ = stopped.await;
            };
            let metrics = Metrics::new().cluster().clone();
            cluster::run(client, options, kept, metrics, shutdown).await.expect("the engine does not panic");
        });
        Self { runtime, stop, running, facts }
    }

    /// Stops the replica as SIGTERM does.
    fn stop(self) {
        let _ = self.stop.send(());
        self.runtime.block_on(self.running).expect("the edge ends in order");
    }
}

fn manifest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests").join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn gang(name: &str, members: u32) -> String {
    let group = format!(
        "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {{name: {name}}}\nspec: {{minMember: {members}}}\n"
    );
    let pod = |index| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}-{index}\n  annotations: {{pod-group-name: {name}}}\n  labels: {{kai.scheduler/podgroup: {name}}}\nspec:\n  schedulingGates: [{{name: portcullis.dev/gang}}]\n  containers:\n  - name: main\n    image: example.com/train\n    resources: {{limits: {{nvidia.com/gpu: 4}}}}\n"
        )
    };
    (0..members).fold(group, |text, index| text + &pod(index))
}

fn epoch(lease: &Value) -> u64 {
    lease["spec"]["leaseTransitions"].as_u64().unwrap_or(0)
}

fn held_by(lease: &Value, name: &str) -> bool {
    lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| holder.starts_with(name))
}

#[test]
fn a_gang_is_lifted_and_leadership_moves_on() {
    if !available(Version::default()) {
        return;
    }
    let cluster = Cluster::start(&Options::default()).unwrap();
    for file in ["base/namespace.yaml", "base/rbac.yaml", "base/gangs.portcullis.dev.yaml"] {
        cluster.apply("portcullis-system", &manifest(file)).expect_success();
    }
    let runtime = Runtime::new().unwrap();
    let first = Replica::start(&runtime, &cluster, "first");
    let lease = cluster.wait(LEASE, "the first replica leads", |lease| held_by(lease, "first"));
    assert_eq!(epoch(&lease), 1);

    // A kind that is installed later is watched.
    cluster.create_nodes(&[Node::whole("edge-1", 8)]).unwrap();
    cluster
        .apply("default", &manifest("components/pod-group-crds/podgroups.scheduling.run.ai.yaml"))
        .expect_success();
    cluster
        .kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"])
        .expect_success();
    let namespace = cluster.namespace("edge").unwrap();
    cluster.apply(&namespace, &gang("train", 2)).expect_success();
    let gangs = format!("/apis/portcullis.dev/v1alpha1/namespaces/{namespace}/gangs");
    let admitted = |gang: &Value| gang["status"]["phase"] == "Admitted";
    let train = cluster.wait(&format!("{gangs}/train"), "the gang is admitted", admitted);
    for pod in ["train-0", "train-1"] {
        let pod = cluster.api().get(&format!("/api/v1/namespaces/{namespace}/pods/{pod}")).unwrap();
        assert_eq!(pod["spec"]["nodeName"], "edge-1", "{pod:#}");
    }
    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let ours = |events: &Value| -> Vec<String> {
        let items = events["items"].as_array().into_iter().flatten();
        let ours = items.filter(|event| event["reportingController"] == cluster::REPORTING_CONTROLLER);
        let recorded = ours.map(|e| format!("{}/{}", e["regarding"]["kind"], e["reason"]).replace('"', ""));
        let mut recorded: Vec<String> = recorded.collect();
        recorded.dedup();
        recorded
    };
    let seen = cluster.wait(&events, "an event is recorded", |events| {
        ours(events).iter().any(|recorded| recorded == "PodGroup/Scheduled")
    });
    assert_eq!(ours(&seen).iter().filter(|recorded| recorded.ends_with("/Scheduled")).count(), 1, "{seen:#}");

    // The status of the group is written a little later, and the Gang object has the group as its owner.
    let groups = format!("/apis/scheduling.run.ai/v2alpha2/namespaces/{namespace}/podgroups");
    let group = cluster.wait(&format!("{groups}/train"), "the status of the group", |group| {
        group["status"]["phase"] == "Running"
    });
    assert_eq!(group["status"]["scheduled"], 2, "{group:#}");
    assert_eq!(group["status"]["conditions"][0]["message"], "2 of 2 members are bound", "{group:#}");
    cluster.create_nodes(&[Node::whole("edge-2", 8)]).unwrap();
    cluster.apply(&namespace, &gang("owned", 2)).expect_success();
    let owned = cluster.wait(&format!("{gangs}/owned"), "the next gang is admitted", admitted);
    let group = cluster.api().get(&format!("{groups}/owned")).unwrap();
    assert_eq!(owned["metadata"]["ownerReferences"][0]["uid"], group["metadata"]["uid"]);
    cluster.wait_until("the classes are known", || {
        let facts = first.facts.load();
        let known = |names: &Option<std::collections::BTreeSet<portcullis_core::model::Str>>, name: &str| {
            names.as_ref().is_some_and(|names| name.is_empty() || names.contains(name))
        };
        known(&facts.priority_classes, "system-node-critical") && known(&facts.runtime_classes, "")
    });

    // A replica that shuts down releases the lease. The next leader has a new epoch.
    let second = Replica::start(&runtime, &cluster, "second");
    first.stop();
    let lease = cluster.wait(LEASE, "the second replica leads", |lease| held_by(lease, "second"));
    assert_eq!(epoch(&lease), 2);
    second.stop();
    let lease = cluster.api().get(LEASE).unwrap();
    assert_eq!((epoch(&lease), &lease["spec"]["holderIdentity"]), (2, &Value::Null));

    // Epochs continue after the lease is deleted, because the Gang objects hold the last epoch. This one was
    // last written under the first.
    cluster.api().delete(LEASE).unwrap();
    let third = Replica::start(&runtime, &cluster, "third");
    let lease = cluster.wait(LEASE, "the third replica leads", |lease| held_by(lease, "third"));
    assert!(epoch(&lease) > train["status"]["epoch"].as_u64().unwrap(), "{lease:#}");

    // Deleting the group and its pods also deletes the Gang object.
    cluster.kubectl(&[
        "delete",
        "-n",
        &namespace,
        "pods,podgroups.scheduling.run.ai",
        "--all",
        "--wait=false",
    ]);
    cluster.wait(&format!("{gangs}/train"), "the Gang object is deleted", Value::is_null);
    third.stop();
}
