//! Matching pods to nodes by selectors, required node affinity, taints and tolerations: the stock scheduler's
//! rules (k8s.io/component-helpers, scheduling/corev1/nodeaffinity and helpers.go).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

use super::view;
use crate::model::{NodeName, Str, str};

/// What a requirement compares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The value is one of these.
    In(Vec<Str>),
    /// The value is none of these, or the label is absent.
    NotIn(Vec<Str>),
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// The label's integer is greater.
    Gt(i64),
    /// The label's integer is less.
    Lt(i64),
    /// An unknown operator or invalid operands. It matches nothing, as in kube-scheduler.
    Unknown,
}

/// One requirement on a label, or on the field `metadata.name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    /// Label key or field path.
    pub key: Str,
    /// How it is compared.
    pub operator: Operator,
}

impl Requirement {
    pub(super) fn read(view: &view::NodeRequirement<'_>) -> Self {
        let values = || view.values.iter().map(|v| str(v.as_str())).collect();
        let number = || match view.values.as_slice() {
            [one] => one.parse().ok(),
            _ => None,
        };
        let operator = match view.operator.as_str() {
            "In" => Operator::In(values()),
            "NotIn" => Operator::NotIn(values()),
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => number().map_or(Operator::Unknown, Operator::Gt),
            "Lt" => number().map_or(Operator::Unknown, Operator::Lt),
            _ => Operator::Unknown,
        };
        Self { key: str(view.key.as_str()), operator }
    }

    pub(super) fn matches(&self, value: Option<&str>) -> bool {
        match (&self.operator, value) {
            (Operator::In(values), Some(value)) => values.iter().any(|v| &**v == value),
            (Operator::NotIn(values), Some(value)) => values.iter().all(|v| &**v != value),
            (Operator::NotIn(_) | Operator::DoesNotExist, None) | (Operator::Exists, Some(_)) => true,
            (Operator::Gt(bound), Some(value)) => value.parse::<i64>().is_ok_and(|n| n > *bound),
            (Operator::Lt(bound), Some(value)) => value.parse::<i64>().is_ok_and(|n| n < *bound),
            _ => false,
        }
    }
}

/// ANDed requirements; one with none at all matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AffinityTerm {
    /// On labels.
    pub expressions: Vec<Requirement>,
    /// On fields.
    pub fields: Vec<Requirement>,
}

impl AffinityTerm {
    fn matches(&self, name: &NodeName, labels: &BTreeMap<Str, Str>) -> bool {
        !(self.expressions.is_empty() && self.fields.is_empty())
            && self.expressions.iter().all(|r| r.matches(labels.get(&*r.key).map(|v| &**v)))
            && self.fields.iter().all(|r| &*r.key == "metadata.name" && r.matches(Some(name.as_str())))
    }

    /// The node this term names and no other, if it does so by `matchFields metadata.name In [node]`.
    pub fn pinned_to(&self) -> Option<NodeName> {
        self.fields.iter().find_map(|r| match (&*r.key, &r.operator) {
            ("metadata.name", Operator::In(values)) if values.len() == 1 => Some(NodeName(values[0].clone())),
            _ => None,
        })
    }
}

/// Node selector and required node affinity of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequiredNodeAffinity {
    /// `spec.nodeSelector`: all of them.
    pub selector: BTreeMap<Str, Str>,
    /// Required node affinity: any of them. `None` asks for nothing; an empty list matches nothing.
    pub terms: Option<Vec<AffinityTerm>>,
}

impl RequiredNodeAffinity {
    /// Reads selector and required node affinity of a pod.
    pub fn read(spec: &view::PodSpec<'_>) -> Self {
        let selector = spec.node_selector.iter().map(|(k, v)| (str(k), str(v.as_str()))).collect();
        let required =
            spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.as_ref());
        let requirements = |list: &Option<Vec<view::NodeRequirement<'_>>>| {
            list.iter().flatten().map(Requirement::read).collect::<Vec<_>>()
        };
        let terms = required.map(|selector| {
            let terms = selector.node_selector_terms.iter();
            terms
                .map(|t| AffinityTerm {
                    expressions: requirements(&t.match_expressions),
                    fields: requirements(&t.match_fields),
                })
                .collect()
        });
        Self { selector, terms }
    }

    /// Whether it allows every node.
    pub fn is_any(&self) -> bool {
        self.selector.is_empty() && self.terms.is_none()
    }

    /// Whether it allows a node with this name and these labels.
    pub fn matches(&self, name: &NodeName, labels: &BTreeMap<Str, Str>) -> bool {
        self.selector.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|t| t.matches(name, labels)))
    }

    /// The one node that every term names, if there is such a node: a pod that is pinned.
    pub fn pinned_to(&self) -> Option<NodeName> {
        let mut nodes =
            self.terms.as_ref()?.iter().filter(|t| !(t.expressions.is_empty() && t.fields.is_empty()));
        let first = nodes.next()?.pinned_to()?;
        nodes.all(|t| t.pinned_to().as_ref() == Some(&first)).then_some(first)
    }
}

/// Effect of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    /// Keeps new pods away.
    NoSchedule,
    /// Is avoided, not forbidden.
    PreferNoSchedule,
    /// Keeps new pods away and evicts running ones.
    NoExecute,
}

/// One taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    /// Key.
    pub key: Str,
    /// Value, often empty.
    pub value: Str,
    /// Effect of the taint.
    pub effect: TaintEffect,
}

impl Taint {
    /// Reads a taint; an unknown effect forbids nothing, so it is `None`.
    pub fn read(view: &view::TaintView<'_>) -> Option<Self> {
        let effect = match view.effect.as_str() {
            "NoSchedule" => TaintEffect::NoSchedule,
            "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            _ => return None,
        };
        Some(Self { key: str(view.key.as_str()), value: str(view.value.as_str()), effect })
    }

    /// Whether it keeps a pod away that does not tolerate it.
    pub fn forbids(&self) -> bool {
        self.effect != TaintEffect::PreferNoSchedule
    }
}

impl fmt::Display for Taint {
    /// As the scheduler prints it: `{key: value}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}: {}}}", self.key, self.value)
    }
}

/// One toleration of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// Empty with no value to compare: every key.
    pub key: Str,
    /// `None` for `Exists`.
    pub value: Option<Str>,
    /// `None` is every effect.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    /// The toleration that admission adds to pods with a share of a card.
    pub fn of_shared_nodes() -> Self {
        let value = Some(str(super::names::SHARING_VRAM));
        Self { key: str(super::names::SHARING), value, effect: Some(TaintEffect::NoSchedule) }
    }

    /// Reads a toleration; one whose effect or operator is unknown tolerates nothing, so it is `None`.
    pub fn read(view: &view::Toleration<'_>) -> Option<Self> {
        let effect = match view.effect.as_str() {
            "" => None,
            "NoSchedule" => Some(TaintEffect::NoSchedule),
            "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
            "NoExecute" => Some(TaintEffect::NoExecute),
            _ => return None,
        };
        let value = match view.operator.as_str() {
            "" | "Equal" => Some(str(view.value.as_str())),
            "Exists" => None,
            _ => return None,
        };
        Some(Self { key: str(view.key.as_str()), value, effect })
    }

    /// Whether it covers `taint`.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|e| e == taint.effect)
            && (self.key == taint.key || (self.key.is_empty() && self.value.is_none()))
            && self.value.as_ref().is_none_or(|v| *v == taint.value)
    }
}
