//! The grammar of CEL: tokens, tree and parser. Every node knows the byte where it stands in the source, so that a message
//! can point at it; macros are expanded while parsing, and their nodes stand where the macro's call stands, as in cel-go.
//!
//! Our own parser. The crate `cel` (0.15) comes near: its nodes have positions and its depth is bounded. But its macros lack the
//! two-variable comprehensions and `sortBy` and have an `existsOne` that Kubernetes has not, while the API server's costs follow the
//! expansion node by node; and its public parser is built on ANTLR, ten times as slow as the hand-written one that it hides.
//! The grammar is small.
//!
//! Invariant: a tree is at most [`DEPTH`] nodes deep, so whoever walks it may recurse.

mod literal;
mod macros;
mod parser;
mod token;

pub(crate) use macros::ACCUMULATOR;
pub use parser::is_identifier;
pub(crate) use parser::parse;

/// The deepest tree that is accepted. cel-go stops at 250 nested rules.
pub(crate) const DEPTH: u16 = 200;

/// The longest source that is accepted, in bytes. cel-go stops at 100,000 code points.
pub(crate) const LENGTH: usize = 100_000;

/// A node of an [`Ast`], by position in it.
pub(crate) type Id = usize;

/// A constant as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// `1`, `-0x10`
    Int(i64),
    /// `1u`
    Uint(u64),
    /// `1.5`
    Double(f64),
    /// `"text"`, escapes resolved
    String(String),
    /// `b"bytes"`, escapes resolved
    Bytes(Vec<u8>),
}

/// One entry of a map or message literal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Where its colon stands, in bytes.
    pub(crate) offset: usize,
    /// The key; for a message the field name as a string literal.
    pub(crate) key: Id,
    /// The value.
    pub(crate) value: Id,
    /// Written with `?`: left out when the value is `optional.none()`.
    pub(crate) optional: bool,
}

/// A loop over a list or map: what the comprehension macros expand to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fold {
    /// What is walked.
    pub(crate) range: Id,
    /// The element, or with a second variable the index or key.
    pub(crate) variable: String,
    /// The element or value, for macros with two variables.
    pub(crate) second: Option<String>,
    /// The name of the accumulator.
    pub(crate) accumulator: String,
    /// What the accumulator starts as.
    pub(crate) init: Id,
    /// Whether to go on.
    pub(crate) condition: Id,
    /// What the accumulator becomes.
    pub(crate) step: Id,
    /// What the whole is worth.
    pub(crate) result: Id,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A constant.
    Literal(Literal),
    /// A name; with a leading dot when it was written so.
    Ident(String),
    /// `operand.field`, or with `test` the macro `has(operand.field)`.
    Select {
        /// What is selected from.
        operand: Id,
        /// The field.
        field: String,
        /// Asks only whether the field is there.
        test: bool,
    },
    /// `function(arguments)` or `target.function(arguments)`; operators are functions such as `_+_`.
    Call {
        /// The name.
        function: String,
        /// What stands before the dot.
        target: Option<Id>,
        /// What stands in the parentheses.
        arguments: Vec<Id>,
    },
    /// `[a, ?b]`: each item with whether it is optional.
    List(Vec<(Id, bool)>),
    /// `{k: v}`
    Map(Vec<Entry>),
    /// `Name{field: value}`
    Message {
        /// The name of the type.
        name: String,
        /// The fields.
        fields: Vec<Entry>,
    },
    /// A comprehension.
    Fold(Box<Fold>),
}

/// A node and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// Bytes from the start of the source.
    pub(crate) offset: usize,
    /// What it is.
    pub(crate) kind: Kind,
    /// How deep the tree below it is.
    depth: u16,
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ast {
    nodes: Vec<Node>,
    root: Id,
}

impl Ast {
    /// The node of the whole expression.
    pub(crate) fn root(&self) -> Id {
        self.root
    }

    /// A node.
    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id]
    }

    /// How many nodes there are; ids are smaller.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes right below a node, in the order in which they are written.
    pub(crate) fn children(&self, id: Id) -> Vec<Id> {
        let mut found = Vec::new();
        parser::for_each_child(&self.nodes[id].kind, |child| found.push(child));
        found
    }

    /// `a.b.c` when the node is nothing but names.
    pub(crate) fn qualified_name(&self, id: Id) -> Option<String> {
        match &self.node(id).kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select { operand, field, test: false } => {
                let mut name = self.qualified_name(*operand)?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }
}

/// What is wrong with an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Issue {
    /// Bytes from the start of the source.
    pub offset: usize,
    /// In cel-go's words, where the API server shows them.
    pub message: String,
    /// A name that may have been meant.
    pub suggestion: Option<String>,
}

impl Issue {
    pub(crate) fn new(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, message: message.into(), suggestion: None }
    }

    /// Line from 1 and column from 0, in characters, as the API server counts them.
    #[must_use]
    pub fn position(&self, source: &str) -> (usize, usize) {
        let before = source.get(..self.offset).unwrap_or(source);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        (line, column)
    }
}
