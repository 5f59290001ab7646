//! YAML (and so JSON) as a tree with positions, and a collector of faults. `parse` assigns the
//! positions; `read` adds faults at them.

mod parse;
mod read;
mod suggestion;

use std::fmt;

pub use read::Fields;
pub(crate) use suggestion::suggestion;

use crate::text;

/// A position in a text. Both numbers count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

/// One fault of a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Its position.
    pub position: Position,
    /// The fault, and what is allowed instead.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position;
        write!(f, "{line}:{column}: {}", self.message)
    }
}

/// A value and its position.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// The position of its first character.
    pub position: Position,
}

/// A YAML value. Scalars keep their text; only plain ones can be numbers, booleans or
/// null.
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

impl Node {
    /// Returns whether this is null or an empty plain scalar.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Plain(text) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Returns the text of a scalar that is not null.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Plain(text) if !self.is_null() => Some(text),
            Value::Quoted(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the kind of value, for error messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            _ if self.is_null() => "nothing",
            Value::Plain(_) | Value::Quoted(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// Returns a text that is the same for the same content, whatever the order of keys,
    /// the quotes and the comments.
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

    /// Returns whether it is a mapping. [`Node::map`] and [`Node::fields`] report what is
    /// not one; then its missing fields are not reported as well.
    pub(crate) fn is_map(&self) -> bool {
        matches!(self.value, Value::Map(_))
    }
}

/// Collects faults while a tree is read.
#[derive(Debug, Default)]
pub struct Faults {
    reported: Vec<Fault>,
    /// The number of further faults, and the position of the last.
    more: Option<(usize, Position)>,
}

/// Further faults are only counted.
const MAX_REPORTED: usize = 200;

impl Faults {
    /// Adds a fault. A message is one line of at most 1,000 bytes before unprintable characters are
    /// escaped, whatever it quotes of the text.
    pub fn add(&mut self, at: Position, message: impl Into<String>) {
        if self.reported.len() >= MAX_REPORTED {
            let before = self.more.map_or(0, |(more, _)| more);
            self.more = Some((before + 1, at));
            return;
        }
        self.reported.push(Fault {
            position: at,
            message: text::escape_unprintable(text::shorten(message.into()), &[]),
        });
    }

    /// Returns the number of faults.
    pub fn count(&self) -> usize {
        self.reported.len() + self.more.map_or(0, |(more, _)| more)
    }

    /// Returns whether a fault at this position was added.
    pub(crate) fn is_reported(&self, at: Position) -> bool {
        self.reported.iter().any(|fault| fault.position == at)
    }

    /// Returns all faults, in the order of the text.
    pub fn into_sorted(mut self) -> Vec<Fault> {
        self.reported.sort();
        self.reported.dedup();
        if let Some((more, last)) = self.more {
            let before = self.reported.iter().map(|fault| fault.position).max();
            self.reported.push(Fault {
                position: before.map_or(last, |before| before.max(last)),
                message: format!("and {more} more"),
            });
        }
        self.reported
    }
}
