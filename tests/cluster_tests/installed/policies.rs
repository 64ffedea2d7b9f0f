//! The component `policies` as users meet it. This test simulates the mount of the ConfigMap by the kubelet.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portcullis_test_cluster::Cluster;
use serde_json::Value;

use super::{cluster, options, start};

const CONFIG_MAP: &str = "/api/v1/namespaces/portcullis-system/configmaps/portcullis-policies";

/// The simulated kubelet: shows files behind a symbolic link, and replaces the link in one step.
struct Mount {
    directory: PathBuf,
    generation: u32,
    shown: Value,
}

impl Mount {
    fn show(&mut self, data: &Value) {
        if *data == self.shown {
            return;
        }
        self.generation += 1;
        let inside = format!("..{}", self.generation);
        std::fs::create_dir_all(self.directory.join(&inside)).unwrap();
        let files = data.as_object().unwrap();
        for (key, value) in files {
            std::fs::write(self.directory.join(&inside).join(key), value.as_str().unwrap()).unwrap();
            let link = self.directory.join(key);
            if std::fs::symlink_metadata(&link).is_err() {
                std::os::unix::fs::symlink(Path::new("..data").join(key), link).unwrap();
            }
        }
        std::os::unix::fs::symlink(&inside, self.directory.join("..data_tmp")).unwrap();
        std::fs::rename(self.directory.join("..data_tmp"), self.directory.join("..data")).unwrap();
        for gone in self.shown.as_object().into_iter().flatten().filter(|(key, _)| !files.contains_key(*key))
        {
            std::fs::remove_file(self.directory.join(gone.0)).unwrap();
        }
        self.shown = data.clone();
    }
}

/// The files of the ConfigMap of the component.
fn of_the_component() -> Value {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/components/policies/policies");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.file_name().unwrap().to_string_lossy().into_owned(), Value::from(text))
    };
    files.map(named).collect()
}

fn shown(cluster: &Cluster) -> Value {
    cluster.api().get(CONFIG_MAP).map(|object| object["data"].clone()).unwrap_or_default()
}

#[test]
fn a_platform_team_changes_its_policies() {
    let Some(cluster) = cluster() else { return };
    let directory = cluster.directory().join("policies");
    let mut mount = Mount { directory: directory.clone(), generation: 0, shown: Value::Null };
    mount.show(&of_the_component());
    let mut options = options();
    options.components.push("policies".to_owned());
    options.replicas = 1;
    options.flags.push(format!("--policies={}", directory.display()));
    let portcullis = start(&cluster, options);
    // The mounted files equal the installed ones.
    assert_eq!(shown(&cluster), of_the_component());
    let namespace = cluster.namespace("vision").unwrap();
    cluster.wait_until("the certificate is believed for policies, too", || {
        let denied = cluster.kubectl(&[
            "apply",
            "--dry-run=server",
            "-n",
            &namespace,
            "-f",
            "tests/installed/policies/train.yaml",
        ]);
        denied.stderr.contains("no-latest-images")
    });

    let (over, seen) = (Arc::new(AtomicBool::new(false)), &cluster);
    let admin = portcullis.admin(0).unwrap();
    let scratch = cluster.directory().join("scratch");
    std::fs::create_dir_all(&scratch).unwrap();
    let session = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/installed/policies.txt");
    std::thread::scope(|scope| {
        let kubelet = Arc::clone(&over);
        scope.spawn(move || {
            while !kubelet.load(Ordering::Relaxed) {
                mount.show(&shown(seen));
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        // A panic of the session also ends the simulated kubelet.
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let settings = format!("ADMIN=http://{admin}\nSCRATCH={}\n", scratch.display());
            cluster.check_file_with(&namespace, &session, &settings);
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = played {
            std::panic::resume_unwind(panic);
        }
    });
    drop(portcullis);
}
