//! `POST /v1/explain` and `POST /v1/validate`.

use fluxgate_testkit::{Http, RedisServer};
use serde_json::{Value, json};

use super::Service;
use crate::support::Dir;

const RULES: &str = r#"
rule_sets:
  api:
    on_error: local
    rules:
      - id: writes
        match: { methods: [POST] }
        scope: per_ip
        bands: [ { capacity: 1, window: 1h } ]
      - id: per-user
        scope: per_user
        rollout: 100%
        algorithm: fixed_window
        bands: [ { id: burst, capacity: 3, window: 30d } ]
"#;

#[track_caller]
fn explain(http: &mut Http, request: &str) -> Value {
    let answer = http.post("/v1/explain", request);
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

#[track_caller]
fn check(http: &mut Http, request: &str) -> Value {
    let answer = http.post("/v1/check", request);
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

/// Returns what a band has left before and after.
fn states(explained: &Value) -> (u64, u64, bool) {
    let band = &explained["rules"][1]["bands"][0];
    let left = |state: &str| band[state]["remaining"].as_u64().unwrap();
    (
        left("before"),
        left("after"),
        band["denies"].as_bool().unwrap(),
    )
}

fn explains_what_check_then_does(config: &str) {
    let service = Service::start(&[], &format!("{config}{RULES}"));
    let mut http = service.http();
    let request = r#"{"user":"ann","method":"GET"}"#;
    for (before, after) in [(3, 2), (2, 1), (1, 0)] {
        let first = explain(&mut http, request);
        let explained = explain(&mut http, request);
        assert_eq!(states(&first), (before, after, false));
        assert_eq!(states(&explained), (before, after, false));
        let decided = check(&mut http, request);
        for field in [
            "allowed",
            "outcome",
            "rule",
            "band",
            "limit",
            "remaining",
            "violated",
        ] {
            assert_eq!(explained["decision"][field], decided[field], "{field}");
        }
    }
    let explained = explain(&mut http, request);
    assert_eq!(states(&explained), (0, 0, true));
    assert_eq!(explained["decision"]["outcome"], "denied");
    let rule = &explained["rules"][0];
    assert_eq!(rule["failed"], "methods");
    assert_eq!(
        (&rule["matched"], &rule["bands"]),
        (&json!(false), &json!([]))
    );
    let rule = &explained["rules"][1];
    assert_eq!(
        (&rule["rollout"], &rule["identity"]),
        (&json!("100%"), &json!("user=ann"))
    );
}

#[test]
fn an_explanation_is_what_a_check_then_decides_and_charges_nothing() {
    explains_what_check_then_does("");
    let server = RedisServer::start();
    let url = server.url();
    explains_what_check_then_does(&format!(
        "store: {{ redis: {{ url: \"{url}\", deadline: 10s }} }}\n"
    ));
}

#[test]
fn a_delayed_request_has_no_reservation() {
    let rules = "rule_sets:\n  api:\n    rules:\n      - { id: r, scope: global, on_exceed: wait, \
                 max_wait: 1h, bands: [ 1/10m ] }\n";
    let service = Service::start(&[], rules);
    let mut http = service.http();
    assert_eq!(check(&mut http, "{}")["delay_ms"], 0);
    let explained = explain(&mut http, "{}");
    assert!(
        explained["decision"]["delay_ms"].as_u64().unwrap() > 0,
        "{explained}"
    );
    assert_eq!(explained["decision"].get("reservation"), None);
}

#[test]
fn invalid_calls_are_refused() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    for (path, body, status) in [
        ("/v1/explain", "{", 400),
        ("/v1/explain", "[]", 400),
        ("/v1/explain", r#"{"colour":1}"#, 400),
        ("/v1/explain", r#"{"ip":"here"}"#, 400),
        ("/v1/explain", r#"{"rule_set":"no"}"#, 404),
        ("/v1/validate", "{}", 400),
        ("/v1/validate", r#"{"rules":5,"more":1}"#, 400),
        ("/v1/validate", r#"{"rules":[]}"#, 400),
    ] {
        let answer = http.post(path, body);
        assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
    }
    for path in ["/v1/explain", "/v1/validate"] {
        assert_eq!(http.post(path, &" ".repeat(65_537)).status, 413);
        assert_eq!(http.get(path).status, 405);
        let evil = [("Origin", "https://evil.example")];
        assert_eq!(http.request("POST", path, &evil, "{}").status, 403);
    }
}

#[test]
fn a_store_that_does_not_answer_is_an_error() {
    let server = RedisServer::start();
    let url = server.url();
    let config = format!("store: {{ redis: {{ url: \"{url}\", deadline: 10s }} }}\n{RULES}");
    let service = Service::start(&[], &config);
    let mut http = service.http();
    explain(&mut http, "{}");
    server.kill();
    let answer = http.post("/v1/explain", "{}");
    assert_eq!(answer.status, 503, "{answer:?}");
    // A check falls back.
    assert_eq!(check(&mut http, "{}")["outcome"], "fallback");
}

#[test]
fn identities_are_hidden_where_all_are_hashed() {
    let service = Service::start(&[], &format!("keys: {{ hash_keys: all }}\n{RULES}"));
    let explained = explain(&mut service.http(), r#"{"user":"ann"}"#);
    assert_eq!(explained["rules"][1]["identity"], "(redacted)");
    assert!(!explained.to_string().contains("ann"), "{explained}");
}

/// The hash is that of `viewer`.
#[test]
fn a_viewer_may_explain_and_validate() {
    let dir = Dir::new();
    dir.write(
        "tokens",
        "vera:viewer:d35ca5051b82ffc326a3b0b6574a9a3161dee16b9478a199ee39cd803ce5b799\n",
    );
    let config = format!("admin: {{ tokens_file: tokens }}\n{RULES}");
    let service = Service::start_in(dir, &[], &config);
    let mut http = service.http();
    for (path, body) in [("/v1/explain", "{}"), ("/v1/validate", r#"{"rules":""}"#)] {
        assert_eq!(http.post(path, body).status, 401);
        let token = [("Authorization", "Bearer viewer")];
        let answer = http.request("POST", path, &token, body);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// Aliases that expand a small text: lists of lists, a long text, and nested anchors.
#[test]
fn the_values_of_a_text_are_bounded_by_its_size() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let mut lists = String::from("a0: &a0 [x]\n");
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        lists += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    assert!(lists.len() < 1000);
    let text = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(20_000),
        "*a, ".repeat(10_000)
    );
    let (open, close): (Vec<_>, Vec<_>) = (0..60).map(|at| (format!("&a{at} ["), "]")).unzip();
    let anchors = format!(
        "a: {}{}{}\n",
        open.concat(),
        "x, ".repeat(15_000),
        close.concat()
    );
    for rules in [lists, text, anchors] {
        let body = json!({ "rules": rules }).to_string();
        let answer = http.post("/v1/validate", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let report: Value = serde_json::from_str(&answer.body).unwrap();
        let values = rules.len().max(1000);
        let message = format!("too large: over {values} values");
        assert_eq!(report["faults"][0]["message"], message, "{report}");
    }
}

#[test]
fn faults_and_warnings_of_a_rule_file_have_positions() {
    let filter = "filters: { main: { rule_set: api } }\n";
    let service = Service::start(&[], &format!("{filter}{RULES}"));
    let mut http = service.http();
    let mut validate = |rules: &str| -> Value {
        let body = json!({ "rules": rules }).to_string();
        let answer = http.post("/v1/validate", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        serde_json::from_str(&answer.body).unwrap()
    };
    let none = json!({ "faults": [], "warnings": [] });
    assert_eq!(validate(crate::support::TWO_A_SECOND), none);
    let faulty =
        validate("rule_sets:\n  api: { rules: [ { id: r, scope: any, bands: [ 1/s ] } ] }\n");
    assert_eq!(faulty["warnings"], json!([]));
    let fault = &faulty["faults"][0];
    assert_eq!((&fault["line"], &fault["column"]), (&json!(2), &json!(35)));
    assert!(
        fault["message"].as_str().unwrap().contains("`scope`"),
        "{fault}"
    );
    let no_yaml = validate("a: [");
    assert_eq!(no_yaml["faults"].as_array().unwrap().len(), 1, "{no_yaml}");
    // The filters are those of the service.
    let matching = "rule_sets:\n  SET:\n    rules:\n      - { id: r, match: { attributes: { a: b } }, scope: per_user, bands: [ 1/s ] }\n";
    assert_eq!(validate(&matching.replace("SET", "web")), none);
    let warned = validate(&matching.replace("SET", "api"));
    assert_eq!(
        warned["warnings"],
        json!([{
            "line": 4, "column": 41,
            "message": "rule `r` never matches: requests of filter `main` have no attribute `a`",
        }])
    );
}
