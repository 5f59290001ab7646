//! Refused calls, as JSON-RPC answers them.

use fluxgate_core::store::Micros;
use fluxgate_core::{Decision, Outcome};
use http::HeaderValue;

use super::messages::Messages;

/// The media type of JSON-RPC.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The first code of those that servers may define. There is none for limits in the protocol.
const CODE: &str = "-32000";

/// The ids of the requests of a body, which their answers repeat.
#[derive(Debug, Default)]
pub(crate) struct CallIds {
    ids: Vec<Box<[u8]>>,
    is_batch: bool,
}

impl CallIds {
    pub(crate) fn of(messages: &Messages) -> Self {
        let ids = messages.calls.iter().filter_map(|call| call.id.clone());
        Self {
            ids: ids.collect(),
            is_batch: messages.is_batch,
        }
    }

    /// Appends the errors of the requests, which all have this denial.
    pub(crate) fn write_denial(&self, denial: &Decision, out: &mut Vec<u8>) {
        let start = out.len();
        if self.is_batch && !self.ids.is_empty() {
            for id in &self.ids {
                out.push(if out.len() == start { b'[' } else { b',' });
                write_error(id, denial, out);
            }
            out.push(b']');
        } else {
            // Notifications have no id.
            let id = self.ids.first().map_or(&b"null"[..], |id| id);
            write_error(id, denial, out);
        }
    }
}

fn write_error(id: &[u8], denial: &Decision, out: &mut Vec<u8>) {
    let message = match denial.outcome() {
        Outcome::Forbidden => "A rule forbids this call",
        Outcome::FailedClosed => "Calls cannot be counted at the moment",
        Outcome::Never => "This call can never pass the limit",
        _ => "The quota for these calls is used up",
    };
    let mut number = itoa::Buffer::new();
    let retry = match denial.retry().after().map(Micros::ceil_millis) {
        Some(wait) => number.format(wait),
        None => "null",
    };
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id);
    for text in [
        r#","error":{"code":"#,
        CODE,
        r#","message":""#,
        message,
        r#"","data":{"retry_after_ms":"#,
        retry,
        r#","rule":"#,
    ] {
        out.extend_from_slice(text.as_bytes());
    }
    // Ids of rules hold no characters that JSON escapes.
    match denial.rule() {
        Some(rule) => {
            for text in ["\"", rule.id(), "\""] {
                out.extend_from_slice(text.as_bytes());
            }
        }
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b"}}}");
}
