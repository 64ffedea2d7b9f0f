//! Type assignability and type parameter inference, with the rules of cel-go.

use crate::types::Type;

/// The types inferred for type parameters so far.
#[derive(Default)]
pub(super) struct Substitution {
    known: Vec<Option<Type>>,
    undo: Vec<(u32, Option<Type>)>,
}

impl Substitution {
    /// The first of `count` unused type parameters.
    pub(super) fn fresh(&mut self, count: u32) -> u32 {
        let first = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        self.known.resize(self.known.len() + count as usize, None);
        first
    }

    fn find(&self, parameter: u32) -> Option<&Type> {
        self.known.get(parameter as usize)?.as_ref()
    }

    fn set(&mut self, parameter: u32, to: Type) {
        if let Some(slot) = self.known.get_mut(parameter as usize) {
            self.undo.push((parameter, slot.replace(to)));
        }
    }

    /// Whether every type in `from` is assignable to the type in `to` at the same index. Keeps inferred
    /// parameters only on success.
    pub(super) fn assign_all(&mut self, to: &[Type], from: &[Type]) -> bool {
        self.undo.clear();
        let assigned = self.list(to, from);
        if !assigned {
            while let Some((parameter, before)) = self.undo.pop() {
                self.known[parameter as usize] = before;
            }
        }
        assigned
    }

    /// Whether the two types are assignable to each other.
    pub(super) fn assign(&mut self, first: &Type, second: &Type) -> bool {
        self.assign_all(std::slice::from_ref(first), std::slice::from_ref(second))
    }

    fn list(&mut self, first: &[Type], second: &[Type]) -> bool {
        first.len() == second.len() && first.iter().zip(second).all(|(a, b)| self.is_assignable(a, b))
    }

    fn is_assignable(&mut self, first: &Type, second: &Type) -> bool {
        if let Type::Param(parameter) = second {
            let (valid, known) = self.substitutes(first, *parameter);
            if valid {
                return true;
            }
            if known {
                return false;
            }
        }
        if let Type::Param(parameter) = first {
            return self.substitutes(second, *parameter).0;
        }
        let loose = |t: &Type| matches!(t, Type::Dyn | Type::Error);
        if loose(first) || loose(second) {
            return true;
        }
        let nullable = |t: &Type| {
            matches!(t, Type::Null | Type::Opaque(..) | Type::Struct(_) | Type::Duration | Type::Timestamp)
        };
        match (first, second) {
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) => self.is_assignable(a, b),
            (Type::Map(a), Type::Map(b)) => self.is_assignable(&a.0, &b.0) && self.is_assignable(&a.1, &b.1),
            (Type::Opaque(a, x), Type::Opaque(b, y)) => a == b && self.list(x, y),
            (a, b) => a == b,
        }
    }

    /// Whether the type parameter can be substituted by `to`, and whether the parameter already has a type.
    fn substitutes(&mut self, to: &Type, parameter: u32) -> (bool, bool) {
        if *to == Type::Param(parameter) {
            return (true, true);
        }
        if let Some(known) = self.find(parameter).cloned() {
            if *to == known {
                return (true, true);
            }
            if self.is_assignable(to, &known) {
                let general = most_general(to, &known);
                if self.is_free(parameter, &general) {
                    self.set(parameter, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.is_free(parameter, to) {
            self.set(parameter, to.clone());
            return (true, false);
        }
        (false, false)
    }

    fn is_free(&self, parameter: u32, within: &Type) -> bool {
        match within {
            Type::Param(other) => {
                *other != parameter && self.find(*other).is_none_or(|known| self.is_free(parameter, known))
            }
            Type::List(items) => self.is_free(parameter, items),
            Type::Map(entry) => self.is_free(parameter, &entry.0) && self.is_free(parameter, &entry.1),
            Type::Type(Some(of)) => self.is_free(parameter, of),
            Type::Opaque(_, parameters) => parameters.iter().all(|p| self.is_free(parameter, p)),
            _ => true,
        }
    }

    /// The type with its parameters replaced. With `to_dyn`, parameters without a type become `dyn`.
    pub(super) fn resolve(&self, of: &Type, to_dyn: bool) -> Type {
        match of {
            Type::Param(parameter) => match self.find(*parameter) {
                Some(known) => self.resolve(known, to_dyn),
                None if to_dyn => Type::Dyn,
                None => of.clone(),
            },
            Type::List(items) => Type::list(self.resolve(items, to_dyn)),
            Type::Map(entry) => Type::map(self.resolve(&entry.0, to_dyn), self.resolve(&entry.1, to_dyn)),
            Type::Type(Some(inner)) => Type::kind(self.resolve(inner, to_dyn)),
            Type::Opaque(name, parameters) => {
                Type::Opaque(name.clone(), parameters.iter().map(|p| self.resolve(p, to_dyn)).collect())
            }
            other => other.clone(),
        }
    }
}

/// A signature type whose parameters, counted from 0, become fresh ones counted from `first`.
pub(super) fn instantiate(of: &Type, first: u32) -> Type {
    match of {
        Type::Param(index) => Type::Param(first + index),
        Type::List(items) => Type::list(instantiate(items, first)),
        Type::Map(entry) => Type::map(instantiate(&entry.0, first), instantiate(&entry.1, first)),
        Type::Type(Some(inner)) => Type::kind(instantiate(inner, first)),
        Type::Opaque(name, parameters) => {
            Type::Opaque(name.clone(), parameters.iter().map(|p| instantiate(p, first)).collect())
        }
        other => other.clone(),
    }
}

/// The more general one of two types.
pub(super) fn most_general(first: &Type, second: &Type) -> Type {
    if says_less(first, second) { first.clone() } else { second.clone() }
}

fn says_less(first: &Type, second: &Type) -> bool {
    let open = |t: &Type| matches!(t, Type::Dyn | Type::Param(_));
    if open(first) {
        return true;
    }
    if open(second) {
        return false;
    }
    match (first, second) {
        (Type::Opaque(a, x), Type::Opaque(b, y)) => {
            a == b && x.len() == y.len() && x.iter().zip(y.iter()).all(|(p, q)| says_less(p, q))
        }
        (Type::List(a), Type::List(b)) => says_less(a, b),
        (Type::Map(a), Type::Map(b)) => says_less(&a.0, &b.0) && says_less(&a.1, &b.1),
        (Type::Type(_), Type::Type(_)) => true,
        (a, b) => a == b,
    }
}
