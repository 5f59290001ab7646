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
    for hex in ["ff", "0aff", "12020aff"] {
        let (code, message) = error(&client.call(&json!({ "call": "raw", "hex": hex })));
        assert_eq!(code, "INTERNAL", "{hex}: {message}");
    }
    let of_length = |length: usize| {
        let value = "v".repeat(length);
        json!({ "domain": "api", "descriptors": [descriptor(&[("k", &value)])] })
    };
    // More than all headers of a request that Envoy takes, twice.
    assert_eq!(client.ask(&of_length(200_000)).code(), "OK");
    let (code, message) = client.refused(&of_length(4 * 1024 * 1024));
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

/// A field of this number with these bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 0x80);
    [&[number << 3 | 2, length], bytes].concat()
}

/// `ShouldRateLimit` for a descriptor of one entry, of any bytes.
fn raw(domain: &[u8], key: &[u8], value: &[u8]) -> serde_json::Value {
    let entry = [field(1, key), field(2, value)].concat();
    let descriptor = field(1, &entry);
    let request = [field(1, domain), field(2, &descriptor)].concat();
    let hex: String = request.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "call": "raw", "hex": hex })
}

#[test]
fn invalid_utf8_in_descriptors_is_decided_on_the_bytes() {
    let config = "
rule_sets:
  api:
    rules:
      - { id: k, key: ['attr:k'], bands: [ { capacity: 1, window: 1h } ] }
      - { id: all, match: { attributes: { plan: free } }, scope: global, bands: [ { capacity: 1, window: 1h } ] }
";
    for deny in [false, true] {
        let missing = if deny {
            "on_missing_rule_set: deny\n"
        } else {
            ""
        };
        let service = Service::start(&["grpc"], &format!("{missing}{config}"));
        let mut client = Client::of(&service);
        let mut code = |domain: &[u8], key: &[u8], value: &[u8]| {
            let answer = client.call(&raw(domain, key, value));
            let code = answer["response"]["overall_code"].as_str();
            code.unwrap_or_else(|| panic!("{answer}")).to_owned()
        };
        // Each has a limit of its own, and none is taken for another.
        let values = [
            &b"\xff"[..],
            b"\xfe",
            b"\xff\xff",
            b"\xc3\x28",
            "\u{fffd}".as_bytes(),
        ];
        for value in values {
            assert_eq!(code(b"api", b"k", value), "OK", "{}", value.escape_ascii());
        }
        for value in values {
            let again = code(b"api", b"k", value);
            assert_eq!(again, "OVER_LIMIT", "{}", value.escape_ascii());
        }
        // A match compares the bytes, and a name that is no text is asked about by no rule.
        for _ in 0..2 {
            assert_eq!(code(b"api", b"plan", b"free\xff"), "OK");
            assert_eq!(code(b"api", b"\xff", b"x"), "OK");
        }
        assert_eq!(code(b"api", b"plan", b"free"), "OK");
        assert_eq!(code(b"api", b"plan", b"free"), "OVER_LIMIT");
        // No rule set has a name that is no text.
        let expected = if deny { "OVER_LIMIT" } else { "OK" };
        assert_eq!(code(b"api\xff", b"k", b"a"), expected);
    }
}
