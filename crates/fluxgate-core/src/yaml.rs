//! YAML (and so JSON) as a tree that remembers where everything stands, and a
//! reader that collects every fault instead of stopping at the first.

use std::collections::HashMap;
use std::fmt;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span};

/// A place in a text. Both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in it.
    pub column: usize,
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Where.
    pub position: Position,
    /// What, and what is allowed.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position;
        write!(f, "{line}:{column}: {}", self.message)
    }
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it begins.
    pub position: Position,
}

/// A YAML value. Scalars keep their text; only plain ones may be numbers,
/// booleans or null.
#[derive(Clone, Debug)]
pub enum Value {
    /// A scalar without quotes.
    Plain(String),
    /// A scalar in quotes or a block.
    Quoted(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order of the text.
    Map(Vec<(Node, Node)>),
}

/// Aliases may repeat what they name, but not without end.
const MAX_NODES: usize = 1_000_000;
const MAX_DEPTH: usize = 64;

impl Node {
    /// Reads a text that holds one document. An empty text is a null.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        Reader {
            parser: Parser::new_from_str(text),
            end: end_of(text),
            anchors: HashMap::new(),
            nodes: 0,
        }
        .document()
    }

    /// Whether this is null or an empty plain scalar.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Plain(text) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// A scalar's text, whatever it looks like.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Plain(text) if !self.is_null() => Some(text),
            Value::Quoted(text) => Some(text),
            _ => None,
        }
    }

    /// What kind of thing it is, for error messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            _ if self.is_null() => "nothing",
            Value::Plain(_) | Value::Quoted(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// A text that is the same for the same content, whatever the order of
    /// keys, quotes and comments.
    pub fn canonical(&self) -> String {
        match &self.value {
            Value::Plain(text) | Value::Quoted(text) => format!("{text:?}"),
            Value::List(items) => {
                let items: Vec<_> = items.iter().map(Node::canonical).collect();
                format!("[{}]", items.join(","))
            }
            Value::Map(pairs) => {
                let mut pairs: Vec<_> = pairs
                    .iter()
                    .map(|(key, value)| format!("{}:{}", key.canonical(), value.canonical()))
                    .collect();
                pairs.sort();
                format!("{{{}}}", pairs.join(","))
            }
        }
    }

    /// Whether it is a mapping. [`Faults::map`] and [`Faults::fields`] tell
    /// what is none; what it lacks is then no fault of its own.
    pub(crate) fn is_map(&self) -> bool {
        matches!(self.value, Value::Map(_))
    }

    /// How many levels it has below itself.
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

    fn size(&self) -> usize {
        1 + match &self.value {
            Value::Plain(_) | Value::Quoted(_) => 0,
            Value::List(items) => items.iter().map(Node::size).sum(),
            Value::Map(pairs) => pairs.iter().map(|(k, v)| k.size() + v.size()).sum(),
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    /// What is missing there is told one line further by the parser.
    end: Position,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn document(mut self) -> Result<Node, Fault> {
        let mut document = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
                _ if document.is_some() => {
                    return Err(self.fault(&span.start, "only one document is allowed"));
                }
                event => document = Some(self.node(event, span, 0)?),
            }
        }
        Ok(document.unwrap_or(Node {
            value: Value::Plain(String::new()),
            position: Position { line: 1, column: 1 },
        }))
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
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(self.fault(&span.start, "too large: over a million values"));
        }
        if depth > MAX_DEPTH {
            return Err(self.fault(&span.start, TOO_DEEP));
        }
        let (value, anchor) = match event {
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    return Err(self.fault(&span.start, "an alias inside what it names"));
                };
                self.nodes += node.size();
                if self.nodes > MAX_NODES {
                    return Err(self.fault(&span.start, "too large: over a million values"));
                }
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
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
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
            message: message.into(),
        }
    }

    fn scan_fault(&self, error: &ScanError) -> Fault {
        self.fault(error.marker(), &format!("not valid YAML: {}", error.info()))
    }
}

/// Right after the last character.
fn end_of(text: &str) -> Position {
    let last = text.rsplit(['\n', '\r']).next().unwrap_or_default();
    let pairs = text.matches("\r\n").count();
    Position {
        line: 1 + text.matches(['\n', '\r']).count() - pairs,
        column: 1 + last.chars().count(),
    }
}

/// Gathers faults while a tree is read.
#[derive(Debug, Default)]
pub struct Faults {
    told: Vec<Fault>,
    /// How many more there were, and where the last of them is.
    more: Option<(usize, Position)>,
}

/// More than this many are counted, not told.
const MOST_TOLD: usize = 200;

impl Faults {
    /// Notes a fault and goes on.
    pub fn add(&mut self, at: Position, message: impl Into<String>) {
        if self.told.len() >= MOST_TOLD {
            let before = self.more.map_or(0, |(more, _)| more);
            self.more = Some((before + 1, at));
            return;
        }
        self.told.push(Fault {
            position: at,
            message: message.into(),
        });
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.told.len() + self.more.map_or(0, |(more, _)| more)
    }

    /// All of them, in the order of the text.
    pub fn into_sorted(mut self) -> Vec<Fault> {
        self.told.sort();
        self.told.dedup();
        if let Some((more, last)) = self.more {
            let before = self.told.iter().map(|fault| fault.position).max();
            self.told.push(Fault {
                position: before.map_or(last, |before| before.max(last)),
                message: format!("and {more} more"),
            });
        }
        self.told
    }

    /// The list there, which must not be empty.
    pub fn list<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Node] {
        match &node.value {
            Value::List(items) if !items.is_empty() => items,
            Value::List(_) => {
                self.add(node.position, format!("{what} must not be an empty list"));
                &[]
            }
            _ => {
                let kind = node.kind();
                self.add(node.position, format!("{what} must be a list, not {kind}"));
                &[]
            }
        }
    }

    /// The mapping there, as names and values; no name may stand twice.
    pub fn map<'n>(&mut self, node: &'n Node, what: &str) -> Vec<(&'n str, &'n Node, &'n Node)> {
        let Value::Map(pairs) = &node.value else {
            let kind = node.kind();
            self.add(
                node.position,
                format!("{what} must be a mapping, not {kind}"),
            );
            return Vec::new();
        };
        let mut seen = Vec::with_capacity(pairs.len());
        let mut names = std::collections::HashSet::new();
        for (key, value) in pairs {
            match key.as_text() {
                None => self.add(key.position, format!("a name in {what} must be a text")),
                Some(name) if !names.insert(name) => {
                    self.add(key.position, format!("`{name}` stands twice in {what}"));
                }
                Some(name) => seen.push((name, key, value)),
            }
        }
        seen
    }

    /// The mapping there, with only these fields; a null counts as absent.
    pub fn fields<'n, const N: usize>(
        &mut self,
        node: &'n Node,
        what: &str,
        known: [&str; N],
    ) -> [Option<&'n Node>; N] {
        let mut fields = [None; N];
        for (name, key, value) in self.map(node, what) {
            match known.iter().position(|field| *field == name) {
                Some(index) if !value.is_null() => fields[index] = Some(value),
                Some(_) => {}
                None => {
                    let known = known.join(", ");
                    self.add(
                        key.position,
                        format!("unknown field `{name}` in {what}; allowed are {known}"),
                    );
                }
            }
        }
        fields
    }

    /// The text there.
    pub fn text<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n str> {
        let text = node.as_text();
        if text.is_none() {
            let kind = node.kind();
            self.add(node.position, format!("{what} must be a text, not {kind}"));
        }
        text
    }

    /// The whole number there, which must be plain decimal digits (and, where
    /// `least` is below zero, a sign).
    pub fn whole(&mut self, node: &Node, what: &str, least: i64, most: i64) -> Option<i64> {
        let number = match &node.value {
            Value::Plain(text) if is_whole(text) => text.parse::<i64>().ok(),
            _ => None,
        };
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            let given = node.as_text().map_or_else(
                || node.kind().to_owned(),
                |text| match node.value {
                    Value::Quoted(_) => format!("the text {text:?}"),
                    _ => format!("`{text}`"),
                },
            );
            self.add(
                node.position,
                format!("{what} must be a whole number from {least} to {most}, not {given}"),
            );
        }
        number
    }

    /// The boolean there.
    pub fn boolean(&mut self, node: &Node, what: &str) -> Option<bool> {
        match &node.value {
            Value::Plain(text) if matches!(text.as_str(), "true" | "True" | "TRUE") => Some(true),
            Value::Plain(text) if matches!(text.as_str(), "false" | "False" | "FALSE") => {
                Some(false)
            }
            _ => {
                self.add(node.position, format!("{what} must be true or false"));
                None
            }
        }
    }

    /// One of these names.
    pub fn one_of<T: Copy>(&mut self, node: &Node, what: &str, names: &[(&str, T)]) -> Option<T> {
        let given = node.as_text();
        let found = names.iter().find(|(name, _)| given == Some(name));
        if found.is_none() {
            let known: Vec<_> = names.iter().map(|(name, _)| *name).collect();
            let known = known.join(", ");
            let given = given.map_or(node.kind().to_owned(), |text| format!("`{text}`"));
            self.add(
                node.position,
                format!("{what} must be one of {known}; {given} is not"),
            );
        }
        found.map(|(_, value)| *value)
    }
}

fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
