//! YAML and JSON as Kubernetes reads them, with the position of every key and value.
//!
//! kubectl and the API server read YAML 1.1 (`sigs.k8s.io/yaml`): `yes`, `on` and `y` are booleans, `0777` is
//! octal, `<<` merges. This reader does the same. It is stricter in two cases that kubectl accepts and that
//! are mistakes: duplicate keys and unknown tags are errors. It warns about a key that is a boolean.
//!
//! Owns the tree of values; does not know what a document means. Size, nesting depth and the growth by
//! aliases are bounded, so reading ends in time for any input.

mod position;
mod scalar;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::pointer;
use granit_parser::{Event, Parser, Span, options};
use serde_json::{Map, Value as Json};

pub use granit_parser::ScalarStyle;
pub use position::locate;

/// Values that a file may have, aliases expanded.
const MAX_NODES: usize = 200_000;

/// Bytes of text that a file may have, aliases expanded.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// Levels of nesting that a file may have.
const MAX_DEPTH: usize = 64;

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The bytes of the file that hold it.
    pub span: Range<usize>,
    /// The value.
    pub content: Content,
}

/// The content of a [`Node`].
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A string, number, boolean or null.
    Scalar {
        /// The JSON value.
        value: Json,
        /// How the file writes it: plain, quoted or as a block.
        style: ScalarStyle,
    },
    /// A list.
    Sequence(Vec<Node>),
    /// A mapping. Its keys are unique.
    Mapping(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key, as JSON spells it.
    pub key: String,
    /// The bytes of the file that hold the key; empty for a key that came by a merge.
    pub key_span: Range<usize>,
    /// The value of the key.
    pub value: Node,
}

/// A syntax problem in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlIssue {
    /// The bytes of the file that it is about.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// Whether the value was read despite the problem.
    pub is_warning: bool,
}

impl Node {
    /// The value as JSON.
    pub fn json(&self) -> Json {
        match &self.content {
            Content::Scalar { value, .. } => value.clone(),
            Content::Sequence(items) => items.iter().map(Self::json).collect(),
            Content::Mapping(entries) => Json::Object(
                entries.iter().map(|entry| (entry.key.clone(), entry.value.json())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// The value at a JSON pointer, the bytes of its key, and whether the whole pointer exists. When it does
    /// not, the value is the deepest one on the way.
    pub fn at(&self, pointer: &str) -> (&Self, Option<Range<usize>>, bool) {
        let (mut here, mut key) = (self, None);
        for step in pointer::tokens(pointer) {
            let next = match &here.content {
                Content::Mapping(entries) => entries.iter().find(|entry| entry.key == step).map(|entry| {
                    key = Some(entry.key_span.clone());
                    &entry.value
                }),
                Content::Sequence(items) => step.parse().ok().and_then(|index: usize| {
                    key = None;
                    items.get(index)
                }),
                Content::Scalar { .. } => None,
            };
            let Some(next) = next else { return (here, key, false) };
            here = next;
        }
        (here, key, true)
    }

    /// Values and bytes of text in this node, itself included.
    fn weight(&self) -> (usize, usize) {
        match &self.content {
            Content::Scalar { value, .. } => (1, value.as_str().map_or(0, str::len)),
            Content::Sequence(items) => sum(items.iter().map(Self::weight)),
            Content::Mapping(entries) => sum(entries.iter().map(|entry| {
                let (nodes, bytes) = entry.value.weight();
                (nodes, bytes + entry.key.len())
            })),
        }
    }
}

fn sum(weights: impl Iterator<Item = (usize, usize)>) -> (usize, usize) {
    weights.fold((1, 0), |(nodes, bytes), (more, longer)| (nodes + more, bytes + longer))
}

/// Reads all documents of a file, without the empty ones, and the problems found. A document that cannot be
/// read is a problem; the documents after it are still read.
pub fn read(text: &str, is_json: bool) -> (Vec<Node>, Vec<YamlIssue>) {
    let blank;
    let source = if is_json {
        // JSON allows tabs as indentation and YAML does not. JSON strings cannot hold a tab.
        blank = text.replace('\t', " ");
        &blank
    } else {
        text
    };
    let options = options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut parser = Parser::new_from_str_with_options(source, options);
    let mut composer = Composer { length: source.len(), ..Composer::default() };
    while let Some(next) = parser.next_event() {
        match next {
            Ok((Event::StreamEnd, _)) => break,
            Ok((event, span)) => composer.take(event, &span),
            Err(error) => {
                let at = error.marker().byte_offset().unwrap_or(source.len()).min(source.len());
                composer.issues.push(YamlIssue {
                    span: at..at,
                    message: error.info().to_owned(),
                    is_warning: false,
                });
                composer.discard_document();
                if !matches!(parser.proceed_next_document(), Ok(true)) {
                    break;
                }
            }
        }
        if composer.exhausted {
            break;
        }
    }
    (composer.documents, composer.issues)
}

/// A sequence or mapping whose end is not read yet.
#[derive(Debug)]
struct OpenCollection {
    start: usize,
    anchor: usize,
    kind: CollectionKind,
}

#[derive(Debug)]
enum CollectionKind {
    Sequence(Vec<Node>),
    /// The entries, the index of each key among them, and the key whose value comes next. The name of that
    /// key is `None` when the key is not valid.
    Mapping(Vec<Entry>, BTreeMap<String, usize>, Option<(Option<String>, Range<usize>)>),
}

#[derive(Debug, Default)]
struct Composer {
    documents: Vec<Node>,
    issues: Vec<YamlIssue>,
    open: Vec<OpenCollection>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
    bytes: usize,
    length: usize,
    exhausted: bool,
}

impl Composer {
    fn error(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.issues.push(YamlIssue { span, message: message.into(), is_warning: false });
    }

    /// Discards the document that is being read.
    fn discard_document(&mut self) {
        self.open.clear();
        self.anchors.clear();
    }

    fn take(&mut self, event: Event<'_>, span: &Span) {
        let start = span.start.byte_offset().unwrap_or(0).min(self.length);
        let end = span.end.byte_offset().unwrap_or(start).clamp(start, self.length);
        match event {
            Event::DocumentStart(..) | Event::DocumentEnd => self.discard_document(),
            Event::Scalar(text, style, anchor, tag) => {
                let suffix = tag.as_deref().map(|tag| tag.core_suffix().map(str::to_owned));
                let value = match suffix {
                    Some(None) => Err("Kubernetes does not know this tag: remove it".to_owned()),
                    Some(Some(suffix)) => scalar::tagged(&text, &suffix),
                    None if style == ScalarStyle::Plain => scalar::plain(&text),
                    None => Ok(Json::String(text.into_owned())),
                };
                let value = value.unwrap_or_else(|message| {
                    self.error(start..end, message);
                    Json::Null
                });
                self.add(Node { span: start..end, content: Content::Scalar { value, style } }, anchor);
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open.push(OpenCollection { start, anchor, kind: CollectionKind::Sequence(Vec::new()) });
            }
            Event::MappingStart(_, anchor, _) => {
                self.open.push(OpenCollection {
                    start,
                    anchor,
                    kind: CollectionKind::Mapping(Vec::new(), BTreeMap::new(), None),
                });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return };
                let content = match open.kind {
                    CollectionKind::Sequence(items) => Content::Sequence(items),
                    CollectionKind::Mapping(entries, ..) => Content::Mapping(entries),
                };
                let end = end.max(open.start);
                self.add(Node { span: open.start..end, content }, open.anchor);
            }
            Event::Alias(id) => {
                let Some(meant) = self.anchors.get(&id).cloned() else {
                    self.error(start..end, "this alias refers to a value that contains it");
                    return self.add(null(start..end), 0);
                };
                let (nodes, bytes) = meant.weight();
                self.count(start..end, nodes, bytes);
                self.add(meant, 0);
            }
            Event::UnresolvedAlias(name) => {
                self.error(start..end, format!("no anchor &{name} before this alias"));
                self.add(null(start..end), 0);
            }
            _ => {}
        }
    }

    /// Counts values and bytes, and stops the reading beyond the limits.
    fn count(&mut self, span: Range<usize>, nodes: usize, bytes: usize) {
        self.nodes = self.nodes.saturating_add(nodes);
        self.bytes = self.bytes.saturating_add(bytes);
        if !self.exhausted && (self.nodes > MAX_NODES || self.bytes > MAX_TEXT_BYTES) {
            self.exhausted = true;
            self.error(
                span,
                format!(
                    "the file is too large: at this point, with aliases expanded, it has more than {MAX_NODES} values or {} MiB",
                    MAX_TEXT_BYTES >> 20
                ),
            );
        }
    }

    /// Adds a value to the innermost open collection, or to the documents.
    fn add(&mut self, node: Node, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let bytes = if let Content::Scalar { value: Json::String(text), .. } = &node.content {
            text.len()
        } else {
            0
        };
        self.count(node.span.clone(), 1, bytes);
        if self.exhausted {
            return;
        }
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => {
                if node.content != (Content::Scalar { value: Json::Null, style: ScalarStyle::Plain }) {
                    self.documents.push(node);
                }
            }
            Some(CollectionKind::Sequence(items)) => items.push(node),
            Some(CollectionKind::Mapping(_, _, key @ None)) => {
                let span = node.span.clone();
                match key_of(&node) {
                    Ok((name, warning)) => {
                        *key = Some((Some(name), span.clone()));
                        if let Some(message) = warning {
                            self.issues.push(YamlIssue { span, message, is_warning: true });
                        }
                    }
                    Err(message) => {
                        *key = Some((None, span.clone()));
                        self.error(span, message);
                    }
                }
            }
            Some(CollectionKind::Mapping(entries, places, key)) => {
                let Some((Some(name), key_span)) = key.take() else { return };
                let is_merge = name == "<<" && node.span.start != key_span.start && key_span.len() == 2;
                if is_merge {
                    if let Err(message) = merge(entries, places, &node) {
                        self.error(key_span, message);
                    }
                } else if let Some(known) = places.get(&name).and_then(|at| entries.get_mut(*at)) {
                    if known.key_span.is_empty() {
                        // The key came by a merge: an explicit key overrides it.
                        *known = Entry { key: name, key_span, value: node };
                    } else {
                        let message = format!("duplicate key {name:?}");
                        self.error(key_span, message);
                    }
                } else {
                    places.insert(name.clone(), entries.len());
                    entries.push(Entry { key: name, key_span, value: node });
                }
            }
        }
    }
}

fn null(span: Range<usize>) -> Node {
    Node { span, content: Content::Scalar { value: Json::Null, style: ScalarStyle::Plain } }
}

/// The JSON form of a key, and a warning when it differs from the text of the file.
fn key_of(node: &Node) -> Result<(String, Option<String>), String> {
    match &node.content {
        Content::Scalar { value: Json::String(text), .. } => Ok((text.clone(), None)),
        Content::Scalar { value: value @ Json::Bool(_), .. } => {
            let shown = value.to_string();
            Ok((
                shown.clone(),
                Some(format!("this key is read as the boolean {shown}: quote it to get a string")),
            ))
        }
        Content::Scalar { value: value @ Json::Number(_), .. } => Ok((value.to_string(), None)),
        _ => Err("a key must be a string".to_owned()),
    }
}

/// `<<`: copies the entries of one mapping or of several; the first with a key wins. A copied key has an
/// empty span.
fn merge(entries: &mut Vec<Entry>, places: &mut BTreeMap<String, usize>, from: &Node) -> Result<(), String> {
    let sources: &[Node] = match &from.content {
        Content::Mapping(_) => std::slice::from_ref(from),
        Content::Sequence(items) => items,
        Content::Scalar { .. } => return Err("<< needs a mapping or a list of mappings".to_owned()),
    };
    for source in sources {
        let Content::Mapping(merged) = &source.content else {
            return Err("<< needs a mapping or a list of mappings".to_owned());
        };
        for entry in merged {
            if !places.contains_key(&entry.key) {
                places.insert(entry.key.clone(), entries.len());
                let start = entry.key_span.start;
                entries.push(Entry { key_span: start..start, ..entry.clone() });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
