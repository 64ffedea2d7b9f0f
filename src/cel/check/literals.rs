//! Checks of literals: durations, timestamps, patterns, format strings, and lists of mixed types. The API
//! server runs them after the type check.

use super::{CheckedAst, Reference};
use crate::library::format::{FormatClause, FormatPiece, piece};
use crate::library::regexp;
use crate::syntax::{Ast, Issue, Literal, NodeId, NodeKind};
use crate::types::Type;
use portcullis_text::{Timestamp, duration};

pub(super) fn validate(ast: &Ast, checked: &mut CheckedAst, issues: &mut Vec<Issue>) {
    let exempt = inside_format(ast);
    for (id, is_exempt) in exempt.into_iter().enumerate() {
        match &ast.node(id).kind {
            NodeKind::Call { function, arguments, target } => {
                let Some(first) = arguments.first() else { continue };
                if function == "format" && target.is_some() {
                    format(ast, checked, id, target.unwrap_or(id), *first, issues);
                    continue;
                }
                let NodeKind::Literal(literal) = &ast.node(*first).kind else { continue };
                if is_invalid_literal(function, literal) {
                    issues.push(Issue::new(ast.node(*first).offset, format!("invalid {function} argument")));
                }
            }
            NodeKind::List(items) if !is_exempt => {
                let types = items.iter().map(|(item, optional)| (*item, element(checked, *item, *optional)));
                check_same_type(ast, types, true, issues);
            }
            NodeKind::Map(entries) if !is_exempt => {
                let keys = entries.iter().map(|entry| (entry.key, checked.types[entry.key].clone()));
                check_same_type(ast, keys, false, issues);
                let values =
                    entries.iter().map(|entry| (entry.value, element(checked, entry.value, entry.optional)));
                check_same_type(ast, values, false, issues);
            }
            _ => {}
        }
    }
}

fn is_invalid_literal(function: &str, literal: &Literal) -> bool {
    match (function, literal) {
        ("duration", Literal::String(text)) => duration::parse_nanos(text).is_none(),
        ("duration", Literal::Int(_)) => true,
        ("timestamp", Literal::String(text)) => Timestamp::parse(text).is_err(),
        ("timestamp", Literal::Int(seconds)) => Timestamp::new(*seconds, 0).is_none(),
        ("matches", Literal::String(pattern)) => regexp::compile(pattern).is_err(),
        _ => false,
    }
}

fn element(checked: &CheckedAst, id: NodeId, optional: bool) -> Type {
    let found = &checked.types[id];
    let inner = found.unwrap_optional().filter(|_| optional);
    inner.unwrap_or(found).clone()
}

fn check_same_type(
    ast: &Ast,
    types: impl Iterator<Item = (NodeId, Type)>,
    once: bool,
    issues: &mut Vec<Issue>,
) {
    let mut wanted: Option<Type> = None;
    for (id, found) in types {
        match &wanted {
            None => wanted = Some(found),
            Some(first) if !same_kind(first, &found) => {
                let message = format!("expected type '{first}' but found '{found}'");
                issues.push(Issue::new(ast.node(id).offset, message));
                if once {
                    return;
                }
            }
            Some(_) => {}
        }
    }
}

/// Whether two types are equal, apart from parameters without a type.
fn same_kind(first: &Type, second: &Type) -> bool {
    match (first, second) {
        (Type::List(a), Type::List(b)) => same_kind(a, b),
        (Type::Map(a), Type::Map(b)) => same_kind(&a.0, &b.0) && same_kind(&a.1, &b.1),
        (Type::Opaque(a, x), Type::Opaque(b, y)) => {
            a == b && x.len() == y.len() && x.iter().zip(y.iter()).all(|(p, q)| same_kind(p, q))
        }
        (Type::Type(_), Type::Type(_)) => true,
        (a, b) => a == b,
    }
}

/// For each node, whether it is inside of a call of `format`, whose arguments may have mixed types.
fn inside_format(ast: &Ast) -> Vec<bool> {
    let is_format = |kind: &NodeKind| matches!(kind, NodeKind::Call { function, .. } if function == "format");
    let mut inside = vec![false; ast.len()];
    if !(0..ast.len()).any(|id| is_format(&ast.node(id).kind)) {
        return inside;
    }
    let mut open = vec![(ast.root(), false)];
    while let Some((id, within)) = open.pop() {
        if within && inside[id] {
            continue;
        }
        inside[id] |= within;
        let kind = &ast.node(id).kind;
        let within = within || is_format(kind);
        open.extend(ast.children(id).into_iter().map(|child| (child, within)));
    }
    inside
}

fn format(
    ast: &Ast,
    checked: &mut CheckedAst,
    id: NodeId,
    target: NodeId,
    list: NodeId,
    issues: &mut Vec<Issue>,
) {
    let (NodeKind::Literal(Literal::String(text)), NodeKind::List(items)) =
        (&ast.node(target).kind, &ast.node(list).kind)
    else {
        return;
    };
    if !matches!(checked.references[id], Some(Reference::Call { .. })) {
        return;
    }
    let offset = ast.node(id).offset;
    let mut rest = text.as_str();
    let mut used = 0;
    loop {
        if rest.starts_with('%') && !rest.starts_with("%%") && used >= items.len() {
            let why = if rest.len() == 1 {
                "unexpected end of string".to_owned()
            } else {
                format!("index {used} out of range")
            };
            return issues.push(Issue::new(offset, why));
        }
        let Some(next) = piece(rest) else { break };
        let (found, after) = match next {
            Ok(found) => found,
            Err(why) => return issues.push(Issue::new(offset, why)),
        };
        rest = after;
        if let FormatPiece::FormatClause(clause) = found {
            let argument = items[used].0;
            used += 1;
            if let Err(wrong) = fits(ast, checked, clause, argument) {
                let why = clause.refusal(checked.types[wrong].name());
                let message = format!("error during formatting: {why}");
                return issues.push(Issue::new(ast.node(wrong).offset, message));
            }
        }
    }
    if items.len() > used {
        let message =
            format!("too many arguments supplied to string.format (expected {used}, got {})", items.len());
        issues.push(Issue::new(offset, message));
    }
}

/// Whether an argument fits a placeholder.
///
/// # Errors
/// The node that does not fit.
fn fits(ast: &Ast, checked: &CheckedAst, clause: FormatClause, id: NodeId) -> Result<(), NodeId> {
    let found = &checked.types[id];
    let fine = match clause {
        _ if *found == Type::Dyn => true,
        FormatClause::Text => {
            !matches!(found, Type::Opaque(..) | Type::Struct(_) | Type::Error | Type::Param(_))
        }
        FormatClause::Decimal | FormatClause::Octal => matches!(found, Type::Int | Type::Uint),
        FormatClause::Fixed(_) | FormatClause::Scientific(_) => matches!(found, Type::Double | Type::String),
        FormatClause::Binary => matches!(found, Type::Int | Type::Uint | Type::Bool),
        FormatClause::Hex { .. } => matches!(found, Type::Int | Type::Uint | Type::String | Type::Bytes),
    };
    if !fine {
        return Err(id);
    }
    if clause == FormatClause::Text && matches!(ast.node(id).kind, NodeKind::List(_) | NodeKind::Map(_)) {
        ast.children(id).into_iter().try_for_each(|child| fits(ast, checked, clause, child))?;
    }
    Ok(())
}
