//! Rules that were imported from envoyproxy/ratelimit decide alike over gRPC.

use serde_json::json;

use super::Client;
use super::client::descriptor;
use crate::import::rules;
use crate::service::Service;

const LIMITS: &str = "
domain: m
descriptors:
  - { key: t, value: blocked, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: t, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: closed, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: region, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: region, value: eu, rate_limit: { unlimited: true } }
";

#[test]
fn a_limit_of_zero_denies() {
    let service = Service::start(&["grpc"], &rules("envoy-ratelimit", LIMITS));
    let mut client = Client::of(&service);
    for (key, value, expected) in [
        ("t", "blocked", ["OVER_LIMIT", "OVER_LIMIT"]),
        ("t", "other", ["OK", "OVER_LIMIT"]),
        ("closed", "a", ["OVER_LIMIT", "OVER_LIMIT"]),
        ("region", "us", ["OVER_LIMIT", "OVER_LIMIT"]),
        ("region", "eu", ["OK", "OK"]),
        ("unknown", "x", ["OK", "OK"]),
    ] {
        let codes = expected.map(|_| client.check("m", key, value).code().to_owned());
        assert_eq!(codes, expected, "{key}: {value}");
    }
    // A cost of its own does not help.
    let mut with_cost = |value: &str, cost: u32| {
        let descriptors = [descriptor(&[("closed", value)])];
        let call = json!({ "domain": "m", "hits_addend": cost, "descriptors": descriptors });
        client.should_rate_limit(&call).code().to_owned()
    };
    assert_eq!(with_cost("a", 2), "OVER_LIMIT");
    assert_eq!(with_cost("a", 1), "OVER_LIMIT");
    assert_eq!(with_cost("b", 1), "OVER_LIMIT");
}
