//! The entry point of fuzzing and random tests: any bytes, both webhooks, every invariant of this module.

use base64::Engine as _;
use serde_json::Value;

use super::{AdmissionSettings, AdmissionVerdict, Hook, KnownClasses, handle_review};

/// Reviews any bytes with both webhooks and checks the invariants of every response.
///
/// # Panics
/// When an invariant is violated: the uid differs, the response is not valid, the patch does not apply to its
/// object, the patched object is patched or denied again, or `/validate` denies an object that `/mutate`
/// leaves unchanged.
pub fn fuzz_review(bytes: &[u8]) {
    let settings = AdmissionSettings {
        rewritten_schedulers: ["kai-scheduler".to_owned()].into(),
        ..AdmissionSettings::default()
    };
    let classes = |name: &str| Some([crate::model::str(name)].into());
    let facts = KnownClasses { runtime_classes: classes("nvidia"), priority_classes: classes("inference") };
    let mut mutated = None;
    for hook in [Hook::Mutate, Hook::Validate] {
        match handle_review(&settings, &facts, hook, bytes) {
            Ok(given) => {
                let verdict = given.summary.verdict;
                check(&settings, &facts, hook, bytes, &given.body, verdict);
                match mutated.replace(verdict) {
                    None | Some(AdmissionVerdict::Patched) => {}
                    Some(first) => assert_eq!(verdict, first, "validate differs only where mutate patches"),
                }
            }
            Err(error) => assert!(
                !matches!(error, super::ReviewError::Unpatchable(_)),
                "{hook:?}: {error}: {}",
                String::from_utf8_lossy(bytes)
            ),
        }
    }
}

fn check(
    settings: &AdmissionSettings,
    facts: &KnownClasses,
    hook: Hook,
    bytes: &[u8],
    body: &[u8],
    verdict: AdmissionVerdict,
) {
    let answered: Value = serde_json::from_slice(body).expect("an answer is JSON");
    // Some documents are reviews and not valid JSON values: numbers in fields that are not decoded may be out
    // of range.
    let Ok(mut asked) = serde_json::from_slice::<Value>(bytes) else { return };
    let response = &answered["response"];
    assert_eq!(response["uid"], asked["request"]["uid"], "the uid is echoed");
    assert_eq!(response["allowed"], Value::Bool(verdict != AdmissionVerdict::Denied));
    assert_eq!(response["patch"].is_null(), response["patchType"].is_null());
    assert_eq!(response["status"].is_null(), verdict != AdmissionVerdict::Denied);
    let warnings = response["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
    assert!(warnings.iter().filter_map(Value::as_str).all(|w| !w.contains(char::is_control)));
    let Some(patch) = response["patch"].as_str() else {
        assert_ne!(verdict, AdmissionVerdict::Patched);
        return;
    };
    assert_eq!((hook, verdict), (Hook::Mutate, AdmissionVerdict::Patched), "only mutate patches");
    let patch = base64::engine::general_purpose::STANDARD.decode(patch).expect("a patch is base64");
    let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch is RFC 6902");
    assert!(!patch.0.is_empty(), "an empty patch is never sent");
    json_patch::patch(&mut asked["request"]["object"], &patch).expect("a patch applies to its object");
    let again = serde_json::to_vec(&asked).expect("a value serialises");
    for hook in [Hook::Mutate, Hook::Validate] {
        let second = handle_review(settings, facts, hook, &again).expect("a patched review is a review");
        assert_eq!(second.summary.patch_operations, 0, "a second mutation changes nothing");
        assert_ne!(second.summary.verdict, AdmissionVerdict::Denied, "a patched pod is valid");
    }
}
