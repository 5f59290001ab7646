//! Changes the path and the headers of requests and responses, as their route says.

use std::borrow::Cow;

use fluxgate_core::path::RequestPath;
use fluxgate_http::server::write_header;
use fluxgate_http::{RequestHead, are_alike};
use http::header::{HeaderName, HeaderValue, VARY};
use http::{HeaderMap, header};

use crate::config::{CorsConfig, HeaderEdits, RewriteConfig};
use crate::routes::Route;

/// The headers that pages may read, besides the simple ones: those that the gateway sets.
const EXPOSED: &str = "RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, \
                       X-RateLimit-Reset, Retry-After, X-Request-Id";
/// The headers about pages of other sites that the gateway answers by itself.
const CORS: [HeaderName; 5] = [
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_MAX_AGE,
];

impl RewriteConfig {
    /// Returns whether one form of the path has the prefix that is removed, and the other does not.
    pub(crate) fn is_ambiguous(&self, path: &RequestPath<'_>) -> bool {
        let Some(prefix) = self.strip_prefix.as_deref() else {
            return false;
        };
        let mut forms = path
            .exact_forms()
            .map(|form| rest_of(form, prefix).is_some());
        let first = forms.next();
        forms.any(|form| Some(form) != first)
    }

    /// Returns the target as it is forwarded.
    pub(crate) fn target<'t>(&self, target: &'t str) -> Cow<'t, str> {
        let is_path = target.starts_with('/');
        if !is_path || (self.strip_prefix.is_none() && self.add_prefix.is_none()) {
            return Cow::Borrowed(target);
        }
        let end = target.find('?').unwrap_or(target.len());
        let (path, query) = target.split_at(end);
        let prefix = self.strip_prefix.as_deref();
        let stripped = prefix.and_then(|prefix| rest_of(path, prefix));
        let path = match stripped {
            // A server could take the first segment of `//host/` for a host.
            Some(rest) => Cow::Owned(format!("/{}", rest.trim_start_matches(['/', '\\']))),
            None => Cow::Borrowed(path),
        };
        let added = self.add_prefix.as_deref().unwrap_or_default();
        Cow::Owned(format!("{added}{path}{query}"))
    }
}

/// Returns what follows a prefix of whole segments.
fn rest_of<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

impl HeaderEdits {
    /// Returns whether a header of this name, in any case, is set or removed, or a server could
    /// take it for one that is.
    pub(crate) fn covers(&self, name: &str) -> bool {
        let is_alike = |known: &str| {
            known.eq_ignore_ascii_case(name) || are_alike(known.as_bytes(), name.as_bytes())
        };
        self.names().any(is_alike)
    }
}

/// Returns the bytes of a request with another host. It is the first header.
pub(crate) fn with_host(request: &[u8], host: &str) -> Vec<u8> {
    const LINE_END: &[u8] = b"\r\n";
    let mut lines = request.split_inclusive(|byte| *byte == b'\n');
    let [first, second] = [lines.next(), lines.next()].map(|line| line.map_or(0, <[u8]>::len));
    let mut changed = Vec::with_capacity(request.len() + host.len());
    changed.extend_from_slice(&request[..first]);
    changed.extend_from_slice(b"host: ");
    changed.extend_from_slice(host.as_bytes());
    changed.extend_from_slice(LINE_END);
    changed.extend_from_slice(&request[first + second..]);
    changed
}

/// What is changed in a response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResponseChanges<'r> {
    edits: Option<&'r HeaderEdits>,
    cors: Option<CorsAnswer<'r>>,
}

/// What pages of other sites may do with a response.
#[derive(Clone, Copy, Debug)]
struct CorsAnswer<'r> {
    config: &'r CorsConfig,
    /// The origin that is allowed.
    allowed: Option<&'r [u8]>,
}

impl<'r> ResponseChanges<'r> {
    /// Returns what is changed in the response of an upstream.
    pub(crate) fn of<H: RequestHead>(route: &'r Route, head: &'r H) -> Self {
        Self {
            edits: Some(&route.response_headers).filter(|edits| !edits.is_empty()),
            ..Self::of_own(Some(route), head)
        }
    }

    /// Returns what is changed in a response of the gateway itself.
    pub(crate) fn of_own<H: RequestHead>(route: Option<&'r Route>, head: &'r H) -> Self {
        let cors = route.and_then(|route| route.cors.as_ref());
        Self {
            edits: None,
            cors: cors.map(|config| CorsAnswer {
                config,
                allowed: allowed_origin(config, head),
            }),
        }
    }

    /// Returns whether nothing is changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.edits.is_none() && self.cors.is_none()
    }

    /// Returns whether a header of the upstream is not passed on.
    pub(crate) fn drops(&self, name: &str) -> bool {
        let is_edited = |edits: &HeaderEdits| {
            let mut names = edits.names();
            names.any(|known| known.eq_ignore_ascii_case(name))
        };
        self.edits.is_some_and(is_edited)
            || self.cors.is_some()
                && CORS
                    .iter()
                    .any(|known| name.eq_ignore_ascii_case(known.as_str()))
    }

    /// Appends the headers that are added.
    pub(crate) fn write_text(&self, out: &mut Vec<u8>) {
        self.each(|name, value| write_header(out, name, value));
    }

    /// Changes the headers of a response.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        let dropped: Vec<_> = headers
            .keys()
            .filter(|name| self.drops(name.as_str()))
            .collect();
        let dropped: Vec<HeaderName> = dropped.into_iter().cloned().collect();
        for name in dropped {
            headers.remove(name);
        }
        self.each(|name, value| {
            let name = HeaderName::from_bytes(name.as_bytes());
            // The config and the origin have been checked.
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                headers.append(name, value);
            }
        });
    }

    fn each(&self, mut write: impl FnMut(&str, &[u8])) {
        for (name, value) in self.edits.iter().flat_map(|edits| &edits.set) {
            write(name, value.as_bytes());
        }
        let Some(CorsAnswer { config, allowed }) = self.cors else {
            return;
        };
        if let Some(origin) = allowed {
            write(header::ACCESS_CONTROL_ALLOW_ORIGIN.as_str(), origin);
            if config.credentials {
                write(header::ACCESS_CONTROL_ALLOW_CREDENTIALS.as_str(), b"true");
            }
            let exposed = EXPOSED.as_bytes();
            write(header::ACCESS_CONTROL_EXPOSE_HEADERS.as_str(), exposed);
        }
        if !config.allows_any() {
            write(VARY.as_str(), b"Origin");
        }
    }
}

/// Returns the origin of a request as the response allows it, if it does.
fn allowed_origin<'r, H: RequestHead>(config: &'r CorsConfig, head: &'r H) -> Option<&'r [u8]> {
    let origin = head.only_value("origin").ok()??;
    if config.allows_any() {
        return Some(b"*");
    }
    let mut origins = config.origins.iter();
    origins
        .any(|known| known.as_bytes() == origin)
        .then_some(origin)
}

/// Returns the method that a page of another site asks for, if the request is such a question.
pub(crate) fn preflight_method<H: RequestHead>(head: &H) -> Option<&str> {
    if head.method() != "OPTIONS" || head.first_line("origin").is_none() {
        return None;
    }
    let method = head.only_value("access-control-request-method").ok()??;
    std::str::from_utf8(method).ok()
}

/// Returns whether a page of the origin that a request names may use a route.
pub(crate) fn allows_origin<H: RequestHead>(config: &CorsConfig, head: &H) -> bool {
    allowed_origin(config, head).is_some()
}

/// Returns the headers of the answer to such a question, apart from those of every response.
pub(crate) fn preflight_headers(config: &CorsConfig) -> Vec<(HeaderName, HeaderValue)> {
    let lists = [
        (
            header::ACCESS_CONTROL_ALLOW_METHODS,
            config.methods.join(", "),
        ),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            config.headers.join(", "),
        ),
        (
            header::ACCESS_CONTROL_MAX_AGE,
            config.max_age.as_secs().to_string(),
        ),
    ];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    // The config has been checked.
    lists
        .filter_map(|(name, list)| Some((name, HeaderValue::from_str(&list).ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HeaderTest;

    fn config(strip: Option<&str>, add: Option<&str>) -> RewriteConfig {
        RewriteConfig {
            strip_prefix: strip.map(Into::into),
            add_prefix: add.map(Into::into),
            ..RewriteConfig::default()
        }
    }

    #[test]
    fn prefixes_are_whole_segments() {
        for (strip, add, target, expected) in [
            (None, None, "/api/x?q", "/api/x?q"),
            (Some("/api"), None, "/api/x?q=/api", "/x?q=/api"),
            (Some("/api"), None, "/api", "/"),
            (Some("/api"), None, "/api/", "/"),
            (Some("/api"), None, "/api?q", "/?q"),
            (Some("/api"), None, "/apix", "/apix"),
            (Some("/api"), None, "/v1/api/x", "/v1/api/x"),
            (Some("/a/b"), None, "/a/b/c%2f", "/c%2f"),
            // The first segment must not become a host.
            (Some("/api"), None, "/api//evil/x", "/evil/x"),
            (Some("/api"), Some("/v1"), "/api/x", "/v1/x"),
            (Some("/api"), Some("/v1"), "/api", "/v1/"),
            (None, Some("/v1"), "/x", "/v1/x"),
            (None, Some("/v1"), "*", "*"),
        ] {
            assert_eq!(config(strip, add).target(target), expected, "{target}");
        }
    }

    #[test]
    fn a_prefix_must_be_spelled_in_one_way() {
        let config = config(Some("/api"), None);
        for (path, is_ambiguous) in [
            ("/api/x", false),
            ("/api", false),
            ("/other", false),
            ("/%61pi/x", true),
            ("//api/x", true),
            ("/api;v=1/x", true),
            ("/api%2fx", true),
            ("/api/%78", false),
        ] {
            let path = RequestPath::read(path).unwrap();
            assert_eq!(config.is_ambiguous(&path), is_ambiguous, "{path:?}");
        }
    }

    #[test]
    fn the_host_is_the_first_header() {
        let request = b"GET / HTTP/1.1\r\nhost: a\r\nx: host: b\r\n\r\nbody\nhost: c\r\n";
        let changed = with_host(request, "b:80");
        let expected = "GET / HTTP/1.1\r\nhost: b:80\r\nx: host: b\r\n\r\nbody\nhost: c\r\n";
        assert_eq!(String::from_utf8(changed).unwrap(), expected);
    }

    #[test]
    fn a_header_is_tested_as_rules_test_it() {
        let any = HeaderTest::AnyOf(vec!["a".into(), "b".into()]);
        let none = HeaderTest::NoneOf(vec!["a".into()]);
        for (lines, expected) in [
            (&[][..], [false, true, false]),
            (&["a"], [true, false, true]),
            (&["b"], [true, true, true]),
            (&["c"], [false, true, true]),
            (&["b", "a"], [false, false, true]),
        ] {
            let lines = || lines.iter().map(|line: &&str| line.as_bytes());
            let present = HeaderTest::Present(true);
            let matched = [&any, &none, &present].map(|test| test.matches(lines()));
            assert_eq!(matched, expected);
            assert_eq!(HeaderTest::Present(false).matches(lines()), !expected[2]);
        }
    }
}
