//! Runs the tutorials on a real control plane, with the commands that users type. Each file in
//! `tests/exercises` is a terminal session, and each guide in `manifests/examples` contains one.
//! `PORTCULLIS_UPDATE_GOLDENS=1 cargo cluster-tests exercises` rewrites the outputs; read the difference
//! before you commit it. `PORTCULLIS_EXERCISE=A3` runs the sessions whose name begins with A3.
//!
//! Each stack has its own control plane with only its group kinds, so that `kubectl get podgroups` prints
//! what its users see.

use std::fs;
use std::path::PathBuf;

use portcullis_test_cluster::{Cluster, Options, Portcullis, ProgramOptions, Version, available};

/// Sessions run in the first namespace. The tutorials name the others.
const NAMESPACES: [&str; 3] = ["default", "ml-training", "gang-demo"];

/// A control plane, and the sessions that run on it.
struct Stage {
    options: Options,
    /// The group kinds to install from the component `pod-group-crds`.
    kinds: &'static [&'static str],
    /// The group kinds of Kubernetes itself.
    native: &'static [&'static str],
    /// The directory of the sessions.
    sessions: &'static str,
    /// Guides in `manifests/examples`.
    guides: &'static [&'static str],
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

impl Stage {
    fn files(&self) -> Vec<PathBuf> {
        let only = std::env::var("PORTCULLIS_EXERCISE").unwrap_or_default();
        let mut files: Vec<PathBuf> = fs::read_dir(repository().join("tests/exercises").join(self.sessions))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "txt"))
            .collect();
        assert!(!files.is_empty(), "{} has no session", self.sessions);
        files.extend(self.guides.iter().map(|name| repository().join("manifests/examples").join(name)));
        files.retain(|path| path.file_stem().is_some_and(|name| name.to_string_lossy().starts_with(&only)));
        files.sort();
        files
    }

    fn play(&self) {
        let files = self.files();
        if files.is_empty() || !available(self.options.version) {
            return;
        }
        let cluster = Cluster::start(&self.options).unwrap();
        for kind in self.kinds {
            let file = format!("manifests/components/pod-group-crds/{kind}.yaml");
            cluster
                .kubectl(&["apply", "-f", &repository().join(file).display().to_string()])
                .expect_success();
        }
        for namespace in &NAMESPACES[1..] {
            cluster.kubectl(&["create", "namespace", namespace]).expect_success();
        }
        let options = ProgramOptions::new(env!("CARGO_BIN_EXE_portcullis"));
        let options = ProgramOptions { components: Vec::new(), ..options };
        let _portcullis = Portcullis::start(&cluster, options).unwrap();
        // The pods of the Deployment run no program here, but would take capacity on a node that varies from
        // run to run.
        let away = ["scale", "deployment", "portcullis", "--replicas=0", "-n", "portcullis-system"];
        cluster.kubectl(&away).expect_success();
        for file in files {
            cluster.check_file(NAMESPACES[0], &file);
            self.clear(&cluster);
        }
    }

    /// Deletes everything that the last session created, nodes included.
    fn clear(&self, cluster: &Cluster) {
        let kinds = [&["statefulsets", "deployments", "jobs", "pods"], self.kinds, self.native].concat();
        for namespace in NAMESPACES {
            cluster.kubectl(&["delete", &kinds.join(","), "--all", "-n", namespace]).expect_success();
        }
        cluster.kubectl(&["delete", "nodes,runtimeclasses", "--all"]).expect_success();
        cluster.kubectl(&["delete", "priorityclass", "inference", "--ignore-not-found"]).expect_success();
        cluster.wait("/apis/portcullis.dev/v1alpha1/gangs", "all gangs are gone", |gangs| {
            gangs["items"].as_array().is_some_and(Vec::is_empty)
        });
        for namespace in NAMESPACES {
            cluster.kubectl(&["delete", "events.events.k8s.io", "--all", "-n", namespace]).expect_success();
        }
    }
}

const KAI: &str = "podgroups.scheduling.run.ai";
const COSCHEDULING: &str = "podgroups.scheduling.x-k8s.io";
const COSCHEDULING_OLD: &str = "podgroups.scheduling.sigs.k8s.io";
const VOLCANO: &str = "podgroups.scheduling.volcano.sh";

#[test]
fn exercises_match_their_recorded_sessions() {
    let options = Options::default();
    let kinds = &[KAI, COSCHEDULING, COSCHEDULING_OLD, VOLCANO];
    let guides = &["kai.md", "plain.md", "yunikorn.md"];
    Stage { options, kinds, native: &[], sessions: "", guides }.play();
}

#[test]
fn exercises_of_coscheduling_match_their_sessions() {
    let kinds = &[COSCHEDULING, COSCHEDULING_OLD];
    let guides = &["coscheduling.md"];
    Stage { options: Options::default(), kinds, native: &[], sessions: "coscheduling", guides }.play();
}

#[test]
fn exercises_of_leader_worker_sets_match_their_sessions() {
    let guides = &["leader-worker-set.md"];
    Stage { options: Options::default(), kinds: &[VOLCANO], native: &[], sessions: "volcano", guides }.play();
}

#[test]
fn exercises_of_native_groups_match_their_sessions() {
    let options = Options::native_groups(Version::V1_36);
    let native = &["podgroups.scheduling.k8s.io"];
    Stage { options, kinds: &[], native, sessions: "native", guides: &["native.md"] }.play();
}

#[test]
fn exercises_of_kubernetes_1_35_match_their_sessions() {
    let options = Options::native_groups(Version::V1_35);
    let native = &["workloads.scheduling.k8s.io"];
    Stage { options, kinds: &[], native, sessions: "native-1.35", guides: &["native-1.35.md"] }.play();
}
