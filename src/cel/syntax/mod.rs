//! The grammar of CEL: tokens, parser and syntax tree. Every node knows its byte offset in the source, so
//! that messages can point at it. The parser expands macros; their nodes have the offset of the macro call,
//! as in cel-go.
//!
//! Why an own parser: the crate `cel` (0.15) comes close, with positions and bounded depth. But its macros
//! lack the two-variable comprehensions and `sortBy`, and it has an `existsOne` that Kubernetes does not
//! have, while the API server's costs follow the expansion node by node. Its public parser is built on ANTLR
//! and ten times as slow as its internal hand-written one. The grammar is small.
//!
//! Invariant: a tree is at most [`MAX_TREE_DEPTH`] nodes deep, so code that walks it may recurse.

mod literal;
mod macros;
mod parser;
mod token;

pub(crate) use macros::ACCUMULATOR;
pub use parser::is_identifier;
pub(crate) use parser::parse;

/// Maximum depth of a tree. cel-go allows 250 nested grammar rules.
pub(crate) const MAX_TREE_DEPTH: u16 = 200;

/// Maximum length of a source in bytes. cel-go allows 100,000 code points.
pub(crate) const MAX_SOURCE_BYTES: usize = 100_000;

/// The index of a node in an [`Ast`].
pub(crate) type NodeId = usize;

/// A constant in the source.
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
pub(crate) struct MapEntry {
    /// Byte offset of the colon.
    pub(crate) offset: usize,
    /// The key. For a message it is the field name as a string literal.
    pub(crate) key: NodeId,
    pub(crate) value: NodeId,
    /// Whether it is written with `?`: then the entry is left out when the value is `optional.none()`.
    pub(crate) optional: bool,
}

/// A loop over a list or map: the expansion of the comprehension macros.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comprehension {
    /// The list or map.
    pub(crate) range: NodeId,
    /// The variable of the item. With a second variable it is that of the index or key.
    pub(crate) variable: String,
    /// The variable of the item or value, for macros with two variables.
    pub(crate) second: Option<String>,
    /// The name of the accumulator.
    pub(crate) accumulator: String,
    /// The first value of the accumulator.
    pub(crate) init: NodeId,
    /// The loop ends when this is false.
    pub(crate) condition: NodeId,
    /// The next value of the accumulator.
    pub(crate) step: NodeId,
    /// The value of the whole expression.
    pub(crate) result: NodeId,
}

/// The kind of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeKind {
    /// A constant.
    Literal(Literal),
    /// A name, with the leading dot if it has one.
    Ident(String),
    /// `operand.field`, or with `test` the macro `has(operand.field)`.
    Select {
        operand: NodeId,
        field: String,
        /// Whether it only tests for the field.
        test: bool,
    },
    /// `function(arguments)` or `target.function(arguments)`; operators are functions such as `_+_`.
    Call {
        function: String,
        /// The operand before the dot.
        target: Option<NodeId>,
        arguments: Vec<NodeId>,
    },
    /// `[a, ?b]`: each item, and whether it is optional.
    List(Vec<(NodeId, bool)>),
    /// `{k: v}`
    Map(Vec<MapEntry>),
    /// `Name{field: value}`
    Message { name: String, fields: Vec<MapEntry> },
    /// A comprehension.
    Fold(Box<Comprehension>),
}

/// A node of the syntax tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AstNode {
    /// Byte offset in the source.
    pub(crate) offset: usize,
    pub(crate) kind: NodeKind,
    /// Depth of the tree below it.
    depth: u16,
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ast {
    nodes: Vec<AstNode>,
    root: NodeId,
}

impl Ast {
    /// The node of the whole expression.
    pub(crate) fn root(&self) -> NodeId {
        self.root
    }

    /// A node.
    pub(crate) fn node(&self, id: NodeId) -> &AstNode {
        &self.nodes[id]
    }

    /// The number of nodes. Every id is smaller.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The children of a node, in source order.
    pub(crate) fn children(&self, id: NodeId) -> Vec<NodeId> {
        let mut found = Vec::new();
        parser::for_each_child(&self.nodes[id].kind, |child| found.push(child));
        found
    }

    /// `a.b.c`, when the node consists of names only.
    pub(crate) fn qualified_name(&self, id: NodeId) -> Option<String> {
        match &self.node(id).kind {
            NodeKind::Ident(name) => Some(name.clone()),
            NodeKind::Select { operand, field, test: false } => {
                let mut name = self.qualified_name(*operand)?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }
}

/// A problem of an expression, and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Issue {
    /// Byte offset in the source.
    pub offset: usize,
    /// The message, in the words of cel-go where the API server shows them.
    pub message: String,
    /// The name that the user probably meant.
    pub suggestion: Option<String>,
}

impl Issue {
    pub(crate) fn new(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, message: message.into(), suggestion: None }
    }

    /// Line counted from 1 and column counted from 0, in characters, as in the API server.
    #[must_use]
    pub fn position(&self, source: &str) -> (usize, usize) {
        let before = source.get(..self.offset).unwrap_or(source);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        (line, column)
    }
}
