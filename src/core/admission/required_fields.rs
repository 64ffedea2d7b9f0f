//! Required fields of a new member that cannot be added after creation: the gate, the toleration of shared
//! nodes, and the environment variable with its cards.
//!
//! `/mutate` adds all of them. A member without them reaches `/validate` only if `/mutate` was not called, or
//! if another webhook removed them. Labels, annotations and the RuntimeClass are not required: one key of a
//! group is enough, and the existing classes are known late.
//!
//! Invariant: there are findings exactly when `/mutate` would still add one of the three.

use super::patch::{CardsVariable, GPUS_FIELD_PATH, is_gated, tolerates_sharing};
use crate::dialect::Membership;
use crate::model::{Finding, FindingRule, quoted};
use crate::objects::names;
use crate::objects::view::PodView;

/// Cause and fix, the same for all findings of this file: they have one cause.
const REMEDY: &str = "Portcullis adds it at creation: its mutating webhook was not called, or another webhook removed it. \
                      Create the pod again. If that fails, the platform team runs \"portcullis doctor\" and checks \
                      MutatingWebhookConfiguration portcullis.";

/// The findings on an otherwise valid member. `shares_cards`: the engine assigns its cards. A pod without
/// containers has none, because the API server rejects it.
pub(super) fn findings(pod: &PodView<'_>, membership: &Membership, shares_cards: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    if pod.spec.containers.is_empty() {
        return found;
    }
    if !is_gated(pod) {
        let gates: Vec<&str> = pod.spec.scheduling_gates.iter().map(|gate| gate.name.as_str()).collect();
        found.push(Finding {
            field: "spec.schedulingGates".to_owned(),
            value: gates.join(","),
            rule: FindingRule::GateMissing,
            message: format!(
                "{:?} is missing{}. A member of group {} without this gate starts without its gang, and a gate cannot be \
                 added later. {REMEDY}",
                names::GATE,
                if gates.is_empty() {
                    String::new()
                } else {
                    format!(" beside {}", quoted(&gates.join(",")))
                },
                quoted(&membership.gang.name),
            ),
        });
    }
    if shares_cards && !tolerates_sharing(pod) {
        let taint = format!("{}={}:NoSchedule", names::SHARING, names::SHARING_VRAM);
        found.push(Finding {
            field: "spec.tolerations".to_owned(),
            value: String::new(),
            rule: FindingRule::TolerationMissing,
            message: format!(
                "there is no toleration of {taint:?}. A member with a share of a card runs only on nodes with this taint. \
                 {REMEDY}"
            ),
        });
    }
    let cards = if shares_cards { CardsVariable::of(pod) } else { None };
    if let Some(cards) = cards.filter(|cards| !cards.is_ours()) {
        let value = cards.variable().and_then(|variable| variable.value.as_ref());
        let value = value.map(ToString::to_string).unwrap_or_default();
        let name = names::NVIDIA_VISIBLE_DEVICES;
        let is = match cards.variable() {
            None => format!("{name} is missing"),
            Some(variable) if variable.value_from.is_some() => format!("{name} has another source"),
            Some(_) => format!("{name} is {}", quoted(&value)),
        };
        found.push(Finding {
            field: format!("spec.{}[{}].env", cards.list, cards.index),
            value,
            rule: FindingRule::CardsUnknown,
            message: format!(
                "{is}; it must be a fieldRef to {GPUS_FIELD_PATH}. A member with a share of a card reads its cards from it, \
                 and a variable cannot be changed later. {REMEDY}"
            ),
        });
    }
    found
}
