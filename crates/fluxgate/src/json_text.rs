//! JSON that is written by hand, where it must be fast.

use std::io::Write as _;

use fluxgate_core::{Band, Decision, Rule};

/// Appends JSON to bytes.
pub(crate) struct Json<'a>(pub(crate) &'a mut Vec<u8>);

impl Json<'_> {
    /// How a request fared and what is reported, from `allowed` to `remaining`.
    /// Ids are made of letters, digits, `_`, `-` and `.`, so nothing needs to be
    /// escaped.
    pub(crate) fn fared(&mut self, decision: &Decision) {
        self.text(match decision.allowed() {
            true => "\"allowed\":true,\"outcome\":\"",
            false => "\"allowed\":false,\"outcome\":\"",
        });
        self.text(decision.outcome().name());
        self.text("\",\"rule\":");
        self.string_or_null(decision.rule().map(Rule::id));
        self.text(",\"band\":");
        self.string_or_null(decision.band().map(Band::id));
        self.text(",\"limit\":");
        self.number_or_null(decision.limit());
        self.text(",\"remaining\":");
        self.number_or_null(decision.remaining());
    }

    /// The list of bands that refused.
    pub(crate) fn violated(&mut self, decision: &Decision) {
        self.text("[");
        for (index, violation) in decision.violated().enumerate() {
            self.text(if index > 0 { ",\"" } else { "\"" });
            // Writing to memory does not fail.
            let _ = write!(self.0, "{violation}");
            self.text("\"");
        }
        self.text("]");
    }

    /// What is JSON already.
    pub(crate) fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.text(itoa::Buffer::new().format(number));
    }

    pub(crate) fn number_or_null(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.text("null"),
        }
    }

    /// A text in which nothing needs to be escaped.
    pub(crate) fn string_or_null(&mut self, text: Option<&str>) {
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

/// Any text as a JSON string, in which nothing can talk to a terminal.
pub(crate) fn quoted(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    // JSON has the first 32 control characters escaped, and leaves the others.
    if !json.contains(char::is_control) {
        return json;
    }
    let escaped = json.chars().map(|char| match char.is_control() {
        true => format!("\\u{:04x}", u32::from(char)),
        false => char.to_string(),
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn no_control_character_is_left() {
        let text: String = (0..0x200).filter_map(char::from_u32).collect();
        let json = quoted(&text);
        assert!(!json.contains(char::is_control), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
