//! Admission reviews as an API server sends them.

use anyhow::Context;
use base64::Engine as _;
use portcullis_core::admission::{AdmissionSettings, Hook, KnownClasses, handle_review};
use serde_json::{Value, json};

/// A CREATE review of a gang member that requests a share of a GPU: about 4.2 KB, or about 8.3 KB with
/// `managedFields`.
pub(crate) fn gpu_pod(managed_fields: bool) -> Vec<u8> {
    review(pod(), managed_fields)
}

/// A review of a pod without a gang and without a share, which the webhook leaves unchanged.
pub(crate) fn plain_pod(managed_fields: bool) -> Vec<u8> {
    let mut pod = pod();
    for (list, key) in [
        ("labels", "kai.scheduler/podgroup"),
        ("annotations", "pod-group-name"),
        ("annotations", "gpu-memory"),
    ] {
        pod["metadata"][list].as_object_mut().and_then(|entries| entries.remove(key));
    }
    review(pod, managed_fields)
}

/// The review that the API server then sends to `/validate`, with the patch applied.
pub(crate) fn patched(body: &[u8]) -> anyhow::Result<Vec<u8>> {
    let answer = handle_review(&AdmissionSettings::default(), &KnownClasses::default(), Hook::Mutate, body)?;
    let answer: Value = serde_json::from_slice(&answer.body)?;
    let patch = answer["response"]["patch"].as_str().context("there is no patch")?;
    let patch = base64::engine::general_purpose::STANDARD.decode(patch)?;
    let patch: json_patch::Patch = serde_json::from_slice(&patch)?;
    let mut review: Value = serde_json::from_slice(body)?;
    json_patch::patch(&mut review["request"]["object"], &patch)?;
    Ok(review.to_string().into_bytes())
}

fn review(mut pod: Value, managed_fields: bool) -> Vec<u8> {
    if managed_fields {
        pod["metadata"]["managedFields"] = fields(&pod);
    }
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "9e5a1b3c-6f0d-4a53-8e0a-2f4f0f2a7d11",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "ml-training",
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:job-controller",
                "uid": "3e4a7a4e-0b5c-4f43-9f2e-0a6c1d2b7f88",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": ["JTI=61a2f7de-77a5-43f3-b13d-b28a9f6a0d94"]}
            },
            "object": pod,
            "oldObject": null,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
        }
    });
    review.to_string().into_bytes()
}

fn pod() -> Value {
    let mut environment: Vec<Value> = [
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_IB_DISABLE", "0"),
        ("NCCL_SOCKET_IFNAME", "eth0"),
        ("MASTER_PORT", "29500"),
        ("MASTER_ADDR", "app-with-models-0.app-with-models.ml-training.svc.cluster.local"),
        ("WORLD_SIZE", "8"),
        ("OMP_NUM_THREADS", "8"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MODEL_NAME", "registry.example.com/models/assistant-70b-instruct"),
        ("MODEL_CACHE", "/models/cache"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.observability.svc.cluster.local:4317"),
        ("LOG_LEVEL", "info"),
    ]
    .iter()
    .map(|(name, value)| json!({"name": name, "value": value}))
    .collect();
    environment.push(json!({"name": "RANK", "valueFrom": {"fieldRef": {
        "apiVersion": "v1", "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}}));
    environment.push(json!({"name": "POD_IP", "valueFrom": {"fieldRef": {
        "apiVersion": "v1", "fieldPath": "status.podIP"}}}));
    environment.push(json!({"name": "API_TOKEN", "valueFrom": {"secretKeyRef": {
        "name": "model-registry-token", "key": "token"}}}));
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": "app-with-models-model-1-",
            "namespace": "ml-training",
            "creationTimestamp": null,
            "labels": {
                "app.kubernetes.io/name": "app-with-models",
                "app.kubernetes.io/component": "model",
                "app.kubernetes.io/managed-by": "helm",
                "batch.kubernetes.io/controller-uid": "1c7e0c0a-0be2-4d57-8f50-0b7d7c7d93b2",
                "batch.kubernetes.io/job-name": "app-with-models-model-1",
                "kai.scheduler/podgroup": "app-with-models"
            },
            "annotations": {
                "pod-group-name": "app-with-models",
                "gpu-memory": "8000",
                "batch.kubernetes.io/job-completion-index": "3",
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9090",
                "checksum/config": "6b1f4e2f5a0c8d3b7e9a1c5d4f2b8e6a0c3d7f1b5e9a2c6d8f4b0e3a7c1d5f9b"
            },
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "app-with-models-model-1",
                "uid": "1c7e0c0a-0be2-4d57-8f50-0b7d7c7d93b2", "controller": true, "blockOwnerDeletion": true
            }],
            "finalizers": ["batch.kubernetes.io/job-tracking"]
        },
        "spec": {
            "volumes": [
                {"name": "model-cache", "persistentVolumeClaim": {"claimName": "model-cache"}},
                {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
                {"name": "kube-api-access-x7l2p", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
                ]}}
            ],
            "containers": [{
                "name": "model",
                "image": "registry.example.com/ml/model-server:2026.11.3",
                "command": ["/usr/bin/python3", "-m", "server"],
                "args": ["--port=8000", "--tensor-parallel-size=1", "--max-model-len=8192"],
                "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
                "env": environment,
                "resources": {
                    "limits": {"cpu": "8", "memory": "32Gi"},
                    "requests": {"cpu": "4", "memory": "16Gi"}
                },
                "volumeMounts": [
                    {"name": "model-cache", "mountPath": "/models"},
                    {"name": "shared-memory", "mountPath": "/dev/shm"},
                    {"name": "kube-api-access-x7l2p", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
                ],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent"
            }],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "securityContext": {"fsGroup": 2000, "runAsUser": 1000, "runAsNonRoot": true},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            ],
            "priority": 0,
            "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority"
        },
        "status": {}
    })
}

/// The entry of server-side apply in `managedFields`: the field tree of the object.
fn fields(pod: &Value) -> Value {
    json!([{
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-21T09:14:03Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": tree(&pod["metadata"]), "f:spec": tree(&pod["spec"])}
    }])
}

fn tree(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let children = map.iter().map(|(name, child)| (format!("f:{name}"), tree(child)));
            std::iter::once((".".to_owned(), json!({}))).chain(children).collect()
        }
        Value::Array(items) => {
            let children = items.iter().map(|item| {
                let key = match item.get("name") {
                    Some(name) => format!("k:{{\"name\":{name}}}"),
                    None => format!("v:{item}"),
                };
                (key, tree(item))
            });
            std::iter::once((".".to_owned(), json!({}))).chain(children).collect()
        }
        _ => json!({}),
    }
}
