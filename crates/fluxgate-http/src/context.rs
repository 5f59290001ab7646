//! Builds the context of a request: the fields that rules match and count by.

use std::borrow::Cow;
use std::net::IpAddr;
#[cfg(feature = "jwt")]
use std::sync::Arc;

use fluxgate_core::path::RequestPath;
use fluxgate_core::text::lossless_text;
use fluxgate_core::{RequestContext, RequestContextBuilder};
use http::{HeaderMap, HeaderName};

use crate::checked_headers::{check_named, read_all};
use crate::claims::Claims;
use crate::handler::HeaderNames;
#[cfg(feature = "jwt")]
use crate::jwt::{Jwt, TokenReader};
use crate::request_head::{BadRequest, RequestHead, check_method};
use crate::source::{Source, SourceList};

/// Where the identity of the sender of a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The sources of the user; `header:X-User-Id` by default.
    pub user: SourceList,
    /// The sources of the API key; `header:X-API-Key` by default.
    pub api_key: SourceList,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            user: Source::header("x-user-id").into(),
            api_key: Source::header("x-api-key").into(),
        }
    }
}

impl Identity {
    /// Reads the user from this source, or from the first of these that a request has.
    pub fn user(mut self, sources: impl Into<SourceList>) -> Self {
        self.user = sources.into();
        self
    }

    /// Reads the API key from this source, or from the first of these that a request has.
    pub fn api_key(mut self, sources: impl Into<SourceList>) -> Self {
        self.api_key = sources.into();
        self
    }
}

/// The sources of the identity and of the attributes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    identity: Identity,
    /// The name and the sources of each attribute.
    attributes: Vec<(Box<str>, SourceList)>,
    /// Verifies the token that claims come from.
    #[cfg(feature = "jwt")]
    tokens: Option<Arc<TokenReader>>,
}

/// Why a request has no context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextError {
    /// It is ambiguous.
    BadRequest(BadRequest),
    /// Its token is invalid, and such requests are refused.
    InvalidToken,
}

impl From<BadRequest> for ContextError {
    fn from(bad: BadRequest) -> Self {
        Self::BadRequest(bad)
    }
}

impl Sources {
    /// Identifies the sender by these sources.
    pub(crate) fn set_identity(&mut self, identity: Identity) {
        self.identity = identity;
        self.update_claims();
    }

    /// Reads an attribute from these sources, in place of earlier ones.
    pub(crate) fn set_attribute(&mut self, name: Box<str>, sources: SourceList) {
        self.attributes.retain(|(known, _)| *known != name);
        self.attributes.push((name, sources));
        self.update_claims();
    }

    /// Verifies tokens with these settings.
    #[cfg(feature = "jwt")]
    pub(crate) fn set_jwt(&mut self, jwt: Jwt) {
        let claims = self.sources().filter_map(Source::claim_name);
        self.tokens = Some(Arc::new(TokenReader::new(jwt, claims)));
    }

    /// Returns how tokens are verified, if they are.
    #[cfg(feature = "jwt")]
    pub(crate) fn jwt(&self) -> Option<&Jwt> {
        self.tokens.as_ref().map(|tokens| &tokens.jwt)
    }

    /// Returns a claim that a source refers to although no tokens are verified, if any.
    pub(crate) fn unverified_claim(&self) -> Option<&str> {
        #[cfg(feature = "jwt")]
        if self.tokens.is_some() {
            return None;
        }
        self.sources().find_map(Source::claim_name)
    }

    /// Makes the reader of tokens extract the claims that the current sources refer to.
    fn update_claims(&mut self) {
        #[cfg(feature = "jwt")]
        if let Some(jwt) = self.jwt().cloned() {
            self.set_jwt(jwt);
        }
    }

    /// Returns whether a source is a field of a call.
    pub(crate) fn read_mcp_calls(&self) -> bool {
        self.sources().any(Source::is_of_mcp_call)
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        let Identity { user, api_key } = &self.identity;
        let attributes = self.attributes.iter().map(|(_, sources)| sources);
        let lists = [user, api_key].into_iter().chain(attributes);
        lists.flatten()
    }

    /// Returns the names of the headers among the sources, that of the token included, in
    /// lower case.
    pub(crate) fn header_names(&self) -> impl Iterator<Item = &str> {
        let names = self.sources().filter_map(Source::header_name);
        #[cfg(feature = "jwt")]
        let names = names.chain(self.jwt().and_then(|jwt| jwt.from.header_name()));
        names
    }

    /// Returns the names of all headers that are read, in lower case; `cookie` among them.
    pub(crate) fn read_headers(&self) -> impl Iterator<Item = &str> {
        let names = self.sources().filter_map(Source::read_header);
        #[cfg(feature = "jwt")]
        let names = names.chain(self.jwt().and_then(|jwt| jwt.from.read_header()));
        names
    }

    /// Returns whether a header is read by its exact name, or is one of `rule_headers`.
    pub(crate) fn reads(&self, name: &str, rule_headers: &[Box<str>]) -> bool {
        let mut own = self.read_headers();
        let is_same = |known: &str| known.eq_ignore_ascii_case(name);
        own.any(is_same) || rule_headers.iter().any(|known| is_same(known))
    }

    /// Returns the verified claims of a request.
    #[cfg_attr(not(feature = "jwt"), expect(unused_variables, reason = "no claims"))]
    fn claims(&self, head: &impl RequestHead) -> Result<Claims, ContextError> {
        #[cfg(feature = "jwt")]
        if let Some(tokens) = &self.tokens {
            return match tokens.claims(head)? {
                Some(claims) => Ok(claims),
                None => Err(ContextError::InvalidToken),
            };
        }
        Ok(Claims::default())
    }

    /// Removes all lines but the first of these headers. A request whose lines differ is
    /// rejected before.
    pub(crate) fn keep_first_line(&self, headers: &mut HeaderMap) {
        // Repeated headers are rare.
        if headers.len() == headers.keys_len() {
            return;
        }
        for name in self.header_names() {
            let mut lines = headers.get_all(name).iter();
            let (first, second) = (lines.next().cloned(), lines.next());
            if let (Some(first), Some(_), Ok(name)) = (first, second, HeaderName::try_from(name)) {
                headers.insert(name, first);
            }
        }
    }
}

/// Starts the context of a request with the headers in `names`. The headers in `checked` must
/// not have two values. The value of a header that is not UTF-8 counts by its bytes.
pub(crate) fn from_head<'a>(
    head: &'a impl RequestHead,
    path: RequestPath<'a>,
    ip: Option<IpAddr>,
    sources: &'a Sources,
    names: HeaderNames<'a>,
    checked: &[Box<str>],
) -> Result<RequestContextBuilder<'a>, ContextError> {
    check_method(head.method())?;
    let claims = sources.claims(head)?;
    let mut context = RequestContext::builder()
        .method(head.method())
        .request_path(path);
    if let Some(ip) = ip {
        context = context.ip(ip);
    }
    let Identity { user, api_key } = &sources.identity;
    if let Some(user) = user.value(head, &claims)? {
        context = context.user(user);
    }
    if let Some(api_key) = api_key.value(head, &claims)? {
        context = context.api_key(api_key);
    }
    for (name, list) in &sources.attributes {
        if let Some(value) = list.value(head, &claims)? {
            context = context.attribute(&**name, value);
        }
    }
    check_named(head, checked)?;
    let pair = |name: &'a str, value: &'a [u8]| (Cow::Borrowed(name), lossless_text(value));
    Ok(match names {
        HeaderNames::Only([]) => context,
        HeaderNames::Only(names) => {
            let headers = names.iter();
            let headers = headers.filter_map(|name| Some(pair(name, head.first_line(name)?)));
            context.headers(headers.collect())
        }
        HeaderNames::All => {
            let is_known = |name: &str| sources.reads(name, checked);
            let headers = read_all(head, is_known)?.into_iter();
            let headers = headers.map(|(name, value)| pair(name, value));
            context.headers(headers.collect())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::request::Parts;
    use http::{HeaderValue, Request};

    fn head(headers: &[(&str, &[u8])]) -> Parts {
        let request = headers.iter().fold(Request::get("/x"), |request, header| {
            request.header(header.0, HeaderValue::from_bytes(header.1).unwrap())
        });
        request.body(()).unwrap().into_parts().0
    }

    fn context(
        head: &Parts,
        names: HeaderNames<'_>,
        keys: &[Box<str>],
    ) -> Result<RequestContext<'static>, ContextError> {
        let path = RequestPath::as_given("/x");
        let sources = Sources::default();
        let context = from_head(head, path, None, &sources, names, keys)?;
        Ok(context.build().into_owned())
    }

    #[test]
    fn surrounding_white_space_is_ignored() {
        let head = head(&[("x-user-id", b"ann\t "), ("a", b" b")]);
        for names in [HeaderNames::All, HeaderNames::Only(&["a".into()])] {
            let context = context(&head, names, &[]).unwrap();
            assert_eq!(context.user(), Some("ann"));
            assert!(context.headers().any(|header| header == ("a", "b")));
        }
    }

    #[test]
    fn the_first_line_of_a_header_counts() {
        let lines = [
            ("via", &b"x\xff"[..]),
            ("via", b"2"),
            ("forwarded", b"1"),
            ("forwarded", b"2"),
        ];
        let head = head(&lines);
        let names: [Box<str>; 2] = ["via".into(), "forwarded".into()];
        for names in [HeaderNames::All, HeaderNames::Only(&names)] {
            let context = context(&head, names, &[]).unwrap();
            let headers: Vec<_> = context.headers().collect();
            assert_eq!(headers, [("via", "x\u{10ffff}"), ("forwarded", "1")]);
        }
    }

    #[test]
    fn headers_that_identify_must_not_have_two_values() {
        let keys: [Box<str>; 1] = ["x-tenant".into()];
        // Few headers are scanned, many are hashed.
        for others in [0, 9] {
            let names: Vec<_> = (0..others).map(|at| format!("other-{at}")).collect();
            let user = |lines: &[(&str, &[u8])]| {
                let others = names.iter().map(|name| (&name[..], &b"1"[..]));
                let head = head(&lines.iter().copied().chain(others).collect::<Vec<_>>());
                let context = context(&head, HeaderNames::Only(&keys), &keys);
                context.map(|context| context.user().map(str::to_owned))
            };
            let ann = Ok(Some("ann".to_owned()));
            for name in ["x-user-id", "x-api-key", "x-tenant"] {
                for (first, second) in [(&b"a"[..], &b"b"[..]), (b"\xff", b"\xfe"), (b"", b"b")] {
                    let found = user(&[(name, first), (name, second)]);
                    assert_eq!(found, Err(BadRequest::ConflictingValues.into()), "{name}");
                }
            }
            assert_eq!(user(&[("x-user-id", b"ann"), ("x-user-id", b"ann ")]), ann);
            assert_eq!(
                user(&[("x-user-id", b"ann"), ("b", b"1"), ("b", b"2")]),
                ann
            );
            let not_text = user(&[("x-user-id", b"jos\xe9")]);
            assert_eq!(not_text, Ok(Some("jos\u{10ffe9}".to_owned())));
        }
    }

    #[test]
    fn repeated_lines_of_sources_are_removed() {
        let names = ["x-user-id", "x-tenant", "cookie", "b"];
        let lines = [names, names].concat();
        let lines: Vec<_> = lines.iter().map(|name| (*name, &b"a=1"[..])).collect();
        let mut headers = head(&lines).headers;
        let mut sources = Sources::default();
        sources.set_attribute("tenant".into(), Source::header("X-Tenant").into());
        sources.set_attribute("a".into(), Source::cookie("a").into());
        sources.keep_first_line(&mut headers);
        let counts = names.map(|name| headers.get_all(name).iter().count());
        assert_eq!(counts, [1, 1, 2, 2]);
    }
}
