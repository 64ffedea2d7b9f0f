//! What owners of pods do that no gang survives, mended when they are made: it cannot be changed later.
//!
//! A StatefulSet makes its pods in order unless it is told otherwise: pod 1 when pod 0 is Ready, and pod 0 waits for pod 1.
//! One that is to keep its order says so on its pods, where the engine reads it and holds room for those to come. Only the pods of a gang are looked at; nothing else of an owner is ever touched.

use super::decision::Decision;
use super::patch::{self, PARALLEL};
use super::settings::AdmissionSettings;
use super::{AdmissionVerdict, Hook};
use crate::dialect::{self, Membership};
use crate::model::{DialectId, quoted};
use crate::objects::names;
use crate::objects::view::StatefulSetView;

/// The policy by which a StatefulSet makes its pods one after the other.
const ORDERED: &str = "OrderedReady";

/// Decides on a new StatefulSet: one whose pods are members of a gang makes them all at once, unless it says that its order
/// is to be kept.
pub(super) fn decide_create(settings: &AdmissionSettings, hook: Hook, set: &StatefulSetView<'_>) -> Decision {
    let template = &set.spec.template;
    let excluded = settings.excluded_namespaces.contains(template.metadata.namespace.as_str());
    // The controller of LeaderWorkerSet makes StatefulSets of its own, in the order it wants.
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
            let warnings = vec![kept(&membership)];
            if of_pods == Some(names::ORDERED_KEEP) || hook == Hook::Validate {
                return Decision { warnings, ..Decision::allowed(None) };
            }
            // The engine sees pods, not who makes them.
            let patch = patch::keep_order(set);
            return Decision { verdict: AdmissionVerdict::Patched, patch, warnings, ..Decision::untouched() };
        }
        Some(other) => warnings.push(format!(
            "{} {} is not known: write {}, or take it out",
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

/// Decides on a change of a StatefulSet: a manifest that says the order in so many words is applied again after [`decide_create`] has
/// changed it. It stays as it was made; the API server would refuse the change.
pub(super) fn decide_update(
    settings: &AdmissionSettings,
    hook: Hook,
    old: &StatefulSetView<'_>,
    set: &StatefulSetView<'_>,
) -> Decision {
    // Refused by the API server, as it should be: it is asked for something else than what it is.
    let keeps = set.metadata.annotations.text(names::ORDERED_ANNOTATION) == Some(names::ORDERED_KEEP);
    if old.spec.pod_management_policy.as_str() == PARALLEL && keeps {
        Decision::allowed(None)
    } else if old.spec.pod_management_policy.as_str() == PARALLEL {
        decide_create(settings, hook, set)
    } else {
        Decision::untouched()
    }
}

/// What follows from an order that is kept.
fn kept(membership: &Membership) -> String {
    format!(
        "the pods are made in order ({}: {}), each when the one before it is Ready: gang {} starts when there is room for \
         all of it, and holds that for pods to come like the first",
        names::ORDERED_ANNOTATION,
        names::ORDERED_KEEP,
        quoted(&shortened(membership))
    )
}

/// A name of at most 40 characters: warnings are cut by the API server at 256.
fn shortened(membership: &Membership) -> String {
    portcullis_text::truncate::first_chars(&membership.gang.name, 40).to_owned()
}
