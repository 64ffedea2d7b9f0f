//! The component `cert-manager`. This test simulates cert-manager, its cainjector and the mount of the
//! kubelet.
//!
//! Real are the manifests, the API server with its `caBundle`, and the program with the arguments of the
//! Deployment and the remaining RBAC rights. Simulated are: cert-manager, which reads the Certificate and
//! writes its Secret (`kubernetes.io/tls`: `tls.crt`, `tls.key`, `ca.crt`, the annotation with the name of
//! the Certificate); cainjector, which reads the annotation of each webhook configuration and writes `ca.crt`
//! of that Secret into each `caBundle`; the kubelet, which shows the Secret as files behind a symbolic link
//! and replaces the link in one step. The definitions of the kinds accept any content.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis::certs::{Authority, CertificateNames};
use portcullis_test_cluster::Cluster;
use portcullis_test_cluster::program::wait_gating;
use serde_json::{Value, json};

use super::certificates::{KINDS, configuration, without_a_failed_create};
use super::permissions::metrics;
use super::{cluster, options, start};

const NAMESPACE: &str = "portcullis-system";
const CERTIFICATES: &str = "/apis/cert-manager.io/v1/namespaces/portcullis-system/certificates";
const SECRETS: &str = "/api/v1/namespaces/portcullis-system/secrets";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/portcullis-system/deployments/portcullis";

/// The two kinds of cert-manager that the component uses.
fn definitions() -> String {
    let of = |plural: &str, kind: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.cert-manager.io")},
            "spec": {
                "group": "cert-manager.io", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]
            }
        })
    };
    format!("{}\n---\n{}", of("certificates", "Certificate"), of("issuers", "Issuer"))
}

/// The simulated cert-manager, cainjector and mount.
struct SimulatedCertManager<'a> {
    cluster: &'a Cluster,
    authority: Authority,
    mount: PathBuf,
}

impl SimulatedCertManager<'_> {
    /// Cert-manager: writes or renews the Secret of a Certificate at `now`. Returns the end of its validity
    /// in seconds since 1970.
    fn issue(&self, now: SystemTime) -> u64 {
        let certificate = self.cluster.api().get(&format!("{CERTIFICATES}/portcullis-webhook")).unwrap();
        let spec = &certificate["spec"];
        let dns = spec["dnsNames"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
        let names = CertificateNames { dns: dns.collect(), addresses: Vec::new() };
        let leaf = self.authority.issue(&names, now).unwrap();
        let secret = spec["secretName"].as_str().unwrap();
        let data = json!({
            "ca.crt": STANDARD.encode(self.authority.pem()),
            "tls.crt": STANDARD.encode(&leaf.certificate_pem),
            "tls.key": STANDARD.encode(&leaf.key_pem),
        });
        let path = format!("{SECRETS}/{secret}");
        if self.cluster.api().find(&path).unwrap().is_some() {
            self.cluster.api().merge(&path, &json!({"data": data})).unwrap();
        } else {
            let annotations = json!({"cert-manager.io/certificate-name": "portcullis-webhook"});
            let secret = json!({
                "metadata": {"name": secret, "namespace": NAMESPACE, "annotations": annotations},
                "type": "kubernetes.io/tls", "data": data
            });
            self.cluster.api().create(SECRETS, &secret).unwrap();
        }
        leaf.validity.not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
    }

    /// Cainjector: copies the authority of a Certificate into each webhook configuration that names it in its
    /// annotation.
    fn inject(&self) {
        for kind in KINDS {
            let path = configuration(kind);
            let object = self.cluster.api().get(&path).unwrap();
            let from = object["metadata"]["annotations"]["cert-manager.io/inject-ca-from"].as_str().unwrap();
            let (namespace, name) = from.split_once('/').unwrap();
            assert_eq!(namespace, NAMESPACE);
            let certificate = self.cluster.api().get(&format!("{CERTIFICATES}/{name}")).unwrap();
            let secret = certificate["spec"]["secretName"].as_str().unwrap();
            let secret = self.cluster.api().get(&format!("{SECRETS}/{secret}")).unwrap();
            assert_eq!(secret["metadata"]["annotations"]["cert-manager.io/certificate-name"], name);
            let hooks = object["webhooks"].as_array().unwrap().len();
            let patch: Vec<Value> = (0..hooks)
                .map(|hook| {
                    let path = format!("/webhooks/{hook}/clientConfig/caBundle");
                    json!({"op": "add", "path": path, "value": secret["data"]["ca.crt"]})
                })
                .collect();
            self.cluster.api().patch(&path, &Value::Array(patch)).unwrap();
        }
    }

    /// The kubelet: shows the Secret that the Deployment mounts.
    fn show(&self, generation: u32) {
        let deployment = self.cluster.api().get(DEPLOYMENT).unwrap();
        let volume = &deployment["spec"]["template"]["spec"]["volumes"][0];
        assert_eq!(volume["name"], "certs");
        let secret = volume["secret"]["secretName"].as_str().unwrap();
        let secret = self.cluster.api().get(&format!("{SECRETS}/{secret}")).unwrap();
        let inside = format!("..{generation}");
        std::fs::create_dir_all(self.mount.join(&inside)).unwrap();
        for (key, value) in secret["data"].as_object().unwrap() {
            let bytes = STANDARD.decode(value.as_str().unwrap()).unwrap();
            std::fs::write(self.mount.join(&inside).join(key), bytes).unwrap();
            let link = self.mount.join(key);
            if std::fs::symlink_metadata(&link).is_err() {
                std::os::unix::fs::symlink(Path::new("..data").join(key), link).unwrap();
            }
        }
        std::os::unix::fs::symlink(&inside, self.mount.join("..data_tmp")).unwrap();
        std::fs::rename(self.mount.join("..data_tmp"), self.mount.join("..data")).unwrap();
    }
}

/// The options of the component that name mounted files, with `directory` instead of the mount.
fn mounted(component: &Path, directory: &Path) -> Vec<String> {
    let read = |file: &str| -> Value {
        serde_saphyr::from_str(&std::fs::read_to_string(component.join(file)).unwrap()).unwrap()
    };
    let container = &read("deployment.yaml")["spec"]["template"]["spec"]["containers"][0];
    let at = format!("={}/", container["volumeMounts"][0]["mountPath"].as_str().unwrap());
    let kustomization = read("kustomization.yaml");
    let patches =
        kustomization["patches"].as_array().unwrap().iter().filter_map(|patch| patch["patch"].as_str());
    let values = patches.flat_map(str::lines).filter_map(|line| line.trim().strip_prefix("value: "));
    let files: Vec<String> = values
        .filter(|argument| argument.contains(&at))
        .map(|argument| argument.replace(&at, &format!("={}/", directory.display())))
        .collect();
    assert_eq!(files.len(), 2, "{files:?}");
    files
}

#[test]
fn certificates_of_cert_manager_are_loaded_and_reloaded() {
    let Some(cluster) = cluster() else { return };
    cluster.apply("default", &definitions()).expect_success();
    let established = ["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"];
    assert_eq!(cluster.kubectl(&established).code, 0);

    let component = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/components/cert-manager");
    let mount = cluster.directory().join("certs");
    let mut options = options();
    options.components.push("cert-manager".to_owned());
    options.flags = vec!["--shutdown-delay=2s".to_owned()];
    options.flags.extend(mounted(Path::new(component), &mount));
    options.replicas = 0;
    let portcullis = start(&cluster, options);
    let simulated = SimulatedCertManager {
        cluster: &cluster,
        authority: Authority::new(SystemTime::now()).unwrap(),
        mount,
    };
    // Issued so long ago that it must be renewed now: the Certificate is valid for 720h and renewed 240h
    // before the end.
    let first = simulated.issue(SystemTime::now() - Duration::from_secs(480 * 3600));
    simulated.show(1);
    simulated.inject();
    for replica in 0..2 {
        portcullis.add().unwrap();
        portcullis.wait_ready(replica).unwrap();
    }
    wait_gating(&cluster).unwrap();
    let ends = |replica: usize, expected: u64| {
        let line = format!("portcullis_tls_certificate_not_after_seconds {expected}");
        metrics(&cluster, &portcullis, replica).lines().any(|said| said.trim_end_matches(".0") == line)
    };
    assert!((0..2).all(|replica| ends(replica, first)), "{}", metrics(&cluster, &portcullis, 0));
    cluster.check(
        "default",
        r#"
$~ portcullis doctor; echo "exit $?"
…
ok    certificate         cert-manager manages caBundle and the certificate files
…
No problems found.
exit 0
"#,
    );

    let namespace = cluster.namespace("stream").unwrap();
    without_a_failed_create(&cluster, &namespace, || {
        let second = simulated.issue(SystemTime::now());
        assert_ne!(first, second);
        simulated.show(2);
        for replica in 0..2 {
            cluster.wait_until("every replica shows the renewed one", || ends(replica, second));
        }
        // Clients trust replicas that start with the renewed certificate as well.
        for replica in 0..2 {
            portcullis.terminate(replica).unwrap();
            portcullis.revive(replica).unwrap();
            portcullis.wait_ready(replica).unwrap();
        }
    });
    // The program has not created its own Secret, and has no permission to.
    assert_eq!(cluster.api().find(&format!("{SECRETS}/portcullis-tls")).unwrap(), None);
}
