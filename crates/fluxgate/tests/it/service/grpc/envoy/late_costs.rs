//! Costs that Envoy reports when a response has ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fluxgate_testkit::{Http, RawUpstream, RedisServer, Stopwatch, wait_until};
use serde_json::Value;

use super::{Envoy, FAIL_OPEN, Front, service_of};
use crate::docs::Block;
use crate::service::Service;
use crate::service::telemetry::Metrics;

/// What each response costs.
const COST: u64 = 6_000;

/// A listener whose requests count by this rule set when they have ended.
fn late(domain: &'static str) -> Front {
    Front {
        domain,
        reports_late: true,
        ..FAIL_OPEN
    }
}

/// Returns the state of Ann's tokens.
fn state(service: &Service, rule_set: &str) -> Value {
    let path = format!("/v1/state?rule_set={rule_set}&rule=tokens&identity=ann");
    let state: Value = serde_json::from_str(&service.http().get(&path).body).unwrap();
    state["bands"][0].clone()
}

/// Waits until so many calls have been decided, those that report costs included.
fn wait_for_calls(service: &Service, count: u64) {
    wait_until("all costs are reported", || {
        Metrics::of(service).sum("fluxgate_decisions_total{rule_set=") == count
    });
}

/// Sends so many requests at a time. Returns their statuses.
fn send_at_once(front: SocketAddr, count: usize) -> Vec<u16> {
    thread::scope(|scope| {
        let send = || {
            let mut http = Http::new(front);
            http.request("GET", "/", &[("X-User", "ann")], "").status
        };
        let requests: Vec<_> = (0..count).map(|_| scope.spawn(send)).collect();
        let statuses = requests.into_iter().map(|request| request.join().unwrap());
        statuses.collect()
    })
}

/// Envoy reports 6,000 tokens when a response has ended, and the limit is 10,000.
#[test]
fn envoy_charges_what_a_response_has_cost_and_denies_while_it_owes() {
    let documented = Block::all_of("docs/grpc.md").into_iter();
    let mut documented =
        documented.filter(|block| block.kind == "yaml" && block.text.contains("llm:"));
    let service = service_of(&documented.next().unwrap().text);
    let envoy = Envoy::start(&service, &[late("llm")]);
    let remaining = || state(&service, "llm")["remaining"].as_u64().unwrap();
    assert_eq!(envoy.get(0, "ann").status, 200);
    wait_until("the first response is charged", || remaining() < 5_000);
    assert_eq!(envoy.get(0, "ann").status, 200, "4,000 tokens are left");
    wait_until("the second response is charged", || remaining() == 0);
    for _ in 0..3 {
        assert_eq!(envoy.get(0, "ann").status, 429);
    }
    assert_eq!(envoy.get(0, "bob").status, 200);
}

/// An upstream whose responses wait until `is_open`.
fn upstream(is_open: &Arc<AtomicBool>) -> RawUpstream {
    let is_open = Arc::clone(is_open);
    RawUpstream::start(move |connection| {
        while connection.read_request().is_some() {
            wait_until("responses are sent", || is_open.load(Ordering::SeqCst));
            let answer =
                format!("HTTP/1.1 200 OK\r\nx-tokens: {COST}\r\ncontent-length: 0\r\n\r\n");
            connection.send(answer.as_bytes());
        }
    })
}

const TWO_ALGORITHMS: &str = r#"
rule_sets:
  bucket:
    rules: [ { id: tokens, key: ["attr:user"], charge: always, bands: [ { capacity: 10000, window: 300d } ] } ]
  window:
    rules: [ { id: tokens, key: ["attr:user"], charge: always, algorithm: fixed_window, bands: [ { capacity: 10000, window: 300d } ] } ]
"#;

/// All that is in flight is admitted, though each alone would leave less than the next one costs.
/// What is remembered of it is one debt of the capacity.
#[test]
fn a_limit_is_exceeded_by_what_is_in_flight_and_owes_at_most_its_capacity() {
    let redis = RedisServer::start();
    let store = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\n",
        redis.url()
    );
    for store in ["", &store] {
        let service = Service::start(&["grpc"], &format!("{store}{TWO_ALGORITHMS}"));
        let is_open = Arc::new(AtomicBool::new(true));
        let upstream = upstream(&is_open);
        let fronts = [late("bucket"), late("window")];
        let envoy = Envoy::start_before(&service, &fronts, upstream.address(), "");
        let mut calls = 0;
        for (front, rule_set) in ["bucket", "window"].into_iter().enumerate() {
            let address = envoy.fronts[front].addr();
            is_open.store(false, Ordering::SeqCst);
            let before = upstream.requests().len();
            thread::scope(|scope| {
                let in_flight = scope.spawn(|| send_at_once(address, 8));
                wait_until("all are in flight", || {
                    upstream.requests().len() == before + 8
                });
                assert_eq!(state(&service, rule_set)["remaining"], 10_000);
                is_open.store(true, Ordering::SeqCst);
                assert_eq!(in_flight.join().unwrap(), [200; 8]);
            });
            calls += 8 + 8;
            wait_for_calls(&service, calls);
            // 38,000 are beyond the limit, and 10,000 of them are owed.
            assert_eq!(send_at_once(address, 2), [429; 2]);
            let refund = |units: u64| {
                let body = format!(
                    r#"{{"rule_set":"{rule_set}","rule":"tokens","identity":"ann","units":{units}}}"#
                );
                assert_eq!(service.http().post("/v1/refund", &body).status, 200);
            };
            refund(9_999);
            assert_eq!(send_at_once(address, 2), [429; 2]);
            refund(1);
            assert_eq!(state(&service, rule_set)["remaining"], 0);
            assert_eq!(envoy.get(front, "ann").status, 200);
            calls += 4 + 2;
            wait_for_calls(&service, calls);
            // One at a time, a limit is exceeded by one of them.
            assert_eq!(envoy.get(front, "ann").status, 429);
            calls += 1;
        }
    }
}

/// While no more than the capacity is in flight, nothing of the debt is forgotten.
#[test]
fn over_time_a_limit_is_exceeded_by_one_debt() {
    const CAPACITY: u64 = 24_000;
    const IN_FLIGHT: usize = 4;
    let rules = r#"
rule_sets:
  llm:
    rules: [ { id: tokens, key: ["attr:user"], charge: always, bands: [ { capacity: 24000, window: 2s } ] } ]
"#;
    let service = Service::start(&["grpc"], rules);
    let envoy = Envoy::start(&service, &[late("llm")]);
    let (mut calls, mut admitted) = (0, 0);
    let began = Stopwatch::start();
    while began.elapsed() < Duration::from_secs(4) {
        let statuses = send_at_once(envoy.fronts[0].addr(), IN_FLIGHT);
        let passed = statuses.iter().filter(|status| **status == 200).count() as u64;
        admitted += passed * COST;
        calls += IN_FLIGHT as u64 + passed;
        // Then nothing is in flight.
        wait_for_calls(&service, calls);
        let refilled = began.elapsed().as_micros() as u64 * CAPACITY / 2_000_000;
        let most = CAPACITY + refilled + CAPACITY;
        assert!(admitted <= most, "{admitted} > {most}");
        // Denied requests come again at once.
        thread::sleep(Duration::from_millis(10));
    }
    assert!(admitted > CAPACITY, "{admitted}");
}
