//! The tutorials that users paste, on a real control plane, as they type them: each file in `tests/exercises` is a terminal
//! session. `PORTCULLIS_UPDATE_GOLDENS=1 cargo test --test exercises` writes the sessions anew, and the difference is what to
//! read; `PORTCULLIS_EXERCISE=A3` plays those whose name begins so.

use std::fs;
use std::path::{Path, PathBuf};

use portcullis_test_cluster::{Cluster, Options, Portcullis, ProgramOptions, Version, available};

/// Takes away what the last session left, down to the nodes.
fn clear(cluster: &Cluster) {
    cluster.kubectl(&["delete", "statefulsets,deployments,jobs", "--all", "-n", "default"]).good();
    for kind in [
        "pods",
        "podgroups.scheduling.run.ai",
        "podgroups.scheduling.sigs.k8s.io",
        "podgroups.scheduling.x-k8s.io",
    ] {
        cluster.kubectl(&["delete", kind, "--all", "-n", "default"]).good();
    }
    cluster.kubectl(&["delete", "nodes,runtimeclasses", "--all"]).good();
    cluster.kubectl(&["delete", "priorityclass", "inference", "--ignore-not-found"]).good();
    cluster.wait("/apis/portcullis.dev/v1alpha1/gangs", "all gangs are gone", |gangs| {
        gangs["items"].as_array().is_some_and(Vec::is_empty)
    });
    cluster.kubectl(&["delete", "events.events.k8s.io", "--all", "-n", "default"]).good();
}

/// Plays the sessions of a directory.
fn play(cluster: &Cluster, directory: &str) {
    let _portcullis =
        Portcullis::start(cluster, ProgramOptions::new(env!("CARGO_BIN_EXE_portcullis"))).unwrap();
    let only = std::env::var("PORTCULLIS_EXERCISE").unwrap_or_default();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    assert!(!files.is_empty());
    files.retain(|path| path.file_stem().is_some_and(|name| name.to_string_lossy().starts_with(&only)));
    files.sort();
    for file in files {
        cluster.check_file("default", &file);
        clear(cluster);
    }
}

#[test]
fn the_exercises_work_as_they_read() {
    if !available(Version::default()) {
        return;
    }
    let cluster = Cluster::start(&Options::default()).unwrap();
    play(&cluster, "tests/exercises");
}

/// With the groups of Kubernetes itself switched on.
#[test]
fn the_exercises_of_native_groups_work_as_they_read() {
    if !available(Version::V1_36) {
        return;
    }
    let cluster = Cluster::start(&Options::native_groups(Version::V1_36)).unwrap();
    play(&cluster, "tests/exercises/native");
}
