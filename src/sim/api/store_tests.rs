//! The verbs of the API server in memory.

use serde_json::json;

use super::*;
use portcullis_core::dialect::StoredStatus;

fn server() -> ApiServer {
    ApiServer::new(Time(1_795_266_000_000), AdmissionWebhook::new(None))
}

fn pod(name: &str, gated: bool) -> Value {
    let gates = if gated { json!([{"name": "portcullis.dev/gang"}]) } else { json!([]) };
    let spec = json!({"containers": [{"name": "main"}], "schedulingGates": gates});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(ObjectKind::Pod, "default", name)
}

#[test]
fn a_write_that_changes_nothing_does_not_raise_the_version() {
    let mut server = server();
    server.create(&Actor::User, pod("a", true)).unwrap();
    let before = server.version();
    let patch = json!({"metadata": {"annotations": {"x": "1"}}});
    let first = server.merge_patch(&Actor::User, &key("a"), Subresource::None, &patch).unwrap();
    assert!(first.changed && server.version() == before + 1);
    let second = server.merge_patch(&Actor::User, &key("a"), Subresource::None, &patch).unwrap();
    assert!(!second.changed && server.version() == before + 1);
    assert_eq!(server.take_writes().len(), 2);
}

#[test]
fn versions_and_uids_are_compared_before_anything_is_written() {
    let mut server = server();
    let made = server.create(&Actor::User, pod("a", true)).unwrap().object;
    let uid = made["metadata"]["uid"].clone();
    let version = made["metadata"]["resourceVersion"].clone();
    let test = |version: &Value| {
        json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "remove", "path": "/spec/schedulingGates/0"},
        ])
    };
    let patched = |server: &mut ApiServer, patch: Value| {
        server.json_patch(&Actor::Engine(0), &key("a"), Subresource::None, &patch)
    };
    let refused = patched(&mut server, test(&json!("7"))).unwrap_err();
    assert_eq!(refused.code, 422, "{refused}");
    assert!(refused.message.contains("the server rejected our request"), "{refused}");
    patched(&mut server, test(&version)).unwrap();
    assert_eq!(patched(&mut server, test(&version)).unwrap_err().code, 422);

    let foreign = json!({"metadata": {"uid": "other", "annotations": {"a": "b"}}});
    let refused = server.merge_patch(&Actor::Engine(0), &key("a"), Subresource::None, &foreign).unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    assert!(refused.message.contains("metadata.uid: Invalid value"), "{refused}");
    let put = json!({"metadata": {"uid": "other"}, "spec": {}});
    let refused = server.update(&Actor::Engine(0), &key("a"), Subresource::None, put).unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    assert_eq!(server.delete(&Actor::User, &key("a"), Some("other"), None).unwrap_err().code, 409);
    assert_eq!(server.delete(&Actor::User, &key("a"), None, Some("1")).unwrap_err().code, 409);
    assert_eq!(server.delete(&Actor::User, &key("b"), None, None).unwrap_err().code, 404);
}

#[test]
fn only_the_status_subresource_changes_the_status() {
    let mut server = server();
    let mut gang = json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "Gang", "metadata": {"name": "g", "namespace": "default"},
        "spec": {"dialect": "kai", "group": "g"}, "status": {"phase": "Admitted"},
    });
    let made = server.create(&Actor::Engine(0), gang.clone()).unwrap().object;
    assert_eq!(made.get("status"), None, "a create cannot smuggle a status in");
    let key = ObjectKey::new(ObjectKind::Gang, "default", "g");
    gang["status"] = json!({"phase": "Waiting"});
    gang["spec"]["group"] = json!("other");
    let updated = server.update(&Actor::Engine(0), &key, Subresource::Status, gang.clone()).unwrap().object;
    assert_eq!((&updated["status"]["phase"], &updated["spec"]["group"]), (&json!("Waiting"), &json!("g")));
    gang["status"] = json!({"phase": "Torn"});
    let updated = server.update(&Actor::Engine(0), &key, Subresource::None, gang).unwrap().object;
    assert_eq!(
        (&updated["status"]["phase"], &updated["spec"]["group"]),
        (&json!("Waiting"), &json!("other"))
    );
}

#[test]
fn gated_pods_are_not_bound_and_bound_pods_end_with_grace() {
    let mut server = server();
    server.create(&Actor::User, pod("gated", true)).unwrap();
    server.create(&Actor::User, pod("free", false)).unwrap();
    let uid = |server: &ApiServer, name: &str| server.get(&key(name)).unwrap().uid.clone();
    let gated = uid(&server, "gated");
    assert_eq!(server.bind(&key("gated"), &gated, "n").unwrap_err().code, 409);
    let free = uid(&server, "free");
    server.bind(&key("free"), &free, "n").unwrap();
    assert_eq!(server.bind(&key("free"), &free, "n").unwrap_err().code, 409);
    server.delete(&Actor::User, &key("free"), None, None).unwrap();
    let left = server.get(&key("free")).expect("its kubelet has not stopped it yet");
    assert!(left.pod().unwrap().terminating);
    server.delete(&Actor::User, &key("gated"), None, None).unwrap();
    assert!(server.get(&key("gated")).is_none());
    let again = server.create(&Actor::User, pod("gated", true)).unwrap().object;
    assert_ne!(again["metadata"]["uid"].as_str().unwrap(), &*gated, "names come back, UIDs do not");
}

#[test]
fn reviews_carry_the_object_and_patches_are_applied() {
    use base64::Engine as _;
    let answer = |body: &[u8]| -> Result<Vec<u8>, String> {
        let review: Value = serde_json::from_slice(body).unwrap();
        let request = &review["request"];
        let mut response = json!({"uid": request["uid"], "allowed": true, "warnings": ["mind the gap"]});
        let object = &request["object"];
        if object["metadata"]["name"] == "bad" {
            response["allowed"] = json!(false);
            let causes = json!([{"field": "f", "message": "m"}]);
            let details = json!({"kind": "Pod", "name": "bad", "causes": causes});
            response["status"] =
                json!({"code": 422, "reason": "Invalid", "message": "x", "details": details});
        } else if object["metadata"].get("labels").is_none() {
            let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]);
            let engine = base64::engine::general_purpose::STANDARD;
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(engine.encode(patch.to_string()));
        }
        Ok(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            .to_string()
            .into_bytes())
    };
    let admit: super::super::WebhookCall = Box::new(move |_, body| answer(body));
    let mut server = ApiServer::new(Time(0), AdmissionWebhook::new(Some(admit)));
    let made = server.create(&Actor::User, pod("good", false)).unwrap();
    assert_eq!(made.object["metadata"]["labels"], json!({"seen": "yes"}));
    assert_eq!(made.warnings, ["mind the gap", "mind the gap"], "once from each of the two hooks");
    let refused = server.create(&Actor::User, pod("bad", false)).unwrap_err();
    assert_eq!(refused.kubectl(), "The Pod \"bad\" is invalid: f: m");
    assert!(server.webhook.violations.is_empty(), "{:?}", server.webhook.violations);
    assert_eq!(server.webhook.calls(), 4, "mutate, mutate again, validate; and one denial");
}

#[test]
fn a_status_of_another_manager_is_not_overwritten() {
    let mut server = server();
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 3},
    });
    let made = server.create(&Actor::User, group).unwrap().object;
    let key = ObjectKey::new(ObjectKind::named("podgroup").unwrap(), "default", "g");
    let with_phase =
        |phase: &str| json!({"metadata": {"uid": made["metadata"]["uid"]}, "status": {"phase": phase}});
    let apply = |server: &mut ApiServer, phase: &str| {
        server.apply(&Actor::Engine(0), &key, Subresource::Status, &with_phase(phase))
    };
    assert!(apply(&mut server, "Pending").unwrap().changed);
    let again = apply(&mut server, "Pending").unwrap();
    assert!(!again.changed, "nothing new is no write");
    assert_eq!(again.object["spec"]["minMember"], 3);
    let group = server.get(&key).and_then(StoredObject::group).unwrap().clone();
    let stored = &group.groups[0].stored_status;
    assert_eq!(stored.matches(&json!({"phase": "Pending"})), Some(true));
    assert!(matches!(stored, StoredStatus::Own(status) if status["phase"] == "Pending"));

    let mut theirs = (*again.object).clone();
    theirs["metadata"]["managedFields"] = json!([{"manager": "kai-scheduler", "subresource": "status"}]);
    server.update(&Actor::User, &key, Subresource::None, theirs).unwrap();
    assert_eq!(apply(&mut server, "Running").unwrap_err().code, 409);
    assert!(server.get(&key).and_then(StoredObject::group).unwrap().groups[0].stored_status.is_foreign());
}

#[test]
fn a_watch_resumes_from_a_bookmark_after_its_last_change_is_compacted() {
    let mut server = server();
    server.history_limit = 3;
    server.create(&Actor::User, pod("a", true)).unwrap();
    let seen = server.version().to_string();
    for index in 0..4 {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("n{index}")}});
        server.create(&Actor::User, namespace).unwrap();
    }
    assert_eq!(server.changes_since(ObjectKind::Pod, &seen).unwrap_err().code, 410);
    let bookmark: Value = serde_json::from_str(&server.bookmark_line(ObjectKind::Pod)).unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    let version = bookmark["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    assert!(server.changes_since(ObjectKind::Pod, version).unwrap().is_empty());
    server.create(&Actor::User, pod("b", true)).unwrap();
    assert_eq!(server.changes_since(ObjectKind::Pod, version).unwrap().len(), 1);
}
