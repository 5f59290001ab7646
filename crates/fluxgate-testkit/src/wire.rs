//! A strict HTTP/1.1 parser.
//!
//! A message that two parsers could interpret differently is an error here. So tests can
//! verify that a proxy sends no ambiguous messages.

/// The result of parsing a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<T> {
    /// A complete message and its length in bytes.
    Whole(T, usize),
    /// The beginning of a message.
    Part,
}

/// Why a message is invalid or ambiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguous(pub String);

impl std::fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names in lower case, with their values. Each byte becomes a character.
pub type Headers = Vec<(String, String)>;

/// Returns the values of a header, whose name is in lower case.
pub(crate) fn values<'a>(headers: &'a Headers, name: &str) -> Vec<&'a str> {
    let matching = headers.iter().filter(|(other, _)| other == name);
    matching.map(|(_, value)| value.as_str()).collect()
}

fn bad<T>(what: impl Into<String>) -> Result<T, Ambiguous> {
    Err(Ambiguous(what.into()))
}

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
        let (head, mut at) = match read_head(bytes)? {
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
        let (head, mut at) = match read_head(bytes)? {
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

/// The first line and the headers.
struct Head {
    first: String,
    headers: Headers,
}

/// Parses a head, which ends with an empty line.
fn read_head(bytes: &[u8]) -> Result<Read<Head>, Ambiguous> {
    let mut at = 0;
    let first = match line(bytes, &mut at)? {
        Some(first) => first,
        None => return Ok(Read::Part),
    };
    Ok(match fields(bytes, &mut at)? {
        Some(headers) => Read::Whole(Head { first, headers }, at),
        None => Read::Part,
    })
}

/// Parses headers or trailers up to an empty line.
fn fields(bytes: &[u8], at: &mut usize) -> Result<Option<Headers>, Ambiguous> {
    let mut headers = Vec::new();
    loop {
        match line(bytes, at)? {
            None => return Ok(None),
            Some(line) if line.is_empty() => return Ok(Some(headers)),
            Some(line) => headers.push(field(&line)?),
        }
    }
}

fn field(line: &str) -> Result<(String, String), Ambiguous> {
    let Some((name, value)) = line.split_once(':') else {
        return bad(format!("a header without a colon: {line:?}"));
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_name) {
        return bad(format!("invalid header name: {line:?}"));
    }
    let is_value = |c: char| c == '\t' || (c >= ' ' && c != '\x7f');
    if !value.chars().all(is_value) {
        return bad(format!("invalid header value: {line:?}"));
    }
    let value = value.trim_matches([' ', '\t']);
    Ok((name.to_ascii_lowercase(), value.to_owned()))
}

/// Returns the next line without its end. Each byte becomes a character.
fn line(bytes: &[u8], at: &mut usize) -> Result<Option<String>, Ambiguous> {
    let rest = &bytes[*at..];
    let Some(end) = rest.iter().position(|byte| b"\r\n".contains(byte)) else {
        return Ok(None);
    };
    let text = || rest[..end].iter().copied().map(char::from).collect();
    match &rest[end..] {
        [b'\r', b'\n', ..] => {
            *at += end + 2;
            Ok(Some(text()))
        }
        [b'\r'] => Ok(None),
        _ => bad(format!("a bare line end after {:?}", text() as String)),
    }
}

/// How the end of a body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// Neither `content-length` nor `transfer-encoding`.
    Unspecified,
    Length(usize),
    Chunked,
}

impl Framing {
    /// Returns the framing that the headers specify.
    fn of(headers: &Headers) -> Result<Self, Ambiguous> {
        let lengths = values(headers, "content-length");
        match (&values(headers, "transfer-encoding")[..], &lengths[..]) {
            ([], []) => Ok(Self::Unspecified),
            ([coding], []) if coding.eq_ignore_ascii_case("chunked") => Ok(Self::Chunked),
            ([], [length]) if is_number(length) => length
                .parse()
                .map(Self::Length)
                .or_else(|_| bad(format!("invalid length: {length:?}"))),
            (codings, lengths) => bad(format!(
                "ambiguous framing: codings {codings:?}, lengths {lengths:?}"
            )),
        }
    }
}

impl Framing {
    /// Reads a body from `at`, and moves `at` behind it. Without framing, it is empty. Returns
    /// `None` if the body is incomplete.
    fn read(self, bytes: &[u8], at: &mut usize) -> Result<Option<BodyAndTrailers>, Ambiguous> {
        let length = match self {
            Self::Chunked => return chunks(bytes, at),
            Self::Length(length) => length,
            Self::Unspecified => 0,
        };
        let Some(body) = bytes.get(*at..at.saturating_add(length)) else {
            return Ok(None);
        };
        *at += length;
        Ok(Some((body.to_vec(), Vec::new())))
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A body and its trailers.
type BodyAndTrailers = (Vec<u8>, Headers);

/// Parses all chunks and the trailers.
fn chunks(bytes: &[u8], at: &mut usize) -> Result<Option<BodyAndTrailers>, Ambiguous> {
    let mut body = Vec::new();
    loop {
        let Some(size) = line(bytes, at)? else {
            return Ok(None);
        };
        let is_size = (1..=16).contains(&size.len()) && size.bytes().all(|b| b.is_ascii_hexdigit());
        let Some(size) = usize::from_str_radix(&size, 16).ok().filter(|_| is_size) else {
            return bad(format!("invalid chunk size: {size:?}"));
        };
        if size == 0 {
            return Ok(fields(bytes, at)?.map(|trailers| (body, trailers)));
        }
        let rest = &bytes[*at..];
        if rest.len() < size + 2 {
            return Ok(None);
        }
        if &rest[size..size + 2] != b"\r\n" {
            return bad("a chunk without a line end");
        }
        body.extend_from_slice(&rest[..size]);
        *at += size + 2;
    }
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
