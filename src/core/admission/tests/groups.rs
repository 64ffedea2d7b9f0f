//! Reviews of group objects, and the use of known classes.

use super::*;

fn group_review(object: &Value) -> Value {
    let mut review = review("CREATE", object, None);
    review["request"]["kind"] =
        json!({ "group": "scheduling.run.ai", "version": "v2alpha2", "kind": "PodGroup" });
    review
}

fn warnings(facts: &KnownClasses, review: &Value) -> Vec<String> {
    let body = serde_json::to_vec(review).unwrap();
    fuzz_review(&body);
    for hook in [Hook::Mutate, Hook::Validate] {
        let answer = handle_review(&AdmissionSettings::default(), facts, hook, &body).unwrap();
        let answer: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(answer["response"]["allowed"], json!(true), "a group is never refused");
        assert!(answer["response"]["patch"].is_null());
        let list = answer["response"]["warnings"].as_array().into_iter().flatten();
        let list: Vec<String> = list.map(|w| w.as_str().unwrap().to_owned()).collect();
        if hook == Hook::Validate {
            return list;
        }
    }
    unreachable!("the loop ends with validate")
}

#[test]
fn a_group_with_an_unknown_priority_class_gets_a_warning() {
    let group = |class: &str| {
        json!({ "metadata": { "name": "app-with-models", "namespace": "default" },
            "spec": { "minMember": 3, "priorityClassName": class } })
    };
    let check = |facts: &KnownClasses, class: &str, expected: &[&str]| {
        assert_eq!(warnings(facts, &group_review(&group(class))), expected, "{class}");
    };
    let known = nvidia();
    check(&known, "inference", &[]);
    check(&known, "", &[]);
    check(
        &known,
        "Inference",
        &[
            "PriorityClass \"Inference\" not found; did you mean \"inference\"? The gang is queued by the priority of its pods.",
        ],
    );
    check(
        &known,
        "gold",
        &["PriorityClass \"gold\" not found. The gang is queued by the priority of its pods."],
    );
    check(&KnownClasses::default(), "gold", &[]);
    let mut elsewhere = group_review(&group("gold"));
    elsewhere["request"]["namespace"] = json!("kube-system");
    assert!(warnings(&known, &elsewhere).is_empty());
    let mut status = group_review(&group("gold"));
    status["request"]["subResource"] = json!("status");
    assert!(warnings(&known, &status).is_empty());
}

#[test]
fn a_group_that_cannot_be_read_gets_a_warning() {
    let group = json!({ "metadata": { "name": "g", "namespace": "ml" }, "spec": { "minMember": -1 } });
    assert_eq!(
        warnings(&nvidia(), &group_review(&group)),
        [
            "spec.minMember is -1; it must be a whole number from 0 to 2147483647; its pods will not start until this is fixed"
        ]
    );
}

#[test]
fn a_runtime_class_is_set_only_where_it_is_known_to_exist() {
    let object = pod(json!({}), json!({ GROUP: "g", "gpu-memory": "1" }), json!({}));
    let body = serde_json::to_vec(&review("CREATE", &object, None)).unwrap();
    let class = |facts: &KnownClasses, settings: &AdmissionSettings| {
        let answer = handle_review(settings, facts, Hook::Mutate, &body).unwrap();
        let answer: Value = serde_json::from_slice(&answer.body).unwrap();
        patched(&answer, &object)["spec"]["runtimeClassName"].as_str().map(str::to_owned)
    };
    let usual = AdmissionSettings::default();
    assert_eq!(class(&nvidia(), &usual).as_deref(), Some("nvidia"));
    assert_eq!(class(&KnownClasses::default(), &usual), None, "not known");
    assert_eq!(
        class(&KnownClasses { runtime_classes: Some([].into()), ..KnownClasses::default() }, &usual),
        None,
        "known not to be"
    );
    assert_eq!(class(&nvidia(), &AdmissionSettings { gpu_runtime_class: None, ..usual }), None, "not wanted");
}
