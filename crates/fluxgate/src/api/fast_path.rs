//! The fast path of the API: simple requests are answered without hyper, which would take
//! longer than the decisions do.
//!
//! A simple request is a `POST /v1/check`, `/v1/check?status=true` (what the clients of other
//! languages send) or `/v1/release` over HTTP/1.1 that has arrived as a whole, or whose body follows
//! at once, with a content length and no header that would change how it is read. At the first request
//! that is anything else, hyper takes over the connection together with the bytes that have been read.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;

use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;

use fluxgate_core::Decision;
use fluxgate_http::server::{
    Buffers, ClientStream, INPUT, LINGER, Listener, Origin, RULE_SET, STATUS, content_length,
    request_id, send, wall_clock, write_date, write_header, write_number, write_status,
};
use fluxgate_http::{PROBLEM_JSON, Problem};
use http::StatusCode;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::body;
use super::check::{CheckRequest, MISSING, StatusOptions};
use super::holds::release_hold;
use super::response::{names_missing_set, write_decision};
use super::state::ApiState;
use crate::serve::HEADER_TIMEOUT;

/// The operation of a simple request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// `POST /v1/check`.
    Check(StatusOptions),
    /// `POST /v1/release`.
    Release,
}

/// The body and the ids of a request.
#[derive(Debug)]
struct SimpleRequest<'a> {
    operation: Operation,
    /// The JSON.
    body: &'a [u8],
    /// `X-Request-Id`.
    request_id: Option<&'a str>,
    /// `traceparent`.
    traceparent: Option<&'a str>,
}

/// More headers than clients of an API send.
const MAX_HEADERS: usize = 24;

/// Answers simple requests. Returns the bytes read of the first other request, or `None` if the
/// connection has ended.
pub(crate) async fn serve<S: ClientStream>(
    stream: &mut S,
    api: &ApiState,
    closing: &CancellationToken,
) -> Option<Vec<u8>> {
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
        let (answered, read) = answer(api, stream, &mut buffers, read, &mut is_last, closing).await;
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
            idle.as_mut().reset(Instant::now() + HEADER_TIMEOUT);
        }
    }
}

/// Answers the simple requests that the input starts with; returns where they end, and how
/// much has been read. The service may start to shut down while a body is awaited.
async fn answer<S: ClientStream>(
    api: &ApiState,
    stream: &mut S,
    buffers: &mut Buffers,
    mut read: usize,
    is_last: &mut bool,
    closing: &CancellationToken,
) -> (usize, usize) {
    let mut start = 0;
    while start < read {
        let input = &buffers.input[start..read];
        let Some((request, length)) = simple_request(input) else {
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
        answer_request(api, &request, *is_last, output, json).await;
        start += length;
        // The response has announced the end of the connection.
        if *is_last {
            return (read, read);
        }
    }
    (start, read)
}

/// Answers a request: appends head and body of the response to `out`. `is_last` announces
/// the end of the connection; `json` is scratch space.
async fn answer_request(
    api: &ApiState,
    request: &SimpleRequest<'_>,
    is_last: bool,
    out: &mut Vec<u8>,
    json: &mut Vec<u8>,
) {
    let origin = Origin::with_ids(Listener::Api, request.request_id, request.traceparent);
    json.clear();
    let answered = match request.operation {
        Operation::Check(options) => decide(api, request.body, &origin)
            .await
            .map(|decision| Some((decision, options))),
        Operation::Release => release(api, request.body, json).await.map(|()| None),
    };
    let status = match answered {
        Ok(None) => {
            write_ok(out);
            write_date(wall_clock(), out);
            200
        }
        Ok(Some((decision, options))) => {
            let now = wall_clock();
            let (status, form) = options.status_for(&decision);
            if status == StatusCode::OK {
                write_ok(out);
            } else {
                origin.request_id();
                write_status(out, status);
                write_header(out, "content-type", form.content_type().as_bytes());
            }
            write_decision(json, &decision, form);
            api.headers.write_text(&decision, out);
            if let Some(status) = decision.forbidden_status() {
                write_number(out, STATUS.as_str(), status.into());
            }
            if names_missing_set(&decision) {
                write_header(out, RULE_SET.as_str(), MISSING.as_bytes());
            }
            write_date(now, out);
            status.as_u16()
        }
        Err(problem) => {
            json.clear();
            origin.request_id();
            problem.write(json);
            let status = problem.status();
            write_status(out, status);
            write_header(out, "content-type", PROBLEM_JSON.as_bytes());
            write_date(wall_clock(), out);
            status.as_u16()
        }
    };
    let telemetry = api.engine.telemetry();
    telemetry.record_response(Listener::Api, status, || &origin);
    if let Some(id) = origin.into_id() {
        write_header(out, request_id::NAME, id.as_bytes());
    }
    if is_last {
        write_header(out, "connection", b"close");
    }
    write_number(out, "content-length", json.len());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(json);
}

/// Appends the start of most answers.
fn write_ok(out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n");
}

async fn release(api: &ApiState, body: &[u8], json: &mut Vec<u8>) -> Result<(), Problem> {
    body::check_size(body::MAX_BYTES, body.len())?;
    release_hold(&api.engine, body, json).await
}

async fn decide(api: &ApiState, json: &[u8], origin: &Origin<'_>) -> Result<Decision, Problem> {
    body::check_size(body::MAX_BYTES, json.len())?;
    let check: CheckRequest<'_> = body::parse(json)?;
    check.decide(api, origin).await
}

/// Returns the simple request that the bytes start with, and its length.
fn simple_request(bytes: &[u8]) -> Option<(SimpleRequest<'_>, usize)> {
    let (mut request, body) = simple_head(bytes)?;
    let end = body.end;
    request.body = bytes.get(body)?;
    Some((request, end))
}

/// Returns the operation of a simple request line, and the length of the line.
fn simple_operation(bytes: &[u8]) -> Option<(Operation, usize)> {
    const LINES: [(&[u8], Operation); 3] = [
        (
            b"POST /v1/check HTTP/1.1\r\n",
            Operation::Check(StatusOptions::NONE),
        ),
        (
            b"POST /v1/check?status=true HTTP/1.1\r\n",
            Operation::Check(StatusOptions::WITH_STATUS),
        ),
        (b"POST /v1/release HTTP/1.1\r\n", Operation::Release),
    ];
    let line = LINES.iter().find(|(line, _)| bytes.starts_with(line));
    line.map(|(line, operation)| (*operation, line.len()))
}

/// Returns the request without its body, and the range of the body, which may not have
/// arrived yet.
fn simple_head(bytes: &[u8]) -> Option<(SimpleRequest<'_>, Range<usize>)> {
    let (operation, line) = simple_operation(bytes)?;
    let rest = &bytes[line..];
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let parsed = httparse::parse_headers(rest, &mut headers).ok()?;
    let httparse::Status::Complete((head, headers)) = parsed else {
        return None;
    };
    let mut length = None;
    let mut request = SimpleRequest {
        operation,
        body: &[],
        request_id: None,
        traceparent: None,
    };
    for header in headers {
        let name = header.name;
        if name.eq_ignore_ascii_case("content-length") {
            let value = content_length(header.value)?;
            if length.replace(usize::try_from(value).ok()?).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case("x-request-id") {
            request.request_id = Some(std::str::from_utf8(header.value).ok()?);
        } else if name.eq_ignore_ascii_case("traceparent") {
            request.traceparent = std::str::from_utf8(header.value).ok();
        } else if name.eq_ignore_ascii_case("content-type") {
            // The router refuses other types.
            if !body::may_be_json(header.value) {
                return None;
            }
        } else if (changes_framing(name) && !keeps_alive(header)) || is_from_browser(name) {
            return None;
        }
    }
    let start = line + head;
    Some((request, start..start.checked_add(length?)?))
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

const _: () = assert!(INPUT >= 4096, "a simple request fits");

#[cfg(test)]
mod tests {
    use super::*;

    fn request(head: &str, body: &str) -> String {
        format!("POST /v1/check HTTP/1.1\r\nHost: a\r\n{head}\r\n{body}")
    }

    #[test]
    fn a_simple_request_is_recognized() {
        let head = "Content-Length: 2\r\nX-Request-Id: r1\r\nConnection: Keep-Alive\r\n";
        let bytes = request(head, "{}POST /");
        let (check, length) = simple_request(bytes.as_bytes()).unwrap();
        assert_eq!((check.body, check.request_id), (&b"{}"[..], Some("r1")));
        assert_eq!(&bytes[length..], "POST /");
        let release = bytes.replacen("check", "release", 1);
        let (release, _) = simple_request(release.as_bytes()).unwrap();
        let is_as_before = release.body == check.body && release.request_id == check.request_id;
        assert!(is_as_before && check.operation == Operation::Check(StatusOptions::NONE));
        assert_eq!(release.operation, Operation::Release);
        let with_status = bytes.replacen("check", "check?status=true", 1);
        let (with_status, _) = simple_request(with_status.as_bytes()).unwrap();
        let options = StatusOptions::WITH_STATUS;
        assert_eq!(with_status.operation, Operation::Check(options));
    }

    #[test]
    fn anything_else_is_left_to_hyper() {
        let simple = request("Content-Length: 2\r\n", "{}");
        for end in 0..simple.len() {
            assert!(simple_request(&simple.as_bytes()[..end]).is_none(), "{end}");
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
                simple_request(request(head, body).as_bytes()).is_none(),
                "{head}"
            );
        }
        for other in [
            "GET /v1/check",
            "POST /v1/checks",
            "POST /v1/releases",
            "POST /v1/settle",
            "POST /v1/check?status=false",
            "POST /v1/check?status=true&status=false",
        ] {
            let bytes = simple.replacen("POST /v1/check", other, 1);
            assert!(simple_request(bytes.as_bytes()).is_none(), "{other}");
        }
        let old = simple.replacen("HTTP/1.1", "HTTP/1.0", 1);
        assert!(simple_request(old.as_bytes()).is_none());
    }
}
