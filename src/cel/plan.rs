//! The executable form of a checked expression. Names are resolved to positions and functions to code;
//! constant patterns are compiled; constant lists and conversions are folded. Folded parts cost nothing at
//! run time, as in cel-go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use regex::Regex;

use crate::access::{go_type, matches_parameters};
use crate::check::{CheckedAst, Reference};
use crate::cost::CostRule;
use crate::environment::{FUNCTIONS, Overload};
use crate::library::{CallError, Implementation, implementation, lists, regexp};
use crate::syntax::{ACCUMULATOR, Ast, Comprehension, Issue, Literal, MapEntry, NodeId, NodeKind};
use crate::types::Type;
use crate::value::{Key, Message, Text, Value};

#[derive(Debug)]
pub(crate) enum PlanNode {
    Constant(Value<'static>),
    Attribute(Box<Attribute>),
    And(Box<[PlanNode; 2]>),
    Or(Box<[PlanNode; 2]>),
    Equal {
        negated: bool,
        sides: Box<[PlanNode; 2]>,
    },
    Call(Box<FunctionCall>),
    /// Membership in a list of constants. It costs nothing.
    InConstants {
        wanted: Box<PlanNode>,
        list: Value<'static>,
    },
    OrOptional(Box<[PlanNode; 2]>),
    OrValue(Box<[PlanNode; 2]>),
    List(Vec<(PlanNode, bool)>),
    Map(Vec<(PlanNode, PlanNode, bool)>),
    Message {
        name: Arc<str>,
        fields: Vec<(Arc<str>, PlanNode, bool)>,
    },
    Fold(Box<LoopPlan>),
    /// The loop condition of `all` or `exists`: `@not_strictly_false(accumulator)`, or of its negation.
    LoopCondition {
        slot: usize,
        negated: bool,
    },
    /// `accumulator + [item]`, in place.
    Append {
        slot: usize,
        item: Box<PlanNode>,
    },
    /// Inserts an entry into the accumulator, in place.
    Insert {
        slot: usize,
        key: Box<PlanNode>,
        value: Box<PlanNode>,
    },
}

/// A value and the fields or items that are selected from it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: AttributeBase,
    pub(crate) qualifiers: Vec<Qualifier>,
    /// Whether the last qualifier only tests for presence.
    pub(crate) test: bool,
}

#[derive(Debug)]
pub(crate) enum AttributeBase {
    Variable(usize),
    Local(usize),
    Relative(PlanNode),
    Conditional(Box<(PlanNode, Attribute, Attribute)>),
}

#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) key: QualifierKey,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) enum QualifierKey {
    Field(Box<str>),
    Constant(Value<'static>),
    Dynamic(Attribute),
}

#[derive(Debug)]
pub(crate) struct FunctionCall {
    pub(crate) function: &'static str,
    pub(crate) arguments: Vec<PlanNode>,
    pub(crate) code: Implementation,
    pub(crate) rule: CostRule,
    /// The overload, when the checker found exactly one.
    pub(crate) overload: Option<&'static Overload>,
    /// Whether the evaluator matches arguments against overloads first. Operators and some functions report
    /// wrong types themselves.
    pub(crate) is_type_checked: bool,
    /// Whether the first failing argument ends the call. The call then costs nothing, unless that argument
    /// was the last.
    pub(crate) stops_at_error: bool,
    pub(crate) regex: Option<Regex>,
}

#[derive(Debug)]
pub(crate) struct LoopPlan {
    pub(crate) range: PlanNode,
    pub(crate) accumulator: usize,
    pub(crate) first: usize,
    pub(crate) second: Option<usize>,
    pub(crate) init: Option<Value<'static>>,
    pub(crate) condition: PlanNode,
    pub(crate) step: PlanNode,
    pub(crate) result: PlanNode,
}

/// A planned expression.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) root: PlanNode,
    pub(crate) slots: usize,
    /// Initial values of locals that are computed on first use, by slot.
    pub(crate) lazy: Vec<Option<PlanNode>>,
}

/// Whether cel-go implements all overloads of a function in one piece of code.
fn is_whole(function: &str) -> bool {
    function.starts_with('_') && function.ends_with('_')
        || matches!(
            function,
            "!_" | "-_"
                | "@in"
                | "size"
                | "type"
                | "dyn"
                | "matches"
                | "contains"
                | "startsWith"
                | "endsWith"
                | "sort"
                | "@sortByAssociatedKeys"
        )
}

/// Plans a checked expression.
pub(crate) fn plan(ast: &Ast, checked: &CheckedAst) -> Result<Plan, Vec<Issue>> {
    let lazy = (0..checked.slots).map(|_| None).collect();
    let hidden = (0..ast.len()).filter_map(|id| match (&ast.node(id).kind, &checked.references[id]) {
        (NodeKind::Fold(fold), Some(Reference::Fold { accumulator, .. }))
            if fold.accumulator == ACCUMULATOR =>
        {
            Some(*accumulator)
        }
        _ => None,
    });
    let mut planner = Planner { ast, checked, lazy, hidden: hidden.collect() };
    match planner.node(ast.root()) {
        Ok(root) => Ok(Plan { root, slots: checked.slots, lazy: planner.lazy }),
        Err(issue) => Err(vec![issue]),
    }
}

struct Planner<'a> {
    ast: &'a Ast,
    checked: &'a CheckedAst,
    lazy: Vec<Option<PlanNode>>,
    /// Accumulators that no source can name. They can change in place.
    hidden: BTreeSet<usize>,
}

type PlanResult<T = PlanNode> = Result<T, Issue>;

fn text(text: &str) -> Value<'static> {
    Value::String(Text::Owned(text.into()))
}

fn attribute(base: AttributeBase) -> Attribute {
    Attribute { base, qualifiers: Vec::new(), test: false }
}

/// The node as an attribute, to which qualifiers can be added.
fn into_attribute(node: PlanNode) -> Attribute {
    match node {
        PlanNode::Attribute(attribute) => *attribute,
        other => attribute(AttributeBase::Relative(other)),
    }
}

impl Planner<'_> {
    fn node(&mut self, id: NodeId) -> PlanResult {
        let node = self.ast.node(id);
        match &node.kind {
            NodeKind::Literal(literal) => Ok(PlanNode::Constant(match literal {
                Literal::Null => Value::Null,
                Literal::Bool(value) => Value::Bool(*value),
                Literal::Int(value) => Value::Int(*value),
                Literal::Uint(value) => Value::Uint(*value),
                Literal::Double(value) => Value::Double(*value),
                Literal::String(value) => text(value),
                Literal::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
            })),
            NodeKind::Ident(_) => self.name(id),
            NodeKind::Select { operand, field, test } => {
                if self.checked.references[id].is_some() {
                    return self.name(id);
                }
                let mut attribute = into_attribute(self.node(*operand)?);
                let key = QualifierKey::Field(field.as_str().into());
                attribute.qualifiers.push(Qualifier { key, optional: false });
                attribute.test = *test;
                Ok(PlanNode::Attribute(Box::new(attribute)))
            }
            NodeKind::Call { target, arguments, .. } => self.call(id, *target, arguments),
            NodeKind::List(items) => {
                let mut planned = Vec::with_capacity(items.len());
                for (item, optional) in items {
                    planned.push((self.node(*item)?, *optional));
                }
                Ok(fold_list(planned))
            }
            NodeKind::Map(entries) => self.map(entries),
            NodeKind::Message { name, fields } => {
                let mut planned = Vec::new();
                for field in fields {
                    let NodeKind::Literal(Literal::String(key)) = &self.ast.node(field.key).kind else {
                        continue;
                    };
                    planned.push((key.as_str().into(), self.node(field.value)?, field.optional));
                }
                let name = name.strip_prefix('.').unwrap_or(name);
                Ok(PlanNode::Message { name: name.into(), fields: planned })
            }
            NodeKind::Fold(fold) => self.fold(id, fold),
        }
    }

    fn name(&mut self, id: NodeId) -> PlanResult {
        let base = match &self.checked.references[id] {
            Some(Reference::Variable(position)) => AttributeBase::Variable(*position),
            Some(Reference::Local(slot)) => AttributeBase::Local(*slot),
            // The checker knows these two type names; the planner of the API server does not.
            Some(Reference::Type(_)) if matches!(&self.ast.node(id).kind, NodeKind::Ident(name) if matches!(name.as_str(), "duration" | "timestamp")) =>
            {
                let name = self.ast.qualified_name(id).unwrap_or_default();
                return Err(Issue::new(
                    self.ast.node(id).offset,
                    format!("reference to undefined type: {name}"),
                ));
            }
            Some(Reference::Type(found)) => return Ok(PlanNode::Constant(Value::Type(found.clone()))),
            _ => return Err(Issue::new(self.ast.node(id).offset, "unresolved name")),
        };
        Ok(PlanNode::Attribute(Box::new(attribute(base))))
    }

    fn map(&mut self, entries: &[MapEntry]) -> PlanResult {
        let mut planned = Vec::with_capacity(entries.len());
        for entry in entries {
            planned.push((self.node(entry.key)?, self.node(entry.value)?, entry.optional));
        }
        let constant = planned.iter().all(|(key, value, optional)| {
            matches!((key, value), (PlanNode::Constant(key), PlanNode::Constant(_)) if Key::new(key).is_some())
                && !optional
        });
        if !constant {
            return Ok(PlanNode::Map(planned));
        }
        let entries = planned.into_iter().filter_map(|(key, value, _)| match (key, value) {
            (PlanNode::Constant(key), PlanNode::Constant(value)) => Some((Key::new(&key)?, value)),
            _ => None,
        });
        Ok(PlanNode::Constant(Value::map(entries.collect())))
    }

    fn pair(&mut self, arguments: &[NodeId]) -> PlanResult<Box<[PlanNode; 2]>> {
        Ok(Box::new([self.node(arguments[0])?, self.node(arguments[1])?]))
    }

    fn call(&mut self, id: NodeId, target: Option<NodeId>, written: &[NodeId]) -> PlanResult {
        let Some(Reference::Call { function, qualified, overloads }) = &self.checked.references[id] else {
            return Err(Issue::new(self.ast.node(id).offset, "unresolved call"));
        };
        let function = *function;
        let arguments: Vec<NodeId> = target.iter().filter(|_| !qualified).chain(written).copied().collect();
        match function {
            "_&&_" => return Ok(PlanNode::And(self.pair(&arguments)?)),
            "_||_" => return Ok(PlanNode::Or(self.pair(&arguments)?)),
            "_==_" => return Ok(PlanNode::Equal { negated: false, sides: self.pair(&arguments)? }),
            "_!=_" => return Ok(PlanNode::Equal { negated: true, sides: self.pair(&arguments)? }),
            "or" => return Ok(PlanNode::OrOptional(self.pair(&arguments)?)),
            "orValue" => return Ok(PlanNode::OrValue(self.pair(&arguments)?)),
            "_?:_" | "_?_:_" => {
                let condition = self.node(arguments[0])?;
                let yes = into_attribute(self.node(arguments[1])?);
                let no = into_attribute(self.node(arguments[2])?);
                let base = AttributeBase::Conditional(Box::new((condition, yes, no)));
                return Ok(PlanNode::Attribute(Box::new(attribute(base))));
            }
            "_[_]" | "_[?_]" | "_?._" => return self.index(&arguments, function != "_[_]"),
            _ => {}
        }
        let overload = match overloads.as_slice() {
            [only] => FUNCTIONS.get(function).and_then(|all| all.iter().find(|o| o.id == *only)),
            _ => None,
        };
        let mut planned = Vec::with_capacity(arguments.len());
        for argument in &arguments {
            planned.push(self.node(*argument)?);
        }
        if let Some(folded) = self.accumulate(function, &mut planned) {
            return Ok(folded);
        }
        let offset = self.ast.node(id).offset;
        self.plain_call(function, overload, planned, offset)
    }

    fn plain_call(
        &self,
        function: &'static str,
        overload: Option<&'static Overload>,
        mut arguments: Vec<PlanNode>,
        offset: usize,
    ) -> PlanResult {
        let Some(code) = implementation(function) else {
            return Err(Issue::new(offset, format!("function {function} is not available here")));
        };
        if function == "@in"
            && overload.is_some_and(|overload| overload.id == "in_list")
            && let [_, PlanNode::Constant(Value::List(list))] = arguments.as_slice()
            && list.iter().all(|item| {
                matches!(
                    item,
                    Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)
                )
            })
        {
            if list.is_empty() {
                return Ok(PlanNode::Constant(Value::Bool(false)));
            }
            if let (Some(PlanNode::Constant(list)), Some(wanted)) = (arguments.pop(), arguments.pop()) {
                return Ok(PlanNode::InConstants { wanted: Box::new(wanted), list });
            }
            return Err(Issue::new(offset, "unresolved call"));
        }
        let conversion = matches!(
            function,
            "bool"
                | "bytes"
                | "double"
                | "duration"
                | "dyn"
                | "int"
                | "string"
                | "timestamp"
                | "type"
                | "uint"
        );
        if conversion && let [PlanNode::Constant(value)] = arguments.as_slice() {
            let all = FUNCTIONS.get(function).map(Vec::as_slice).unwrap_or_default();
            let takes = |overload: &Overload| matches_parameters(&overload.arguments, &[Some(value)]);
            let fitting = overload.map_or_else(|| all.iter().any(takes), takes);
            let result = if fitting { code(std::slice::from_ref(value)) } else { Err(CallError::NoOverload) };
            return match result {
                Ok(value) => Ok(PlanNode::Constant(value)),
                Err(CallError::Text(why)) => Err(Issue::new(offset, why)),
                Err(CallError::NoOverload) => {
                    Err(Issue::new(offset, format!("no such overload: {function}({})", value.kind().name())))
                }
            };
        }
        let mut regex = None;
        if matches!(function, "matches" | "find" | "findAll")
            && let Some(PlanNode::Constant(Value::String(pattern))) = arguments.get(1)
        {
            regex = Some(regexp::compile(pattern.as_str()).map_err(|why| Issue::new(offset, why))?);
        }
        let is_type_checked = !is_whole(function);
        let stops_at_error = arguments.len() > 2
            || regex.is_some()
            || function == "format"
            || (is_type_checked && overload.is_none());
        let rule = CostRule::of(function, overload.map(|overload| overload.id));
        Ok(PlanNode::Call(Box::new(FunctionCall {
            function,
            arguments,
            code,
            rule,
            overload,
            is_type_checked,
            stops_at_error,
            regex,
        })))
    }

    fn index(&mut self, arguments: &[NodeId], optional: bool) -> PlanResult {
        let mut attribute = into_attribute(self.node(arguments[0])?);
        let key = match self.node(arguments[1])? {
            PlanNode::Constant(Value::String(text)) => QualifierKey::Field(text.as_str().into()),
            PlanNode::Constant(value) if Key::new(&value).is_some() => QualifierKey::Constant(value),
            PlanNode::Constant(value) => {
                let message = format!("invalid qualifier type: {}", go_type(&value));
                return Err(Issue::new(self.ast.node(arguments[1]).offset, message));
            }
            other => QualifierKey::Dynamic(into_attribute(other)),
        };
        attribute.qualifiers.push(Qualifier { key, optional });
        Ok(PlanNode::Attribute(Box::new(attribute)))
    }

    /// Recognises the steps of `map`, `filter` and `transformMap`, which change their accumulator in place.
    fn accumulate(&self, function: &str, arguments: &mut Vec<PlanNode>) -> Option<PlanNode> {
        if let ("@not_strictly_false", [PlanNode::Call(call)]) = (function, arguments.as_slice())
            && let ("!_", [PlanNode::Attribute(inner)]) = (call.function, call.arguments.as_slice())
            && let (AttributeBase::Local(slot), true) = (&inner.base, inner.qualifiers.is_empty())
        {
            return self
                .hidden
                .contains(slot)
                .then_some(PlanNode::LoopCondition { slot: *slot, negated: true });
        }
        let Some(PlanNode::Attribute(first)) = arguments.first() else { return None };
        let AttributeBase::Local(slot) = first.base else { return None };
        if !first.qualifiers.is_empty() {
            return None;
        }
        let empties = self.hidden.contains(&slot);
        match (function, arguments.as_slice()) {
            ("@not_strictly_false", [_]) if empties => Some(PlanNode::LoopCondition { slot, negated: false }),
            ("_+_", [_, PlanNode::List(items)]) if empties && items.len() == 1 && !items[0].1 => {
                let Some(PlanNode::List(mut items)) = arguments.pop() else { return None };
                let (item, _) = items.pop()?;
                Some(PlanNode::Append { slot, item: Box::new(item) })
            }
            ("_+_", [_, PlanNode::Constant(Value::List(list))]) if empties && list.len() == 1 => {
                let item = list.item(0)?;
                Some(PlanNode::Append { slot, item: Box::new(PlanNode::Constant(item)) })
            }
            ("cel.@mapInsert", [_, _, _]) if empties => {
                let (value, key) = (arguments.pop()?, arguments.pop()?);
                Some(PlanNode::Insert { slot, key: Box::new(key), value: Box::new(value) })
            }
            _ => None,
        }
    }

    fn fold(&mut self, id: NodeId, fold: &Comprehension) -> PlanResult {
        let Some(Reference::Fold { accumulator, first, second }) = self.checked.references[id] else {
            return Err(Issue::new(self.ast.node(id).offset, "unresolved comprehension"));
        };
        let range = self.node(fold.range)?;
        let init = match self.node(fold.init)? {
            PlanNode::Constant(value) => Some(value),
            lazy => {
                self.lazy[accumulator] = Some(lazy);
                None
            }
        };
        Ok(PlanNode::Fold(Box::new(LoopPlan {
            range,
            accumulator,
            first,
            second: fold.second.as_ref().map(|_| second),
            init,
            condition: self.node(fold.condition)?,
            step: self.node(fold.step)?,
            result: self.node(fold.result)?,
        })))
    }
}

fn fold_list(items: Vec<(PlanNode, bool)>) -> PlanNode {
    if !items.iter().all(|(item, optional)| matches!(item, PlanNode::Constant(_)) && !optional) {
        return PlanNode::List(items);
    }
    let values = items.into_iter().filter_map(|(item, _)| match item {
        PlanNode::Constant(value) => Some(value),
        _ => None,
    });
    PlanNode::Constant(Value::list(values.collect()))
}

/// Builds a message from its fields.
pub(crate) fn message<'a>(
    name: &Arc<str>,
    fields: Vec<(Arc<str>, Value<'a>)>,
) -> Result<Value<'a>, CallError> {
    let fields: BTreeMap<Arc<str>, Value<'a>> = fields.into_iter().collect();
    if &**name == "JSONPatch" {
        for (field, value) in &fields {
            if !matches!((&**field, value), ("value", _) | (_, Value::String(_))) {
                let kind = value.kind();
                return Err(CallError::text(format!(
                    "unexpected type {} for JSONPatchType '{field}' field",
                    kind.name()
                )));
            }
        }
    }
    Ok(Value::Message(Arc::new(Message { name: name.clone(), fields })))
}

/// The sum of an empty list, by the result type of the overload.
pub(crate) fn empty_sum<'a>(overload: Option<&Overload>) -> Value<'a> {
    lists::zero(overload.map_or(&Type::Int, |overload| &overload.result))
}
