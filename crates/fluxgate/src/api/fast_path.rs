//! The fast path of the API: simple checks are answered without hyper, which would take
//! longer than the decisions do.
//!
//! A simple check is a `POST /v1/check` over HTTP/1.1 that has arrived as a whole, or
//! whose body follows at once, with a content length and no header that would change how
//! it is read. At the first request that is anything else, hyper takes over the
//! connection together with the bytes that have been read.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;

use fluxgate_http::{Buffers, INPUT, LINGER, content_length, send};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::simple_check::SimpleCheck;
use super::{Api, body};
use crate::serve::HEADER_TIMEOUT;

/// More headers than clients of an API send.
const MAX_HEADERS: usize = 24;

impl Api {
    /// Answers simple checks. Returns the bytes read of the first other request, or `None`
    /// if the connection has ended.
    pub(crate) async fn serve_fast_path(
        &self,
        stream: &mut TcpStream,
        closing: &CancellationToken,
    ) -> Option<Vec<u8>> {
        serve(stream, self, closing).await
    }
}

async fn serve(stream: &mut TcpStream, api: &Api, closing: &CancellationToken) -> Option<Vec<u8>> {
    let mut closed = pin!(closing.cancelled());
    let mut idle = pin!(tokio::time::sleep(HEADER_TIMEOUT));
    let mut is_last = false;
    loop {
        let received = poll_fn(|cx| Buffers::poll_read(stream, cx));
        let (mut buffers, read) = tokio::select! {
            biased;
            received = received => match received {
                Ok((_, 0)) | Err(_) => return None,
                Ok(received) => received,
            },
            () = closed.as_mut(), if !is_last => {
                // A request may be on its way.
                is_last = true;
                idle.as_mut().reset(Instant::now() + LINGER);
                continue;
            }
            () = idle.as_mut() => return None,
        };
        is_last |= closing.is_cancelled();
        let last = (&mut is_last, closing);
        let (answered, read) = answer(api, stream, &mut buffers, read, last).await;
        if !buffers.output.is_empty() {
            send(stream, &buffers.output).await.ok()?;
        }
        if answered < read {
            return Some(buffers.input[answered..read].to_vec());
        }
        if is_last {
            return None;
        }
        buffers.release();
        // Resetting the timer at every request would cost more than checking it.
        if idle.deadline() < Instant::now() + HEADER_TIMEOUT / 2 {
            postpone(idle.as_mut());
        }
    }
}

/// Starts the idle timeout again.
fn postpone(idle: std::pin::Pin<&mut Sleep>) {
    idle.reset(Instant::now() + HEADER_TIMEOUT);
}

/// Answers the simple checks that the input starts with; returns where they end, and how
/// much has been read. The service may start to shut down while a body is awaited.
async fn answer(
    api: &Api,
    stream: &mut TcpStream,
    buffers: &mut Buffers,
    mut read: usize,
    (is_last, closing): (&mut bool, &CancellationToken),
) -> (usize, usize) {
    let mut start = 0;
    while start < read {
        let input = &buffers.input[start..read];
        let Some((check, length)) = simple_check(input) else {
            let end = simple_head(input).map(|(_, body)| start + body.end);
            let Some(end) = end.filter(|end| *end <= INPUT) else {
                break;
            };
            read = buffers.read_on(stream, read, end).await;
            *is_last |= closing.is_cancelled();
            if read < end {
                break;
            }
            continue;
        };
        let (output, json) = (&mut buffers.output, &mut buffers.json);
        api.answer_simple_check(&check, *is_last, output, json)
            .await;
        start += length;
        // The response has announced the end of the connection.
        if *is_last {
            return (read, read);
        }
    }
    (start, read)
}

/// Returns the simple check that the bytes start with, and its length.
fn simple_check(bytes: &[u8]) -> Option<(SimpleCheck<'_>, usize)> {
    let (mut check, body) = simple_head(bytes)?;
    let end = body.end;
    check.body = bytes.get(body)?;
    Some((check, end))
}

/// Returns the check without its body, and the range of the body, which may not have
/// arrived yet.
fn simple_head(bytes: &[u8]) -> Option<(SimpleCheck<'_>, Range<usize>)> {
    const START: &[u8] = b"POST /v1/check HTTP/1.1\r\n";
    let rest = bytes.strip_prefix(START)?;
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let parsed = httparse::parse_headers(rest, &mut headers).ok()?;
    let httparse::Status::Complete((head, headers)) = parsed else {
        return None;
    };
    let mut length = None;
    let mut check = SimpleCheck::default();
    for header in headers {
        let name = header.name;
        if name.eq_ignore_ascii_case("content-length") {
            let value = content_length(header.value)?;
            if length.replace(usize::try_from(value).ok()?).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case("x-request-id") {
            check.request_id = Some(std::str::from_utf8(header.value).ok()?);
        } else if name.eq_ignore_ascii_case("traceparent") {
            check.traceparent = std::str::from_utf8(header.value).ok();
        } else if name.eq_ignore_ascii_case("content-type") {
            // The router refuses other types.
            if !body::may_be_json(header.value) {
                return None;
            }
        } else if (changes_framing(name) && !keeps_alive(header)) || is_from_browser(name) {
            return None;
        }
    }
    let start = START.len() + head;
    Some((check, start..start.checked_add(length?)?))
}

/// Returns whether a header changes how the request or the connection is read.
fn changes_framing(name: &str) -> bool {
    const NAMES: [&str; 6] = [
        "transfer-encoding",
        "connection",
        "expect",
        "upgrade",
        "te",
        "trailer",
    ];
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns whether browsers name the requesting page in this header. Such requests go
/// through the router, which refuses pages of other sites.
fn is_from_browser(name: &str) -> bool {
    const NAMES: [&str; 2] = ["origin", "sec-fetch-site"];
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns whether the header only states the default.
fn keeps_alive(header: &httparse::Header<'_>) -> bool {
    let is_keep_alive = header.value.eq_ignore_ascii_case(b"keep-alive");
    is_keep_alive && header.name.eq_ignore_ascii_case("connection")
}

const _: () = assert!(INPUT >= 4096, "a simple check fits");

/// Checks that a simple check in arbitrary bytes is recognized from exactly its own bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Some((check, length)) = simple_check(bytes) else {
        return;
    };
    let own = &bytes[..length];
    assert!(own.ends_with(check.body));
    let (again, again_length) = simple_check(own).expect("the check is complete");
    assert_eq!((again.body, again_length), (check.body, length));
    assert_eq!(again.request_id, check.request_id);
    assert_eq!(again.traceparent, check.traceparent);
    for end in (0..length).rev().step_by(1 + length / 64) {
        assert!(simple_check(&own[..end]).is_none(), "at {end} of {length}");
    }
    let head = &own[..length - check.body.len()];
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(head);
    assert_eq!(parsed, Ok(httparse::Status::Complete(head.len())));
    let values = |name: &str| {
        let headers = request.headers.iter();
        let named = headers.filter(|header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| header.value).collect::<Vec<_>>()
    };
    let lengths = values("content-length");
    assert_eq!(lengths.len(), 1);
    let length = std::str::from_utf8(lengths[0]).map(str::parse::<usize>);
    assert_eq!(length, Ok(Ok(check.body.len())));
    assert!(values("transfer-encoding").is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(head: &str, body: &str) -> String {
        format!("POST /v1/check HTTP/1.1\r\nHost: a\r\n{head}\r\n{body}")
    }

    #[test]
    fn a_simple_check_is_recognized() {
        let head = "Content-Length: 2\r\nX-Request-Id: r1\r\nConnection: Keep-Alive\r\n";
        let bytes = request(head, "{}POST /");
        let (check, length) = simple_check(bytes.as_bytes()).unwrap();
        assert_eq!((check.body, check.request_id), (&b"{}"[..], Some("r1")));
        assert_eq!(&bytes[length..], "POST /");
    }

    #[test]
    fn anything_else_is_left_to_hyper() {
        let simple = request("Content-Length: 2\r\n", "{}");
        for end in 0..simple.len() {
            assert!(simple_check(&simple.as_bytes()[..end]).is_none(), "{end}");
        }
        for (head, body) in [
            ("", "{}"),
            ("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"),
            ("Content-Length: +2\r\n", "{}"),
            ("Content-Length: 2, 2\r\n", "{}"),
            ("Content-Length: -0\r\n", "{}"),
            ("Content-Length: 99999999999999999999\r\n", "{}"),
            ("Content-Length: 18446744073709551615\r\n", "{}"),
            ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "{}"),
            ("Content-Length: 2\r\nTransfer-Encoding : chunked\r\n", "{}"),
            ("Content-Length: 2\r\nConnection: close\r\n", "{}"),
            ("Content-Length: 2\r\nExpect: 100-continue\r\n", "{}"),
            ("Content-Length: 2\r\nUpgrade: h2c\r\n", "{}"),
            ("Content-Length: 2\r\nOrigin: null\r\n", "{}"),
            ("Content-Length: 2\r\nSec-Fetch-Site: none\r\n", "{}"),
            ("Content-Length: 2\r\nContent-Type: text/plain\r\n", "{}"),
            ("Content-Length : 2\r\n", "{}"),
            ("Content-Length: 2\r\n X: folded\r\n", "{}"),
        ] {
            assert!(
                simple_check(request(head, body).as_bytes()).is_none(),
                "{head}"
            );
        }
        for other in [
            "GET /v1/check",
            "POST /v1/checks",
            "POST /v1/check?status=true",
        ] {
            let bytes = simple.replacen("POST /v1/check", other, 1);
            assert!(simple_check(bytes.as_bytes()).is_none(), "{other}");
        }
        let old = simple.replacen("HTTP/1.1", "HTTP/1.0", 1);
        assert!(simple_check(old.as_bytes()).is_none());
    }
}
