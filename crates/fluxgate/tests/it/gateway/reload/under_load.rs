//! Rolling changes of the config and of the upstreams, under load.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::http2_peers::{Http2Client, Http2Upstream, block_on, request};

/// How many times all upstreams are replaced.
const ROUNDS: usize = 5;

/// What the clients share.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    answered: AtomicUsize,
}

impl Load {
    /// Sends requests over one connection until the load is over. Each must be answered.
    fn send_over_http1(&self, service: &Service, headers: &[(&str, &str)]) {
        let mut http = client(service);
        while !self.is_over.load(Ordering::Relaxed) {
            for (method, body) in [("GET", ""), ("POST", "hello")] {
                let answer = http.request(method, "/x", headers, body);
                assert_eq!(answer.status, 200, "{answer:?}");
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn send_over_http2(&self, service: &Service) {
        block_on(async {
            let mut client = Http2Client::connect(service.address("gateway")).await;
            while !self.is_over.load(Ordering::Relaxed) {
                for (method, body) in [("GET", ""), ("POST", "hello")] {
                    let answer = client.send(request(method, "/x", &[]), body).await;
                    let answer = answer.unwrap();
                    assert_eq!(answer.status, 200, "{answer:?}");
                    self.answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }

    /// Waits until so many more requests are answered.
    fn wait_for_more(&self, count: usize) {
        let wanted = self.answered.load(Ordering::Relaxed) + count;
        wait_until("more requests are answered", || {
            self.answered.load(Ordering::Relaxed) >= wanted
        });
    }
}

/// Ends the load also when an assertion fails.
struct EndOfLoad<'a>(&'a Load);

impl Drop for EndOfLoad<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_request_fails_while_upstreams_and_routes_are_replaced() {
    let mut old = (Upstream::with_body("ok"), Http2Upstream::start());
    let urls = |(plain, http2): &(Upstream, Http2Upstream)| [plain.url(), http2.url()];
    let service = run(&config(&[to(&urls(&old))], ""));
    let load = Load::default();
    thread::scope(|scope| {
        let _end = EndOfLoad(&load);
        // The fast path, hyper, and HTTP/2.
        for headers in [&[][..], &[("TE", "trailers")]] {
            let (load, service) = (&load, &service);
            scope.spawn(move || load.send_over_http1(service, headers));
        }
        scope.spawn(|| load.send_over_http2(&service));
        for round in 0..ROUNDS {
            let new = (Upstream::with_body("ok"), Http2Upstream::start());
            load.wait_for_more(100);
            let both: Vec<_> = urls(&old).into_iter().chain(urls(&new)).collect();
            reload(&service, &config(&[to(&both)], ""));
            load.wait_for_more(100);
            // Other routes and limits, too; the old servers leave.
            let route = format!(
                "{{ id: r{round}, match: {{ path: ['/x'] }}, upstreams: {:?}, timeouts: {{ request: {}s }} }}",
                urls(&new),
                20 + round
            );
            let settings = format!("  limits: {{ body_bytes: {} }}\n", 100 + round);
            reload(&service, &config(&[route, to(&urls(&new))], &settings));
            wait_until("the old ones are drained", || {
                old.0.open_connections() == 0 && old.1.open_connections() == 0
            });
            // And stop.
            old = new;
        }
        load.wait_for_more(100);
    });
    assert!(service.logs("not forwarded").is_empty());
    assert_eq!(service.refusals(), [Value::Null; 0]);
}

#[test]
fn every_filter_finds_its_rule_set_while_both_are_replaced() {
    let upstream = Upstream::with_body("ok");
    // A filter with the last of these rule sets. A request whose rule set is missing is refused.
    let with_sets = |numbers: RangeInclusive<usize>| {
        let (last, url) = (*numbers.end(), upstream.url());
        let route = format!("{{ id: all, upstreams: ['{url}'], filters: [f] }}");
        let more =
            format!("on_missing_rule_set: deny\nfilters: {{ f: {{ rule_set: s{last} }} }}\n");
        // Many rules take time between any two steps.
        let rules: String = (0..500)
            .map(|it| format!("      - {{ id: r{it}, scope: global, match: {{ path: ['/{it}'] }}, bands: [ {{ capacity: 1, window: 1h }} ] }}\n"))
            .collect();
        let sets = numbers.map(|it| format!("  s{it}:\n    rules:\n{rules}"));
        let sets = format!("rule_sets:\n{}", sets.collect::<String>());
        config(&[route], &more).replace("rule_sets: {}\n", &sets)
    };
    let service = run(&with_sets(0..=0));
    let load = Load::default();
    thread::scope(|scope| {
        let _end = EndOfLoad(&load);
        for _ in 0..2 {
            scope.spawn(|| load.send_over_http1(&service, &[]));
        }
        for round in 1..=ROUNDS {
            // In turn, a set is added and the others are removed.
            for numbers in [2 * round - 2..=2 * round - 1, 2 * round..=2 * round] {
                reload(&service, &with_sets(numbers));
                load.wait_for_more(20);
            }
        }
    });
}
