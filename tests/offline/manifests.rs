//! The manifests agree with the program: keys, namespaces, names, options and timeouts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use portcullis::serve::ServeOptions;
use portcullis_core::admission::AdmissionSettings;
use portcullis_core::dialect;
use portcullis_core::objects::names;
use serde_json::{Value, json};

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests")
}

/// The objects of a manifest file.
fn objects(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(manifests().join(file)).unwrap();
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

fn of_kind(file: &str, kind: &str) -> Value {
    objects(file).into_iter().find(|object| object["kind"] == kind).unwrap()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Every webhook with the kind of its configuration.
fn hooks() -> Vec<(String, Value)> {
    let configurations = objects("base/webhooks.yaml");
    let kind = |object: &Value| object["kind"].as_str().unwrap().to_owned();
    configurations
        .iter()
        .flat_map(|c| list(&c["webhooks"]).map(move |hook| (kind(c), hook.clone())))
        .collect()
}

fn expression(hook: &Value) -> &str {
    let conditions: Vec<&Value> = list(&hook["matchConditions"]).collect();
    assert_eq!(conditions.len(), 1, "{hook}");
    conditions[0]["expression"].as_str().unwrap()
}

/// Labels that make a pod a gang member. Each label has a webhook, in this order.
const LABELS: &[(&str, &str)] = &[
    ("members.portcullis.dev", names::KAI_GROUP_LABEL),
    ("members-coscheduling.portcullis.dev", names::COSCHEDULING_LABEL),
    ("members-coscheduling-old.portcullis.dev", names::COSCHEDULING_OLD_LABEL),
    ("members-lws.portcullis.dev", names::LWS_NAME_LABEL),
    ("members-plain.portcullis.dev", names::GANG_KEY),
];

/// Annotations that make a pod a gang member or give it a share of a card.
const KEYS: &[&str] = &[
    names::KAI_GROUP_ANNOTATION,
    names::VOLCANO_GROUP_ANNOTATION,
    names::YUNIKORN_TASK_GROUP_NAME,
    names::YUNIKORN_TASK_GROUPS,
    names::GANG_KEY,
    names::SCHEDULING_GROUP_ANNOTATION,
    names::GPU_MEMORY,
    names::GPU_FRACTION,
    names::GPU_FRACTION_NUM_DEVICES,
    names::GPU_FRACTION_CONTAINER,
    names::MPS,
];

#[test]
fn the_webhooks_match_every_label_and_annotation_that_the_program_reads() {
    for (kind, hook) in hooks() {
        let name = hook["name"].as_str().unwrap();
        let selected: Vec<(&str, &str)> = list(&hook["objectSelector"]["matchExpressions"])
            .map(|line| (line["key"].as_str().unwrap(), line["operator"].as_str().unwrap()))
            .collect();
        // Each webhook excludes the labels of the webhooks before it, so that every pod is reviewed once.
        let without = |count: usize| LABELS[..count].iter().map(|(_, label)| (*label, "DoesNotExist"));
        if let Some(place) = LABELS.iter().position(|(hook, _)| *hook == name) {
            let expected: Vec<_> = [(LABELS[place].1, "Exists")].into_iter().chain(without(place)).collect();
            assert_eq!(selected, expected, "{name}");
            assert!(
                hook["matchConditions"].is_null(),
                "a match condition costs as much as the call that it saves"
            );
            continue;
        }
        let mutates = kind == "MutatingWebhookConfiguration";
        if mutates && name == "pods.portcullis.dev" {
            assert_eq!(selected, without(LABELS.len()).collect::<Vec<_>>());
        }
        let text = expression(&hook);
        let more: &[&str] = match name {
            "pods.portcullis.dev" => &[names::MIRROR_POD],
            "changes.portcullis.dev" => &[
                names::KAI_SUBGROUP_LABEL,
                names::LWS_GROUP_INDEX_LABEL,
                names::VOLCANO_TASK_KEY,
                names::MPI_ROLE_LABEL,
                names::YUNIKORN_APP_ID,
                names::YUNIKORN_OLD_APP_ID,
                names::SPARK_APP_SELECTOR,
            ],
            "groups.portcullis.dev" => continue,
            "owners.portcullis.dev" => {
                check_stateful_set_conditions(&hook);
                continue;
            }
            other => panic!("unknown webhook {other}"),
        };
        if kind == "ValidatingWebhookConfiguration" && name == "pods.portcullis.dev" {
            // A member with its gate is complete and is not reviewed again.
            assert!(text.contains(&format!("gate.name == '{}'", names::GATE)), "{text}");
        }
        if name != "changes.portcullis.dev" {
            // These fields of a pod are immutable, so updates need no condition for them.
            assert!(text.contains("has(object.spec.schedulingGroup)"), "{text}");
            assert!(text.contains("has(object.spec.workloadRef)"), "{text}");
        }
        let labels = LABELS.iter().map(|(_, label)| label).filter(|_| !mutates);
        for key in KEYS.iter().chain(more).chain(labels) {
            assert!(text.contains(&format!("'{key}'")), "{kind} {name} does not know {key}");
        }
    }
    // The two webhooks of the fallback together match the same keys.
    let split = of_kind("components/gate-fallback/mutating.yaml", "MutatingWebhookConfiguration");
    let deleted = |hook: &&Value| hook["$patch"] == "delete";
    let text: String = list(&split["webhooks"]).filter(|hook| !deleted(hook)).map(expression).collect();
    let keys = || KEYS.iter().chain(LABELS.iter().map(|(_, label)| label));
    assert!(keys().all(|key| text.contains(&format!("'{key}'"))), "{text}");
    let left: Vec<&str> =
        list(&split["webhooks"]).filter(deleted).map(|hook| hook["name"].as_str().unwrap()).collect();
    assert_eq!(left, LABELS[1..].iter().map(|(hook, _)| *hook).collect::<Vec<_>>());
    let policy = of_kind("components/gate-fallback/policy.yaml", "MutatingAdmissionPolicy");
    assert!(policy.to_string().contains(&format!("name: '{}'", names::GATE)));
    let groups = keys().filter(|key| !key.starts_with("gpu-") && **key != names::MPS);
    for key in groups {
        assert!(policy.to_string().contains(&format!("'{key}'")), "the policy does not know {key}");
    }
}

/// Checks the conditions for StatefulSets: ordered creation of pods, and a pod template that names a group by
/// any key. The controller of LeaderWorkerSet sets the policy of its own StatefulSets. Pods with a share of a
/// card are not a gang by that alone.
fn check_stateful_set_conditions(hook: &Value) {
    assert_eq!(
        hook["rules"],
        json!([{ "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["statefulsets"], "operations": ["CREATE", "UPDATE"],
            "scope": "Namespaced" }])
    );
    // A StatefulSet that bypasses the webhook cannot be corrected later.
    assert_eq!(hook["failurePolicy"], "Fail");
    let text = expression(hook);
    assert!(text.contains("object.spec.?podManagementPolicy.orValue('OrderedReady') == 'OrderedReady'"));
    assert!(text.contains(
        "request.operation == 'CREATE' || oldObject.spec.?podManagementPolicy.orValue('') == 'Parallel'"
    ));
    assert!(text.contains("has(object.spec.template.spec.schedulingGroup)"), "{text}");
    assert!(text.contains("has(object.spec.template.spec.workloadRef)"), "{text}");
    let labels = LABELS.iter().map(|(_, label)| *label).filter(|label| *label != names::LWS_NAME_LABEL);
    let keys = KEYS.iter().copied().filter(|key| !key.starts_with("gpu-") && *key != names::MPS);
    for key in labels.chain(keys) {
        assert!(text.contains(&format!("'{key}'")), "owners.portcullis.dev does not know {key}");
    }
}

/// Every scheduler that the exercises name is rewritten, so that their commands work without an edit.
#[test]
fn schedulers_of_tutorials_are_rewritten_by_default() {
    let deployment = of_kind("base/deployment.yaml", "Deployment");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let arguments = list(&container["args"]).map(|argument| argument.as_str().unwrap());
    let settings = Line::parse_from(arguments).serve.admission();
    let named = names::GANG_SCHEDULERS.iter().chain(&["scheduler-plugins-scheduler"]);
    let expected: BTreeSet<String> = named.map(|name| (*name).to_owned()).collect();
    assert_eq!(settings.rewritten_schedulers, expected);
    // The program itself rewrites no scheduler by default.
    assert_eq!(Line::parse_from(["serve"]).serve.admission(), AdmissionSettings::default());
    let none = Line::parse_from(["serve", "--rewrite-schedulers="]).serve.admission();
    assert_eq!(none, AdmissionSettings::default());
}

#[test]
fn the_webhooks_match_the_groups_of_every_dialect() {
    let (_, hook) = hooks().into_iter().find(|(_, hook)| hook["name"] == "groups.portcullis.dev").unwrap();
    let rules: BTreeSet<(String, String)> = list(&hook["rules"])
        .map(|rule| {
            let text = |key: &str| rule[key][0].as_str().unwrap().to_owned();
            (text("apiGroups"), text("resources"))
        })
        .collect();
    let known: BTreeSet<(String, String)> =
        dialect::group_resources().map(|(_, r)| (r.group.to_owned(), r.plural.to_owned())).collect();
    assert_eq!(rules, known);
}

#[test]
fn every_hook_follows_the_rules_for_safe_webhooks() {
    let excluded = AdmissionSettings::default().excluded_namespaces;
    for (kind, hook) in hooks() {
        let name = hook["name"].as_str().unwrap();
        assert_eq!(hook["sideEffects"], "None", "{name}");
        assert_eq!(hook["matchPolicy"], "Equivalent", "{name}");
        assert!(hook["timeoutSeconds"].as_u64().unwrap() <= 5, "{name}");
        assert!(hook["clientConfig"]["caBundle"].is_null(), "{name}");
        let mutates = kind == "MutatingWebhookConfiguration";
        assert_eq!(hook["clientConfig"]["service"]["path"], if mutates { "/mutate" } else { "/validate" });
        assert_eq!(hook["reinvocationPolicy"] == "IfNeeded", mutates, "{name}");
        if name == "groups.portcullis.dev" {
            assert_eq!(hook["failurePolicy"], "Ignore");
            continue;
        }
        let selector = &hook["namespaceSelector"]["matchExpressions"][0];
        let values: BTreeSet<String> =
            list(&selector["values"]).map(|value| value.as_str().unwrap().to_owned()).collect();
        assert_eq!((selector["operator"].as_str(), &values), (Some("NotIn"), &excluded), "{name}");
    }
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    serve: ServeOptions,
}

#[test]
fn the_arguments_of_the_deployment_are_valid_options() {
    let deployment = of_kind("base/deployment.yaml", "Deployment");
    let template = &deployment["spec"]["template"]["spec"];
    let container = &template["containers"][0];
    let arguments: Vec<&str> = list(&container["args"]).map(|argument| argument.as_str().unwrap()).collect();
    let options = Line::parse_from(&arguments).serve;
    assert!(!options.standalone && options.bind.ip().is_unspecified());
    let port = |name: &str| {
        let found = list(&container["ports"]).find(|port| port["name"] == name).unwrap();
        found["containerPort"].as_u64()
    };
    assert_eq!(port("webhook"), Some(options.bind.port().into()));
    assert_eq!(port("admin"), Some(options.admin_bind.port().into()));
    let drain = portcullis::webhook::WebhookConfig::default().drain_timeout;
    let grace = Duration::from_secs(template["terminationGracePeriodSeconds"].as_u64().unwrap());
    assert!(options.shutdown_delay + drain < grace, "{grace:?}");

    // The arguments that a component appends.
    let more = |component: &str| -> Vec<String> {
        let patches = objects(&format!("components/{component}/kustomization.yaml"));
        let texts = list(&patches[0]["patches"]).filter_map(|patch| patch["patch"].as_str());
        let operations: Vec<Value> = texts
            .filter(|text| text.contains("/spec/template/spec/containers/0/args/-"))
            .flat_map(|text| serde_saphyr::from_str::<Vec<Value>>(text).unwrap())
            .collect();
        operations.iter().map(|operation| operation["value"].as_str().unwrap().to_owned()).collect()
    };
    let with = |component: &str| {
        let all = arguments.iter().map(|a| (*a).to_owned()).chain(more(component));
        Line::parse_from(all).serve
    };
    let files = with("cert-manager");
    assert!(files.tls_cert.is_some() && files.tls_key.is_some());
    assert_eq!(with("policies").policies, [PathBuf::from("/policies")]);
    let mounts = of_kind("components/policies/deployment.yaml", "Deployment");
    let spec = &mounts["spec"]["template"]["spec"];
    assert_eq!(spec["containers"][0]["volumeMounts"][0]["mountPath"], "/policies");
    let generated = &objects("components/policies/kustomization.yaml")[0]["configMapGenerator"][0];
    assert_eq!(spec["volumes"][0]["configMap"]["name"], generated["name"]);
    assert_eq!(generated["options"]["disableNameSuffixHash"], true);
}

/// The component `policies`: every kind that a policy may match is sent, GPU pods are matched as in the base,
/// and only the webhook for GPU pods has the failure policy `Fail`.
#[test]
fn policy_webhooks_match_pods_their_owners_and_groups() {
    let excluded = AdmissionSettings::default().excluded_namespaces;
    for configuration in objects("components/policies/webhooks.yaml") {
        let mutates = configuration["kind"] == "MutatingWebhookConfiguration";
        let name = configuration["metadata"]["name"].as_str().unwrap();
        assert!(name < "portcullis", "the API server calls webhooks by name, and policies must come first");
        let mut groups = BTreeSet::new();
        for hook in list(&configuration["webhooks"]) {
            let name = hook["name"].as_str().unwrap();
            assert_eq!(hook["sideEffects"], "None", "{name}");
            assert!(hook["timeoutSeconds"].as_u64().unwrap() <= 5, "{name}");
            let path = if mutates { "/policies/mutate" } else { "/policies/validate" };
            assert_eq!(hook["clientConfig"]["service"]["path"], path, "{name}");
            let fails = name == "gpu-pods.policies.portcullis.dev";
            assert_eq!(hook["failurePolicy"] == "Fail", fails, "{name}");
            let selector = &hook["namespaceSelector"]["matchExpressions"][0];
            let values: BTreeSet<String> =
                list(&selector["values"]).map(|value| value.as_str().unwrap().to_owned()).collect();
            assert_eq!((selector["operator"].as_str(), &values), (Some("NotIn"), &excluded), "{name}");
            for rule in list(&hook["rules"]).filter(|_| name == "groups.policies.portcullis.dev") {
                let text = |key: &str| rule[key][0].as_str().unwrap().to_owned();
                groups.insert((text("apiGroups"), text("resources")));
            }
            if ["gpu-pods.policies.portcullis.dev", "pods.policies.portcullis.dev"].contains(&name) {
                let text = hook["matchConditions"].to_string();
                for key in
                    KEYS.iter().chain(LABELS.iter().map(|(_, label)| label)).chain(&[names::MIRROR_POD])
                {
                    assert!(text.contains(&format!("'{key}'")), "{name} does not know {key}");
                }
            }
        }
        let known: BTreeSet<(String, String)> =
            dialect::group_resources().map(|(_, r)| (r.group.to_owned(), r.plural.to_owned())).collect();
        assert_eq!(groups, known);
    }
}

/// The component holds a copy because kustomize reads no file outside of its directory.
#[test]
fn the_policy_of_the_component_equals_the_one_of_the_starter_set() {
    let directory = manifests().join("components/policies/policies");
    let mut count = 0;
    for entry in fs::read_dir(&directory).expect("it is there") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().expect("a file has a name");
        let original = manifests().join("../policies").join(name);
        assert_eq!(
            fs::read_to_string(&path).expect("it is text"),
            fs::read_to_string(&original).unwrap_or_else(|error| panic!("{}: {error}", original.display())),
            "{} is a copy of {}",
            path.display(),
            original.display()
        );
        count += 1;
    }
    assert_eq!(count, 1);
}

#[test]
fn the_gate_guard_admits_only_our_service_account() {
    let account = of_kind("base/rbac.yaml", "ServiceAccount");
    let user = format!(
        "system:serviceaccount:{}:{}",
        account["metadata"]["namespace"].as_str().unwrap(),
        account["metadata"]["name"].as_str().unwrap()
    );
    let guard = of_kind("base/gate-guard.yaml", "ValidatingAdmissionPolicy");
    let conditions: Vec<&str> =
        list(&guard["spec"]["matchConditions"]).map(|c| c["expression"].as_str().unwrap()).collect();
    assert_eq!(conditions[0], format!("request.userInfo.username != '{user}'"));
    assert!(conditions[1].contains(&format!("'{}'", names::GATE)));
    let (_, changes) =
        hooks().into_iter().find(|(_, hook)| hook["name"] == "changes.portcullis.dev").unwrap();
    assert!(expression(&changes).contains(&format!("'{user}'")));
}

#[test]
fn the_remedy_of_the_doctor_equals_the_one_of_the_manual() {
    let manual = fs::read_to_string(manifests().join("README.md")).unwrap();
    let printed = fs::read_to_string(manifests().join("../tests/data/doctor/removed.txt")).unwrap();
    let lines: Vec<&str> = printed
        .lines()
        .map(str::trim)
        .filter(|l| l.contains("schedulingGates") || l.contains("sleep 5"))
        .collect();
    assert_eq!(lines.len(), 2, "{printed}");
    for line in lines {
        assert!(manual.contains(line), "{line}");
    }
}
