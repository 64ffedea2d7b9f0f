//! The nesting depth of an evaluation, computed from the plan alone. Evaluation and nested results use the
//! stack of a thread, and a stack overflow ends the process. So the depth has a limit.

use crate::plan::{Attribute, AttributeBase, LoopPlan, Plan, PlanNode, QualifierKey};

/// Maximum nesting depth of an expression together with the variables that it uses. A step uses up to 2 KiB
/// of stack, so this is 1 MiB of the 2 MiB that a thread has. Frames of an unoptimised build are larger: the
/// dev profile therefore optimises this crate.
pub const MAX_NESTING_DEPTH: usize = 500;

/// The maximum number of nested steps in the evaluation of a plan. A field of the variable at position
/// `computed` takes as many steps as `field` returns.
pub(crate) fn depth(plan: &Plan, computed: Option<usize>, field: &dyn Fn(&str) -> usize) -> usize {
    DepthWalker { plan, computed, field, locals: vec![None; plan.slots] }.node(&plan.root)
}

struct DepthWalker<'p> {
    plan: &'p Plan,
    computed: Option<usize>,
    field: &'p dyn Fn(&str) -> usize,
    /// The depth of each local, where known. The value of a local nests as deep as the expression that it
    /// comes from.
    locals: Vec<Option<usize>>,
}

impl<'p> DepthWalker<'p> {
    fn deepest(&mut self, nodes: impl IntoIterator<Item = &'p PlanNode>) -> usize {
        nodes.into_iter().map(|node| self.node(node)).max().unwrap_or(0)
    }

    fn node(&mut self, node: &'p PlanNode) -> usize {
        let below = match node {
            PlanNode::Constant(_) | PlanNode::LoopCondition { .. } => 0,
            PlanNode::Attribute(attribute) => self.attribute(attribute),
            PlanNode::And(sides)
            | PlanNode::Or(sides)
            | PlanNode::Equal { sides, .. }
            | PlanNode::OrOptional(sides)
            | PlanNode::OrValue(sides) => self.deepest(sides.iter()),
            PlanNode::Call(call) => self.deepest(&call.arguments),
            PlanNode::InConstants { wanted, .. } => self.node(wanted),
            PlanNode::List(items) => self.deepest(items.iter().map(|(item, _)| item)),
            PlanNode::Map(entries) => self.deepest(entries.iter().flat_map(|(key, value, _)| [key, value])),
            PlanNode::Message { fields, .. } => self.deepest(fields.iter().map(|(_, value, _)| value)),
            PlanNode::Fold(fold) => self.fold(fold),
            PlanNode::Append { item, .. } => self.node(item),
            PlanNode::Insert { key, value, .. } => self.deepest([&**key, &**value]),
        };
        below.saturating_add(1)
    }

    fn fold(&mut self, fold: &'p LoopPlan) -> usize {
        let range = self.node(&fold.range);
        for slot in std::iter::once(fold.first).chain(fold.second) {
            self.locals[slot] = Some(range);
        }
        range.max(self.deepest([&fold.condition, &fold.step, &fold.result]))
    }

    fn attribute(&mut self, attribute: &'p Attribute) -> usize {
        let base = match &attribute.base {
            AttributeBase::Variable(position) if Some(*position) == self.computed => {
                match attribute.qualifiers.first().map(|first| &first.key) {
                    Some(QualifierKey::Field(name)) => (self.field)(name),
                    _ => 0,
                }
            }
            AttributeBase::Variable(_) => 0,
            AttributeBase::Local(slot) => self.local(*slot),
            AttributeBase::Relative(node) => self.node(node),
            AttributeBase::Conditional(parts) => {
                let (condition, yes, no) = parts.as_ref();
                let either = self.attribute(yes).max(self.attribute(no)).saturating_add(1);
                self.node(condition).max(either)
            }
        };
        let keys = attribute.qualifiers.iter().map(|qualifier| match &qualifier.key {
            QualifierKey::Dynamic(key) => self.attribute(key).saturating_add(1),
            _ => 0,
        });
        keys.fold(base, usize::max)
    }

    fn local(&mut self, slot: usize) -> usize {
        if let Some(known) = self.locals[slot] {
            return known;
        }
        let plan = self.plan;
        let found = plan.lazy[slot].as_ref().map_or(0, |lazy| self.node(lazy));
        self.locals[slot] = Some(found);
        found
    }
}
