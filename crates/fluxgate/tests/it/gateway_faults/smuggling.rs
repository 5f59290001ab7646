//! Ambiguous requests, which two parsers could read differently. The gateway rejects them
//! or forwards them in an unambiguous form.

mod chunks;
mod framing;
mod headers;
mod pipelining;
mod run;
mod targets;

use fluxgate_testkit::WireRequest;

use run::{run, run_well_framed};

/// A request, and its allowed outcomes.
struct Case {
    bytes: Vec<u8>,
    /// The statuses with which it may be rejected. If empty, it must be forwarded.
    rejected: &'static [u16],
    /// The form in which it may be forwarded. If `None`, it must be rejected.
    forwarded: Option<Forwarded>,
}

/// The form of a request that the upstream receives.
struct Forwarded {
    /// Method and target.
    line: &'static str,
    body: &'static str,
    check: fn(&WireRequest) -> bool,
}

/// Returns a case that must be rejected.
fn rejected(bytes: impl AsRef<[u8]>) -> Case {
    Case {
        bytes: bytes.as_ref().to_vec(),
        rejected: &[400],
        forwarded: None,
    }
}

/// Returns a case that may be rejected, or forwarded in this form.
fn either(bytes: impl AsRef<[u8]>, line: &'static str, body: &'static str) -> Case {
    Case {
        forwarded: Some(Forwarded {
            line,
            body,
            check: |_| true,
        }),
        ..rejected(bytes)
    }
}

/// Returns a case that must be forwarded in this form.
fn forwarded(bytes: impl AsRef<[u8]>, line: &'static str, body: &'static str) -> Case {
    Case {
        rejected: &[],
        ..either(bytes, line, body)
    }
}

impl Case {
    /// Sets the statuses with which it may be rejected.
    fn with_statuses(self, statuses: &'static [u16]) -> Self {
        Self {
            rejected: statuses,
            ..self
        }
    }

    /// Adds a condition on the forwarded request.
    fn with_check(mut self, check: fn(&WireRequest) -> bool) -> Self {
        if let Some(forwarded) = &mut self.forwarded {
            forwarded.check = check;
        }
        self
    }
}

/// Returns `POST /x` with these verbatim header lines and this body.
fn post(headers: &str, body: &str) -> String {
    format!("POST /x HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n{body}")
}

/// Returns `GET /x` with these verbatim header lines.
fn get(headers: &str) -> String {
    format!("GET /x HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n")
}
