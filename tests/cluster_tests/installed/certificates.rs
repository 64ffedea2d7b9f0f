//! Certificates that the replicas issue and renew themselves.

use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use portcullis_test_cluster::Cluster;
use portcullis_test_cluster::program::{install, wait_gating};
use serde_json::{Value, json};

use super::{cluster, options, start};

const SECRET: &str = "/api/v1/namespaces/portcullis-system/secrets/portcullis-tls";
pub(crate) const KINDS: [&str; 2] = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];

pub(crate) fn configuration(kind: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{kind}/portcullis")
}

/// Whether every webhook trusts the authority in the Secret.
fn published(cluster: &Cluster) -> bool {
    let secret = cluster.api().get(SECRET).unwrap();
    KINDS.iter().all(|kind| {
        let object = cluster.api().get(&configuration(kind)).unwrap();
        let hooks = object["webhooks"].as_array().unwrap();
        hooks.iter().all(|hook| hook["clientConfig"]["caBundle"] == secret["data"]["ca.crt"])
    })
}

#[test]
fn replicas_agree_on_certificates_and_repair_them() {
    let Some(cluster) = cluster() else { return };
    let portcullis = start(&cluster, options());
    // Both replicas started at the same time, and clients trust each of them.
    for replica in 0..2 {
        portcullis.kill(1 - replica);
        wait_gating(&cluster).unwrap();
        portcullis.revive(1 - replica).unwrap();
        portcullis.wait_ready(1 - replica).unwrap();
    }
    cluster.wait_until("every hook trusts the authority of the Secret", || published(&cluster));
    let secret = cluster.api().get(SECRET).unwrap();

    for (kind, hook) in [(KINDS[0], 0), (KINDS[1], 1)] {
        let path = format!("/webhooks/{hook}/clientConfig/caBundle");
        cluster.api().patch(&configuration(kind), &json!([{"op": "remove", "path": path}])).unwrap();
    }
    cluster.wait_until("caBundle is back", || published(&cluster));

    cluster.api().delete(SECRET).unwrap();
    let back = cluster.wait(SECRET, "the Secret is back", |secret| !secret.is_null());
    assert_eq!(back["data"], secret["data"]);

    // Applying the manifests again removes nothing, so it needs no running replica.
    cluster.wait_until("all is as it was", || published(&cluster));
    for replica in 0..2 {
        portcullis.kill(replica);
    }
    install(&cluster, &options().components).unwrap();
    assert!(published(&cluster), "kubectl apply -k has wiped caBundle");
}

#[test]
fn the_authority_is_rotated_without_a_failed_create() {
    let Some(cluster) = cluster() else { return };
    let mut options = options();
    options.flags = vec!["--authority-settling=4s".to_owned(), "--shutdown-delay=2s".to_owned()];
    let portcullis = start(&cluster, options);
    let namespace = cluster.namespace("stream").unwrap();
    let before = cluster.api().get(SECRET).unwrap();

    without_a_failed_create(&cluster, &namespace, || {
        // The command of certs/README.md.
        cluster.check(
            "portcullis-system",
            r#"
$ kubectl patch secret -n portcullis-system portcullis-tls --type=json -p '[{"op":"remove","path":"/data/ca.key"}]'
secret/portcullis-tls patched
"#,
        );
        cluster.wait(SECRET, "a new authority stands before the old one", |secret| {
            authorities(secret).len() == 2 && authorities(secret)[1..] == authorities(&before)[..]
        });
        let rolled = cluster.wait(SECRET, "the new authority has signed", |secret| {
            secret["data"]["tls.crt"] != before["data"]["tls.crt"]
        });
        assert_eq!(authorities(&rolled).len(), 2, "what the old one signed is good for a while");
        cluster.wait_until("both are in every caBundle", || published(&cluster));
        for replica in 0..2 {
            let log = portcullis.log(replica);
            cluster.wait_until("every replica shows the new certificate", || {
                let text = std::fs::read_to_string(&log).unwrap();
                text.matches("new connections get the certificate").count() == 2
            });
        }
        // New connections use the new certificate.
        for replica in 0..2 {
            portcullis.terminate(replica).unwrap();
            portcullis.revive(replica).unwrap();
            portcullis.wait_ready(replica).unwrap();
        }
    });
}

/// Creates members of a gang continuously while a function runs. Every create must succeed.
pub(crate) fn without_a_failed_create(cluster: &Cluster, namespace: &str, act: impl FnOnce()) {
    /// Ends the stream, also when the test fails.
    struct SetOnDrop<'a>(&'a AtomicBool);

    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let stop = AtomicBool::new(false);
    let (created, failed) = std::thread::scope(|scope| {
        let stream = scope.spawn(|| stream(cluster, namespace, &stop));
        let end = SetOnDrop(&stop);
        act();
        drop(end);
        stream.join().unwrap()
    });
    assert_eq!(failed, Vec::<String>::new(), "of {created} creates");
    assert!(created > 20, "{created} creates are no stream");
}

/// Creates members of a gang one after another until `stop` is set. Returns their number and the refusals.
fn stream(cluster: &Cluster, namespace: &str, stop: &AtomicBool) -> (usize, Vec<String>) {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let (mut created, mut failed) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let labels = json!({"kai.scheduler/podgroup": "endless"});
        let pod = json!({
            "metadata": {"name": format!("endless-{created}"), "labels": labels, "annotations": {"pod-group-name": "endless"}},
            "spec": {"containers": [{"name": "main", "image": "example.com/nothing"}]},
        });
        created += 1;
        if let Err(error) = cluster.api().create(&pods, &pod) {
            failed.push(format!("{error:#}"));
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    (created, failed)
}

/// The certificates in `ca.crt` of the Secret.
fn authorities(secret: &Value) -> Vec<String> {
    let bundle = secret["data"]["ca.crt"].as_str().unwrap_or_default();
    let bundle = base64::engine::general_purpose::STANDARD.decode(bundle).unwrap();
    let text = String::from_utf8(bundle).unwrap();
    text.split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned).collect()
}
