//! The control plane for the cases, and the normalisation that makes its answers comparable between runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use http::{Method, Request as HttpRequest};
use http_body_util::BodyExt;
use portcullis_test_cluster::wait::WAIT_TIMEOUT;
use portcullis_test_cluster::{Cluster, Options, Part};
use serde_json::{Value as Json, json};

use super::cases::{Case, Request, collection, namespace};
use super::recorder::{RecordedRequests, Recorder};

pub(crate) struct Stage {
    cluster: Cluster,
    recorder: Recorder,
    audit: PathBuf,
    /// The namespace objects of the cases.
    namespaces: BTreeMap<String, Json>,
}

/// An answer with its headers.
struct Answer {
    code: u16,
    body: Json,
    warnings: Vec<String>,
    audit: String,
}

const AUDIT: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

impl Stage {
    /// Starts the control plane and creates the namespaces and objects that exist before the policies.
    pub(crate) fn new(cases: &[Case]) -> Self {
        let scratch =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("policies-{}", std::process::id()));
        fs::create_dir_all(&scratch).unwrap();
        let (policy, audit) = (scratch.join("audit.yaml"), scratch.join("audit.log"));
        fs::write(&policy, AUDIT).unwrap();
        let options = Options {
            without: vec![Part::Scheduler, Part::ControllerManager, Part::Kubelets],
            api_server_flags: vec![
                format!("--audit-policy-file={}", policy.display()),
                format!("--audit-log-path={}", audit.display()),
            ],
            ..Options::default()
        };
        let cluster = Cluster::start(&options).unwrap();
        let recorder = Recorder::start();
        let mut stage = Self { cluster, recorder, audit, namespaces: BTreeMap::new() };
        for case in cases {
            let mut labels = case.labels.clone();
            labels.insert("case".into(), json!(case.name));
            let object = json!({ "metadata": { "name": namespace(&case.name), "labels": labels } });
            let created = stage.cluster.api().create("/api/v1/namespaces", &object).unwrap();
            stage.namespaces.insert(case.name.clone(), cleaned(created));
            for object in
                case.params.iter().chain(case.requests.iter().filter_map(|request| request.old.as_ref()))
            {
                let path = collection(object, &namespace(&case.name));
                let answer =
                    stage.cluster.api().send(Method::POST, &path, "application/json", Some(object)).unwrap();
                assert!(answer.code < 400 || answer.code == 409, "{}: {}", case.name, answer.body);
            }
        }
        for (configuration, resource) in stage
            .recorder
            .configurations()
            .iter()
            .zip(["mutatingwebhookconfigurations", "validatingwebhookconfigurations"])
        {
            stage
                .cluster
                .api()
                .create(&format!("/apis/admissionregistration.k8s.io/v1/{resource}"), configuration)
                .unwrap();
        }
        let probe = cases.iter().find(|case| !case.requests.is_empty()).unwrap();
        stage.wait("the webhook is asked", || {
            stage.send(&probe.requests[0]);
            let seen = stage.recorder.take();
            seen.mutating.is_some() && seen.validating.is_some()
        });
        stage
    }

    fn wait(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while !holds() {
            assert!(Instant::now() < deadline, "after {WAIT_TIMEOUT:?} still not: {what}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn send(&self, request: &Request) -> Answer {
        let (method, path) = match request.operation.as_str() {
            "CREATE" if request.sub.is_empty() => (Method::POST, request.path.clone()),
            "CREATE" => (Method::POST, request.place()),
            "DELETE" => (Method::DELETE, request.place()),
            _ => (Method::PUT, request.place()),
        };
        let body =
            if method == Method::DELETE { Vec::new() } else { serde_json::to_vec(&request.object).unwrap() };
        let http = HttpRequest::builder()
            .method(method)
            .uri(format!("{path}?dryRun=All&fieldManager=case"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json")
            .body(body.into())
            .unwrap();
        let client = self.cluster.api().client();
        self.cluster.api().runtime().block_on(async move {
            let response = client.send(http).await.unwrap();
            let head = response.headers();
            let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
            let warnings =
                head.get_all(http::header::WARNING).iter().map(text).map(|text| unquoted(&text)).collect();
            let audit = head.get("audit-id").map(text).unwrap_or_default();
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            Answer { code, warnings, audit, body: serde_json::from_slice(&bytes).unwrap_or(Json::Null) }
        })
    }

    /// Sends the requests of all cases. Returns each answer and the request that the webhook recorded.
    fn asked(&self, cases: &[Case]) -> Vec<Vec<(Answer, RecordedRequests)>> {
        let ask = |request: &Request| {
            self.recorder.take();
            (self.send(request), self.recorder.take())
        };
        cases.iter().map(|case| case.requests.iter().map(ask).collect()).collect()
    }

    /// Runs all cases: their requests without the policies, then with them.
    pub(crate) fn play(&self, cases: &[Case]) -> Vec<Json> {
        let before = self.asked(cases);
        let refused: Vec<Vec<Json>> = cases
            .iter()
            .map(|case| case.documents.iter().map(|document| self.create(document)).collect())
            .collect();
        self.wait_for_policies();
        let after = self.asked(cases);
        let audit = self.annotations();
        cases
            .iter()
            .zip(refused)
            .zip(before.into_iter().zip(after))
            .map(|((case, refused), (before, after))| {
                let requests: Vec<Json> = before
                    .into_iter()
                    .zip(after)
                    .map(|((earlier, before), (answer, after))| {
                        golden_request(case, earlier.code, before, &answer, after, &audit)
                    })
                    .collect();
                json!({
                    "case": case.name, "namespace": self.namespaces[&case.name], "documents": case.documents, "refused": refused,
                    "params": case.params, "requests": requests,
                })
            })
            .collect()
    }

    /// Creates a policy or binding. Returns the message of a refusal.
    fn create(&self, document: &Json) -> Json {
        let path = match document["kind"].as_str().unwrap() {
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
            "MutatingAdmissionPolicy" => "mutatingadmissionpolicies",
            "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
            _ => "mutatingadmissionpolicybindings",
        };
        let path = format!("/apis/admissionregistration.k8s.io/v1/{path}");
        let answer =
            self.cluster.api().send(Method::POST, &path, "application/json", Some(document)).unwrap();
        if answer.code < 400 { Json::Null } else { answer.body["message"].clone() }
    }

    /// The API server activates new policies together about once a second. The policies created last show
    /// when.
    fn wait_for_policies(&self) {
        let rules = json!({ "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"], "resourceNames": ["marker"],
        }] });
        let api = "admissionregistration.k8s.io/v1";
        for document in [
            json!({ "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": { "name": "zz-marker" }, "spec": {
                "matchConstraints": rules, "validations": [{ "expression": "!has(object.data) || !('marked' in object.data)", "message": "marked" }] } }),
            json!({ "apiVersion": api, "kind": "MutatingAdmissionPolicy", "metadata": { "name": "zz-marker" }, "spec": {
                "matchConstraints": rules, "reinvocationPolicy": "Never", "mutations": [{ "patchType": "JSONPatch",
                    "jsonPatch": { "expression": "[JSONPatch{op: 'add', path: '/data', value: {'marked': 'yes'}}]" } }] } }),
            json!({ "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": "zz-marker" },
                "spec": { "policyName": "zz-marker", "validationActions": ["Deny"] } }),
            json!({ "apiVersion": api, "kind": "MutatingAdmissionPolicyBinding", "metadata": { "name": "zz-marker" },
                "spec": { "policyName": "zz-marker" } }),
        ] {
            assert_eq!(self.create(&document), Json::Null);
        }
        let marker = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "marker" } });
        self.wait("policies take effect", || {
            let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
            self.cluster.api().send(Method::POST, path, "application/json", Some(&marker)).unwrap().code
                == 422
        });
        std::thread::sleep(Duration::from_millis(2500));
    }

    /// The annotations of all audit events, by the id of the event.
    fn annotations(&self) -> BTreeMap<String, Json> {
        let log = fs::read_to_string(&self.audit).unwrap();
        log.lines()
            .filter_map(|line| serde_json::from_str::<Json>(line).ok())
            .map(|event| {
                (event["auditID"].as_str().unwrap_or_default().to_owned(), event["annotations"].clone())
            })
            .collect()
    }
}

/// The text of a `Warning` header: `299 - "text"`.
fn unquoted(header: &str) -> String {
    let text = header.splitn(3, ' ').nth(2).unwrap_or_default();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}

/// One request of a golden: the request as policies see it, and its result.
fn golden_request(
    case: &Case,
    plain: u16,
    before: RecordedRequests,
    answer: &Answer,
    after: RecordedRequests,
    audit: &BTreeMap<String, Json>,
) -> Json {
    let mutates = case.documents.iter().any(|document| document["kind"] == "MutatingAdmissionPolicy");
    let validates = case.documents.iter().any(|document| document["kind"] == "ValidatingAdmissionPolicy");
    let annotations: BTreeMap<String, Json> = audit
        .get(&answer.audit)
        .and_then(Json::as_object)
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(&case.name) || key.starts_with("validation.policy."))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut golden = json!({ "plain": plain, "code": answer.code });
    if mutates {
        golden["mutating"] = before.mutating.map_or(Json::Null, cleaned);
        if let Some(mutated) = after.mutating {
            golden["object"] = cleaned(mutated)["object"].take();
        }
    }
    if validates {
        // The mutated object is known only if no policy refuses the request.
        let seen = if mutates { after.validating } else { before.validating };
        golden["validating"] = seen.map_or(Json::Null, cleaned);
    }
    if answer.code >= 400 {
        golden["message"] = answer.body["message"].clone();
        golden["reason"] = answer.body["reason"].clone();
        golden["causes"] = answer.body["details"]["causes"].clone();
    }
    if !answer.warnings.is_empty() {
        golden["warnings"] = json!(answer.warnings);
    }
    if !annotations.is_empty() {
        golden["audit"] = json!(annotations);
    }
    golden
}

/// Replaces the random suffix of a generated name.
fn named(request: &mut Json) {
    let generated = request.pointer("/object/metadata/generateName").and_then(Json::as_str);
    let Some(name) = generated.map(|begin| format!("{begin}abcde")) else { return };
    for place in ["/name", "/object/metadata/name"] {
        if let Some(found) = request.pointer_mut(place).filter(|found| found.is_string()) {
            *found = json!(name);
        }
    }
}

/// Removes fields that vary from run to run and that no case needs.
fn cleaned(mut json: Json) -> Json {
    fn visit(json: &mut Json) {
        match json {
            Json::Object(fields) => {
                // The uid of a user is kept.
                if !fields.contains_key("username") {
                    fields.remove("uid");
                }
                for key in ["resourceVersion", "managedFields"] {
                    fields.remove(key);
                }
                if let Some(moment) = fields.get_mut("creationTimestamp").filter(|moment| moment.is_string())
                {
                    *moment = json!("2026-01-02T03:04:05Z");
                }
                fields.values_mut().for_each(visit);
            }
            Json::Array(items) => items.iter_mut().for_each(visit),
            _ => {}
        }
    }
    visit(&mut json);
    named(&mut json);
    json
}
