//! Several instances on one Redis.

use std::collections::BTreeMap;

use fluxgate_testkit::{RedisServer, wait_for};
use serde_json::json;

use super::{EventStream, NOTIFIES, start};

/// Many clients on three instances let many identities use up their limits. Each instance sees
/// exactly one event for each identity and share.
#[test]
fn each_share_of_each_identity_is_told_exactly_once_in_a_fleet() {
    const CLIENTS: usize = 8;
    const BATCH: usize = 200;
    let identities = match std::env::var_os("FLUXGATE_LONG") {
        Some(_) => 10_000,
        None => 1_000,
    };
    let server = RedisServer::start();
    let services = [0; 3].map(|_| start(&server, NOTIFIES));
    let mut streams: Vec<_> = services
        .iter()
        .map(|it| EventStream::open(it, None))
        .collect();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let services = &services;
            scope.spawn(move || {
                // Each client sends two requests of each identity: 16 for a limit of 10.
                for round in 0..2 {
                    let mut http = services[(client + round) % services.len()].http();
                    for start in (0..identities).step_by(BATCH) {
                        let checks: Vec<_> = (start..start + BATCH)
                            .map(|user| json!({ "rule_set": "api", "user": format!("u{user}") }))
                            .collect();
                        let body = json!({ "checks": checks }).to_string();
                        let answer = http.post("/v1/check/batch", &body);
                        assert_eq!(answer.status, 200, "{answer:?}");
                        assert!(!answer.body.contains("fallback"), "the store decides");
                    }
                }
            });
        }
    });
    let expected = 2 * identities;
    for stream in &mut streams {
        let mut told: BTreeMap<(String, u64), usize> = BTreeMap::new();
        for _ in 0..expected {
            let event = stream.next_of("threshold");
            let identity = event["identity"].as_str().unwrap().to_owned();
            *told
                .entry((identity, event["share"].as_u64().unwrap()))
                .or_default() += 1;
        }
        let twice: Vec<_> = told.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
        assert_eq!(told.len(), expected);
    }
    // Nothing comes after them.
    let log = server.cli().keys("*{events}:log");
    let count = || server.cli().command(&["XLEN", &log[0]]).int();
    super::spend(&services[0], "marker", 8);
    wait_for("the marker", || (count() > expected as i64).then_some(()));
    assert_eq!(count(), expected as i64 + 1);
}
