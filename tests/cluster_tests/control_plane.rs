//! Tests of the control plane itself and of the manifests on it. Tests share one cluster, each with its own
//! namespace. A test that breaks something starts its own cluster.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use portcullis_test_cluster::binaries::Binaries;
use portcullis_test_cluster::cluster::FOR_TESTS;
use portcullis_test_cluster::program::wait_gating;
use portcullis_test_cluster::wait::{WAIT_TIMEOUT, has_condition};
use portcullis_test_cluster::{
    Cluster, Node, Options, Part, Portcullis, ProgramOptions, Version, available, may_be_used, shared,
};
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
    assert_eq!(cluster.apply(&namespace, POD).expect_success(), "pod/plain created\n");
    let path = format!("/api/v1/namespaces/{namespace}/pods/plain");
    let pod = cluster.wait(&path, "it runs", |pod| has_condition(pod, "Ready"));
    assert_eq!(pod["status"]["phase"], "Running");
    cluster.check(
        &namespace,
        "
$ kubectl get pods
NAME    READY   STATUS    RESTARTS   AGE
plain   1/1     Running   0          …
$ cat <<E | kubectl apply -f -
> {apiVersion: v1, kind: ConfigMap, metadata: {name: typed}, data: {one: 1}}
> E
…cannot unmarshal number into Go struct field ConfigMap.data of type string
$ kubectl delete pod plain
pod \"plain\" deleted from …
$~ kubectl get pods
No resources found in … namespace.
",
    );
    // The shared cluster is started once.
    for name in ["smoke-1", "smoke-2"] {
        cluster.api().delete(&format!("/api/v1/nodes/{name}")).unwrap();
    }
}

#[test]
fn a_restarted_control_plane_keeps_its_objects_and_leaves_no_process() {
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
    cluster.apply(&namespace, POD).expect_success();
    let path = format!("/api/v1/namespaces/{namespace}/pods/plain");
    cluster.own().pause(Part::Kubelets).unwrap();
    cluster.own().resume(Part::Kubelets).unwrap();
    cluster.wait(&path, "it runs", |pod| has_condition(pod, "Ready"));

    let (directory, processes) = (cluster.directory().to_path_buf(), cluster.own().processes());
    assert_eq!(processes.len(), 4);
    drop(cluster);
    assert!(!directory.exists(), "{} is left", directory.display());
    for (part, process) in processes {
        assert!(!Path::new(&format!("/proc/{process}")).exists(), "{part} ({process}) is left");
    }
}

#[test]
fn the_manifests_are_accepted_and_the_webhook_gates_a_pod() {
    if !available(Version::default()) {
        return;
    }
    let cluster = Cluster::start(&Options::default()).unwrap();
    let portcullis =
        Portcullis::start(&cluster, ProgramOptions::new(env!("CARGO_BIN_EXE_portcullis"))).unwrap();
    assert_eq!(portcullis.balancer().ready(), ["portcullis-0", "portcullis-1"]);

    // A pod that is not a gang member is admitted without the webhook, also while no replica serves.
    for replica in 0..portcullis.replicas() {
        portcullis.kill(replica);
    }
    assert_eq!(cluster.apply("default", POD).expect_success(), "pod/plain created\n");
    portcullis.revive(1).unwrap();
    portcullis.wait_ready(1).unwrap();
    wait_gating(&cluster).unwrap();
    portcullis.terminate(1).unwrap();
}

/// Runs the first test in a child process with an environment variable, and returns its output.
fn smoke_with(variable: &str, value: &Path) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "control_plane::a_node_is_ready_and_a_pod_runs_on_it", "--nocapture"])
        .env_remove("KUBEBUILDER_ASSETS")
        .env_remove("KUBECONFIG")
        .env_remove("PORTCULLIS_TEST_KUBECONFIG")
        .env(variable, value)
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
    said
}

#[test]
fn programs_in_kubebuilder_assets_are_used() {
    if !available(Version::default()) {
        return;
    }
    let binaries = Binaries::of(Version::default()).unwrap();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("assets-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let missing = Binaries::in_directory(&directory).unwrap_err().to_string();
    assert!(missing.contains("which has no etcd, no kube-apiserver"), "{missing}");

    // Each is a link to the same program. The one for etcd reports that it was started.
    let parts = [
        ("kube-apiserver", &binaries.api_server),
        ("kube-scheduler", &binaries.scheduler),
        ("kube-controller-manager", &binaries.controller_manager),
        ("kubectl", &binaries.kubectl),
        ("kwok", &binaries.kwok),
    ];
    for (name, command) in parts {
        std::os::unix::fs::symlink(&command[0], directory.join(name)).unwrap();
    }
    let (etcd, started) = (directory.join("etcd"), directory.join("started"));
    let words: Vec<String> = binaries.etcd.iter().map(|word| format!("'{}'", word.display())).collect();
    let script = format!("#!/bin/sh\n: >'{}'\nexec {} \"$@\"\n", started.display(), words.join(" "));
    std::fs::write(&etcd, script).unwrap();
    std::fs::set_permissions(&etcd, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    smoke_with("KUBEBUILDER_ASSETS", &directory);
    assert!(started.exists(), "another etcd was started than the one in KUBEBUILDER_ASSETS");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_running_cluster_is_used_only_with_its_test_label() {
    if !available(Version::default()) {
        return;
    }
    let cluster = Cluster::start(&Options::default()).unwrap();
    let refused = |kubeconfig: &Path| may_be_used(kubeconfig).unwrap_err().to_string();
    let production = cluster.directory().join("production.kubeconfig");
    let text = std::fs::read_to_string(cluster.admin()).unwrap();
    std::fs::write(&production, text.replace("https://127.0.0.1:", "https://192.0.2.1:")).unwrap();
    assert!(refused(&production).contains("is not on this machine"), "{}", refused(&production));
    assert!(refused(cluster.admin()).contains("it does not say that it is there for tests"));
    assert!(refused(Path::new("/nonexistent")).contains("current-context"));

    // The command in the message.
    let mark = format!("{FOR_TESTS}=true");
    cluster.kubectl(&["label", "namespace", "kube-system", &mark]).expect_success();
    let said = smoke_with("KUBECONFIG", cluster.admin());
    assert!(!said.contains("left alone") && !said.contains("leave the cluster"), "{said}");
    let namespaces = cluster.kubectl(&["get", "namespaces", "-o", "name"]).expect_success();
    assert!(namespaces.contains("namespace/smoke-"), "it ran elsewhere\n{said}");
}

/// The remaining processes and files of a killed test. Zombies do not count.
fn left_of(directory: &Path) -> Vec<String> {
    let name = directory.display().to_string();
    let mut left: Vec<String> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&name) && !line.contains("guard"))
        .collect();
    if directory.exists() {
        left.push(name);
    }
    left
}

#[test]
fn a_killed_test_leaves_no_process_and_no_file() {
    const VICTIM: &str = "PORTCULLIS_TEST_VICTIM";
    if !available(Version::default()) {
        return;
    }
    if std::env::var_os(VICTIM).is_some() {
        let cluster = Cluster::start(&Options::default()).unwrap();
        // A paused process cannot notice the end of its parent itself.
        cluster.own().pause(Part::Scheduler).unwrap();
        println!("\n{VICTIM} {}", cluster.directory().display());
        std::thread::sleep(std::time::Duration::from_secs(300));
        return;
    }
    // Runs this test in a child process, which is then killed.
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "control_plane::a_killed_test_leaves_no_process_and_no_file", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let directory = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix(VICTIM).map(|rest| PathBuf::from(rest.trim())))
        .expect("it says where its cluster is");
    // A process has no command line for an instant while it executes another program, so the test looks until
    // it sees all.
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while left_of(&directory).len() < 6 && Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let found = left_of(&directory);
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!(found.len(), 6, "five processes and their files: {found:#?}");
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !left_of(&directory).is_empty() {
        assert!(Instant::now() < deadline, "left: {:#?}", left_of(&directory));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
