//! Complete outputs for complete clusters. The tests read the objects from the manifests, so both stay
//! consistent.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::objects::Node;
use portcullis_core::pod::Pod;
use serde_json::{Value, json};

use super::checks::{CheckLevel, run_checks};
use super::cluster_state::{ClusterState, Lookup};
use super::output;
use super::permissions::required_permissions;
use crate::certs::{CertificateNames, RenewalStep, TlsSecret, apply_step};

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Reads an object of the manifests.
fn manifest(file: &str, kind: &str) -> Value {
    let text = std::fs::read_to_string(root("manifests/base").join(file)).unwrap();
    let objects = text.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    objects.into_iter().find(|object| object["kind"] == kind).unwrap()
}

fn tls_secret() -> TlsSecret {
    let mut kept = TlsSecret::default();
    let names = CertificateNames::of_service("portcullis", "portcullis-system");
    apply_step(RenewalStep::Bootstrap, &mut kept, &names, now() - Duration::from_secs(86_400)).unwrap();
    kept
}

fn with_bundle(mut configuration: Value, bundle: &str) -> Lookup {
    for hook in configuration["webhooks"].as_array_mut().unwrap() {
        hook["clientConfig"]["caBundle"] = STANDARD.encode(bundle).into();
    }
    Lookup::Object(configuration)
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with json!() than with &json!()")]
fn node(name: &str, labels: Value, taints: Value, gpus: &str) -> Node {
    let allocatable = json!({"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": gpus});
    let node = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    });
    Node::read(&node.to_string()).unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with json!() than with &json!()")]
fn pod(namespace: &str, name: &str, annotations: Value, spec: Value) -> Pod {
    let metadata = json!({
        "namespace": namespace, "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1", "annotations": annotations
    });
    let pod = json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}});
    Pod::read(&pod.to_string()).unwrap()
}

const SHARED: &str = "portcullis.dev/gpu-sharing";

fn gate() -> Value {
    json!([{"name": "portcullis.dev/gang"}])
}

/// A cluster without problems.
fn healthy() -> ClusterState {
    let kept = tls_secret();
    let bundle = kept.bundle_pem();
    let mut crd = manifest("gangs.portcullis.dev.yaml", "CustomResourceDefinition");
    crd["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
    let data: Value =
        kept.data().into_iter().map(|(key, text)| (key.to_owned(), STANDARD.encode(text))).collect();
    let mut deployment = manifest("deployment.yaml", "Deployment");
    deployment["status"] = json!({"availableReplicas": 2});
    let taint = json!([{"key": SHARED, "value": "vram", "effect": "NoSchedule"}]);
    let labels = json!({SHARED: "vram", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "32768"});
    let member = |name: &str| {
        let spec = json!({"schedulerName": "default-scheduler", "schedulingGates": gate()});
        pod("team-a", name, json!({"pod-group-name": "app"}), spec)
    };
    ClusterState {
        server: "https://10.0.0.1".to_owned(),
        version: "v1.36.3".to_owned(),
        namespace: "portcullis-system".to_owned(),
        try_in: "default".to_owned(),
        crd: Lookup::Object(crd),
        mutating: with_bundle(manifest("webhooks.yaml", "MutatingWebhookConfiguration"), &bundle),
        validating: with_bundle(manifest("webhooks.yaml", "ValidatingWebhookConfiguration"), &bundle),
        policy_mutating: Lookup::Missing,
        policy_validating: Lookup::Missing,
        policy_files: Lookup::Missing,
        guard: Lookup::Object(manifest("gate-guard.yaml", "ValidatingAdmissionPolicy")),
        guard_binding: Lookup::Object(manifest("gate-guard.yaml", "ValidatingAdmissionPolicyBinding")),
        fallback: Lookup::Missing,
        secret: Lookup::Object(json!({"data": data})),
        lease: Lookup::Object(json!({"spec": {
            "holderIdentity": "portcullis-5d6f-abcde", "leaseDurationSeconds": 15, "renewTime": "2027-01-15T07:59:58.123456Z"
        }})),
        deployment: Lookup::Object(deployment),
        nodes: Ok(vec![node("gpu-1", labels, taint, "4"), node("cpu-1", json!({}), json!([]), "0")]),
        pods: Ok(vec![member("model-1"), member("model-2")]),
        leases: vec!["kube-scheduler".to_owned()],
        access: required_permissions().into_iter().map(|need| (need, Some(true))).collect(),
        trial: (201, json!({"spec": {"schedulingGates": gate()}})),
    }
}

/// A cluster with a problem in every check that can be partly wrong.
fn half_right() -> ClusterState {
    let mut state = healthy();
    let other = tls_secret().bundle_pem();
    state.mutating = with_bundle(manifest("webhooks.yaml", "MutatingWebhookConfiguration"), &other);
    if let Lookup::Object(validating) = &mut state.validating {
        validating["webhooks"][0]["failurePolicy"] = "Ignore".into();
    }
    state.guard_binding = Lookup::Missing;
    for (need, allowed) in &mut state.access {
        *allowed = Some(need.resource != "pods/status");
    }
    if let Lookup::Object(deployment) = &mut state.deployment {
        deployment["status"] = json!({"availableReplicas": 1});
    }
    let taint = json!([{"key": SHARED, "value": "vram", "effect": "NoSchedule"}]);
    let memory = json!({SHARED: "vram", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "32768"});
    state.nodes = Ok(vec![
        node("gpu-1", memory.clone(), taint.clone(), "4"),
        node("gpu-2", memory, json!([]), "4"),
        node("gpu-3", json!({}), taint, "1"),
    ]);
    let whole = json!({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}], "nodeName": "gpu-1"});
    let waits_for = |scheduler: &str| json!({"schedulerName": scheduler});
    state.pods = Ok(vec![
        pod("team-a", "trainer", json!({}), whole),
        pod("team-b", "volcanic-0", json!({}), waits_for("volcano")),
        pod("team-b", "leased", json!({}), waits_for("kube-scheduler")),
        pod(
            "team-c",
            "orphan",
            json!({}),
            json!({"schedulerName": "default-scheduler", "schedulingGates": gate()}),
        ),
        pod(
            "kube-system",
            "insider",
            json!({"pod-group-name": "app"}),
            json!({"schedulerName": "default-scheduler", "schedulingGates": gate()}),
        ),
    ]);
    let refused =
        "Internal error occurred: failed calling webhook \"pods.portcullis.dev\": connection refused";
    state.trial = (500, json!({"kind": "Status", "message": refused}));
    state
}

/// A cluster from which Portcullis was removed while pods waited.
fn removed() -> ClusterState {
    let mut state = healthy();
    let gone = [
        &mut state.crd,
        &mut state.mutating,
        &mut state.validating,
        &mut state.guard,
        &mut state.guard_binding,
        &mut state.secret,
        &mut state.lease,
        &mut state.deployment,
    ];
    for found in gone {
        *found = Lookup::Missing;
    }
    for (_, allowed) in &mut state.access {
        *allowed = Some(false);
    }
    state.trial = (201, json!({"spec": {}}));
    state
}

/// A cluster as seen by a user with few permissions.
fn outsider() -> ClusterState {
    let mut state = healthy();
    let forbidden = || "403: secrets is forbidden: User \"developer\" cannot get it".to_owned();
    state.secret = Lookup::Unknown(forbidden());
    state.nodes = Err(forbidden());
    state.pods = Err(forbidden());
    for (_, allowed) in &mut state.access {
        *allowed = None;
    }
    state.trial = (403, json!({"message": "pods is forbidden: User \"developer\" cannot create pods"}));
    state
}

#[test]
fn outputs_match_the_golden_files() {
    let check = |name: &str, state: &ClusterState, worst: CheckLevel| {
        let checks = run_checks(state, now());
        assert_eq!(checks.iter().map(|check| check.verdict).max(), Some(worst), "{name}");
        let mut text = Vec::new();
        output::text(&mut anstream::StripStream::new(&mut text), &checks).unwrap();
        let text = String::from_utf8(text).unwrap();
        let golden = root("tests/data/doctor").join(name).with_extension("txt");
        if std::env::var_os("PORTCULLIS_UPDATE_GOLDENS").is_some() {
            std::fs::write(&golden, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&golden).unwrap_or_default(), "{name}");
        let mut json = Vec::new();
        output::json(&mut json, &checks).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["checks"].as_array().map(Vec::len), Some(checks.len()), "{name}");
    };
    check("healthy", &healthy(), CheckLevel::Ok);
    check("half-right", &half_right(), CheckLevel::Fail);
    check("removed", &removed(), CheckLevel::Fail);
    check("outsider", &outsider(), CheckLevel::Warn);
}

/// Reads an object of the component policies.
fn of_policies(file: &str, kind: &str) -> Value {
    manifest(&format!("../components/policies/{file}"), kind)
}

/// A healthy cluster with the component policies and these policy files.
fn with_policies(files: &[(&str, &str)]) -> ClusterState {
    let mut state = healthy();
    let bundle = kept_bundle(&state);
    state.policy_mutating =
        with_bundle(of_policies("webhooks.yaml", "MutatingWebhookConfiguration"), &bundle);
    state.policy_validating =
        with_bundle(of_policies("webhooks.yaml", "ValidatingWebhookConfiguration"), &bundle);
    let data: Value = files.iter().map(|(name, text)| ((*name).to_owned(), Value::from(*text))).collect();
    state.policy_files = Lookup::Object(json!({"data": data}));
    if let Lookup::Object(deployment) = &mut state.deployment {
        let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array_mut();
        arguments.unwrap().push("--policies=/policies".into());
    }
    state
}

/// The CA bundle of a healthy cluster.
fn kept_bundle(state: &ClusterState) -> String {
    let encoded =
        state.mutating.object().unwrap()["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap();
    String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap()
}

#[test]
fn the_component_policies_is_checked_if_it_is_installed() {
    let good = std::fs::read_to_string(root("manifests/components/policies/policies/no-latest-images.yaml"))
        .unwrap();
    let check = |change: &dyn Fn(&mut ClusterState), name: &str, verdict: CheckLevel, part: &str| {
        let mut state = with_policies(&[("no-latest-images.yaml", &good)]);
        change(&mut state);
        let checks = run_checks(&state, now());
        let found = checks.iter().find(|check| check.name == name).unwrap();
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.message.contains(part), "{found:?}");
    };
    check(&|_| {}, "policy webhooks", CheckLevel::Ok, "registered");
    check(&|_| {}, "policy files", CheckLevel::Ok, "no-latest-images");
    check(&|_| {}, "permissions", CheckLevel::Ok, "the service account has all");
    let gone = |state: &mut ClusterState| state.policy_mutating = Lookup::Missing;
    check(
        &gone,
        "policy webhooks",
        CheckLevel::Fail,
        "MutatingWebhookConfiguration policies.portcullis.dev does not exist",
    );
    let unasked = |state: &mut ClusterState| {
        if let Lookup::Object(deployment) = &mut state.deployment {
            deployment["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["serve"]);
        }
    };
    check(&unasked, "policy webhooks", CheckLevel::Fail, "run without --policies");
    let no_files = |state: &mut ClusterState| state.policy_files = Lookup::Missing;
    check(&no_files, "policy files", CheckLevel::Fail, "ConfigMap portcullis-policies does not exist");
    let broken = |state: &mut ClusterState| {
        let bad = good.replace("variables.moving.size()", "variables.moved.size()");
        state.policy_files = Lookup::Object(json!({"data": {"no-latest-images.yaml": bad}}));
    };
    check(&broken, "policy files", CheckLevel::Fail, "no-latest-images.yaml:");
    let elsewhere = |state: &mut ClusterState| {
        let services = good.replace("resources: [pods]", "resources: [pods, services]");
        state.policy_files = Lookup::Object(json!({"data": {"no-latest-images.yaml": services}}));
    };
    check(&elsewhere, "policy files", CheckLevel::Warn, "matches CREATE services");
    let distrusted = |state: &mut ClusterState| {
        state.policy_validating =
            Lookup::Object(of_policies("webhooks.yaml", "ValidatingWebhookConfiguration"));
    };
    check(&distrusted, "certificate", CheckLevel::Fail, "caBundle of gpu-pods.policies.portcullis.dev");
}

#[test]
fn a_denied_trial_pod_is_attributed_to_the_webhook_that_denied_it() {
    let refused = |who: &str, reason: &str| {
        let causes = json!([{"reason": reason, "field": "spec.schedulingGates", "message": "m"}]);
        let message = format!("admission webhook {who:?} denied the request: Pod is invalid");
        (422, json!({"message": message, "details": {"causes": causes}}))
    };
    let check = |trial: (u16, Value), registered: bool, verdict: CheckLevel, part: &str, remedy: &str| {
        let mut state = healthy();
        state.trial = trial;
        if !registered {
            state.mutating = Lookup::Missing;
        }
        let checks = run_checks(&state, now());
        let found = checks.iter().find(|check| check.name == "trial pod").unwrap();
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.message.contains(part) && found.remedy.concat().contains(remedy), "{found:?}");
    };
    let ours = "pods.portcullis.dev";
    let lacked = "denied because fields of the mutating webhook are missing: spec.schedulingGates (dry run in default)";
    check(
        refused(ours, "FieldValueRequired"),
        false,
        CheckLevel::Fail,
        lacked,
        "kubectl apply -k manifests/",
    );
    check(refused(ours, "FieldValueRequired"), true, CheckLevel::Fail, lacked, "another webhook removed");
    check(refused(ours, "FieldValueInvalid"), true, CheckLevel::Warn, "was not created", "--try-in");
    check(
        refused("a.example.com", "FieldValueRequired"),
        true,
        CheckLevel::Warn,
        "was not created",
        "--try-in",
    );
    check(
        (201, json!({"spec": {}})),
        true,
        CheckLevel::Fail,
        "was created without its gate",
        "kubectl apply -k",
    );
}

#[test]
fn a_certificate_is_checked_for_dates_names_and_trust() {
    let check = |change: &dyn Fn(&mut ClusterState), at: SystemTime, verdict: CheckLevel, part: &str| {
        let mut state = healthy();
        change(&mut state);
        let checks = run_checks(&state, at);
        let found = checks.iter().find(|check| check.name == "certificate").unwrap();
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.message.contains(part), "{found:?}");
    };
    let days = |days: u64| now() + Duration::from_secs(days * 86_400);
    check(&|_| {}, days(0), CheckLevel::Ok, "valid until 2027-02-13");
    check(&|_| {}, days(25), CheckLevel::Warn, "the renewal is overdue");
    check(&|_| {}, days(30), CheckLevel::Fail, "expired");
    check(
        &|state| state.secret = Lookup::Missing,
        days(0),
        CheckLevel::Fail,
        "Secret portcullis-tls does not exist",
    );
    check(
        &|state| state.namespace = "elsewhere".to_owned(),
        days(0),
        CheckLevel::Fail,
        "portcullis.elsewhere.svc",
    );
    let wiped = |state: &mut ClusterState| {
        state.validating = Lookup::Object(manifest("webhooks.yaml", "ValidatingWebhookConfiguration"));
    };
    check(&wiped, days(0), CheckLevel::Fail, "caBundle of pods.portcullis.dev, changes.portcullis.dev");
    let injected = |state: &mut ClusterState| {
        state.secret = Lookup::Missing;
        if let Lookup::Object(mutating) = &mut state.mutating {
            mutating["metadata"]["annotations"] =
                json!({"cert-manager.io/inject-ca-from": "portcullis-system/x"});
        }
    };
    check(&injected, days(0), CheckLevel::Ok, "cert-manager");
}
