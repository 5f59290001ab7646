//! Where the identity and the attributes of a request come from.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use fluxgate_core::internals::lossless_text;

use crate::claims::Claims;
use crate::request_head::{BadRequest, RequestHead};

/// The part of a request that a value comes from: a header, a query parameter, a cookie or,
/// with the feature `jwt`, a claim of a verified token.
///
/// ```
/// use fluxgate_tower::Source;
///
/// let source: Source = "cookie:session".parse()?;
/// assert_eq!(source, Source::cookie("session"));
/// # Ok::<_, fluxgate_tower::SourceError>(())
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
    Query(Box<str>),
    Cookie(Box<str>),
    #[cfg(feature = "jwt")]
    Claim(Box<str>),
}

/// The kinds of sources, for messages.
const KINDS: &str = match cfg!(feature = "jwt") {
    true => "header:NAME, query:NAME, cookie:NAME or jwt:CLAIM",
    false => "header:NAME, query:NAME or cookie:NAME",
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
    /// Creates the source for the header of this name, in any case. Its value is trimmed.
    ///
    /// # Panics
    /// If no header can have this name.
    pub fn header(name: &str) -> Self {
        Self::try_header(name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates the source for the query parameter of this name. Names and values are percent
    /// decoded, and `+` is a space.
    ///
    /// # Panics
    /// If the name is empty.
    pub fn query(name: &str) -> Self {
        Self::try_query(name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates the source for the cookie of this name. Double quotes around its value are
    /// removed.
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

    /// Returns the name of the header in lower case, if the source is one.
    pub fn header_name(&self) -> Option<&str> {
        match &self.0 {
            Kind::Header(name) => Some(name),
            _ => None,
        }
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
            Kind::Header(name) => return Ok(head.only_value(name)?.map(lossless_text)),
            Kind::Query(name) => only(parameters(head.query().unwrap_or_default(), name))?,
            Kind::Cookie(name) => {
                let lines = head.header_lines("cookie");
                let values = lines.flat_map(|line| cookies(line, name));
                only(values.map(Cow::Borrowed))?
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
        match name.is_empty() || name.contains(is_separator) {
            true => Err(SourceError::InvalidName {
                kind: "cookie",
                name: name.into(),
                expected: "it must not be empty, and has no spaces, `=` or `;`",
            }),
            false => Ok(Self(Kind::Cookie(name.into()))),
        }
    }

    #[cfg(feature = "jwt")]
    fn try_claim(name: &str) -> Result<Self, SourceError> {
        match name.is_empty() {
            true => Err(SourceError::InvalidName {
                kind: "claim",
                name: name.into(),
                expected: "it must not be empty",
            }),
            false => Ok(Self(Kind::Claim(name.into()))),
        }
    }
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        match text.split_once(':') {
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
            Kind::Header(name) => ("header", name),
            Kind::Query(name) => ("query", name),
            Kind::Cookie(name) => ("cookie", name),
            #[cfg(feature = "jwt")]
            Kind::Claim(name) => ("jwt", name),
        };
        write!(f, "{kind}:{name}")
    }
}

/// Returns the first value, if all are equal.
fn only<'a>(
    mut values: impl Iterator<Item = Cow<'a, [u8]>>,
) -> Result<Option<Cow<'a, [u8]>>, BadRequest> {
    let first = values.next();
    match values.all(|value| Some(value) == first) {
        true => Ok(first),
        false => Err(BadRequest::ConflictingValues),
    }
}

/// Returns the values of a parameter in a query.
fn parameters<'a>(query: &'a str, name: &str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.split('&').filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (*form_decoded(key) == *name.as_bytes()).then(|| form_decoded(value))
    })
}

/// Decodes percent escapes, and `+` as a space. An incomplete escape is left as it is.
fn form_decoded(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|byte| b"%+".contains(byte)) {
        return Cow::Borrowed(bytes);
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let (byte, after) = match (*first, after) {
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (b'%', &rest[1..]),
            },
            (b'+', after) => (b' ', after),
            (byte, after) => (byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    Cow::Owned(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Returns the values of a cookie in a line of the header.
fn cookies<'a>(line: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
    line.split(|byte| *byte == b';').filter_map(move |pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        (key == name.as_bytes()).then(|| unquoted(value))
    })
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        value => value,
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
        for text in ["X-User-Id", "Header:a", "JWT:sub"] {
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

    /// Returns the value of a source in a request with this target and these cookie lines.
    fn value(source: &Source, target: &str, lines: &[&str]) -> Result<Option<String>, BadRequest> {
        let request = lines.iter().fold(Request::get(target), |request, line| {
            request.header("cookie", *line)
        });
        let head = request.body(()).unwrap().into_parts().0;
        Ok(source
            .value(&head, &Claims::default())?
            .map(Cow::into_owned))
    }

    #[test]
    fn a_query_parameter_is_decoded() {
        let source = Source::query("a b");
        for (query, expected) in [
            ("", None),
            ("?", None),
            ("?a=1", None),
            ("?a+b=1", Some("1")),
            ("?x=y&%61%20b=%C3%A9+%2b&z", Some("é +")),
            ("?a+b", Some("")),
            ("?a+b=", Some("")),
            ("?a+b=c=d", Some("c=d")),
            ("?a+b=%4&x=", Some("%4")),
            ("?a+b=%zz%", Some("%zz%")),
            ("?a+b=%%31", Some("%1")),
            ("?a+b=%ff", Some("\u{10ffff}")),
            ("?a+b=x&A+b=y", Some("x")),
            ("?a+b=x&a%20b=%78", Some("x")),
        ] {
            let target = format!("/p{query}");
            let expected = Ok(expected.map(str::to_owned));
            assert_eq!(value(&source, &target, &[]), expected, "{query}");
        }
        for query in ["?a+b=x&a+b=y", "?a+b=x&a+b", "?a+b=&c=d&a%20b=x"] {
            let target = format!("/p{query}");
            let found = value(&source, &target, &[]);
            assert_eq!(found, Err(BadRequest::ConflictingValues), "{query}");
        }
    }

    #[test]
    fn a_cookie_may_be_in_any_line() {
        let source = Source::cookie("id");
        for (lines, expected) in [
            (&[][..], None),
            (&["a=b"], None),
            (&["id"], None),
            (&["ID=x; xid=y"], None),
            (&["id="], Some("")),
            (&["a=b; id=x"], Some("x")),
            (&["a=b", "id=x"], Some("x")),
            (&["a=b;id = x ;c"], Some("x")),
            (&["id=\"x y\""], Some("x y")),
            (&["id=\""], Some("\"")),
            (&["id=a%20b+c=d"], Some("a%20b+c=d")),
            (&["id=x; id=\"x\"", "id=x"], Some("x")),
        ] {
            let expected = Ok(expected.map(str::to_owned));
            assert_eq!(value(&source, "/", lines), expected, "{lines:?}");
        }
        for lines in [&["id=x; id=y"][..], &["id=x", "id=y"], &["id=x;id="]] {
            let found = value(&source, "/", lines);
            assert_eq!(found, Err(BadRequest::ConflictingValues), "{lines:?}");
        }
    }
}
