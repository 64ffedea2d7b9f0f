//! The macros of Kubernetes CEL and their expansions. An expansion has exactly the nodes of cel-go's, because
//! the cost of an evaluation depends on the nodes.

use super::parser::Parser;
use super::{Comprehension, Issue, Literal, MapEntry, NodeId, NodeKind};

/// The name of the accumulator of comprehensions. No source can write it.
pub(crate) const ACCUMULATOR: &str = "@result";
const LEGACY_ACCUMULATOR: &str = "__result__";
const UNUSED: &str = "#unused";

type Expansion = Result<NodeId, Issue>;

/// The expansion of a call; `None` when the call is not a macro.
pub(super) fn expand(
    parser: &mut Parser<'_>,
    offset: usize,
    function: &str,
    target: Option<NodeId>,
    arguments: &[NodeId],
) -> Option<Expansion> {
    let mut expander = MacroExpander { parser, offset };
    let Some(target) = target else {
        return (function == "has" && arguments.len() == 1).then(|| expander.has(arguments[0]));
    };
    Some(match (function, arguments) {
        ("all", [variable, predicate]) => {
            expander.quantifier(Quantifier::All, target, &[*variable], *predicate)
        }
        ("all", [first, second, predicate]) => {
            expander.quantifier(Quantifier::All, target, &[*first, *second], *predicate)
        }
        ("exists", [variable, predicate]) => {
            expander.quantifier(Quantifier::Any, target, &[*variable], *predicate)
        }
        ("exists", [first, second, predicate]) => {
            expander.quantifier(Quantifier::Any, target, &[*first, *second], *predicate)
        }
        ("exists_one", [variable, predicate]) => {
            expander.quantifier(Quantifier::One, target, &[*variable], *predicate)
        }
        ("exists_one" | "existsOne", [first, second, predicate]) => {
            expander.quantifier(Quantifier::One, target, &[*first, *second], *predicate)
        }
        ("map", [variable, transform]) => expander.list(target, &[*variable], None, *transform),
        ("map", [variable, filter, transform]) => {
            expander.list(target, &[*variable], Some(*filter), *transform)
        }
        ("filter", [variable, filter]) => expander.list(target, &[*variable], Some(*filter), *variable),
        ("transformList", [first, second, transform]) => {
            expander.list(target, &[*first, *second], None, *transform)
        }
        ("transformList", [first, second, filter, transform]) => {
            expander.list(target, &[*first, *second], Some(*filter), *transform)
        }
        ("transformMap", [first, second, transform]) => {
            expander.map(target, *first, *second, None, *transform, true)
        }
        ("transformMap", [first, second, filter, transform]) => {
            expander.map(target, *first, *second, Some(*filter), *transform, true)
        }
        ("transformMapEntry", [first, second, entry]) => {
            expander.map(target, *first, *second, None, *entry, false)
        }
        ("transformMapEntry", [first, second, filter, entry]) => {
            expander.map(target, *first, *second, Some(*filter), *entry, false)
        }
        ("optMap", [variable, transform]) => expander.optional(target, *variable, *transform, true),
        ("optFlatMap", [variable, transform]) => expander.optional(target, *variable, *transform, false),
        ("sortBy", [variable, key]) => expander.sort_by(target, *variable, *key),
        _ => return None,
    })
}

#[derive(Clone, Copy)]
enum Quantifier {
    All,
    Any,
    One,
}

struct MacroExpander<'p, 's> {
    parser: &'p mut Parser<'s>,
    offset: usize,
}

impl MacroExpander<'_, '_> {
    fn literal(&mut self, literal: Literal) -> NodeId {
        self.parser.add(self.offset, NodeKind::Literal(literal))
    }

    fn ident(&mut self, name: &str) -> NodeId {
        self.parser.add(self.offset, NodeKind::Ident(name.to_owned()))
    }

    fn accumulator(&mut self) -> NodeId {
        self.ident(ACCUMULATOR)
    }

    fn call(&mut self, function: &str, arguments: Vec<NodeId>) -> NodeId {
        self.parser.call(self.offset, function, arguments)
    }

    fn member(&mut self, function: &str, target: NodeId, arguments: Vec<NodeId>) -> NodeId {
        let kind = NodeKind::Call { function: function.to_owned(), target: Some(target), arguments };
        self.parser.add(self.offset, kind)
    }

    fn has(&mut self, argument: NodeId) -> Expansion {
        match self.parser.kind(argument).clone() {
            NodeKind::Select { operand, field, test: false } => {
                Ok(self.parser.add(self.offset, NodeKind::Select { operand, field, test: true }))
            }
            _ => Err(Issue::new(self.parser.offset(argument), "invalid argument to has() macro")),
        }
    }

    /// The names of one or two iteration variables.
    fn variables(&self, arguments: &[NodeId], refusal: &str) -> Result<(String, Option<String>), Issue> {
        let name = |id: NodeId| match self.parser.kind(id) {
            NodeKind::Ident(name) => Ok(name.clone()),
            _ => Err(Issue::new(self.parser.offset(id), refusal)),
        };
        let first = name(arguments[0])?;
        let second = arguments.get(1).map(|id| name(*id)).transpose()?;
        if second.as_ref() == Some(&first) {
            return Err(Issue::new(
                self.parser.offset(arguments[1]),
                format!("duplicate variable name: {first}"),
            ));
        }
        for (id, name) in arguments.iter().zip([Some(&first), second.as_ref()].into_iter().flatten()) {
            if name == ACCUMULATOR || name == LEGACY_ACCUMULATOR {
                let message = "iteration variable overwrites accumulator variable";
                return Err(Issue::new(self.parser.offset(*id), message));
            }
        }
        Ok((first, second))
    }

    fn fold(&mut self, fold: Comprehension) -> NodeId {
        self.parser.add(self.offset, NodeKind::Fold(Box::new(fold)))
    }

    fn quantifier(
        &mut self,
        kind: Quantifier,
        range: NodeId,
        variables: &[NodeId],
        predicate: NodeId,
    ) -> Expansion {
        let (variable, second) = self.variables(variables, "argument must be a simple name")?;
        let (init, condition, step, result) = match kind {
            Quantifier::All => {
                let init = self.literal(Literal::Bool(true));
                let so_far = self.accumulator();
                let condition = self.call("@not_strictly_false", vec![so_far]);
                let so_far = self.accumulator();
                (init, condition, self.call("_&&_", vec![so_far, predicate]), self.accumulator())
            }
            Quantifier::Any => {
                let init = self.literal(Literal::Bool(false));
                let so_far = self.accumulator();
                let not = self.call("!_", vec![so_far]);
                let condition = self.call("@not_strictly_false", vec![not]);
                let so_far = self.accumulator();
                (init, condition, self.call("_||_", vec![so_far, predicate]), self.accumulator())
            }
            Quantifier::One => {
                let init = self.literal(Literal::Int(0));
                let condition = self.literal(Literal::Bool(true));
                let (so_far, one) = (self.accumulator(), self.literal(Literal::Int(1)));
                let more = self.call("_+_", vec![so_far, one]);
                let so_far = self.accumulator();
                let step = self.call("_?_:_", vec![predicate, more, so_far]);
                let (so_far, one) = (self.accumulator(), self.literal(Literal::Int(1)));
                (init, condition, step, self.call("_==_", vec![so_far, one]))
            }
        };
        let accumulator = ACCUMULATOR.to_owned();
        Ok(self.fold(Comprehension { range, variable, second, accumulator, init, condition, step, result }))
    }

    /// Runs the step only for items that pass `filter`.
    fn filtered(&mut self, filter: Option<NodeId>, step: NodeId) -> NodeId {
        let Some(filter) = filter else { return step };
        let so_far = self.accumulator();
        self.call("_?_:_", vec![filter, step, so_far])
    }

    fn list(
        &mut self,
        range: NodeId,
        variables: &[NodeId],
        filter: Option<NodeId>,
        transform: NodeId,
    ) -> Expansion {
        let refusal = if variables.len() == 1 {
            "argument is not an identifier"
        } else {
            "argument must be a simple name"
        };
        let (variable, second) = self.variables(variables, refusal)?;
        let init = self.parser.add(self.offset, NodeKind::List(Vec::new()));
        let condition = self.literal(Literal::Bool(true));
        let so_far = self.accumulator();
        let item = self.parser.add(self.offset, NodeKind::List(vec![(transform, false)]));
        let step = self.call("_+_", vec![so_far, item]);
        let step = self.filtered(filter, step);
        let result = self.accumulator();
        let accumulator = ACCUMULATOR.to_owned();
        Ok(self.fold(Comprehension { range, variable, second, accumulator, init, condition, step, result }))
    }

    fn map(
        &mut self,
        range: NodeId,
        first: NodeId,
        second: NodeId,
        filter: Option<NodeId>,
        transform: NodeId,
        keyed: bool,
    ) -> Expansion {
        let (variable, second) = self.variables(&[first, second], "argument must be a simple name")?;
        let init = self.parser.add(self.offset, NodeKind::Map(Vec::<MapEntry>::new()));
        let condition = self.literal(Literal::Bool(true));
        let mut arguments = vec![self.accumulator()];
        if keyed {
            arguments.push(self.ident(&variable));
        }
        arguments.push(transform);
        let step = self.call("cel.@mapInsert", arguments);
        let step = self.filtered(filter, step);
        let result = self.accumulator();
        let accumulator = ACCUMULATOR.to_owned();
        Ok(self.fold(Comprehension { range, variable, second, accumulator, init, condition, step, result }))
    }

    fn optional(&mut self, target: NodeId, variable: NodeId, transform: NodeId, wrap: bool) -> Expansion {
        let NodeKind::Ident(name) = self.parser.kind(variable).clone() else {
            let macro_name = if wrap { "optMap" } else { "optFlatMap" };
            let message = format!("{macro_name}() variable name must be a simple identifier");
            return Err(Issue::new(self.parser.offset(variable), message));
        };
        let copied = self.copy(target);
        let has = self.member("hasValue", target, Vec::new());
        let bound = self.bind(name, copied, transform, true);
        let yes = if wrap { self.call("optional.of", vec![bound]) } else { bound };
        let no = self.call("optional.none", Vec::new());
        Ok(self.call("_?_:_", vec![has, yes, no]))
    }

    /// `result` with `name` bound to `value`, or to `value.value()`. It is a loop without rounds whose
    /// accumulator is `name`.
    fn bind(&mut self, name: String, value: NodeId, result: NodeId, unwrap: bool) -> NodeId {
        let range = self.parser.add(self.offset, NodeKind::List(Vec::new()));
        let init = if unwrap { self.member("value", value, Vec::new()) } else { value };
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(&name);
        let variable = UNUSED.to_owned();
        self.fold(Comprehension {
            range,
            variable,
            second: None,
            accumulator: name,
            init,
            condition,
            step,
            result,
        })
    }

    fn sort_by(&mut self, target: NodeId, variable: NodeId, key: NodeId) -> Expansion {
        if !matches!(
            self.parser.kind(target),
            NodeKind::List(_)
                | NodeKind::Select { .. }
                | NodeKind::Ident(_)
                | NodeKind::Call { .. }
                | NodeKind::Fold(_)
        ) {
            return Err(Issue::new(
                self.parser.offset(target),
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
            ));
        }
        let name = "@__sortBy_input__".to_owned();
        let input = self.ident(&name);
        let keys = self.list(input, &[variable], None, key)?;
        let input = self.ident(&name);
        let sorted = self.member("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.bind(name, target, sorted, false))
    }

    /// A copy of a tree with the same offsets.
    fn copy(&mut self, id: NodeId) -> NodeId {
        if self.parser.is_full(self.offset) {
            return id;
        }
        let offset = self.parser.offset(id);
        let mut kind = self.parser.kind(id).clone();
        match &mut kind {
            NodeKind::Literal(_) | NodeKind::Ident(_) => {}
            NodeKind::Select { operand, .. } => *operand = self.copy(*operand),
            NodeKind::Call { target, arguments, .. } => {
                for child in target.iter_mut().chain(arguments) {
                    *child = self.copy(*child);
                }
            }
            NodeKind::List(items) => {
                for (item, _) in items {
                    *item = self.copy(*item);
                }
            }
            NodeKind::Map(entries) | NodeKind::Message { fields: entries, .. } => {
                for entry in entries {
                    entry.key = self.copy(entry.key);
                    entry.value = self.copy(entry.value);
                }
            }
            NodeKind::Fold(fold) => {
                for child in
                    [&mut fold.range, &mut fold.init, &mut fold.condition, &mut fold.step, &mut fold.result]
                {
                    *child = self.copy(*child);
                }
            }
        }
        self.parser.add(offset, kind)
    }
}
