//! Evaluates a planned expression. Errors are values: `&&`, `||`, `all` and `exists` can absorb them. An
//! exhausted budget is different: it ends the evaluation.

mod activation;
mod attributes;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use regex::Regex;

pub use activation::{Activation, ComputedVariable};

use crate::access::{go_type, matches_parameters};
use crate::cost::Budget;
use crate::environment::FUNCTIONS;
use crate::library::{CallError, lists, regexp, strings};
use crate::plan::{FunctionCall, LoopPlan, Plan, PlanNode, empty_sum, message};
use crate::value::{Key, List, Value};
use crate::work::{call_work, comparison_work, read_work, walk_work};

/// Why an expression has no value, in the words of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    message: Arc<str>,
    cancelled: bool,
}

impl Error {
    /// An error that `&&` and `||` can absorb.
    #[must_use]
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self { message: message.into(), cancelled: false }
    }

    fn cancelled(message: &str) -> Self {
        Self { message: message.into(), cancelled: true }
    }

    /// Whether the budget ended the evaluation.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

fn exceeded() -> Error {
    Error::cancelled("operation cancelled: actual cost limit exceeded")
}

fn no_overload() -> Error {
    Error::new("no such overload")
}

type EvalResult<'a> = Result<Value<'a>, Error>;

/// Looking at this many items or map entries is one unit of work.
const ITEMS_PER_WORK_UNIT: u64 = 8;

/// Evaluates a plan.
pub(crate) fn evaluate<'a>(
    plan: &'a Plan,
    activation: &Activation<'a>,
    budget: &mut Budget,
) -> EvalResult<'a> {
    budget.begin();
    let locals = (0..plan.slots).map(|_| None).collect();
    Evaluator { plan, activation, budget, locals, patterns: Vec::new() }.node(&plan.root)
}

struct Evaluator<'a, 'r> {
    plan: &'a Plan,
    activation: &'r Activation<'a>,
    budget: &'r mut Budget,
    locals: Vec<Option<EvalResult<'a>>>,
    /// Patterns that are not constant, compiled on first use. [`regexp::work`] bounds their number.
    patterns: Vec<(String, Result<Regex, String>)>,
}

/// A constant of the plan, borrowed where possible.
fn constant<'a>(value: &'a Value<'static>) -> Value<'a> {
    match value {
        Value::String(text) => Value::text(text.as_str()),
        other => other.clone(),
    }
}

impl<'a> Evaluator<'a, '_> {
    #[inline]
    fn charge(&mut self, cost: u64) -> Result<(), Error> {
        if self.budget.charge(cost) { Ok(()) } else { Err(exceeded()) }
    }

    fn work(&mut self, units: u64) -> Result<(), Error> {
        if self.budget.work(units) { Ok(()) } else { Err(Error::cancelled("operation interrupted")) }
    }

    fn node(&mut self, node: &'a PlanNode) -> EvalResult<'a> {
        match node {
            PlanNode::Constant(value) => Ok(constant(value)),
            PlanNode::Attribute(attribute) => self.attribute(attribute),
            PlanNode::And(terms) => self.logic(terms, false),
            PlanNode::Or(terms) => self.logic(terms, true),
            PlanNode::Equal { negated, sides } => self.equal(sides, *negated),
            PlanNode::Call(call) => self.call(call),
            PlanNode::InConstants { wanted, list } => {
                let wanted = self.node(wanted)?;
                let Value::List(list) = list else { return Err(no_overload()) };
                self.work(list.len() as u64 / ITEMS_PER_WORK_UNIT)?;
                Ok(Value::Bool(list.iter().any(|item| item.equals(&wanted))))
            }
            PlanNode::OrOptional(sides) => match self.node(&sides[0])? {
                Value::Optional(None) => self.node(&sides[1]),
                other => Ok(other),
            },
            PlanNode::OrValue(sides) => match self.node(&sides[0])? {
                Value::Optional(None) => self.node(&sides[1]),
                Value::Optional(Some(inner)) => Ok(inner.as_ref().clone()),
                other => Ok(other),
            },
            PlanNode::List(items) => self.list(items),
            PlanNode::Map(entries) => self.map(entries),
            PlanNode::Message { name, fields } => self.message(name, fields),
            PlanNode::Fold(fold) => self.fold(fold),
            PlanNode::LoopCondition { slot, negated } => {
                self.charge(if *negated { 3 } else { 2 })?;
                let stops_at_error =
                    matches!(&self.locals[*slot], Some(Ok(Value::Bool(value))) if value == negated);
                Ok(Value::Bool(!stops_at_error))
            }
            PlanNode::Append { slot, item } => self.append(*slot, item),
            PlanNode::Insert { slot, key, value } => self.insert(*slot, key, value),
        }
    }

    /// `&&` and `||`: the first deciding term decides, even after an error.
    fn logic(&mut self, terms: &'a [PlanNode; 2], decides: bool) -> EvalResult<'a> {
        let mut failed: Option<Error> = None;
        for term in terms {
            match self.node(term) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or_else(|| Some(no_overload())),
                Err(error) if error.cancelled => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decides)), Err)
    }

    /// The result of a node, unless the evaluation must end.
    fn attempt(&mut self, node: &'a PlanNode) -> Result<EvalResult<'a>, Error> {
        match self.node(node) {
            Err(error) if error.cancelled => Err(error),
            other => Ok(other),
        }
    }

    fn equal(&mut self, sides: &'a [PlanNode; 2], negated: bool) -> EvalResult<'a> {
        let (first, second) = (self.attempt(&sides[0])?, self.attempt(&sides[1])?);
        let arguments = [first.as_ref().ok(), second.as_ref().ok()];
        self.charge(crate::cost::CostRule::Smaller.before(&arguments).unwrap_or(1))?;
        let (first, second) = (first?, second?);
        if matches!(first, Value::List(_) | Value::Map(_) | Value::Message(_) | Value::Optional(_)) {
            self.work(comparison_work(&first, &second))?;
        }
        // Opaque values have no equality with values of other types in the API server.
        if let (Value::Opaque(one), false) = (&first, matches!(second, Value::Null)) {
            let same = matches!(&second, Value::Opaque(other) if one.kind() == other.kind());
            if !same && !negated {
                return Err(no_overload());
            }
        }
        Ok(Value::Bool(first.equals(&second) != negated))
    }

    fn call(&mut self, call: &'a FunctionCall) -> EvalResult<'a> {
        let count = call.arguments.len();
        let mut results: Vec<EvalResult<'a>> = Vec::with_capacity(count);
        let mut failed: Option<Error> = None;
        for (index, argument) in call.arguments.iter().enumerate() {
            let result = self.attempt(argument)?;
            if let Err(error) = &result {
                if call.stops_at_error && index + 1 < count {
                    return Err(error.clone());
                }
                failed = failed.or_else(|| Some(error.clone()));
            }
            results.push(result);
        }
        let mut views = [None; 4];
        for (view, result) in views.iter_mut().zip(&results) {
            *view = result.as_ref().ok();
        }
        let before = call.rule.before(&views[..count.min(4)]);
        if let Some(cost) = before {
            self.charge(cost)?;
        }
        if let Some(error) = failed {
            if before.is_none() {
                self.charge(call.rule.after(None))?;
            }
            return Err(error);
        }
        let values: Vec<Value<'a>> = results.into_iter().filter_map(Result::ok).collect();
        let outcome = self.apply(call, &values);
        if let Ok(made @ Value::String(_)) = &outcome {
            self.work(read_work(made))?;
        }
        if before.is_none() && outcome.as_ref().err().is_none_or(|error| !error.cancelled) {
            self.charge(call.rule.after(outcome.as_ref().ok()))?;
        }
        outcome
    }

    fn apply(&mut self, call: &'a FunctionCall, values: &[Value<'a>]) -> EvalResult<'a> {
        let mut overload = call.overload;
        let judged = call.is_type_checked && call.regex.is_none() && call.function != "flatten";
        if judged {
            let views: Vec<Option<&Value<'a>>> = values.iter().map(Some).collect();
            let fitting = match overload {
                Some(overload) => matches_parameters(&overload.arguments, &views),
                None => {
                    let all = FUNCTIONS.get(call.function).map(Vec::as_slice).unwrap_or_default();
                    overload = all.iter().find(|overload| matches_parameters(&overload.arguments, &views));
                    overload.is_some()
                }
            };
            if !fitting {
                return Err(mismatch(call.function, values));
            }
        }
        if call.function == "lists.range"
            && let Value::Int(end) = &values[0]
            && !self.budget.affords(u64::try_from(*end).unwrap_or(0))
        {
            self.charge(u64::try_from(*end).unwrap_or(0).saturating_add(11))?;
        }
        if call.function == "sum" && matches!(&values[0], Value::List(list) if list.is_empty()) {
            return Ok(empty_sum(overload));
        }
        self.work(call_work(call.function, values))?;
        let outcome = match (&call.regex, call.function, values.get(1)) {
            (Some(regex), ..) => regexp::apply(call.function, regex, values),
            (None, "matches" | "find" | "findAll", Some(Value::String(pattern))) => {
                let known = self.patterns.iter().find(|(known, _)| known == pattern.as_str());
                let regex = match known {
                    Some((_, regex)) => regex.clone(),
                    None => {
                        self.work(regexp::work(pattern.as_str()))?;
                        let regex = regexp::compile(pattern.as_str());
                        self.patterns.push((pattern.as_str().to_owned(), regex.clone()));
                        regex
                    }
                };
                match regex {
                    Ok(regex) => regexp::apply(call.function, &regex, values),
                    Err(why) if call.function == "matches" => Err(CallError::text(why)),
                    Err(why) => Err(CallError::text(format!("Illegal regex: {why}"))),
                }
            }
            _ => (call.code)(values),
        };
        outcome.map_err(|fault| match fault {
            CallError::Text(message) if message.starts_with("operation cancelled") => exceeded(),
            CallError::Text(message) => Error::new(message),
            CallError::NoOverload if judged => mismatch(call.function, values),
            CallError::NoOverload if call.regex.is_some() || is_receiver(call.function, values) => {
                no_overload()
            }
            CallError::NoOverload => Error::new(format!("no such overload: {}", call.function)),
        })
    }

    fn list(&mut self, items: &'a [(PlanNode, bool)]) -> EvalResult<'a> {
        let made = self.items(items);
        if made.as_ref().err().is_none_or(|error| !error.cancelled) {
            self.charge(10)?;
        }
        made
    }

    fn items(&mut self, items: &'a [(PlanNode, bool)]) -> EvalResult<'a> {
        let mut made = Vec::with_capacity(items.len());
        for (item, optional) in items {
            match (self.node(item)?, optional) {
                (value, false) => made.push(value),
                (Value::Optional(Some(inner)), true) => made.push(inner.as_ref().clone()),
                (Value::Optional(None), true) => {}
                (other, true) => {
                    self.work(walk_work(&other))?;
                    let message = format!(
                        "cannot initialize optional list element from non-optional value {}",
                        strings::plain(&other)
                    );
                    return Err(Error::new(message));
                }
            }
        }
        Ok(Value::list(made))
    }

    fn map(&mut self, entries: &'a [(PlanNode, PlanNode, bool)]) -> EvalResult<'a> {
        let made = self.entries(entries);
        if made.as_ref().err().is_none_or(|error| !error.cancelled) {
            self.charge(30)?;
        }
        made
    }

    fn entries(&mut self, entries: &'a [(PlanNode, PlanNode, bool)]) -> EvalResult<'a> {
        let mut made = BTreeMap::new();
        for (key, value, optional) in entries {
            let (key, value) = (self.node(key)?, self.node(value)?);
            let Some(place) = Key::new(&key) else {
                return Err(Error::new(format!("unsupported key type: {}", key.kind().name())));
            };
            match (value, optional) {
                (value, false) => _ = made.insert(place, value),
                (Value::Optional(Some(inner)), true) => _ = made.insert(place, inner.as_ref().clone()),
                (Value::Optional(None), true) => _ = made.remove(&place),
                (other, true) => {
                    self.work(walk_work(&other))?;
                    return Err(not_optional(&strings::plain(&key), &other));
                }
            }
        }
        Ok(Value::map(made))
    }

    fn message(&mut self, name: &Arc<str>, fields: &'a [(Arc<str>, PlanNode, bool)]) -> EvalResult<'a> {
        let mut made = Vec::with_capacity(fields.len());
        let mut failed = None;
        for (field, value, optional) in fields {
            match (self.attempt(value)?, optional) {
                (Ok(value), false) => made.push((field.clone(), value)),
                (Ok(Value::Optional(Some(inner))), true) => {
                    made.push((field.clone(), inner.as_ref().clone()));
                }
                (Ok(Value::Optional(None)), true) => {}
                (Ok(other), true) => {
                    self.work(walk_work(&other))?;
                    failed = Some(not_optional(field, &other));
                }
                (Err(error), _) => failed = Some(error),
            }
            if failed.is_some() {
                break;
            }
        }
        self.charge(40)?;
        if let Some(error) = failed {
            return Err(error);
        }
        message(name, made).map_err(|fault| match fault {
            CallError::Text(message) => Error::new(message),
            CallError::NoOverload => no_overload(),
        })
    }

    fn fold(&mut self, fold: &'a LoopPlan) -> EvalResult<'a> {
        let range = self.node(&fold.range)?;
        self.locals[fold.accumulator] = fold.init.as_ref().map(|init| Ok(constant(init)));
        match &range {
            Value::List(list) => {
                for (index, item) in list.iter().enumerate() {
                    let entry = match fold.second {
                        Some(_) => (Value::Int(i64::try_from(index).unwrap_or(i64::MAX)), Some(item)),
                        None => (item, None),
                    };
                    if !self.round(fold, entry)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                self.work(map.len() as u64 / ITEMS_PER_WORK_UNIT)?;
                for (key, value) in map.entries() {
                    if !self.round(fold, (key, Some(value)))? {
                        break;
                    }
                }
            }
            other if fold.second.is_some() => {
                return Err(Error::new(format!("unsupported comprehension range type: {}", go_type(other))));
            }
            other => return Err(Error::new(format!("got '{}', expected iterable type", go_type(other)))),
        }
        let result = self.node(&fold.result);
        self.locals[fold.accumulator] = None;
        result
    }

    /// Runs one round of a loop; returns false when the loop ends.
    fn round(&mut self, fold: &'a LoopPlan, entry: (Value<'a>, Option<Value<'a>>)) -> Result<bool, Error> {
        self.work(1)?;
        self.locals[fold.first] = Some(Ok(entry.0));
        if let Some(second) = fold.second {
            self.locals[second] = entry.1.map(Ok);
        }
        if let Ok(Value::Bool(false)) = self.attempt(&fold.condition)? {
            return Ok(false);
        }
        let next = self.attempt(&fold.step)?;
        self.locals[fold.accumulator] = Some(next);
        Ok(true)
    }

    fn append(&mut self, slot: usize, item: &'a PlanNode) -> EvalResult<'a> {
        self.charge(1)?;
        let value = self.attempt(item)?;
        self.charge(if matches!(item, PlanNode::Constant(_)) { 1 } else { 11 })?;
        match self.locals[slot].take() {
            Some(Ok(Value::List(list))) => {
                let value = value?;
                let mut items = match list {
                    List::Owned(items) => items,
                    List::Json(items) => Arc::new(items.iter().map(Value::json).collect()),
                };
                Arc::make_mut(&mut items).push(value);
                Ok(Value::List(List::Owned(items)))
            }
            Some(Err(error)) => Err(error),
            _ => Err(no_overload()),
        }
    }

    fn insert(&mut self, slot: usize, key: &'a PlanNode, value: &'a PlanNode) -> EvalResult<'a> {
        self.charge(1)?;
        if let Some(Err(error)) = &self.locals[slot] {
            return Err(error.clone());
        }
        let key = self.node(key)?;
        let value = self.attempt(value)?;
        self.charge(1)?;
        let value = value?;
        let Some(Ok(map)) = self.locals[slot].take() else { return Err(no_overload()) };
        lists::insert(map, vec![(key, value)]).map_err(|fault| match fault {
            CallError::Text(message) => Error::new(message),
            CallError::NoOverload => no_overload(),
        })
    }
}

fn not_optional(key: &str, value: &Value<'_>) -> Error {
    Error::new(format!(
        "cannot initialize optional entry '{key}' from non-optional value {}",
        strings::plain(value)
    ))
}

/// Whether cel-go dispatches the call to its first argument. The error then names neither function nor types.
fn is_receiver(function: &str, values: &[Value<'_>]) -> bool {
    matches!(function, "contains" | "startsWith" | "endsWith")
        || matches!(values.first(), Some(Value::String(_) | Value::Duration(_) | Value::Timestamp(_)))
}

fn mismatch(function: &str, values: &[Value<'_>]) -> Error {
    let kinds: Vec<String> = values.iter().map(|value| value.kind().name().to_owned()).collect();
    Error::new(format!("no such overload: {function}({})", kinds.join(", ")))
}
