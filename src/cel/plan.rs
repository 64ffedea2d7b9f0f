//! The executable form of a checked expression. Names are resolved to positions and functions to code;
//! constant patterns are compiled; constant lists and conversions are folded. Folded parts cost nothing at
//! run time, as in cel-go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use regex::Regex;

use crate::access::{fits, go_type};
use crate::check::{Checked, Reference};
use crate::cost::Rule;
use crate::environment::{FUNCTIONS, Overload};
use crate::library::{Fault, Implementation, implementation, lists, regular};
use crate::syntax::{ACCUMULATOR, Ast, Entry, Fold, Id, Issue, Kind, Literal};
use crate::types::Type;
use crate::value::{Key, Message, Text, Value};

#[derive(Debug)]
pub(crate) enum Node {
    Constant(Value<'static>),
    Attribute(Box<Attribute>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Equal {
        negated: bool,
        sides: Box<[Node; 2]>,
    },
    Call(Box<Call>),
    /// Membership in a list of constants. It costs nothing.
    Among {
        wanted: Box<Node>,
        list: Value<'static>,
    },
    OrOptional(Box<[Node; 2]>),
    OrValue(Box<[Node; 2]>),
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Message {
        name: Arc<str>,
        fields: Vec<(Arc<str>, Node, bool)>,
    },
    Fold(Box<Loop>),
    /// The loop condition of `all` or `exists`: `@not_strictly_false(accumulator)`, or of its negation.
    Goes {
        slot: usize,
        negated: bool,
    },
    /// `accumulator + [item]`, in place.
    Append {
        slot: usize,
        item: Box<Node>,
    },
    /// Inserts an entry into the accumulator, in place.
    Insert {
        slot: usize,
        key: Box<Node>,
        value: Box<Node>,
    },
}

/// A value and the fields or items that are selected from it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) qualifiers: Vec<Qualifier>,
    /// Whether the last qualifier only tests for presence.
    pub(crate) test: bool,
}

#[derive(Debug)]
pub(crate) enum Base {
    Variable(usize),
    Local(usize),
    Relative(Node),
    Conditional(Box<(Node, Attribute, Attribute)>),
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
pub(crate) struct Call {
    pub(crate) function: &'static str,
    pub(crate) arguments: Vec<Node>,
    pub(crate) code: Implementation,
    pub(crate) rule: Rule,
    /// The overload, when the checker found exactly one.
    pub(crate) overload: Option<&'static Overload>,
    /// Whether the evaluator matches arguments against overloads first. Operators and some functions report
    /// wrong types themselves.
    pub(crate) guarded: bool,
    /// Whether the first failing argument ends the call. The call then costs nothing, unless that argument
    /// was the last.
    pub(crate) stops: bool,
    pub(crate) regex: Option<Regex>,
}

#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) range: Node,
    pub(crate) accumulator: usize,
    pub(crate) first: usize,
    pub(crate) second: Option<usize>,
    pub(crate) init: Option<Value<'static>>,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
}

/// A planned expression.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) root: Node,
    pub(crate) slots: usize,
    /// Initial values of locals that are computed on first use, by slot.
    pub(crate) lazy: Vec<Option<Node>>,
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
pub(crate) fn plan(ast: &Ast, checked: &Checked) -> Result<Plan, Vec<Issue>> {
    let lazy = (0..checked.slots).map(|_| None).collect();
    let hidden = (0..ast.len()).filter_map(|id| match (&ast.node(id).kind, &checked.references[id]) {
        (Kind::Fold(fold), Some(Reference::Fold { accumulator, .. })) if fold.accumulator == ACCUMULATOR => {
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
    checked: &'a Checked,
    lazy: Vec<Option<Node>>,
    /// Accumulators that no source can name. They can change in place.
    hidden: BTreeSet<usize>,
}

type Planned<T = Node> = Result<T, Issue>;

fn text(text: &str) -> Value<'static> {
    Value::String(Text::Owned(text.into()))
}

fn attribute(base: Base) -> Attribute {
    Attribute { base, qualifiers: Vec::new(), test: false }
}

/// The node as an attribute, to which qualifiers can be added.
fn into_attribute(node: Node) -> Attribute {
    match node {
        Node::Attribute(attribute) => *attribute,
        other => attribute(Base::Relative(other)),
    }
}

impl Planner<'_> {
    fn node(&mut self, id: Id) -> Planned {
        let node = self.ast.node(id);
        match &node.kind {
            Kind::Literal(literal) => Ok(Node::Constant(match literal {
                Literal::Null => Value::Null,
                Literal::Bool(value) => Value::Bool(*value),
                Literal::Int(value) => Value::Int(*value),
                Literal::Uint(value) => Value::Uint(*value),
                Literal::Double(value) => Value::Double(*value),
                Literal::String(value) => text(value),
                Literal::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
            })),
            Kind::Ident(_) => self.name(id),
            Kind::Select { operand, field, test } => {
                if self.checked.references[id].is_some() {
                    return self.name(id);
                }
                let mut attribute = into_attribute(self.node(*operand)?);
                let key = QualifierKey::Field(field.as_str().into());
                attribute.qualifiers.push(Qualifier { key, optional: false });
                attribute.test = *test;
                Ok(Node::Attribute(Box::new(attribute)))
            }
            Kind::Call { target, arguments, .. } => self.call(id, *target, arguments),
            Kind::List(items) => {
                let mut planned = Vec::with_capacity(items.len());
                for (item, optional) in items {
                    planned.push((self.node(*item)?, *optional));
                }
                Ok(fold_list(planned))
            }
            Kind::Map(entries) => self.map(entries),
            Kind::Message { name, fields } => {
                let mut planned = Vec::new();
                for field in fields {
                    let Kind::Literal(Literal::String(key)) = &self.ast.node(field.key).kind else {
                        continue;
                    };
                    planned.push((key.as_str().into(), self.node(field.value)?, field.optional));
                }
                let name = name.strip_prefix('.').unwrap_or(name);
                Ok(Node::Message { name: name.into(), fields: planned })
            }
            Kind::Fold(fold) => self.fold(id, fold),
        }
    }

    fn name(&mut self, id: Id) -> Planned {
        let base = match &self.checked.references[id] {
            Some(Reference::Variable(position)) => Base::Variable(*position),
            Some(Reference::Local(slot)) => Base::Local(*slot),
            // The checker knows these two type names; the planner of the API server does not.
            Some(Reference::Type(_)) if matches!(&self.ast.node(id).kind, Kind::Ident(name) if matches!(name.as_str(), "duration" | "timestamp")) =>
            {
                let name = self.ast.qualified_name(id).unwrap_or_default();
                return Err(Issue::new(
                    self.ast.node(id).offset,
                    format!("reference to undefined type: {name}"),
                ));
            }
            Some(Reference::Type(found)) => return Ok(Node::Constant(Value::Type(found.clone()))),
            _ => return Err(Issue::new(self.ast.node(id).offset, "unresolved name")),
        };
        Ok(Node::Attribute(Box::new(attribute(base))))
    }

    fn map(&mut self, entries: &[Entry]) -> Planned {
        let mut planned = Vec::with_capacity(entries.len());
        for entry in entries {
            planned.push((self.node(entry.key)?, self.node(entry.value)?, entry.optional));
        }
        let constant = planned.iter().all(|(key, value, optional)| {
            matches!((key, value), (Node::Constant(key), Node::Constant(_)) if Key::new(key).is_some())
                && !optional
        });
        if !constant {
            return Ok(Node::Map(planned));
        }
        let entries = planned.into_iter().filter_map(|(key, value, _)| match (key, value) {
            (Node::Constant(key), Node::Constant(value)) => Some((Key::new(&key)?, value)),
            _ => None,
        });
        Ok(Node::Constant(Value::map(entries.collect())))
    }

    fn pair(&mut self, arguments: &[Id]) -> Planned<Box<[Node; 2]>> {
        Ok(Box::new([self.node(arguments[0])?, self.node(arguments[1])?]))
    }

    fn call(&mut self, id: Id, target: Option<Id>, written: &[Id]) -> Planned {
        let Some(Reference::Call { function, qualified, overloads }) = &self.checked.references[id] else {
            return Err(Issue::new(self.ast.node(id).offset, "unresolved call"));
        };
        let function = *function;
        let arguments: Vec<Id> = target.iter().filter(|_| !qualified).chain(written).copied().collect();
        match function {
            "_&&_" => return Ok(Node::And(self.pair(&arguments)?)),
            "_||_" => return Ok(Node::Or(self.pair(&arguments)?)),
            "_==_" => return Ok(Node::Equal { negated: false, sides: self.pair(&arguments)? }),
            "_!=_" => return Ok(Node::Equal { negated: true, sides: self.pair(&arguments)? }),
            "or" => return Ok(Node::OrOptional(self.pair(&arguments)?)),
            "orValue" => return Ok(Node::OrValue(self.pair(&arguments)?)),
            "_?:_" | "_?_:_" => {
                let condition = self.node(arguments[0])?;
                let yes = into_attribute(self.node(arguments[1])?);
                let no = into_attribute(self.node(arguments[2])?);
                let base = Base::Conditional(Box::new((condition, yes, no)));
                return Ok(Node::Attribute(Box::new(attribute(base))));
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
        mut arguments: Vec<Node>,
        offset: usize,
    ) -> Planned {
        let Some(code) = implementation(function) else {
            return Err(Issue::new(offset, format!("function {function} is not available here")));
        };
        if function == "@in"
            && overload.is_some_and(|overload| overload.id == "in_list")
            && let [_, Node::Constant(Value::List(list))] = arguments.as_slice()
            && list.iter().all(|item| {
                matches!(
                    item,
                    Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)
                )
            })
        {
            if list.is_empty() {
                return Ok(Node::Constant(Value::Bool(false)));
            }
            if let (Some(Node::Constant(list)), Some(wanted)) = (arguments.pop(), arguments.pop()) {
                return Ok(Node::Among { wanted: Box::new(wanted), list });
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
        if conversion && let [Node::Constant(value)] = arguments.as_slice() {
            let all = FUNCTIONS.get(function).map(Vec::as_slice).unwrap_or_default();
            let takes = |overload: &Overload| fits(&overload.arguments, &[Some(value)]);
            let fitting = overload.map_or_else(|| all.iter().any(takes), takes);
            let result = if fitting { code(std::slice::from_ref(value)) } else { Err(Fault::NoOverload) };
            return match result {
                Ok(value) => Ok(Node::Constant(value)),
                Err(Fault::Text(why)) => Err(Issue::new(offset, why)),
                Err(Fault::NoOverload) => {
                    Err(Issue::new(offset, format!("no such overload: {function}({})", value.kind().name())))
                }
            };
        }
        let mut regex = None;
        if matches!(function, "matches" | "find" | "findAll")
            && let Some(Node::Constant(Value::String(pattern))) = arguments.get(1)
        {
            regex = Some(regular::compile(pattern.as_str()).map_err(|why| Issue::new(offset, why))?);
        }
        let guarded = !is_whole(function);
        let stops =
            arguments.len() > 2 || regex.is_some() || function == "format" || (guarded && overload.is_none());
        let rule = Rule::of(function, overload.map(|overload| overload.id));
        Ok(Node::Call(Box::new(Call { function, arguments, code, rule, overload, guarded, stops, regex })))
    }

    fn index(&mut self, arguments: &[Id], optional: bool) -> Planned {
        let mut attribute = into_attribute(self.node(arguments[0])?);
        let key = match self.node(arguments[1])? {
            Node::Constant(Value::String(text)) => QualifierKey::Field(text.as_str().into()),
            Node::Constant(value) if Key::new(&value).is_some() => QualifierKey::Constant(value),
            Node::Constant(value) => {
                let message = format!("invalid qualifier type: {}", go_type(&value));
                return Err(Issue::new(self.ast.node(arguments[1]).offset, message));
            }
            other => QualifierKey::Dynamic(into_attribute(other)),
        };
        attribute.qualifiers.push(Qualifier { key, optional });
        Ok(Node::Attribute(Box::new(attribute)))
    }

    /// Recognises the steps of `map`, `filter` and `transformMap`, which change their accumulator in place.
    fn accumulate(&self, function: &str, arguments: &mut Vec<Node>) -> Option<Node> {
        if let ("@not_strictly_false", [Node::Call(call)]) = (function, arguments.as_slice())
            && let ("!_", [Node::Attribute(inner)]) = (call.function, call.arguments.as_slice())
            && let (Base::Local(slot), true) = (&inner.base, inner.qualifiers.is_empty())
        {
            return self.hidden.contains(slot).then_some(Node::Goes { slot: *slot, negated: true });
        }
        let Some(Node::Attribute(first)) = arguments.first() else { return None };
        let Base::Local(slot) = first.base else { return None };
        if !first.qualifiers.is_empty() {
            return None;
        }
        let empties = self.hidden.contains(&slot);
        match (function, arguments.as_slice()) {
            ("@not_strictly_false", [_]) if empties => Some(Node::Goes { slot, negated: false }),
            ("_+_", [_, Node::List(items)]) if empties && items.len() == 1 && !items[0].1 => {
                let Some(Node::List(mut items)) = arguments.pop() else { return None };
                let (item, _) = items.pop()?;
                Some(Node::Append { slot, item: Box::new(item) })
            }
            ("_+_", [_, Node::Constant(Value::List(list))]) if empties && list.len() == 1 => {
                let item = list.item(0)?;
                Some(Node::Append { slot, item: Box::new(Node::Constant(item)) })
            }
            ("cel.@mapInsert", [_, _, _]) if empties => {
                let (value, key) = (arguments.pop()?, arguments.pop()?);
                Some(Node::Insert { slot, key: Box::new(key), value: Box::new(value) })
            }
            _ => None,
        }
    }

    fn fold(&mut self, id: Id, fold: &Fold) -> Planned {
        let Some(Reference::Fold { accumulator, first, second }) = self.checked.references[id] else {
            return Err(Issue::new(self.ast.node(id).offset, "unresolved comprehension"));
        };
        let range = self.node(fold.range)?;
        let init = match self.node(fold.init)? {
            Node::Constant(value) => Some(value),
            lazy => {
                self.lazy[accumulator] = Some(lazy);
                None
            }
        };
        Ok(Node::Fold(Box::new(Loop {
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

fn fold_list(items: Vec<(Node, bool)>) -> Node {
    if !items.iter().all(|(item, optional)| matches!(item, Node::Constant(_)) && !optional) {
        return Node::List(items);
    }
    let values = items.into_iter().filter_map(|(item, _)| match item {
        Node::Constant(value) => Some(value),
        _ => None,
    });
    Node::Constant(Value::list(values.collect()))
}

/// Builds a message from its fields.
pub(crate) fn message<'a>(name: &Arc<str>, fields: Vec<(Arc<str>, Value<'a>)>) -> Result<Value<'a>, Fault> {
    let fields: BTreeMap<Arc<str>, Value<'a>> = fields.into_iter().collect();
    if &**name == "JSONPatch" {
        for (field, value) in &fields {
            if !matches!((&**field, value), ("value", _) | (_, Value::String(_))) {
                let kind = value.kind();
                return Err(Fault::text(format!(
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
