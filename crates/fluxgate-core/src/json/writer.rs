//! JSON that is written by hand.

use std::io::Write as _;

use crate::{ActiveRule, Band, Decision};

/// Appends JSON to bytes.
#[derive(Debug)]
pub struct JsonWriter<'a>(pub &'a mut Vec<u8>);

impl JsonWriter<'_> {
    /// Appends the fields of a decision from `allowed` to `remaining`.
    ///
    /// Ids consist of letters, digits, `_`, `-` and `.`, so they need no escapes.
    pub fn decision_fields(&mut self, decision: &Decision) {
        self.text(if decision.allowed() {
            "\"allowed\":true,\"outcome\":\""
        } else {
            "\"allowed\":false,\"outcome\":\""
        });
        self.text(decision.outcome().name());
        self.text("\",\"rule\":");
        self.string_or_null(decision.rule().map(ActiveRule::id));
        self.text(",\"band\":");
        self.string_or_null(decision.band().map(Band::id));
        self.text(",\"limit\":");
        self.number_or_null(decision.limit());
        self.text(",\"remaining\":");
        self.number_or_null(decision.remaining());
    }

    /// Appends the list of bands that refused.
    pub fn violated(&mut self, decision: &Decision) {
        self.text("[");
        for (index, violation) in decision.violated().enumerate() {
            self.text(if index > 0 { ",\"" } else { "\"" });
            // Writing to memory does not fail.
            let _ = write!(self.0, "{violation}");
            self.text("\"");
        }
        self.text("]");
    }

    /// Appends text that is JSON already.
    pub fn text(&mut self, json: &str) {
        self.0.extend_from_slice(json.as_bytes());
    }

    /// Appends a number.
    pub fn number(&mut self, number: u64) {
        self.text(itoa::Buffer::new().format(number));
    }

    /// Appends a number, or `null`.
    pub fn number_or_null(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.text("null"),
        }
    }

    /// Appends a string that needs no escapes, or `null`.
    fn string_or_null(&mut self, text: Option<&str>) {
        match text {
            Some(text) => {
                self.text("\"");
                self.text(text);
                self.text("\"");
            }
            None => self.text("null"),
        }
    }
}

/// Returns a text as a JSON string without control characters, which a terminal
/// would obey.
pub fn quoted(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    // JSON escapes only the first 32 control characters.
    if !json.contains(char::is_control) {
        return json;
    }
    let escaped = json.chars().map(|char| {
        if char.is_control() {
            format!("\\u{:04x}", u32::from(char))
        } else {
            char.to_string()
        }
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_quoted_text_has_no_control_characters() {
        let text: String = (0..0x200).filter_map(char::from_u32).collect();
        let json = quoted(&text);
        assert!(!json.contains(char::is_control), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
