//! The tutorials that users paste, on a real control plane, as they type them: each file in `tests/exercises` is a terminal
//! session. `PORTCULLIS_UPDATE_GOLDENS=1 cargo test --test exercises` writes the sessions anew, and the difference is what to
//! read; `PORTCULLIS_EXERCISE=A3` plays those whose name begins so.

use std::fs;
use std::path::{Path, PathBuf};

use portcullis_test_cluster::{Cluster, Options, Portcullis, ProgramOptions, Version, available};

/// Takes away what the last session left, down to the nodes.
fn clear(cluster: &Cluster) {
    for kind in ["pods", "podgroups.scheduling.run.ai"] {
        cluster.kubectl(&["delete", kind, "--all", "-n", "default"]).good();
    }
    cluster.kubectl(&["delete", "nodes,runtimeclasses", "--all"]).good();
    cluster.kubectl(&["delete", "priorityclass", "inference", "--ignore-not-found"]).good();
    cluster.wait("/apis/portcullis.dev/v1alpha1/gangs", "all gangs are gone", |gangs| {
        gangs["items"].as_array().is_some_and(Vec::is_empty)
    });
    cluster.kubectl(&["delete", "events.events.k8s.io", "--all", "-n", "default"]).good();
}

#[test]
fn the_exercises_work_as_they_read() {
    if !available(Version::default()) {
        return;
    }
    let cluster = Cluster::start(&Options::default()).unwrap();
    let _portcullis =
        Portcullis::start(&cluster, ProgramOptions::new(env!("CARGO_BIN_EXE_portcullis"))).unwrap();
    let only = std::env::var("PORTCULLIS_EXERCISE").unwrap_or_default();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exercises");
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .filter(|path| path.file_stem().is_some_and(|name| name.to_string_lossy().starts_with(&only)))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no session is called {only}");
    for file in files {
        cluster.check_file("default", &file);
        clear(&cluster);
    }
}
