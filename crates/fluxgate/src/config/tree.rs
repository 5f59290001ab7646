//! Builds the tree of the effective configuration, and finds values in trees.

use std::fmt::Display;
use std::time::Duration;

use fluxgate_core::text::duration_text;
use fluxgate_core::yaml::{Node, Position, Value};

/// The units of sizes, the largest first.
pub(super) const SIZE_UNITS: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("", 1),
];

/// Returns the value of a field, if the node is a mapping that has it.
pub(crate) fn child<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let Value::Map(pairs) = &node.value else {
        return None;
    };
    let found = pairs.iter().find(|(key, _)| key.as_text() == Some(name));
    found.map(|(_, value)| value)
}

/// Returns the value of a field, mutably.
pub(crate) fn child_mut<'n>(node: &'n mut Node, name: &str) -> Option<&'n mut Node> {
    let Value::Map(pairs) = &mut node.value else {
        return None;
    };
    let found = pairs
        .iter_mut()
        .find(|(key, _)| key.as_text() == Some(name));
    found.map(|(_, value)| value)
}

/// Returns a text, even if it looks like a number, a boolean or null.
pub(super) fn text(text: impl Into<String>) -> Node {
    node(Value::Quoted(text.into()))
}

/// Returns a number, a boolean or a name.
pub(super) fn plain(value: impl Display) -> Node {
    node(Value::Plain(value.to_string()))
}

pub(super) fn duration(duration: Duration) -> Node {
    plain(duration_text(duration))
}

/// Returns a size in bytes, in the largest unit that divides it.
pub(super) fn size(bytes: u64) -> Node {
    let unit = SIZE_UNITS
        .into_iter()
        .find(|(_, unit)| bytes.is_multiple_of(*unit));
    let (name, unit) = unit.unwrap_or(("", 1));
    plain(format!("{}{name}", bytes / unit))
}

/// Returns a list of texts, or the only one.
pub(super) fn one_or_list(items: impl IntoIterator<Item = impl Display>) -> Node {
    let mut items: Vec<_> = items
        .into_iter()
        .map(|item| text(item.to_string()))
        .collect();
    match items.len() {
        1 => items.remove(0),
        _ => node(Value::List(items)),
    }
}

/// Returns a list of texts.
pub(super) fn texts(items: impl IntoIterator<Item = impl Display>) -> Node {
    list(items.into_iter().map(|item| text(item.to_string())))
}

pub(super) fn list(items: impl IntoIterator<Item = Node>) -> Node {
    node(Value::List(items.into_iter().collect()))
}

pub(super) fn map<'a>(pairs: impl IntoIterator<Item = (&'a str, Node)>) -> Node {
    let pairs = pairs.into_iter().map(|(name, value)| (text(name), value));
    node(Value::Map(pairs.collect()))
}

fn node(value: Value) -> Node {
    let position = Position { line: 0, column: 0 };
    Node { value, position }
}
