//! The client's request, as the proxy describes it in `X-Forwarded-*` headers, or by calling with its
//! method and target.

use bytes::Bytes;
use fluxgate_core::path::RequestPath;
use fluxgate_http::{Problem, RequestHead};
use http::HeaderMap;
use http::request::Parts;

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
    /// The header with the client's host.
    host: &'static str,
}

impl<'a> ForwardedRequest<'a> {
    /// Reads the request. Its method and its target are in headers; in a call in the path form, with
    /// this target, they are those of the call where no header names them.
    pub(super) fn read(head: &'a Parts, target: Option<&str>) -> Result<Self, Problem> {
        let headers = &head.headers;
        let (method, host) = match target {
            Some(_) => {
                let own = Some(head.method.as_str().as_bytes());
                // `Host` names this service unless the proxy calls it as the client called the proxy.
                let is_named = headers.contains_key(HOST);
                (
                    single(headers, METHOD, own)?,
                    if is_named { HOST } else { "host" },
                )
            }
            None => (single(headers, METHOD, None)?, HOST),
        };
        let target = single(headers, URI, target.map(str::as_bytes))?;
        let target = RequestTarget::read(method, Bytes::copy_from_slice(target));
        let target = target.map_err(|error| Problem::bad_request(error.to_string()))?;
        Ok(Self {
            target,
            headers,
            host,
        })
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
        let name = match name {
            "host" => self.host,
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

/// Returns the only line of a header, or `default` if there is none.
fn single<'a>(
    headers: &'a HeaderMap,
    name: &str,
    default: Option<&'a [u8]>,
) -> Result<&'a [u8], Problem> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next(), default) {
        (Some(line), None, _) => Ok(line.as_bytes()),
        (None, _, Some(default)) => Ok(default),
        // A client's line would come in addition to the proxy's.
        _ => Err(Problem::bad_request(format!(
            "`{name}` must be given exactly once"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn head(lines: &[(&str, &str)]) -> Parts {
        let request = lines.iter().fold(Request::post("/"), |request, line| {
            request.header(line.0, line.1)
        });
        request.body(()).unwrap().into_parts().0
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
            let head = head(&[
                (METHOD, "PURGE"),
                (URI, uri),
                (HOST, "api.example"),
                ("host", "127.0.0.1:8081"),
                ("x-plan", "free"),
            ]);
            let read = ForwardedRequest::read(&head, None).unwrap();
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
            let head = head(lines);
            let read = ForwardedRequest::read(&head, None);
            let path = read.as_ref().map(ForwardedRequest::request_path);
            assert!(!matches!(path, Ok(Ok(_))), "{lines:?}");
        }
        let head = head(&[(METHOD, "OPTIONS"), (URI, "*")]);
        assert!(ForwardedRequest::read(&head, None).is_ok());
    }

    #[test]
    fn a_call_in_the_path_form_is_the_request_where_headers_name_no_other() {
        for (lines, expected) in [
            (&[("host", "a.example")][..], ["POST", "/x", "a.example"]),
            (
                &[(METHOD, "PUT"), ("host", "a.example")],
                ["PUT", "/x", "a.example"],
            ),
            (&[(URI, "/y")], ["POST", "/y", ""]),
            (
                &[(HOST, "b.example"), ("host", "a.example")],
                ["POST", "/x", "b.example"],
            ),
        ] {
            let head = head(lines);
            let read = ForwardedRequest::read(&head, Some("/x?y=1")).unwrap();
            let path = read.request_path().unwrap();
            let host = read.header("host").unwrap_or_default();
            assert_eq!([read.method(), path.raw(), host], expected, "{lines:?}");
        }
        for (lines, target) in [
            (&[(URI, "/x"), (URI, "/y")][..], "/x"),
            (&[(METHOD, "GET"), (METHOD, "PUT")], "/x"),
            (&[], "/x/../y"),
            (&[], ""),
            (&[], "?x"),
        ] {
            let head = head(lines);
            let read = ForwardedRequest::read(&head, Some(target));
            let path = read.as_ref().map(ForwardedRequest::request_path);
            assert!(!matches!(path, Ok(Ok(_))), "{lines:?} {target}");
        }
    }
}
