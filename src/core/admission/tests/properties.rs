//! Random pods and damaged reviews: invariants of every response.

use super::*;
use crate::model::random::Random;

/// One of the values.
fn pick<T: Clone>(random: &mut Random, values: &[T]) -> T {
    random.pick(values).expect("values to choose from").clone()
}

fn random_map(random: &mut Random, entries: &[(&str, &[&str])]) -> Value {
    if random.index(8) == 0 {
        return pick(random, &[json!(null), json!({})]);
    }
    let mut map = serde_json::Map::new();
    for (key, values) in entries {
        if random.index(2) == 0 {
            map.insert((*key).to_owned(), json!(pick(random, values)));
        }
    }
    Value::Object(map)
}

fn random_container(random: &mut Random, name: &str) -> Value {
    let envs = [
        json!(null),
        json!([]),
        json!([{ "name": "A", "value": "b\t\"" }]),
        json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "all" }, { "name": "B" }]),
        json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }]),
        json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "0" }, { "name": "NVIDIA_VISIBLE_DEVICES", "value": "1" }]),
    ];
    let resources = [
        json!(null),
        json!({}),
        json!({ "limits": { "cpu": 1 }, "requests": { "cpu": "1" } }),
        json!({ "limits": { "cpu": "4", "memory": "1Gi" } }),
        json!({ "limits": { "nvidia.com/gpu": 1 }, "requests": { "nvidia.com/gpu": 1 } }),
        json!({ "requests": { "nvidia.com/mig-1g.5gb": "1" } }),
    ];
    let few = random.index(3) + 4;
    json!({ "name": name, "env": pick(random, &envs), "resources": pick(random, &resources[..few.min(6)]) })
}

fn random_review(random: &mut Random) -> Value {
    let annotations: &[(&str, &[&str])] = &[
        ("pod-group-name", &["g", "g", "app-with-models", "", "no label value!"]),
        ("gpu-memory", &["8000", "8000", "4Gi"]),
        ("gpu-fraction-container-name", &["main", "second", "load", "absent"]),
        ("note", &["\u{1f600} \" \\ ~ / \u{7}"]),
        ("portcullis.dev/gpus", &["0", "1,2"]),
    ];
    let annotations = random_map(random, annotations);
    let labels = random_map(
        random,
        &[("kai.scheduler/podgroup", &["g", "g", "app-with-models", ""]), ("app", &["x"])],
    );
    let gates =
        [json!(null), json!([]), json!([{ "name": "a.b/c" }]), json!([{ "name": "portcullis.dev/gang" }])];
    let tolerations =
        [json!(null), json!([]), json!([{ "operator": "Exists" }]), json!([{ "key": "a", "value": "b" }])];
    let mut containers = vec![random_container(random, "main")];
    if random.index(2) == 0 {
        containers.push(random_container(random, "second"));
    }
    let init = if random.index(2) == 0 { json!([random_container(random, "load")]) } else { json!(null) };
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "p", "labels": labels, "annotations": annotations, "managedFields": [{ "manager": "m" }] },
        "spec": {
            "containers": containers, "initContainers": init,
            "schedulingGates": pick(random, &gates), "tolerations": pick(random, &tolerations),
            "runtimeClassName": pick(random, &[json!(null), json!("own")]),
            "schedulerName": pick(random, &["default-scheduler", "kai-scheduler"]),
        },
        "status": {}
    });
    review("CREATE", &object, None)
}

/// The same document with the keys of every object in reverse order.
fn reversed(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let fields = map.iter().rev().map(|(k, v)| format!("{}:{}", json!(k), reversed(v)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(reversed).collect::<Vec<_>>().join(",")),
        scalar => scalar.to_string(),
    }
}

#[test]
fn validate_denies_exactly_what_mutate_would_still_add_to_the_spec() {
    let settings = AdmissionSettings::default();
    let mut refused = [0, 0];
    for seed in 0..3000 {
        let asked = random_review(&mut Random::new(seed));
        let (answer, mutated) = send(&settings, Hook::Mutate, &asked);
        if mutated.verdict == AdmissionVerdict::Denied {
            continue;
        }
        let before = &asked["request"]["object"]["spec"];
        let after = &patched(&answer, &asked["request"]["object"])["spec"];
        let fields = ["schedulingGates", "tolerations", "containers", "initContainers"];
        let added: Vec<&str> = fields.into_iter().filter(|field| before[field] != after[field]).collect();
        let causes = send(&settings, Hook::Validate, &asked).1.causes;
        let named = causes.iter().map(|cause| cause["spec.".len()..].split(['[', ':']).next().unwrap());
        assert_eq!(named.collect::<Vec<_>>(), added, "seed {seed}: {asked}");
        let denied = !causes.is_empty();
        refused[usize::from(denied)] += 1;
    }
    assert!(refused.iter().all(|count| *count > 300), "{refused:?}");
}

#[test]
fn invariants_hold_for_random_pods() {
    let mut seen = std::collections::BTreeMap::new();
    let settings = AdmissionSettings::default();
    for seed in 0..3000 {
        let asked = random_review(&mut Random::new(seed));
        let body = serde_json::to_vec(&asked).unwrap();
        fuzz_review(&body);
        for hook in [Hook::Mutate, Hook::Validate] {
            let first = handle_review(&settings, &nvidia(), hook, &body).unwrap();
            *seen.entry(first.summary.verdict).or_insert(0) += 1;
            assert_eq!(
                handle_review(&settings, &nvidia(), hook, &body),
                Ok(first.clone()),
                "seed {seed}: the same again"
            );
            let turned = handle_review(&settings, &nvidia(), hook, reversed(&asked).as_bytes()).unwrap();
            assert_eq!(turned.summary.verdict, first.summary.verdict, "seed {seed}: order of keys");
            assert_eq!(turned.body, first.body, "seed {seed}: order of keys");
            let mut unknown = asked.clone();
            for place in
                ["", "/request", "/request/object", "/request/object/metadata", "/request/object/spec"]
            {
                unknown.pointer_mut(place).unwrap()["ofTomorrow"] =
                    json!({ "a": [null, 1.5e300, { "b": "c" }] });
            }
            unknown["request"]["object"]["spec"]["containers"][0]["ofTomorrow"] = json!([[]]);
            let unknown =
                handle_review(&settings, &nvidia(), hook, &serde_json::to_vec(&unknown).unwrap()).unwrap();
            assert_eq!(unknown, first, "seed {seed}: unknown fields");
        }
    }
    for verdict in [
        AdmissionVerdict::Untouched,
        AdmissionVerdict::Allowed,
        AdmissionVerdict::Patched,
        AdmissionVerdict::Denied,
    ] {
        assert!(seen.get(&verdict).is_some_and(|n| *n > 100), "{verdict:?} is seen often: {seen:?}");
    }
}

#[test]
fn damaged_reviews_never_panic() {
    let words: [&[u8]; 14] = [
        b"null",
        b"{}",
        b"[]",
        b"\"\"",
        b"-1",
        b"1e999",
        b"\\u0000",
        b"\"gpu-memory\":\"1\",",
        b",",
        b"\"",
        b"\xff",
        b"\"pod-group-name\":\"g\",",
        b"\"name\":\"NVIDIA_VISIBLE_DEVICES\",",
        b"\"spec\":{},",
    ];
    let mut read = 0;
    for seed in 0..6000 {
        let mut random = Random::new(seed ^ 0x5eed_0000_0000);
        let mut body = serde_json::to_vec(&random_review(&mut random)).unwrap();
        for _ in 0..=random.index(2) {
            let at = random.index(body.len());
            match random.index(8) {
                0 => body[at] = u8::try_from(random.index(256)).unwrap(),
                1 => body.truncate(at.max(1)),
                2 => {
                    let end = (at + 1 + random.index(12)).min(body.len());
                    body.drain(at..end);
                    body.push(b'}');
                }
                3 => {
                    let end = (at + random.index(40)).min(body.len());
                    let copy = body[at..end].to_vec();
                    body.splice(at..at, copy);
                }
                _ => {
                    let word = pick(&mut random, &words).to_vec();
                    body.splice(at..at, word);
                }
            }
        }
        read += u32::from(AdmissionReview::parse(&body).is_ok());
        fuzz_review(&body);
    }
    assert!(read > 300, "some of the damaged reviews can still be read: {read}");
}
