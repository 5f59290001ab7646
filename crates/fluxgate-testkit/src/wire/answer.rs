//! The parser of responses.

use super::body::Framing;
use super::{Ambiguous, Headers, Read, head, values};

/// A response as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireAnswer {
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
    /// The trailers after the last chunk.
    pub trailers: Headers,
}

impl WireAnswer {
    /// Parses one response to a request with this method. `ended` says whether the connection
    /// has ended after these bytes.
    ///
    /// # Errors
    /// If the response is ambiguous.
    pub fn read(bytes: &[u8], method: &str, ended: bool) -> Result<Read<Self>, Ambiguous> {
        let (head, mut at) = match head::read(bytes)? {
            Read::Whole(head, at) => (head, at),
            Read::Part => return Ok(Read::Part),
        };
        let mut answer = Self {
            version: head.first.chars().take(8).collect(),
            status: status(&head.first)?,
            headers: head.headers,
            body: Vec::new(),
            trailers: Vec::new(),
        };
        let framing = Framing::of(&answer.headers)?;
        if method == "HEAD" || matches!(answer.status, 100..200 | 204 | 304) {
            return Ok(Read::Whole(answer, at));
        }
        if framing == Framing::Unspecified {
            // The end of the connection ends the body.
            answer.body = bytes[at..].to_vec();
            return Ok(if ended {
                Read::Whole(answer, bytes.len())
            } else {
                Read::Part
            });
        }
        let Some((body, trailers)) = framing.read(bytes, &mut at)? else {
            return Ok(Read::Part);
        };
        (answer.body, answer.trailers) = (body, trailers);
        Ok(Read::Whole(answer, at))
    }

    /// Returns the values of a header, whose name is in lower case.
    pub fn values(&self, name: &str) -> Vec<&str> {
        values(&self.headers, name)
    }

    /// Returns whether the connection closes after this response.
    pub fn is_last(&self) -> bool {
        let values = self.values("connection");
        let has = |wanted: &str| {
            let mut options = values.iter().flat_map(|value| value.split(','));
            options.any(|option| option.trim().eq_ignore_ascii_case(wanted))
        };
        has("close") || (self.version == "HTTP/1.0" && !has("keep-alive"))
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn status(line: &str) -> Result<u16, Ambiguous> {
    line.strip_prefix("HTTP/1.1 ")
        .or_else(|| line.strip_prefix("HTTP/1.0 "))
        .and_then(|rest| rest.split(' ').next())
        .filter(|code| code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| Ambiguous(format!("invalid status line: {line:?}")))
}
