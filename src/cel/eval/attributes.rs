//! Evaluates attributes: a variable or value and the fields or items selected from it.

use super::activation::Binding;
use super::{Error, EvalResult, Evaluator, constant, no_overload};
use crate::access::{field, go_type, item};
use crate::plan::{Attribute, AttributeBase, Qualifier, QualifierKey};
use crate::value::{Key, Value};
use crate::work::read_work;

impl<'a> Evaluator<'a, '_> {
    pub(super) fn attribute(&mut self, attribute: &'a Attribute) -> EvalResult<'a> {
        let resolved = self.resolve(attribute);
        if resolved.as_ref().err().is_some_and(|error| error.cancelled) {
            return resolved;
        }
        let free = matches!(attribute.base, AttributeBase::Conditional(_)) || attribute.test;
        self.charge(u64::from(!free))?;
        if attribute.test {
            return Ok(match resolved? {
                Value::Optional(inner) => Value::Bool(inner.is_some()),
                other => other,
            });
        }
        resolved
    }

    /// The value of an attribute. The caller charges the cost, which depends on where the attribute occurs.
    fn resolve(&mut self, attribute: &'a Attribute) -> EvalResult<'a> {
        let mut qualifiers = attribute.qualifiers.as_slice();
        let value = match &attribute.base {
            AttributeBase::Variable(position) => match &self.activation.bindings[*position] {
                Binding::Value(value) => value.clone(),
                Binding::Unset => {
                    let name = self.activation.env.variables().nth(*position).map_or("", |(name, _)| name);
                    return Err(Error::new(format!("no such attribute(s): {name}")));
                }
                Binding::ComputedVariable(computed) if let Some(whole) = computed.whole(self.budget) => {
                    whole?
                }
                Binding::ComputedVariable(computed) => {
                    let Some((first, rest)) = qualifiers.split_first() else {
                        return Err(Error::new("computed fields have no value together"));
                    };
                    let QualifierKey::Field(name) = &first.key else { return Err(no_overload()) };
                    let found = computed.field(name, self.budget);
                    self.charge(1)?;
                    qualifiers = rest;
                    match found {
                        Some(value) if first.optional => Value::some(value?),
                        None if first.optional => return Ok(Value::Optional(None)),
                        Some(value) if !attribute.test || !rest.is_empty() => value?,
                        Some(value) => return value.map(|_| Value::Bool(true)),
                        None if attribute.test && rest.is_empty() => return Ok(Value::Bool(false)),
                        None => return Err(Error::new(format!("no such key: {name}"))),
                    }
                }
            },
            AttributeBase::Local(slot) => self.local(*slot)?,
            AttributeBase::Relative(node) => self.node(node)?,
            AttributeBase::Conditional(parts) => {
                let (condition, yes, no) = parts.as_ref();
                match self.node(condition)? {
                    Value::Bool(true) => self.resolve(yes)?,
                    Value::Bool(false) => self.resolve(no)?,
                    _ => return Err(no_overload()),
                }
            }
        };
        self.qualify(value, qualifiers, attribute.test)
    }

    fn local(&mut self, slot: usize) -> EvalResult<'a> {
        if let Some(value) = &self.locals[slot] {
            return value.clone();
        }
        let plan = self.plan;
        let Some(lazy) = &plan.lazy[slot] else { return Err(Error::new("no such attribute(s)")) };
        let value = self.attempt(lazy)?;
        self.locals[slot] = Some(value.clone());
        value
    }

    fn qualify(&mut self, value: Value<'a>, qualifiers: &'a [Qualifier], test: bool) -> EvalResult<'a> {
        if qualifiers.is_empty() {
            return Ok(value);
        }
        let (mut value, mut optional) = match value {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => (inner.as_ref().clone(), true),
            other => (other, false),
        };
        for (index, qualifier) in qualifiers.iter().enumerate() {
            optional = optional || qualifier.optional;
            let asks = test && index + 1 == qualifiers.len();
            let found = match &qualifier.key {
                QualifierKey::Field(name) => field(&value, name, optional || asks),
                QualifierKey::Constant(key) => item(&value, &constant(key), optional || asks),
                QualifierKey::Dynamic(attribute) => {
                    let key = match self.resolve(attribute) {
                        Ok(key) if Key::new(&key).is_some() => key,
                        Ok(key) => {
                            self.charge(u64::from(!optional))?;
                            let kind = if matches!(key, Value::Null) { "<nil>" } else { go_type(&key) };
                            return Err(Error::new(format!("invalid qualifier type: {kind}")));
                        }
                        Err(error) => {
                            self.charge(u64::from(!optional && !error.cancelled))?;
                            return Err(error);
                        }
                    };
                    self.work(read_work(&key))?;
                    item(&value, &key, optional || asks)
                }
            };
            match found {
                Ok(Some(next)) => {
                    self.charge(1)?;
                    value = if asks && !optional { Value::Bool(true) } else { next };
                }
                Ok(None) if optional => return Ok(Value::Optional(None)),
                Ok(None) => {
                    self.charge(1)?;
                    value = Value::Bool(false);
                }
                Err(error) => {
                    self.charge(u64::from(!optional))?;
                    return Err(error);
                }
            }
        }
        Ok(if optional { Value::some(value) } else { value })
    }
}
