//! A section of the configuration: reads its values by name, and shows them.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::rules::values;
use fluxgate_core::yaml::{Faults, Fields, Node, Position, Value};

use super::tree::{self, SIZE_UNITS};

const MAX_NAME: usize = 200;
const MAX_SHORT: Duration = Duration::from_secs(3600);

/// A section of the configuration. Values are read by the names of their fields, which faults
/// refer to. Each value that is read is also recorded, with its default filled in, for the
/// effective configuration.
#[derive(Debug)]
pub(super) struct Section<'n, 'f> {
    fields: Fields<'n>,
    known: &'static [&'static str],
    /// Where the mapping is, if there is one.
    position: Option<Position>,
    /// Whether all names of the mapping are known.
    is_clean: bool,
    shown: Vec<(&'static str, Node)>,
    pub(super) faults: &'f mut Faults,
}

impl<'n, 'f> Section<'n, 'f> {
    /// Reads a mapping that has no other fields than the known ones. Without one, every field has
    /// its default.
    pub(super) fn read(
        node: impl Into<Option<&'n Node>>,
        what: &str,
        known: &'static [&'static str],
        faults: &'f mut Faults,
    ) -> Self {
        let (node, before) = (node.into(), faults.count());
        Self {
            fields: Fields::read(node, what, known, faults),
            known,
            position: node.map(|node| node.position),
            is_clean: faults.count() == before,
            shown: Vec::new(),
            faults,
        }
    }

    /// Reads the mapping under a field. An empty one is not shown.
    pub(super) fn section<T>(
        &mut self,
        name: &'static str,
        known: &'static [&'static str],
        read: impl FnOnce(&mut Section<'n, '_>) -> T,
    ) -> T {
        let mut section = Section::read(self.get(name), &quoted(name), known, self.faults);
        let value = read(&mut section);
        let shown = section.into_node();
        if !matches!(&shown.value, Value::Map(pairs) if pairs.is_empty()) {
            self.show(name, shown);
        }
        value
    }

    /// Reads the mapping under a field, if it is given.
    pub(super) fn optional_section<T>(
        &mut self,
        name: &'static str,
        known: &'static [&'static str],
        read: impl FnOnce(&mut Section<'n, '_>) -> T,
    ) -> Option<T> {
        self.get(name)?;
        Some(self.section(name, known, read))
    }

    /// Returns the value of a field, if it is given.
    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        self.fields.get(name)
    }

    /// Adds a fault of a value.
    pub(super) fn fault(&mut self, at: &Node, message: impl Into<String>) {
        self.faults.add(at.position, message);
    }

    /// Adds the fault that a field is missing, unless the mapping has another fault: a misspelled
    /// field may be the one that is missing.
    pub(super) fn missing(&mut self, message: impl Into<String>) {
        if let Some(position) = self.position.filter(|_| self.is_clean) {
            self.faults.add(position, message);
        }
    }

    /// Records the effective value of a field.
    pub(super) fn show(&mut self, name: &'static str, value: impl Into<Option<Node>>) {
        self.shown.extend(value.into().map(|value| (name, value)));
    }

    /// Returns the effective section, in the order of its known fields.
    pub(super) fn into_node(mut self) -> Node {
        let place = |name: &str| self.known.iter().position(|known| *known == name);
        self.shown.sort_by_key(|(name, _)| place(name));
        tree::map(self.shown)
    }

    /// Returns the boolean, or the default.
    pub(super) fn boolean(&mut self, name: &'static str, default: bool) -> bool {
        let given = self.get(name);
        let given = given.and_then(|node| node.boolean(&quoted(name), self.faults));
        let value = given.unwrap_or(default);
        self.show(name, tree::plain(value));
        value
    }

    /// Returns the duration, if it is given.
    pub(super) fn optional_duration(&mut self, name: &'static str) -> Option<Duration> {
        let given = self.get(name)?;
        let value = values::duration(given, &quoted(name), self.faults)?;
        self.show(name, tree::duration(value));
        Some(value)
    }

    /// Returns the duration, or the default.
    pub(super) fn duration(&mut self, name: &'static str, default: Duration) -> Duration {
        let given = self.get(name);
        let given = given.and_then(|node| values::duration(node, &quoted(name), self.faults));
        let value = given.unwrap_or(default);
        self.show(name, tree::duration(value));
        value
    }

    /// Returns the duration, from `0s` to `1h`, or the default.
    pub(super) fn short_duration(&mut self, name: &'static str, default: Duration) -> Duration {
        let given = self.get(name);
        // Zero is not a duration elsewhere in the file.
        if given.and_then(Node::as_text) == Some("0s") {
            self.show(name, tree::duration(Duration::ZERO));
            return Duration::ZERO;
        }
        let value = self.duration(name, default);
        if let Some(node) = given.filter(|_| value > MAX_SHORT) {
            self.fault(node, format!("`{name}` must be at most 1h"));
        }
        value
    }

    /// Returns the whole number, or the default.
    pub(super) fn whole<T>(
        &mut self,
        name: &'static str,
        allowed: RangeInclusive<T>,
        default: T,
    ) -> T
    where
        T: Copy + Display + TryFrom<i64> + TryInto<i64>,
    {
        let given = self.optional_whole(name, allowed);
        given.unwrap_or_else(|| {
            self.show(name, tree::plain(default));
            default
        })
    }

    /// Returns the whole number, if it is given.
    pub(super) fn optional_whole<T>(
        &mut self,
        name: &'static str,
        allowed: RangeInclusive<T>,
    ) -> Option<T>
    where
        T: Copy + Display + TryFrom<i64> + TryInto<i64>,
    {
        let [least, most] =
            [allowed.start(), allowed.end()].map(|bound| (*bound).try_into().unwrap_or(i64::MAX));
        let given = self.get(name)?;
        let given = given.whole(&quoted(name), least, most, self.faults)?;
        let value = T::try_from(given).ok()?;
        self.show(name, tree::plain(value));
        Some(value)
    }

    /// Returns the size in bytes, or the default: a whole number, alone or with one of the units
    /// KiB, MiB and GiB.
    pub(super) fn size(
        &mut self,
        name: &'static str,
        allowed: RangeInclusive<u64>,
        default: u64,
    ) -> u64 {
        let mut value = default;
        if let Some(node) = self.get(name) {
            let size = node.as_text().and_then(parse_size);
            match size.filter(|size| allowed.contains(size)) {
                Some(size) => value = size,
                None => {
                    let (least, most) = (allowed.start(), allowed.end());
                    let given = node.as_text().unwrap_or(node.kind());
                    let message = format!(
                        "`{name}` must be a size from {least} to {most} bytes, such as 256MiB, \
                         64KiB or 65536, not {given}"
                    );
                    self.fault(node, message);
                }
            }
        }
        self.show(name, tree::size(value));
        value
    }

    /// Returns the value with this name, or the default.
    pub(super) fn one_of<T: Copy + PartialEq>(
        &mut self,
        name: &'static str,
        values: &[(&str, T)],
        default: T,
    ) -> T {
        let given = self.get(name);
        let given = given.and_then(|node| node.one_of(&quoted(name), values, self.faults));
        let value = given.unwrap_or(default);
        let shown = values.iter().find(|(_, known)| *known == value);
        self.show(name, shown.map(|(name, _)| tree::plain(name)));
        value
    }

    /// Returns the path of a file or a directory, if it is given.
    pub(super) fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        let node = self.get(name)?;
        let text = node.text(&quoted(name), self.faults)?;
        if text.is_empty() || text.contains('\0') {
            self.fault(node, format!("`{name}` must be the path of a file"));
            return None;
        }
        self.show(name, tree::text(text));
        Some(text.into())
    }

    /// Returns a text that is not empty and has no control characters, if it is given.
    pub(super) fn name(&mut self, name: &'static str) -> Option<&'n str> {
        let text = self::name(self.get(name)?, &quoted(name), self.faults)?;
        self.show(name, tree::text(text));
        Some(text)
    }

    /// Returns a text as the value that `parse` makes of it, if it is given.
    pub(super) fn parsed<T: Display>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let node = self.get(name)?;
        match parse(node.text(&quoted(name), self.faults)?) {
            Ok(value) => {
                self.show(name, tree::text(value.to_string()));
                Some(value)
            }
            Err(why) => {
                self.fault(node, format!("`{name}` {why}"));
                None
            }
        }
    }

    /// Returns the items of a list that is not empty, if it is given.
    pub(super) fn list(&mut self, name: &str) -> &'n [Node] {
        let given = self.get(name);
        given.map_or(&[], |node| node.list(&quoted(name), self.faults))
    }

    /// Returns the items of a list, which may be empty or missing.
    pub(super) fn list_or_empty(&mut self, name: &str) -> &'n [Node] {
        match self.get(name).map(|node| &node.value) {
            Some(Value::List(items)) => items,
            _ => self.list(name),
        }
    }
}

/// Returns the name of a field as faults show it.
fn quoted(name: &str) -> String {
    format!("`{name}`")
}

fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, bytes) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*bytes)
}

/// Returns a text that is not empty and has no control characters.
pub(super) fn name<'n>(node: &'n Node, what: &str, faults: &mut Faults) -> Option<&'n str> {
    let text = node.text(what, faults)?;
    if text.is_empty() || text.len() > MAX_NAME || text.chars().any(char::is_control) {
        faults.add(
            node.position,
            format!("{what} must have 1 to {MAX_NAME} bytes and no control character"),
        );
        return None;
    }
    Some(text)
}

/// Returns the elements of a list, or the one value that stands in its place.
pub(super) fn one_or_list<'n>(node: &'n Node, what: &str, faults: &mut Faults) -> &'n [Node] {
    match &node.value {
        Value::List(_) => node.list(what, faults),
        _ => std::slice::from_ref(node),
    }
}
