//! What a new member lacks that nobody can give it later: the gate, the toleration of shared nodes, its cards.
//!
//! `/mutate` gives all of that, so a member without it comes to `/validate` only where `/mutate` was not called, or where
//! somebody undid it. Labels, annotations and the RuntimeClass are no reason: either key of a group suffices, and which
//! classes there are is known late. Invariant: there are findings exactly where `/mutate` would still add one of the three.

use super::patch::{CardsVariable, GPUS_FIELD_PATH, is_gated, tolerates_sharing};
use crate::dialect::Membership;
use crate::model::{Finding, FindingRule, quoted};
use crate::objects::names;
use crate::objects::view::PodView;

/// Why it is so, and what to do: the same for all, because one thing went wrong.
const REMEDY: &str = "Portcullis adds it at creation: its mutating webhook was not called, or something undid it. Create \
                      the pod again; if that does not help, the platform team runs \"portcullis doctor\" and looks at \
                      MutatingWebhookConfiguration portcullis.";

/// The findings on a sound member; `shares_cards` where we give it cards. Without containers there are none: the API
/// server refuses such a pod.
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
                "there is no toleration of {taint:?}. A member with a share of a card can run on nodes with this taint only. \
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
            Some(variable) if variable.value_from.is_some() => format!("{name} comes from elsewhere"),
            Some(_) => format!("{name} is {}", quoted(&value)),
        };
        found.push(Finding {
            field: format!("spec.{}[{}].env", cards.list, cards.index),
            value,
            rule: FindingRule::CardsUnknown,
            message: format!(
                "{is}; it has to be a fieldRef to {GPUS_FIELD_PATH}. A member with a share of a card learns from it which card \
                 is its own, and a variable cannot be changed later. {REMEDY}"
            ),
        });
    }
    found
}
