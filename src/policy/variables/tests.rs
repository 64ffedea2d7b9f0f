//! Tests of the variables: their values for requests and cluster data. Table, values and documentation agree.

use std::sync::Arc;

use portcullis_cel::{Activation, Budget, Env, MAX_POLICY_COST, Program, Type, Value, compile};
use portcullis_core::capacity::CapacityReport;
use serde_json::{Value as Json, json};

use super::definitions::{FieldType, STRUCTURES, VARIABLES};
use super::{LazyVariable, RequestVariables, VariableSources, data_dependencies, declare, documentation};
use crate::input::AdmissionRequest;
use crate::input::{ClusterData, DataDependencies};

fn env() -> Env {
    declare(Env::admission(false))
}

fn program(source: &str) -> Program {
    compile(source, &env()).unwrap_or_else(|issues| panic!("{source}: {issues:?}"))
}

fn request(operation: &str, group: &str, kind: &str, object: &Json) -> Json {
    let old = (operation != "CREATE").then(|| object.clone());
    let new = (operation != "DELETE").then(|| object.clone());
    json!({ "operation": operation, "namespace": "ml", "name": "x",
        "kind": { "group": group, "version": "v1", "kind": kind }, "object": new, "oldObject": old })
}

fn evaluate(source: &str, request: &Json, cluster: &ClusterData) -> String {
    let program = program(source);
    let facts = RequestVariables::new(&AdmissionRequest { json: request }, cluster);
    let activation = facts.bind(Activation::new(&env()).with("request", Value::json(request)));
    match program.eval(&activation, &mut Budget::new(MAX_POLICY_COST)) {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    }
}

fn check(request: &Json, cluster: &ClusterData, expected: &[(&str, &str)]) {
    for (source, value) in expected {
        assert_eq!(evaluate(source, request, cluster), *value, "{source}\n{request}");
    }
}

fn pod(annotations: &Json, gpus: u64) -> Json {
    json!({ "metadata": { "annotations": annotations },
        "spec": { "containers": [{ "name": "main", "resources": { "limits": { "nvidia.com/gpu": gpus.to_string() } } }] } })
}

/// Returns a cluster with a KAI group `train` of four in queue `team-a` and its Gang object. Two GPUs of the
/// group's first member and four GPUs of other pods are counted.
fn cluster() -> ClusterData {
    let group = json!({ "metadata": { "name": "train", "uid": "u" }, "spec": { "minMember": 4, "queue": "team-a", "priorityClassName": "train" } });
    let gang = json!({ "spec": { "dialect": "kai", "group": "train" },
        "status": { "phase": "Gathering", "reason": "Gathering", "message": "waiting for 3 more pods", "members": 1, "bound": 0 } });
    let capacity = serde_json::from_value(json!({
        "models": { "A100": { "nodes": 2, "cards": 16, "vramMiB": 1_310_720, "largestCardMiB": 81_920, "largestNodeCards": 8, "freeCards": 3 },
                    "T4": { "nodes": 1, "cards": 1, "vramMiB": 15_360, "largestCardMiB": 15_360, "largestNodeCards": 1, "freeVramMiB": 15_360, "largestFreeMiB": 15_360 } },
        "namespaces": { "ml": { "running": { "pods": 2, "gpus": 4, "gangs": 1 }, "waiting": { "pods": 1, "gpus": 2, "gangs": 1 } } },
        "queues": { "team-a": { "waiting": { "pods": 1, "gpus": 2, "gangs": 1 } } },
        "gangs": { "ml/train": { "pods": 1, "gpus": 2, "gangs": 1 } },
    }));
    ClusterData {
        groups: [("PodGroup.scheduling.run.ai/ml/train".to_owned(), group)].into(),
        gangs: [("ml/train".to_owned(), gang)].into(),
        priority_classes: Some([("train".to_owned(), json!({ "value": 100 }))].into()),
        runtime_classes: Some([("nvidia".to_owned(), json!({ "handler": "nvidia" }))].into()),
        capacity: Some(Arc::new(capacity.expect("it is of the shape"))),
        ..ClusterData::default()
    }
}

#[test]
fn a_member_of_a_gang_has_the_values_of_its_group() {
    let member = request("CREATE", "", "Pod", &pod(&json!({ "pod-group-name": "train" }), 2));
    check(
        &member,
        &cluster(),
        &[
            ("gang.named && gang.groupFound && gang.known", "true"),
            ("gang.dialect + ' ' + gang.namespace + '/' + gang.name", "\"kai ml/train\""),
            ("gang.groupKind", "\"PodGroup.scheduling.run.ai\""),
            ("[gang.min, gang.declared, gang.members, gang.bound, gang.gpus]", "[4, 0, 1, 0, 8]"),
            ("gang.phase + ': ' + gang.message", "\"Gathering: waiting for 3 more pods\""),
            ("[gang.timeoutSeconds, gang.staleGraceSeconds]", "[-1, -1]"),
            ("gang.priorityClass in priorityClasses", "true"),
            ("priorityClasses[gang.priorityClass].value", "100"),
            ("queue.name", "\"team-a\""),
            // Two GPUs of the gang are counted: 2 - 2 + 8 in the queue, 6 - 2 + 8 in the namespace.
            (
                "[queue.gpus, queue.gpusAfter, quota.gpus, quota.gpusRunning, quota.gpusAfter]",
                "[2, 8, 6, 4, 12]",
            ),
            ("quota.namespace + string(quota.pods) + string(quota.gangs)", "\"ml31\""),
        ],
    );
    // A pod that is counted already adds nothing.
    let update = request("UPDATE", "", "Pod", &pod(&json!({ "pod-group-name": "train" }), 2));
    check(&update, &cluster(), &[("[quota.gpus, quota.gpusAfter]", "[6, 6]"), ("gang.gpus", "8")]);
    let delete = request("DELETE", "", "Pod", &pod(&json!({ "pod-group-name": "train" }), 2));
    check(&delete, &cluster(), &[("gang.name", "\"train\""), ("gpu.whole", "2")]);
}

#[test]
fn a_pod_can_set_the_gang_size_itself_or_name_a_missing_group() {
    let plain = json!({ "portcullis.dev/gang": "g", "portcullis.dev/gang-size": "3", "portcullis.dev/timeout": "2m",
        "portcullis.dev/on-timeout": "delete", "portcullis.dev/on-stale": "keep", "portcullis.dev/elastic": "true" });
    check(
        &request("CREATE", "", "Pod", &pod(&plain, 1)),
        &cluster(),
        &[
            ("[gang.named, gang.known, gang.groupFound, gang.elastic]", "[true, true, false, true]"),
            (
                "[gang.min, gang.declared, gang.timeoutSeconds, gang.gpus, quota.gpusAfter]",
                "[3, 3, 120, 3, 9]",
            ),
            (
                "[gang.dialect, gang.onTimeout, gang.onStale, gang.phase]",
                r#"["plain", "delete", "keep", ""]"#,
            ),
        ],
    );
    check(
        &request("CREATE", "", "Pod", &pod(&json!({ "pod-group-name": "trian" }), 1)),
        &cluster(),
        &[
            ("[gang.named, gang.known, gang.groupFound]", "[true, false, false]"),
            ("[gang.min, gang.gpus]", "[0, 1]"),
        ],
    );
    check(
        &request("CREATE", "", "Pod", &pod(&json!({}), 3)),
        &cluster(),
        &[
            ("[gang.named, gang.known]", "[false, false]"),
            ("[gang.gpus, quota.gpusAfter]", "[3, 9]"),
            ("queue.name == '' && !queue.known", "true"),
            ("queue.gpus", "this object names no queue: check queue.name first"),
        ],
    );
}

#[test]
fn subgroups_are_counted_separately_and_pods_can_name_the_queue() {
    let mut cluster = cluster();
    let spec =
        json!({ "subGroups": [{ "name": "ps", "minMember": 1 }, { "name": "workers", "minMember": 6 }] });
    cluster.groups.insert(
        "PodGroup.scheduling.run.ai/ml/mixed".to_owned(),
        json!({ "metadata": { "name": "mixed" }, "spec": spec }),
    );
    let mut worker = pod(&json!({ "pod-group-name": "mixed" }), 2);
    worker["metadata"]["labels"] =
        json!({ "kai.scheduler/subgroup-name": "workers", "kai.scheduler/queue": "team-b" });
    check(
        &request("CREATE", "", "Pod", &worker),
        &cluster,
        &[
            ("[gang.min, gang.gpus]", "[7, 12]"),
            ("gang.role + queue.name", "\"workersteam-b\""),
            ("queue.gpusAfter", "12"),
        ],
    );
}

#[test]
fn the_values_of_a_workload_come_from_its_template() {
    let template = pod(&json!({ "pod-group-name": "train" }), 2);
    let deployment = json!({ "spec": { "replicas": 5, "template": template } });
    check(
        &request("CREATE", "apps", "Deployment", &deployment),
        &cluster(),
        &[
            ("[gang.name, string(gpu.whole), string(gang.gpus)]", r#"["train", "2", "10"]"#),
            ("quota.gpusAfter", "16"),
        ],
    );
    let alone = json!({ "spec": { "replicas": 5, "template": pod(&json!({}), 2) } });
    check(
        &request("CREATE", "apps", "Deployment", &alone),
        &cluster(),
        &[("[gpu.whole, gang.gpus, quota.gpusAfter]", "[2, 10, 16]")],
    );
    let cron = json!({ "spec": { "jobTemplate": { "spec": { "parallelism": 2, "template": pod(&json!({}), 1) } } } });
    check(&request("CREATE", "batch", "CronJob", &cron), &cluster(), &[("[gpu.whole, gang.gpus]", "[1, 2]")]);
    let two = json!({ "spec": { "pytorchReplicaSpecs": { "Master": { "template": pod(&json!({}), 1) }, "Worker": { "template": pod(&json!({}), 1) } } } });
    check(
        &request("CREATE", "kubeflow.org", "PyTorchJob", &two),
        &cluster(),
        &[("gpu.asks || gang.named", "false")],
    );
    let config = json!({ "data": {} });
    check(
        &request("CREATE", "", "ConfigMap", &config),
        &cluster(),
        &[("gpu.asks || gang.named", "false"), ("quota.gpusAfter", "6")],
    );
}

#[test]
fn the_values_of_a_group_object_describe_its_gang() {
    let group = json!({ "metadata": { "name": "big" }, "spec": { "minMember": 8, "minResources": { "nvidia.com/gpu": "64" }, "scheduleTimeoutSeconds": 60 } });
    check(
        &request("CREATE", "scheduling.x-k8s.io", "PodGroup", &group),
        &cluster(),
        &[
            ("[gang.named, gang.known, gang.groupFound]", "[true, true, true]"),
            ("[gang.min, gang.gpus, gang.timeoutSeconds, quota.gpusAfter]", "[8, 64, 60, 70]"),
            ("gang.gpus > cluster.cards", "true"),
        ],
    );
}

#[test]
fn gpu_contains_the_gpu_demand_of_a_pod() {
    let share = json!({ "metadata": { "annotations": { "gpu-memory": "8000", "gpu-fraction-num-devices": "2" } },
        "spec": { "nodeSelector": { "nvidia.com/gpu.product": "T4" }, "containers": [{ "name": "a" }] } });
    check(
        &request("CREATE", "", "Pod", &share),
        &cluster(),
        &[
            ("[gpu.asks, gpu.shares]", "[true, true]"),
            (
                "[gpu.whole, gpu.vramMiB, gpu.devices, gpu.totalVramMiB, gpu.mig, gpu.claims]",
                "[0, 8000, 2, 16000, 0, 0]",
            ),
            ("gpu.fraction == 0.0", "true"),
            ("gpu.models", "[\"T4\"]"),
            (
                "gpu.models.all(m, m in cluster.models && gpu.vramMiB <= cluster.models[m].largestCardMiB)",
                "true",
            ),
        ],
    );
    let mixed = json!({ "metadata": { "annotations": { "gpu-fraction": "0.5" } }, "spec": { "containers": [
        { "name": "a", "resources": { "limits": { "nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 2 } } } ] } });
    check(
        &request("CREATE", "", "Pod", &mixed),
        &cluster(),
        &[
            ("[gpu.whole, gpu.mig, gpu.vramMiB]", "[1, 2, 0]"),
            ("gpu.conflicts.size()", "3"),
            (
                "gpu.conflicts[0].startsWith('metadata.annotations[gpu-fraction]: cannot have both GPU fraction request')",
                "true",
            ),
        ],
    );
}

#[test]
fn an_unknown_value_is_an_error_with_an_explanation() {
    let member = request("CREATE", "", "Pod", &pod(&json!({}), 2));
    let capacity = "the capacity of the cluster is not known yet: the leading replica publishes it within seconds of its start";
    check(
        &member,
        &ClusterData::default(),
        &[
            ("cluster.known || quota.known || queue.known", "false"),
            ("cluster.cards", capacity),
            ("quota.gpusAfter", capacity),
            ("!quota.known || quota.gpusAfter < 1", "true"),
            ("quota.?gpus.hasValue()", capacity),
            ("'a' in priorityClasses", "the PriorityClasses of the cluster are not known here yet"),
            ("runtimeClasses.size()", "the RuntimeClasses of the cluster are not known here yet"),
        ],
    );
    check(
        &member,
        &cluster(),
        &[
            (
                "[cluster.cards, cluster.nodes, cluster.largestNodeCards, cluster.largestCardMiB, cluster.freeVramMiB]",
                "[17, 3, 8, 81920, 15360]",
            ),
            ("cluster.models.exists(name, cluster.models[name].cards == 16)", "true"),
            ("runtimeClasses['nvidia'].handler", "\"nvidia\""),
            ("priorityClasses['low'].value", "no such key: low"),
        ],
    );
}

#[test]
fn outdated_numbers_are_unknown() {
    const TOLD: i64 = 1_763_800_000;
    let member = request("CREATE", "", "Pod", &pod(&json!({}), 2));
    let at = |now: i64| {
        let capacity =
            cluster().capacity.map(|told| Arc::new(CapacityReport { at: Some(TOLD), ..(*told).clone() }));
        ClusterData { now, capacity, ..cluster() }
    };
    for now in [TOLD, TOLD + 120, TOLD - 120] {
        check(
            &member,
            &at(now),
            &[("cluster.known && quota.known", "true"), ("cluster.cards + quota.gpus", "23")],
        );
    }
    let says = |when: &str| {
        format!(
            "the capacity of the cluster is not known here: the last report of the leading replica (ConfigMap portcullis-capacity) is {when}, and a report \
             is valid for 120 seconds. A leader writes it every 30 seconds: portcullis doctor reports whether a replica leads, and the leader's log why it \
             cannot write"
        )
    };
    for (now, when) in
        [(TOLD + 3 * 3600, "180 minutes old"), (TOLD - 150, "2 minutes ahead of the local clock")]
    {
        let says = says(when);
        check(
            &member,
            &at(now),
            &[
                ("cluster.known || quota.known || queue.known", "false"),
                ("cluster.cards", &says),
                ("quota.gpusAfter", &says),
                ("queue.gpus", &says),
            ],
        );
    }
}

#[test]
fn every_field_has_a_value_of_its_type_and_is_documented() {
    let member = request("CREATE", "", "Pod", &pod(&json!({ "pod-group-name": "train" }), 2));
    let (request, cluster) = (AdmissionRequest { json: &member }, cluster());
    let facts = RequestVariables::new(&request, &cluster);
    let page = documentation();
    for variable in VARIABLES {
        let lazy: &LazyVariable<'_> =
            facts.variables.iter().find(|lazy| lazy.name == variable.name).expect("it is bound");
        let (name, values) = match variable.kind {
            FieldType::Structure(name) => (name, lazy.fields().to_vec()),
            FieldType::Map(_) => continue,
            other => panic!("{}: {other:?} is not computed", variable.name),
        };
        let structure = STRUCTURES.iter().find(|structure| structure.name == name).expect("it is declared");
        let names = |names: &mut dyn Iterator<Item = &'static str>| {
            let mut names: Vec<_> = names.collect();
            names.sort_unstable();
            names
        };
        assert_eq!(
            names(&mut structure.fields.iter().map(|field| field.name)),
            names(&mut values.iter().map(|(name, _)| *name)),
            "{}",
            variable.name
        );
        for field in structure.fields {
            let (_, value) =
                values.iter().find(|(name, _)| *name == field.name).expect("they are the same names");
            let value =
                value.as_ref().unwrap_or_else(|error| panic!("{}.{}: {error}", variable.name, field.name));
            let right = match field.kind.declared() {
                Type::List(_) => matches!(value, Value::List(_)),
                Type::Map(_) => matches!(value, Value::Map(_)),
                declared => value.kind() == declared,
            };
            assert!(right, "{}.{}: {value}", variable.name, field.name);
            assert!(page.contains(&format!("- `{}.{}` (", variable.name, field.name)));
        }
        assert_eq!(program(variable.example).result(), &Type::Bool, "{}", variable.example);
    }
}

#[test]
fn the_data_dependencies_of_a_variable_are_complete() {
    let member = request("CREATE", "", "Pod", &pod(&json!({ "pod-group-name": "train" }), 2));
    let (request, all) = (AdmissionRequest { json: &member }, cluster());
    let without_gangs = ClusterData { gangs: [].into(), groups: [].into(), ..all.clone() };
    let without_capacity = ClusterData { capacity: None, ..all.clone() };
    let values = |cluster: &ClusterData, name: &str| {
        let facts = RequestVariables::new(&request, cluster);
        let lazy = facts.variables.iter().find(|lazy| lazy.name == name).expect("it is declared");
        format!("{:?}", lazy.fields())
    };
    for name in super::names() {
        let told = values(&all, name);
        let gangs = told != values(&without_gangs, name);
        let capacity = told != values(&without_capacity, name);
        assert_eq!(data_dependencies(name), DataDependencies { gangs, capacity }, "{name}");
    }
}

#[test]
fn unused_values_are_not_computed() {
    let member = request("CREATE", "", "Pod", &pod(&json!({}), 2));
    let (request, cluster) = (AdmissionRequest { json: &member }, cluster());
    let facts = RequestVariables::new(&request, &cluster);
    let program = program("gpu.whole == 2");
    let activation = facts.bind(Activation::new(&env()));
    program.eval(&activation, &mut Budget::new(MAX_POLICY_COST)).expect("it has a value");
    let asked: Vec<&str> =
        facts.variables.iter().filter(|lazy| lazy.fields.get().is_some()).map(|lazy| lazy.name).collect();
    assert_eq!(asked, ["gpu"]);
    let shared: &VariableSources<'_> = &facts.variables[0].shared;
    assert!(shared.gang.get().is_none() && shared.ask.get().is_some());
}

#[test]
fn misspelt_fields_are_rejected_at_compile_time() {
    let check = |source: &str, message: &str, suggestion: Option<&str>| {
        let issues = compile(source, &env()).expect_err("it is wrong");
        assert_eq!(
            (issues[0].message.as_str(), issues[0].suggestion.as_deref()),
            (message, suggestion),
            "{source}"
        );
    };
    check("gang.nmae == ''", "undefined field 'nmae'", Some("name"));
    check("gpus.whole > 1", "undeclared reference to 'gpus' (in container '')", Some("gpu"));
    check("cluster.models['A100'].card > 1", "undefined field 'card'", Some("cards"));
    check("priorityClasses['a'].values > 1", "undefined field 'values'", Some("value"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test reads the committed page")]
fn the_documentation_page_matches_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/VARIABLES.md");
    if std::env::var_os("PORTCULLIS_UPDATE_GOLDENS").is_some() {
        std::fs::write(path, documentation()).expect("a writable page");
    }
    let committed = std::fs::read_to_string(path).expect("a readable page");
    assert!(
        committed == documentation(),
        "policies/VARIABLES.md differs from the definitions: run this test with PORTCULLIS_UPDATE_GOLDENS=1"
    );
}
