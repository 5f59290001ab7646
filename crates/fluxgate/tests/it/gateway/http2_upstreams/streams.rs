//! Streams in both directions: their pace, and how they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};

use super::*;
use crate::http2_peers::until;
use crate::service::telemetry::Metrics;

/// Sends until the peer accepts no more for a while, or for good; counts what was sent.
async fn pour(stream: &mut SendStream<Bytes>, sent: &AtomicUsize) {
    loop {
        stream.reserve_capacity(16 * 1024);
        let capacity = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let Some(Ok(capacity)) = capacity else { return };
        if stream
            .send_data(vec![b'x'; capacity].into(), false)
            .is_err()
        {
            return;
        }
        sent.fetch_add(capacity, Ordering::SeqCst);
    }
}

/// Waits until a count exceeds `before`, and then stays as it is.
async fn settled(count: &AtomicUsize, mut before: usize) -> usize {
    until("it has begun", || count.load(Ordering::SeqCst) > before).await;
    loop {
        let now = count.load(Ordering::SeqCst);
        if now == before {
            return now;
        }
        before = now;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// More than all windows, and what sockets and the gateway hold; less than memory that grows.
const BOUND: usize = 8 * 1024 * 1024;

#[test]
fn a_slow_client_slows_the_upstream() {
    let sent = Arc::new(AtomicUsize::new(0));
    let upstream = Http2Upstream::serving(Settings::default(), {
        let sent = Arc::clone(&sent);
        move |mut call| {
            let sent = Arc::clone(&sent);
            async move {
                if call.path() != "/endless" {
                    return call.answer(200, &[], "ok");
                }
                let mut stream = call.begin(200, &[], false);
                pour(&mut stream, &sent).await;
                call.wait_for_reset(&mut stream).await;
            }
        }
    });
    let service = gateway_to(&upstream, "");
    block_on(async {
        // One response cannot fill the window of the whole connection.
        let mut client = Http2Client::with_window(service.address("gateway"), 32 * 1024).await;
        let (response, _) = client.begin(request("GET", "/endless", &[]), true).await;
        let mut incoming = response.await.unwrap().into_body();
        let before = settled(&sent, 0).await;
        assert!((65_535..BOUND).contains(&before), "{before}");
        // Others on the same connections are served.
        let other = client.send(request("GET", "/", &[]), "").await.unwrap();
        assert_eq!(other.status, 200);
        let mut read = 0;
        while read < 10 * BOUND {
            let data = incoming.data().await.unwrap().unwrap();
            incoming
                .flow_control()
                .release_capacity(data.len())
                .unwrap();
            read += data.len();
        }
        let after = settled(&sent, before).await;
        assert!(after >= read && after - read < BOUND, "{after} {read}");
        drop(incoming);
        until("the upstream learns of it", || {
            upstream.cancelled() == [Some(Reason::CANCEL)]
        })
        .await;
    });
    // On the fast path, too.
    let before = sent.load(Ordering::SeqCst);
    let mut slow = RawClient::connect(service.address("gateway"));
    slow.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    block_on(async {
        let more = settled(&sent, before).await - before;
        // The kernel buffers more for a client that never reads.
        assert!((65_535..4 * BOUND).contains(&more), "{more}");
    });
    drop(slow);
    fluxgate_testkit::wait_until("the upstream learns of it", || {
        upstream.cancelled().len() == 2
    });
}

#[test]
fn a_slow_upstream_slows_the_client() {
    let upstream = Http2Upstream::serving(Settings::default(), |mut call| async move {
        if call.path() == "/slow" {
            call.wait_for_cancellation().await;
        } else {
            call.answer(200, &[], "ok");
        }
    });
    let service = gateway_to(&upstream, "");
    block_on(async {
        let mut client = Http2Client::connect(service.address("gateway")).await;
        let (response, mut stream) = client.begin(request("POST", "/slow", &[]), false).await;
        let sent = Arc::new(AtomicUsize::new(0));
        let pouring = {
            let sent = Arc::clone(&sent);
            tokio::spawn(async move { pour(&mut stream, &sent).await })
        };
        let stalled = settled(&sent, 0).await;
        assert!((65_535..BOUND).contains(&stalled), "{stalled}");
        let other = client.send(request("GET", "/", &[]), "").await.unwrap();
        assert_eq!(other.status, 200);
        pouring.abort();
        drop(response);
        until("the upstream learns of it", || {
            upstream.cancelled().len() == 1
        })
        .await;
    });
}

#[test]
fn both_sides_may_speak_in_turn() {
    let upstream = Http2Upstream::serving(Settings::default(), |mut call| async move {
        let mut stream = call.begin(200, &[], false);
        let incoming = call.request.body_mut();
        while let Some(Ok(data)) = incoming.data().await {
            incoming
                .flow_control()
                .release_capacity(data.len())
                .unwrap();
            stream.send_data(data, false).unwrap();
        }
        stream.send_data(Bytes::new(), true).unwrap();
    });
    let service = gateway_to(&upstream, "");
    block_on(async {
        let mut client = Http2Client::connect(service.address("gateway")).await;
        let (response, mut stream) = client.begin(request("POST", "/", &[]), false).await;
        let mut incoming = response.await.unwrap().into_body();
        for word in ["to", "and", "fro"] {
            stream.send_data(word.into(), false).unwrap();
            assert_eq!(incoming.data().await.unwrap().unwrap(), word);
        }
        stream.send_data(Bytes::new(), true).unwrap();
        // The end may come with an empty part.
        let rest = incoming.data().await;
        assert!(rest.is_none_or(|rest| rest.unwrap().is_empty()));
        assert!(incoming.is_end_stream());
    });
}

const ONE_AT_A_TIME: &str = "filters: { main: { rule_set: s } }
rule_sets: { s: { rules: [ { id: r, scope: global, algorithm: concurrency, hold: 1h, bands: [ { capacity: 1 } ] } ] } }
";

/// However a stream ends, its slot is given back.
#[test]
fn a_slot_ends_with_its_stream() {
    let upstream = Http2Upstream::serving(Settings::default(), |mut call| async move {
        let path = call.path().to_owned();
        if path == "/no-head" {
            return call.wait_for_cancellation().await;
        }
        let mut stream = call.begin(200, &[], false);
        stream.send_data("first".into(), false).unwrap();
        if ["/reset", "/cancelled"].contains(&path.as_str()) {
            // The library does not send what is queued when it resets a stream.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        match path.as_str() {
            "/ends" => stream.send_data("last".into(), true).unwrap(),
            "/trailers" => stream.send_trailers(http::HeaderMap::new()).unwrap(),
            "/reset" => stream.send_reset(Reason::INTERNAL_ERROR),
            "/cancelled" => stream.send_reset(Reason::CANCEL),
            _ => call.wait_for_reset(&mut stream).await,
        }
    });
    let config = format!(
        "{ONE_AT_A_TIME}gateway: {{ routes: [ {{ id: all, upstreams: ['{}'], filters: [main] }} ] }}\n",
        upstream.url()
    );
    let service = Service::start(&["gateway"], &config);
    let held = || Metrics::of(&service).get("fluxgate_slots_held{rule_set=\"s\",rule=\"r\"}");
    block_on(async {
        let mut client = Http2Client::connect(service.address("gateway")).await;
        for path in ["/ends", "/trailers", "/reset", "/cancelled"] {
            let answer = client.send(request("GET", path, &[]), "").await;
            let expected = match path {
                "/ends" | "/trailers" => None,
                "/reset" => Some(Reason::INTERNAL_ERROR),
                _ => Some(Reason::CANCEL),
            };
            let reason = answer.as_ref().err().map(|error| error.reason().unwrap());
            assert_eq!(reason, expected, "{path}");
            until("the slot is free", || held() == 0).await;
        }
        for (number, path) in ["/no-head", "/endless"].into_iter().enumerate() {
            let (response, _) = client.begin(request("GET", path, &[]), true).await;
            until("it has arrived", || upstream.streams() == 5 + number).await;
            assert_eq!(held(), 1);
            drop(response);
            until("the slot is free", || held() == 0).await;
        }
    });
}
