//! Sends requests and checks both sides of the gateway.

use fluxgate_testkit::{RawClient, RawUpstream, Received, WireRequest, wait_until};

use super::Case;
use crate::gateway_faults::{client, gateway, ok_upstream};
use crate::http2_peers::Http2Upstream;
use crate::service::Service;

/// After so many failures, the other cases are not run.
const MAX_FAILURES: usize = 10;

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
enum Sending {
    /// As the first request of a connection.
    First,
    /// After another request on the same connection.
    Second,
    ByteByByte,
}

/// What happens to a connection after a rejected request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterRejection {
    /// It is closed, because the start of the next request is unknown.
    Closed,
    /// It may stay open, because the end of the request is unambiguous.
    MayStayOpen,
}

/// Runs each case in every way of sending and reports all failures. A rejected request
/// must close its connection.
pub(super) fn run(cases: &[Case]) {
    run_all(cases, AfterRejection::Closed);
}

/// Runs cases whose end is unambiguous: a rejected request may leave its connection open.
pub(super) fn run_well_framed(cases: &[Case]) {
    run_all(cases, AfterRejection::MayStayOpen);
}

fn run_all(cases: &[Case], after_rejection: AfterRejection) {
    run_over_http2(cases);
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    let mut failures = Vec::new();
    let mut expected = 0;
    let mut follows_rejection = false;
    for case in cases {
        for sending in [Sending::First, Sending::Second, Sending::ByteByByte] {
            // So that a run with many failures still ends.
            if failures.len() == MAX_FAILURES {
                continue;
            }
            let before = upstream.received();
            let mut client = client(&service);
            let outcome = run_case(
                (case, after_rejection),
                sending,
                &mut client,
                &upstream,
                &before,
                follows_rejection,
            );
            match outcome {
                Ok((count, is_rejected)) => {
                    expected += count;
                    follows_rejection |= is_rejected;
                }
                Err(why) => {
                    let bytes = case.bytes.escape_ascii();
                    failures.push(format!("{sending:?} {bytes}\n    {why}"));
                    // Its requests must not count against the other cases.
                    drop(client);
                    expected = count(&upstream);
                }
            }
        }
    }
    // No request arrived late.
    drop(service);
    let total = count(&upstream);
    if total != expected {
        failures.push(format!("{total} requests arrived, expected {expected}"));
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Runs each case with an upstream that speaks HTTP/2: it gets what one that speaks HTTP/1.1 gets.
/// Requests do not follow one another there, so each must be complete by itself.
fn run_over_http2(cases: &[Case]) {
    let upstream = Http2Upstream::start();
    let config = format!(
        "gateway: {{ routes: [ {{ id: all, upstreams: ['{}'] }} ] }}\n",
        upstream.url()
    );
    let service = Service::start(&["gateway"], &config);
    let mut failures = Vec::new();
    let mut known = 0;
    for case in cases {
        for sending in [Sending::First, Sending::Second, Sending::ByteByByte] {
            if failures.len() == MAX_FAILURES {
                continue;
            }
            let outcome = run_case_over_http2(case, sending, &service, &upstream, known);
            known = upstream.requests().len();
            if let Err(why) = outcome {
                let bytes = case.bytes.escape_ascii();
                failures.push(format!("{sending:?} {bytes}\n    over HTTP/2: {why}"));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn run_case_over_http2(
    case: &Case,
    sending: Sending,
    service: &Service,
    upstream: &Http2Upstream,
    known: usize,
) -> Result<(), String> {
    let mut client = client(service);
    let mut expected = Vec::new();
    if let Sending::Second = sending {
        client.get("/before").map_err(|e| format!("before: {e}"))?;
        expected.push("GET /before".to_owned());
    }
    match sending {
        Sending::ByteByByte => client.send_byte_by_byte(&case.bytes),
        Sending::First | Sending::Second => client.send(&case.bytes),
    }
    let mut response = client.read_answer();
    while response.as_ref().is_ok_and(|it| it.status == 100) {
        response = client.read_answer();
    }
    let response = response.map_err(|e| format!("response: {e}"))?;
    let is_rejected = response.status != 200;
    if is_rejected && !case.rejected.contains(&response.status) {
        return Err(format!("rejected with {response:?}"));
    }
    // What follows is a request of its own, or nothing.
    drop(client);
    let received = upstream.requests().split_off(known);
    match &case.forwarded {
        Some(forwarded) if !is_rejected => expected.push(forwarded.line.to_owned()),
        None if !is_rejected => return Err(format!("forwarded as {received:?}")),
        _ => {}
    }
    let lines: Vec<_> = received.iter().map(WireRequest::line).collect();
    if !is_same(&lines, &expected) {
        return Err(format!("received {lines:?}, expected {expected:?}"));
    }
    for request in &received {
        let hosts = request.values("host").len();
        let length = request.values("content-length");
        let has_length = length.is_empty() || length == [request.body.len().to_string()];
        let hop_by_hop = ["connection", "transfer-encoding", "upgrade", "keep-alive"];
        let has_none = hop_by_hop
            .iter()
            .all(|name| request.values(name).is_empty());
        if hosts != 1 || !has_length || !has_none {
            return Err(format!("received {request:?}"));
        }
    }
    if let Some(forwarded) = case.forwarded.as_ref().filter(|_| !is_rejected) {
        let request = received.iter().find(|it| it.line() == forwarded.line);
        let is_expected = |request: &&WireRequest| {
            request.body == forwarded.body.as_bytes() && (forwarded.check)(request)
        };
        if request.filter(is_expected).is_none() {
            return Err(format!("received {request:?}"));
        }
    }
    Ok(())
}

/// Runs a case and returns how many requests the upstream received, and whether the gateway
/// rejected it.
fn run_case(
    (case, after_rejection): (&Case, AfterRejection),
    sending: Sending,
    client: &mut RawClient,
    upstream: &RawUpstream,
    before: &[Received],
    follows_rejection: bool,
) -> Result<(usize, bool), String> {
    let mut expected = Vec::new();
    match sending {
        Sending::Second => {
            let response = client.get("/before").map_err(|e| format!("before: {e}"))?;
            if response.status != 200 {
                return Err(format!("before: {response:?}"));
            }
            expected.push("GET /before".to_owned());
            client.send(&case.bytes);
        }
        Sending::First => client.send(&case.bytes),
        Sending::ByteByByte => client.send_byte_by_byte(&case.bytes),
    }
    let mut response = client.read_answer();
    while response
        .as_ref()
        .is_ok_and(|response| response.status == 100)
    {
        response = client.read_answer();
    }
    let response = response.map_err(|e| format!("response: {e}"))?;
    let is_rejected = response.status != 200;
    if is_rejected {
        if !case.rejected.contains(&response.status) {
            return Err(format!("rejected with {response:?}"));
        }
    } else {
        let Some(forwarded) = &case.forwarded else {
            return Err(format!("forwarded as {}", escape_new(upstream, before)));
        };
        expected.push(forwarded.line.to_owned());
    }
    let must_close = is_rejected && after_rejection == AfterRejection::Closed;
    if must_close || response.is_last() {
        let more = client
            .read_to_end()
            .map_err(|e| format!("not closed: {e}"))?;
        if !more.is_empty() {
            return Err(format!(
                "bytes after the last response: {}",
                more.escape_ascii()
            ));
        }
    } else {
        let after = client.get("/after").map_err(|e| format!("after: {e}"))?;
        if after.status != 200 {
            return Err(format!("after: {after:?}"));
        }
        expected.push("GET /after".to_owned());
    }
    let may_abort = is_rejected || follows_rejection;
    let count = check_upstream((case, is_rejected, may_abort), &expected, upstream, before)?;
    Ok((count, is_rejected))
}

/// Checks what the upstream received. `may_abort` says that an incomplete request may be among
/// it: of this case, or of any rejected one before, which the upstream may read late.
fn check_upstream(
    (case, is_rejected, may_abort): (&Case, bool, bool),
    expected: &[String],
    upstream: &RawUpstream,
    before: &[Received],
) -> Result<usize, String> {
    let mut requests = Vec::new();
    for (index, received) in upstream.received().into_iter().enumerate() {
        // Parse from the start of the connection: the new bytes may begin in the middle of a
        // request.
        let bytes = &received.bytes;
        let old = before.get(index).map_or(&[][..], |before| &before.bytes);
        if bytes.len() == old.len() {
            continue;
        }
        let read = |bytes| {
            WireRequest::read_all(bytes)
                .map_err(|bad| format!("ambiguous upstream: {bad}: {}", bytes.escape_ascii()))
        };
        let (known, _) = read(old)?;
        let (complete, rest) = read(bytes)?;
        requests.extend(complete.into_iter().skip(known.len()));
        if rest.is_empty() {
            continue;
        }
        if !may_abort {
            return Err(format!(
                "incomplete request upstream: {}",
                rest.escape_ascii()
            ));
        }
        // No later request may complete what was sent before a rejection.
        wait_until("the incomplete request is aborted", || {
            upstream.received()[index].is_over
        });
    }
    let lines: Vec<_> = requests.iter().map(WireRequest::line).collect();
    if !is_same(&lines, expected) {
        return Err(format!(
            "the upstream received {lines:?}, expected {expected:?}"
        ));
    }
    if let Some(forwarded) = case.forwarded.as_ref().filter(|_| !is_rejected) {
        let request = requests
            .iter()
            .find(|request| request.line() == forwarded.line);
        let is_expected = |request: &&WireRequest| {
            request.body == forwarded.body.as_bytes() && (forwarded.check)(request)
        };
        if request.filter(is_expected).is_none() {
            return Err(format!("the upstream received {request:?}"));
        }
    }
    Ok(requests.len())
}

/// Counts the complete requests on connections whose bytes are unambiguous.
fn count(upstream: &RawUpstream) -> usize {
    let received = upstream.received();
    let counts = received.iter().map(|received| {
        WireRequest::read_all(&received.bytes).map_or(0, |(requests, _)| requests.len())
    });
    counts.sum()
}

/// Returns whether the requests are the same, in any order.
fn is_same(received: &[String], expected: &[String]) -> bool {
    let sorted = |lines: &[String]| {
        let mut lines = lines.to_vec();
        lines.sort();
        lines
    };
    sorted(received) == sorted(expected)
}

/// Returns the bytes received since `before`, by connection.
fn new_bytes(upstream: &RawUpstream, before: &[Received]) -> Vec<(usize, Vec<u8>)> {
    let now = upstream.received().into_iter().enumerate();
    let new = now.map(|(index, received)| {
        let old = before.get(index).map_or(0, |before| before.bytes.len());
        (index, received.bytes[old..].to_vec())
    });
    new.filter(|(_, bytes)| !bytes.is_empty()).collect()
}

fn escape_new(upstream: &RawUpstream, before: &[Received]) -> String {
    let new = new_bytes(upstream, before);
    let new = new
        .iter()
        .map(|(_, bytes)| bytes.escape_ascii().to_string());
    new.collect::<Vec<_>>().join(" | ")
}
