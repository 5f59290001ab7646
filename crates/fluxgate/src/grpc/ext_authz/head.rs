//! The client's request, as Envoy describes it.

use fluxgate_core::path::RequestPath;
use fluxgate_http::server::is_token;
use fluxgate_http::{BadRequest, Problem, RequestHead, is_grpc};
use smallvec::SmallVec;

use super::messages::HttpRequest;
use super::strings::{Malformed, Strings};
use crate::described_request::RequestTarget;

/// The field of `envoy.config.core.v3.HeaderMap` with its lines, each an
/// `envoy.config.core.v3.HeaderValue`: name, value, and raw value in place of the value.
const LINES: u64 = 1;

/// The headers of the client's request.
#[derive(Debug)]
pub(super) struct RequestHeaders<'a> {
    lines: SmallVec<[(&'a str, &'a [u8]); 24]>,
    /// Whether lines of one name are joined by commas.
    are_joined: bool,
    /// Whether a name is none that a server accepts.
    has_bad_name: bool,
}

impl<'a> RequestHeaders<'a> {
    /// Reads the headers, without the pseudo-headers of HTTP/2 among them.
    pub(super) fn read(http: &'a HttpRequest) -> Result<Self, Malformed> {
        let mut headers = Self {
            lines: SmallVec::new(),
            are_joined: http.header_map.is_empty(),
            has_bad_name: false,
        };
        // Envoy keeps the host of every protocol in `:authority`.
        if !http.host.is_empty() {
            headers.push(b"host", &http.host);
        }
        for line in http.header_map.iter().flat_map(|map| Strings::of(map)) {
            let (number, line) = line?;
            if number == LINES {
                let [name, value, raw_value] = Strings::of(line).by_number()?;
                let is_raw = !raw_value.is_empty();
                headers.push(name, if is_raw { raw_value } else { value });
            }
        }
        if headers.are_joined {
            for entry in &http.headers {
                let [name, value] = Strings::of(entry).by_number()?;
                headers.push(name, value);
            }
        }
        Ok(headers)
    }

    fn push(&mut self, name: &'a [u8], value: &'a [u8]) {
        match str::from_utf8(name) {
            Ok(name) if name.starts_with(':') => {}
            Ok(name) if !name.is_empty() && name.bytes().all(is_token) => {
                self.lines.push((name, value.trim_ascii()));
            }
            _ => self.has_bad_name = true,
        }
    }

    fn lines_of<'s>(&'s self, name: &str) -> impl Iterator<Item = &'s [u8]> {
        let named = self.lines.iter();
        let named = named.filter(move |(it, _)| it.eq_ignore_ascii_case(name));
        named.map(shortened).map(|(_, value)| value)
    }

    /// Returns the first line of a header as text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.lines_of(name).next()?).ok()
    }

    /// Returns the content type of a gRPC request.
    pub(super) fn grpc_content_type(&self) -> Option<&str> {
        let content_type = self.text("content-type")?;
        is_grpc(content_type.as_bytes()).then_some(content_type)
    }
}

/// Returns a line for as long as the list of lines is borrowed.
fn shortened<'s>(line: &'s (&str, &[u8])) -> (&'s str, &'s [u8]) {
    (line.0, line.1)
}

/// The head of the client's request.
#[derive(Debug)]
pub(super) struct DescribedHead<'h, 'a> {
    target: RequestTarget,
    headers: &'h RequestHeaders<'a>,
}

impl<'h, 'a> DescribedHead<'h, 'a> {
    /// Reads the rest of the head.
    pub(super) fn read(
        http: &HttpRequest,
        headers: &'h RequestHeaders<'a>,
    ) -> Result<Self, Problem> {
        if headers.has_bad_name {
            return Err(Problem::bad_request("the name of a header is not a token"));
        }
        let target = RequestTarget::read(&http.method, http.path.clone());
        let target = target.map_err(|error| Problem::bad_request(error.to_string()))?;
        Ok(Self { target, headers })
    }

    /// Returns the path, raw and normal.
    pub(super) fn path(&self) -> Result<RequestPath<'_>, Problem> {
        Ok(self.target.path()?)
    }
}

impl RequestHead for DescribedHead<'_, '_> {
    fn method(&self) -> &str {
        self.target.method()
    }

    fn query(&self) -> Option<&str> {
        self.target.query()
    }

    fn header_lines<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.lines_of(name)
    }

    fn all_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.lines.iter().map(shortened)
    }

    /// A joined header with a comma may have been one line or two. If they were two, servers
    /// differ in which of them they take.
    fn only_value<'a>(&'a self, name: &str) -> Result<Option<&'a [u8]>, BadRequest> {
        let mut lines = self.headers.lines_of(name);
        let first = lines.next();
        let is_joined = self.headers.are_joined && first.is_some_and(|line| line.contains(&b','));
        if is_joined || lines.any(|line| Some(line) != first) {
            Err(BadRequest::ConflictingValues)
        } else {
            Ok(first)
        }
    }

    fn first_line<'a>(&'a self, name: &str) -> Option<&'a [u8]> {
        self.headers.lines_of(name).next()
    }
}
