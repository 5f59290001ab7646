//! Rules that decide by themselves, in every interface of the service.

use fluxgate_testkit::{Answer, Cli, RedisServer};
use serde_json::{Value, json};

use super::Service;
use super::telemetry::Metrics;

const RULES: &str = r#"
filters:
  main: { rule_set: api }
rule_sets:
  api:
    on_error: deny
    lists:
      blocked: [eve, mallory]
      office: ["192.0.2.0/24"]
    rules:
      - { id: gone, action: deny, status: 410, match: { path: ["/old/{id}"] } }
      - { id: no-entry, action: deny, match: { user: { in: blocked } } }
      - { id: banned, action: deny, match: { attributes: { user: { in: blocked } } } }
      - { id: office, action: allow, match: { ip: { in: office } } }
      - { id: per-user, scope: per_user, bands: [ { capacity: 2, window: 1h } ] }
      - { id: seen, key: ["attr:user"], on_missing_key: skip, bands: [ { capacity: 2, window: 1h } ] }
"#;

fn json_of(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn forbidden(rule: &str) -> Value {
    json!({
        "allowed": false, "outcome": "forbidden", "rule": rule, "band": null, "limit": null,
        "remaining": 0, "retry_after_ms": null, "reset_after_ms": 0, "delay_ms": 0,
        "violated": [format!("{rule}/deny")],
    })
}

fn exempt(rule: &str) -> Value {
    json!({
        "allowed": true, "outcome": "exempt", "rule": rule, "band": null, "limit": null,
        "remaining": null, "retry_after_ms": 0, "reset_after_ms": 0, "delay_ms": 0, "violated": [],
    })
}

#[track_caller]
fn assert_no_limit_headers(answer: &Answer) {
    for name in [
        "retry-after",
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ] {
        assert_eq!(answer.header(name), None, "{answer:?}");
    }
}

const EVE: &str = r#"{"rule_set":"api","user":"eve"}"#;
const OFFICE: &str = r#"{"rule_set":"api","user":"eva","ip":"192.0.2.9","cost":100}"#;

#[test]
fn checks_report_what_actions_decide() {
    let service = Service::start(&["resp"], RULES);
    let mut http = service.http();
    let eve = http.post("/v1/check", EVE);
    assert_eq!((eve.status, json_of(&eve)), (200, forbidden("no-entry")));
    assert_no_limit_headers(&eve);
    let peek = r#"{"rule_set":"api","user":"eve","cost":0,"peek":true}"#;
    assert_eq!(
        json_of(&http.post("/v1/check", peek)),
        forbidden("no-entry")
    );
    let office = http.post("/v1/check", OFFICE);
    assert_eq!((office.status, json_of(&office)), (200, exempt("office")));
    assert_no_limit_headers(&office);

    // The status that the gateway would send.
    let refused = http.post("/v1/check?status=true", EVE);
    assert_eq!(refused.status, 403);
    assert_no_limit_headers(&refused);
    let problem = json_of(&refused);
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(
        (&problem["status"], &problem["title"]),
        (&json!(403), &json!("Forbidden"))
    );
    assert_eq!(problem["violated-policies"], json!(["no-entry/deny"]));
    let old = r#"{"rule_set":"api","user":"ann","path":"/old/7"}"#;
    assert_eq!(http.post("/v1/check?status=true", old).status, 410);
    assert_eq!(http.post("/v1/check?status=true", OFFICE).status, 200);

    let batch = format!(r#"{{"checks":[{EVE},{OFFICE},{{"rule_set":"api","user":"ann"}}]}}"#);
    let decisions = json_of(&http.post("/v1/check/batch", &batch));
    assert_eq!(decisions["decisions"][0], forbidden("no-entry"));
    assert_eq!(decisions["decisions"][1], exempt("office"));
    assert_eq!(decisions["decisions"][2]["remaining"], 1, "each by itself");

    let mut cli = Cli::connect(service.address("resp")).unwrap();
    let reply = cli.command(&["FG.CHECK", "api", "user", "eve"]);
    let [
        allowed,
        limit,
        remaining,
        retry,
        reset,
        delay,
        rule,
        band,
        outcome,
    ] = reply.array()
    else {
        panic!("{reply:?}");
    };
    let numbers = [allowed, remaining, retry, reset, delay].map(|number| number.int());
    assert_eq!(numbers, [0, 0, -1, 0, 0]);
    assert!(limit.is_nil() && band.is_nil(), "{reply:?}");
    let texts = (rule.text(), outcome.text());
    assert_eq!(texts, ("no-entry".into(), "forbidden".into()));

    let metrics = Metrics::of(&service);
    let decisions =
        "fluxgate_decisions_total{rule_set=\"api\",rule=\"no-entry\",outcome=\"forbidden\"";
    assert_eq!(metrics.sum(decisions), 4);
    let exempt = "fluxgate_decisions_total{rule_set=\"api\",rule=\"office\",outcome=\"exempt\"";
    assert_eq!(metrics.sum(exempt), 3);
}

#[test]
fn an_action_has_no_identities_to_charge_or_look_up() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let consume = r#"{"rule_id":"api/no-entry","identity":"eve"}"#;
    for (answer, what) in [
        (http.post("/v1/consume", consume), "consume"),
        (
            http.post(
                "/v1/refund",
                r#"{"rule_set":"api","rule":"no-entry","identity":"eve","units":1}"#,
            ),
            "refund",
        ),
        (
            http.post("/v1/reset", r#"{"rule_set":"api","rule":"no-entry"}"#),
            "reset",
        ),
        (
            http.get("/v1/state?rule_set=api&rule=no-entry&identity=eve"),
            "state",
        ),
    ] {
        assert_eq!(answer.status, 400, "{what}: {answer:?}");
        let detail = json_of(&answer)["detail"].to_string();
        assert!(
            detail.contains("counts nothing: it has `action: deny`"),
            "{detail}"
        );
    }
}

#[test]
fn an_explanation_says_which_rule_decides_and_which_list_fails() {
    let service = Service::start(&[], RULES);
    let explained = json_of(&service.http().post("/v1/explain", EVE));
    assert_eq!(explained["decision"], forbidden("no-entry"));
    let rule = |id: &str| {
        let rules = explained["rules"].as_array().unwrap();
        rules
            .iter()
            .find(|rule| rule["rule"] == id)
            .unwrap()
            .clone()
    };
    let (no_entry, office) = (rule("no-entry"), rule("office"));
    assert_eq!(
        (&no_entry["action"], &no_entry["applies"]),
        (&json!("deny"), &json!(true))
    );
    assert_eq!(
        (&no_entry["identity"], &no_entry["bands"]),
        (&Value::Null, &json!([]))
    );
    assert_eq!(
        (&office["failed"], &office["list"]),
        (&json!("ip"), &json!("office"))
    );
    let per_user = rule("per-user");
    assert_eq!(
        (&per_user["matched"], &per_user["applies"]),
        (&json!(true), &json!(false))
    );
    let sets = json_of(&service.http().get("/v1/rule_sets"));
    let listed = &sets["rule_sets"][0]["rules"];
    assert_eq!(
        (&listed[0]["action"], &listed[0]["status"]),
        (&json!("deny"), &json!(410))
    );
    assert_eq!(listed[1]["match"], json!({ "user": { "in": "blocked" } }));
}

#[test]
fn forward_auth_answers_with_the_status_of_the_rule() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let mut ask = |target: &str, user: &str, uri: &str| {
        let headers = [
            ("X-Forwarded-Method", "GET"),
            ("X-Forwarded-Uri", uri),
            ("X-Forwarded-For", "198.51.100.1"),
            ("X-User-Id", user),
        ];
        http.request("GET", target, &headers, "")
    };
    let refused = ask("/v1/forward_auth", "eve", "/x");
    assert_eq!(refused.status, 403);
    assert_no_limit_headers(&refused);
    assert_eq!(
        json_of(&refused)["violated-policies"],
        json!(["no-entry/deny"])
    );
    assert_eq!(ask("/v1/forward_auth", "ann", "/old/7").status, 410);
    assert_eq!(ask("/v1/forward_auth", "ann", "/old/").status, 200);
    let plain = ask("/v1/forward_auth?denied=403", "ann", "/old/7");
    assert_eq!((plain.status, &*plain.body), (403, ""));
    assert_eq!(plain.header("x-fluxgate-outcome"), Some("forbidden"));
}

/// The store is not asked, so that it fails changes nothing.
#[test]
fn actions_decide_while_redis_is_down() {
    let server = RedisServer::start();
    let store = format!("store: {{ redis: {{ url: \"{}\" }} }}\n", server.url());
    let service = Service::start(&[], &(store + RULES));
    let mut http = service.http();
    server.kill();
    for _ in 0..3 {
        assert_eq!(json_of(&http.post("/v1/check", EVE)), forbidden("no-entry"));
        assert_eq!(json_of(&http.post("/v1/check", OFFICE)), exempt("office"));
    }
    let ann = http.post(
        "/v1/check?status=true",
        r#"{"rule_set":"api","user":"ann"}"#,
    );
    assert_eq!(ann.status, 503, "limits fail closed");
    assert_eq!(http.post("/v1/check?status=true", EVE).status, 403);
}
