//! Compares the schema of the Gang object with what the engine writes. The API server silently drops a field
//! that the schema does not declare. It rejects the whole status for one value out of bounds, and then the
//! engine cannot record a plan.

use std::path::Path;

use portcullis_core::admission;
use portcullis_core::engine::{
    Condition, ConditionStatus, ConditionType, GangStatus, Phase, PlanRecord, PlannedMember, TornRecord,
};
use portcullis_core::model::{DialectId, Epoch, NodeName, PodUid, Reason, Time, str};
use portcullis_sim::api::ObjectKind;
use portcullis_sim::fuzz::{generate, webhook};
use portcullis_sim::scenario::{Runner, Scenario};
use serde_json::{Value, json};

fn definition() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/base/gangs.portcullis.dev.yaml");
    let text = std::fs::read_to_string(&file).expect("the definition is in the repository");
    serde_saphyr::from_str(&text).expect("and is YAML")
}

fn schema() -> Value {
    definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Adds the violations of `schema` in `value`. A keyword that is neither checked nor known to have no effect
/// panics.
fn problems(schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let mut wrong = |what: String| found.push(format!("{place}: {what}: {value}"));
    let length = value.as_str().map(|text| text.chars().count() as u64);
    let items = value.as_array().map(|list| list.len() as u64);
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        match keyword.as_str() {
            "type" => {
                let holds = match rule.as_str() {
                    Some("object") => value.is_object(),
                    Some("array") => value.is_array(),
                    Some("string") => value.is_string(),
                    Some("integer") => value.is_i64() || value.is_u64(),
                    Some("boolean") => value.is_boolean(),
                    _ => false,
                };
                if !holds {
                    wrong(format!("not of type {rule}"));
                }
            }
            "enum" if !rule.as_array().is_some_and(|list| list.contains(value)) => {
                wrong(format!("not in {rule}"));
            }
            "minimum" if value.as_i64() < rule.as_i64() => wrong(format!("less than {rule}")),
            "minLength" if length < rule.as_u64() => wrong(format!("shorter than {rule}")),
            "maxLength" if length > rule.as_u64() => wrong(format!("longer than {rule}")),
            "maxItems" if items > rule.as_u64() => wrong(format!("more than {rule}")),
            "pattern" => {
                assert_eq!(rule, "^[A-Z][A-Za-z]*$", "a new pattern needs a check here");
                let text = value.as_str().unwrap_or("");
                if !text.starts_with(char::is_uppercase) || !text.chars().all(|c| c.is_ascii_alphabetic()) {
                    wrong("not in camel case".to_owned());
                }
            }
            "format" if rule == "date-time" => {
                if Time::parse_rfc3339(value.as_str().unwrap_or("")).is_none() {
                    wrong("no RFC 3339 time".to_owned());
                }
            }
            "required" => {
                for field in rule.as_array().into_iter().flatten().filter_map(Value::as_str) {
                    if value.get(field).is_none() {
                        wrong(format!("{field} is missing"));
                    }
                }
            }
            "x-kubernetes-list-map-keys" => {
                let mut keys: Vec<String> = value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|item| {
                        rule.as_array()
                            .into_iter()
                            .flatten()
                            .map(|k| item[k.as_str().unwrap_or("")].to_string())
                            .collect()
                    })
                    .collect();
                let count = keys.len();
                keys.sort();
                keys.dedup();
                if keys.len() != count {
                    wrong("two items with the same key".to_owned());
                }
            }
            "maxProperties" if value.as_object().map(|object| object.len() as u64) > rule.as_u64() => {
                wrong(format!("more than {rule}"));
            }
            "enum"
            | "additionalProperties"
            | "maxProperties"
            | "minimum"
            | "minLength"
            | "maxLength"
            | "maxItems"
            | "format"
            | "description"
            | "properties"
            | "items"
            | "x-kubernetes-map-type"
            | "x-kubernetes-list-type" => {}
            other => panic!("{place}: a new keyword needs a check here: {other}"),
        }
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (field, value) in value.as_object().into_iter().flatten() {
            match properties.get(field) {
                // The API server defines the metadata of every object.
                Some(_) if field == "metadata" => {}
                Some(schema) => problems(schema, value, &format!("{place}.{field}"), found),
                None => found.push(format!("{place}.{field} is not declared, and would be dropped: {value}")),
            }
        }
    }
    if let Some(schema) = schema.get("additionalProperties") {
        for (field, value) in value.as_object().into_iter().flatten() {
            problems(schema, value, &format!("{place}[{field}]"), found);
        }
    }
    if let Some(schema) = schema.get("items") {
        for (index, value) in value.as_array().into_iter().flatten().enumerate() {
            problems(schema, value, &format!("{place}[{index}]"), found);
        }
    }
}

fn check(schema: &Value, object: &Value, whence: &str) {
    let mut found = Vec::new();
    problems(schema, object, "", &mut found);
    assert!(found.is_empty(), "{whence}: {found:#?}");
}

/// A status with a value in every field. A new field does not compile until it has a value here.
fn full(phase: Phase, reason: Reason) -> GangStatus {
    let condition = |kind, status| Condition {
        kind,
        status,
        reason: reason.as_str().to_owned(),
        message: "why".to_owned(),
        last_transition_time: Time(1_795_266_000_000),
        observed_generation: 1,
    };
    GangStatus {
        epoch: Epoch(7),
        phase,
        reason: Some(reason),
        message: "why".to_owned(),
        remedy: Some("a remedy".to_owned()),
        min_member: 3,
        ready: "3/3".to_owned(),
        waiting_for: "13000 MiB VRAM".to_owned(),
        members: 3,
        bound: 1,
        needs: "20000 MiB VRAM".to_owned(),
        position: Some(1),
        since: Time(1_795_266_000_042),
        conditions: vec![
            condition(ConditionType::Complete, ConditionStatus::True),
            condition(ConditionType::Planned, ConditionStatus::False),
            condition(ConditionType::Admitted, ConditionStatus::False),
            condition(ConditionType::Torn, ConditionStatus::True),
            condition(ConditionType::SchedulingTimeout, ConditionStatus::True),
            condition(ConditionType::Stale, ConditionStatus::False),
            condition(ConditionType::PriorityClassFound, ConditionStatus::True),
        ],
        started_with: 3,
        torn: Some(TornRecord { since: Time(1_795_266_000_042), retries: 2, had_started: true }),
        expired: vec![PodUid::from("uid-2")],
        plan: Some(PlanRecord {
            epoch: Epoch(7),
            deadline: Time(1_795_266_060_042),
            members: vec![PlannedMember {
                pod: str("model-1"),
                uid: PodUid::from("uid-1"),
                node: NodeName::from("gpu-1"),
                gpus: vec![0, 3],
            }],
            placeholders: [
                r#"{"number":2,"role":"worker","node":"gpu-1","requests":{"cpu":"1500m","memory":"1024","nvidia.com/gpu":"1"},"hostPorts":["TCP/80"]}"#,
                r#"{"number":3,"node":"gpu-2","gpus":[0,3],"requests":{},"vramMib":4000}"#,
                r#"{"number":4,"node":"gpu-2","gpus":[1],"requests":{},"gpuBillionths":500000000}"#,
            ]
            .map(|place| serde_json::from_str(place).expect("the place above can be read"))
            .to_vec(),
            reserved_until: Some(Time(1_795_266_600_042)),
            released: 1,
        }),
    }
}

fn object(status: &GangStatus) -> Value {
    json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "Gang", "metadata": {"name": "app"},
        "spec": {"dialect": DialectId::Kai.as_str(), "group": "app"},
        "status": serde_json::to_value(status).expect("a status serialises"),
    })
}

#[test]
fn every_possible_status_is_valid_by_the_schema() {
    let schema = schema();
    let phases =
        [Phase::Gathering, Phase::Waiting, Phase::Planned, Phase::Lifting, Phase::Admitted, Phase::Torn];
    for phase in phases {
        assert_eq!(serde_json::to_value(phase).expect("a phase serialises"), phase.as_str());
        for reason in Reason::ALL {
            check(&schema, &object(&full(phase, *reason)), phase.as_str());
        }
    }
    check(&schema, &object(&GangStatus::default()), "the least there is");
}

#[test]
fn objects_written_in_scenarios_and_seeds_are_valid_by_the_schema() {
    let schema = schema();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let files = std::fs::read_dir(folder).expect("the folder of scenarios is there");
    let mut scenarios: Vec<Scenario> = files
        .map(|file| file.expect("it can be read").path())
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("a scenario can be read");
            Scenario::parse(&path.display().to_string(), &text).expect("and is one")
        })
        .collect();
    scenarios.extend((0..20).map(generate));
    let mut seen = 0;
    for scenario in scenarios {
        let name = scenario.name.clone();
        let admit = webhook(admission::AdmissionSettings::default());
        let mut runner = Runner::new(scenario, Some(admit)).expect("a scenario can be set up");
        while runner.next_step().expect("a step can be done").is_some() {
            for (key, stored) in runner.cluster().api.list(ObjectKind::Gang) {
                check(&schema, &stored.object, &format!("{name}: {key}"));
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "only {seen} objects were seen");
}

/// Tests the check itself: it must find each of these violations.
#[test]
fn the_schema_check_finds_invalid_objects() {
    let schema = schema();
    for (pointer, value) in [
        ("/status/phase", json!("Sleeping")),
        ("/status/minMember", json!(-1)),
        ("/status/position", json!(0)),
        ("/status/reason", json!("in words")),
        ("/status/since", json!(1_795_266_000_000_u64)),
        ("/status/plan/members/0/node", json!("")),
        ("/status/plan/members/0/gpus", json!("0,3")),
        ("/status/conditions/1/type", json!("Complete")),
        ("/status/conditions/1", json!({"type": "Planned"})),
        ("/spec/dialect", json!("esperanto")),
        ("/status/waitingFor", json!("x".repeat(5000))),
        ("/status", json!({"phase": "Waiting", "fase": "Waiting"})),
    ] {
        let mut object = object(&full(Phase::Waiting, Reason::Queued));
        *object.pointer_mut(pointer).expect("the field is there") = value;
        let mut found = Vec::new();
        problems(&schema, &object, "", &mut found);
        assert!(!found.is_empty(), "{pointer}");
    }
}

/// The API server requires descriptions; the printer columns must point at declared fields.
#[test]
fn the_columns_show_declared_fields_and_every_field_is_described() {
    fn described(schema: &Value, place: &str) {
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            let place = format!("{place}.{field}");
            let said = schema["description"].as_str().is_some_and(|text| text.ends_with('.'));
            assert!(said || place == ".metadata", "{place} has no description, or not a sentence");
            described(schema, &place);
        }
        if let Some(items) = schema.get("items") {
            described(items, place);
        }
    }
    let schema = schema();
    described(&schema, "");
    let definition = definition();
    let version = &definition["spec"]["versions"][0];
    let columns = version["additionalPrinterColumns"].as_array().expect("there are columns");
    assert!(columns.len() >= 6);
    for column in columns {
        let path = column["jsonPath"].as_str().expect("a column has a path");
        let mut place = &schema;
        // The API server defines the metadata of every object.
        for field in path.trim_start_matches('.').split('.').take_while(|field| *field != "metadata") {
            place = &place["properties"][field];
            assert!(place.is_object(), "{path} is not declared");
        }
    }
    let dialects = &schema["properties"]["spec"]["properties"]["dialect"]["enum"];
    let known: Vec<_> =
        portcullis_core::dialect::group_resources().map(|(id, _)| json!(id.as_str())).collect();
    assert!(known.iter().all(|id| dialects.as_array().is_some_and(|list| list.contains(id))), "{known:?}");
}
