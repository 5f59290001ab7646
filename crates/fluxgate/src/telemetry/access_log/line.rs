//! A line of the access log.

use std::io::Write as _;
use std::time::Duration;

use fluxgate_core::time::{Timestamp, format_rfc3339};
use fluxgate_core::{ActiveRule, RuleSet};
use fluxgate_gateway::EndedRequest;

use crate::telemetry::metrics::reported_rule;
use crate::telemetry::trace_context::TraceContext;

/// The maximum length of a text. Clients choose some of them.
const MAX_TEXT: usize = 1024;

/// Appends the line of a request that has ended at `now`, since 1970. `client_ip` is the name of the
/// address.
pub(super) fn write(
    request: &EndedRequest<'_>,
    client_ip: Option<&str>,
    now: Duration,
    out: &mut Vec<u8>,
) {
    let facts = &request.facts;
    let micros = now.saturating_sub(request.took).as_micros();
    let started = Timestamp::saturating_from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
    let trace = facts.traceparent.and_then(TraceContext::parse);
    let trace_id = trace.map(|trace| trace.trace_id.to_string());
    let decision = request.decision;
    let rule_set = decision.and_then(|decision| decision.rule_set());
    let rule = decision.and_then(|decision| reported_rule(decision).0);
    let mut line = Line { out, start: b'{' };
    line.text("time", Some(&format_rfc3339(started)));
    line.text("request_id", Some(facts.request_id));
    line.text("trace_id", trace_id.as_deref());
    line.text("route", request.route);
    line.text("method", non_empty(facts.method));
    line.text("path", non_empty(facts.path));
    line.text("host", non_empty(facts.host));
    line.text("protocol", Some(facts.protocol));
    line.number("status", request.status.into());
    line.number("bytes_in", request.bytes_in);
    line.number("bytes_out", request.bytes_out);
    line.millis("duration_ms", Some(request.took));
    line.text("upstream", request.upstream);
    line.millis("upstream_ms", request.upstream_took);
    line.number("attempts", request.attempts.into());
    line.text("client_ip", client_ip);
    line.text("rule_set", rule_set.map(RuleSet::name));
    line.text("rule", rule.map(ActiveRule::id));
    line.text("outcome", decision.map(|it| it.outcome().name()));
    let user_agent = facts.user_agent.map(String::from_utf8_lossy);
    line.text("user_agent", user_agent.as_deref());
    line.text("error", request.error);
    out.extend_from_slice(b"}\n");
}

fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// An object that is being written.
struct Line<'o> {
    out: &'o mut Vec<u8>,
    /// What stands before the next field.
    start: u8,
}

impl Line<'_> {
    fn name(&mut self, name: &str) {
        self.out.push(self.start);
        self.start = b',';
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        let mut digits = itoa::Buffer::new();
        self.out.extend_from_slice(digits.format(value).as_bytes());
    }

    /// Writes milliseconds, to the microsecond.
    fn millis(&mut self, name: &str, value: Option<Duration>) {
        self.name(name);
        match value.map(|value| value.as_micros()) {
            // Writing to memory does not fail.
            Some(micros) => {
                let _ = write!(self.out, "{}.{:03}", micros / 1000, micros % 1000);
            }
            None => self.out.extend_from_slice(b"null"),
        }
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        self.name(name);
        match value {
            Some(value) => write_text(value, self.out),
            None => self.out.extend_from_slice(b"null"),
        }
    }
}

/// Appends a string in JSON. No character can start another line or control a terminal.
fn write_text(text: &str, out: &mut Vec<u8>) {
    let end = text.floor_char_boundary(MAX_TEXT.min(text.len()));
    out.push(b'"');
    let is_plain = |byte: u8| matches!(byte, 0x20..0x7f) && byte != b'"' && byte != b'\\';
    if text[..end].bytes().all(is_plain) {
        out.extend_from_slice(&text.as_bytes()[..end]);
    } else {
        for char in text[..end].chars() {
            match char {
                '"' | '\\' => out.extend([b'\\', char as u8]),
                // Writing to memory does not fail.
                char if char.is_control() => {
                    let _ = write!(out, "\\u{:04x}", u32::from(char));
                }
                char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
    if end < text.len() {
        out.extend_from_slice("…".as_bytes());
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use fluxgate_gateway::RequestFacts;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_line_has_all_fields_in_order_whatever_the_client_sends() {
        let (path, user_agent) = (
            "/\r\n\x1b[31m\"\\é\u{9b}",
            [b"\xff\x00".as_slice(), &[b'a'; 5000]],
        );
        let user_agent = user_agent.concat();
        let request = EndedRequest {
            facts: RequestFacts {
                method: "GET",
                path,
                host: "",
                protocol: "HTTP/2",
                scheme: "http",
                client_ip: None,
                user_agent: Some(&user_agent),
                request_id: "id",
                traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            },
            trace: None,
            route: Some("r"),
            status: 502,
            bytes_in: 1,
            bytes_out: 2,
            took: Duration::from_micros(1_234_567),
            upstream: Some("h:80"),
            upstream_took: Some(Duration::from_nanos(5_999)),
            attempts: 3,
            decision: None,
            error: Some("refused"),
        };
        let mut out = Vec::new();
        write(
            &request,
            Some("~abc"),
            Duration::from_secs(1_700_000_000),
            &mut out,
        );
        let text = String::from_utf8(out).unwrap();
        let is_control = |char: char| char.is_control() && char != '\n';
        assert!(!text.contains(is_control), "{text:?}");
        assert_eq!(text.matches('\n').count(), 1);
        let expected = "{\"time\":\"2023-11-14T22:13:18.765433Z\",\"request_id\":\"id\",\
            \"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736\",\"route\":\"r\",\"method\":\"GET\",";
        assert!(text.starts_with(expected), "{text}");
        let names = "time request_id trace_id route method path host protocol status bytes_in \
            bytes_out duration_ms upstream upstream_ms attempts client_ip rule_set rule outcome \
            user_agent error";
        let positions = { names.split(' ') }.map(|name| text.find(&format!("\"{name}\":")));
        let positions: Vec<_> = positions.collect();
        assert!(
            positions.is_sorted() && !positions.contains(&None),
            "{positions:?}"
        );
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line.as_object().unwrap().len(), names.split(' ').count());
        assert_eq!(line["path"], path);
        assert_eq!(line["host"], Value::Null);
        assert_eq!(line["duration_ms"], json!(1234.567));
        assert_eq!(line["upstream_ms"], json!(0.005));
        assert!(line["user_agent"].as_str().unwrap().ends_with("aa…"));
    }
}
