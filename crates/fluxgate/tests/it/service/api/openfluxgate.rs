//! `POST /api/ratelimit/check` and the camel case names of `/v1/consume`, for applications of
//! OpenFluxGate.

use std::time::Duration;

use fluxgate_testkit::{Http, RedisServer};
use serde_json::{Value, json};

use super::json_of;
use crate::service::Service;
use crate::support::Dir;

const CHECK: &str = "/api/ratelimit/check";

const RULES: &str = r#"
rule_sets:
  api-limits:
    rules:
      - { id: per-user, scope: per_user, on_missing_key: skip, bands: [ { capacity: 2, window: 30d } ] }
      - { id: per-ip, scope: per_ip, on_missing_key: skip, match: { path: ["/ip/**"] }, bands: [ { capacity: 1, window: 30d } ] }
      - { id: per-key, scope: per_api_key, on_missing_key: skip, match: { methods: [POST] }, bands: [ { capacity: 1, window: 30d } ] }
      - { id: no-entry, action: deny, match: { user: eve } }
  others:
    rules:
      - { id: wait, scope: per_user, on_exceed: wait, max_wait: 1h, match: { path: ["/wait"] }, bands: [ { capacity: 1, window: 1h } ] }
      - { id: never, scope: per_user, cost: 3, match: { path: ["/never"] }, bands: [ { capacity: 2, window: 1h } ] }
      - { id: shadow, scope: per_user, mode: shadow, match: { path: ["/shadow"] }, bands: [ { capacity: 1, window: 1h } ] }
"#;

fn check(http: &mut Http, body: &Value) -> Value {
    let answer = http.post(CHECK, &body.to_string());
    assert_eq!(answer.status, 200, "{body}: {answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    json_of(&answer)
}

fn allowed(remaining: i64) -> Value {
    json!({ "allowed": true, "remaining": remaining, "retryAfterMs": 0 })
}

const NEVER: i64 = -1;

fn denied(remaining: i64) -> Value {
    json!({ "allowed": false, "remaining": remaining, "retryAfterMs": NEVER })
}

/// A request of `HttpRateLimitHandler`, with the fields that it sends.
fn request(rule_set: &str, user: &str, endpoint: &str) -> Value {
    json!({
        "ruleSetId": rule_set, "clientIp": "192.0.2.7", "userId": user, "apiKey": "",
        "endpoint": endpoint, "method": "GET",
    })
}

/// The bytes of `HttpRateLimitHandler` with Spring Framework 6.2 on Java 17: a chunked body, and an
/// offer of HTTP/2, which the service does not take.
const RECORDED: &str = "POST /api/ratelimit/check HTTP/1.1\r\n\
Connection: Upgrade, HTTP2-Settings\r\n\
Host: 127.0.0.1:46675\r\n\
HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\n\
Transfer-encoding: chunked\r\n\
Upgrade: h2c\r\n\
User-Agent: Java-http-client/17.0.15\r\n\
Content-Type: application/json\r\n\
\r\n\
82\r\n\
{\"method\":\"GET\",\"clientIp\":\"0:0:0:0:0:0:0:1\",\"apiKey\":\"\",\"userId\":\"사용자-1\",\
\"endpoint\":\"/api/주문\",\"ruleSetId\":\"api-limits\"}\r\n\
0\r\n\
\r\n";

#[test]
fn the_requests_of_the_java_client_are_answered() {
    let service = Service::start(&[], RULES);
    // The client keeps its connection.
    let mut http = service.http();
    for expected in [
        r#"{"allowed":true,"remaining":1,"retryAfterMs":0}"#,
        r#"{"allowed":true,"remaining":0,"retryAfterMs":0}"#,
    ] {
        http.send_raw(RECORDED.as_bytes()).unwrap();
        let answer = http.read_answer(false).unwrap();
        assert_eq!((answer.status, &*answer.body), (200, expected));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("upgrade"), None);
    }
    for piece in RECORDED.as_bytes().chunks(50) {
        http.send_raw(piece).unwrap();
    }
    let refused = json_of(&http.read_answer(false).unwrap());
    assert_eq!(
        (&refused["allowed"], &refused["remaining"]),
        (&json!(false), &json!(0))
    );
    assert!(refused["retryAfterMs"].as_u64().unwrap() > 0, "{refused}");
    let unknown = RECORDED.replace("api-limits", "none-exist");
    http.send_raw(unknown.as_bytes()).unwrap();
    assert_eq!(json_of(&http.read_answer(false).unwrap()), allowed(-1));
}

#[test]
fn a_request_is_decided_by_its_user_address_and_key() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let ann = request("api-limits", "ann", "/api/x");
    assert_eq!(check(&mut http, &ann), allowed(1));
    assert_eq!(check(&mut http, &ann), allowed(0));
    let refused = check(&mut http, &ann);
    assert_eq!(refused["allowed"], false);
    assert_eq!(refused["remaining"], 0);
    let wait = Duration::from_millis(refused["retryAfterMs"].as_u64().unwrap());
    assert!(wait > Duration::from_secs(14 * 86_400) && wait <= Duration::from_secs(15 * 86_400));
    // Another user, whose name is not ASCII, and the same counter as in a check.
    let korean = request("api-limits", "사용자-가나다", "/api/x");
    assert_eq!(check(&mut http, &korean), allowed(1));
    let checked = http.post(
        "/v1/check",
        r#"{"rule_set":"api-limits","user":"사용자-가나다"}"#,
    );
    assert_eq!(json_of(&checked)["remaining"], 0);
    // By address; Java writes IPv6 in full, and appends the zone.
    for (ip, is_allowed) in [
        ("192.0.2.8", true),
        ("192.0.2.8", false),
        ("::ffff:192.0.2.8", false),
        ("2001:db8:0:0:0:0:0:1", true),
        ("fe80:0:0:0:0:0:0:1%eth0", true),
        ("fe80:0:0:0:0:0:0:2%eth1", false),
    ] {
        let mut body = request("api-limits", "", "/ip/x");
        body["clientIp"] = ip.into();
        assert_eq!(check(&mut http, &body)["allowed"], is_allowed, "{ip}");
    }
    for is_allowed in [true, false] {
        let mut body = request("api-limits", "", "/api/x");
        body["method"] = "POST".into();
        body["apiKey"] = "k1".into();
        assert_eq!(check(&mut http, &body)["allowed"], is_allowed);
    }
}

#[test]
fn empty_values_count_as_absent_and_other_fields_are_ignored() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    // No rule applies.
    for body in [
        request("api-limits", "", "/api/x"),
        json!({ "ruleSetId": "api-limits" }),
        json!({ "ruleSetId": "api-limits", "userId": null, "clientIp": null, "method": null }),
        json!({ "ruleSetId": "api-limits", "attributes": { "a": [1, { "b": null }] }, "cost": -1, "user": "ann" }),
    ] {
        assert_eq!(check(&mut http, &body), allowed(-1), "{body}");
    }
}

#[test]
fn what_is_not_reported_is_minus_one() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    // A rule set that does not exist.
    assert_eq!(check(&mut http, &request("none", "ann", "/")), allowed(-1));
    assert_eq!(
        check(&mut http, &request("api-limits", "eve", "/")),
        denied(0)
    );
    assert_eq!(
        check(&mut http, &request("others", "ann", "/never")),
        denied(2)
    );
    for _ in 0..2 {
        let shadow = request("others", "ann", "/shadow");
        assert_eq!(check(&mut http, &shadow), allowed(-1));
    }
    let service = Service::start(&[], &format!("on_missing_rule_set: deny\n{RULES}"));
    let missing = request("없는-규칙", "ann", "/");
    assert_eq!(check(&mut service.http(), &missing), denied(-1));
}

/// The response has no delay, so that a request cannot be told to wait.
#[test]
fn a_request_that_would_have_to_wait_is_denied_and_takes_nothing() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let body = request("others", "ann", "/wait");
    assert_eq!(check(&mut http, &body), allowed(0));
    for _ in 0..3 {
        let refused = check(&mut http, &body);
        assert_eq!(refused["allowed"], false);
        let wait = refused["retryAfterMs"].as_u64().unwrap();
        assert!((1..=3_600_000).contains(&wait), "{refused}");
    }
}

#[test]
fn the_invalid_field_is_named() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    for (body, detail) in [
        ("", "the body is not a JSON object"),
        ("[]", "the body is not a JSON object"),
        ("{", "EOF while parsing an object"),
        ("{}", "`ruleSetId` is missing"),
        (r#"{"ruleSetId":""}"#, "`ruleSetId` is missing"),
        (
            r#"{"ruleSetId":7}"#,
            "`ruleSetId`: invalid type: integer `7`, expected a string",
        ),
        (
            r#"{"userId":["a"]}"#,
            "`userId`: invalid type: sequence, expected a string",
        ),
        (r#"{"userId":"a","userId":"b"}"#, "duplicate field `userId`"),
        (
            r#"{"ruleSetId":"api-limits","clientIp":"unknown"}"#,
            "`clientIp` must be an IP address, found \"unknown\"",
        ),
        (
            r#"{"ruleSetId":"api-limits","clientIp":"192.0.2.1, 192.0.2.2"}"#,
            "`clientIp` must be an IP address",
        ),
    ] {
        let answer = http.post(CHECK, body);
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        let problem = json_of(&answer);
        let found = problem["detail"].as_str().unwrap();
        assert!(found.starts_with(detail), "{body}: {found}");
    }
    let large = format!("{{\"userId\":\"{}\"}}", "x".repeat(64 * 1024));
    assert_eq!(service.http().post(CHECK, &large).status, 413);
    assert_eq!(service.http().get(CHECK).status, 405);
    let elsewhere = [("Origin", "https://evil.example")];
    let answer = http.request("POST", CHECK, &elsewhere, "{}");
    assert_eq!(answer.status, 403);
    // Nothing was charged.
    let ann = request("api-limits", "ann", "/");
    assert_eq!(check(&mut http, &ann), allowed(1));
}

/// As every decision, the call needs no token; the tokens are for changes.
#[test]
fn tokens_are_for_other_calls() {
    let dir = Dir::new();
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    dir.write("tokens", format!("ops:viewer:{hash}\n"));
    let config = format!("admin: {{ tokens_file: tokens }}\n{RULES}");
    let service = Service::start_in(dir, &[], &config);
    let mut http = service.http();
    assert_eq!(http.get("/v1/state?rule_set=a&rule=b").status, 401);
    let ann = request("api-limits", "ann", "/");
    assert_eq!(check(&mut http, &ann), allowed(1));
    let wrong = [("Authorization", "Bearer wrong")];
    let answer = http.request("POST", CHECK, &wrong, &ann.to_string());
    assert_eq!(json_of(&answer), allowed(0));
}

/// The only rule set need not be named, as in a check. The counters are in Redis.
#[test]
fn instances_share_the_counters_and_the_only_rule_set_is_the_default() {
    let redis = RedisServer::start();
    let config = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s, near_cache: false }} }}\n\
         rule_sets: {{ 제한: {{ rules: [ {{ id: r, scope: per_user, bands: [ {{ capacity: 2, window: 30d }} ] }} ] }} }}\n",
        redis.url()
    );
    let services = [(); 2].map(|()| Service::start(&[], &config));
    let [first, second] = services.each_ref().map(Service::http);
    let bodies = [
        request("", "ann", "/"),
        request("제한", "ann", "/"),
        json!({ "userId": "ann" }),
    ];
    for ((mut http, body), is_allowed) in [first, second, services[0].http()]
        .into_iter()
        .zip(bodies)
        .zip([true, true, false])
    {
        assert_eq!(check(&mut http, &body)["allowed"], is_allowed, "{body}");
    }
}

#[test]
fn consume_answers_camel_case_in_camel_case() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    for (body, answer) in [
        (
            r#"{"ruleId":"mail","identity":"ann","capacity":2,"refillTokensPerSecond":0.5}"#,
            r#"{"allowed":true,"retryAfterMs":0,"remaining":1}"#,
        ),
        // One bucket, whatever the spelling.
        (
            r#"{"rule_id":"mail","identity":"ann","capacity":2,"refill_tokens_per_second":0.5}"#,
            r#"{"allowed":true,"retry_after_ms":0,"remaining":0}"#,
        ),
        (
            r#"{"rule_id":"m","capacity":2,"refillTokensPerSecond":0.5,"cost":3}"#,
            r#"{"allowed":false,"retryAfterMs":null,"remaining":2}"#,
        ),
        (
            r#"{"ruleId":"api-limits/per-user","identity":"사용자"}"#,
            r#"{"allowed":true,"retryAfterMs":0,"remaining":1}"#,
        ),
    ] {
        let got = http.post("/v1/consume", body);
        assert_eq!((got.status, &*got.body), (200, answer), "{body}");
    }
    let unknown = http.post("/v1/consume", r#"{"ruleId":"api-limits/none"}"#);
    assert_eq!(unknown.status, 404, "{unknown:?}");
}
