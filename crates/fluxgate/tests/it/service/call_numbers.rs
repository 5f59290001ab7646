//! Limits that come with the call, with other numbers from call to call: what was used
//! counts under the new numbers, too.

use fluxgate_testkit::{Cli, RedisServer};
use serde_json::{Value, json};

use super::Service;

/// Numbers of `CL.THROTTLE` with a quantity, and the answer, one after the other for one
/// key. The instant at which it is full stays where it is.
const THROTTLES: [(&str, [i64; 5]); 5] = [
    ("9 1 100 8", [0, 10, 2, -1, 800]),
    ("9 1 400 0", [0, 10, 8, -1, 800]),
    ("19 1 100 0", [0, 20, 12, -1, 800]),
    ("99 10 1000 1", [0, 100, 91, -1, 900]),
    ("9 1 100 0", [0, 10, 1, -1, 900]),
];

/// The same for `/v1/consume`: capacity, tokens a second, cost, and what is left.
const CONSUMES: [(u64, f64, u64, u64); 5] = [
    (10, 0.01, 8, 2),
    (10, 0.0025, 0, 8),
    (20, 0.01, 0, 12),
    (100, 0.01, 1, 91),
    (10, 0.01, 0, 1),
];

/// Services in memory and on Redis.
fn on_every_store(test: impl Fn(&Service)) {
    let server = RedisServer::start();
    let redis = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\n",
        server.url()
    );
    for store in ["", &redis] {
        test(&Service::start(
            &["resp"],
            &format!("{store}rule_sets: {{}}\n"),
        ));
    }
}

#[test]
fn throttles_with_other_numbers_keep_what_was_used() {
    on_every_store(|service| {
        let mut cli = Cli::connect(service.address("resp")).unwrap();
        // In one write, so that hardly any time passes between them.
        let lines = THROTTLES.map(|(numbers, _)| format!("CL.THROTTLE k {numbers}\r\n"));
        cli.send_raw(lines.concat().as_bytes()).unwrap();
        for (numbers, expected) in THROTTLES {
            let reply = cli.receive().unwrap();
            let reply: Vec<_> = reply.array().iter().map(|number| number.int()).collect();
            // A busy machine may take a second of it.
            assert_eq!(reply[..4], expected[..4], "{numbers}");
            assert!(
                (expected[4] - 30..=expected[4]).contains(&reply[4]),
                "{reply:?}"
            );
        }
    });
}

#[test]
fn consumes_with_other_numbers_keep_what_was_used() {
    on_every_store(|service| {
        let mut http = service.http();
        for (capacity, rate, cost, remaining) in CONSUMES {
            let body = json!({
                "rule_id": "mail", "identity": "ann", "cost": cost, "capacity": capacity,
                "refill_tokens_per_second": rate,
            });
            let answer = http.post("/v1/consume", &body.to_string());
            let answer: Value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(answer["remaining"], remaining, "{body}: {answer}");
        }
    });
}
