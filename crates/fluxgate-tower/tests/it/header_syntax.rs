//! The headers of the IETF draft, read by an independent parser.

use std::io::Write;
use std::process::{Command, Stdio};

use fluxgate_tower::RateLimitLayer;
use serde_json::{Value, json};
use tower::Layer;

use crate::support::{Events, Inner, get, limiter, python, send};

/// Parses lines of structured fields and prints each list as JSON.
const PARSE: &str = "
import json, sys, http_sf
for line in sys.stdin:
    members = http_sf.parse(line.strip().encode(), tltype='list')
    print(json.dumps([[value, dict(parameters)] for value, parameters in members]))
";

fn parse(fields: &[&str]) -> Vec<Value> {
    let mut child = Command::new(python())
        .args(["-c", PARSE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text = fields.join("\n") + "\n";
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "one of these is malformed: {fields:?}"
    );
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn the_headers_are_lists_of_strings_with_integer_parameters() {
    let rules = "{ id: per-user, scope: per_user, bands: [ { id: burst, capacity: 3, window: 500ms }, { id: long.one_A, capacity: 1000000000, window: 30d } ] }, \
                 { id: all, scope: global, algorithm: sliding_log, bands: [ { capacity: 2, window: 90s } ] }";
    let inner = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .layer(Inner::new(&Events::default()));
    let service = RateLimitLayer::new(limiter(
        "{ id: outer, scope: global, bands: [ { capacity: 9, window: 1h } ] }",
    ))
    .rule_set("s")
    .layer(inner.clone());
    for (stacked, remaining) in [(false, 1), (true, 0), (false, 0)] {
        let got = if stacked {
            send(&service, get("/x")).await
        } else {
            send(&inner, get("/x")).await
        };
        let fields = ["ratelimit-policy", "ratelimit"].map(|name| got.header(name).unwrap());
        let [policy, limit] = &parse(&fields)[..] else {
            panic!("two lists");
        };
        let mut expected = vec![
            json!(["per-user/burst", { "q": 3 }]),
            json!(["per-user/long.one_A", { "q": 1_000_000_000, "w": 2_592_000 }]),
            json!(["all/b0", { "q": 2, "w": 90 }]),
        ];
        let outer = json!(["outer/b0", { "q": 9, "w": 3600 }]);
        expected.splice(0..0, stacked.then_some(outer));
        assert_eq!(policy, &Value::from(expected));
        let reported = limit.as_array().unwrap().last().unwrap();
        assert_eq!(
            (&reported[0], &reported[1]["r"]),
            (&json!("all/b0"), &json!(remaining))
        );
        assert!(reported[1]["t"].as_u64().unwrap() <= 90);
        assert_eq!(limit.as_array().unwrap().len(), if stacked { 2 } else { 1 });
    }
}
