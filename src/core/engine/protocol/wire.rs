//! Translates effects into requests to the API server, and responses into answers. The simulated and the real
//! cluster use it alike. This module sends nothing.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{ApiRequest, ApiResource, ApiResponse, ApiVerb, PODS};
use crate::dialect::{self, GroupResource, StatusWrite};
use crate::engine::protocol::{
    Action, Effect, Event, GangRecord, GangStatus, NodePinning, PodRef, Refusal, RequestOutcome,
    RequestTarget,
};
use crate::model::{DialectId, GangId, NodeName, ResourceVersion};
use crate::objects::text::Text;
use crate::objects::{ObjectRef, OwnerKind, names};
use crate::pod::{OwnerState, Pod};

/// The `Gang` objects of this project.
pub const GANGS: ApiResource = ApiResource { group: names::API_GROUP, version: "v1alpha1", plural: "gangs" };

/// The request that carries out an effect. `None` for lists, lease and events, which each cluster edge
/// carries out itself.
pub fn request_for(effect: &Effect) -> Option<ApiRequest> {
    let pod = |verb, pod: &PodRef, subresource| ApiRequest {
        verb,
        resource: PODS,
        namespace: pod.key.namespace.to_string(),
        name: pod.key.name.to_string(),
        subresource,
    };
    let gang = |verb, gang: &GangId, subresource| ApiRequest {
        verb,
        resource: GANGS,
        namespace: gang.namespace.to_string(),
        name: gang.object_name().to_string(),
        subresource,
    };
    Some(match &effect.action {
        Action::List | Action::ReadLease | Action::StepDown | Action::RecordEvent(_) => return None,
        Action::WriteGroup { gang: id, kind, group, status } => {
            let GroupResource { group: api_group, version, plural, status: door, .. } = *kind.resource();
            ApiRequest {
                verb: ApiVerb::Apply(group_object(id, group, &dialect::status_of(*kind, status)?)),
                resource: ApiResource { group: api_group, version, plural },
                namespace: id.namespace.to_string(),
                name: group.name.to_string(),
                subresource: (door == StatusWrite::Subresource).then_some("status"),
            }
        }
        Action::CreateGang { gang: id, owner } => {
            let mut object = gang_object(id, None, None);
            if let Some(owner) = owner {
                object["metadata"]["ownerReferences"] = json!([owner_reference(owner)]);
            }
            gang(ApiVerb::Create(object), id, None)
        }
        Action::ReadGang { gang: id } => gang(ApiVerb::Get, id, None),
        Action::WriteGang { gang: id, expected, status } => {
            gang(ApiVerb::Update(gang_object(id, Some(*expected), Some(status))), id, Some("status"))
        }
        Action::DeleteGang { gang: id, expected } => {
            gang(ApiVerb::Delete { uid: None, resource_version: Some(expected.to_string()) }, id, None)
        }
        Action::ReadOwner { gang: id, owner } => {
            let kind = OwnerKind::of(owner)?;
            ApiRequest {
                verb: ApiVerb::Get,
                resource: ApiResource { group: kind.group(), version: "v1", plural: kind.plural() },
                namespace: id.namespace.to_string(),
                name: owner.name.to_string(),
                subresource: None,
            }
        }
        Action::ReadPod { pod: which } => pod(ApiVerb::Get, which, None),
        Action::Fence { pod: which, token } => {
            pod(ApiVerb::MergePatch(fence_patch(which, token)), which, None)
        }
        Action::Nominate { pod: which, node } => {
            pod(ApiVerb::MergePatch(nominate_patch(which, node.as_ref())), which, Some("status"))
        }
        Action::Lift { pod: which, permit, node, pin, cards } => {
            let patch = lift_patch(which, *permit, node, *pin, cards);
            pod(ApiVerb::JsonPatch(patch), &PodRef::of(which), None)
        }
        Action::TryLift { pod: which, node, pin, cards } => {
            let patch = lift_patch(which, Some(which.resource_version), node, *pin, cards);
            pod(ApiVerb::DryRunJsonPatch(patch), &PodRef::of(which), None)
        }
        Action::Evict { pod: which, .. } => pod(ApiVerb::Evict { uid: which.uid.to_string() }, which, None),
    })
}

/// The event that answers an effect, from the response to its request. `None` for effects without an answer.
pub fn event_for(effect: &Effect, response: ApiResponse) -> Option<Event> {
    let (subject, uid) = match &effect.action {
        Action::CreateGang { gang, .. }
        | Action::ReadGang { gang }
        | Action::WriteGang { gang, .. }
        | Action::DeleteGang { gang, .. } => (RequestTarget::Gang(gang.clone()), None),
        Action::ReadPod { pod } | Action::Fence { pod, .. } | Action::Nominate { pod, .. } => {
            (RequestTarget::Pod(pod.uid.clone()), Some(&pod.uid))
        }
        Action::Lift { pod, .. } | Action::TryLift { pod, .. } => {
            (RequestTarget::Pod(pod.uid.clone()), Some(&pod.uid))
        }
        Action::WriteGroup { gang, .. } => (RequestTarget::Group(gang.clone()), None),
        Action::ReadOwner { gang, owner } => (RequestTarget::Owner(gang.clone(), owner.clone()), None),
        Action::List
        | Action::ReadLease
        | Action::StepDown
        | Action::Evict { .. }
        | Action::RecordEvent(_) => {
            return None;
        }
    };
    let deleting = matches!(effect.action, Action::DeleteGang { .. });
    let trying = matches!(effect.action, Action::TryLift { .. });
    let outcome = match response {
        ApiResponse::Lost => RequestOutcome::Unknown,
        // The object in the response is not stored.
        ApiResponse::Object(_) | ApiResponse::DryRunUnsupported { .. } if trying => RequestOutcome::Done,
        ApiResponse::Object(_) if deleting => RequestOutcome::Gone,
        ApiResponse::Object(_) if matches!(subject, RequestTarget::Group(_)) => RequestOutcome::Done,
        ApiResponse::Object(json) if let RequestTarget::Owner(_, owner) = &subject => {
            read_owner(owner, &json)
        }
        ApiResponse::Object(json) => match uid {
            Some(uid) => match Pod::read(&json) {
                Ok(pod) if pod.uid == *uid => RequestOutcome::Pod(Box::new(pod)),
                Ok(_) => RequestOutcome::Gone,
                Err(error) => unreadable_outcome(&json, &error.to_string()),
            },
            None => match read_gang(&json) {
                Ok(record) => RequestOutcome::Gang(Box::new(record)),
                Err(problem) => unreadable_outcome(&json, &problem),
            },
        },
        ApiResponse::Status { code: 404, .. } => RequestOutcome::Gone,
        ApiResponse::Stale { .. } => RequestOutcome::Conflict,
        rejected => refused_or_failed(&rejected),
    };
    Some(Event::Answer { epoch: effect.epoch, subject, outcome })
}

/// A throttled request and an error of the API server pass. Everything else is a refusal.
fn refused_or_failed(response: &ApiResponse) -> RequestOutcome {
    let refused = |code, message: &str| RequestOutcome::Refused(Refusal::new(code, message));
    match response {
        ApiResponse::Status { code: 429 | 500.., .. } => {
            RequestOutcome::Failed(response.problem().unwrap_or_default())
        }
        ApiResponse::DeniedByWebhook { code, message } | ApiResponse::Status { code, message } => {
            refused(*code, message)
        }
        ApiResponse::DisruptionBudget { message } => refused(429, message),
        ApiResponse::DryRunUnsupported { message } => refused(400, message),
        ApiResponse::Object(_) | ApiResponse::Stale { .. } | ApiResponse::Lost => RequestOutcome::Unknown,
    }
}

fn read_owner(owner: &ObjectRef, json: &str) -> RequestOutcome {
    match OwnerKind::of(owner).map(|kind| OwnerState::read(kind, json)) {
        Some(Ok(reading)) => RequestOutcome::Owner(Box::new(reading)),
        Some(Err(error)) => unreadable_outcome(json, &error.to_string()),
        None => {
            RequestOutcome::Failed(format!("{} is not a kind of owner that the engine reads", owner.kind))
        }
    }
}

/// A body that is not JSON says nothing of the result. An object that cannot be parsed exists all the same.
fn unreadable_outcome(json: &str, problem: &str) -> RequestOutcome {
    match serde_json::from_str::<serde::de::IgnoredAny>(json) {
        Ok(_) => RequestOutcome::Refused(Refusal::new(200, problem)),
        Err(_) => RequestOutcome::Unknown,
    }
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct GangView<'a> {
    #[serde(default)]
    metadata: GangMetadata<'a>,
    #[serde(default)]
    spec: GangSpec<'a>,
    #[serde(default)]
    status: Option<GangStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct GangMetadata<'a> {
    #[serde(default)]
    namespace: Option<Text<'a>>,
    #[serde(default)]
    resource_version: Text<'a>,
    #[serde(default)]
    generation: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct GangSpec<'a> {
    #[serde(default)]
    group: Option<Text<'a>>,
    #[serde(default)]
    dialect: Option<DialectId>,
}

/// Parses a `Gang` object.
///
/// # Errors
/// A sentence with the field that is missing or wrong.
pub fn read_gang(json: &str) -> Result<GangRecord, String> {
    let object: GangView<'_> = serde_json::from_str(json).map_err(|e| format!("Gang: {e}"))?;
    let namespace = object.metadata.namespace.ok_or("Gang: metadata.namespace is missing")?;
    let name = object.spec.group.ok_or("Gang: spec.group is missing")?;
    let missing = || format!("Gang {}/{}: spec.dialect is missing", namespace.as_str(), name.as_str());
    let dialect = object.spec.dialect.ok_or_else(missing)?;
    Ok(GangRecord {
        gang: GangId::new(dialect, namespace.as_str(), name.as_str()),
        resource_version: ResourceVersion::parse(object.metadata.resource_version.as_str()),
        generation: object.metadata.generation.unwrap_or_default(),
        status: object.status.unwrap_or_default(),
    })
}

fn gang_object(gang: &GangId, expected: Option<ResourceVersion>, status: Option<&GangStatus>) -> Value {
    let mut object = json!({
        "apiVersion": format!("{}/{}", GANGS.group, GANGS.version),
        "kind": "Gang",
        "metadata": {"namespace": &*gang.namespace, "name": &*gang.object_name()},
        "spec": {"dialect": gang.dialect.as_str(), "group": &*gang.name},
    });
    if let Some(version) = expected {
        object["metadata"]["resourceVersion"] = version.to_string().into();
    }
    if let Some(status) = status {
        object["status"] = serde_json::to_value(status).unwrap_or_default();
    }
    object
}

/// With its UID: a status for a deleted group must not be written to the next group of that name.
fn group_object(gang: &GangId, group: &ObjectRef, status: &Value) -> Value {
    json!({
        "apiVersion": &*group.api_version,
        "kind": &*group.kind,
        "metadata": {"namespace": &*gang.namespace, "name": &*group.name, "uid": &*group.uid},
        "status": status,
    })
}

/// Without `controller` and `blockOwnerDeletion`: the object is deleted with its group and does not delay its
/// deletion.
fn owner_reference(owner: &ObjectRef) -> Value {
    json!({
        "apiVersion": &*owner.api_version, "kind": &*owner.kind, "name": &*owner.name, "uid": &*owner.uid,
    })
}

fn fence_patch(pod: &PodRef, token: &str) -> Value {
    let annotations = json!({names::FENCE_ANNOTATION: token});
    json!({"metadata": {"uid": pod.uid.as_str(), "annotations": annotations}})
}

fn nominate_patch(pod: &PodRef, node: Option<&NodeName>) -> Value {
    json!({"metadata": {"uid": pod.uid.as_str()}, "status": {"nominatedNodeName": node.map(NodeName::as_str)}})
}

/// Tests the version that was known before the lease was read, removes the gate of this project and no other,
/// pins the pod and writes its cards.
fn lift_patch(
    pod: &Pod,
    permit: Option<ResourceVersion>,
    node: &NodeName,
    pin: NodePinning,
    cards: &[u32],
) -> Value {
    let mut patch = vec![json!({"op": "test", "path": "/metadata/uid", "value": pod.uid.as_str()})];
    if let Some(version) = permit {
        patch.push(json!({"op": "test", "path": "/metadata/resourceVersion", "value": version.to_string()}));
    }
    if let Some(index) = pod.gates.iter().position(|g| &**g == names::GATE) {
        let path = format!("/spec/schedulingGates/{index}");
        patch.push(json!({"op": "test", "path": format!("{path}/name"), "value": names::GATE}));
        patch.push(json!({"op": "remove", "path": path}));
    }
    match pin {
        NodePinning::Required => require_node(&mut patch, pod, node),
        NodePinning::Preferred => prefer_node(&mut patch, pod, node),
        NodePinning::None => {}
    }
    if !cards.is_empty() {
        let list = cards.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let path =
            format!("/metadata/annotations/{}", portcullis_text::pointer::escape(names::GPUS_ANNOTATION));
        patch.push(json!({"op": "add", "path": path, "value": list}));
    }
    Value::Array(patch)
}

const REQUIRED_NODE_AFFINITY_PATH: &str =
    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED_NODE_AFFINITY_PATH: &str =
    "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";

fn ensure_node_affinity(patch: &mut Vec<Value>, pod: &Pod) {
    if !pod.affinity.affinity {
        patch.push(json!({"op": "add", "path": "/spec/affinity", "value": {}}));
    }
    if !pod.affinity.node_affinity {
        patch.push(json!({"op": "add", "path": "/spec/affinity/nodeAffinity", "value": {}}));
    }
}

/// Kubernetes 1.36 (`ValidatePodUpdate`) allows only additions at the end of each of the ORed terms. A term
/// without requirements matches nothing and must stay as it is.
fn require_node(patch: &mut Vec<Value>, pod: &Pod, node: &NodeName) {
    let requirement = json!({"key": "metadata.name", "operator": "In", "values": [node.as_str()]});
    ensure_node_affinity(patch, pod);
    match pod.affinity.required.as_deref() {
        None | Some([]) => patch.push(json!({
            "op": "add", "path": REQUIRED_NODE_AFFINITY_PATH, "value": {"nodeSelectorTerms": [{"matchFields": [requirement]}]}
        })),
        Some(terms) => {
            for (index, term) in terms.iter().enumerate().filter(|(_, term)| !term.empty) {
                let path = format!("{REQUIRED_NODE_AFFINITY_PATH}/nodeSelectorTerms/{index}/matchFields");
                patch.push(if term.has_fields {
                    json!({"op": "add", "path": format!("{path}/-"), "value": requirement})
                } else {
                    json!({"op": "add", "path": path, "value": [requirement]})
                });
            }
        }
    }
}

fn prefer_node(patch: &mut Vec<Value>, pod: &Pod, node: &NodeName) {
    let requirement = json!({"key": "metadata.name", "operator": "In", "values": [node.as_str()]});
    let wish = json!({"weight": 100, "preference": {"matchFields": [requirement]}});
    ensure_node_affinity(patch, pod);
    patch.push(if pod.affinity.preferred {
        json!({"op": "add", "path": format!("{PREFERRED_NODE_AFFINITY_PATH}/-"), "value": wish})
    } else {
        json!({"op": "add", "path": PREFERRED_NODE_AFFINITY_PATH, "value": [wish]})
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Epoch, str};

    /// Lifts a pod with this `spec`, as the API server would apply the patch. Returns the `spec` after that.
    fn lift(spec: &Value, pin: NodePinning, cards: &[u32]) -> Value {
        let object = json!({
            "metadata": {"namespace": "default", "name": "a", "uid": "u", "resourceVersion": "7", "annotations": {"x": "y"}},
            "spec": spec,
        });
        let pod = Pod::read(&object.to_string()).expect("the pod of the test can be read");
        let action = Action::Lift {
            permit: Some(pod.resource_version),
            pod: Box::new(pod),
            node: NodeName::from("n1"),
            pin,
            cards: cards.to_vec(),
        };
        let request = request_for(&Effect { epoch: Epoch(1), action }).expect("a lift is a request");
        let ApiVerb::JsonPatch(patch) = request.verb else { panic!("a lift is a JSON patch: {request:?}") };
        let patch: json_patch::Patch = serde_json::from_value(patch).expect("RFC 6902");
        let mut lifted = object.clone();
        json_patch::patch(&mut lifted, &patch).expect("the patch applies to the pod it was made for");
        let mut changed = object;
        changed["metadata"]["resourceVersion"] = "8".into();
        assert!(json_patch::patch(&mut changed, &patch).is_err(), "it must not apply to another version");
        if !cards.is_empty() {
            assert_eq!(lifted["metadata"]["annotations"], json!({"x": "y", "portcullis.dev/gpus": "0,2"}));
        }
        lifted["spec"].clone()
    }

    fn spec(gates: &[&str], affinity: Option<Value>) -> Value {
        let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
        let mut spec = json!({"schedulingGates": gates, "containers": [{"name": "c"}]});
        if let Some(affinity) = affinity {
            spec["affinity"] = affinity;
        }
        spec
    }

    #[test]
    fn only_the_gate_of_this_project_is_removed() {
        for (before, after) in [
            (&[names::GATE][..], &[][..]),
            (&["a/x", names::GATE], &["a/x"]),
            (&[names::GATE, "a/x"], &["a/x"]),
            (&["a/x", names::GATE, "b/y"], &["a/x", "b/y"]),
        ] {
            assert_eq!(lift(&spec(before, None), NodePinning::None, &[0, 2]), spec(after, None));
        }
    }

    #[test]
    fn a_pin_is_appended_to_every_node_selector_term() {
        const REQUIRED_NODE_AFFINITY_PATH: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        const PREFERRED_NODE_AFFINITY_PATH: &str = "preferredDuringSchedulingIgnoredDuringExecution";
        let pin = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        let zone = json!({"key": "zone", "operator": "Exists"});
        let other = json!({"key": "metadata.name", "operator": "NotIn", "values": ["n2"]});
        let pinned = json!({"nodeSelectorTerms": [{"matchFields": [pin]}]});
        let wish = json!({"weight": 100, "preference": {"matchFields": [pin]}});
        let old = json!({"weight": 1, "preference": {"matchExpressions": [zone]}});
        let exact = [
            (None, json!({"nodeAffinity": {REQUIRED_NODE_AFFINITY_PATH: pinned}})),
            (
                Some(json!({"podAffinity": {}})),
                json!({"podAffinity": {}, "nodeAffinity": {REQUIRED_NODE_AFFINITY_PATH: pinned}}),
            ),
            (
                Some(json!({"nodeAffinity": {PREFERRED_NODE_AFFINITY_PATH: [old]}})),
                json!({"nodeAffinity": {PREFERRED_NODE_AFFINITY_PATH: [old], REQUIRED_NODE_AFFINITY_PATH: pinned}}),
            ),
            (
                Some(json!({"nodeAffinity": {REQUIRED_NODE_AFFINITY_PATH: {"nodeSelectorTerms": [
                    {"matchExpressions": [zone]}, {"matchFields": [other]}, {}
                ]}}})),
                json!({"nodeAffinity": {REQUIRED_NODE_AFFINITY_PATH: {"nodeSelectorTerms": [
                    {"matchExpressions": [zone], "matchFields": [pin]}, {"matchFields": [other, pin]}, {}
                ]}}}),
            ),
        ];
        for (before, after) in exact {
            assert_eq!(
                lift(&spec(&[names::GATE], before), NodePinning::Required, &[]),
                spec(&[], Some(after))
            );
        }
        let preferred = [
            (None, json!({"nodeAffinity": {PREFERRED_NODE_AFFINITY_PATH: [wish]}})),
            (
                Some(json!({"nodeAffinity": {PREFERRED_NODE_AFFINITY_PATH: [old]}})),
                json!({"nodeAffinity": {PREFERRED_NODE_AFFINITY_PATH: [old, wish]}}),
            ),
        ];
        for (before, after) in preferred {
            assert_eq!(
                lift(&spec(&[names::GATE], before), NodePinning::Preferred, &[]),
                spec(&[], Some(after))
            );
        }
    }

    #[test]
    fn responses_become_the_answers_the_engine_acts_on() {
        let pod = PodRef { key: crate::model::PodKey::new("default", "a"), uid: "u".into() };
        let fence = Effect { epoch: Epoch(1), action: Action::Fence { pod, token: str("1-7") } };
        let named =
            |uid: &str| json!({"metadata": {"namespace": "default", "name": "a", "uid": uid}}).to_string();
        let status = |code, message: &str| ApiResponse::Status { code, message: message.to_owned() };
        let check = |response, expected: &dyn Fn(&RequestOutcome) -> bool| {
            let shown = format!("{response:?}");
            let Some(Event::Answer { outcome, .. }) = event_for(&fence, response) else {
                panic!("a fence is answered")
            };
            assert!(expected(&outcome), "{shown} became {outcome:?}");
        };
        check(ApiResponse::Object(named("u")), &|o| matches!(o, RequestOutcome::Pod(_)));
        check(ApiResponse::Object(named("another pod by that name")), &|o| *o == RequestOutcome::Gone);
        check(ApiResponse::Lost, &|o| *o == RequestOutcome::Unknown);
        check(ApiResponse::Object("<html>".to_owned()), &|o| *o == RequestOutcome::Unknown);
        check(ApiResponse::Object("{\"metadata\": 7}".to_owned()), &|o| {
            matches!(o, RequestOutcome::Refused(_))
        });
        let trial = Action::TryLift {
            pod: Box::new(Pod::read(&named("u")).expect("the pod above can be read")),
            node: NodeName::from("n1"),
            pin: NodePinning::Required,
            cards: Vec::new(),
        };
        let trial = Effect { epoch: Epoch(1), action: trial };
        let verb = request_for(&trial).map(|request| request.verb);
        assert!(matches!(verb, Some(ApiVerb::DryRunJsonPatch(_))), "{verb:?}");
        let unsupported = ApiResponse::DryRunUnsupported { message: "no".to_owned() };
        for response in [ApiResponse::Object(named("u")), unsupported] {
            let Some(Event::Answer { outcome, .. }) = event_for(&trial, response) else {
                panic!("no answer")
            };
            assert_eq!(outcome, RequestOutcome::Done);
        }
        check(status(404, "not found"), &|o| *o == RequestOutcome::Gone);
        check(ApiResponse::Stale { message: "conflict".to_owned() }, &|o| *o == RequestOutcome::Conflict);
        check(status(422, "denied request: test failed"), &|o| matches!(o, RequestOutcome::Refused(_)));
        check(status(422, "spec.affinity: Forbidden"), &|o| matches!(o, RequestOutcome::Refused(_)));
        let denied =
            ApiResponse::DeniedByWebhook { code: 500, message: "admission webhook \"w\"".to_owned() };
        check(denied, &|o| matches!(o, RequestOutcome::Refused(Refusal { code: 500, .. })));
        check(status(429, "too many requests"), &|o| matches!(o, RequestOutcome::Failed(_)));
        check(status(500, "etcd"), &|o| matches!(o, RequestOutcome::Failed(_)));
    }
}
