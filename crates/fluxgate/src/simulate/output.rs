//! One decision as a line of JSON.

use std::fmt::Write as _;

use fluxgate_core::{Band, Decision, Rule, Timestamp};

/// Appends the line. Ids are made of letters, digits, `_`, `-` and `.`, so
/// nothing needs to be escaped.
pub(super) fn write_decision(line: &mut Vec<u8>, at: Timestamp, decision: &Decision) {
    let mut out = Line(line);
    out.text("{\"t\":");
    out.number(at.micros());
    out.text(if decision.allowed() {
        ",\"allowed\":true,\"outcome\":\""
    } else {
        ",\"allowed\":false,\"outcome\":\""
    });
    out.text(decision.outcome().name());
    out.text("\",\"rule\":");
    out.string_or_null(decision.rule().map(Rule::id));
    out.text(",\"band\":");
    out.string_or_null(decision.band().map(Band::id));
    out.text(",\"limit\":");
    out.number_or_null(decision.limit());
    out.text(",\"remaining\":");
    out.number_or_null(decision.remaining());
    out.text(",\"retry_after_us\":");
    out.number_or_null(decision.retry_after().after().map(|wait| wait.get()));
    out.text(",\"reset_after_us\":");
    out.number(decision.reset_after().get());
    out.text(",\"delay_us\":");
    out.number(decision.delay().get());
    out.text(",\"violated\":[");
    for (index, violation) in decision.violated().enumerate() {
        out.text(if index > 0 { ",\"" } else { "\"" });
        // Writing to memory does not fail.
        let _ = write!(out, "{violation}");
        out.text("\"");
    }
    out.text("]}\n");
}

struct Line<'a>(&'a mut Vec<u8>);

impl Line<'_> {
    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        self.text(itoa::Buffer::new().format(number));
    }

    fn number_or_null(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.text("null"),
        }
    }

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

impl std::fmt::Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.text(text);
        Ok(())
    }
}
