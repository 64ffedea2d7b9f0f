//! The macros of Kubernetes CEL and their expansions. An expansion has exactly the nodes of cel-go's, because
//! the cost of an evaluation depends on the nodes.

use super::parser::Parser;
use super::{Entry, Fold, Id, Issue, Kind, Literal};

/// The name of the accumulator of comprehensions. No source can write it.
pub(crate) const ACCUMULATOR: &str = "@result";
const OLD_ACCUMULATOR: &str = "__result__";
const UNUSED: &str = "#unused";

type Expansion = Result<Id, Issue>;

/// The expansion of a call; `None` when the call is not a macro.
pub(super) fn expand(
    parser: &mut Parser<'_>,
    offset: usize,
    function: &str,
    target: Option<Id>,
    arguments: &[Id],
) -> Option<Expansion> {
    let mut maker = Maker { parser, offset };
    let Some(target) = target else {
        return (function == "has" && arguments.len() == 1).then(|| maker.has(arguments[0]));
    };
    Some(match (function, arguments) {
        ("all", [variable, predicate]) => maker.quantifier(Quantifier::All, target, &[*variable], *predicate),
        ("all", [first, second, predicate]) => {
            maker.quantifier(Quantifier::All, target, &[*first, *second], *predicate)
        }
        ("exists", [variable, predicate]) => {
            maker.quantifier(Quantifier::Any, target, &[*variable], *predicate)
        }
        ("exists", [first, second, predicate]) => {
            maker.quantifier(Quantifier::Any, target, &[*first, *second], *predicate)
        }
        ("exists_one", [variable, predicate]) => {
            maker.quantifier(Quantifier::One, target, &[*variable], *predicate)
        }
        ("exists_one" | "existsOne", [first, second, predicate]) => {
            maker.quantifier(Quantifier::One, target, &[*first, *second], *predicate)
        }
        ("map", [variable, transform]) => maker.list(target, &[*variable], None, *transform),
        ("map", [variable, filter, transform]) => maker.list(target, &[*variable], Some(*filter), *transform),
        ("filter", [variable, filter]) => maker.list(target, &[*variable], Some(*filter), *variable),
        ("transformList", [first, second, transform]) => {
            maker.list(target, &[*first, *second], None, *transform)
        }
        ("transformList", [first, second, filter, transform]) => {
            maker.list(target, &[*first, *second], Some(*filter), *transform)
        }
        ("transformMap", [first, second, transform]) => {
            maker.map(target, *first, *second, None, *transform, true)
        }
        ("transformMap", [first, second, filter, transform]) => {
            maker.map(target, *first, *second, Some(*filter), *transform, true)
        }
        ("transformMapEntry", [first, second, entry]) => {
            maker.map(target, *first, *second, None, *entry, false)
        }
        ("transformMapEntry", [first, second, filter, entry]) => {
            maker.map(target, *first, *second, Some(*filter), *entry, false)
        }
        ("optMap", [variable, transform]) => maker.optional(target, *variable, *transform, true),
        ("optFlatMap", [variable, transform]) => maker.optional(target, *variable, *transform, false),
        ("sortBy", [variable, key]) => maker.sort_by(target, *variable, *key),
        _ => return None,
    })
}

#[derive(Clone, Copy)]
enum Quantifier {
    All,
    Any,
    One,
}

struct Maker<'p, 's> {
    parser: &'p mut Parser<'s>,
    offset: usize,
}

impl Maker<'_, '_> {
    fn literal(&mut self, literal: Literal) -> Id {
        self.parser.add(self.offset, Kind::Literal(literal))
    }

    fn ident(&mut self, name: &str) -> Id {
        self.parser.add(self.offset, Kind::Ident(name.to_owned()))
    }

    fn accumulator(&mut self) -> Id {
        self.ident(ACCUMULATOR)
    }

    fn call(&mut self, function: &str, arguments: Vec<Id>) -> Id {
        self.parser.call(self.offset, function, arguments)
    }

    fn member(&mut self, function: &str, target: Id, arguments: Vec<Id>) -> Id {
        let kind = Kind::Call { function: function.to_owned(), target: Some(target), arguments };
        self.parser.add(self.offset, kind)
    }

    fn has(&mut self, argument: Id) -> Expansion {
        match self.parser.kind(argument).clone() {
            Kind::Select { operand, field, test: false } => {
                Ok(self.parser.add(self.offset, Kind::Select { operand, field, test: true }))
            }
            _ => Err(Issue::new(self.parser.offset(argument), "invalid argument to has() macro")),
        }
    }

    /// The names of one or two iteration variables.
    fn variables(&self, arguments: &[Id], refusal: &str) -> Result<(String, Option<String>), Issue> {
        let name = |id: Id| match self.parser.kind(id) {
            Kind::Ident(name) => Ok(name.clone()),
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
            if name == ACCUMULATOR || name == OLD_ACCUMULATOR {
                let message = "iteration variable overwrites accumulator variable";
                return Err(Issue::new(self.parser.offset(*id), message));
            }
        }
        Ok((first, second))
    }

    fn fold(&mut self, fold: Fold) -> Id {
        self.parser.add(self.offset, Kind::Fold(Box::new(fold)))
    }

    fn quantifier(&mut self, kind: Quantifier, range: Id, variables: &[Id], predicate: Id) -> Expansion {
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
        Ok(self.fold(Fold { range, variable, second, accumulator, init, condition, step, result }))
    }

    /// Runs the step only for items that pass `filter`.
    fn filtered(&mut self, filter: Option<Id>, step: Id) -> Id {
        let Some(filter) = filter else { return step };
        let so_far = self.accumulator();
        self.call("_?_:_", vec![filter, step, so_far])
    }

    fn list(&mut self, range: Id, variables: &[Id], filter: Option<Id>, transform: Id) -> Expansion {
        let refusal = if variables.len() == 1 {
            "argument is not an identifier"
        } else {
            "argument must be a simple name"
        };
        let (variable, second) = self.variables(variables, refusal)?;
        let init = self.parser.add(self.offset, Kind::List(Vec::new()));
        let condition = self.literal(Literal::Bool(true));
        let so_far = self.accumulator();
        let item = self.parser.add(self.offset, Kind::List(vec![(transform, false)]));
        let step = self.call("_+_", vec![so_far, item]);
        let step = self.filtered(filter, step);
        let result = self.accumulator();
        let accumulator = ACCUMULATOR.to_owned();
        Ok(self.fold(Fold { range, variable, second, accumulator, init, condition, step, result }))
    }

    fn map(
        &mut self,
        range: Id,
        first: Id,
        second: Id,
        filter: Option<Id>,
        transform: Id,
        keyed: bool,
    ) -> Expansion {
        let (variable, second) = self.variables(&[first, second], "argument must be a simple name")?;
        let init = self.parser.add(self.offset, Kind::Map(Vec::<Entry>::new()));
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
        Ok(self.fold(Fold { range, variable, second, accumulator, init, condition, step, result }))
    }

    fn optional(&mut self, target: Id, variable: Id, transform: Id, wrap: bool) -> Expansion {
        let Kind::Ident(name) = self.parser.kind(variable).clone() else {
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
    fn bind(&mut self, name: String, value: Id, result: Id, unwrap: bool) -> Id {
        let range = self.parser.add(self.offset, Kind::List(Vec::new()));
        let init = if unwrap { self.member("value", value, Vec::new()) } else { value };
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(&name);
        let variable = UNUSED.to_owned();
        self.fold(Fold { range, variable, second: None, accumulator: name, init, condition, step, result })
    }

    fn sort_by(&mut self, target: Id, variable: Id, key: Id) -> Expansion {
        if !matches!(
            self.parser.kind(target),
            Kind::List(_) | Kind::Select { .. } | Kind::Ident(_) | Kind::Call { .. } | Kind::Fold(_)
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
    fn copy(&mut self, id: Id) -> Id {
        if self.parser.is_full(self.offset) {
            return id;
        }
        let offset = self.parser.offset(id);
        let mut kind = self.parser.kind(id).clone();
        match &mut kind {
            Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select { operand, .. } => *operand = self.copy(*operand),
            Kind::Call { target, arguments, .. } => {
                for child in target.iter_mut().chain(arguments) {
                    *child = self.copy(*child);
                }
            }
            Kind::List(items) => {
                for (item, _) in items {
                    *item = self.copy(*item);
                }
            }
            Kind::Map(entries) | Kind::Message { fields: entries, .. } => {
                for entry in entries {
                    entry.key = self.copy(entry.key);
                    entry.value = self.copy(entry.value);
                }
            }
            Kind::Fold(fold) => {
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
