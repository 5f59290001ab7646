//! From text to a tree.

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span};

use super::{Fault, Node, Position, Value};
use crate::text;

/// The most values of a tree, with aliases expanded.
const MAX_NODES: usize = 1_000_000;
/// A copy of a text counts as one more value for each of this many bytes.
const BYTES_PER_NODE: usize = 64;
/// Every text from a request may have this many values.
const MIN_REQUEST_NODES: usize = 1_000;
const MAX_DEPTH: usize = 64;

impl Node {
    /// Parses a text that holds one document. An empty text is a null.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        Self::parse_up_to(MAX_NODES, text)
    }

    /// Parses a text from a request. Aliases must not expand it to more values than it has
    /// bytes, so that a small text costs little.
    pub fn parse_request(text: &str) -> Result<Self, Fault> {
        let max_nodes = text.len().clamp(MIN_REQUEST_NODES, MAX_NODES);
        Self::parse_up_to(max_nodes, text)
    }

    fn parse_up_to(max_nodes: usize, text: &str) -> Result<Self, Fault> {
        let mut reader = Reader::new(text, max_nodes);
        let Some((event, span)) = reader.next_document()? else {
            return Ok(Self {
                value: Value::Plain(String::new()),
                position: Position { line: 1, column: 1 },
            });
        };
        let document = reader.node(event, span, 0)?;
        match reader.next_document()? {
            None => Ok(document),
            Some((_, span)) => Err(reader.fault(&span.start, "only one document is allowed")),
        }
    }

    /// Parses a text that holds any number of documents.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, Fault> {
        let mut reader = Reader::new(text, MAX_NODES);
        let mut documents = Vec::new();
        while let Some((event, span)) = reader.next_document()? {
            documents.push(reader.node(event, span, 0)?);
        }
        Ok(documents)
    }

    /// Returns the number of levels below this one.
    fn depth(&self) -> usize {
        match &self.value {
            Value::Plain(_) | Value::Quoted(_) => 0,
            Value::List(items) => items.iter().map(|item| 1 + item.depth()).max().unwrap_or(0),
            Value::Map(pairs) => {
                let nodes = pairs.iter().flat_map(|(key, value)| [key, value]);
                nodes.map(|node| 1 + node.depth()).max().unwrap_or(0)
            }
        }
    }

    /// Returns the number of values that a copy counts as. A long text counts as several.
    fn size(&self) -> usize {
        1 + match &self.value {
            Value::Plain(text) | Value::Quoted(text) => text.len() / BYTES_PER_NODE,
            Value::List(items) => items.iter().map(Node::size).sum(),
            Value::Map(pairs) => pairs.iter().map(|(k, v)| k.size() + v.size()).sum(),
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    /// The end of the text. The parser reports faults at the end one line further.
    end: Position,
    anchors: HashMap<usize, Rc<Node>>,
    /// The number of values so far, including the copies that are kept for aliases.
    nodes: usize,
    max_nodes: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, max_nodes: usize) -> Self {
        Self {
            parser: Parser::new_from_str(text),
            end: end_of(text),
            anchors: HashMap::new(),
            nodes: 0,
            max_nodes,
        }
    }

    /// Returns the first event of the next document.
    fn next_document(&mut self) -> Result<Option<(Event<'a>, Span)>, Fault> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(None),
                // An alias cannot refer to another document.
                Event::DocumentStart(_) => self.anchors.clear(),
                Event::StreamStart | Event::DocumentEnd => {}
                event => return Ok(Some((event, span))),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Fault> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(self.scan_fault(&error)),
            None => Ok((Event::StreamEnd, Span::empty(Marker::default()))),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Fault> {
        const TOO_DEEP: &str = "nested too deeply: over 64 levels";
        self.count(1, &span.start)?;
        if depth > MAX_DEPTH {
            return Err(self.fault(&span.start, TOO_DEEP));
        }
        let (value, anchor) = match event {
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).map(Rc::clone) else {
                    return Err(self.fault(&span.start, "an alias inside of its own anchor"));
                };
                self.count(node.size(), &span.start)?;
                if depth + node.depth() > MAX_DEPTH {
                    return Err(self.fault(&span.start, TOO_DEEP));
                }
                let value = node.value.clone();
                return Ok(Node {
                    value,
                    position: self.position(&span.start),
                });
            }
            Event::Scalar(text, style, anchor, _) => {
                let text = text.into_owned();
                let value = match style {
                    ScalarStyle::Plain => Value::Plain(text),
                    _ => Value::Quoted(text),
                };
                (value, anchor)
            }
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if matches!(event, Event::SequenceEnd) {
                        break;
                    }
                    items.push(self.node(event, span, depth + 1)?);
                }
                (Value::List(items), anchor)
            }
            Event::MappingStart(anchor, _) => {
                let mut pairs = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if matches!(event, Event::MappingEnd) {
                        break;
                    }
                    let key = self.node(event, span, depth + 1)?;
                    let (event, span) = self.next()?;
                    pairs.push((key, self.node(event, span, depth + 1)?));
                }
                (Value::Map(pairs), anchor)
            }
            _ => return Err(self.fault(&span.start, "a value is missing here")),
        };
        let node = Node {
            value,
            position: self.position(&span.start),
        };
        if anchor > 0 {
            self.count(node.size(), &span.start)?;
            self.anchors.insert(anchor, Rc::new(node.clone()));
        }
        Ok(node)
    }

    /// Adds to the number of values, which is bounded.
    fn count(&mut self, nodes: usize, marker: &Marker) -> Result<(), Fault> {
        self.nodes += nodes;
        if self.nodes > self.max_nodes {
            let message = format!("too large: over {} values", self.max_nodes);
            Err(self.fault(marker, &message))
        } else {
            Ok(())
        }
    }

    fn position(&self, marker: &Marker) -> Position {
        let position = Position {
            line: marker.line().max(1),
            column: marker.col() + 1,
        };
        position.min(self.end)
    }

    fn fault(&self, marker: &Marker, message: &str) -> Fault {
        Fault {
            position: self.position(marker),
            message: text::escape_unprintable(message, &[]),
        }
    }

    fn scan_fault(&self, error: &ScanError) -> Fault {
        self.fault(error.marker(), &format!("not valid YAML: {}", error.info()))
    }
}

/// Returns the position after the last character.
fn end_of(text: &str) -> Position {
    let last = text.rsplit(['\n', '\r']).next().unwrap_or_default();
    let pairs = text.matches("\r\n").count();
    Position {
        line: 1 + text.matches(['\n', '\r']).count() - pairs,
        column: 1 + last.chars().count(),
    }
}
