//! Requests that two parsers could read in two ways: none of them reaches an
//! upstream, unless in a form that can be read in one way only.

mod chunks;
mod framing;
mod headers;
mod pipelines;
mod run;
mod targets;

use fluxgate_testkit::WireRequest;

use run::{run, run_well_framed};

/// A request, and what may become of it.
struct Case {
    /// The bytes that are sent.
    bytes: Vec<u8>,
    /// With which statuses it may be refused; none: it must be forwarded.
    refused: &'static [u16],
    /// What the upstream sees if it is forwarded; none: it must be refused.
    seen: Option<Seen>,
}

/// What the upstream sees of a request.
struct Seen {
    /// Method and target.
    line: &'static str,
    body: &'static str,
    check: fn(&WireRequest) -> bool,
}

/// It must be refused.
fn refused(bytes: impl AsRef<[u8]>) -> Case {
    Case {
        bytes: bytes.as_ref().to_vec(),
        refused: &[400],
        seen: None,
    }
}

/// It may be refused, or forwarded in this form.
fn either(bytes: impl AsRef<[u8]>, line: &'static str, body: &'static str) -> Case {
    Case {
        seen: Some(Seen {
            line,
            body,
            check: |_| true,
        }),
        ..refused(bytes)
    }
}

/// It must be forwarded in this form.
fn forwarded(bytes: impl AsRef<[u8]>, line: &'static str, body: &'static str) -> Case {
    Case {
        refused: &[],
        ..either(bytes, line, body)
    }
}

impl Case {
    /// With these statuses, too, if it is refused.
    fn or_status(self, statuses: &'static [u16]) -> Self {
        Self {
            refused: statuses,
            ..self
        }
    }

    /// If it is forwarded, this holds of it, too.
    fn when(mut self, check: fn(&WireRequest) -> bool) -> Self {
        if let Some(seen) = &mut self.seen {
            seen.check = check;
        }
        self
    }
}

/// `POST /x` with these header lines, as they are, and this body.
fn post(headers: &str, body: &str) -> String {
    format!("POST /x HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n{body}")
}

/// `GET /x` with these header lines, as they are.
fn get(headers: &str) -> String {
    format!("GET /x HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n")
}
