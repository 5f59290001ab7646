//! Where the identity and the attributes of a request come from.

mod values;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use fluxgate_core::key::{AUTHORIZATION, counted_credentials};
use fluxgate_core::text::lossless_text;

use crate::claims::Claims;
use crate::request_head::{BadRequest, RequestHead};
pub(crate) use values::check_header;
use values::{cookies, only, parameters, token_of};

/// The part of a request that a value comes from: a header, a bearer token, a query parameter, a
/// cookie, a call of the Model Context Protocol or, with the feature `jwt`, a claim of a verified
/// token.
///
/// ```
/// use fluxgate_http::Source;
///
/// let source: Source = "cookie:session".parse()?;
/// assert_eq!(source, Source::cookie("session"));
/// # Ok::<_, fluxgate_http::SourceError>(())
/// ```
///
/// A request that gives it twice with different values is rejected with 400. Values other than
/// claims are under the client's control, unless something in front of the filter verifies or
/// sets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// The name is in lower case.
    Header(Box<str>),
    Bearer,
    Query(Box<str>),
    Cookie(Box<str>),
    Mcp(McpField),
    #[cfg(feature = "jwt")]
    Claim(Box<str>),
}

/// A field of a call of the Model Context Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum McpField {
    Method,
    Name,
}

/// The kinds of sources, for messages.
const KINDS: &str = if cfg!(feature = "jwt") {
    "header:NAME, bearer, query:NAME, cookie:NAME, jwt:CLAIM, mcp:method or mcp:name"
} else {
    "header:NAME, bearer, query:NAME, cookie:NAME, mcp:method or mcp:name"
};

/// Why a text is not a [`Source`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// It does not begin with a known kind.
    #[error("`{0}` is not a source; write {KINDS}")]
    UnknownKind(String),
    /// The name cannot occur in a request.
    #[error("`{name}` cannot be the name of a {kind}; {expected}")]
    InvalidName {
        /// The kind of the source, in words.
        kind: &'static str,
        /// The name.
        name: String,
        /// What such a name looks like.
        expected: &'static str,
    },
}

impl Source {
    /// Creates the source for the header of this name, in any case. Its value is trimmed. That of
    /// `Authorization` counts with its scheme in lower case and one space behind it.
    ///
    /// # Panics
    /// If no header can have this name.
    pub fn header(name: &str) -> Self {
        Self::try_header(name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates the source for the token of `Authorization: Bearer …`, in any case of the scheme.
    /// Other schemes have no such token.
    pub fn bearer() -> Self {
        Self(Kind::Bearer)
    }

    /// Creates the source for the query parameter of this name. Names and values are percent
    /// decoded, and `+` is a space. Some servers separate parameters by `;` as well, so a request
    /// with a `;` next to this parameter is rejected with 400. So is a parameter whose name
    /// servers may take for this one, and a value with control characters, or with white space
    /// at its ends or bytes that are not UTF-8.
    ///
    /// # Panics
    /// If the name is empty.
    pub fn query(name: &str) -> Self {
        Self::try_query(name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates the source for the cookie of this name. Double quotes around its value are
    /// removed, and percent escapes are decoded. A request is rejected with 400 if servers
    /// disagree on its cookies: if the value has quotes, backslashes, commas or white space
    /// elsewhere or is not UTF-8, if the name occurs within another cookie, or if servers may take
    /// the name of another cookie for this one.
    ///
    /// # Panics
    /// If no cookie can have this name.
    pub fn cookie(name: &str) -> Self {
        Self::try_cookie(name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates the source for a claim of a verified token (feature `jwt`): a string as it is, a
    /// number or a boolean as its JSON text. Other values count as absent, and so does every
    /// claim without a [`Jwt`](crate::Jwt) that verifies tokens.
    ///
    /// Dots separate the names of nested claims (`realm.role`). A claim with exactly this name
    /// takes precedence, so names may contain dots.
    ///
    /// # Panics
    /// If the name is empty.
    #[cfg(feature = "jwt")]
    pub fn jwt(claim: &str) -> Self {
        Self::try_claim(claim).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates the source for the method of a call of the Model Context Protocol, such as
    /// `tools/call`. Only the gateway reads such calls; elsewhere it is absent.
    pub fn mcp_method() -> Self {
        Self(Kind::Mcp(McpField::Method))
    }

    /// Creates the source for the tool, the resource or the prompt that a call of the Model
    /// Context Protocol names, like [`Source::mcp_method`].
    pub fn mcp_name() -> Self {
        Self(Kind::Mcp(McpField::Name))
    }

    /// Returns whether the source is a field of a call of the Model Context Protocol.
    pub fn is_of_mcp_call(&self) -> bool {
        matches!(self.0, Kind::Mcp(_))
    }

    /// Returns the name of the header in lower case, if the source is one, or a part of one that
    /// must not be repeated.
    pub fn header_name(&self) -> Option<&str> {
        match &self.0 {
            Kind::Header(name) => Some(name),
            Kind::Bearer => Some(AUTHORIZATION),
            _ => None,
        }
    }

    /// Returns the name of the header that the value is in, in lower case.
    pub(crate) fn read_header(&self) -> Option<&str> {
        match &self.0 {
            Kind::Cookie(_) => Some("cookie"),
            _ => self.header_name(),
        }
    }

    /// Returns whether the value is all of a header.
    #[cfg(feature = "jwt")]
    pub(crate) fn is_whole_header(&self) -> bool {
        matches!(self.0, Kind::Header(_))
    }

    /// Returns the name of the claim, if the source is one.
    pub fn claim_name(&self) -> Option<&str> {
        match &self.0 {
            #[cfg(feature = "jwt")]
            Kind::Claim(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the value in this request with these verified claims, if it has one. A value
    /// that is not UTF-8 counts by its bytes.
    ///
    /// # Errors
    /// If it has two that differ.
    #[cfg_attr(not(feature = "jwt"), expect(unused_variables, reason = "no claims"))]
    pub(crate) fn value<'a>(
        &self,
        head: &'a impl RequestHead,
        claims: &Claims,
    ) -> Result<Option<Cow<'a, str>>, BadRequest> {
        let value = match &self.0 {
            Kind::Header(name) => {
                let value = head.only_value(name)?;
                if let Some(value) = value {
                    check_header(name, value)?;
                }
                if **name == *AUTHORIZATION {
                    value.map(counted_credentials)
                } else {
                    value.map(Cow::Borrowed)
                }
            }
            Kind::Bearer => {
                let value = head.only_value(AUTHORIZATION)?;
                if let Some(value) = value {
                    check_header(AUTHORIZATION, value)?;
                }
                value.map_or(Ok(None), token_of)?.map(Cow::Borrowed)
            }
            Kind::Query(name) => only(parameters(head.query().unwrap_or_default(), name))?,
            Kind::Cookie(name) => {
                let lines = head.header_lines("cookie");
                only(lines.flat_map(|line| cookies(line, name)))?
            }
            Kind::Mcp(field) => {
                let call = head.mcp_call();
                let value = call.and_then(|call| match field {
                    McpField::Method => Some(call.method),
                    McpField::Name => call.name,
                });
                return Ok(value.map(Cow::Borrowed));
            }
            #[cfg(feature = "jwt")]
            Kind::Claim(name) => {
                let value = claims.get(name);
                return Ok(value.map(|value| Cow::Owned(value.to_owned())));
            }
        };
        Ok(value.map(|value| match value {
            Cow::Borrowed(bytes) => lossless_text(bytes),
            Cow::Owned(bytes) => Cow::Owned(lossless_text(&bytes).into_owned()),
        }))
    }

    fn try_header(name: &str) -> Result<Self, SourceError> {
        match http::HeaderName::from_bytes(name.as_bytes()) {
            Ok(name) => Ok(Self(Kind::Header(name.as_str().into()))),
            Err(_) => Err(SourceError::InvalidName {
                kind: "header",
                name: name.into(),
                expected: "write one such as X-User-Id",
            }),
        }
    }

    fn try_query(name: &str) -> Result<Self, SourceError> {
        match name {
            "" => Err(SourceError::InvalidName {
                kind: "query parameter",
                name: name.into(),
                expected: "it must not be empty",
            }),
            name => Ok(Self(Kind::Query(name.into()))),
        }
    }

    fn try_cookie(name: &str) -> Result<Self, SourceError> {
        let is_separator = |it: char| "=;".contains(it) || it.is_whitespace() || it.is_control();
        if name.is_empty() || name.contains(is_separator) {
            Err(SourceError::InvalidName {
                kind: "cookie",
                name: name.into(),
                expected: "it must not be empty, and has no spaces, `=` or `;`",
            })
        } else {
            Ok(Self(Kind::Cookie(name.into())))
        }
    }

    #[cfg(feature = "jwt")]
    fn try_claim(name: &str) -> Result<Self, SourceError> {
        if name.is_empty() {
            Err(SourceError::InvalidName {
                kind: "claim",
                name: name.into(),
                expected: "it must not be empty",
            })
        } else {
            Ok(Self(Kind::Claim(name.into())))
        }
    }
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        match text.split_once(':') {
            None if text == "bearer" => Ok(Self::bearer()),
            Some(("mcp", "method")) => Ok(Self::mcp_method()),
            Some(("mcp", "name")) => Ok(Self::mcp_name()),
            Some(("header", name)) => Self::try_header(name),
            Some(("query", name)) => Self::try_query(name),
            Some(("cookie", name)) => Self::try_cookie(name),
            #[cfg(feature = "jwt")]
            Some(("jwt", name)) => Self::try_claim(name),
            _ => Err(SourceError::UnknownKind(text.into())),
        }
    }
}

impl TryFrom<&str> for Source {
    type Error = SourceError;

    fn try_from(text: &str) -> Result<Self, SourceError> {
        text.parse()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match &self.0 {
            Kind::Bearer => return f.write_str("bearer"),
            Kind::Header(name) => ("header", name),
            Kind::Query(name) => ("query", name),
            Kind::Cookie(name) => ("cookie", name),
            Kind::Mcp(McpField::Method) => return f.write_str("mcp:method"),
            Kind::Mcp(McpField::Name) => return f.write_str("mcp:name"),
            #[cfg(feature = "jwt")]
            Kind::Claim(name) => ("jwt", name),
        };
        write!(f, "{kind}:{name}")
    }
}

/// The sources of one value, in order of precedence: the first that a request has counts. An
/// empty value counts as absent.
///
/// ```
/// use fluxgate_http::{Identity, Source};
///
/// let identity = Identity::default().user([Source::bearer(), Source::header("x-user-id")]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceList(Vec<Source>);

impl SourceList {
    /// Returns the sources.
    pub fn iter(&self) -> std::slice::Iter<'_, Source> {
        self.0.iter()
    }

    /// Returns the value of the first source that the request has.
    ///
    /// # Errors
    /// If any of the sources is ambiguous: the server may prefer another one.
    pub(crate) fn value<'a>(
        &self,
        head: &'a impl RequestHead,
        claims: &Claims,
    ) -> Result<Option<Cow<'a, str>>, BadRequest> {
        // Nearly all lists have one source.
        if let [source] = &self.0[..] {
            return source.value(head, claims);
        }
        let mut first = None;
        for source in &self.0 {
            let value = source.value(head, claims)?;
            first = first.or(value.filter(|value| !value.is_empty()));
        }
        Ok(first)
    }
}

impl<'a> IntoIterator for &'a SourceList {
    type Item = &'a Source;
    type IntoIter = std::slice::Iter<'a, Source>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<Source> for SourceList {
    fn from(source: Source) -> Self {
        Self(vec![source])
    }
}

impl From<Vec<Source>> for SourceList {
    fn from(sources: Vec<Source>) -> Self {
        Self(sources)
    }
}

impl<const N: usize> From<[Source; N]> for SourceList {
    fn from(sources: [Source; N]) -> Self {
        Self(sources.into())
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_text_is_read_and_written() {
        for (text, source) in [
            ("header:X-User-Id", Source::header("x-user-id")),
            ("query:api key", Source::query("api key")),
            ("query:a:b", Source::query("a:b")),
            ("cookie:Session", Source::cookie("Session")),
            ("bearer", Source::bearer()),
            ("mcp:method", Source::mcp_method()),
            ("mcp:name", Source::mcp_name()),
        ] {
            assert_eq!(text.parse(), Ok(source.clone()));
            assert_eq!(Source::try_from(text), Ok(source.clone()));
            assert_eq!(source.to_string().parse(), Ok(source));
        }
        assert_eq!(Source::header("X-A").to_string(), "header:x-a");
        assert_eq!(Source::header("X-A").header_name(), Some("x-a"));
        assert_eq!(Source::cookie("a").header_name(), None);
    }

    #[test]
    fn an_invalid_text_is_refused_with_the_reason() {
        for text in [
            "X-User-Id",
            "Header:a",
            "JWT:sub",
            "bearer:x",
            "Bearer",
            "mcp:tool",
        ] {
            let error = Source::from_str(text).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("`{text}` is not a source; write {KINDS}")
            );
        }
        for (text, message) in [
            (
                "header:a b",
                "`a b` cannot be the name of a header; write one such as X-User-Id",
            ),
            (
                "header:",
                "`` cannot be the name of a header; write one such as X-User-Id",
            ),
            (
                "query:",
                "`` cannot be the name of a query parameter; it must not be empty",
            ),
            (
                "cookie:a=b",
                "`a=b` cannot be the name of a cookie; it must not be empty, and has no spaces, `=` or `;`",
            ),
            (
                "cookie: a",
                "` a` cannot be the name of a cookie; it must not be empty, and has no spaces, `=` or `;`",
            ),
        ] {
            let error = Source::from_str(text).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }

    #[cfg(feature = "jwt")]
    #[test]
    fn a_claim_is_read_and_written() {
        for (text, name) in [
            ("jwt:sub", "sub"),
            ("jwt:https://example.com/role", "https://example.com/role"),
        ] {
            let source = Source::jwt(name);
            assert_eq!(text.parse(), Ok(source.clone()));
            assert_eq!(source.to_string(), text);
            assert_eq!(source.claim_name(), Some(name));
        }
        let error = Source::from_str("jwt:").unwrap_err().to_string();
        assert_eq!(
            error,
            "`` cannot be the name of a claim; it must not be empty"
        );
    }

    #[test]
    #[should_panic(expected = "`a b` cannot be the name of a header")]
    fn an_invalid_name_panics() {
        let _ = Source::header("a b");
    }

    #[test]
    fn the_first_source_that_is_present_counts() {
        let list = SourceList::from([
            Source::bearer(),
            Source::header("x-user-id"),
            Source::query("user"),
        ]);
        let value = |target: &str, headers: &[(&str, &str)]| {
            let request = headers
                .iter()
                .fold(Request::get(target), |request, (name, value)| {
                    request.header(*name, *value)
                });
            let head = request.body(()).unwrap().into_parts().0;
            list.value(&head, &Claims::default())
                .map(|value| value.map(Cow::into_owned))
        };
        let some = |text: &str| Ok(Some(text.to_owned()));
        let bearer = ("authorization", "BEARER  t");
        assert_eq!(value("/", &[]), Ok(None));
        assert_eq!(value("/?user=q", &[]), some("q"));
        assert_eq!(value("/?user=q", &[("x-user-id", "h")]), some("h"));
        assert_eq!(value("/?user=q", &[("x-user-id", "")]), some("q"));
        assert_eq!(value("/?user=q", &[("x-user-id", "h"), bearer]), some("t"));
        let basic = ("authorization", "Basic x");
        assert_eq!(value("/?user=q", &[basic]), some("q"));
        // A server may prefer another source.
        let twice = value("/?user=q&user=r", &[bearer]);
        assert_eq!(twice, Err(BadRequest::ConflictingValues));
    }
}
