//! What happened: counts by rule and outcome, denials and changes of rules.

mod changes;
mod counts;
mod denials;
mod fleet;
mod flood;
mod meetings;

use std::collections::BTreeMap;

use fluxgate_testkit::RedisServer;
use serde_json::{Value, json};

use super::Service;

/// Counts by rule and outcome, as `rule outcome`. What has no rule is `without-rule` or
/// `without-set`.
type Sums = BTreeMap<String, u64>;

fn get(service: &Service, path: &str) -> Value {
    let answer = service.http().get(path);
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

fn check(service: &Service, request: &Value) -> Value {
    let answer = service.http().post("/v1/check", &request.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

/// Returns the sums of `/v1/history` with this query. Checks that each series has a value for each
/// step.
fn sums(service: &Service, query: &str) -> Sums {
    let history = get(service, &format!("/v1/history?{query}"));
    let mut sums = Sums::new();
    let mut length = None;
    for series in history["series"].as_array().unwrap() {
        let values = series["values"].as_array().unwrap();
        assert_eq!(*length.get_or_insert(values.len()), values.len());
        let rule = match (&series["rule_set"], &series["rule"]) {
            (Value::Null, _) => "without-set",
            (_, Value::Null) => "without-rule",
            (_, rule) => rule.as_str().unwrap(),
        };
        let sum = values.iter().map(|value| value.as_u64().unwrap()).sum();
        let key = format!("{rule} {}", series["outcome"].as_str().unwrap());
        assert_eq!(sums.insert(key, sum), None, "{series}");
    }
    sums
}

fn expected<const N: usize>(sums: [(&str, u64); N]) -> Sums {
    let sums = sums.into_iter();
    sums.map(|(name, sum)| (name.to_owned(), sum)).collect()
}

/// Returns the time in milliseconds since 1970.
fn now_ms() -> u64 {
    crate::support::unix_time().as_millis() as u64
}

/// Returns a query of minutes that includes now.
fn minutes() -> String {
    format!("from={}", now_ms() - 20 * 60_000)
}

/// Returns a config with the store in this Redis.
fn on_redis(server: &RedisServer, rules: &str) -> String {
    let url = server.url();
    format!("store: {{ redis: {{ url: \"{url}\", deadline: 10s }} }}\n{rules}")
}

/// Sends many checks, some in each call.
fn check_many(service: &Service, requests: &[Value]) {
    let mut http = service.http();
    for part in requests.chunks(500) {
        let answer = http.post("/v1/check/batch", &json!({ "checks": part }).to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}
