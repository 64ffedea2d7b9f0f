//! The type checker. It resolves names and overloads and reports issues in the words of cel-go, with a
//! suggestion for a misspelt name. It does not evaluate anything.

mod assign;
mod literals;

use assign::{Substitution, instantiate, most_general};

use crate::environment::{Env, FUNCTIONS, Overload};
use crate::syntax::{Ast, Comprehension, Issue, Literal, MAX_TREE_DEPTH, MapEntry, NodeId, NodeKind};
use crate::types::Type;

/// What a node refers to.
#[derive(Clone, Debug)]
pub(crate) enum Reference {
    /// A variable of the environment, by position.
    Variable(usize),
    /// A variable of a comprehension, by slot.
    Local(usize),
    /// The name of a type.
    Type(Type),
    /// A function call. The target, if any, is an argument unless the name is qualified.
    Call { function: &'static str, qualified: bool, overloads: Vec<&'static str> },
    /// The slots of the accumulator and the variables of a comprehension.
    Fold { accumulator: usize, first: usize, second: usize },
}

impl Reference {
    /// The position of the variable; `None` when this is not a variable of the environment.
    pub(crate) fn variable(&self) -> Option<usize> {
        match self {
            Self::Variable(at) => Some(*at),
            _ => None,
        }
    }
}

/// The type and the reference of each node of an expression.
#[derive(Debug)]
pub(crate) struct CheckedAst {
    pub(crate) types: Vec<Type>,
    pub(crate) references: Vec<Option<Reference>>,
    pub(crate) slots: usize,
}

/// Checks a parsed expression.
pub(crate) fn check(ast: &Ast, env: &Env) -> Result<CheckedAst, Vec<Issue>> {
    let mut checker = Checker {
        ast,
        env,
        issues: Vec::new(),
        types: vec![None; ast.len()],
        references: vec![None; ast.len()],
        substitution: Substitution::default(),
        scope: Vec::new(),
        slots: 0,
    };
    checker.visit(ast.root());
    let types = checker
        .types
        .iter()
        .map(|found| found.as_ref().map_or(Type::Error, |found| checker.substitution.resolve(found, true)))
        .collect();
    let mut checked = CheckedAst { types, references: checker.references, slots: checker.slots };
    let mut issues = checker.issues;
    if issues.is_empty() {
        literals::validate(ast, &mut checked, &mut issues);
    }
    issues.sort_by_key(|issue| issue.offset);
    if issues.is_empty() { Ok(checked) } else { Err(issues) }
}

struct Checker<'a> {
    ast: &'a Ast,
    env: &'a Env,
    issues: Vec<Issue>,
    types: Vec<Option<Type>>,
    references: Vec<Option<Reference>>,
    substitution: Substitution,
    scope: Vec<(String, Type, usize)>,
    slots: usize,
}

impl<'a> Checker<'a> {
    fn report(&mut self, id: NodeId, message: String) {
        self.issues.push(Issue::new(self.ast.node(id).offset, message));
    }

    fn type_of(&self, id: NodeId) -> Type {
        self.types[id].clone().unwrap_or(Type::Error)
    }

    fn set(&mut self, id: NodeId, found: Type) {
        self.types[id] = Some(found);
    }

    fn refer(&mut self, id: NodeId, reference: Reference) {
        self.references[id] = Some(reference);
    }

    fn visit(&mut self, id: NodeId) {
        let ast = self.ast;
        match &ast.node(id).kind {
            NodeKind::Literal(literal) => self.set(
                id,
                match literal {
                    Literal::Null => Type::Null,
                    Literal::Bool(_) => Type::Bool,
                    Literal::Int(_) => Type::Int,
                    Literal::Uint(_) => Type::Uint,
                    Literal::Double(_) => Type::Double,
                    Literal::String(_) => Type::String,
                    Literal::Bytes(_) => Type::Bytes,
                },
            ),
            NodeKind::Ident(name) => {
                if !self.name(id, name) {
                    self.undeclared(id, name);
                    self.set(id, Type::Error);
                }
            }
            NodeKind::Select { operand, field, test } => {
                let qualified = ast.qualified_name(id);
                if qualified.is_some_and(|name| self.name(id, &name)) {
                    return;
                }
                let mut found = self.field(id, *operand, field, false);
                if *test {
                    found = Type::Bool;
                }
                let found = self.substitution.resolve(&found, false);
                self.set(id, found);
            }
            NodeKind::Call { function, target, arguments } => self.call(id, function, *target, arguments),
            NodeKind::List(items) => {
                let mut joined = None;
                for (item, optional) in items {
                    self.visit(*item);
                    let found = self.element(*item, *optional);
                    joined = Some(self.join(joined, found));
                }
                let joined = joined.unwrap_or_else(|| Type::Param(self.substitution.fresh(1)));
                self.set(id, Type::list(joined));
            }
            NodeKind::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for entry in entries {
                    self.visit(entry.key);
                    let found = self.type_of(entry.key);
                    keys = Some(self.join(keys, found));
                    self.visit(entry.value);
                    let found = self.element(entry.value, entry.optional);
                    values = Some(self.join(values, found));
                }
                let keys = keys.unwrap_or_else(|| Type::Param(self.substitution.fresh(1)));
                let values = values.unwrap_or_else(|| Type::Param(self.substitution.fresh(1)));
                self.set(id, Type::map(keys, values));
            }
            NodeKind::Message { name, fields } => self.message(id, name, fields),
            NodeKind::Fold(fold) => self.fold(id, fold),
        }
    }

    /// Resolves a name to a variable or type. A leading dot skips the variables of comprehensions.
    fn name(&mut self, id: NodeId, written: &str) -> bool {
        let name = written.strip_prefix('.').unwrap_or(written);
        if name == written
            && let Some((_, found, slot)) = self.scope.iter().rev().find(|(known, ..)| known == name)
        {
            let (found, slot) = (found.clone(), *slot);
            self.set(id, found);
            self.refer(id, Reference::Local(slot));
            return true;
        }
        if let Some((position, found)) = self.env.position(name) {
            let found = found.clone();
            self.set(id, found);
            self.refer(id, Reference::Variable(position));
            return true;
        }
        if let Some(found) = self.env.type_named(name) {
            let found = match found {
                Type::List(_) => Type::list(Type::Param(self.substitution.fresh(1))),
                Type::Map(_) => Type::map(
                    Type::Param(self.substitution.fresh(1)),
                    Type::Param(self.substitution.fresh(1)),
                ),
                other => other,
            };
            self.set(id, Type::kind(found.clone()));
            self.refer(id, Reference::Type(found));
            return true;
        }
        false
    }

    fn undeclared(&mut self, id: NodeId, name: &str) {
        let scope = self.scope.iter().map(|(known, ..)| known.as_str());
        let candidates = scope.chain(self.env.variables().map(|(known, _)| known));
        let suggestion = closest(name, candidates);
        let mut issue = Issue::new(self.ast.node(id).offset, undeclared_message(name));
        issue.suggestion = suggestion;
        self.issues.push(issue);
    }

    fn field(&mut self, id: NodeId, operand: NodeId, field: &str, optional: bool) -> Type {
        self.visit(operand);
        let found = self.substitution.resolve(&self.type_of(operand), false);
        let inner = found.unwrap_optional();
        let target = inner.unwrap_or(&found);
        let result = match target {
            Type::Map(entry) => entry.1.clone(),
            Type::Struct(name) => self.struct_field(self.ast.node(id).offset, name, field),
            Type::Param(_) => {
                self.substitution.assign(&Type::Dyn, target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            _ => {
                self.report(id, format!("type '{target}' does not support field selection"));
                Type::Dyn
            }
        };
        if inner.is_some() || optional { Type::optional(result) } else { result }
    }

    fn struct_field(&mut self, offset: usize, name: &str, field: &str) -> Type {
        if !self.env.has_struct(name) {
            self.issues.push(Issue::new(offset, format!("unexpected failed resolution of '{name}'")));
            return Type::Error;
        }
        if let Some(found) = self.env.field(name, field) {
            return found;
        }
        let mut issue = Issue::new(offset, format!("undefined field '{field}'"));
        issue.suggestion = closest(field, self.env.fields(name));
        self.issues.push(issue);
        Type::Error
    }

    fn call(&mut self, id: NodeId, function: &str, target: Option<NodeId>, arguments: &[NodeId]) {
        if function == "_?._" {
            let NodeKind::Literal(Literal::String(field)) = &self.ast.node(arguments[1]).kind else {
                return self.report(arguments[1], "unsupported optional field selection".to_owned());
            };
            let found = self.field(id, arguments[0], field, true);
            let found = self.substitution.resolve(&found, false);
            self.set(id, found);
            self.refer(
                id,
                Reference::Call {
                    function: "_?._",
                    qualified: false,
                    overloads: vec!["select_optional_field"],
                },
            );
            return;
        }
        for argument in arguments {
            self.visit(*argument);
        }
        let name = function.strip_prefix('.').unwrap_or(function);
        let Some(target) = target else {
            return match FUNCTIONS.get_key_value(name) {
                Some((name, overloads)) => self.resolve(id, name, overloads, None, arguments, false),
                None => self.unknown_function(id, function, true),
            };
        };
        if let Some(prefix) = self.ast.qualified_name(target) {
            let qualified = format!("{}.{name}", prefix.strip_prefix('.').unwrap_or(&prefix));
            if let Some((name, overloads)) = FUNCTIONS.get_key_value(qualified.as_str()) {
                return self.resolve(id, name, overloads, None, arguments, true);
            }
        }
        self.visit(target);
        match FUNCTIONS.get_key_value(name) {
            Some((name, overloads)) => self.resolve(id, name, overloads, Some(target), arguments, false),
            None => self.unknown_function(id, function, false),
        }
    }

    fn unknown_function(&mut self, id: NodeId, function: &str, global: bool) {
        let fitting = FUNCTIONS
            .iter()
            .filter(|(_, overloads)| overloads.iter().any(|o| o.member != global))
            .map(|(name, _)| *name)
            .filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()));
        let mut issue = Issue::new(self.ast.node(id).offset, undeclared_message(function));
        issue.suggestion = closest(function, fitting);
        self.issues.push(issue);
        self.set(id, Type::Error);
    }

    fn resolve(
        &mut self,
        id: NodeId,
        function: &'static str,
        overloads: &'static [Overload],
        target: Option<NodeId>,
        arguments: &[NodeId],
        qualified: bool,
    ) {
        let types: Vec<Type> =
            target.iter().chain(arguments).map(|argument| self.type_of(*argument)).collect();
        if matches!(function, "_&&_" | "_||_") {
            let mut wrong = false;
            for (argument, found) in arguments.iter().zip(&types) {
                if !self.substitution.assign(found, &Type::Bool) {
                    let found = self.substitution.resolve(found, false);
                    self.report(*argument, format!("expected type 'bool' but found '{found}'"));
                    wrong = true;
                }
            }
            let overloads = vec![if function == "_&&_" { "logical_and" } else { "logical_or" }];
            self.set(id, if wrong { Type::Error } else { Type::Bool });
            return self.refer(id, Reference::Call { function, qualified, overloads });
        }
        let mut result: Option<Type> = None;
        let mut matching = Vec::new();
        for overload in overloads.iter().filter(|overload| overload.member == target.is_some()) {
            let first = self.substitution.fresh(overload.parameters);
            let wanted: Vec<Type> =
                overload.arguments.iter().map(|wanted| instantiate(wanted, first)).collect();
            if !self.substitution.assign_all(&types, &wanted) {
                continue;
            }
            matching.push(overload.id);
            let found = self.substitution.resolve(&instantiate(&overload.result, first), false);
            result = Some(match result {
                None => found,
                Some(Type::Dyn) => Type::Dyn,
                Some(before) if before == found => before,
                Some(_) => Type::Dyn,
            });
        }
        if let Some(found) = result {
            self.set(id, found);
            return self.refer(id, Reference::Call { function, qualified, overloads: matching });
        }
        let mut names = types.iter().map(|found| self.substitution.resolve(found, true).to_string());
        let instance = target.and_then(|_| names.next()).map(|name| name + ".").unwrap_or_default();
        let names: Vec<String> = names.collect();
        let signature = format!("{instance}({})", names.join(", "));
        self.report(id, format!("found no matching overload for '{function}' applied to '{signature}'"));
        self.set(id, Type::Error);
    }

    /// The type of an item or value. Items written with `?` are unwrapped.
    fn element(&mut self, id: NodeId, optional: bool) -> Type {
        let found = self.type_of(id);
        if !optional {
            return found;
        }
        if let Some(inner) = found.unwrap_optional() {
            return inner.clone();
        }
        if found != Type::Dyn {
            self.report(id, format!("expected type 'optional_type({found})' but found '{found}'"));
        }
        found
    }

    fn join(&mut self, before: Option<Type>, found: Type) -> Type {
        let Some(before) = before else { return found };
        if self.substitution.assign(&before, &found) {
            return most_general(&before, &found);
        }
        // Literals of mixed types are reported after the type check, because arguments of `format` may be
        // mixed.
        Type::Dyn
    }

    fn message(&mut self, id: NodeId, written: &str, fields: &[MapEntry]) {
        let name = written.strip_prefix('.').unwrap_or(written);
        let result = match self.env.type_named(name) {
            Some(found @ Type::Struct(_)) => found,
            Some(other) => {
                self.report(id, format!("'{}' is not a message type", other.name()));
                Type::Error
            }
            None if self.env.position(name).is_some() => {
                let kind = self.env.position(name).map(|(_, declared)| declared.name().to_owned());
                self.report(id, format!("'{}' is not a type", kind.unwrap_or_default()));
                Type::Error
            }
            None => {
                self.undeclared(id, written);
                return self.set(id, Type::Error);
            }
        };
        self.set(id, result);
        for field in fields {
            self.visit(field.value);
            let NodeKind::Literal(Literal::String(key)) = &self.ast.node(field.key).kind else { continue };
            let wanted = self.struct_field(field.offset, name, key);
            let found = self.element(field.value, field.optional);
            if !self.substitution.assign(&wanted, &found) {
                self.issues.push(Issue::new(
                    field.offset,
                    format!("expected type of field '{key}' is '{wanted}' but provided type is '{found}'"),
                ));
            }
        }
    }

    fn declare(&mut self, name: &str, found: Type) -> usize {
        self.scope.push((name.to_owned(), found, self.slots));
        self.slots += 1;
        self.slots - 1
    }

    /// The type of a node that a loop passes on, with bounded nesting. A chain of loops can wrap it once per
    /// loop, which the depth of the source does not show.
    fn bounded(&mut self, id: NodeId) -> Type {
        let found = self.type_of(id);
        if !self.substitution.resolve(&found, false).is_deeper(MAX_TREE_DEPTH) {
            return found;
        }
        self.report(id, "max recursion depth exceeded".to_owned());
        Type::Error
    }

    fn fold(&mut self, id: NodeId, fold: &'a Comprehension) {
        self.visit(fold.range);
        self.visit(fold.init);
        let range = self.bounded(fold.range);
        let range = self.substitution.resolve(&range, false);
        let accumulated = self.bounded(fold.init);
        let outer = self.scope.len();
        let accumulator = self.declare(&fold.accumulator, accumulated.clone());
        let (first, second) = match &range {
            Type::List(items) if fold.second.is_some() => (Type::Int, (**items).clone()),
            Type::List(items) => ((**items).clone(), Type::Error),
            Type::Map(entry) => entry.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.substitution.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(fold.range, message);
                (Type::Error, Type::Error)
            }
        };
        let inner = self.scope.len();
        let first = self.declare(&fold.variable, first);
        let second = match &fold.second {
            Some(name) => self.declare(name, second),
            None => first,
        };
        self.refer(id, Reference::Fold { accumulator, first, second });
        self.visit(fold.condition);
        self.require(fold.condition, &Type::Bool);
        self.visit(fold.step);
        self.require(fold.step, &accumulated);
        self.scope.truncate(inner);
        self.visit(fold.result);
        self.scope.truncate(outer);
        let found = self.substitution.resolve(&self.type_of(fold.result), false);
        self.set(id, found);
    }

    fn require(&mut self, id: NodeId, wanted: &Type) {
        let found = self.type_of(id);
        if !self.substitution.assign(wanted, &found) {
            self.report(id, format!("expected type '{wanted}' but found '{found}'"));
        }
    }
}

fn undeclared_message(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

/// The candidate that the user probably meant. Names of operators and internal variables are no candidates.
fn closest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<String> {
    let visible = candidates.into_iter().filter(|candidate| !candidate.starts_with(['@', '#']));
    portcullis_text::closest(name, visible).map(str::to_owned)
}
