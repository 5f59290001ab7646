//! What is decided, field by field.

use serde_json::json;

use super::Client;
use super::client::descriptor;
use crate::service::Service;

const RULES: &str = r#"
rule_sets:
  api:
    rules:
      - id: per-user
        key: ["attr:user"]
        bands:
          - { id: burst, capacity: 2, window: 1h }
          - { id: sustained, capacity: 100, window: 1d }
      - { id: per-ip, scope: per_ip, bands: [ { capacity: 5, window: 1h } ] }
      - { id: pair, key: ["attr:user", "attr:plan"], bands: [ { capacity: 1, window: 1h } ] }
      - id: watched
        mode: shadow
        key: ["attr:seen"]
        bands: [ { capacity: 1, window: 1h } ]
      - id: heavy
        key: ["attr:job"]
        cost: "attr:size"
        bands: [ { capacity: 10, window: 1h } ]
"#;

#[test]
fn a_status_tells_everything_of_the_reported_band() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let response = client.check("api", "user", "ann");
    assert_eq!(response.code(), "OK");
    assert_eq!(
        response.0["statuses"],
        json!([{
            "code": "OK",
            "current_limit": { "requests_per_unit": 2, "unit": "HOUR", "name": "per-user/burst" },
            "limit_remaining": 1,
            "duration_until_reset": "1800s",
        }])
    );
    assert_eq!(
        response.headers(),
        [
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "ratelimit-policy",
            "ratelimit"
        ]
    );
    assert_eq!(response.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(response.header("x-ratelimit-remaining"), Some("1"));
    assert_eq!(
        response.header("ratelimit-policy"),
        Some(r#""per-user/burst";q=2;w=3600,"per-user/sustained";q=100;w=86400"#)
    );
    assert_eq!(
        response.header("ratelimit"),
        Some(r#""per-user/burst";r=1;t=1800"#)
    );
    assert_eq!(response.0["raw_body"], "");
    assert_eq!(response.0["request_headers_to_add"], json!([]));

    assert_eq!(client.check("api", "user", "ann").remaining(), [0]);
    let denied = client.check("api", "user", "ann");
    assert_eq!(
        (denied.code(), denied.codes()),
        ("OVER_LIMIT", vec!["OVER_LIMIT"])
    );
    assert_eq!(
        denied.statuses()[0]["current_limit"]["name"],
        "per-user/burst"
    );
    let retry: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1790..=1800).contains(&retry), "{retry}");
    assert_eq!(client.check("api", "user", "bob").code(), "OK");
}

#[test]
fn all_descriptors_are_charged_or_none() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let both = |cost: u64| {
        json!({
            "domain": "api",
            "hits_addend": cost,
            "descriptors": [
                descriptor(&[("remote_address", "10.0.0.1")]),
                descriptor(&[("user", "ann")]),
            ],
        })
    };
    let first = client.ask(&both(0));
    assert_eq!(
        (first.codes(), first.remaining()),
        (vec!["OK", "OK"], vec![4, 1])
    );
    // Of an allowed call the descriptor with the least left is told of, and
    // the policies of all.
    assert_eq!(
        first.header("ratelimit"),
        Some(r#""per-user/burst";r=1;t=1800"#)
    );
    assert_eq!(
        first.header("ratelimit-policy"),
        Some(
            r#""per-ip/b0";q=5;w=3600,"per-user/burst";q=2;w=3600,"per-user/sustained";q=100;w=86400"#
        )
    );
    // The user has only one left: the address is not charged either.
    for _ in 0..3 {
        let second = client.ask(&both(2));
        assert_eq!(second.code(), "OVER_LIMIT");
        assert_eq!(second.codes(), ["OK", "OVER_LIMIT"]);
        assert_eq!(second.remaining(), [4, 1]);
        // Of a denial the refusing one is told of.
        assert_eq!(second.header("x-ratelimit-limit"), Some("2"));
        assert!(second.header("retry-after").is_some());
    }
    let third = client.ask(&both(1));
    assert_eq!((third.code(), third.remaining()), ("OK", vec![3, 0]));
}

#[test]
fn of_two_refusals_the_one_to_wait_longest_for_is_told() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let ann = descriptor(&[("user", "ann")]);
    let address = descriptor(&[("remote_address", "10.0.0.1")]);
    for (descriptor, units) in [(&ann, 2), (&address, 5)] {
        let all = json!({ "domain": "api", "hits_addend": units, "descriptors": [descriptor] });
        assert_eq!(client.ask(&all).code(), "OK");
    }
    // A unit of hers takes half an hour, one of the address twelve minutes.
    for descriptors in [[&ann, &address], [&address, &ann]] {
        let both = client.ask(&json!({ "domain": "api", "descriptors": descriptors }));
        assert_eq!(both.codes(), ["OVER_LIMIT", "OVER_LIMIT"]);
        assert_eq!(both.header("x-ratelimit-limit"), Some("2"));
        let retry: u64 = both.header("retry-after").unwrap().parse().unwrap();
        assert!((1790..=1800).contains(&retry), "{retry}");
    }
}

#[test]
fn two_descriptors_that_meet_on_one_counter_add_up() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let ann = descriptor(&[("user", "ann")]);
    let three = json!({ "domain": "api", "descriptors": [ann, ann, ann] });
    assert_eq!(client.ask(&three).code(), "OVER_LIMIT");
    let two = json!({ "domain": "api", "descriptors": [ann, ann] });
    assert_eq!(client.ask(&two).code(), "OK");
    assert_eq!(client.check("api", "user", "ann").code(), "OVER_LIMIT");
}

#[test]
fn a_rule_whose_key_is_not_whole_does_not_match() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    // Neither a stand-in for the plan nor for the address: only the rules whose
    // parts are all there.
    let alone = client.check("api", "user", "ann");
    assert_eq!(
        alone.statuses()[0]["current_limit"]["name"],
        "per-user/burst"
    );
    let pair = descriptor(&[("user", "ann"), ("plan", "free")]);
    let pair = client.ask(&json!({ "domain": "api", "descriptors": [pair] }));
    assert_eq!(
        pair.statuses()[0]["current_limit"]["name"],
        "per-user/burst"
    );
    assert!(pair.header("ratelimit-policy").unwrap().contains("pair/b0"));
    // An address that is none is an attribute like any other.
    for address in ["ann", ""] {
        let response = client.check("api", "remote_address", address);
        assert_eq!(
            response.0["statuses"],
            json!([{ "code": "OK", "limit_remaining": 0 }])
        );
        assert!(response.headers().is_empty());
    }
    // With a port it is the same address.
    assert_eq!(
        client
            .check("api", "remote_address", "10.0.0.1")
            .remaining(),
        [4]
    );
    assert_eq!(
        client
            .check("api", "remote_address", "10.0.0.1:99")
            .remaining(),
        [3]
    );
    assert_eq!(
        client
            .check("api", "remote_address", "::ffff:10.0.0.1")
            .remaining(),
        [2]
    );
}

#[test]
fn hits_addend_is_the_cost() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let mut ask = |descriptor: serde_json::Value, of_call: u32| {
        let request =
            json!({ "domain": "api", "hits_addend": of_call, "descriptors": [descriptor] });
        let response = client.ask(&request);
        (response.code().to_owned(), response.remaining()[0])
    };
    let job = |size: &str| descriptor(&[("job", "j"), ("size", size)]);
    let with_own = |own: u64| {
        let mut descriptor = job("3");
        descriptor["hits_addend"] = own.into();
        descriptor
    };
    // None: the rule's own cost.
    assert_eq!(ask(job("3"), 0), ("OK".into(), 7));
    // The call's, in place of it.
    assert_eq!(ask(job("3"), 1), ("OK".into(), 6));
    // The descriptor's, in place of both; 0 is a cost.
    assert_eq!(ask(with_own(2), 5), ("OK".into(), 4));
    assert_eq!(ask(with_own(0), 5), ("OK".into(), 4));
    assert_eq!(ask(with_own(5), 1), ("OVER_LIMIT".into(), 4));
    assert_eq!(ask(with_own(u64::MAX), 1), ("OVER_LIMIT".into(), 4));
    assert_eq!(ask(with_own(4), u32::MAX), ("OK".into(), 0));
    assert_eq!(ask(with_own(0), 0), ("OK".into(), 0));
}

#[test]
fn what_can_never_pass_has_no_time_to_come_back() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let request = json!({
        "domain": "api", "hits_addend": 3, "descriptors": [descriptor(&[("user", "ann")])],
    });
    let never = client.ask(&request);
    assert_eq!((never.code(), never.remaining()), ("OVER_LIMIT", vec![2]));
    assert_eq!(never.header("retry-after"), None);
    assert_eq!(never.statuses()[0]["duration_until_reset"], "0s");
}

#[test]
fn a_shadow_rule_never_denies() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    for _ in 0..3 {
        let response = client.check("api", "seen", "x");
        assert_eq!(
            response.0["statuses"],
            json!([{ "code": "OK", "limit_remaining": 0 }])
        );
        assert!(response.headers().is_empty());
    }
}

#[test]
fn fields_that_are_not_known_are_skipped() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let mut ann = descriptor(&[("user", "ann")]);
    ann["limit"] = json!({ "requests_per_unit": 1000, "unit": "DAY" });
    let response = client.ask(&json!({ "domain": "api", "descriptors": [ann] }));
    assert_eq!(
        response.statuses()[0]["current_limit"]["requests_per_unit"],
        2
    );
}

#[test]
fn units_are_named_where_the_window_is_exactly_one() {
    let windows = [
        ("1s", "SECOND"),
        ("1000ms", "SECOND"),
        ("60s", "MINUTE"),
        ("1h", "HOUR"),
        ("24h", "DAY"),
        ("30d", "MONTH"),
        ("365d", "YEAR"),
        ("2s", "UNKNOWN"),
        ("999ms", "UNKNOWN"),
        ("7d", "UNKNOWN"),
        ("31d", "UNKNOWN"),
        ("366d", "UNKNOWN"),
    ];
    let mut rules = "rule_sets:\n  api:\n    rules:\n".to_owned();
    for (index, (window, _)) in windows.iter().enumerate() {
        rules += &format!(
            "      - {{ id: r{index}, key: [\"attr:k{index}\"], bands: [ {{ capacity: 7, window: {window} }} ] }}\n"
        );
    }
    let service = Service::start(&["grpc"], &rules);
    let mut client = Client::of(&service);
    for (index, (window, unit)) in windows.iter().enumerate() {
        let response = client.check("api", &format!("k{index}"), "x");
        let limit = &response.statuses()[0]["current_limit"];
        assert_eq!(limit["unit"], *unit, "{window}");
        assert_eq!(limit["requests_per_unit"], 7, "{window}");
    }
}

#[test]
fn what_a_call_is_known_by_comes_back() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let request = json!({ "domain": "api", "descriptors": [descriptor(&[("user", "ann")])] });
    let answer = client.call(&json!({
        "call": "check", "request": request, "metadata": { "x-request-id": "abc-1" },
    }));
    assert_eq!(answer["metadata"]["x-request-id"], "abc-1");
}
