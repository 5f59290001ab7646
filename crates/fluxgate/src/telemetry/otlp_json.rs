//! The JSON form of OTLP: names in camel case, ids in hexadecimal, enums as numbers, and 64-bit
//! numbers as strings.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::trace_context::Hex;

/// The longest text. Clients choose some of them, and spans wait in a queue.
const MAX_TEXT: usize = 1024;

/// Distinguishes this process from others of the same service.
static INSTANCE: LazyLock<String> = LazyLock::new(|| next_id().to_string());

/// Returns a random id of a span.
pub(super) fn next_id() -> Hex<8> {
    thread_local! {
        static IDS: (RandomState, Cell<u64>) = (RandomState::new(), Cell::new(0));
    }
    let id = IDS.with(|(random, count)| {
        count.set(count.get().wrapping_add(1));
        random.hash_one(count.get())
    });
    // Zero is not a valid id.
    Hex(id.max(1).to_be_bytes())
}

/// Returns the description of this process.
pub(super) fn resource() -> Value {
    let attributes = [
        text("service.name", "fluxgate"),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", &INSTANCE),
    ];
    json!({ "attributes": attributes })
}

/// Returns what made the spans and metrics.
pub(super) fn scope() -> Value {
    json!({ "name": "fluxgate", "version": env!("CARGO_PKG_VERSION") })
}

/// Returns an attribute with a text, which is cut if it is long.
pub(super) fn text(key: &str, value: &str) -> Value {
    let value = &value[..value.floor_char_boundary(MAX_TEXT)];
    json!({ "key": key, "value": { "stringValue": value } })
}

/// Returns an attribute with a number.
pub(super) fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// Returns an attribute that is true.
pub(super) fn flag(key: &str) -> Value {
    json!({ "key": key, "value": { "boolValue": true } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        for (given, length) in [
            ("a".repeat(2000), 1024),
            (format!("a{}", "é".repeat(1000)), 1023),
        ] {
            let attribute = text("k", &given);
            assert_eq!(attribute["value"]["stringValue"], given[..length]);
        }
    }
}
