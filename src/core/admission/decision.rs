//! The decision on one admission review.

use json_patch::PatchOperation;

use super::known_classes::KnownClasses;
use super::patch::{self, PatchContents, is_gated};
use super::required_fields;
use super::review::{AdmissionReview, Operation};
use super::settings::AdmissionSettings;
use super::stateful_set;
use super::{AdmissionVerdict, Hook};
use crate::dialect::{self, GroupObject, Membership, MembershipReview};
use crate::gpu;
use crate::model::{Finding, FindingRule, quoted};
use crate::objects::view::PodView;
use crate::objects::{ReadError, class_not_found, names};

/// The decision on one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The result.
    pub verdict: AdmissionVerdict,
    /// RFC 6902 operations for the object. Empty when denied, on `/validate` and on UPDATE.
    pub patch: Vec<PatchOperation>,
    /// One line each, for the user who applied the manifest. Empty when denied.
    pub warnings: Vec<String>,
    /// All causes of the denial.
    pub causes: Vec<Finding>,
    /// The gang of the pod.
    pub membership: Option<Membership>,
}

impl Decision {
    pub(super) fn untouched() -> Self {
        Self {
            verdict: AdmissionVerdict::Untouched,
            patch: Vec::new(),
            warnings: Vec::new(),
            causes: Vec::new(),
            membership: None,
        }
    }

    fn denied(causes: Vec<Finding>, membership: Option<Membership>) -> Self {
        Self { verdict: AdmissionVerdict::Denied, causes, membership, ..Self::untouched() }
    }

    pub(super) fn allowed(membership: Option<Membership>) -> Self {
        Self { verdict: AdmissionVerdict::Allowed, membership, ..Self::untouched() }
    }
}

/// Decides on a review. Pure: the same review, settings and known classes give the same decision.
///
/// CREATE: any finding on GPU requests or group keys denies the pod. `/mutate` then adds group keys, gate and
/// the fields for its cards; `/validate` denies a member that lacks a field which cannot be added later.
///
/// UPDATE: only findings that the old object did not have count. A member cannot change its gang, and the
/// share of an ungated member is fixed. There is no patch on UPDATE, because gates cannot be added to an
/// existing pod.
pub fn decide(
    settings: &AdmissionSettings,
    facts: &KnownClasses,
    hook: Hook,
    review: &AdmissionReview<'_>,
) -> Decision {
    if let Some(group) = &review.group {
        return review_group(settings, facts, &review.namespace, group);
    }
    if let Some(set) = &review.stateful_set {
        return match (review.operation, &review.old_stateful_set) {
            (Operation::Create, _) => stateful_set::decide_create(settings, hook, set),
            (_, Some(old)) => stateful_set::decide_update(settings, hook, old, set),
            (_, None) => Decision::untouched(),
        };
    }
    let Some(pod) = &review.pod else { return Decision::untouched() };
    if settings.excluded_namespaces.contains(review.namespace.as_str()) || pod.view.is_node_bound() {
        return Decision::untouched();
    }
    match (review.operation, &review.old_pod) {
        (Operation::Create, _) if pod.view.spec.node_name.is_empty() => {
            created(settings, facts, hook, &pod.view)
        }
        (Operation::Update, Some(old)) => updated(settings, old, &pod.view),
        _ => Decision::untouched(),
    }
}

fn created(settings: &AdmissionSettings, facts: &KnownClasses, hook: Hook, pod: &PodView<'_>) -> Decision {
    let link = dialect::review_membership(pod);
    let share = gpu::asks_for_share(pod);
    let mut causes = gpu::findings(pod, &settings.gpu);
    if link.membership.is_none() && !share && causes.is_empty() {
        return Decision::untouched();
    }
    causes.extend(link.faults.iter().cloned());
    if !causes.is_empty() {
        return Decision::denied(causes, link.membership);
    }
    match (hook, &link.membership) {
        (Hook::Mutate, _) => patched(settings, facts, pod, link, share),
        (Hook::Validate, Some(membership)) => {
            match required_fields::findings(
                pod,
                membership,
                share && is_placed_by_portcullis(&pod.spec.scheduler_name),
            ) {
                causes if causes.is_empty() => Decision::allowed(link.membership),
                causes => Decision::denied(causes, link.membership),
            }
        }
        (Hook::Validate, None) => Decision::allowed(None),
    }
}

/// Whether Portcullis places the pods of this scheduler: it is not a gang scheduler.
fn is_placed_by_portcullis(scheduler: &str) -> bool {
    !names::GANG_SCHEDULERS.contains(&scheduler)
}

/// Patches a valid pod: group keys, gate, scheduler, and what a VRAM member needs on a shared node.
fn patched(
    settings: &AdmissionSettings,
    facts: &KnownClasses,
    pod: &PodView<'_>,
    link: MembershipReview,
    share: bool,
) -> Decision {
    let MembershipReview { membership, repairs, mut warnings, faults: _ } = link;
    let named = pod.spec.scheduler_name.as_str();
    let scheduler = if membership.is_some() { settings.scheduler(named) } else { named };
    let rewritten = (!named.is_empty() && scheduler != named).then_some(scheduler);
    if let Some(scheduler) = rewritten {
        warnings.push(format!(
            "spec.schedulerName {} is not installed here: changed to {}, and the gang is placed by portcullis",
            quoted(named),
            quoted(scheduler)
        ));
    }
    // Portcullis assigns cards only to pods that it places: members of a gang without a gang scheduler.
    let shares_cards = share && membership.is_some() && is_placed_by_portcullis(scheduler);
    if share && membership.is_none() && is_placed_by_portcullis(scheduler) {
        warnings.push(format!(
            "GPU memory is not accounted for this pod: it is in no group. Set annotation {}",
            names::KAI_GROUP_ANNOTATION
        ));
    }
    let runtime_class = settings.gpu_runtime_class.as_deref().filter(|class| facts.has_runtime_class(class));
    let wanted = PatchContents {
        repairs: &repairs,
        gate: membership.is_some(),
        scheduler: rewritten,
        equipment: shares_cards.then_some(patch::ShareEquipment { runtime_class }),
    };
    let patch = patch::build(pod, &wanted, &mut warnings);
    let verdict = if patch.is_empty() { AdmissionVerdict::Allowed } else { AdmissionVerdict::Patched };
    Decision { verdict, patch, warnings, causes: Vec::new(), membership }
}

/// Reviews a group object. It gets warnings and is never denied: its problems affect only its own gang.
fn review_group(
    settings: &AdmissionSettings,
    facts: &KnownClasses,
    namespace: &str,
    group: &Result<GroupObject, ReadError>,
) -> Decision {
    if settings.excluded_namespaces.contains(namespace) {
        return Decision::untouched();
    }
    let warnings = match group {
        Err(error) => vec![format!("{}; its pods will not start until this is fixed", error.problem)],
        Ok(object) => {
            let classes = object.groups.iter().filter_map(|group| group.priority_class.as_ref());
            let missing = classes.filter(|class| facts.lacks_priority_class(class)).map(|class| {
                let known = facts.priority_classes.iter().flatten().map(|known| &**known);
                format!("{} The gang is queued by the priority of its pods.", class_not_found(class, known))
            });
            let other = object.groups.iter().flat_map(|group| group.warnings.iter().cloned());
            let mut warnings: Vec<String> = missing.chain(other).collect();
            warnings.dedup();
            warnings
        }
    };
    if warnings.is_empty() {
        return Decision::untouched();
    }
    Decision { warnings, ..Decision::allowed(None) }
}

fn updated(settings: &AdmissionSettings, old: &PodView<'_>, new: &PodView<'_>) -> Decision {
    if new.metadata.deletion_timestamp.is_some() {
        // The pod is being deleted: its finalizers have to be removable.
        return Decision::untouched();
    }
    let (link, old_link) = (dialect::review_membership(new), dialect::review_membership(old));
    let mut causes = new_findings(gpu::findings(new, &settings.gpu), || gpu::findings(old, &settings.gpu));
    // A controller of another stack may add its group later: the pod stays in the gang that counted it.
    let faults = link.faults.iter().filter(|fault| fault.rule != FindingRule::TwoGroups).cloned().collect();
    causes.extend(new_findings(faults, || old_link.faults.clone()));
    causes.extend(group_changed(&old_link, &link));
    if old_link.membership.is_some() && !is_gated(old) && !is_gated(new) {
        causes.extend(share_changed(old, new));
    }
    let grouped = link.membership.is_some() || old_link.membership.is_some();
    if !causes.is_empty() {
        Decision::denied(causes, link.membership)
    } else if grouped || gpu::asks_for_share(new) || gpu::asks_for_share(old) {
        Decision::allowed(link.membership)
    } else {
        Decision::untouched()
    }
}

/// The findings that the old object did not have.
fn new_findings(now: Vec<Finding>, before: impl FnOnce() -> Vec<Finding>) -> Vec<Finding> {
    if now.is_empty() {
        return now;
    }
    let before = before();
    now.into_iter().filter(|finding| !before.contains(finding)).collect()
}

/// The finding on a member that leaves or changes its gang. Joining one later is allowed: such a pod was
/// never gated, and controllers that group existing pods (KAI's pod-grouper) need it.
fn group_changed(old: &MembershipReview, new: &MembershipReview) -> Option<Finding> {
    let was = old.membership.as_ref()?;
    if new.membership.as_ref().is_some_and(|now| now.same_gang_and_role(was)) {
        return None;
    }
    let (key, value) = match &new.membership {
        Some(now) if now.gang == was.gang => {
            (dialect::role_field(was.gang.dialect), now.role.as_deref().unwrap_or_default().to_owned())
        }
        now => (
            dialect::field(now.as_ref().unwrap_or(was).gang.dialect),
            now.as_ref().map(|m| m.gang.name.to_string()).unwrap_or_default(),
        ),
    };
    let message = match &new.membership {
        None => format!(
            "an existing pod cannot leave its group {}. Delete the pod and create it without the group.",
            quoted(&was.gang.name)
        ),
        Some(now) if now.gang == was.gang => format!(
            "an existing pod cannot change its subgroup from {} to {}. Delete the pod and create it in the other one.",
            quoted(was.role.as_deref().unwrap_or_default()),
            quoted(&value)
        ),
        Some(_) => format!(
            "an existing pod cannot move from group {} to group {}. Delete the pod and create it in the other group.",
            quoted(&was.gang.name),
            quoted(&value)
        ),
    };
    Some(Finding { field: key.to_owned(), value, rule: FindingRule::GroupChanged, message })
}

fn share_changed(old: &PodView<'_>, new: &PodView<'_>) -> Vec<Finding> {
    let keys = [
        names::GPU_MEMORY,
        names::GPU_FRACTION,
        names::GPU_FRACTION_NUM_DEVICES,
        names::GPU_FRACTION_CONTAINER,
    ];
    let changed = keys.into_iter().filter_map(|key| {
        let (was, now) = (old.metadata.annotations.text(key), new.metadata.annotations.text(key));
        (was != now).then(|| Finding {
            field: format!("metadata.annotations[{key}]"),
            value: now.unwrap_or_default().to_owned(),
            rule: FindingRule::ShareChanged,
            message: format!(
                "the share of a started gang member is fixed: its cards were assigned for {key} {}, not {}. Keep the value, or \
                 delete the pod and create it with the new one.",
                was.map_or_else(|| "unset".to_owned(), quoted),
                now.map_or_else(|| "unset".to_owned(), quoted)
            ),
        })
    });
    changed.collect()
}
