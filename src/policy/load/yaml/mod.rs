//! YAML and JSON as Kubernetes reads them, with the place of every key and value.
//!
//! `kubectl` and the API server read YAML 1.1: `yes`, `on` and `y` are booleans, `0777` is octal, `<<` merges. So do we, and say so where
//! text was wanted. What they let pass and nobody means is an error here: keys that are given twice, tags that nobody knows.
//!
//! Owns the tree; never knows what it means. A file is bounded in size, depth and in what its aliases may grow to, so that reading it
//! ends in time whatever it says.

mod place;
mod scalar;

use std::collections::BTreeMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span, options};
use serde_json::{Map, Value as Json};

pub(super) use place::locate;

/// The most values that a file may have, aliases followed.
const NODES: usize = 200_000;

/// The most bytes of text that a file may have, aliases followed.
const BYTES: usize = 16 << 20;

/// How deep values may be nested.
const DEPTH: usize = 64;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// Bytes of the file.
    pub(super) span: Range<usize>,
    /// What it is.
    pub(super) content: Content,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    /// Text, number, boolean or nothing.
    Scalar {
        /// What it is worth.
        value: Json,
        /// How it is written.
        style: ScalarStyle,
    },
    /// A list.
    Sequence(Vec<Node>),
    /// A mapping; no key is there twice.
    Mapping(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_span: Range<usize>,
    pub(super) value: Node,
}

/// Something that is wrong with the writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    /// Bytes of the file.
    pub(super) span: Range<usize>,
    /// In a sentence.
    pub(super) message: String,
    /// It was read all the same.
    pub(super) is_warning: bool,
}

impl Node {
    /// The value as JSON.
    pub(super) fn json(&self) -> Json {
        match &self.content {
            Content::Scalar { value, .. } => value.clone(),
            Content::Sequence(items) => items.iter().map(Self::json).collect(),
            Content::Mapping(entries) => Json::Object(
                entries.iter().map(|entry| (entry.key.clone(), entry.value.json())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// The value at a JSON pointer, with the bytes of its key; where the pointer goes on past what is there, the last value that is,
    /// and whether it was reached.
    pub(super) fn at(&self, pointer: &str) -> (&Self, Option<Range<usize>>, bool) {
        let (mut here, mut key) = (self, None);
        for step in pointer.split('/').skip(1) {
            let step = step.replace("~1", "/").replace("~0", "~");
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

/// Reads all documents of a file; empty ones are left out. What could not be read is a flaw, and documents after it are read all the same.
pub(super) fn read(text: &str, is_json: bool) -> (Vec<Node>, Vec<Flaw>) {
    let blank;
    let source = if is_json {
        // JSON may be indented by tabs, and YAML not. Inside of JSON's texts they cannot stand.
        blank = text.replace('\t', " ");
        &blank
    } else {
        text
    };
    let options = options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: DEPTH,
        block_nesting_limit: DEPTH,
    };
    let mut parser = Parser::new_from_str_with_options(source, options);
    let mut composer = Composer { length: source.len(), ..Composer::default() };
    while let Some(next) = parser.next_event() {
        match next {
            Ok((Event::StreamEnd, _)) => break,
            Ok((event, span)) => composer.take(event, &span),
            Err(error) => {
                let at = error.marker().byte_offset().unwrap_or(source.len()).min(source.len());
                composer.flaws.push(Flaw {
                    span: at..at,
                    message: error.info().to_owned(),
                    is_warning: false,
                });
                composer.forget();
                if !matches!(parser.proceed_next_document(), Ok(true)) {
                    break;
                }
            }
        }
        if composer.exhausted {
            break;
        }
    }
    (composer.documents, composer.flaws)
}

/// A collection that is not closed yet.
#[derive(Debug)]
struct Open {
    start: usize,
    anchor: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Sequence(Vec<Node>),
    /// Entries, where each key is among them, and the key whose value comes next: none for a key that cannot be one.
    Mapping(Vec<Entry>, BTreeMap<String, usize>, Option<(Option<String>, Range<usize>)>),
}

#[derive(Debug, Default)]
struct Composer {
    documents: Vec<Node>,
    flaws: Vec<Flaw>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
    bytes: usize,
    length: usize,
    exhausted: bool,
}

impl Composer {
    fn flaw(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.flaws.push(Flaw { span, message: message.into(), is_warning: false });
    }

    /// Gives up the document that is read.
    fn forget(&mut self) {
        self.open.clear();
        self.anchors.clear();
    }

    fn take(&mut self, event: Event<'_>, span: &Span) {
        let start = span.start.byte_offset().unwrap_or(0).min(self.length);
        let end = span.end.byte_offset().unwrap_or(start).clamp(start, self.length);
        match event {
            Event::DocumentStart(..) | Event::DocumentEnd => self.forget(),
            Event::Scalar(text, style, anchor, tag) => {
                let suffix = tag.as_deref().map(|tag| tag.core_suffix().map(str::to_owned));
                let value = match suffix {
                    Some(None) => Err("this tag means nothing in Kubernetes: leave it out".to_owned()),
                    Some(Some(suffix)) => scalar::tagged(&text, &suffix),
                    None if style == ScalarStyle::Plain => scalar::plain(&text),
                    None => Ok(Json::String(text.into_owned())),
                };
                let value = value.unwrap_or_else(|message| {
                    self.flaw(start..end, message);
                    Json::Null
                });
                self.value(Node { span: start..end, content: Content::Scalar { value, style } }, anchor);
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open.push(Open { start, anchor, kind: Kind::Sequence(Vec::new()) });
            }
            Event::MappingStart(_, anchor, _) => {
                self.open.push(Open {
                    start,
                    anchor,
                    kind: Kind::Mapping(Vec::new(), BTreeMap::new(), None),
                });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return };
                let content = match open.kind {
                    Kind::Sequence(items) => Content::Sequence(items),
                    Kind::Mapping(entries, ..) => Content::Mapping(entries),
                };
                let end = end.max(open.start);
                self.value(Node { span: open.start..end, content }, open.anchor);
            }
            Event::Alias(id) => {
                let Some(meant) = self.anchors.get(&id).cloned() else {
                    self.flaw(start..end, "this alias stands inside of what it stands for");
                    return self.value(nothing(start..end), 0);
                };
                let (nodes, bytes) = meant.weight();
                self.grow(start..end, nodes, bytes);
                self.value(meant, 0);
            }
            Event::UnresolvedAlias(name) => {
                self.flaw(start..end, format!("no anchor &{name} stands before this alias"));
                self.value(nothing(start..end), 0);
            }
            _ => {}
        }
    }

    /// Counts what is read, and stops when it is too much.
    fn grow(&mut self, span: Range<usize>, nodes: usize, bytes: usize) {
        self.nodes = self.nodes.saturating_add(nodes);
        self.bytes = self.bytes.saturating_add(bytes);
        if !self.exhausted && (self.nodes > NODES || self.bytes > BYTES) {
            self.exhausted = true;
            self.flaw(
                span,
                format!(
                    "the file is too large here: aliases followed, it has more than {NODES} values or {} MiB",
                    BYTES >> 20
                ),
            );
        }
    }

    /// Puts a value where it belongs.
    fn value(&mut self, node: Node, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let bytes = if let Content::Scalar { value: Json::String(text), .. } = &node.content {
            text.len()
        } else {
            0
        };
        self.grow(node.span.clone(), 1, bytes);
        if self.exhausted {
            return;
        }
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => {
                if node.content != (Content::Scalar { value: Json::Null, style: ScalarStyle::Plain }) {
                    self.documents.push(node);
                }
            }
            Some(Kind::Sequence(items)) => items.push(node),
            Some(Kind::Mapping(_, _, key @ None)) => {
                let span = node.span.clone();
                match key_of(&node) {
                    Ok((name, warning)) => {
                        *key = Some((Some(name), span.clone()));
                        if let Some(message) = warning {
                            self.flaws.push(Flaw { span, message, is_warning: true });
                        }
                    }
                    Err(message) => {
                        *key = Some((None, span.clone()));
                        self.flaw(span, message);
                    }
                }
            }
            Some(Kind::Mapping(entries, places, key)) => {
                let Some((Some(name), key_span)) = key.take() else { return };
                let is_merge = name == "<<" && node.span.start != key_span.start && key_span.len() == 2;
                if is_merge {
                    if let Err(message) = merge(entries, places, &node) {
                        self.flaw(key_span, message);
                    }
                } else if let Some(known) = places.get(&name).and_then(|at| entries.get_mut(*at)) {
                    if known.key_span.is_empty() {
                        // It came by a merge: what is written here counts.
                        *known = Entry { key: name, key_span, value: node };
                    } else {
                        let message = format!("the key {name:?} is here twice");
                        self.flaw(key_span, message);
                    }
                } else {
                    places.insert(name.clone(), entries.len());
                    entries.push(Entry { key: name, key_span, value: node });
                }
            }
        }
    }
}

fn nothing(span: Range<usize>) -> Node {
    Node { span, content: Content::Scalar { value: Json::Null, style: ScalarStyle::Plain } }
}

/// What a key is in JSON, and a warning when that is not what is written.
fn key_of(node: &Node) -> Result<(String, Option<String>), String> {
    match &node.content {
        Content::Scalar { value: Json::String(text), .. } => Ok((text.clone(), None)),
        Content::Scalar { value: value @ Json::Bool(_), .. } => {
            let shown = value.to_string();
            Ok((
                shown.clone(),
                Some(format!("this key is read as the boolean {shown}: put it in quotes if text is meant")),
            ))
        }
        Content::Scalar { value: value @ Json::Number(_), .. } => Ok((value.to_string(), None)),
        _ => Err("a key must be text".to_owned()),
    }
}

/// `<<`: takes over the entries of one mapping or several; the first that has a key counts. Their keys stand nowhere in this mapping.
fn merge(entries: &mut Vec<Entry>, places: &mut BTreeMap<String, usize>, from: &Node) -> Result<(), String> {
    let sources: &[Node] = match &from.content {
        Content::Mapping(_) => std::slice::from_ref(from),
        Content::Sequence(items) => items,
        Content::Scalar { .. } => return Err("<< takes a mapping, or a list of them".to_owned()),
    };
    for source in sources {
        let Content::Mapping(merged) = &source.content else {
            return Err("<< takes a mapping, or a list of them".to_owned());
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
