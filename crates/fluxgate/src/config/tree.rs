//! Builds the tree of the effective configuration, and finds values in trees.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use fluxgate_core::text::duration_text;
use fluxgate_core::yaml::{Node, Position, Value};

use super::read::SIZE_UNITS;

/// Returns the value of a field, if the node is a mapping that has it.
pub(super) fn child<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let Value::Map(pairs) = &node.value else {
        return None;
    };
    let found = pairs.iter().find(|(key, _)| key.as_text() == Some(name));
    found.map(|(_, value)| value)
}

/// Returns a text, even if it looks like a number, a boolean or null.
pub(super) fn text(text: impl AsRef<str>) -> Node {
    node(Value::Quoted(text.as_ref().into()))
}

/// Returns a number, a boolean or a name.
pub(super) fn plain(value: impl Display) -> Node {
    node(Value::Plain(value.to_string()))
}

/// Returns the name of a value.
pub(super) fn name_of<T: PartialEq>(names: &[(&str, T)], value: T) -> Node {
    let found = names.iter().find(|(_, known)| *known == value);
    plain(found.map_or("", |(name, _)| name))
}

pub(super) fn path(path: &Path) -> Node {
    text(path.display().to_string())
}

pub(super) fn duration(duration: Duration) -> Node {
    plain(duration_text(duration))
}

/// Returns a list, or its only item.
pub(super) fn one_or_list(items: impl IntoIterator<Item = Node>) -> Node {
    let mut items: Vec<_> = items.into_iter().collect();
    match items.len() {
        1 => items.remove(0),
        _ => list(items),
    }
}

/// Returns a size in bytes, in the largest unit that divides it.
pub(super) fn size(bytes: u64) -> Node {
    let unit = SIZE_UNITS
        .into_iter()
        .find(|(_, unit)| bytes.is_multiple_of(*unit));
    let (name, unit) = unit.unwrap_or(("", 1));
    plain(format!("{}{name}", bytes / unit))
}

pub(super) fn list(items: impl IntoIterator<Item = Node>) -> Node {
    node(Value::List(items.into_iter().collect()))
}

/// Returns a mapping of the fields that have a value.
pub(super) fn map<'a>(pairs: impl IntoIterator<Item = (&'a str, Option<Node>)>) -> Node {
    let pairs = pairs
        .into_iter()
        .filter_map(|(name, value)| Some((text(name), value?)));
    node(Value::Map(pairs.collect()))
}

fn node(value: Value) -> Node {
    let position = Position { line: 0, column: 0 };
    Node { value, position }
}
