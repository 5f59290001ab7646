//! The parser of requests.

use super::body::Framing;
use super::{Ambiguous, Headers, Read, bad, head, values};

/// A request as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireRequest {
    /// The method.
    pub method: String,
    /// The target.
    pub target: String,
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// The headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
    /// The trailers after the last chunk.
    pub trailers: Headers,
}

impl WireRequest {
    /// Parses one request.
    ///
    /// # Errors
    /// If the request is ambiguous.
    pub fn read(bytes: &[u8]) -> Result<Read<Self>, Ambiguous> {
        let (head, mut at) = match head::read(bytes)? {
            Read::Whole(head, at) => (head, at),
            Read::Part => return Ok(Read::Part),
        };
        let mut request = first_line(&head.first)?;
        let hosts = values(&head.headers, "host").len();
        if hosts > 1 || (hosts == 0 && request.version == "HTTP/1.1") {
            return bad(format!("{hosts} host headers"));
        }
        let framing = Framing::of(&head.headers)?;
        if framing == Framing::Chunked && request.version == "HTTP/1.0" {
            return bad("chunks in HTTP/1.0");
        }
        let Some((body, trailers)) = framing.read(bytes, &mut at)? else {
            return Ok(Read::Part);
        };
        (request.body, request.trailers) = (body, trailers);
        request.headers = head.headers;
        Ok(Read::Whole(request, at))
    }

    /// Parses all complete requests. Returns them and the remaining bytes.
    ///
    /// # Errors
    /// If a request is ambiguous.
    pub fn read_all(mut bytes: &[u8]) -> Result<(Vec<Self>, &[u8]), Ambiguous> {
        let mut requests = Vec::new();
        while !bytes.is_empty() {
            match Self::read(bytes)? {
                Read::Whole(request, used) => {
                    requests.push(request);
                    bytes = &bytes[used..];
                }
                Read::Part => break,
            }
        }
        Ok((requests, bytes))
    }

    /// Returns the values of a header, whose name is in lower case.
    pub fn values(&self, name: &str) -> Vec<&str> {
        values(&self.headers, name)
    }

    /// Returns the method and the target, separated by a space.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

fn first_line(line: &str) -> Result<WireRequest, Ambiguous> {
    let parts: Vec<_> = line.split(' ').collect();
    let [method, target, version @ ("HTTP/1.1" | "HTTP/1.0")] = parts[..] else {
        return bad(format!("invalid request line: {line:?}"));
    };
    let is_method = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let is_target = |c: char| c > ' ' && c != '\x7f' && c != '#';
    if method.is_empty() || !method.chars().all(is_method) {
        return bad(format!("invalid method: {line:?}"));
    }
    if target.is_empty() || !target.chars().all(is_target) {
        return bad(format!("invalid target: {line:?}"));
    }
    Ok(WireRequest {
        method: method.to_owned(),
        target: target.to_owned(),
        version: version.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        trailers: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> WireRequest {
        match WireRequest::read(text.as_bytes()).unwrap() {
            Read::Whole(request, used) => {
                assert_eq!(used, text.len());
                request
            }
            Read::Part => panic!("{text:?} is incomplete"),
        }
    }

    #[test]
    fn requests_are_parsed() {
        let request = whole("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(
            (request.line().as_str(), &request.body[..]),
            ("POST /a", &b"hi"[..])
        );
        let chunked = whole(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nT: 1\r\n\r\n",
        );
        assert_eq!(chunked.body, b"hi");
        assert_eq!(chunked.trailers, [("t".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn incomplete_requests_are_partial() {
        let text = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
        for end in 0..text.len() {
            assert_eq!(WireRequest::read(&text[..end]), Ok(Read::Part), "{end}");
        }
    }

    #[test]
    fn ambiguous_requests_are_errors() {
        for rest in [
            "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "Content-Length: +1\r\n\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding: identity\r\n\r\n",
            "Transfer-Encoding : chunked\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n0x1\r\n",
            "Host: b\r\n\r\n",
            "A: b\r\n folded\r\n\r\n",
            "A: b\n\r\n",
            "A: b\0\r\n\r\n",
        ] {
            let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}");
            assert!(WireRequest::read(text.as_bytes()).is_err(), "{rest:?}");
        }
    }
}
