//! Invalid calls, and calls for a domain without rules.

use serde_json::json;

use super::Client;
use super::client::{descriptor, error};
use crate::service::Service;
use crate::support::TWO_A_SECOND;

#[test]
fn errors_name_the_field() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut client = Client::of(&service);
    let valid = descriptor(&[("user", "ann")]);
    let many: Vec<_> = std::iter::repeat_n(descriptor(&[("k", "")]), 1001).collect();
    let invalid = [
        (
            json!({ "domain": "", "descriptors": [valid] }),
            "`domain` is empty: it must name the rule set",
        ),
        (
            json!({ "domain": "api" }),
            "`descriptors` is empty: there is nothing to decide",
        ),
        (
            json!({ "domain": "api", "descriptors": many }),
            "`descriptors` has more than 1000 entries",
        ),
        (
            json!({ "domain": "api", "descriptors": [valid, {}] }),
            "`descriptors[1].entries` is empty",
        ),
        (
            json!({ "domain": "api", "descriptors": [valid, descriptor(&[("a", "b"), ("", "c")])] }),
            "`descriptors[1].entries[1].key` is empty",
        ),
    ];
    for (request, message) in invalid {
        let error = client.check_error(&request);
        assert_eq!(error, ("INVALID_ARGUMENT".into(), message.into()));
    }
    // Raw bytes, because the client does not know the new field `is_negative_hits`.
    let result = client.call(&json!({
        "call": "raw", "hex": "0a03617069120f0a0b0a04757365721203616e6e2001",
    }));
    assert_eq!(
        error(&result),
        (
            "INVALID_ARGUMENT".into(),
            "`descriptors[0].is_negative_hits` is not supported: use /v1/refund over HTTP".into()
        )
    );
}

#[test]
fn invalid_bytes_and_large_messages_are_errors_and_the_connection_stays_open() {
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
    // More than twice the headers that Envoy accepts.
    assert_eq!(client.should_rate_limit(&of_length(200_000)).code(), "OK");
    let (code, message) = client.check_error(&of_length(4 * 1024 * 1024));
    assert_eq!(code, "OUT_OF_RANGE", "{message}");
    assert_eq!(client.check("api", "k", "v").code(), "OK");
}

#[test]
fn unknown_services_and_methods_are_unimplemented() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut client = Client::of(&service);
    for method in [
        "/envoy.service.ratelimit.v3.RateLimitService/Other",
        "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
    ] {
        let result = client.call(&json!({ "call": "raw", "hex": "", "method": method }));
        assert_eq!(error(&result).0, "UNIMPLEMENTED", "{method}");
    }
}

#[test]
fn a_call_whose_request_never_arrives_times_out() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut slow = Client::of(&service);
    slow.send(&json!({ "call": "slow" }));
    assert_eq!(Client::of(&service).check("api", "k", "v").code(), "OK");
    let expected = ("DEADLINE_EXCEEDED", "the request did not arrive in time");
    let (code, message) = error(&slow.next());
    assert_eq!((&*code, &*message), expected);
}

#[test]
fn on_missing_rule_set_decides_for_a_domain_without_rules() {
    for (setting, code) in [("allow", "OK"), ("deny", "OVER_LIMIT")] {
        let config = format!("on_missing_rule_set: {setting}\n{TWO_A_SECOND}");
        let service = Service::start(&["grpc"], &config);
        let mut client = Client::of(&service);
        let request = json!({
            "domain": "other",
            "descriptors": [descriptor(&[("a", "1")]), descriptor(&[("b", "2")])],
        });
        let response = client.should_rate_limit(&request);
        assert_eq!(response.code(), code);
        assert_eq!(
            response.0["statuses"],
            json!([
                { "code": code, "limit_remaining": 0 },
                { "code": code, "limit_remaining": 0 },
            ])
        );
        assert!(response.header_names().is_empty());
    }
}

/// Encodes a length-delimited field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 0x80);
    [&[number << 3 | 2, length], bytes].concat()
}

/// Returns a call of `ShouldRateLimit` with a descriptor of one entry.
fn raw_call(domain: &[u8], key: &[u8], value: &[u8]) -> serde_json::Value {
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
            let result = client.call(&raw_call(domain, key, value));
            let code = result["response"]["overall_code"].as_str();
            code.unwrap_or_else(|| panic!("{result}")).to_owned()
        };
        // Different bytes have different limits.
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
        // Matching compares bytes, and no rule can name a key that is not UTF-8.
        for _ in 0..2 {
            assert_eq!(code(b"api", b"plan", b"free\xff"), "OK");
            assert_eq!(code(b"api", b"\xff", b"x"), "OK");
        }
        assert_eq!(code(b"api", b"plan", b"free"), "OK");
        assert_eq!(code(b"api", b"plan", b"free"), "OVER_LIMIT");
        // No rule set has a name that is not UTF-8.
        let expected = if deny { "OVER_LIMIT" } else { "OK" };
        assert_eq!(code(b"api\xff", b"k", b"a"), expected);
    }
}
