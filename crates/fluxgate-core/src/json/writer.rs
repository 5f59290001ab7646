//! JSON that is written by hand.

use std::io::Write as _;

use crate::time::Micros;
use crate::{ActiveRule, Band, Decision, HoldId};

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

    /// Appends the fields of a decision as `POST /v1/check` answers them: those above, times in
    /// milliseconds, the bands that refused, the hold and the reservation.
    pub fn check_fields(&mut self, decision: &Decision) {
        self.decision_fields(decision);
        self.text(",\"retry_after_ms\":");
        self.number_or_null(decision.retry().after().map(Micros::ceil_millis));
        self.text(",\"reset_after_ms\":");
        self.number(decision.reset_micros().ceil_millis());
        self.text(",\"delay_ms\":");
        self.number(decision.delay_micros().ceil_millis());
        self.text(",\"violated\":");
        self.violated(decision);
        if let Some(hold) = decision.hold() {
            self.hold(hold, decision.renew_within());
        }
        if let Some(reservation) = decision.reservation() {
            self.text(",\"reservation\":\"");
            self.text(&reservation.to_string());
            self.text("\"");
        }
    }

    /// Appends the id of a hold, and how soon it must be renewed.
    pub fn hold(&mut self, hold: HoldId, renew_within: Micros) {
        self.text(",\"hold\":\"");
        self.text(&hold.to_string());
        self.text("\",\"hold_ms\":");
        self.number(renew_within.get() / 1_000);
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
