//! The head of a request over HTTP/2.

use http::header::CONTENT_LENGTH;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};

use crate::hop_by_hop::HeaderKind;

/// Reads a head that the gateway has written for HTTP/1.1, and returns it in the form of HTTP/2
/// together with the bytes after it. The gateway writes heads in one place, so both forms say the
/// same. `None` if there is no such form.
pub(super) fn read_head(bytes: &[u8], scheme: Scheme) -> Option<(Request<()>, &[u8])> {
    let (line, mut rest) = split_line(bytes)?;
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = HeaderMap::with_capacity(24);
    let mut authority = None;
    loop {
        let (line, after) = split_line(rest)?;
        rest = after;
        if line.is_empty() {
            break;
        }
        let colon = memchr::memchr(b':', line)?;
        let (name, value) = (&line[..colon], line.get(colon + 2..)?);
        match HeaderKind::of(std::str::from_utf8(name).ok()?) {
            HeaderKind::Host => authority = Some(Authority::try_from(value).ok()?),
            // Without leading zeros, which some servers refuse.
            HeaderKind::ContentLength => {
                let length: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
                headers.insert(CONTENT_LENGTH, length.into());
            }
            // `TE` is `trailers`.
            HeaderKind::EndToEnd | HeaderKind::Te | HeaderKind::Trailer => {
                let name = HeaderName::from_bytes(name).ok()?;
                headers.append(name, HeaderValue::from_bytes(value).ok()?);
            }
            // They concern connections over HTTP/1.1.
            _ => {}
        }
    }
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(authority?)
        .path_and_query(target)
        .build()
        .ok()?;
    // Nothing was left out or changed.
    if uri.path_and_query()?.as_str().as_bytes() != target {
        return None;
    }
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(method).ok()?;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = headers;
    Some((request, rest))
}

/// Returns the first line without its end, and what follows it.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'\n', bytes)?;
    let line = bytes[..end].strip_suffix(b"\r")?;
    Some((line, &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &str) -> Option<(Request<()>, &[u8])> {
        read_head(head.as_bytes(), Scheme::HTTP)
    }

    #[test]
    fn a_head_keeps_its_meaning() {
        let head = "POST /a%2Fb?c=[d] HTTP/1.1\r\nhost: a.example:80\r\nX-A: 1\r\nx-a: 2\r\n\
                    cookie: a=b; c=d\r\nx-empty: \r\nte: trailers\r\nconnection: te\r\n\
                    content-length: 02\r\n\r\nhi";
        let (request, rest) = read(head).unwrap();
        assert_eq!(rest, b"hi");
        assert_eq!(request.method(), "POST");
        assert_eq!(request.uri().to_string(), "http://a.example:80/a%2Fb?c=[d]");
        let headers = request.headers();
        let values: Vec<_> = headers.get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        for (name, value) in [
            ("cookie", "a=b; c=d"),
            ("te", "trailers"),
            ("x-empty", ""),
            ("content-length", "2"),
        ] {
            assert_eq!(headers[name], value);
        }
        assert!(!headers.contains_key("host") && !headers.contains_key("connection"));
        let (options, _) = read("OPTIONS * HTTP/1.1\r\nhost: [::1]\r\n\r\n").unwrap();
        let path = options.uri().path_and_query().unwrap();
        assert_eq!(path.as_str(), "*");
    }

    #[test]
    fn what_has_no_form_in_http2_is_not_sent() {
        for head in [
            "GET / HTTP/1.1\r\nx: y\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: \r\n\r\n",
            "GET /a#b HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n",
            "GET / HTTP/1.1\nhost: a\n\n",
        ] {
            assert!(read(head).is_none(), "{head}");
        }
    }
}
