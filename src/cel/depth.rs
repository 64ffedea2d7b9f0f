//! How deep an evaluation goes and its value can be nested, told before any object is seen: both take the stack of a thread, and
//! a stack that is used up ends the whole process.

use crate::plan::{Attribute, Base, Loop, Node, Plan, QualifierKey};

/// The deepest that an expression may go, and each of the variables that it uses with those that they use. A step takes up to two
/// kilobytes of stack where nothing is optimised: this is one of the two megabytes that a thread has.
pub const DEEPEST: usize = 500;

/// How many steps wait for each other at most while a plan is evaluated. A field of the variable at `computed` takes as many as
/// `field` says.
pub(crate) fn depth(plan: &Plan, computed: Option<usize>, field: &dyn Fn(&str) -> usize) -> usize {
    Walk { plan, computed, field, locals: vec![None; plan.slots] }.node(&plan.root)
}

struct Walk<'p> {
    plan: &'p Plan,
    computed: Option<usize>,
    field: &'p dyn Fn(&str) -> usize,
    /// What is known of locals: their values are nested as deep as what they come from.
    locals: Vec<Option<usize>>,
}

impl<'p> Walk<'p> {
    fn deepest(&mut self, nodes: impl IntoIterator<Item = &'p Node>) -> usize {
        nodes.into_iter().map(|node| self.node(node)).max().unwrap_or(0)
    }

    fn node(&mut self, node: &'p Node) -> usize {
        let below = match node {
            Node::Constant(_) | Node::Goes { .. } => 0,
            Node::Attribute(attribute) => self.attribute(attribute),
            Node::And(sides)
            | Node::Or(sides)
            | Node::Equal { sides, .. }
            | Node::OrOptional(sides)
            | Node::OrValue(sides) => self.deepest(sides.iter()),
            Node::Call(call) => self.deepest(&call.arguments),
            Node::Among { wanted, .. } => self.node(wanted),
            Node::List(items) => self.deepest(items.iter().map(|(item, _)| item)),
            Node::Map(entries) => self.deepest(entries.iter().flat_map(|(key, value, _)| [key, value])),
            Node::Message { fields, .. } => self.deepest(fields.iter().map(|(_, value, _)| value)),
            Node::Fold(fold) => self.fold(fold),
            Node::Append { item, .. } => self.node(item),
            Node::Insert { key, value, .. } => self.deepest([&**key, &**value]),
        };
        below.saturating_add(1)
    }

    fn fold(&mut self, fold: &'p Loop) -> usize {
        let range = self.node(&fold.range);
        for slot in std::iter::once(fold.first).chain(fold.second) {
            self.locals[slot] = Some(range);
        }
        range.max(self.deepest([&fold.condition, &fold.step, &fold.result]))
    }

    fn attribute(&mut self, attribute: &'p Attribute) -> usize {
        let base = match &attribute.base {
            Base::Variable(position) if Some(*position) == self.computed => {
                match attribute.qualifiers.first().map(|first| &first.key) {
                    Some(QualifierKey::Field(name)) => (self.field)(name),
                    _ => 0,
                }
            }
            Base::Variable(_) => 0,
            Base::Local(slot) => self.local(*slot),
            Base::Relative(node) => self.node(node),
            Base::Conditional(parts) => {
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
