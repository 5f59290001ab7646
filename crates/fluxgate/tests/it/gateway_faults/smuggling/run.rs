//! Sends requests and judges both sides of the gateway.

use std::time::Duration;

use fluxgate_testkit::{RawClient, RawUpstream, Received, WireRequest, wait_until};

use super::Case;
use crate::gateway_faults::{client, gateway, ok_upstream};

/// How a request comes.
#[derive(Clone, Copy, Debug)]
enum Coming {
    /// As the first of a connection.
    First,
    /// After another on the same connection.
    Second,
    /// Byte by byte.
    InPieces,
}

/// What becomes of a connection on which something was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// It is closed: who knows where the next request begins.
    Closes,
    /// Where the request ended is beyond doubt, so it may stay.
    MayStay,
}

/// Runs all cases, each in every way of coming, and tells of all that fail. Where
/// a request is refused, its connection is closed.
pub(super) fn run(cases: &[Case]) {
    run_all(cases, Refusal::Closes);
}

/// The same for requests that doubtless end where they end.
pub(super) fn run_well_framed(cases: &[Case]) {
    run_all(cases, Refusal::MayStay);
}

fn run_all(cases: &[Case], refusal: Refusal) {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    let mut failures = Vec::new();
    let mut whole = 0;
    for case in cases {
        for coming in [Coming::First, Coming::Second, Coming::InPieces] {
            let before = upstream.received();
            let mut client = client(&service);
            // Many may fail at once, and each tells more than that one is slow.
            client.set_read_timeout(Duration::from_secs(4));
            let outcome = one((case, refusal), coming, &mut client, &upstream, &before);
            match outcome {
                Ok(seen) => whole += seen,
                Err(why) => {
                    let bytes = case.bytes.escape_ascii();
                    failures.push(format!("{coming:?} {bytes}\n    {why}"));
                    // What it did is no other case's fault.
                    drop(client);
                    whole = count(&upstream);
                }
            }
        }
    }
    // Nothing came late, either.
    drop(service);
    let total = count(&upstream);
    if total != whole {
        failures.push(format!("{total} requests came and {whole} were meant"));
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Runs a case and tells how many requests the upstream got.
fn one(
    (case, refusal): (&Case, Refusal),
    coming: Coming,
    client: &mut RawClient,
    upstream: &RawUpstream,
    before: &[Received],
) -> Result<usize, String> {
    let mut meant = Vec::new();
    match coming {
        Coming::Second => {
            let answer = client.get("/before").map_err(|e| format!("before: {e}"))?;
            if answer.status != 200 {
                return Err(format!("before: {answer:?}"));
            }
            meant.push("GET /before".to_owned());
            client.send(&case.bytes);
        }
        Coming::First => client.send(&case.bytes),
        Coming::InPieces => client.send_byte_by_byte(&case.bytes),
    }
    let mut answer = client.read_answer();
    while answer.as_ref().is_ok_and(|answer| answer.status == 100) {
        answer = client.read_answer();
    }
    let answer = answer.map_err(|e| format!("answer: {e}"))?;
    let is_refused = answer.status != 200;
    if is_refused {
        if !case.refused.contains(&answer.status) {
            return Err(format!("refused with {answer:?}"));
        }
    } else {
        let Some(seen) = &case.seen else {
            return Err(format!("forwarded as {}", shown(upstream, before)));
        };
        meant.push(seen.line.to_owned());
    }
    let must_close = is_refused && refusal == Refusal::Closes;
    if must_close || answer.is_last() {
        let more = client
            .read_to_end()
            .map_err(|e| format!("not closed: {e}"))?;
        if !more.is_empty() {
            return Err(format!("more after the last: {}", more.escape_ascii()));
        }
    } else {
        let after = client.get("/after").map_err(|e| format!("after: {e}"))?;
        if after.status != 200 {
            return Err(format!("after: {after:?}"));
        }
        meant.push("GET /after".to_owned());
    }
    judge(case, is_refused, &meant, upstream, before)
}

fn judge(
    case: &Case,
    is_refused: bool,
    meant: &[String],
    upstream: &RawUpstream,
    before: &[Received],
) -> Result<usize, String> {
    let mut requests = Vec::new();
    for (index, bytes) in since(upstream, before) {
        let (whole, rest) = WireRequest::read_all(&bytes)
            .map_err(|bad| format!("ambiguous upstream: {bad}: {}", bytes.escape_ascii()))?;
        requests.extend(whole);
        if rest.is_empty() {
            continue;
        }
        if !is_refused {
            return Err(format!("half a request upstream: {}", rest.escape_ascii()));
        }
        // What was begun before it was refused must not be completed by others.
        wait_until("half a request is cut off", || {
            upstream.received()[index].is_over
        });
    }
    let lines: Vec<_> = requests.iter().map(WireRequest::line).collect();
    if !same(&lines, meant) {
        return Err(format!("the upstream saw {lines:?}, meant was {meant:?}"));
    }
    if let Some(seen) = case.seen.as_ref().filter(|_| !is_refused) {
        let request = requests.iter().find(|request| request.line() == seen.line);
        let is_good =
            |request: &&WireRequest| request.body == seen.body.as_bytes() && (seen.check)(request);
        if request.filter(is_good).is_none() {
            return Err(format!("the upstream saw {request:?}"));
        }
    }
    Ok(requests.len())
}

/// How many whole requests have come on connections that can be read in one way.
fn count(upstream: &RawUpstream) -> usize {
    let received = upstream.received();
    let counts = received.iter().map(|received| {
        WireRequest::read_all(&received.bytes).map_or(0, |(requests, _)| requests.len())
    });
    counts.sum()
}

/// The same requests, on whichever connections they came.
fn same(seen: &[String], meant: &[String]) -> bool {
    let sorted = |lines: &[String]| {
        let mut lines = lines.to_vec();
        lines.sort();
        lines
    };
    sorted(seen) == sorted(meant)
}

/// What has come since, by connection.
fn since(upstream: &RawUpstream, before: &[Received]) -> Vec<(usize, Vec<u8>)> {
    let now = upstream.received().into_iter().enumerate();
    let new = now.map(|(index, received)| {
        let old = before.get(index).map_or(0, |before| before.bytes.len());
        (index, received.bytes[old..].to_vec())
    });
    new.filter(|(_, bytes)| !bytes.is_empty()).collect()
}

fn shown(upstream: &RawUpstream, before: &[Received]) -> String {
    let new = since(upstream, before);
    let new = new
        .iter()
        .map(|(_, bytes)| bytes.escape_ascii().to_string());
    new.collect::<Vec<_>>().join(" | ")
}
