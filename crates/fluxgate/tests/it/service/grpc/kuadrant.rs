//! Kuadrant's service: checks, reports and reservations.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fluxgate_testkit::{RedisServer, wait_until};
use serde_json::{Value, json};

use super::client::{descriptor, error};
use crate::service::Service;
use crate::service::telemetry::Metrics;
use crate::support::{project_file, python};

/// Tokens of a user, and slots, as whole windows, so that nothing returns by itself.
const RULES: &str = r#"
rule_sets:
  llm:
    rules:
      - { id: tokens, key: ["attr:user"], algorithm: fixed_window, bands: [ { capacity: 300, window: 300d } ] }
"#;

/// A running client, which ends when dropped.
struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    fn of(service: &Service) -> Self {
        let script = project_file("crates/fluxgate/tests/it/service/grpc/kuadrant.py");
        let mut child = Command::new(python())
            .arg(script)
            .arg(service.address("grpc").to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            stdin,
            stdout,
        }
    }

    fn send(&mut self, call: &Value) -> Value {
        writeln!(self.stdin, "{call}").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the client ended");
        serde_json::from_str(&line).unwrap()
    }

    /// Makes a call about Ann and returns its response.
    #[track_caller]
    fn call(&mut self, method: &str, fields: &Value) -> Value {
        let result = self.try_call(method, fields);
        assert!(result["response"].is_object(), "{method}: {result}");
        result["response"].clone()
    }

    fn try_call(&mut self, method: &str, fields: &Value) -> Value {
        let mut request =
            json!({ "domain": "llm", "descriptors": [descriptor(&[("user", "ann")])] });
        for (name, value) in fields.as_object().unwrap() {
            request[name] = value.clone();
        }
        self.send(&json!({ "call": method, "request": request }))
    }

    /// Reserves an amount; returns the code and the id.
    #[track_caller]
    fn reserve(&mut self, amount: u64, ttl: &str) -> (String, String) {
        let response = self.call("Reserve", &json!({ "amount": amount, "ttl": ttl }));
        let text = |name: &str| response[name].as_str().unwrap().to_owned();
        (text("code"), text("reservation_id"))
    }

    /// Commits a reservation; returns the code of the response or of the error.
    fn commit(&mut self, id: &str, actual: u64) -> String {
        let fields = json!({ "reservation_id": id, "actual_amount": actual });
        let result = self.try_call("Commit", &fields);
        match result["response"]["code"].as_str() {
            Some(code) => code.to_owned(),
            None => error(&result).0,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn left(service: &Service, rule: &str) -> u64 {
    let path = format!("/v1/state?rule_set=llm&rule={rule}&identity=ann");
    let state: Value = serde_json::from_str(&service.http().get(&path).body).unwrap();
    let left = &state["bands"][0]["remaining"];
    left.as_u64().unwrap_or_else(|| panic!("{state}"))
}

#[test]
fn a_check_charges_nothing() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    for (hits, code) in [(0, "OK"), (300, "OK"), (301, "OVER_LIMIT")] {
        let response = client.call("CheckRateLimit", &json!({ "hits_addend": hits }));
        assert_eq!(response["overall_code"], code, "{hits}");
        assert_eq!(
            response["statuses"][0]["current_limit"]["name"],
            "tokens/b0"
        );
    }
    assert_eq!(left(&service, "tokens"), 300);
    let unlimited = client.call("CheckRateLimit", &json!({ "domain": "other" }));
    assert_eq!(unlimited["overall_code"], "OK");
    // Peeks are not decisions.
    let of_rule = "fluxgate_decisions_total{rule_set=\"llm\"";
    assert_eq!(Metrics::of(&service).sum(of_rule), 0);
}

#[test]
fn a_report_is_charged_in_any_case_and_refuses_nothing() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    for (hits, rest) in [(250, 50), (250, 0), (1_000, 0)] {
        let response = client.call("Report", &json!({ "hits_addend": hits }));
        assert_eq!(response["overall_code"], "OK", "{hits}");
        assert_eq!(left(&service, "tokens"), rest);
    }
    let response = client.call("CheckRateLimit", &json!({}));
    assert_eq!(response["overall_code"], "OVER_LIMIT");
    // The count is bounded by another quota.
    let refund = r#"{"rule_set":"llm","rule":"tokens","identity":"ann","units":301}"#;
    service.http().post("/v1/refund", refund);
    assert_eq!(left(&service, "tokens"), 1);
}

#[test]
fn a_reservation_is_settled_once_with_what_was_used() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let (code, first) = client.reserve(200, "60s");
    assert_eq!(
        (&*code, first.is_empty(), left(&service, "tokens")),
        ("OK", false, 100)
    );
    let (code, id) = client.reserve(101, "60s");
    assert_eq!((&*code, &*id), ("OVER_LIMIT", ""));
    assert_eq!(client.commit(&first, 50), "OK");
    assert_eq!(left(&service, "tokens"), 250);
    for id in [&*first, "", "x", "aaaaaaaaaaaaaaaaaaaaaaaaaa", "é"] {
        let code = client.commit(id, 10);
        // Without an id it is a report.
        assert_eq!(code, if id.is_empty() { "OK" } else { "NOT_FOUND" }, "{id}");
    }
    assert_eq!(left(&service, "tokens"), 240);
    // More than was reserved is charged too.
    let (_, id) = client.reserve(1, "60s");
    assert_eq!(client.commit(&id, 500), "OK");
    assert_eq!(left(&service, "tokens"), 0);
    // Nothing is reserved, so the commit is a report; and nothing to report charges nothing.
    let (code, id) = client.reserve(0, "60s");
    assert_eq!((&*code, &*id), ("OVER_LIMIT", ""));
    assert_eq!(client.commit("", 0), "OK");
}

#[test]
fn what_cannot_be_decided_is_an_error() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let mut limited = descriptor(&[("user", "ann")]);
    limited["limit"] = json!({ "requests_per_unit": 1, "unit": "DAY" });
    for (method, fields, message) in [
        (
            "Reserve",
            json!({ "ttl": "-1s" }),
            "`ttl` must not be negative",
        ),
        ("Reserve", json!({ "domain": "" }), "`domain` is empty"),
        (
            "Reserve",
            json!({ "descriptors": [] }),
            "`descriptors` is empty",
        ),
        (
            "CheckRateLimit",
            json!({ "descriptors": [{}] }),
            "`descriptors[0].entries` is empty",
        ),
        (
            "Report",
            json!({ "descriptors": [limited] }),
            "`descriptors[0].limit` is not supported",
        ),
        ("Report", json!({ "domain": "" }), "`domain` is empty"),
        ("Commit", json!({ "domain": "" }), "`domain` is empty"),
    ] {
        let (code, text) = error(&client.try_call(method, &fields));
        assert_eq!(code, "INVALID_ARGUMENT", "{method}");
        assert!(text.contains(message), "{method}: {text}");
    }
    // The id of a reservation is enough.
    let (_, id) = client.reserve(5, "60s");
    let fields =
        json!({ "domain": "", "descriptors": [], "reservation_id": id, "actual_amount": 1 });
    assert_eq!(client.try_call("Commit", &fields)["response"]["code"], "OK");
    assert_eq!(left(&service, "tokens"), 299);
}

/// Rules of Kuadrant's policies, an action and a rule that lets requests wait.
const MEETINGS: &str = r#"
rule_sets:
  llm:
    rules:
      - { id: blocked, action: deny, match: { attributes: { user: eve } } }
      - { id: slots, key: ["attr:user"], algorithm: concurrency, bands: [ { capacity: 10 } ] }
      - { id: paced, key: ["attr:user"], on_exceed: wait, max_wait: 1h, bands: [ { capacity: 10, window: 30d } ] }
      - { id: watched, mode: shadow, key: ["attr:user"], algorithm: fixed_window, bands: [ { capacity: 2, window: 30d } ] }
"#;

#[test]
fn reservations_meet_slots_waits_actions_and_shadow_rules() {
    let service = Service::start(&["grpc"], MEETINGS);
    let mut client = Client::of(&service);
    let (code, id) = client.reserve(8, "60s");
    assert_eq!(code, "OK");
    assert_eq!((left(&service, "slots"), left(&service, "paced")), (2, 2));
    // A reservation does not wait, although its rule lets requests wait.
    let (code, _) = client.reserve(3, "60s");
    assert_eq!(code, "OVER_LIMIT");
    // What is reported takes no slots.
    assert_eq!(client.commit("", 2), "OK");
    assert_eq!((left(&service, "slots"), left(&service, "paced")), (2, 0));
    assert_eq!(client.commit(&id, 4), "OK");
    assert_eq!((left(&service, "slots"), left(&service, "paced")), (10, 4));
    // Only the report was charged to the shadow rule: the reservation exceeds it.
    assert_eq!(left(&service, "watched"), 0);
    let eve = json!({ "amount": 1, "descriptors": [descriptor(&[("user", "eve")])] });
    let response = client.call("Reserve", &eve);
    assert_eq!(response["code"], "OVER_LIMIT");
    // Each descriptor of a report is charged, and none if a rule forbids one.
    let report = |users: [&str; 2]| {
        let descriptors = users.map(|user| descriptor(&[("user", user)]));
        json!({ "hits_addend": 1, "descriptors": descriptors })
    };
    for (users, rest) in [
        (["ann", "eve"], 4),
        (["ann", "bob"], 3),
        (["ann", "ann"], 1),
    ] {
        client.call("Report", &report(users));
        assert_eq!(left(&service, "paced"), rest, "{users:?}");
    }
}

/// What was reserved in Redis is not committed elsewhere, and the other way round.
#[test]
fn without_the_store_reservations_are_those_of_this_process() {
    let redis = RedisServer::start();
    let store = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\n",
        redis.url()
    );
    let service = Service::start(&["grpc"], &format!("{store}{RULES}"));
    let mut client = Client::of(&service);
    let (code, in_redis) = client.reserve(200, "60s");
    assert_eq!(code, "OK");
    redis.kill();
    // The set has `on_error: local`.
    let (code, local) = client.reserve(250, "60s");
    assert_eq!((&*code, local.is_empty()), ("OK", false));
    assert_eq!(client.commit(&local, 100), "OK");
    assert_eq!(client.reserve(201, "60s").0, "OVER_LIMIT");
    assert_eq!(client.reserve(200, "60s").0, "OK");
    for id in [&in_redis, &local] {
        assert_eq!(client.commit(id, 0), "UNAVAILABLE");
    }
    assert_eq!(client.reserve(1, "60s").0, "OVER_LIMIT");
}

/// The same, with slots that are held for a reservation.
const STORM: &str = r#"
rule_sets:
  llm:
    rules:
      - { id: tokens, key: ["attr:user"], algorithm: fixed_window, bands: [ { capacity: 300, window: 300d } ] }
      - { id: slots, key: ["attr:user"], algorithm: concurrency, bands: [ { capacity: 150 } ] }
"#;

#[test]
fn a_thousand_reservations_at_once_never_exceed_the_limit_and_leak_nothing() {
    let redis = RedisServer::start();
    let store = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\n",
        redis.url()
    );
    for store in ["", &store] {
        let service = Service::start(&["grpc"], &format!("{store}{STORM}"));
        let mut client = Client::of(&service);
        let result = client.send(&json!({
            "call": "storm", "count": 1000, "amount": 3, "domain": "llm", "user": "ann",
        }));
        let number = |name: &str| {
            let number = result[name].as_u64();
            number.unwrap_or_else(|| panic!("{name} of {result}"))
        };
        let (held, charged) = (number("held"), number("charged"));
        assert_eq!(held + number("refused"), 1000);
        // As many as were held cannot all have fitted at once, so commits made room.
        assert!(held >= 100 && charged <= 300, "{result}");
        assert_eq!(left(&service, "tokens"), 300 - charged);
        // Those that were lost have expired, and their slots with them.
        wait_until("the slots are free", || left(&service, "slots") == 150);
        wait_until("no hold is open", || {
            Metrics::of(&service).get("fluxgate_holds") == 0
        });
        // What is left can be had, and no more.
        let (code, id) = client.reserve(300 - charged + 1, "60s");
        assert_eq!((&*code, &*id), ("OVER_LIMIT", ""));
        if (1..=150).contains(&(300 - charged)) {
            assert_eq!(client.reserve(300 - charged, "1s").0, "OK");
        }
    }
    // Only counters and what was just held are left in Redis.
    wait_until("holds are gone", || {
        redis.cli().keys("*:hold2:*").is_empty()
    });
}
