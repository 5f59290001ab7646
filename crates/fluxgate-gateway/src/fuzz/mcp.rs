//! The calls of a request, as rules see them.

use crate::mcp::{Call, CallHeaders, Messages};

/// A request: the lines of `Mcp-Method` and `Mcp-Name`, an empty line, and the body.
#[derive(Clone, Debug)]
pub struct McpRequest<'a> {
    /// The headers with their names in lower case, each as it is sent.
    pub headers: Vec<(&'static str, &'a [u8])>,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> McpRequest<'a> {
    /// Reads a request; bytes without an empty line are a body.
    pub fn read(bytes: &'a [u8]) -> Self {
        let end = bytes.windows(2).position(|it| it == b"\n\n");
        let (head, body) = end.map_or((&b""[..], bytes), |at| (&bytes[..at], &bytes[at + 2..]));
        let lines = head.split(|byte| *byte == b'\n');
        let headers = lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            let mut names = CallHeaders::NAMES.into_iter();
            let name = names.find(|known| name.eq_ignore_ascii_case(known.as_bytes()))?;
            http::HeaderValue::from_bytes(value).ok()?;
            Some((name, value))
        });
        Self {
            headers: headers.collect(),
            body,
        }
    }

    /// Returns the method and the name of each call that is counted; `None` if the request is
    /// refused.
    pub fn calls(&self) -> Option<Vec<(String, Option<String>)>> {
        let request = self
            .headers
            .iter()
            .fold(http::Request::post("/"), |it, header| {
                it.header(header.0, header.1)
            });
        let (head, ()) = request.body(()).ok()?.into_parts();
        let headers = CallHeaders::read(&head).ok()?;
        let messages = Messages::read(self.body).ok()?;
        headers.check(&messages).ok()?;
        let calls = messages.calls.iter().map(Call::as_mcp_call);
        Some(
            calls
                .map(|call| (call.method.to_owned(), call.name.map(str::to_owned)))
                .collect(),
        )
    }
}
