//! What cannot be decided, and what is decided without rules.

use serde_json::json;

use super::Client;
use super::client::{descriptor, error};
use crate::service::Service;
use crate::support::TWO_A_SECOND;

#[test]
fn bad_arguments_are_named() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut client = Client::of(&service);
    let good = descriptor(&[("user", "ann")]);
    let many: Vec<_> = std::iter::repeat_n(descriptor(&[("k", "")]), 1001).collect();
    let bad = [
        (
            json!({ "domain": "", "descriptors": [good] }),
            "`domain` is empty: it names the rule set",
        ),
        (
            json!({ "domain": "api" }),
            "`descriptors` is empty: there is nothing to decide",
        ),
        (
            json!({ "domain": "api", "descriptors": many }),
            "`descriptors` holds more than 1000",
        ),
        (
            json!({ "domain": "api", "descriptors": [good, {}] }),
            "`descriptors[1].entries` is empty",
        ),
        (
            json!({ "domain": "api", "descriptors": [good, descriptor(&[("a", "b"), ("", "c")])] }),
            "`descriptors[1].entries[1].key` is empty",
        ),
    ];
    for (request, message) in bad {
        let refused = client.refused(&request);
        assert_eq!(refused, ("INVALID_ARGUMENT".into(), message.into()));
    }
    // Whoever asks for units back is not charged for it. (The field is younger
    // than the client.)
    let answer = client.call(&json!({
        "call": "raw", "hex": "0a03617069120f0a0b0a04757365721203616e6e2001",
    }));
    assert_eq!(
        error(&answer),
        (
            "INVALID_ARGUMENT".into(),
            "`descriptors[0].is_negative_hits`: give units back over HTTP, by /v1/refund".into()
        )
    );
}

#[test]
fn bad_bytes_and_large_messages_are_errors_and_others_are_served() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut client = Client::of(&service);
    for hex in ["ff", "0aff", "12020aff", "0a02ff80"] {
        let (code, message) = error(&client.call(&json!({ "call": "raw", "hex": hex })));
        assert_eq!(code, "INTERNAL", "{hex}: {message}");
    }
    let of_length = |length: usize| {
        let value = "v".repeat(length);
        json!({ "domain": "api", "descriptors": [descriptor(&[("k", &value)])] })
    };
    assert_eq!(client.ask(&of_length(65_000)).code(), "OK");
    let (code, message) = client.refused(&of_length(65_536));
    assert_eq!(code, "OUT_OF_RANGE", "{message}");
    assert_eq!(client.check("api", "k", "v").code(), "OK");
}

#[test]
fn services_and_methods_that_are_not_there_are_unimplemented() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut client = Client::of(&service);
    for method in [
        "/envoy.service.ratelimit.v3.RateLimitService/Other",
        "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
    ] {
        let answer = client.call(&json!({ "call": "raw", "hex": "", "method": method }));
        assert_eq!(error(&answer).0, "UNIMPLEMENTED", "{method}");
    }
}

#[test]
fn a_request_that_does_not_come_is_not_waited_for() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut slow = Client::of(&service);
    slow.send(&json!({ "call": "slow" }));
    assert_eq!(Client::of(&service).check("api", "k", "v").code(), "OK");
    let told = ("DEADLINE_EXCEEDED", "the request did not come in time");
    let (code, message) = error(&slow.next());
    assert_eq!((&*code, &*message), told);
}

#[test]
fn a_domain_without_rules_is_answered_as_configured() {
    for (setting, code) in [("allow", "OK"), ("deny", "OVER_LIMIT")] {
        let config = format!("on_missing_rule_set: {setting}\n{TWO_A_SECOND}");
        let service = Service::start(&["grpc"], &config);
        let mut client = Client::of(&service);
        let request = json!({
            "domain": "other",
            "descriptors": [descriptor(&[("a", "1")]), descriptor(&[("b", "2")])],
        });
        let response = client.ask(&request);
        assert_eq!(response.code(), code);
        assert_eq!(
            response.0["statuses"],
            json!([
                { "code": code, "limit_remaining": 0 },
                { "code": code, "limit_remaining": 0 },
            ])
        );
        assert!(response.headers().is_empty());
    }
}
