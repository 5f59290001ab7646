//! The part of a request that a filter reads.

use fluxgate_core::path::PathError;
use http::request::Parts;

/// The head of a request, in whatever form a server keeps it.
pub trait RequestHead {
    /// Returns the method as it was sent.
    fn method(&self) -> &str;

    /// Returns the query of the target, without its `?`, if there is one.
    fn query(&self) -> Option<&str>;

    /// Returns the lines of a header in order. `name` is in lower case.
    fn header_lines<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]>;

    /// Returns every header line in order. Names may be in any case.
    fn all_headers(&self) -> impl Iterator<Item = (&str, &[u8])>;

    /// Returns the call of the Model Context Protocol that the request makes, if the server has
    /// read one: the gateway does, on routes with `mcp`.
    fn mcp_call(&self) -> Option<McpCall<'_>> {
        None
    }

    /// Returns whether any header has two lines, or may have.
    fn may_repeat_headers(&self) -> bool {
        true
    }

    /// Returns the value of a header that may be repeated but must not have two values.
    ///
    /// # Errors
    /// If its lines differ.
    fn only_value<'a>(&'a self, name: &str) -> Result<Option<&'a [u8]>, BadRequest> {
        let Some(first) = self.first_line(name) else {
            return Ok(None);
        };
        if self.may_repeat_headers() && self.header_lines(name).any(|line| line != first) {
            Err(BadRequest::ConflictingValues)
        } else {
            Ok(Some(first))
        }
    }

    /// Returns the first line of a header.
    fn first_line<'a>(&'a self, name: &str) -> Option<&'a [u8]> {
        self.header_lines(name).next()
    }

    /// Returns the first line of a header if it is UTF-8.
    fn header<'a>(&'a self, name: &str) -> Option<&'a str> {
        std::str::from_utf8(self.first_line(name)?).ok()
    }
}

/// A call of the Model Context Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McpCall<'a> {
    /// The method, such as `tools/call`.
    pub method: &'a str,
    /// The tool, the resource or the prompt that the call is about, if there is one.
    pub name: Option<&'a str>,
}

/// Values are trimmed: HTTP/1.1 strips surrounding white space and HTTP/2 does not, so a
/// client could otherwise change its identity by adding a space.
impl RequestHead for Parts {
    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn query(&self) -> Option<&str> {
        self.uri.query()
    }

    fn header_lines<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let lines = self.headers.get_all(name).iter();
        lines.map(|value| value.as_bytes().trim_ascii())
    }

    fn all_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let headers = self.headers.iter();
        headers.map(|(name, value)| (name.as_str(), value.as_bytes().trim_ascii()))
    }

    fn may_repeat_headers(&self) -> bool {
        self.headers.len() > self.headers.keys_len()
    }

    fn first_line<'a>(&'a self, name: &str) -> Option<&'a [u8]> {
        /// Up to this many headers, a scan costs less than a hash.
        const SCAN_LIMIT: usize = 8;
        let value = if self.headers.len() <= SCAN_LIMIT {
            let headers = self.headers.iter();
            // Both names are nearly always in lower case.
            let is_named = |it: &str| it == name || it.eq_ignore_ascii_case(name);
            let mut named = headers.filter(|(it, _)| is_named(it.as_str()));
            named.next()?.1
        } else {
            self.headers.get(name)?
        };
        Some(value.as_bytes().trim_ascii())
    }
}

/// Rejects a method that differs from a registered one only by case: some servers do not
/// distinguish `post` from `POST`, and rules do.
///
/// # Errors
/// If it is such a method.
pub fn check_method(method: &str) -> Result<(), BadRequest> {
    /// The registry of IANA.
    // `PURGE` is not registered, but widely used to clear caches.
    const REGISTERED: &str = "ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE \
        GET HEAD LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE \
        OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH PUT QUERY REBIND REPORT SEARCH TRACE \
        UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL PURGE";
    // Registered methods are in capitals.
    if !method.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Ok(());
    }
    let is_known = |known: &str| known.eq_ignore_ascii_case(method);
    if REGISTERED.split(' ').any(is_known) {
        return Err(BadRequest::Method);
    }
    Ok(())
}

/// Why a request is answered with 400: servers may read it in different ways, so the limiter
/// could count another request than the one that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
#[non_exhaustive]
pub enum BadRequest {
    /// The path is ambiguous.
    Path(PathError),
    /// A header, query parameter or cookie that requests are counted by is repeated with
    /// different values.
    ConflictingValues,
    /// A `;` is next to a query parameter that requests are counted by: some servers separate
    /// parameters there.
    Semicolon,
    /// A cookie that requests are counted by has quotes, backslashes, commas or white space where
    /// servers disagree on what they mean.
    UnclearCookie,
    /// A cookie that requests are counted by occurs within another, where some servers find it.
    HiddenCookie,
    /// Servers may take the name of a query parameter or a cookie for one that requests are
    /// counted by.
    AlikeName,
    /// Servers may take the name of a header for one that requests are counted by, or for one
    /// that proxies set, and the header cannot be removed before the request is served.
    AlikeHeader,
    /// A value that requests are counted by has control characters, bytes that are not UTF-8, or
    /// white space at its ends, which some servers remove.
    UnclearValue,
    /// `Authorization` has the scheme Bearer, but not exactly one token.
    UnclearToken,
    /// The method differs from a registered one only by case.
    Method,
}

impl BadRequest {
    /// Returns the reason as it is reported to the client.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Path(error) => error.reason(),
            Self::ConflictingValues => {
                "a header, query parameter or cookie that requests are counted by is repeated \
                 with different values"
            }
            Self::Semicolon => {
                "a `;` in the query is next to a parameter that requests are counted by; write \
                 `%3B` in a value"
            }
            Self::UnclearCookie => {
                "a cookie that requests are counted by contains quotes, backslashes, commas or \
                 white space"
            }
            Self::HiddenCookie => {
                "a cookie that requests are counted by occurs within another cookie"
            }
            Self::AlikeName => {
                "servers may take the name of a query parameter or a cookie for one that requests \
                 are counted by"
            }
            Self::AlikeHeader => {
                "servers may take the name of a header for one that requests are counted by, or \
                 for one that proxies set"
            }
            Self::UnclearValue => {
                "a value that requests are counted by contains control characters, encoded words \
                 or bytes that are not UTF-8, or begins or ends with white space"
            }
            Self::UnclearToken => "`Authorization: Bearer` must have exactly one token",
            Self::Method => "the method differs from a registered one only by case",
        }
    }
}

impl From<PathError> for BadRequest {
    fn from(error: PathError) -> Self {
        Self::Path(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_must_not_differ_from_a_registered_one_by_case_only() {
        for method in ["post", "Get", "pUT", "version-control"] {
            assert_eq!(check_method(method), Err(BadRequest::Method), "{method}");
        }
        for method in ["POST", "M-SEARCH", "posts", "custom", "GETS"] {
            assert_eq!(check_method(method), Ok(()), "{method}");
        }
    }
}
