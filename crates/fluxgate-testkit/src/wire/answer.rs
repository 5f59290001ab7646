//! The parser of responses.

use super::body::{Framing, chunks};
use super::{Ambiguous, Headers, Read, bad, head, values};

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
        match framing {
            Framing::Unspecified if ended => {
                answer.body = bytes[at..].to_vec();
                at = bytes.len();
            }
            Framing::Unspecified => return Ok(Read::Part),
            Framing::Length(length) => match bytes.get(at..at.saturating_add(length)) {
                Some(body) => {
                    answer.body = body.to_vec();
                    at += length;
                }
                None => return Ok(Read::Part),
            },
            Framing::Chunked => match chunks(bytes, &mut at)? {
                Some((body, trailers)) => (answer.body, answer.trailers) = (body, trailers),
                None => return Ok(Read::Part),
            },
        }
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
    let rest = line.strip_prefix("HTTP/1.1 ");
    let rest = rest.or_else(|| line.strip_prefix("HTTP/1.0 "));
    let code = rest.map(|rest| rest.split(' ').next().unwrap_or(rest));
    let code = code.filter(|code| code.len() == 3 && code.bytes().all(|b| b.is_ascii_digit()));
    match code.and_then(|code| code.parse().ok()) {
        Some(status) => Ok(status),
        None => bad(format!("invalid status line: {line:?}")),
    }
}
