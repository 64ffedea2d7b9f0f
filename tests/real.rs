//! On a real control plane: what no simulation can prove. Each test has a namespace of its own in one cluster, or a cluster
//! of its own when it breaks something.

use portcullis_test_cluster::wait::has_condition;
use portcullis_test_cluster::{Cluster, Node, Options, Part, Version, available, shared};
use serde_json::json;

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  containers: [{name: main, image: example.com/nothing}]
";

#[test]
fn a_node_is_ready_and_a_pod_runs_on_it() {
    let Some(cluster) = shared() else { return };
    cluster.create_nodes(&[Node::whole("smoke-1", 8), Node::shared("smoke-2", 1, 32_768)]).unwrap();
    for name in ["smoke-1", "smoke-2"] {
        cluster.wait(&format!("/api/v1/nodes/{name}"), "it is Ready", |node| has_condition(node, "Ready"));
    }
    let node = cluster.api().get("/api/v1/nodes/smoke-2").unwrap();
    assert_eq!(node["status"]["allocatable"]["nvidia.com/gpu"], "1");
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "portcullis.dev/gpu-sharing", "value": "vram", "effect": "NoSchedule"}])
    );

    let namespace = cluster.namespace("smoke").unwrap();
    assert_eq!(cluster.apply(&namespace, POD).good(), "pod/plain created\n");
    let path = format!("/api/v1/namespaces/{namespace}/pods/plain");
    let pod = cluster.wait(&path, "it runs", |pod| has_condition(pod, "Ready"));
    assert_eq!(pod["status"]["phase"], "Running");
    cluster.api().delete(&path).unwrap();
    cluster.wait(&path, "it is gone", serde_json::Value::is_null);
}

#[test]
fn a_restarted_control_plane_remembers_and_leaves_nothing() {
    if !available(Version::default()) {
        return;
    }
    let options = Options { without: vec![Part::ControllerManager], ..Options::default() };
    let cluster = Cluster::start(&options).unwrap();
    let namespace = cluster.namespace("kept").unwrap();
    for part in [Part::Etcd, Part::ApiServer, Part::Scheduler, Part::Kubelets] {
        cluster.own().restart(part).unwrap();
    }
    cluster.wait(&format!("/api/v1/namespaces/{namespace}"), "it is still there", |found| !found.is_null());
    cluster.create_nodes(&[Node::plain("after")]).unwrap();
    cluster.apply(&namespace, POD).good();
    let path = format!("/api/v1/namespaces/{namespace}/pods/plain");
    cluster.own().pause(Part::Kubelets).unwrap();
    cluster.own().resume(Part::Kubelets).unwrap();
    cluster.wait(&path, "it runs", |pod| has_condition(pod, "Ready"));

    let (directory, processes) = (cluster.directory().to_path_buf(), cluster.own().processes());
    assert_eq!(processes.len(), 4);
    drop(cluster);
    assert!(!directory.exists(), "{} is left", directory.display());
    for (part, process) in processes {
        assert!(!std::path::Path::new(&format!("/proc/{process}")).exists(), "{part} ({process}) is left");
    }
}
