//! Pod affinity, anti-affinity and topology spread, as typed objects, views and rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as typed;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use portcullis_core::model::{Str, str};
use portcullis_core::objects::affinity::{Operator, Requirement};
use portcullis_core::objects::text::Entries;
use portcullis_core::objects::{LabelSelector, view};
use portcullis_core::shape::{PodRules, PodTerm, SpreadConstraint};

use super::pods::requirement_view;
use super::{map, set, text};

fn typed_selector(label: &str) -> Option<meta::LabelSelector> {
    Some(meta::LabelSelector {
        match_labels: map(&[("app", label)]),
        match_expressions: Some(vec![meta::LabelSelectorRequirement {
            key: "tier".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(vec!["web".to_owned()]),
        }]),
    })
}

fn selector_view(label: &str) -> Option<view::LabelSelector<'_>> {
    Some(view::LabelSelector {
        match_labels: Entries(vec![(text("app"), text(label))]),
        match_expressions: requirement_view("tier", "NotIn", "web").unwrap_or_default(),
    })
}

pub(super) fn typed_pod_term(key: &str) -> typed::PodAffinityTerm {
    typed::PodAffinityTerm {
        label_selector: typed_selector("a"),
        match_label_keys: Some(vec!["hash".to_owned()]),
        mismatch_label_keys: Some(vec!["set".to_owned()]),
        namespace_selector: typed_selector("b"),
        namespaces: Some(vec!["ml".to_owned()]),
        topology_key: key.to_owned(),
    }
}

pub(super) fn pod_affinity_view(key: &str) -> view::PodAffinity<'_> {
    view::PodAffinity {
        required: vec![view::PodAffinityTerm {
            label_selector: selector_view("a"),
            namespaces: vec![text("ml")],
            namespace_selector: selector_view("b"),
            topology_key: text(key),
            match_label_keys: vec![text("hash")],
            mismatch_label_keys: vec![text("set")],
        }],
    }
}

pub(super) fn typed_spread() -> typed::TopologySpreadConstraint {
    typed::TopologySpreadConstraint {
        label_selector: typed_selector("c"),
        match_label_keys: Some(vec!["revision".to_owned()]),
        max_skew: 2,
        min_domains: Some(3),
        node_affinity_policy: set("Ignore"),
        node_taints_policy: set("Honor"),
        topology_key: "zone".to_owned(),
        when_unsatisfiable: "DoNotSchedule".to_owned(),
    }
}

pub(super) fn spread_view<'a>() -> view::TopologySpreadConstraint<'a> {
    view::TopologySpreadConstraint {
        max_skew: 2,
        topology_key: text("zone"),
        when_unsatisfiable: text("DoNotSchedule"),
        label_selector: selector_view("c"),
        min_domains: Some(3),
        node_affinity_policy: text("Ignore"),
        node_taints_policy: text("Honor"),
        match_label_keys: vec![text("revision")],
    }
}

/// The rules about other pods, as a stored pod has them: label keys are in the selectors already.
pub(super) fn pod_rules() -> PodRules {
    let requirement = |key: &str, operator: fn(Vec<Str>) -> Operator, value: &str| Requirement {
        key: str(key),
        operator: operator(vec![str(value)]),
    };
    let selector = |label: &str| {
        LabelSelector::All(vec![
            requirement("app", Operator::In, label),
            requirement("tier", Operator::NotIn, "web"),
        ])
    };
    let term = |key: &str| {
        Arc::new(PodTerm {
            selector: selector("a"),
            namespaces: BTreeSet::from([str("ml")]),
            namespace_selector: selector("b"),
            topology_key: str(key),
        })
    };
    PodRules {
        affinity: vec![term("zone")],
        anti_affinity: vec![term("rack")],
        spread: vec![SpreadConstraint {
            namespace: str("training"),
            selector: selector("c"),
            topology_key: str("zone"),
            max_skew: 2,
            min_domains: 3,
            honors_node_affinity: false,
            honors_node_taints: true,
        }],
        is_truncated: false,
    }
}
