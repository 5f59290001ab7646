//! Connections to upstreams over HTTP/2: how many there are, and how they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use h2::Reason;
use tokio::sync::Semaphore;

use super::*;
use crate::http2_peers::until;

#[test]
fn many_requests_share_a_connection_and_full_ones_get_company() {
    let gate = Arc::new(Semaphore::new(0));
    let settings = Settings {
        max_streams: Some(4),
        ..Settings::default()
    };
    let upstream = Http2Upstream::serving(settings, {
        let gate = Arc::clone(&gate);
        move |mut call| {
            let gate = Arc::clone(&gate);
            async move {
                if call.path() == "/wait" {
                    let _ = gate.acquire().await.unwrap();
                }
                call.answer(200, &[], "ok");
            }
        }
    });
    let service = gateway_to(&upstream, "");
    block_on(async {
        // One connection of a client is served by one core.
        let mut client = Http2Client::connect(service.address("gateway")).await;
        for _ in 0..50 {
            client.send(request("GET", "/", &[]), "").await.unwrap();
        }
        assert_eq!(upstream.connections(), 1);
        let mut waiting = Vec::new();
        for _ in 0..10 {
            let (response, _) = client.begin(request("GET", "/wait", &[]), true).await;
            waiting.push(tokio::spawn(crate::http2_peers::read(response)));
        }
        until("all have arrived", || upstream.streams() == 60).await;
        assert_eq!(upstream.connections(), 3);
        gate.add_permits(10);
        for answer in waiting {
            assert_eq!(answer.await.unwrap().unwrap().status, 200);
        }
    });
}

#[test]
fn idle_connections_are_closed() {
    let upstream = Http2Upstream::start();
    let service = gateway_to(&upstream, "  timeouts: { idle: 1s }\n");
    assert_eq!(client(&service).get("/").status, 200);
    assert_eq!(upstream.open_connections(), 1);
    fluxgate_testkit::wait_until("it is closed", || upstream.open_connections() == 0);
    assert_eq!(client(&service).get("/").status, 200);
}

/// A server that restarts says so: requests in flight end where they are, and new ones go elsewhere.
#[test]
fn a_server_may_drain_its_connections_at_any_time() {
    let upstream = Http2Upstream::serving(Settings::default(), |mut call| async move {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if call.read().await.is_ok() {
            call.answer(200, &[], "ok");
        }
    });
    let service = gateway_to(&upstream, "");
    block_on(async {
        let mut client = Http2Client::connect(service.address("gateway")).await;
        let mut answers = Vec::new();
        for round in 0..300 {
            let head = request("POST", "/", &[]);
            let (response, mut stream) = client.begin(head, false).await;
            stream.send_data("hello".into(), true).unwrap();
            answers.push(tokio::spawn(crate::http2_peers::read(response)));
            if round % 30 == 29 {
                upstream.drain();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for answer in answers {
            assert_eq!(answer.await.unwrap().unwrap().status, 200);
        }
    });
    assert_eq!(upstream.requests().len(), 300);
    assert!(upstream.connections() > 5, "{}", upstream.connections());
}

/// RFC 9113, section 8.7: a refused stream was not processed.
#[test]
fn a_refused_request_is_sent_again_and_any_other_is_not() {
    let refused = Arc::new(AtomicUsize::new(0));
    let upstream = Http2Upstream::serving(Settings::default(), move |mut call| {
        let refused = Arc::clone(&refused);
        async move {
            let path = call.path().to_owned();
            if path == "/refused-twice" && refused.fetch_add(1, Ordering::SeqCst) % 3 < 2 {
                return call.respond.send_reset(Reason::REFUSED_STREAM);
            }
            if path == "/refused" {
                return call.respond.send_reset(Reason::REFUSED_STREAM);
            }
            if call.read().await.is_err() {
                return;
            }
            match path.as_str() {
                "/broken" => call.respond.send_reset(Reason::INTERNAL_ERROR),
                "/cancelled" => call.respond.send_reset(Reason::CANCEL),
                "/refused-late" => call.respond.send_reset(Reason::REFUSED_STREAM),
                _ => call.answer(200, &[], "ok"),
            }
        }
    });
    let service = gateway_to(&upstream, "");
    let body = "x".repeat(10_000);
    let mut http = client(&service);
    // With a body that is known, and with one that is read from the client piece by piece.
    for headers in [&[][..], &[("TE", "trailers"), ("Connection", "te")]] {
        let answer = http.request("POST", "/refused-twice", headers, &body);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let requests = upstream.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|it| it.body == body.as_bytes()));
    for (path, streams) in [
        ("/refused", 3),
        ("/refused-late", 3),
        ("/broken", 1),
        ("/cancelled", 1),
    ] {
        let before = upstream.streams();
        assert_problem(&http.request("POST", path, &[], "hello"), 502);
        assert_eq!(upstream.streams() - before, streams, "{path}");
    }
}

#[test]
fn a_refused_request_goes_to_the_next_upstream() {
    let refusing = Http2Upstream::serving(Settings::default(), |mut call| async move {
        call.respond.send_reset(Reason::REFUSED_STREAM);
    });
    let other = Upstream::with_body("over HTTP/1.1");
    let upstreams = format!("'{}', '{}'", refusing.url(), other.url());
    let service = gateway(&upstreams, "");
    let mut http = client(&service);
    for _ in 0..4 {
        assert_eq!(
            http.request("POST", "/", &[], "hello").body,
            "over HTTP/1.1"
        );
    }
    assert!(
        other
            .requests()
            .iter()
            .all(|request| request.body == b"hello")
    );
}
