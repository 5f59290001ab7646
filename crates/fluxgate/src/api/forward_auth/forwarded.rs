//! The client's request, as the proxy describes it in `X-Forwarded-*` headers.

use fluxgate_core::path::RequestPath;
use fluxgate_http::{Problem, RequestHead};
use http::HeaderMap;

use crate::described_request::RequestTarget;

const METHOD: &str = "x-forwarded-method";
const URI: &str = "x-forwarded-uri";
const HOST: &str = "x-forwarded-host";

/// The client's request.
#[derive(Debug)]
pub(super) struct ForwardedRequest<'a> {
    target: RequestTarget,
    /// The client's headers that the proxy forwards, and those that it adds.
    headers: &'a HeaderMap,
}

impl<'a> ForwardedRequest<'a> {
    /// Reads the headers. Refuses ambiguous requests as the gateway does: otherwise the
    /// rules could match another path than the server.
    pub(super) fn read(headers: &'a HeaderMap) -> Result<Self, Problem> {
        let (method, target) = (single(headers, METHOD)?, single(headers, URI)?);
        let target = RequestTarget::read(method, target);
        let target = target.map_err(|error| Problem::bad_request(error.to_string()))?;
        Ok(Self { target, headers })
    }

    /// Returns the path, raw and normal.
    pub(super) fn request_path(&self) -> Result<RequestPath<'_>, Problem> {
        Ok(self.target.path()?)
    }
}

impl RequestHead for ForwardedRequest<'_> {
    fn method(&self) -> &str {
        self.target.method()
    }

    fn query(&self) -> Option<&str> {
        self.target.query()
    }

    fn header_lines<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        // `Host` names this service.
        let name = match name {
            "host" => HOST,
            other => other,
        };
        let lines = self.headers.get_all(name).iter();
        lines.map(|value| value.as_bytes().trim_ascii())
    }

    fn all_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let headers = self.headers.iter();
        headers.map(|(name, value)| (name.as_str(), value.as_bytes().trim_ascii()))
    }
}

/// Returns the only line of a header.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a [u8], Problem> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => Ok(line.as_bytes()),
        // A client's line would come in addition to the proxy's.
        _ => Err(Problem::bad_request(format!(
            "`{name}` must be given exactly once"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        lines.fold(HeaderMap::new(), |mut headers, (name, value)| {
            headers.append(name, value);
            headers
        })
    }

    #[test]
    fn a_request_is_read_as_the_proxy_describes_it() {
        for (uri, path) in [
            ("/api/x?y=/../z", "/api/x"),
            ("http://api.example/api/x", "/api/x"),
            ("/a//b/...", "/a//b/..."),
            ("/a;..;b/x%2Fy/..c/;.", "/a;..;b/x%2Fy/..c/;."),
            ("/caf%C3%A9", "/caf%C3%A9"),
        ] {
            let headers = headers(&[
                (METHOD, "PURGE"),
                (URI, uri),
                (HOST, "api.example"),
                ("host", "127.0.0.1:8081"),
                ("x-plan", "free"),
            ]);
            let read = ForwardedRequest::read(&headers).unwrap();
            let read_path = read.request_path().unwrap();
            assert_eq!((read.method(), read_path.raw()), ("PURGE", path));
            assert_eq!(read.header("host"), Some("api.example"));
            assert_eq!(read.header("x-plan"), Some("free"));
        }
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        for lines in [
            &[][..],
            &[(METHOD, "GET")],
            &[(URI, "/x")],
            &[(METHOD, "GET"), (URI, "/x"), (URI, "/y")],
            &[(METHOD, "GET"), (METHOD, "PUT"), (URI, "/x")],
            &[(METHOD, "G T"), (URI, "/x")],
            &[(METHOD, ""), (URI, "/x")],
            &[(METHOD, "GET"), (URI, "")],
            &[(METHOD, "GET"), (URI, "*")],
            &[(METHOD, "CONNECT"), (URI, "api.example:443")],
            &[(METHOD, "GET"), (URI, "/x/../api")],
            &[(METHOD, "GET"), (URI, "/x/%2e%2E/api")],
            &[(METHOD, "GET"), (URI, "http://h/./api")],
            &[(METHOD, "GET"), (URI, "/a b")],
            &[(METHOD, "GET"), (URI, "/x#/../api")],
            &[(METHOD, "GET"), (URI, "/x/..;/api")],
            &[(METHOD, "GET"), (URI, "/x\\..\\api")],
            &[(METHOD, "GET"), (URI, "/x/..%2Fapi")],
            &[(METHOD, "GET"), (URI, "/x%5c%2e%2e%5capi")],
        ] {
            let headers = headers(lines);
            let read = ForwardedRequest::read(&headers);
            let path = read.as_ref().map(ForwardedRequest::request_path);
            assert!(!matches!(path, Ok(Ok(_))), "{lines:?}");
        }
        assert!(ForwardedRequest::read(&headers(&[(METHOD, "OPTIONS"), (URI, "*")])).is_ok());
    }
}
