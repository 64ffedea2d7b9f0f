//! Tests of the schemas of built-in kinds.

use portcullis_cel::{Env, check};

use super::*;

fn pod() -> &'static Schema {
    Schema::of("", "v1", "Pod").expect("pods are known")
}

/// Returns a field by its path. `[]` is an item of a list, `{}` a value of a map.
fn at(path: &str) -> &'static Schema {
    path.split('.').fold(pod(), |schema, step| {
        let (name, inside) = step.split_at(step.find(['[', '{']).unwrap_or(step.len()));
        let field = schema.field(name).unwrap_or_else(|| panic!("{path}: no {name}"));
        match inside {
            "[]" => field.items().expect("a list"),
            "{}" => field.values().expect("a map"),
            _ => field,
        }
    })
}

#[test]
fn list_schemas_contain_their_merge_keys() {
    for (path, expected) in [
        ("spec.containers", ListMergeType::Map(&["name"])),
        ("spec.containers[].ports", ListMergeType::Map(&["containerPort", "protocol"])),
        ("spec.containers[].args", ListMergeType::Atomic),
        ("spec.schedulingGates", ListMergeType::Map(&["name"])),
        ("spec.tolerations", ListMergeType::Atomic),
        ("metadata.finalizers", ListMergeType::Set),
        ("metadata.ownerReferences", ListMergeType::Map(&["uid"])),
        ("spec.containers[].securityContext.capabilities.add", ListMergeType::Atomic),
    ] {
        assert_eq!(at(path).list_type(), expected, "{path}");
    }
    assert_eq!(at("spec.containers[].ports[].protocol").default_value(), Some(&Json::from("TCP")));
    assert!(at("spec.nodeSelector").is_atomic_map());
    assert!(!at("metadata.labels").is_atomic_map());
}

#[test]
fn fields_have_types() {
    for (path, expected) in [
        ("spec", ValueShape::Object),
        ("metadata.labels", ValueShape::Map),
        ("metadata.labels{}", ValueShape::Text),
        ("metadata.creationTimestamp", ValueShape::Text),
        ("spec.containers[].resources.limits{}", ValueShape::IntegerOrText),
        ("spec.containers[].livenessProbe.httpGet.port", ValueShape::IntegerOrText),
        ("spec.priority", ValueShape::Integer),
        ("spec.hostNetwork", ValueShape::Boolean),
        ("metadata.managedFields[].fieldsV1", ValueShape::Any),
    ] {
        assert_eq!(at(path).shape(), expected, "{path}");
    }
    assert_eq!(at("spec").required(), ["containers"]);
}

#[test]
fn every_reference_resolves() {
    fn visit(schema: &'static Schema, place: &str) {
        if let Some(name) = schema.reference {
            assert!(CATALOGUE.definitions.contains_key(name), "{place}: {name} is not there");
        }
        for (name, field) in &schema.properties {
            visit(field, &format!("{place}.{name}"));
        }
        for inner in schema.items.iter().chain(&schema.values) {
            visit(inner, place);
        }
    }
    for (name, schema) in &CATALOGUE.definitions {
        visit(schema, name);
    }
    for one in served_resources() {
        assert!(one.schema().is_some(), "{one:?}");
    }
    assert!(served_resources().len() > 60, "only {} resources", served_resources().len());
}

#[test]
fn kinds_are_found_by_the_resources_of_a_rule() {
    for (group, version, resource, kind, namespaced) in [
        ("", "v1", "pods", "Pod", true),
        ("", "v1", "pods/eviction", "Eviction", true),
        ("", "v1", "namespaces", "Namespace", false),
        ("apps", "v1", "deployments", "Deployment", true),
        ("apps", "v1", "deployments/scale", "Scale", true),
        ("batch", "v1", "cronjobs", "CronJob", true),
        ("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup", true),
        ("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup", true),
        ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", false),
    ] {
        let found = served_resources()
            .iter()
            .find(|one| (one.group, one.version, one.resource) == (group, version, resource))
            .unwrap_or_else(|| panic!("{group}/{version} {resource} is not known"));
        assert_eq!((found.kind, found.namespaced), (kind, namespaced), "{resource}");
    }
    assert!(Schema::of("", "v1", "Pood").is_none());
}

#[test]
fn kinds_become_expression_types() {
    let env = declare(Env::admission(false), "object", "core.v1.Pod");
    for (source, expected) in [
        ("object.spec.containers.all(c, c.image != '')", Ok("bool")),
        ("object.metadata.labels['a'] == 'b'", Ok("bool")),
        ("timestamp(object.metadata.creationTimestamp) > timestamp('2024-01-01T00:00:00Z')", Ok("bool")),
        ("object.spec.containers[0].resources.limits['cpu']", Ok("dyn")),
        ("object.spec.priority + 1", Ok("int")),
        ("object.spec.contianers", Err(("undefined field 'contianers'", Some("containers")))),
        ("object.metadata.lables", Err(("undefined field 'lables'", Some("labels")))),
        (
            "object.spec.volumes[0].csi.driver.x",
            Err(("type 'string' does not support field selection", None)),
        ),
    ] {
        let found = check(source, &env);
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.to_string(), expected, "{source}"),
            (Err(issues), Err((message, suggestion))) => assert_eq!(
                (issues[0].message.as_str(), issues[0].suggestion.as_deref()),
                (message, suggestion),
                "{source}"
            ),
            (found, _) => panic!("{source}: {found:?}"),
        }
    }
    // An open definition allows fields that it does not name.
    let env = declare(Env::admission(false), "object", "scheduling.run.ai.v2alpha2.PodGroup");
    assert!(check("object.spec.whatever > 1", &env).is_ok());
    assert!(check("object.metadata.lables == {}", &env).is_err());
}
