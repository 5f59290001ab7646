//! A client that disconnects while its request waits.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use fluxgate_core::{Limiter, MemoryStore};
use fluxgate_testkit::{Http, wait_until};
use fluxgate_tower::RateLimitLayer;
use tokio::net::TcpListener;

use crate::support::{Events, set_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_disconnects_frees_its_units_and_its_permit() {
    let rules = "{ id: r, scope: per_ip, on_exceed: wait, max_wait: 1h, bands: [ { capacity: 1, window: 10m } ] }";
    let limiter = Limiter::new(set_of(rules), MemoryStore::default());
    let events = Events::default();
    let ran = events.clone();
    let app = Router::new()
        .route("/", get(async move || ran.add("ran")))
        .layer(
            RateLimitLayer::new(limiter.clone())
                .rule_set("s")
                .max_concurrent_waits(1),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let ask = move || Http::new(address).get("/").status;
    let reset_secs = || {
        let state = fluxgate_core::task::ready(limiter.state("s", "r", &["127.0.0.1"])).unwrap();
        state[0].reset_after.as_micros().div_ceil(1_000_000)
    };
    tokio::task::block_in_place(|| {
        assert_eq!(ask(), 200);
        let mut waiter = TcpStream::connect(address).unwrap();
        waiter
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        wait_until("the reservation", || reset_secs() > 600);
        assert_eq!(ask(), 429, "the only permit is taken");
        drop(waiter);
        wait_until("the cancelled units", || reset_secs() <= 600);
        // The permit is free too: the next request waits.
        let mut next = TcpStream::connect(address).unwrap();
        next.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        wait_until("the next reservation", || reset_secs() > 600);
        next.set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let response = next.read(&mut [0; 64]);
        assert!(response.is_err(), "answered instead of waiting");
        assert!(reset_secs() > 600, "no longer waiting");
    });
    assert_eq!(events.take(), ["ran"]);
    server.abort();
}
