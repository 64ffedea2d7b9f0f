//! An upper bound of the cost of an expression, computed before any object is known. It assumes given sizes
//! for everything in objects and takes the more expensive branch. The API server estimates costs for custom
//! resources only; for admission policies it only counts them.

use crate::cost::CostRule;
use crate::plan::{Attribute, AttributeBase, FunctionCall, LoopPlan, Plan, PlanNode, QualifierKey};
use crate::value::Value;

/// Assumed sizes of the parts of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssumedSizes {
    /// Items of a list or entries of a map.
    pub entries: u64,
    /// Characters of a string.
    pub text: u64,
}

impl Default for AssumedSizes {
    /// Sizes that most pods do not reach: 32 entries, 256 characters.
    fn default() -> Self {
        Self { entries: 32, text: 256 }
    }
}

/// The estimated cost and size of a value.
#[derive(Clone, Copy)]
struct Estimate {
    cost: u64,
    /// Items or entries, for a loop over it.
    entries: u64,
    /// Size as an argument of a function.
    size: u64,
    /// Size of its items.
    item: u64,
}

pub(crate) fn estimate(plan: &Plan, sizes: AssumedSizes) -> u64 {
    Estimator { plan, sizes }.node(&plan.root).cost
}

struct Estimator<'p> {
    plan: &'p Plan,
    sizes: AssumedSizes,
}

impl Estimator<'_> {
    /// The estimate of a value of unknown size.
    fn unknown(&self, cost: u64) -> Estimate {
        Estimate {
            cost,
            entries: self.sizes.entries,
            size: self.sizes.text.max(self.sizes.entries),
            item: self.sizes.text,
        }
    }

    fn all<'n>(&self, nodes: impl IntoIterator<Item = &'n PlanNode>) -> u64 {
        nodes.into_iter().fold(0, |cost: u64, node| cost.saturating_add(self.node(node).cost))
    }

    fn node(&self, node: &PlanNode) -> Estimate {
        match node {
            PlanNode::Constant(value) => {
                let entries = match value {
                    Value::List(_) | Value::Map(_) => value.size(),
                    _ => 0,
                };
                Estimate { entries, size: value.size(), ..self.unknown(0) }
            }
            PlanNode::Attribute(attribute) => self.attribute(attribute, true),
            PlanNode::And(terms) | PlanNode::Or(terms) => {
                Estimate { size: 1, ..self.unknown(self.all(terms.iter())) }
            }
            PlanNode::Equal { sides, .. } => {
                let (first, second) = (self.node(&sides[0]), self.node(&sides[1]));
                let cost = first.size.min(second.size).div_ceil(10);
                Estimate {
                    size: 1,
                    ..self.unknown(cost.saturating_add(first.cost).saturating_add(second.cost))
                }
            }
            PlanNode::Call(call) => self.call(call),
            PlanNode::InConstants { wanted, .. } => Estimate { size: 1, ..self.node(wanted) },
            PlanNode::OrOptional(sides) | PlanNode::OrValue(sides) => {
                let (first, second) = (self.node(&sides[0]), self.node(&sides[1]));
                Estimate {
                    cost: first.cost.saturating_add(second.cost),
                    entries: first.entries.max(second.entries),
                    size: first.size.max(second.size),
                    item: first.item.max(second.item),
                }
            }
            PlanNode::List(items) => {
                let size = items.len() as u64;
                Estimate {
                    entries: size,
                    size,
                    ..self.unknown(self.all(items.iter().map(|(item, _)| item)).saturating_add(10))
                }
            }
            PlanNode::Map(entries) => {
                let size = entries.len() as u64;
                let cost = self.all(entries.iter().flat_map(|(key, value, _)| [key, value]));
                Estimate { entries: size, size, ..self.unknown(cost.saturating_add(30)) }
            }
            PlanNode::Message { fields, .. } => {
                self.unknown(self.all(fields.iter().map(|(_, value, _)| value)).saturating_add(40))
            }
            PlanNode::Fold(fold) => self.fold(fold),
            PlanNode::LoopCondition { .. } => self.unknown(3),
            PlanNode::Append { item, .. } => {
                let item = self.node(item);
                Estimate { item: item.size, ..self.unknown(item.cost.saturating_add(12)) }
            }
            PlanNode::Insert { key, value, .. } => {
                self.unknown(self.node(key).cost.saturating_add(self.node(value).cost).saturating_add(2))
            }
        }
    }

    fn call(&self, call: &FunctionCall) -> Estimate {
        let arguments: Vec<Estimate> = call.arguments.iter().map(|argument| self.node(argument)).collect();
        let size = |index: usize| arguments.get(index).map_or(1, |guess| guess.size);
        let tenths = |size: u64, factor: u64| size.saturating_mul(factor).div_ceil(10);
        let (first, second) = (size(0), size(1));
        let own = match call.rule {
            CostRule::One => 1,
            CostRule::Traverse(factor) => tenths(first, factor),
            CostRule::Join => {
                let (entries, item) =
                    arguments.first().map_or((0, 0), |list| (list.entries, list.item.saturating_add(second)));
                tenths(entries.saturating_mul(item), 2)
            }
            CostRule::Regex => tenths(first.saturating_add(1), 1).saturating_mul(second.div_ceil(4)),
            CostRule::Contains => tenths(first, 1).saturating_mul(tenths(second, 1)),
            CostRule::Smaller => tenths(first.min(second), 1),
            CostRule::Both => tenths(first.saturating_add(second), 1),
            CostRule::Second => second,
            CostRule::Leaves => first.saturating_mul(tenths(self.sizes.text, 1)),
            CostRule::ContainsIp { .. } | CostRule::ContainsCidr { .. } => {
                16_u64.saturating_add(tenths(second, 1))
            }
            CostRule::Validate => tenths(second.saturating_add(1), 1).saturating_mul(276),
            CostRule::Sets(factor) => first.saturating_mul(second).saturating_mul(factor).saturating_add(1),
            CostRule::Output | CostRule::Flatten => first.saturating_add(11),
            CostRule::SelfCompare(_) => first.saturating_mul(first).saturating_mul(3).saturating_add(11),
        };
        let cost = arguments.iter().fold(own, |cost, argument| cost.saturating_add(argument.cost));
        let made = match (call.function, call.arguments.first()) {
            ("lists.range", Some(PlanNode::Constant(Value::Int(end)))) => {
                let size = u64::try_from(*end).unwrap_or(0);
                return Estimate { entries: size, size, ..self.unknown(cost.max(size)) };
            }
            ("_+_", _) => first.saturating_add(second),
            ("replace", _) => first.saturating_mul(size(2).max(1)),
            (
                "sort"
                | "reverse"
                | "distinct"
                | "dyn"
                | "string"
                | "trim"
                | "substring"
                | "slice"
                | "@sortByAssociatedKeys"
                | "lowerAscii"
                | "upperAscii",
                _,
            ) => first,
            _ => return self.unknown(cost),
        };
        let first = arguments.first().copied().unwrap_or_else(|| self.unknown(0));
        Estimate { cost, entries: first.entries.max(made), size: made, item: first.item }
    }

    fn fold(&self, fold: &LoopPlan) -> Estimate {
        let range = self.node(&fold.range);
        let init = self.plan.lazy[fold.accumulator].as_ref().map_or(0, |init| self.node(init).cost);
        let step = self.node(&fold.step);
        let round = self.node(&fold.condition).cost.saturating_add(step.cost);
        let rounds = range.entries.saturating_mul(round);
        let cost = [range.cost, init, rounds, self.node(&fold.result).cost]
            .into_iter()
            .fold(0, |cost: u64, part| cost.saturating_add(part));
        let entries = range.entries.max(self.sizes.entries);
        Estimate { cost, entries, size: entries, item: step.item.max(self.sizes.text) }
    }

    fn attribute(&self, attribute: &Attribute, asked: bool) -> Estimate {
        let base = match &attribute.base {
            AttributeBase::Variable(_) | AttributeBase::Local(_) => self.unknown(0),
            AttributeBase::Relative(node) => self.node(node),
            AttributeBase::Conditional(parts) => {
                let (condition, yes, no) = parts.as_ref();
                let (yes, no) = (self.attribute(yes, false), self.attribute(no, false));
                Estimate {
                    cost: self.node(condition).cost.saturating_add(yes.cost.max(no.cost)),
                    entries: yes.entries.max(no.entries),
                    size: yes.size.max(no.size),
                    item: yes.item.max(no.item),
                }
            }
        };
        let free = !asked || attribute.test || matches!(attribute.base, AttributeBase::Conditional(_));
        let keys = attribute.qualifiers.iter().fold(0, |cost: u64, qualifier| {
            let key = match &qualifier.key {
                QualifierKey::Dynamic(key) => self.attribute(key, false).cost,
                _ => 0,
            };
            cost.saturating_add(key).saturating_add(1)
        });
        let cost = base.cost.saturating_add(keys).saturating_add(u64::from(!free));
        if attribute.qualifiers.is_empty() { Estimate { cost, ..base } } else { self.unknown(cost) }
    }
}
