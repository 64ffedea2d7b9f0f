//! Every contradiction, each beside a similar valid pod.

#![expect(clippy::needless_pass_by_value, reason = "tables read better with json!() than with &json!()")]

use serde_json::{Value, json};

use super::*;
use crate::gpu::{GpuShare, ShareSize};
use crate::model::VramMib;

const ALONE_MPS: &str = "MPS is only supported with GPU fraction request";
const SHARE_AND_GPU: &str = "cannot have both GPU fraction request and whole GPU resource request/limit";
const BOTH: &str = "cannot request both GPU and GPU memory";
const ALONE_DEVICES: &str =
    "cannot request multiple fractional devices without specifying fraction portion or gpu-memory";
const BAD_MEMORY: &str = "gpu-memory annotation value must be a positive integer greater than 0";
const BAD_FRACTION: &str = "gpu-fraction annotation value must be a positive number smaller than 1.0";
const BAD_DEVICES: &str = "fraction count annotation value must be a positive integer greater than 0";
const OFF: &str = "attempting to create a pod test-namespace/test-pod with gpu sharing request, while GPU sharing is disabled";

/// A pod with these annotations, and this spec merged over one container `main`.
fn pod(annotations: &Value, spec: &Value) -> String {
    let mut whole = json!({ "containers": [{ "name": "main" }] });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let metadata = json!({ "name": "test-pod", "namespace": "test-namespace", "annotations": annotations });
    json!({ "metadata": metadata, "spec": whole }).to_string()
}

fn limits(of: Value) -> Value {
    json!({ "containers": [{ "name": "main", "resources": { "limits": of } }] })
}

/// Compares all findings as (headline, field). The share of a pod is readable exactly when there are no
/// findings.
fn check_with(rules: &GpuRules, annotations: Value, spec: Value, expected: &[(&str, &str)]) {
    let pod = pod(&annotations, &spec);
    let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
    let found = findings(&view, rules);
    let headlines: Vec<_> = found
        .iter()
        .map(|f| {
            let headline = expected.iter().map(|(h, _)| *h).find(|h| f.message.starts_with(h));
            (headline.unwrap_or(f.message.as_str()), f.field.trim_start_matches("metadata."))
        })
        .collect();
    assert_eq!(headlines, expected, "{pod}");
    for finding in &found {
        assert!(finding.message.len() > 100 && finding.message.ends_with(['.', '?']), "{}", finding.message);
    }
    if *rules == GpuRules::default() {
        let readable = asks_for_share(&view) && found.is_empty();
        assert_eq!(GpuShare::of(&view).is_some(), readable, "{pod}");
    }
}

fn check(annotations: Value, spec: Value, expected: &[(&str, &str)]) {
    check_with(&GpuRules::default(), annotations, spec, expected);
}

const MEMORY: &str = "annotations[gpu-memory]";
const FRACTION: &str = "annotations[gpu-fraction]";
const DEVICES: &str = "annotations[gpu-fraction-num-devices]";
const LIMIT: &str = "spec.containers[0].resources.limits[nvidia.com/gpu]";

#[test]
fn findings_match_those_of_kai() {
    let gpu = |amount: &str| limits(json!({ "nvidia.com/gpu": amount }));
    let none = || json!({});
    check(json!({ "gpu-fraction": "0.5", "mps": "true" }), none(), &[]);
    check(json!({ "mps": "true" }), gpu("1"), &[(ALONE_MPS, "annotations[mps]")]);
    check(json!({ "mps": "true" }), none(), &[(ALONE_MPS, "annotations[mps]")]);
    check(json!({ "gpu-fraction": "0.5" }), gpu("2m"), &[(SHARE_AND_GPU, FRACTION), (SHARE_AND_GPU, LIMIT)]);
    for bad in
        ["1.5", "1.2", "-1", "0", "1", "1.0", "500m", "Infinity", "1e-400", "1e400", "", " 0.5", "half", "1E"]
    {
        check(json!({ "gpu-fraction": bad }), none(), &[(BAD_FRACTION, FRACTION)]);
    }
    for whole in ["2", "2000m"] {
        check(none(), gpu(whole), &[]);
    }
    let two = json!({ "containers": [{ "name": "a", "resources": { "limits": { "nvidia.com/gpu": 1 } } },
        { "name": "b", "resources": { "limits": { "nvidia.com/gpu": 2 } } }] });
    check(none(), two, &[]);
    check(json!({ "gpu-fraction": "0.5", "gpu-memory": "1" }), none(), &[(BOTH, MEMORY)]);
    check(json!({ "gpu-memory": "1" }), gpu("1m"), &[(BOTH, MEMORY), (BOTH, LIMIT)]);
    let second = json!({ "containers": [{ "name": "a" },
        { "name": "b", "resources": { "limits": { "nvidia.com/gpu": "1m" } } }] });
    check(
        json!({ "gpu-memory": "1" }),
        second,
        &[(BOTH, MEMORY), (BOTH, "spec.containers[1].resources.limits[nvidia.com/gpu]")],
    );
    let init =
        json!({ "initContainers": [{ "name": "i", "resources": { "limits": { "nvidia.com/gpu": 1 } } }] });
    check(
        json!({ "gpu-memory": "1" }),
        init,
        &[(BOTH, MEMORY), (BOTH, "spec.initContainers[0].resources.limits[nvidia.com/gpu]")],
    );
    check(json!({ "gpu-memory": "-1" }), none(), &[(BAD_MEMORY, MEMORY)]);
    check(json!({ "gpu-fraction-num-devices": "1" }), none(), &[(ALONE_DEVICES, DEVICES)]);
    for bad in ["1.2", "0", "-1", "", "+2", "4294967296", "18446744073709551616"] {
        check(
            json!({ "gpu-fraction-num-devices": bad, "gpu-fraction": "0.2" }),
            none(),
            &[(BAD_DEVICES, DEVICES)],
        );
    }
    check(json!({ "gpu-fraction-num-devices": "2", "gpu-memory": "1000" }), none(), &[]);
    check(json!({ "gpu-fraction-num-devices": "2", "gpu-fraction": "0.3" }), none(), &[]);
    for odd in ["NaN", "0x1p-1"] {
        let headline = format!(
            "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation .given value: {odd}"
        );
        check(json!({ "gpu-fraction": odd }), none(), &[(&headline, FRACTION)]);
    }
    for sound in ["1.2e-10", ".5", "5e-1", "0.9999999999", "+0.5"] {
        check(json!({ "gpu-fraction": sound }), none(), &[]);
    }
    let off = GpuRules { sharing: false, ..GpuRules::default() };
    check_with(&off, none(), gpu("1"), &[]);
    check_with(&off, json!({ "gpu-fraction": "0.5" }), none(), &[(OFF, FRACTION)]);
    check_with(&off, json!({ "gpu-memory": "1024" }), none(), &[(OFF, MEMORY)]);
    for sound in [json!({ "gpu-memory": "1024" }), json!({ "gpu-fraction": "0.5" })] {
        check(sound, none(), &[]);
    }
}

#[test]
fn findings_cover_what_kai_accepts() {
    let none = || json!({});
    for bad in [
        "",
        "0",
        "000",
        "4Gi",
        "1e3",
        " 10",
        "10 ",
        "+5",
        "1.0",
        "1_0",
        "9223372036854775808",
        "18446744073709551616",
    ] {
        check(json!({ "gpu-memory": bad }), none(), &[(BAD_MEMORY, MEMORY)]);
    }
    for sound in ["007", "1", "9223372036854775807"] {
        check(json!({ "gpu-memory": sound }), none(), &[]);
    }
    for resource in [
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.5gb",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "nvidia.com/gpu.shared",
    ] {
        for (part, amount) in [("limits", json!("1")), ("limits", json!(0)), ("requests", json!("1"))] {
            let field = format!("spec.containers[0].resources.{part}[{resource}]");
            let spec =
                json!({ "containers": [{ "name": "main", "resources": { part: { resource: amount } } }] });
            check(json!({ "gpu-memory": "8000" }), spec.clone(), &[(BOTH, MEMORY), (BOTH, &field)]);
            check(
                json!({ "gpu-fraction": "0.5" }),
                spec,
                &[(SHARE_AND_GPU, FRACTION), (SHARE_AND_GPU, &field)],
            );
        }
    }
    check(json!({ "gpu-memory": "8000" }), limits(json!({ "example.com/fpga": 1, "cpu": "4" })), &[]);
    let claims = json!({ "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": "t" }] });
    check(
        json!({ "gpu-memory": "8000" }),
        claims.clone(),
        &[(BOTH, MEMORY), (BOTH, "spec.resourceClaims[0]")],
    );
    check(
        json!({ "gpu-fraction": "0.5" }),
        claims,
        &[(SHARE_AND_GPU, FRACTION), (SHARE_AND_GPU, "spec.resourceClaims[0]")],
    );
    check(
        json!({ "gpu-fraction": "0.5", "gpu-memory": "x" }),
        limits(json!({ "nvidia.com/gpu": 1 })),
        &[
            (SHARE_AND_GPU, FRACTION),
            (SHARE_AND_GPU, LIMIT),
            (BOTH, MEMORY),
            (BOTH, LIMIT),
            (BOTH, MEMORY),
            (BAD_MEMORY, MEMORY),
        ],
    );
}

#[test]
fn the_named_container_has_to_exist() {
    let spec = json!({ "containers": [{ "name": "server" }, { "name": "model" }], "initContainers": [{ "name": "load" }] });
    let field = "annotations[gpu-fraction-container-name]";
    for sound in ["server", "model", "load"] {
        check(json!({ "gpu-memory": "1", "gpu-fraction-container-name": sound }), spec.clone(), &[]);
    }
    for (bad, said) in [
        (
            "mdoel",
            "failed to get fraction container ref: container with name mdoel not found for fraction request. Did you mean \"model\"?",
        ),
        (
            "cache",
            "failed to get fraction container ref: container with name cache not found for fraction request. The containers are: \"load\", \"server\", \"model\".",
        ),
        ("", "failed to get fraction container ref: container with name  not found for fraction request."),
    ] {
        check(
            json!({ "gpu-memory": "1", "gpu-fraction-container-name": bad }),
            spec.clone(),
            &[(said, field)],
        );
    }
    check(
        json!({ "gpu-fraction-container-name": "model" }),
        spec,
        &[("cannot choose a container for a share without specifying fraction portion or gpu-memory", field)],
    );
}

#[test]
fn a_valid_share_is_read() {
    let share = |annotations: Value| {
        let pod = pod(&annotations, &json!({}));
        let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
        GpuShare::of(&view).map(|s| (s.size, s.devices))
    };
    let fraction = ShareSize::Fraction;
    assert_eq!(share(json!({ "gpu-memory": "007" })), Some((ShareSize::Vram(VramMib(7)), 1)));
    assert_eq!(
        share(json!({ "gpu-fraction": "5e-1", "gpu-fraction-num-devices": "2" })),
        Some((fraction(500_000_000), 2))
    );
    assert_eq!(share(json!({ "gpu-fraction": "1.2e-10" })), Some((fraction(1), 1)));
    assert_eq!(share(json!({ "gpu-fraction": "0.9999999999" })), Some((fraction(999_999_999), 1)));
    assert_eq!(share(json!({ "other": "1" })), None);
}

#[test]
fn the_finding_at_the_annotation_lists_all_claims() {
    let message = |annotations: Value, spec: Value| {
        let pod = pod(&annotations, &spec);
        let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
        findings(&view, &GpuRules::default())[0].message.clone()
    };
    let containers = json!([
        { "name": "a", "resources": { "limits": { "nvidia.com/gpu": 2 }, "requests": { "nvidia.com/gpu": 2 } } },
        { "name": "b", "resources": { "limits": { "nvidia.com/mig-1g.5gb": 1 } } }
    ]);
    assert_eq!(
        message(
            json!({ "gpu-memory": "4000" }),
            json!({ "containers": containers, "resourceClaims": [{ "name": "c" }] })
        ),
        "cannot request both GPU and GPU memory: this pod asks for 4000 MiB of a shared card and, in container \"a\", for \
         2 whole GPUs (limits nvidia.com/gpu), and, in container \"b\", for 1 MIG slice (limits nvidia.com/mig-1g.5gb), \
         and for devices by the resource claim \"c\". Keep one: remove the annotation gpu-memory to keep \
         nvidia.com/gpu and nvidia.com/mig-1g.5gb and spec.resourceClaims, or remove nvidia.com/gpu and \
         nvidia.com/mig-1g.5gb and spec.resourceClaims to share a card."
    );
    assert_eq!(
        message(json!({ "gpu-fraction": "0.5" }), limits(json!({ "amd.com/gpu": 1 }))),
        "cannot have both GPU fraction request and whole GPU resource request/limit: this pod asks for 0.5 of a shared \
         card and, in container \"main\", for 1 whole GPU (limits amd.com/gpu). Keep one: remove the annotation \
         gpu-fraction for a whole GPU, or remove amd.com/gpu to share a card."
    );
}
