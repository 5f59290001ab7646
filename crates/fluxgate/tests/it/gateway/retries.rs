//! Which requests are tried again, how often, and what that costs.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fluxgate_testkit::{ports, wait_until};

use super::*;
use crate::service::telemetry::Metrics;

/// A header that sends a request through hyper instead of the fast path.
const HYPER: (&str, &str) = ("TE", "trailers");

/// One of each for a user.
const ONE_A_USER: &str = "filters: { main: { rule_set: s } }
rule_sets: { s: { rules: [ { id: r, scope: per_user, bands: [ { capacity: 1, window: 1h } ] } ] } }
";

/// Starts an upstream whose first so many responses are `failure`, after which the connection
/// ends, and all others 200.
fn failing(times: usize, failure: &'static str) -> Upstream {
    let count = Arc::new(AtomicUsize::new(0));
    Upstream::start(move |_, stream| {
        if count.fetch_add(1, Ordering::Relaxed) < times {
            let _ = stream.write_all(failure.as_bytes());
            return false;
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .is_ok()
    })
}

const UNAVAILABLE: &str =
    "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy";

fn retries(service: &Service) -> u64 {
    Metrics::of(service).get("fluxgate_retries_total{route=\"all\"}")
}

#[test]
fn a_request_that_failed_is_tried_again_and_charged_once() {
    for (failure, method, body, expected) in [
        (UNAVAILABLE, "GET", "", 200),
        (UNAVAILABLE, "PUT", "a body", 200),
        // The connection ends without a response.
        ("", "GET", "", 200),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok",
            "GET",
            "",
            200,
        ),
        // Its method may not be repeated.
        (UNAVAILABLE, "POST", "", 503),
        ("", "POST", "", 502),
        // Its status is not listed.
        (
            "HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n",
            "GET",
            "",
            500,
        ),
    ] {
        for more in [None, Some(HYPER)] {
            let upstream = failing(1, failure);
            let retry = "retry: { methods: [GET, PUT], budget: 100% }, filters: [main],";
            let service = start(&[route("all", retry, &[&upstream])], ONE_A_USER);
            let mut http = client(&service);
            let headers: Vec<_> = [("X-User-Id", "u")].into_iter().chain(more).collect();
            let response = http.request(method, "/", &headers, body);
            assert_eq!(response.status, expected, "{method} {failure:?} {more:?}");
            let requests = upstream.requests();
            let is_retried = expected == 200;
            assert_eq!(requests.len(), 1 + usize::from(is_retried), "{failure:?}");
            assert!(
                requests.iter().all(|it| it.body == body.as_bytes()),
                "{requests:?}"
            );
            assert_eq!(retries(&service), u64::from(is_retried));
            if is_retried {
                assert_eq!(response.body, "ok");
                assert_eq!(requests[0].request_line(), requests[1].request_line());
                // It was charged once, or the first would have been denied.
                assert_eq!(response.header("x-ratelimit-remaining"), Some("0"));
            }
        }
    }
}

#[test]
fn attempts_are_bounded_and_the_last_response_is_passed_on() {
    for more in [&[][..], &[HYPER]] {
        let upstream = failing(10, UNAVAILABLE);
        let retry = "retry: { attempts: 3, budget: 100% },";
        let service = start(&[route("all", retry, &[&upstream])], "");
        // Two retries in ten seconds need two requests. This one is not tried again.
        let response = client(&service).request("POST", "/", more, "");
        assert_eq!(response.status, 503);
        // It counts once it has ended, which the client may see before.
        let counted = "fluxgate_gateway_requests_total{route=\"all\",status_class=\"5xx\"}";
        wait_until("the first is counted", || {
            Metrics::of(&service).sum(counted) == 1
        });
        let response = client(&service).request("GET", "/", more, "");
        assert_eq!((response.status, &*response.body), (503, "busy"));
        assert_eq!(upstream.requests().len(), 1 + 3);
        assert_eq!(retries(&service), 2);
    }
}

#[test]
fn a_large_or_unbounded_body_is_sent_once() {
    let length = 65 * 1024;
    let large = format!("Content-Length: {length}\r\n\r\n{}", "x".repeat(length));
    let chunked = "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n".to_owned();
    for rest in [large, chunked] {
        let upstream = failing(1, UNAVAILABLE);
        let retry = "retry: { methods: [PUT], budget: 100% },";
        let service = start(&[route("all", retry, &[&upstream])], "");
        let mut http = client(&service);
        let request = format!("PUT / HTTP/1.1\r\nHost: a\r\n{rest}");
        http.send_raw(request.as_bytes()).unwrap();
        assert_eq!(http.read_answer(false).unwrap().status, 503);
        assert_eq!(upstream.requests().len(), 1);
    }
}

#[test]
fn retries_stay_within_their_budget() {
    let upstream = failing(usize::MAX, UNAVAILABLE);
    let service = start(&[route("all", "retry: { budget: 20% },", &[&upstream])], "");
    let mut http = client(&service);
    for _ in 0..100 {
        assert_eq!(http.get("/").status, 503);
    }
    // A busy machine may take more than ten seconds.
    let retries = retries(&service);
    assert!((1..=20).contains(&retries), "{retries}");
    assert_eq!(upstream.requests().len() as u64, 100 + retries);
}

#[test]
fn what_was_not_sent_goes_to_another_upstream_within_the_attempts() {
    let dead = ports::free();
    let up = Upstream::with_body("up");
    let route = format!(
        "{{ id: all, retry: {{ attempts: 2, on: [connect], budget: 100% }}, upstreams: [\"http://{}\", \"{}\"] }}",
        dead.addr(),
        up.url()
    );
    let service = start(&[route], "");
    // Nothing was sent, so the method does not matter.
    let response = client(&service).request("POST", "/", &[], "body");
    assert_eq!((response.status, &*response.body), (200, "up"));
}
