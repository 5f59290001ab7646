//! State, refunds and resets of limits that come with the call.

use fluxgate_testkit::Cli;

use super::*;

const NO_RULES: &str = "rule_sets: {}\n";
const PARAMETERS: &str = "capacity=10&refill_tokens_per_second=0.001";

fn consume(http: &mut Http, more: Value) -> Value {
    let mut body = json!({
        "rule_id": "mail", "identity": "ann", "capacity": 10, "refill_tokens_per_second": 0.001,
    });
    let fields = body.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    json(&http.post("/v1/consume", &body.to_string()))
}

/// Returns the remaining units and the limit.
fn state(http: &mut Http, query: &str) -> (u64, u64) {
    let state = json(&http.get(&format!("/v1/state?{query}")));
    let bands = state["bands"].as_array().unwrap();
    assert_eq!((bands.len(), &bands[0]["band"]), (1, &json!("b0")));
    let number = |name: &str| bands[0][name].as_u64().unwrap();
    assert_eq!(
        number("reset_after_ms") > 0,
        number("remaining") < number("limit")
    );
    (number("remaining"), number("limit"))
}

#[test]
fn a_limit_of_consume_is_found_by_name_and_identity() {
    let server = RedisServer::start();
    let redis = store_in(&server);
    for store in ["", &redis] {
        let service = Service::start(&[], &(store.to_owned() + NO_RULES));
        let mut http = service.http();
        assert_eq!(consume(&mut http, json!({ "cost": 6 }))["remaining"], 4);
        consume(&mut http, json!({ "identity": ["a", "b"], "cost": 3 }));
        consume(&mut http, json!({ "identity": null, "cost": 2 }));
        let of_ann = format!("rule_id=mail&identity=ann&{PARAMETERS}");
        assert_eq!(state(&mut http, &of_ann), (4, 10));
        let of_pair = format!("rule_id=mail&identity=a&identity=b&{PARAMETERS}");
        assert_eq!(state(&mut http, &of_pair), (7, 10));
        assert_eq!(
            state(&mut http, &format!("rule_id=mail&{PARAMETERS}")),
            (8, 10)
        );
        assert_eq!(
            state(&mut http, &format!("rule_id=post&{PARAMETERS}")),
            (10, 10)
        );

        let mut change = |path: &str, body: Value| json(&http.post(path, &body.to_string()));
        let refund = json!({
            "rule_id": "mail", "identity": "ann", "units": 2, "capacity": 10,
            "refill_tokens_per_second": 0.001,
        });
        assert_eq!(change("/v1/refund", refund), json!({ "remaining": 6 }));
        // A reset does not need the parameters, but accepts them.
        let of_ann = json!({ "rule_id": "mail", "identity": "ann" });
        assert_eq!(change("/v1/reset", of_ann.clone()), json!({ "reset": 1 }));
        assert_eq!(change("/v1/reset", of_ann), json!({ "reset": 0 }));
        let of_pair = json!({
            "rule_id": "mail", "identity": ["a", "b"], "capacity": 7, "refill_tokens_per_second": 1,
        });
        assert_eq!(change("/v1/reset", of_pair), json!({ "reset": 1 }));
        assert_eq!(consume(&mut http, json!({ "cost": 10 }))["allowed"], true);
        // The limit without an identity is unchanged.
        assert_eq!(
            state(&mut http, &format!("rule_id=mail&{PARAMETERS}")),
            (8, 10)
        );
    }
}

#[test]
fn a_limit_of_cl_throttle_is_found_by_its_key() {
    let server = RedisServer::start();
    let redis = store_in(&server);
    for store in ["", &redis] {
        let service = Service::start(&["resp"], &(store.to_owned() + NO_RULES));
        let mut http = service.http();
        let mut cli = Cli::connect(service.address("resp")).unwrap();
        let mut throttle = |quantity: &str| {
            let reply = cli.command(&["CL.THROTTLE", "user:1", "9", "1", "3000", quantity]);
            reply.array()[2].int()
        };
        assert_eq!(throttle("6"), 4);
        let query = "key=user%3A1&max_burst=9&count=1&period=3000";
        assert_eq!(state(&mut http, query), (4, 10));
        let mut change = |path: &str, body: Value| json(&http.post(path, &body.to_string()));
        let refund =
            json!({ "key": "user:1", "max_burst": 9, "count": 1, "period": 3000, "units": 5 });
        assert_eq!(change("/v1/refund", refund), json!({ "remaining": 9 }));
        assert_eq!(throttle("0"), 9);
        let reset = json!({ "key": "user:1" });
        assert_eq!(change("/v1/reset", reset.clone()), json!({ "reset": 1 }));
        assert_eq!(change("/v1/reset", reset), json!({ "reset": 0 }));
        assert_eq!(throttle("0"), 10);
    }
}

#[test]
fn a_configured_rule_is_also_found_by_its_rule_id() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    check(&mut http, "u");
    let query = "rule_id=api/per-user&identity=u";
    let state = json(&http.get(&format!("/v1/state?{query}")));
    assert_eq!(state["bands"][0]["remaining"], 9);
    check(&mut http, "u");
    let mut change = |path: &str, body: Value| json(&http.post(path, &body.to_string()));
    let refund = json!({ "rule_id": "api/per-user", "identity": "u", "units": 1 });
    assert_eq!(change("/v1/refund", refund), json!({ "remaining": 9 }));
    let reset = json!({ "rule_id": "api/per-user" });
    assert_eq!(change("/v1/reset", reset), json!({ "reset": 2 }));
}

/// Calls and what is wrong with them, as in [`assert_refused`].
const INVALID: &str = r#"
refund {"rule_id":"mail","units":1} -> 400 `capacity`
refund {"rule_id":"mail","units":1,"capacity":1} -> 400 `refill_tokens_per_second` is missing
refund {"rule_id":"mail","capacity":1,"refill_tokens_per_second":1} -> 400 `units`
refund {"rule_id":"","units":1,"capacity":1,"refill_tokens_per_second":1} -> 400 `rule_id` must have 1 to 200 bytes
refund {"key":"k","units":1} -> 400 `max_burst`
refund {"key":"k","units":1,"max_burst":1,"count":1} -> 400 `period` is missing
refund {"key":"k","units":1,"max_burst":1,"count":0,"period":1} -> 400 count must be from 1
refund {"key":"k","units":1,"max_burst":1,"count":1.5,"period":1} -> 400 `count` must be a whole number
reset {"key":"k","identity":"u"} -> 400 `identity` cannot be combined with `key`
reset {"key":"k","rule_id":"a"} -> 400 `rule_id` cannot be combined with `key`
reset {"rule_id":"a","rule_set":"api"} -> 400 `rule_set` cannot be combined with `rule_id`
reset {"rule_set":"api","rule":"all","capacity":1} -> 400 `capacity` cannot be combined with `rule_set`
reset {"rule_set":"api","identity":"u"} -> 400 `rule` is missing
reset {"rule_set":"no"} -> 404 `no`
reset {"rule_id":"api/no"} -> 404 `no`
reset {"rule_id":"no/all","identity":"u"} -> 404 `no`
refund {"rule_id":"api/no","units":1} -> 404 `no`
"#;

#[test]
fn invalid_calls_are_refused() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    assert_refused(&mut http, INVALID);
    for (query, status) in [
        ("rule_id=mail", 400),
        ("rule_id=mail&capacity=1", 400),
        ("rule_id=mail&capacity=&refill_tokens_per_second=1", 400),
        ("key=k", 400),
        ("key=k&max_burst=x&count=1&period=1", 400),
        ("key=k&max_burst=1&count=1&period=1&units=1", 400),
        ("key=%FF&max_burst=1&count=1&period=1", 400),
        ("rule_id=api/no", 404),
        ("rule_id=no/all", 404),
    ] {
        let answer = http.get(&format!("/v1/state?{query}"));
        assert_eq!(answer.status, status, "{query}: {answer:?}");
    }
}

#[test]
fn only_admins_may_reset_a_whole_set() {
    let server = RedisServer::start();
    let redis = store_in(&server);
    for store in ["", &redis] {
        let dir = Dir::new();
        dir.write("tokens", access::TOKENS);
        let two = "  other:\n    rules: [ { id: r, scope: global, bands: [ { capacity: 9, window: 300d } ] } ]\n";
        let config = format!("{store}admin: {{ tokens_file: tokens }}{RULES}{two}");
        let service = Service::start_in(dir, &[], &config);
        let mut http = service.http();
        check(&mut http, "u");
        check(&mut http, "v");
        http.post("/v1/check", r#"{"rule_set":"other"}"#);
        let mut call = |method: &str, path: &str, body: &str, role: &str| {
            let headers = [
                ("Content-Type", "application/json"),
                ("Authorization", &*format!("Bearer {role}")),
            ];
            http.request(method, path, &headers, body)
        };
        let whole = r#"{"rule_set":"api"}"#;
        for role in ["viewer", "operator"] {
            let refused = call("POST", "/v1/reset", whole, role);
            assert_eq!(refused.status, 403, "{role}: {refused:?}");
        }
        // Two bands and a pair for each user, and one for all.
        assert_eq!(
            call("POST", "/v1/reset", whole, "admin").body,
            r#"{"reset":7}"#
        );
        assert_eq!(
            call("POST", "/v1/reset", whole, "admin").body,
            r#"{"reset":0}"#
        );
        let of_u = "/v1/state?rule_set=api&rule=per-user&identity=u";
        assert_eq!(
            json(&call("GET", of_u, "", "viewer"))["bands"][0]["remaining"],
            10
        );
        let other = "/v1/state?rule_set=other&rule=r";
        assert_eq!(
            json(&call("GET", other, "", "viewer"))["bands"][0]["remaining"],
            8
        );
        let lines = service.wait_for_logs("changed", 2);
        let field = |name: &str| lines[0].get(name).cloned();
        assert_eq!(field("what"), Some(json!("reset")));
        assert_eq!(
            (field("who"), field("rule_set")),
            (Some(json!("anna")), Some(json!("api")))
        );
        assert_eq!((field("rule"), field("identity")), (None, None));
        assert_eq!(field("reset"), Some(json!(7)));
    }
}

#[test]
fn changes_are_logged() {
    for (setting, mail, key) in [
        ("", "(redacted)", "(redacted)"),
        ("telemetry: { identities: true }\n", "key=ann", "key=user:1"),
    ] {
        let service = Service::start(&[], &format!("{setting}{NO_RULES}"));
        let mut http = service.http();
        let refund = r#"{"rule_id":"mail","identity":"ann","units":2,"capacity":5,"refill_tokens_per_second":1}"#;
        assert_eq!(http.post("/v1/refund", refund).status, 200);
        assert_eq!(http.post("/v1/reset", r#"{"key":"user:1"}"#).status, 200);
        let lines = service.wait_for_logs("changed", 2);
        let line = &lines[0];
        assert_eq!(
            (&line["target"], &line["who"]),
            (&json!("audit"), &json!("loopback"))
        );
        assert_eq!(
            (&line["what"], &line["rule_id"]),
            (&json!("refund"), &json!("mail"))
        );
        assert_eq!(
            (&line["identity"], &line["units"]),
            (&json!(mail), &json!(2))
        );
        assert!(line.get("rule_set").is_none(), "{line}");
        let line = &lines[1];
        assert_eq!(
            (&line["what"], &line["reset"]),
            (&json!("reset"), &json!(0))
        );
        assert_eq!(line["identity"], json!(key));
        assert!(line.get("rule_id").is_none(), "{line}");
    }
}

#[test]
fn the_documented_calls_are_answered() {
    let service = Service::start(&[], NO_RULES);
    let mut http = service.http();
    let calls = crate::docs::only("text call-limits");
    let answers = calls.lines().map(|call| {
        let (method, rest) = call.split_once(' ').unwrap();
        let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
        let headers = [("Content-Type", "application/json")];
        json(&http.request(method, path, &headers, body))
    });
    let full = json!({ "band": "b0", "limit": 5, "remaining": 5, "reset_after_ms": 0 });
    assert_eq!(
        answers.collect::<Vec<_>>(),
        [
            json!({ "bands": [full] }),
            json!({ "remaining": 5 }),
            json!({ "reset": 0 }),
            json!({ "reset": 0 }),
        ]
    );
}
