//! Admission of StatefulSets: sets `podManagementPolicy: Parallel` for gangs, which cannot be changed after
//! creation.
//!
//! By default a StatefulSet creates its pods in order: pod 1 when pod 0 is Ready. In a gang pod 0 waits for
//! pod 1, so the set never starts. A set that keeps its order has an annotation on its pods, from which the
//! engine plans placeholders. Admission changes only sets whose pods are gang members, and no other field of
//! them.

use super::decision::Decision;
use super::patch::{self, PARALLEL};
use super::settings::AdmissionSettings;
use super::{AdmissionVerdict, Hook};
use crate::dialect::{self, Membership};
use crate::model::{DialectId, quoted};
use crate::objects::names;
use crate::objects::view::StatefulSetView;

/// The `podManagementPolicy` of pods that are created one after the other; the default.
const ORDERED: &str = "OrderedReady";

/// Decides on a new StatefulSet. One whose pods are gang members creates them all at once, unless it has the
/// annotation to keep its order.
pub(super) fn decide_create(settings: &AdmissionSettings, hook: Hook, set: &StatefulSetView<'_>) -> Decision {
    let template = &set.spec.template;
    let excluded = settings.excluded_namespaces.contains(template.metadata.namespace.as_str());
    // The LeaderWorkerSet controller creates StatefulSets of its own, in the order it needs.
    let membership = dialect::membership(template).filter(|m| m.gang.dialect != DialectId::Lws);
    let Some(membership) = membership.filter(|_| !excluded) else { return Decision::untouched() };
    let policy = set.spec.pod_management_policy.as_str();
    if !matches!(policy, "" | ORDERED) {
        return Decision::allowed(None);
    }
    let of_set = set.metadata.annotations.text(names::ORDERED_ANNOTATION);
    let of_pods = template.metadata.annotations.text(names::ORDERED_ANNOTATION);
    let mut warnings = Vec::new();
    match of_set.or(of_pods) {
        Some(names::ORDERED_KEEP) => {
            let warnings = vec![order_kept_warning(&membership)];
            if of_pods == Some(names::ORDERED_KEEP) || hook == Hook::Validate {
                return Decision { warnings, ..Decision::allowed(None) };
            }
            // The engine reads pods, not their owners: the annotation has to be on the pods.
            let patch = patch::keep_order(set);
            return Decision { verdict: AdmissionVerdict::Patched, patch, warnings, ..Decision::untouched() };
        }
        Some(other) => warnings.push(format!(
            "{} {} is not a known value: use {}, or remove the annotation",
            names::ORDERED_ANNOTATION,
            quoted(&other.chars().take(32).collect::<String>()),
            quoted(names::ORDERED_KEEP)
        )),
        None => {}
    }
    if hook == Hook::Validate {
        return Decision::allowed(None);
    }
    warnings.push(format!(
        "spec.podManagementPolicy was {ORDERED}; set to {PARALLEL}: in order, pod 1 would wait for pod 0, and pod 0 for \
         its gang {} (to keep the order: annotation {}: {})",
        quoted(&shortened(&membership)),
        names::ORDERED_ANNOTATION,
        names::ORDERED_KEEP
    ));
    Decision {
        verdict: AdmissionVerdict::Patched,
        patch: patch::parallel(set),
        warnings,
        ..Decision::untouched()
    }
}

/// Decides on an update of a StatefulSet. A manifest with an explicit order that is applied again after
/// [`decide_create`] has changed the order keeps the created value, because the API server would reject the
/// change.
pub(super) fn decide_update(
    settings: &AdmissionSettings,
    hook: Hook,
    old: &StatefulSetView<'_>,
    set: &StatefulSetView<'_>,
) -> Decision {
    // With the annotation the update asks for an order that the set does not have: the API server rejects it.
    let keeps = set.metadata.annotations.text(names::ORDERED_ANNOTATION) == Some(names::ORDERED_KEEP);
    if old.spec.pod_management_policy.as_str() == PARALLEL && keeps {
        Decision::allowed(None)
    } else if old.spec.pod_management_policy.as_str() == PARALLEL {
        decide_create(settings, hook, set)
    } else {
        Decision::untouched()
    }
}

/// The warning about the effects of a kept order.
fn order_kept_warning(membership: &Membership) -> String {
    format!(
        "the pods are created in order ({}: {}), each when the previous one is Ready: gang {} starts when all of it \
         fits, and reserves capacity for later pods that are like the first",
        names::ORDERED_ANNOTATION,
        names::ORDERED_KEEP,
        quoted(&shortened(membership))
    )
}

/// The gang's name, at most 40 characters: the API server truncates warnings at 256.
fn shortened(membership: &Membership) -> String {
    portcullis_text::truncate::first_chars(&membership.gang.name, 40).to_owned()
}
