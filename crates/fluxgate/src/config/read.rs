//! Reads values that several sections of the configuration have in common.

use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::rules::values;
use fluxgate_core::yaml::{Faults, Node, Value};

const MAX_NAME: usize = 200;
const MAX_SHORT: Duration = Duration::from_secs(3600);

/// The units of sizes, the largest first.
pub(super) const SIZE_UNITS: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("", 1),
];

/// Returns the boolean, or the default.
pub(super) fn boolean(node: Option<&Node>, what: &str, default: bool, faults: &mut Faults) -> bool {
    let given = node.and_then(|node| node.boolean(what, faults));
    given.unwrap_or(default)
}

/// Returns the duration, or the default.
pub(super) fn duration(
    node: Option<&Node>,
    what: &str,
    default: Duration,
    faults: &mut Faults,
) -> Duration {
    let given = node.and_then(|node| values::duration(node, what, faults));
    given.unwrap_or(default)
}

/// Returns the duration, from `0s` to `1h`, or the default.
pub(super) fn short_duration(
    node: Option<&Node>,
    what: &str,
    default: Duration,
    faults: &mut Faults,
) -> Duration {
    let Some(node) = node else {
        return default;
    };
    // Zero is not a duration elsewhere in the file.
    if node.as_text() == Some("0s") {
        return Duration::ZERO;
    }
    let given = duration(Some(node), what, default, faults);
    if given > MAX_SHORT {
        faults.add(node.position, format!("{what} must be at most 1h"));
    }
    given
}

/// Returns the whole number, or the default.
pub(super) fn whole(
    node: Option<&Node>,
    what: &str,
    (least, most): (u64, u64),
    default: u64,
    faults: &mut Faults,
) -> u64 {
    let signed = |number| i64::try_from(number).unwrap_or(i64::MAX);
    let given = node.and_then(|node| node.whole(what, signed(least), signed(most), faults));
    given.map_or(default, i64::unsigned_abs)
}

/// Returns the size in bytes, or the default: a whole number, alone or with one of the units
/// KiB, MiB and GiB.
pub(super) fn size(
    node: Option<&Node>,
    what: &str,
    (least, most): (u64, u64),
    default: u64,
    faults: &mut Faults,
) -> u64 {
    let Some(node) = node else { return default };
    let size = node.as_text().and_then(parse_size);
    let size = size.filter(|size| (least..=most).contains(size));
    size.unwrap_or_else(|| {
        let given = node.as_text().unwrap_or(node.kind());
        faults.add(
            node.position,
            format!(
                "{what} must be a size from {least} to {most} bytes, such as 256MiB, 64KiB or \
                 65536, not {given}"
            ),
        );
        default
    })
}

fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, bytes) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*bytes)
}

/// Returns the path of a file or a directory.
pub(super) fn path(node: Option<&Node>, what: &str, faults: &mut Faults) -> Option<PathBuf> {
    let node = node?;
    let text = node.text(what, faults)?;
    if text.is_empty() || text.contains('\0') {
        faults.add(node.position, format!("{what} must be the path of a file"));
        return None;
    }
    Some(text.into())
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

/// Returns the items of a list, which may be empty or missing.
pub(super) fn list_or_empty<'n>(
    node: Option<&'n Node>,
    what: &str,
    faults: &mut Faults,
) -> &'n [Node] {
    match node {
        None => &[],
        Some(node) => match &node.value {
            Value::List(items) => items,
            _ => node.list(what, faults),
        },
    }
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
