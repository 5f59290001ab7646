//! Handles: identities that are shown are found again, hidden and hashed ones included.

use fluxgate_testkit::{Http, RedisServer, wait_for, wait_until};
use serde_json::{Value, json};

use super::Service;
use super::live::{get, post};
use crate::support::Dir;

const KEY: &str = "a-secret-key-0123456789";
const SPECIAL: &str = "a-special-key-987654321";

const RULES: &str = r#"
rule_sets:
  api:
    rules:
      - id: by-key
        scope: per_api_key
        on_missing_key: skip
        algorithm: fixed_window
        bands: [ { capacity: 3, window: 30d } ]
        overrides: [ { identity: "a-special-key-987654321", bands: [ { capacity: 50, window: 30d } ] } ]
      - id: pair
        key: [user, ip]
        on_missing_key: skip
        algorithm: sliding_log
        bands: [ { capacity: 10, window: 30d } ]
      - id: early
        match: { path: ["/early"] }
        scope: per_user
        on_missing_key: skip
        group: tier
        algorithm: fixed_window
        bands: [ { capacity: 7, calendar: month } ]
      - id: rolled
        scope: per_user
        on_missing_key: skip
        group: tier
        rollout: 50%
        algorithm: fixed_window
        bands: [ { capacity: 2, window: 30d } ]
      - id: slots
        match: { path: ["/slots"] }
        scope: per_user
        algorithm: concurrency
        bands: [ { capacity: 5 } ]
      - { id: all, scope: global, algorithm: fixed_window, bands: [ { capacity: 1000, window: 30d } ] }
"#;

/// Configs of the memory store and of Redis, with every kind of hashing.
fn configs(server: &RedisServer) -> Vec<String> {
    let mut configs = vec![RULES.to_owned()];
    for which in ["api_keys", "all", "none"] {
        let url = server.url();
        configs.push(format!(
            "keys: {{ hash_keys: {which} }}\n\
             store: {{ redis: {{ url: \"{url}\", key_prefix: {which}, deadline: 10s }} }}\n{RULES}"
        ));
    }
    configs
}

fn check(http: &mut Http, request: &Value) -> bool {
    let answer = http.post("/v1/check", &request.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    let decision: Value = serde_json::from_str(&answer.body).unwrap();
    decision["allowed"] == true
}

/// Explains a request, which tells the handle of each rule.
fn handle_of(service: &Service, request: &Value, rule: &str) -> String {
    wait_for("the secret is known", || {
        let explained = post(service, "/v1/explain", request);
        let rules = explained["rules"].as_array().unwrap();
        let rule = rules.iter().find(|it| it["rule"] == rule).unwrap();
        rule["handle"].as_str().map(str::to_owned)
    })
}

fn remaining(service: &Service, query: &str) -> u64 {
    let state = get(service, &format!("/v1/state?{query}"));
    state["bands"][0]["remaining"].as_u64().unwrap()
}

#[test]
fn a_hashed_identity_is_looked_up_explained_refunded_and_reset_where_it_is_shown() {
    let server = RedisServer::start();
    for config in configs(&server) {
        let service = Service::start(&[], &config);
        let request = json!({ "api_key": KEY });
        handle_of(&service, &request, "by-key");
        let allowed = (0..4)
            .filter(|_| check(&mut service.http(), &request))
            .count();
        assert_eq!(allowed, 3);
        let top = get(&service, "/v1/top");
        let entry = &top["entries"][0];
        assert_eq!(
            (&entry["rule"], &entry["count"]),
            (&json!("by-key"), &json!(1))
        );
        assert!(!top.to_string().contains(KEY), "{top}");
        let handle = entry["handle"].as_str().unwrap();
        assert_eq!(handle_of(&service, &request, "by-key"), handle);

        assert_eq!(remaining(&service, &format!("handle={handle}")), 0);
        let named = format!("rule_set=api&rule=by-key&handle={handle}");
        assert_eq!(remaining(&service, &named), 0);
        let explain = json!({ "rule_set": "api", "handle": handle });
        let explained = post(&service, "/v1/explain", &explain);
        assert_eq!(explained["decision"]["outcome"], "denied");
        let rule = &explained["rules"][0];
        assert_eq!(
            (&rule["rule"], &rule["applies"], &rule["handle"]),
            (&json!("by-key"), &json!(true), &json!(handle))
        );
        assert_eq!(rule["bands"][0]["before"]["remaining"], 0);
        assert_eq!(rule["bands"][0]["denies"], true);
        let refund = json!({ "handle": handle, "units": 2 });
        assert_eq!(
            post(&service, "/v1/refund", &refund),
            json!({ "remaining": 2 })
        );
        assert!(check(&mut service.http(), &request));
        let explained = post(&service, "/v1/explain", &explain);
        assert_eq!(explained["decision"]["outcome"], "allowed");
        assert_eq!(explained["rules"][0]["bands"][0]["before"]["remaining"], 1);
        let reset = json!({ "rule_set": "api", "rule": "by-key", "handle": handle });
        assert_eq!(post(&service, "/v1/reset", &reset), json!({ "reset": 1 }));
        assert_eq!(remaining(&service, &format!("handle={handle}")), 3);
    }
}

#[test]
fn a_handle_finds_overrides_rollouts_groups_and_composite_keys() {
    let server = RedisServer::start();
    for config in configs(&server) {
        let service = Service::start(&[], &config);
        // An override of a key that the store may know only as a hash.
        let special = json!({ "api_key": SPECIAL });
        let handle = handle_of(&service, &special, "by-key");
        assert!(check(&mut service.http(), &special));
        assert_eq!(remaining(&service, &format!("handle={handle}")), 49);

        let pair = json!({ "user": "ann", "ip": "2001:db8::1" });
        let handle = handle_of(&service, &pair, "pair");
        assert!(check(&mut service.http(), &pair));
        assert_eq!(remaining(&service, &format!("handle={handle}")), 9);
        // Another address of the same network is the same client.
        let same = json!({ "user": "ann", "ip": "2001:db8::ffff" });
        assert_eq!(handle_of(&service, &same, "pair"), handle);

        // About half of the users are enforced; for the others the rule is a shadow rule.
        let mut modes = std::collections::BTreeMap::new();
        for number in 0..20 {
            let user = json!({ "user": format!("user-{number}") });
            let by_request = post(&service, "/v1/explain", &user);
            let handle = handle_of(&service, &user, "rolled");
            let by_handle = json!({ "rule_set": "api", "handle": handle, "cost": 1 });
            let by_handle = post(&service, "/v1/explain", &by_handle);
            let rule = &by_handle["rules"][0];
            let same = &by_request["rules"][3];
            for field in ["rule", "mode", "rollout"] {
                assert_eq!(rule[field], same[field], "{field}");
            }
            for state in ["before", "after"] {
                let left = |rule: &Value| rule["bands"][0][state]["remaining"].clone();
                assert_eq!(left(rule), left(same), "{state}");
            }
            assert_eq!(
                rule["group"],
                json!({ "name": "tier", "place": 2, "instead": null })
            );
            *modes
                .entry(rule["mode"].as_str().unwrap().to_owned())
                .or_insert(0) += 1;
        }
        assert_eq!(modes.len(), 2, "{modes:?}");

        let early = json!({ "user": "ann", "path": "/early" });
        let handle = handle_of(&service, &early, "early");
        assert!(check(&mut service.http(), &early));
        assert_eq!(remaining(&service, &format!("handle={handle}")), 6);

        let slots = json!({ "user": "ann", "path": "/slots" });
        let handle = handle_of(&service, &slots, "slots");
        assert!(check(&mut service.http(), &slots));
        assert_eq!(remaining(&service, &format!("handle={handle}")), 4);

        let all = handle_of(&service, &early, "all");
        let left = remaining(&service, "rule_set=api&rule=all");
        assert_eq!(remaining(&service, &format!("handle={all}")), left);
    }
}

#[test]
fn a_handle_that_finds_nothing_is_refused() {
    let server = RedisServer::start();
    let config = configs(&server).remove(1);
    let service = Service::start(&[], &config);
    let request = json!({ "api_key": KEY, "user": "ann", "ip": "10.0.0.1" });
    let handle = handle_of(&service, &request, "by-key");
    let pair = handle_of(&service, &request, "pair");
    let other = Service::start(&[], RULES);
    let foreign = handle_of(&other, &request, "by-key");
    let refused = |path: &str, body: &Value, status: u16, what: &str| {
        let mut http = service.http();
        let answer = if body.is_null() {
            http.get(path)
        } else {
            http.post(path, &body.to_string())
        };
        assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
        assert!(answer.body.contains(what), "{path} {body}: {answer:?}");
    };
    let set = "rule_set=api&rule=by-key";
    for (query, status, what) in [
        ("handle=x".to_owned(), 400, "handle"),
        ("handle=user%3Dann".to_owned(), 400, "handle"),
        (format!("handle={foreign}"), 404, "deployment"),
        (format!("handle={handle}&identity={KEY}"), 400, "identity"),
        (
            format!("rule_set=api&rule=pair&handle={handle}"),
            400,
            "by-key",
        ),
        (format!("rule_set=no&handle={handle}"), 400, "by-key"),
        (format!("handle={handle}&handle={handle}"), 400, "twice"),
        (format!("handle={handle}&capacity=5"), 400, "capacity"),
        // What is shown in place of an identity would find one that has used nothing.
        (format!("{set}&identity=a-se%E2%80%A689"), 400, "handle"),
        (format!("{set}&identity=~0123456789ab"), 400, "pseudonym"),
    ] {
        refused(&format!("/v1/state?{query}"), &Value::Null, status, what);
    }
    for (path, body, status, what) in [
        ("explain", json!({ "handle": handle }), 400, "rule_set"),
        (
            "explain",
            json!({ "rule_set": "no", "handle": handle }),
            400,
            "api",
        ),
        (
            "explain",
            json!({ "rule_set": "api", "handle": handle, "user": "ann" }),
            400,
            "user",
        ),
        (
            "explain",
            json!({ "rule_set": "api", "handle": foreign }),
            404,
            "deployment",
        ),
        (
            "explain",
            json!({ "rule_set": "api", "user": "~0123456789ab" }),
            400,
            "pseudonym",
        ),
        (
            "explain",
            json!({ "rule_set": "api", "api_key": "a-se…89" }),
            400,
            "ends",
        ),
        (
            "refund",
            json!({ "handle": foreign, "units": 1 }),
            404,
            "deployment",
        ),
        (
            "refund",
            json!({ "handle": handle, "identity": KEY, "units": 1 }),
            400,
            "identity",
        ),
        (
            "reset",
            json!({ "rule_set": "api", "rule": "by-key", "identity": "a-se…89" }),
            400,
            "ends",
        ),
    ] {
        refused(&format!("/v1/{path}"), &body, status, what);
    }
    // Another instance has other rules already.
    let changed = config
        .replace("id: by-key", "id: by-key-2")
        .replace("key: [user, ip]", "key: [user, method]");
    let changed = Service::start(&[], &changed);
    handle_of(&changed, &request, "all");
    let answer = changed.http().get(&format!("/v1/state?handle={handle}"));
    assert_eq!(answer.status, 404, "{answer:?}");
    let answer = changed.http().get(&format!("/v1/state?handle={pair}"));
    assert_eq!(
        answer.status, 200,
        "an address may stand in for a part: {answer:?}"
    );
}

#[test]
fn many_states_are_read_in_one_call() {
    let server = RedisServer::start();
    for config in configs(&server) {
        let service = Service::start(&[], &config);
        let request = json!({ "api_key": KEY });
        let handle = handle_of(&service, &request, "by-key");
        check(&mut service.http(), &request);
        let mut states: Vec<_> = (0..1000)
            .map(|number| {
                json!({ "rule_set": "api", "rule": "by-key", "identity": format!("key-{number}") })
            })
            .collect();
        states[1] = json!({ "handle": handle });
        states[2] = json!({ "rule_set": "api", "rule": "no", "identity": "x" });
        states[3] = json!({ "rule_set": "api", "rule": "pair", "identity": "one" });
        states[999] = json!({ "rule_set": "api", "rule": "by-key", "identity": KEY });
        let answer = post(&service, "/v1/state/batch", &json!({ "states": states }));
        let answers = answer["states"].as_array().unwrap();
        assert_eq!(answers.len(), 1000);
        let left = |index: usize| answers[index]["bands"][0]["remaining"].as_u64();
        assert_eq!(
            [left(0), left(1), left(998), left(999)],
            [3, 2, 3, 2].map(Some)
        );
        let error = |index: usize| answers[index]["error"]["status"].as_u64();
        assert_eq!([error(2), error(3)], [Some(404), Some(400)]);
        states.push(json!({ "handle": handle }));
        let mut http = service.http();
        let many = json!({ "states": states }).to_string();
        assert_eq!(http.post("/v1/state/batch", &many).status, 400);
        for bad in [
            "{}",
            r#"{"states":[5]}"#,
            r#"{"states":[{"units":1}]}"#,
            "[]",
        ] {
            assert_eq!(http.post("/v1/state/batch", bad).status, 400, "{bad}");
        }
        assert_eq!(
            post(&service, "/v1/state/batch", &json!({ "states": [] })),
            json!({ "states": [] })
        );
    }
}

#[test]
fn a_batch_names_each_identity_and_says_when_its_next_request_passes() {
    let server = RedisServer::start();
    for (config, hides) in configs(&server).iter().zip([false, false, true, false]) {
        let service = Service::start(&[], config);
        let request = json!({ "api_key": KEY, "user": "ann", "ip": "203.0.113.9" });
        let handle = handle_of(&service, &request, "by-key");
        for _ in 0..3 {
            assert!(check(&mut service.http(), &json!({ "api_key": KEY })));
        }
        let by_key =
            |identity| json!({ "rule_set": "api", "rule": "by-key", "identity": identity });
        let pair = json!({ "rule_id": "api/pair", "identity": ["ann", "203.0.113.9"] });
        let states = [
            json!({ "handle": handle }),
            by_key(KEY),
            by_key("other"),
            pair,
        ];
        let states = [&states[..], &[json!({ "rule_set": "api", "rule": "all" })]].concat();
        let answer = post(&service, "/v1/state/batch", &json!({ "states": states }));
        let found = |index: usize, field: &str| answer["states"][index][field].clone();
        assert_eq!(
            (found(0, "rule_set"), found(0, "rule")),
            (json!("api"), json!("by-key"))
        );
        // A value and its handle are the same identity.
        for index in [0, 1] {
            assert_eq!(found(index, "handle"), handle, "{answer}");
            assert!(found(index, "retry_after_ms").as_u64() > Some(60_000));
        }
        assert_eq!(found(0, "identity"), found(1, "identity"));
        assert_ne!(found(2, "handle"), handle);
        assert_eq!(found(2, "retry_after_ms"), 0);
        assert!(!answer.to_string().contains(KEY), "{answer}");
        let pair = found(3, "identity");
        assert_eq!(pair == "user=ann ip=203.0.113.9", !hides, "{pair}");
        assert_eq!(found(4, "identity"), "(everyone)");
        assert_eq!(found(4, "slots_end_after_ms"), Value::Null);
        // The handle alone says which rule it belongs to.
        let opened = json!({ "states": [{ "handle": found(3, "handle") }] });
        let opened = post(&service, "/v1/state/batch", &opened);
        assert_eq!(opened["states"][0]["rule"], "pair", "{opened}");
    }
}

#[test]
fn a_batch_says_when_each_slot_of_an_identity_ends() {
    let server = RedisServer::start();
    for config in configs(&server) {
        let service = Service::start(&[], &config);
        for hold in ["20s", "50s"] {
            let request = json!({ "user": "ann", "path": "/slots", "hold": hold });
            assert!(check(&mut service.http(), &request));
        }
        let slots = |user| json!({ "rule_set": "api", "rule": "slots", "identity": user });
        let states = json!({ "states": [slots("ann"), slots("bob")] });
        let answer = post(&service, "/v1/state/batch", &states);
        let ends = answer["states"][0]["slots_end_after_ms"].as_array();
        let ends: Vec<_> = ends.unwrap().iter().map(Value::as_u64).collect();
        let [Some(first), Some(second)] = ends[..] else {
            panic!("{answer}");
        };
        assert!((1..=20_000).contains(&first), "{answer}");
        assert!((20_001..=50_000).contains(&second), "{answer}");
        assert_eq!(answer["states"][1]["slots_end_after_ms"], Value::Null);
    }
}

#[test]
fn instances_agree_on_handles_and_pseudonyms_and_sum_what_they_count() {
    let server = RedisServer::start();
    for config in configs(&server).split_off(1) {
        let services = [Service::start(&[], &config), Service::start(&[], &config)];
        let ann = json!({ "user": "ann" });
        let [first, second] = [0, 1].map(|index| handle_of(&services[index], &ann, "all"));
        assert_eq!(first, second);
        for (service, times) in services.iter().zip([5, 7]) {
            check(&mut service.http(), &ann);
            for _ in 0..times {
                check(&mut service.http(), &json!({}));
            }
        }
        for service in &services {
            let entry = wait_for("both are summed", || {
                let top = get(service, "/v1/top?by=requests&rule=all");
                assert_eq!(top["scope"], "fleet", "{top}");
                (top["instances"] == 2 && top["entries"][0]["count"] == 14)
                    .then(|| top["entries"][0].clone())
            });
            assert_eq!(entry["handle"], first);
            assert_eq!(
                (&entry["error"], &entry["outcomes"]),
                (&json!(0), &json!({ "allowed": 14 }))
            );
        }
        let shown = services.each_ref().map(|service| {
            let top = get(
                service,
                "/v1/top?by=requests&identity=user%3Dann&rule=rolled",
            );
            let entries = top["entries"].as_array().unwrap();
            assert_eq!(entries.len(), 1, "{top}");
            entries[0]["identity"].clone()
        });
        assert_eq!(shown[0], shown[1]);
        for service in &services {
            let usage = wait_for("both have written their use", || {
                let usage = get(service, "/v1/usage?rule_set=api&rule=all");
                (usage["usage"][0]["per_hour"] == 14).then_some(usage)
            });
            let row = &usage["usage"][0];
            assert_eq!(
                (&row["remaining"], &row["used_share"]),
                (&json!(986), &json!(0.014))
            );
            assert_eq!(row["handle"], first);
        }
        // What one that has ended counted is not lost.
        let [first, second] = services;
        second.program.signal("TERM");
        assert!(second.program.wait().success());
        let usage = get(&first, "/v1/usage?rule_set=api&rule=all");
        assert_eq!(usage["usage"][0]["per_hour"], 14, "{usage}");
        wait_until("its last minute is gone with it", || {
            get(&first, "/v1/top?by=requests")["instances"] == 1
        });
    }
}

#[test]
fn the_heaviest_identities_are_ranked_by_what_they_have_used() {
    let rules = r#"
rule_sets:
  api:
    rules:
      - id: tokens
        scope: per_user
        cost: "header:x-tokens"
        algorithm: fixed_window
        bands: [ { id: month, capacity: 10, window: 30d }, { id: year, capacity: 100, window: 365d } ]
      - { id: no-entry, action: deny, match: { path: ["/no"] } }
"#;
    let service = Service::start(&[], &format!("telemetry: {{ identities: true }}\n{rules}"));
    for (user, tokens) in [("ann", 4), ("bob", 1), ("ann", 2), ("bob", 1), ("bob", 9)] {
        let headers = json!({ "x-tokens": tokens.to_string() });
        check(
            &mut service.http(),
            &json!({ "user": user, "headers": headers }),
        );
    }
    let usage = get(&service, "/v1/usage?rule_set=api&rule=tokens");
    let rows: Vec<_> = usage["usage"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            assert!(
                row["handle"].is_string() && row["reset_after_ms"].as_u64() > Some(0),
                "{row}"
            );
            json!([
                row["identity"],
                row["band"],
                row["limit"],
                row["remaining"],
                row["used_share"],
                row["per_hour"],
                row["exhausted_in_ms"],
            ])
        })
        .collect();
    let minute = 60_000;
    assert_eq!(
        rows,
        [
            json!(["user=ann", "month", 10, 4, 0.6, 6, 40 * minute]),
            json!(["user=bob", "month", 10, 8, 0.2, 2, 240 * minute]),
            json!(["user=ann", "year", 100, 94, 0.06, 6, 940 * minute]),
            json!(["user=bob", "year", 100, 98, 0.02, 2, 2940 * minute]),
        ]
    );
    let one = get(&service, "/v1/usage?n=1");
    assert_eq!(one["usage"].as_array().unwrap().len(), 1);
    let listed = |query: &str| -> (Vec<String>, Value) {
        let usage = get(&service, &format!("/v1/usage?{query}"));
        let rows = usage["usage"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let names = rows.map(|row| text(&row["identity"]) + " " + &text(&row["band"]));
        (names.collect(), usage["total"].clone())
    };
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    for (query, expected, total) in [
        ("by=hour&n=2", &["user=ann month", "user=ann year"][..], 4),
        (
            "by=soon",
            &[
                "user=ann month",
                "user=bob month",
                "user=ann year",
                "user=bob year",
            ],
            4,
        ),
        ("n=2&offset=3", &["user=bob year"], 4),
        ("offset=9", &[], 4),
        ("search=BO", &["user=bob month", "user=bob year"], 2),
        (
            "identity=user%3Dann&by=share",
            &["user=ann month", "user=ann year"],
            2,
        ),
        ("identity=user%3Dnobody", &[], 0),
        ("by=slots", &[], 0),
    ] {
        assert_eq!(listed(query), (names(expected), json!(total)), "{query}");
    }
    for (query, status) in [
        ("by=none", 400),
        ("identity=ann", 400),
        ("rule_set=no", 404),
        ("rule_set=api&rule=no", 404),
        ("rule=tokens", 400),
        ("n=0", 400),
        ("what=1", 400),
    ] {
        let answer = service.http().get(&format!("/v1/usage?{query}"));
        assert_eq!(answer.status, status, "{query}: {answer:?}");
    }
}

#[test]
fn units_on_lease_are_not_used() {
    let server = RedisServer::start();
    let rules = "rule_sets:\n  api:\n    rules:\n      - { id: hot, scope: per_user, \
                 algorithm: fixed_window, lease: { share: 20%, for: 2s }, \
                 bands: [ { capacity: 1000, window: 30d } ] }\n";
    let store = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\n",
        server.url()
    );
    let service = Service::start(&[], &(store + rules));
    let mut http = service.http();
    let on_lease = || {
        let state = get(&service, "/v1/state?rule_set=api&rule=hot&identity=ann");
        state["bands"][0]["on_lease"].as_u64()
    };
    let mut used = 0;
    wait_until("units are on lease", || {
        for _ in 0..20 {
            used += u64::from(check(&mut http, &json!({ "user": "ann" })));
        }
        on_lease() > Some(0) || used >= 900
    });
    // What is spent of a lease is known when the lease ends, at the latest.
    wait_until("all is reported", || {
        let usage = get(&service, "/v1/usage?rule_set=api&rule=hot");
        usage["usage"][0]["remaining"] == 1000 - used
    });
}

#[test]
fn recent_requests_have_outcomes_and_handles_and_are_filtered() {
    let service = Service::start(&[], &format!("admin: {{ record: true }}\n{RULES}"));
    for (key, times) in [(KEY, 4), (SPECIAL, 2)] {
        for _ in 0..times {
            check(&mut service.http(), &json!({ "api_key": key }));
        }
    }
    let all = get(&service, "/v1/recent");
    assert_eq!(all["scope"], "instance");
    let outcomes = |list: &Value| -> Vec<String> {
        let decisions = list["decisions"].as_array().unwrap();
        assert_eq!(decisions.len(), list["events"].as_array().unwrap().len());
        decisions
            .iter()
            .map(|it| it["outcome"].as_str().unwrap().to_owned())
            .collect()
    };
    let allowed = "allowed".to_owned();
    let denied = "denied".to_owned();
    assert_eq!(
        outcomes(&all),
        [&allowed, &allowed, &allowed, &denied, &allowed, &allowed].map(String::clone)
    );
    let refused = get(&service, "/v1/recent?outcome=denied");
    assert_eq!(outcomes(&refused), std::slice::from_ref(&denied));
    let handle = refused["decisions"][0]["handle"].as_str().unwrap();
    assert_eq!(remaining(&service, &format!("handle={handle}")), 0);
    assert_eq!(
        outcomes(&get(&service, &format!("/v1/recent?handle={handle}"))).len(),
        4
    );
    let query = format!("/v1/recent?identity=api_key={SPECIAL}&n=1");
    assert_eq!(outcomes(&get(&service, &query)), [allowed]);
    assert_eq!(outcomes(&get(&service, "/v1/recent?rule_set=no")).len(), 0);
    for bad in ["outcome=x", "identity=ann", "handle=x", "what=1"] {
        let answer = service.http().get(&format!("/v1/recent?{bad}"));
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
    }
    // Events are still what a trial takes.
    let trial = json!({ "events": all["events"] });
    assert_eq!(
        post(&service, "/v1/simulate", &trial)["decisions"]
            .as_array()
            .unwrap()
            .len(),
        6
    );
    let url = format!("http://{}/v1/recent", service.address("api"));
    let curl = std::process::Command::new("curl");
    let curl = { curl }
        .args(["-s", "--compressed", "-D", "-", &url])
        .output()
        .unwrap();
    let text = String::from_utf8(curl.stdout).unwrap();
    assert!(
        text.contains("content-encoding: gzip") && text.contains("\"decisions\""),
        "{text}"
    );
}

#[test]
fn limits_that_come_with_the_call_are_listed_and_reset() {
    let server = RedisServer::start();
    for config in configs(&server) {
        let service = Service::start(&[], &config);
        handle_of(&service, &json!({}), "all");
        let call = json!({
            "rule_id": "mail", "identity": "ann", "capacity": 2, "refill_tokens_per_second": 0.001,
        });
        for _ in 0..3 {
            post(&service, "/v1/consume", &call);
        }
        let top = get(&service, "/v1/top?identity=key%3Dann");
        let entry = &top["entries"][0];
        assert_eq!(
            (&entry["rule_set"], &entry["rule"], &entry["rule_id"]),
            (&Value::Null, &Value::Null, &json!("mail"))
        );
        assert_eq!(
            (&entry["count"], &entry["outcomes"]),
            (&json!(1), &json!({ "denied": 1 }))
        );
        let handle = entry["handle"].as_str().unwrap();
        let rate = "capacity=2&refill_tokens_per_second=0.001";
        assert_eq!(remaining(&service, &format!("handle={handle}&{rate}")), 0);
        let answer = service.http().get(&format!("/v1/state?handle={handle}"));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert_eq!(
            post(&service, "/v1/reset", &json!({ "handle": handle })),
            json!({ "reset": 1 })
        );
        assert_eq!(remaining(&service, &format!("handle={handle}&{rate}")), 2);
    }
}

#[test]
fn calls_about_identities_need_a_viewer() {
    let dir = Dir::new();
    // The hash of `secret`.
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    dir.write("tokens", format!("ops:viewer:{hash}\n"));
    let config = format!("admin: {{ tokens_file: tokens }}\n{RULES}");
    let service = Service::start_in(dir, &[], &config);
    let mut http = service.http();
    let token = [("Authorization", "Bearer secret")];
    for (method, path, body) in [
        ("GET", "/v1/usage", ""),
        ("GET", "/v1/top", ""),
        ("GET", "/v1/recent", ""),
        ("POST", "/v1/state/batch", r#"{"states":[]}"#),
    ] {
        assert_eq!(http.request(method, path, &[], body).status, 401, "{path}");
        assert_eq!(
            http.request(method, path, &token, body).status,
            200,
            "{path}"
        );
    }
}

#[test]
fn the_documented_calls_are_answered() {
    let rules = "rule_sets:\n  api:\n    rules:\n      - { id: per-user, scope: per_user, \
                 algorithm: fixed_window, bands: [ { capacity: 5, window: 30d } ] }\n";
    let service = Service::start(&[], rules);
    let ann = json!({ "user": "ann" });
    let handle = handle_of(&service, &ann, "per-user");
    for _ in 0..2 {
        check(&mut service.http(), &ann);
    }
    let calls = crate::docs::only("text handles").replace("HANDLE", &handle);
    let answers: Vec<Value> = calls
        .lines()
        .map(|call| {
            let (method, rest) = call.split_once(' ').unwrap();
            let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
            if method == "GET" {
                get(&service, path)
            } else {
                post(&service, path, &serde_json::from_str(body).unwrap())
            }
        })
        .collect();
    let left = |state: &Value| state["bands"][0]["remaining"].as_u64();
    assert_eq!(left(&answers[0]), Some(3));
    assert_eq!(answers[1]["decision"]["remaining"], 2);
    assert_eq!(answers[2], json!({ "remaining": 4 }));
    assert_eq!(answers[3], json!({ "reset": 1 }));
    let states = answers[4]["states"].as_array().unwrap();
    assert_eq!([left(&states[0]), left(&states[1])], [Some(5), Some(5)]);
}
