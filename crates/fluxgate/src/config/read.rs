//! Reads values that several sections of the configuration have in common.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::rules::values;
use fluxgate_core::yaml::{Faults, Fields, Node, Value};

const MAX_NAME: usize = 200;
const MAX_SHORT: Duration = Duration::from_secs(3600);

/// The units of sizes, the largest first.
pub(super) const SIZE_UNITS: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("", 1),
];

/// A section of the configuration. Values are read by the names of their fields, which faults
/// refer to.
#[derive(Debug)]
pub(super) struct Section<'n>(Fields<'n>);

impl<'n> Section<'n> {
    /// Reads a mapping that has no other fields than the known ones. Without one, every field has
    /// its default.
    pub(super) fn read(
        node: impl Into<Option<&'n Node>>,
        what: &str,
        known: &'static [&'static str],
        faults: &mut Faults,
    ) -> Self {
        Self(Fields::read(node.into(), what, known, faults))
    }

    /// Returns the value of a field, if it is given.
    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        self.0.get(name)
    }

    /// Returns the boolean, or the default.
    pub(super) fn boolean(&self, name: &str, default: bool, faults: &mut Faults) -> bool {
        let given = self.get(name);
        let value = given.and_then(|node| node.boolean(&quoted(name), faults));
        value.unwrap_or(default)
    }

    /// Returns the duration, or the default.
    pub(super) fn duration(&self, name: &str, default: Duration, faults: &mut Faults) -> Duration {
        let given = self.get(name);
        let value = given.and_then(|node| values::duration(node, &quoted(name), faults));
        value.unwrap_or(default)
    }

    /// Returns the duration, from `0s` to `1h`, or the default.
    pub(super) fn short_duration(
        &self,
        name: &str,
        default: Duration,
        faults: &mut Faults,
    ) -> Duration {
        let Some(node) = self.get(name) else {
            return default;
        };
        // Zero is not a duration elsewhere in the file.
        if node.as_text() == Some("0s") {
            return Duration::ZERO;
        }
        let given = self.duration(name, default, faults);
        if given > MAX_SHORT {
            faults.add(node.position, format!("`{name}` must be at most 1h"));
        }
        given
    }

    /// Returns the whole number, if it is given.
    pub(super) fn whole(
        &self,
        name: &str,
        allowed: RangeInclusive<u64>,
        faults: &mut Faults,
    ) -> Option<u64> {
        let signed = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let (least, most) = (signed(*allowed.start()), signed(*allowed.end()));
        let given = self.get(name)?.whole(&quoted(name), least, most, faults);
        given.map(i64::unsigned_abs)
    }

    /// Returns the size in bytes, if it is given: a whole number, alone or with one of the units
    /// KiB, MiB and GiB.
    pub(super) fn size(
        &self,
        name: &str,
        allowed: RangeInclusive<u64>,
        faults: &mut Faults,
    ) -> Option<u64> {
        let node = self.get(name)?;
        let size = node
            .as_text()
            .and_then(parse_size)
            .filter(|size| allowed.contains(size));
        if size.is_none() {
            let (least, most) = (allowed.start(), allowed.end());
            let given = node.as_text().unwrap_or(node.kind());
            faults.add(
                node.position,
                format!(
                    "`{name}` must be a size from {least} to {most} bytes, such as 256MiB, 64KiB or \
                     65536, not {given}"
                ),
            );
        }
        size
    }

    /// Returns the value with this name, if it is given.
    pub(super) fn one_of<T: Copy>(
        &self,
        name: &str,
        values: &[(&str, T)],
        faults: &mut Faults,
    ) -> Option<T> {
        self.get(name)?.one_of(&quoted(name), values, faults)
    }

    /// Returns the path of a file or a directory, if it is given.
    pub(super) fn path(&self, name: &str, faults: &mut Faults) -> Option<PathBuf> {
        let node = self.get(name)?;
        let text = node.text(&quoted(name), faults)?;
        if text.is_empty() || text.contains('\0') {
            faults.add(
                node.position,
                format!("`{name}` must be the path of a file"),
            );
            return None;
        }
        Some(text.into())
    }

    /// Returns a text that is not empty and has no control characters, if it is given.
    pub(super) fn name(&self, name: &str, faults: &mut Faults) -> Option<&'n str> {
        self::name(self.get(name)?, &quoted(name), faults)
    }

    /// Returns the items of a list that is not empty, if it is given.
    pub(super) fn list(&self, name: &str, faults: &mut Faults) -> &'n [Node] {
        let given = self.get(name);
        given.map_or(&[], |node| node.list(&quoted(name), faults))
    }

    /// Returns the items of a list, which may be empty or missing.
    pub(super) fn list_or_empty(&self, name: &str, faults: &mut Faults) -> &'n [Node] {
        match self.get(name) {
            None => &[],
            Some(node) => match &node.value {
                Value::List(items) => items,
                _ => node.list(&quoted(name), faults),
            },
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

/// Returns the name of the header, in lower case, from a text such as `header:X-User-Id`.
pub(super) fn header(node: &Node, what: &str, faults: &mut Faults) -> Option<Box<str>> {
    match node.text(what, faults)?.strip_prefix("header:") {
        Some(name) => values::header_name(name, node.position, faults),
        None => {
            faults.add(
                node.position,
                format!("{what} must be header:NAME, such as header:X-User-Id"),
            );
            None
        }
    }
}

/// Returns the elements of a list, or the one value that stands in its place.
pub(super) fn one_or_list<'n>(node: &'n Node, what: &str, faults: &mut Faults) -> &'n [Node] {
    match &node.value {
        Value::List(_) => node.list(what, faults),
        _ => std::slice::from_ref(node),
    }
}
