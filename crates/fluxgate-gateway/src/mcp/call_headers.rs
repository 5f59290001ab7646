//! The headers that repeat the method of a call and what it is about.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fluxgate_http::{McpCall, RequestHead};

use super::messages::{Messages, NameMember};
use crate::error::GatewayError;

const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// `Mcp-Method` and `Mcp-Name` of a request. Protocol version 2026-07-28 requires them, older
/// ones do not know them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallHeaders {
    method: Option<Box<str>>,
    name: Option<Box<str>>,
}

impl CallHeaders {
    /// The names of the headers, in lower case.
    pub(crate) const NAMES: [&'static str; 2] = [METHOD, NAME];

    /// Reads the headers of a request.
    ///
    /// # Errors
    /// If one is repeated with different values, or cannot be decoded.
    pub(crate) fn read(head: &impl RequestHead) -> Result<Self, GatewayError> {
        let value = |name, fault| {
            let value = head.only_value(name);
            let value = value.map_err(|bad| GatewayError::Ambiguous(bad.reason()))?;
            let text = value.map(|value| decode(value).ok_or(GatewayError::Ambiguous(fault)));
            text.transpose()
        };
        Ok(Self {
            method: value(
                METHOD,
                "the header Mcp-Method is neither plain ASCII nor =?base64?…?= of UTF-8",
            )?,
            name: value(
                NAME,
                "the header Mcp-Name is neither plain ASCII nor =?base64?…?= of UTF-8",
            )?,
        })
    }

    /// Returns the call that the headers announce, if they do. The body must be
    /// [compared](Self::check) with them: a client may send anything.
    pub(crate) fn call(&self) -> Option<McpCall<'_>> {
        let method = self.method.as_deref()?;
        let name = match NameMember::of(method) {
            Some(_) => Some(self.name.as_deref()?),
            None => None,
        };
        Some(McpCall { method, name })
    }

    /// Compares the headers with the body.
    ///
    /// # Errors
    /// If they contradict it. An upstream could act on either, so the request must not be counted
    /// by one of them.
    pub(crate) fn check(&self, messages: &Messages) -> Result<(), GatewayError> {
        if *self == Self::default() {
            return Ok(());
        }
        let Some(call) = messages.only_call() else {
            return Err(GatewayError::ContradictingCall(
                "the body is not one call, as the header Mcp-Method or Mcp-Name says",
            ));
        };
        if self.method.as_ref().is_some_and(|it| *it != call.method) {
            return Err(GatewayError::ContradictingCall(
                "the header Mcp-Method differs from `method` in the body",
            ));
        }
        if self.name.is_some() && self.name != call.target {
            return Err(GatewayError::ContradictingCall(
                "the header Mcp-Name differs from what the body names",
            ));
        }
        Ok(())
    }
}

/// Returns the text of a header. Texts that a header cannot hold are in base64.
fn decode(value: &[u8]) -> Option<Box<str>> {
    let encoded = value.strip_prefix(b"=?base64?");
    if let Some(encoded) = encoded.and_then(|rest| rest.strip_suffix(b"?=")) {
        let text = BASE64_STANDARD.decode(encoded).ok()?;
        return String::from_utf8(text).ok().map(Into::into);
    }
    let is_plain = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
    let text = std::str::from_utf8(value).ok()?;
    value.iter().all(is_plain).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &[u8])]) -> Result<CallHeaders, u16> {
        let request = lines.iter().fold(http::Request::post("/"), |request, it| {
            request.header(it.0, it.1)
        });
        let (head, ()) = request.body(()).unwrap().into_parts();
        CallHeaders::read(&head).map_err(|error| error.status().as_u16())
    }

    #[test]
    fn values_are_plain_or_base64() {
        for (value, text) in [
            (&b"us-west1"[..], "us-west1"),
            (b"file:///a b", "file:///a b"),
            (b"=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, 世界"),
            (b"=?base64?IHBhZGRlZCA=?=", " padded "),
            (b"=?base64?bGluZTEKbGluZTI=?=", "line1\nline2"),
            (b"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="),
            // The markers are case-sensitive.
            (b"=?BASE64?SGk=?=", "=?BASE64?SGk=?="),
            (b"=?base64?", "=?base64?"),
            (b"", ""),
        ] {
            assert_eq!(decode(value).as_deref(), Some(text));
        }
        for value in [
            &b"=?base64?SGk?="[..],
            b"=?base64?S G k=?=",
            b"=?base64?/w==?=",
            b"=?base64?_w==?=",
            b"caf\xc3\xa9",
            b"\xff",
        ] {
            assert_eq!(decode(value), None, "{}", value.escape_ascii());
            assert_eq!(headers(&[("mcp-name", value)]), Err(400));
        }
    }

    #[test]
    fn headers_announce_a_call_with_all_that_it_needs() {
        let call = |lines: &[(&str, &[u8])]| {
            let headers = headers(lines).unwrap();
            let call = headers.call();
            call.map(|call| (call.method.to_owned(), call.name.map(str::to_owned)))
        };
        let (method, name) = ("Mcp-Method", "Mcp-Name");
        assert_eq!(call(&[(name, b"echo")]), None);
        assert_eq!(call(&[(method, b"tools/call")]), None);
        let both = call(&[(method, b"tools/call"), (name, b"echo")]);
        assert_eq!(both, Some(("tools/call".into(), Some("echo".into()))));
        // What a task is about is no tool, resource or prompt.
        for lines in [
            &[(method, &b"tasks/get"[..]), (name, b"task-1")][..],
            &[(method, b"tasks/get")],
        ] {
            assert_eq!(call(lines), Some(("tasks/get".into(), None)));
        }
        let twice = [(method, &b"ping"[..]), (method, b"tools/list")];
        assert_eq!(headers(&twice), Err(400));
    }

    #[test]
    fn the_body_decides_whether_headers_are_right() {
        let tool = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#;
        let task = br#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a"}}"#;
        let list = br#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"name":"a"}}"#;
        let batch = br#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}]"#;
        let answer = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let check = |body: &[u8], lines: &[(&str, &[u8])]| {
            let messages = Messages::read(body).unwrap();
            let checked = headers(lines).unwrap().check(&messages);
            checked.map_err(|error| error.status().as_u16())
        };
        let (method, name) = ("mcp-method", "mcp-name");
        for (body, lines) in [
            (&tool[..], &[][..]),
            (batch, &[]),
            (answer, &[]),
            (tool, &[(method, &b"tools/call"[..]), (name, b"a")]),
            (tool, &[(method, b"tools/call"), (name, b"=?base64?YQ==?=")]),
            (tool, &[(method, b"tools/call")]),
            (tool, &[(name, b"a")]),
            (task, &[(method, b"tasks/get"), (name, b"a")]),
            (list, &[(method, b"tools/list")]),
        ] {
            assert_eq!(check(body, lines), Ok(()), "{lines:?}");
        }
        for (body, lines) in [
            (&tool[..], &[(method, &b"tools/list"[..])][..]),
            (tool, &[(method, b"Tools/Call")]),
            (tool, &[(method, b"")]),
            (tool, &[(method, b"tools/call"), (name, b"b")]),
            (tool, &[(name, b"")]),
            // What is no name in the body cannot be one in the head.
            (list, &[(method, b"tools/list"), (name, b"a")]),
            (batch, &[(method, b"tools/call")]),
            (answer, &[(method, b"tools/call")]),
        ] {
            assert_eq!(check(body, lines), Err(400), "{lines:?}");
        }
    }
}
