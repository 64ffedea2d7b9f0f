//! The parser: precedence climbing over tokens. It collects issues as long as it can build a tree: reserved
//! names, misused macros, numbers out of range. It stops at the first syntax error.

use super::macros;
use super::token::{SpannedToken, Token, tokens};
use super::{
    Ast, AstNode, Issue, Literal, MAX_SOURCE_BYTES, MAX_TREE_DEPTH, MapEntry, NodeId, NodeKind, literal,
};

const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Whether a text can be the name of a variable.
#[must_use]
pub fn is_identifier(name: &str) -> bool {
    !RESERVED.contains(&name)
        && name.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic())
        && name.chars().all(|each| each == '_' || each.is_ascii_alphanumeric())
}

/// Parses an expression.
///
/// # Errors
/// Every issue, with its position.
pub(crate) fn parse(source: &str) -> Result<Ast, Vec<Issue>> {
    if source.len() > MAX_SOURCE_BYTES {
        let message = format!(
            "expression code point size exceeds limit: size: {}, limit {MAX_SOURCE_BYTES}",
            source.len()
        );
        return Err(vec![Issue::new(0, message)]);
    }
    let mut issues = Vec::new();
    let tokens = tokens(source, &mut issues);
    if !issues.is_empty() {
        return Err(issues);
    }
    let nodes = Vec::with_capacity(tokens.len());
    let mut parser = Parser { source, tokens, at: 0, nodes, issues, nesting: 0 };
    let root = parser.expression().and_then(|root| {
        parser.expect_end()?;
        Ok(root)
    });
    match root {
        Ok(root) if parser.issues.is_empty() => Ok(Ast { nodes: parser.nodes, root }),
        Ok(_) => Err(parser.issues),
        Err(issue) => {
            parser.issues.push(issue);
            Err(parser.issues)
        }
    }
}

pub(super) struct Parser<'s> {
    source: &'s str,
    tokens: Vec<SpannedToken>,
    at: usize,
    nodes: Vec<AstNode>,
    issues: Vec<Issue>,
    nesting: u16,
}

type ParseResult = Result<NodeId, Issue>;

impl Parser<'_> {
    pub(super) fn kind(&self, id: NodeId) -> &NodeKind {
        &self.nodes[id].kind
    }

    pub(super) fn offset(&self, id: NodeId) -> usize {
        self.nodes[id].offset
    }

    pub(super) fn report(&mut self, offset: usize, message: impl Into<String>) {
        self.issues.push(Issue::new(offset, message));
    }

    /// Adds a node. A tree that becomes too deep is reported once.
    pub(super) fn add(&mut self, offset: usize, kind: NodeKind) -> NodeId {
        let mut depth = 1;
        for_each_child(&kind, |id| depth = depth.max(1 + self.nodes[id].depth));
        if depth == MAX_TREE_DEPTH + 1 {
            self.report(offset, "max recursion depth exceeded");
        }
        self.nodes.push(AstNode { offset, kind, depth });
        self.nodes.len() - 1
    }

    /// Whether the tree has too many nodes, which is reported once. Macros copy trees, so nested macros grow
    /// exponentially.
    pub(super) fn is_full(&mut self, offset: usize) -> bool {
        const MAX_NODES: usize = 50_000;
        let full = self.nodes.len() > MAX_NODES;
        let message = "expression is too large after its macros are expanded";
        if full && self.issues.last().is_none_or(|issue| issue.message != message) {
            self.report(offset, message);
        }
        full
    }

    pub(super) fn call(&mut self, offset: usize, function: &str, arguments: Vec<NodeId>) -> NodeId {
        self.add(offset, NodeKind::Call { function: function.to_owned(), target: None, arguments })
    }

    fn current(&self) -> SpannedToken {
        self.tokens[self.at]
    }

    fn text(&self, token: SpannedToken) -> &str {
        &self.source[token.start..token.end]
    }

    fn advance(&mut self) -> SpannedToken {
        let token = self.current();
        if token.token != Token::End {
            self.at += 1;
        }
        token
    }

    fn is(&self, symbol: &'static str) -> bool {
        self.current().token == Token::Symbol(symbol)
    }

    fn is_next(&self, symbol: &'static str) -> bool {
        self.tokens.get(self.at + 1).is_some_and(|next| next.token == Token::Symbol(symbol))
    }

    fn take(&mut self, symbol: &'static str) -> Option<usize> {
        self.is(symbol).then(|| self.advance().start)
    }

    fn unexpected(&self, wanted: &str) -> Issue {
        let token = self.current();
        let text = if token.token == Token::End { "<EOF>" } else { self.text(token) };
        Issue::new(token.start, format!("Syntax error: mismatched input '{text}' expecting {wanted}"))
    }

    fn expect(&mut self, symbol: &'static str) -> Result<usize, Issue> {
        self.take(symbol).ok_or_else(|| self.unexpected(&format!("'{symbol}'")))
    }

    fn expect_end(&self) -> Result<(), Issue> {
        if self.current().token == Token::End { Ok(()) } else { Err(self.unexpected("<EOF>")) }
    }

    fn expression(&mut self) -> ParseResult {
        if self.nesting > MAX_TREE_DEPTH / 2 {
            return Err(Issue::new(self.current().start, "expression recursion limit exceeded"));
        }
        self.nesting += 1;
        let parsed = self.conditional();
        self.nesting -= 1;
        parsed
    }

    fn conditional(&mut self) -> ParseResult {
        let condition = self.logical("||")?;
        let Some(offset) = self.take("?") else { return Ok(condition) };
        let yes = self.logical("||")?;
        self.expect(":")?;
        let no = self.expression()?;
        Ok(self.call(offset, "_?_:_", vec![condition, yes, no]))
    }

    fn logical(&mut self, symbol: &'static str) -> ParseResult {
        let mut terms = vec![self.operand_of_logic(symbol)?];
        let mut operators = Vec::new();
        while let Some(offset) = self.take(symbol) {
            operators.push(offset);
            terms.push(self.operand_of_logic(symbol)?);
        }
        if operators.is_empty() {
            return Ok(terms[0]);
        }
        let function = if symbol == "||" { "_||_" } else { "_&&_" };
        Ok(self.balance(function, &terms, &operators))
    }

    fn operand_of_logic(&mut self, symbol: &'static str) -> ParseResult {
        if symbol == "||" { self.logical("&&") } else { self.relation() }
    }

    /// Builds a tree of logarithmic depth from a chain of one operator. There is one more term than
    /// operators.
    fn balance(&mut self, function: &str, terms: &[NodeId], operators: &[usize]) -> NodeId {
        let middle = operators.len() / 2;
        let left = if middle == 0 {
            terms[0]
        } else {
            self.balance(function, &terms[..=middle], &operators[..middle])
        };
        let right = if middle + 1 == operators.len() {
            terms[middle + 1]
        } else {
            self.balance(function, &terms[middle + 1..], &operators[middle + 1..])
        };
        self.call(operators[middle], function, vec![left, right])
    }

    fn relation(&mut self) -> ParseResult {
        self.chain(
            &[
                ("<", "_<_"),
                ("<=", "_<=_"),
                (">=", "_>=_"),
                (">", "_>_"),
                ("==", "_==_"),
                ("!=", "_!=_"),
                ("in", "@in"),
            ],
            Self::sum,
        )
    }

    fn sum(&mut self) -> ParseResult {
        self.chain(&[("+", "_+_"), ("-", "_-_")], Self::product)
    }

    fn product(&mut self) -> ParseResult {
        self.chain(&[("*", "_*_"), ("/", "_/_"), ("%", "_%_")], Self::unary)
    }

    fn chain(
        &mut self,
        operators: &[(&'static str, &str)],
        operand: fn(&mut Self) -> ParseResult,
    ) -> ParseResult {
        let mut left = operand(self)?;
        while let Some((symbol, function)) = operators.iter().find(|(symbol, _)| self.is(symbol)) {
            let offset = self.expect(symbol)?;
            let right = operand(self)?;
            left = self.call(offset, function, vec![left, right]);
            if self.nodes[left].depth > MAX_TREE_DEPTH {
                return Err(Issue::new(offset, "max recursion depth exceeded"));
            }
        }
        Ok(left)
    }

    fn unary(&mut self) -> ParseResult {
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            if !self.is(symbol) {
                continue;
            }
            let negative = symbol == "-"
                && self
                    .tokens
                    .get(self.at + 1)
                    .is_some_and(|t| matches!(t.token, Token::Int | Token::Double));
            if negative {
                break;
            }
            let offset = self.expect(symbol)?;
            let mut count = 1;
            while self.take(symbol).is_some() {
                count += 1;
            }
            let operand = self.member()?;
            return Ok(if count % 2 == 0 { operand } else { self.call(offset, function, vec![operand]) });
        }
        self.member()
    }

    fn member(&mut self) -> ParseResult {
        let mut operand = self.primary()?;
        loop {
            if let Some(offset) = self.take(".") {
                let optional = self.take("?").is_some();
                let name = self.advance();
                let field = match name.token {
                    Token::Ident => self.text(name).to_owned(),
                    Token::Escaped => {
                        self.report(name.start, "unsupported syntax: '`'");
                        self.text(name).trim_matches('`').to_owned()
                    }
                    _ => {
                        self.at -= usize::from(name.token != Token::End);
                        return Err(self.unexpected("{IDENTIFIER, ESC_IDENTIFIER}"));
                    }
                };
                operand = if optional {
                    let field = self.add(name.start, NodeKind::Literal(Literal::String(field)));
                    self.call(offset, "_?._", vec![operand, field])
                } else if name.token == Token::Ident && self.is("(") {
                    let offset = self.expect("(")?;
                    let arguments = self.arguments(")")?;
                    self.call_or_macro(offset, &field, Some(operand), arguments)
                } else {
                    self.add(offset, NodeKind::Select { operand, field, test: false })
                };
            } else if let Some(offset) = self.take("[") {
                let function = if self.take("?").is_some() { "_[?_]" } else { "_[_]" };
                let index = self.expression()?;
                self.expect("]")?;
                operand = self.call(offset, function, vec![operand, index]);
            } else {
                return Ok(operand);
            }
            if self.nodes[operand].depth > MAX_TREE_DEPTH {
                return Err(Issue::new(self.current().start, "max recursion depth exceeded"));
            }
        }
    }

    fn arguments(&mut self, close: &'static str) -> Result<Vec<NodeId>, Issue> {
        let mut found = Vec::new();
        if self.take(close).is_some() {
            return Ok(found);
        }
        loop {
            found.push(self.expression()?);
            if self.take(",").is_none() {
                self.expect(close)?;
                return Ok(found);
            }
        }
    }

    fn call_or_macro(
        &mut self,
        offset: usize,
        function: &str,
        target: Option<NodeId>,
        arguments: Vec<NodeId>,
    ) -> NodeId {
        match macros::expand(self, offset, function, target, &arguments) {
            Some(Ok(expanded)) => expanded,
            Some(Err(issue)) => {
                self.issues.push(issue);
                self.add(offset, NodeKind::Literal(Literal::Null))
            }
            None => self.add(offset, NodeKind::Call { function: function.to_owned(), target, arguments }),
        }
    }

    fn primary(&mut self) -> ParseResult {
        let token = self.current();
        match token.token {
            Token::Symbol("(") => {
                self.advance();
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Symbol("[") => self.list(),
            Token::Symbol("{") => {
                self.advance();
                let entries = self.entries(false)?;
                Ok(self.add(token.start, NodeKind::Map(entries)))
            }
            Token::Symbol(".") | Token::Ident => self.name(),
            _ => self.literal(),
        }
    }

    fn list(&mut self) -> ParseResult {
        let offset = self.expect("[")?;
        let mut items = Vec::new();
        while !self.is("]") {
            if self.is(",") && self.is_next("]") {
                self.advance();
                break;
            }
            if !items.is_empty() {
                self.expect(",")?;
            }
            let optional = self.take("?").is_some();
            items.push((self.expression()?, optional));
        }
        self.expect("]")?;
        Ok(self.add(offset, NodeKind::List(items)))
    }

    /// The entries of a map or the fields of a message, up to the closing brace.
    fn entries(&mut self, message: bool) -> Result<Vec<MapEntry>, Issue> {
        let mut entries = Vec::new();
        while !self.is("}") {
            if self.is(",") && self.is_next("}") {
                self.advance();
                break;
            }
            if !entries.is_empty() {
                self.expect(",")?;
            }
            let optional = self.take("?").is_some();
            let key = if message {
                let name = self.advance();
                if !matches!(name.token, Token::Ident | Token::Escaped) {
                    self.at -= usize::from(name.token != Token::End);
                    return Err(self.unexpected("{IDENTIFIER, ESC_IDENTIFIER}"));
                }
                let field = self.text(name).trim_matches('`').to_owned();
                self.add(name.start, NodeKind::Literal(Literal::String(field)))
            } else {
                self.expression()?
            };
            let offset = self.expect(":")?;
            let value = self.expression()?;
            entries.push(MapEntry { offset, key, value, optional });
        }
        self.expect("}")?;
        Ok(entries)
    }

    /// A name, a global function call or a message.
    fn name(&mut self) -> ParseResult {
        let start = self.current().start;
        let dot = self.take(".").map_or("", |_| ".");
        let token = self.current();
        if token.token != Token::Ident {
            return Err(self.unexpected("IDENTIFIER"));
        }
        if let Some(ahead) = self.message_ahead() {
            let mut name = format!("{dot}{}", self.text(token));
            for part in (self.at + 2..ahead).step_by(2) {
                name.push('.');
                name.push_str(self.text(self.tokens[part]));
            }
            self.at = ahead;
            let offset = self.expect("{")?;
            let fields = self.entries(true)?;
            return Ok(self.add(offset, NodeKind::Message { name, fields }));
        }
        self.advance();
        let name = self.text(token).to_owned();
        let reserved = RESERVED.contains(&name.as_str());
        if reserved {
            self.report(start, format!("reserved identifier: {name}"));
        }
        if self.is("(") {
            let offset = self.expect("(")?;
            let arguments = self.arguments(")")?;
            return Ok(self.call_or_macro(offset, &format!("{dot}{name}"), None, arguments));
        }
        Ok(self.add(token.start, NodeKind::Ident(format!("{dot}{name}"))))
    }

    /// The index of the opening brace, when `a.b.c {` follows.
    fn message_ahead(&self) -> Option<usize> {
        let mut at = self.at + 1;
        loop {
            match self.tokens.get(at)?.token {
                Token::Symbol("{") => return Some(at),
                Token::Symbol(".") if self.tokens.get(at + 1)?.token == Token::Ident => at += 2,
                _ => return None,
            }
        }
    }

    fn literal(&mut self) -> ParseResult {
        let first = self.current();
        let sign = if self.take("-").is_some() { "-" } else { "" };
        let token = self.advance();
        let text = self.text(token).to_owned();
        let value = match token.token {
            Token::Int => integer(sign, &text).map(Literal::Int).ok_or("invalid int literal"),
            Token::Double => {
                let value = format!("{sign}{text}").parse::<f64>().ok().filter(|value| value.is_finite());
                value.map(Literal::Double).ok_or("invalid double literal")
            }
            Token::Uint => unsigned(&text[..text.len() - 1]).map(Literal::Uint).ok_or("invalid uint literal"),
            Token::String => literal::unescape(&text, false)
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "invalid UTF-8 in string literal"))
                .map(Literal::String),
            Token::Bytes => literal::unescape(&text, true).map(Literal::Bytes),
            Token::Symbol("true") => Ok(Literal::Bool(true)),
            Token::Symbol("false") => Ok(Literal::Bool(false)),
            Token::Symbol("null") => Ok(Literal::Null),
            _ => {
                self.at -= usize::from(token.token != Token::End);
                return Err(self.unexpected(
                    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
                ));
            }
        };
        let value = value.unwrap_or_else(|message| {
            self.report(first.start, message);
            Literal::Null
        });
        Ok(self.add(first.start, NodeKind::Literal(value)))
    }
}

fn integer(sign: &str, text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => format!("{sign}{text}").parse().ok(),
    }
}

fn unsigned(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Visits the children of a node.
pub(super) fn for_each_child(kind: &NodeKind, visit: impl FnMut(NodeId)) {
    match kind {
        NodeKind::Literal(_) | NodeKind::Ident(_) => {}
        NodeKind::Select { operand, .. } => [*operand].into_iter().for_each(visit),
        NodeKind::Call { target, arguments, .. } => target.iter().chain(arguments).copied().for_each(visit),
        NodeKind::List(items) => items.iter().map(|(id, _)| *id).for_each(visit),
        NodeKind::Map(entries) => entries.iter().flat_map(|e| [e.key, e.value]).for_each(visit),
        NodeKind::Message { fields, .. } => fields.iter().map(|f| f.value).for_each(visit),
        NodeKind::Fold(fold) => {
            [fold.range, fold.init, fold.condition, fold.step, fold.result].into_iter().for_each(visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_names_that_an_expression_can_use() {
        for (name, good) in
            [("a", true), ("_a1", true), ("1a", false), ("in", false), ("a-b", false), ("", false)]
        {
            assert_eq!(is_identifier(name), good, "{name}");
        }
    }
}
