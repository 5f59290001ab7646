//! Every field of a decision.

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
fn a_status_describes_the_reported_band() {
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
        response.header_names(),
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

    assert_eq!(
        response.0["dynamic_metadata"],
        json!({ "outcome": "allowed", "rule": "per-user/burst", "remaining": 1.0, "reset": 1800.0 })
    );

    assert_eq!(client.check("api", "user", "ann").remaining(), [0]);
    let denied = client.check("api", "user", "ann");
    let metadata = &denied.0["dynamic_metadata"];
    assert_eq!(metadata["outcome"], "denied");
    assert_eq!(metadata["rule"], "per-user/burst");
    let unknown = client.check("api", "other", "x");
    assert_eq!(
        unknown.0["dynamic_metadata"],
        json!({ "outcome": "no_rule" })
    );
    assert_eq!(
        (denied.code(), denied.codes()),
        ("OVER_LIMIT", vec!["OVER_LIMIT"])
    );
    assert_eq!(
        denied.statuses()[0]["current_limit"]["name"],
        "per-user/burst"
    );
    let retry: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1700..=1800).contains(&retry), "{retry}");
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
    let first = client.should_rate_limit(&both(0));
    assert_eq!(
        (first.codes(), first.remaining()),
        (vec!["OK", "OK"], vec![4, 1])
    );
    // The headers describe the descriptor with the fewest remaining units, and the policies
    // of all.
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
    // The user has only one unit left, so the address is not charged either.
    for _ in 0..3 {
        let second = client.should_rate_limit(&both(2));
        assert_eq!(second.code(), "OVER_LIMIT");
        assert_eq!(second.codes(), ["OK", "OVER_LIMIT"]);
        assert_eq!(second.remaining(), [4, 1]);
        // The headers describe the denied descriptor.
        assert_eq!(second.header("x-ratelimit-limit"), Some("2"));
        assert!(second.header("retry-after").is_some());
    }
    let third = client.should_rate_limit(&both(1));
    assert_eq!((third.code(), third.remaining()), ("OK", vec![3, 0]));
}

#[test]
fn the_headers_describe_the_denied_descriptor_with_the_longest_wait() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let ann = descriptor(&[("user", "ann")]);
    let address = descriptor(&[("remote_address", "10.0.0.1")]);
    for (descriptor, units) in [(&ann, 2), (&address, 5)] {
        let all = json!({ "domain": "api", "hits_addend": units, "descriptors": [descriptor] });
        assert_eq!(client.should_rate_limit(&all).code(), "OK");
    }
    // A unit of the user takes half an hour, one of the address twelve minutes.
    for descriptors in [[&ann, &address], [&address, &ann]] {
        let both =
            client.should_rate_limit(&json!({ "domain": "api", "descriptors": descriptors }));
        assert_eq!(both.codes(), ["OVER_LIMIT", "OVER_LIMIT"]);
        assert_eq!(both.header("x-ratelimit-limit"), Some("2"));
        let retry: u64 = both.header("retry-after").unwrap().parse().unwrap();
        assert!((1700..=1800).contains(&retry), "{retry}");
    }
}

#[test]
fn descriptors_that_share_a_counter_add_up() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let ann = descriptor(&[("user", "ann")]);
    let three = json!({ "domain": "api", "descriptors": [ann, ann, ann] });
    assert_eq!(client.should_rate_limit(&three).code(), "OVER_LIMIT");
    let two = json!({ "domain": "api", "descriptors": [ann, ann] });
    assert_eq!(client.should_rate_limit(&two).code(), "OK");
    assert_eq!(client.check("api", "user", "ann").code(), "OVER_LIMIT");
}

#[test]
fn a_rule_with_an_incomplete_key_does_not_match() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    // There is no plan and no address, so only one rule matches.
    let user = client.check("api", "user", "ann");
    assert_eq!(
        user.statuses()[0]["current_limit"]["name"],
        "per-user/burst"
    );
    let pair = descriptor(&[("user", "ann"), ("plan", "free")]);
    let pair = client.should_rate_limit(&json!({ "domain": "api", "descriptors": [pair] }));
    assert_eq!(
        pair.statuses()[0]["current_limit"]["name"],
        "per-user/burst"
    );
    assert!(pair.header("ratelimit-policy").unwrap().contains("pair/b0"));
    // An invalid address is a mere attribute.
    for address in ["ann", ""] {
        let response = client.check("api", "remote_address", address);
        assert_eq!(
            response.0["statuses"],
            json!([{ "code": "OK", "limit_remaining": 0 }])
        );
        assert!(response.header_names().is_empty());
    }
    // The same address with a port, and mapped to IPv6.
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
    let mut check = |descriptor: serde_json::Value, call_cost: u32| {
        let request =
            json!({ "domain": "api", "hits_addend": call_cost, "descriptors": [descriptor] });
        let response = client.should_rate_limit(&request);
        (response.code().to_owned(), response.remaining()[0])
    };
    let job = |size: &str| descriptor(&[("job", "j"), ("size", size)]);
    let with_cost = |cost: u64| {
        let mut descriptor = job("3");
        descriptor["hits_addend"] = cost.into();
        descriptor
    };
    // The cost of the rule.
    assert_eq!(check(job("3"), 0), ("OK".into(), 7));
    // The cost of the call takes precedence.
    assert_eq!(check(job("3"), 1), ("OK".into(), 6));
    // The cost of the descriptor takes precedence over both, even if it is 0.
    assert_eq!(check(with_cost(2), 5), ("OK".into(), 4));
    assert_eq!(check(with_cost(0), 5), ("OK".into(), 4));
    assert_eq!(check(with_cost(5), 1), ("OVER_LIMIT".into(), 4));
    assert_eq!(check(with_cost(u64::MAX), 1), ("OVER_LIMIT".into(), 4));
    assert_eq!(check(with_cost(4), u32::MAX), ("OK".into(), 0));
    assert_eq!(check(with_cost(0), 0), ("OK".into(), 0));
}

#[test]
fn a_call_that_can_never_pass_has_no_retry_after() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let request = json!({
        "domain": "api", "hits_addend": 3, "descriptors": [descriptor(&[("user", "ann")])],
    });
    let never = client.should_rate_limit(&request);
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
        assert!(response.header_names().is_empty());
    }
}

#[test]
fn the_unit_is_reported_if_it_equals_the_window() {
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
fn the_unit_of_a_calendar_band_is_reported() {
    let units = [
        ("hour", "HOUR"),
        ("day", "DAY"),
        ("week", "UNKNOWN"),
        ("month", "MONTH"),
        ("year", "YEAR"),
    ];
    let mut rules = "rule_sets:\n  api:\n    rules:\n".to_owned();
    for (calendar, _) in units {
        rules += &format!(
            "      - {{ id: {calendar}, key: [\"attr:{calendar}\"], algorithm: fixed_window, bands: [ {{ capacity: 7, calendar: {calendar}, time_zone: Asia/Seoul }} ] }}\n"
        );
    }
    let service = Service::start(&["grpc"], &rules);
    let mut client = Client::of(&service);
    for (calendar, unit) in units {
        let response = client.check("api", calendar, "x");
        let limit = &response.statuses()[0]["current_limit"];
        assert_eq!(limit["unit"], unit, "{calendar}");
    }
    let list = service.http().get("/v1/rule_sets").body;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let band = &list["rule_sets"][0]["rules"][0]["bands"][0];
    let expected = json!({
        "id": "b0", "capacity": 7, "calendar": "hour", "time_zone": "Asia/Seoul",
    });
    assert_eq!(*band, expected);
}

#[test]
fn the_request_id_is_returned() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let request = json!({ "domain": "api", "descriptors": [descriptor(&[("user", "ann")])] });
    let result = client.call(&json!({
        "call": "check", "request": request, "metadata": { "x-request-id": "abc-1" },
    }));
    assert_eq!(result["metadata"]["x-request-id"], "abc-1");
}

const ACTIONS: &str = r#"
rule_sets:
  api:
    lists: { blocked: [eve], office: ["192.0.2.0/24"] }
    rules:
      - { id: banned, action: deny, match: { attributes: { user: { in: blocked } } } }
      - { id: office, action: allow, match: { ip: { in: office } } }
      - { id: per-user, key: ["attr:user"], bands: [ { capacity: 2, window: 1h } ] }
      - { id: per-ip, scope: per_ip, bands: [ { capacity: 2, window: 1h } ] }
"#;

#[test]
fn one_forbidden_descriptor_refuses_the_call_and_nothing_is_charged() {
    let service = Service::start(&["grpc"], ACTIONS);
    let mut client = Client::of(&service);
    let ann = descriptor(&[("user", "ann")]);
    let eve = descriptor(&[("user", "eve")]);
    let office = descriptor(&[("remote_address", "192.0.2.1")]);
    for descriptors in [[&ann, &eve, &office], [&eve, &office, &ann]] {
        let all = json!({ "domain": "api", "hits_addend": 1, "descriptors": descriptors });
        let refused = client.should_rate_limit(&all);
        assert_eq!(refused.code(), "OVER_LIMIT");
        assert_eq!(refused.header_names(), ["x-fluxgate-outcome"]);
        assert_eq!(refused.header("x-fluxgate-outcome"), Some("forbidden"));
        let of_eve = descriptors.iter().position(|it| **it == eve).unwrap();
        assert_eq!(refused.codes()[of_eve], "OVER_LIMIT");
    }
    let others = json!({ "domain": "api", "descriptors": [ann, office] });
    for remaining in [1, 0] {
        let passed = client.should_rate_limit(&others);
        assert_eq!(passed.codes(), ["OK", "OK"]);
        assert_eq!(passed.remaining()[0], remaining, "only Ann is charged");
        assert_eq!(
            passed.statuses()[1]["current_limit"],
            serde_json::Value::Null
        );
    }
    assert_eq!(
        client.should_rate_limit(&others).codes(),
        ["OVER_LIMIT", "OK"]
    );
}

/// What Envoy does with `apply_on_stream_done`: admission by a descriptor that costs nothing, and
/// a second call when the response has ended.
#[test]
fn a_cost_that_is_reported_late_is_charged_and_stops_admission() {
    let rules = r#"
rule_sets:
  llm:
    rules:
      - { id: tokens, key: ["attr:user"], charge: always, algorithm: fixed_window,
          bands: [ { capacity: 10000, window: 300d } ] }
"#;
    let service = Service::start(&["grpc"], rules);
    let mut client = Client::of(&service);
    let mut report = |hits: u64| {
        let mut descriptor = descriptor(&[("user", "ann")]);
        descriptor["hits_addend"] = hits.into();
        let call = json!({ "domain": "llm", "descriptors": [descriptor] });
        let response = client.should_rate_limit(&call);
        (response.code().to_owned(), response.remaining()[0])
    };
    let ok = |left| ("OK".to_owned(), left);
    let over = || ("OVER_LIMIT".to_owned(), 0);
    let mut used = 0;
    let mut admitted = 0;
    for _ in 0..8 {
        let (code, _) = report(0);
        if code == "OVER_LIMIT" {
            continue;
        }
        admitted += 1;
        used += 6_000;
        let expected = if used > 10_000 {
            over()
        } else {
            ok(10_000 - used)
        };
        assert_eq!(report(6_000), expected);
    }
    assert_eq!(
        (admitted, used),
        (2, 12_000),
        "admission is denied while it owes"
    );
    // What is reported of calls that ran already is charged up to twice the limit.
    for _ in 0..3 {
        assert_eq!(report(6_000), over());
    }
    let state = service
        .http()
        .get("/v1/state?rule_set=llm&rule=tokens&identity=ann");
    assert!(state.body.contains("\"remaining\":0"), "{state:?}");
}
