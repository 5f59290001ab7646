//! The HTTP API.

mod bad_input;
mod cancel;
mod forward_auth;
mod holds;
mod large_heads;
mod openapi;
mod openfluxgate;
mod slow;

use std::time::Duration;

use fluxgate_testkit::Answer;
use serde_json::{Value, json};

use super::Service;
use crate::docs::{first_of, only};
use crate::support::TWO_A_SECOND;

/// Two requests a minute per user, and three an hour per address and tenant.
const RULES: &str = r#"
rule_sets:
  api:
    rules:
      - { id: by-user, scope: per_user, on_missing_key: skip, bands: [ { id: few, capacity: 2, window: 1m } ] }
      - { id: by-tenant, key: [ip, "header:X-Tenant"], on_missing_key: skip, algorithm: fixed_window,
          bands: [ { id: hourly, capacity: 3, window: 1h } ] }
  strict:
    rules:
      - { id: known, scope: per_user, on_missing_key: deny, bands: [ { capacity: 1, window: 1m } ] }
"#;

/// Leaves out numbers: the times in two answers may differ.
fn without_digits(text: &str) -> String {
    text.replace(|char: char| char.is_ascii_digit(), "")
}

fn json_of(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

#[test]
fn a_check_returns_a_decision_and_headers() {
    let service = Service::start(&[], TWO_A_SECOND);
    let mut http = service.http();
    let answer = http.post("/v1/check", r#"{"user":"u1"}"#);
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.body,
        "{\"allowed\":true,\"outcome\":\"allowed\",\"rule\":\"r\",\"band\":\"b0\",\"limit\":2,\
         \"remaining\":1,\"retry_after_ms\":0,\"reset_after_ms\":500,\"delay_ms\":0,\"violated\":[]}"
    );
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("1"));
    let reset: u64 = answer.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!(reset > 1_700_000_000, "{reset}");
    assert_eq!(answer.header("ratelimit-policy"), Some("\"r/b0\";q=2;w=1"));
    assert_eq!(answer.header("ratelimit"), Some("\"r/b0\";r=1"));
    assert_eq!(answer.header("retry-after"), None);
}

#[test]
fn the_reset_time_is_exact_to_the_second() {
    let rules = "rule_sets: { s: { rules: [ { id: r, scope: global, algorithm: fixed_window, \
                 bands: [ { capacity: 9, window: 1d } ] } ] } }\n";
    let service = Service::start(&[], rules);
    for path in ["/v1/check", "/v1/check?status=true"] {
        let answer = service.http().post(path, "{}");
        let reset: u64 = answer.header("x-ratelimit-reset").unwrap().parse().unwrap();
        assert_eq!(reset % 86_400, 0, "{path}: {reset}");
    }
}

#[test]
fn the_status_reports_denials_on_request() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let body = r#"{"rule_set":"api","user":"u1"}"#;
    for remaining in [1, 0] {
        let answer = http.post("/v1/check?status=true", body);
        assert_eq!(
            (answer.status, &json_of(&answer)["remaining"]),
            (200, &json!(remaining))
        );
    }
    let refused = http.post("/v1/check", body);
    assert_eq!(refused.status, 200);
    assert_eq!(json_of(&refused)["outcome"], "denied");
    let refused = http.post("/v1/check?status=true", body);
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    let problem = json_of(&refused);
    let kind = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    assert_eq!(
        (&problem["type"], &problem["status"]),
        (&json!(kind), &json!(429))
    );
    assert_eq!(problem["violated-policies"], json!(["by-user/few"]));
    assert!(problem["retry_after_ms"].as_u64().unwrap() > 1_000);
    // A request that can never pass has no time to retry at.
    let never = http.post("/v1/check?status=true", r#"{"rule_set":"strict"}"#);
    assert_eq!((never.status, never.header("retry-after")), (429, None));
    assert_eq!(json_of(&never)["retry_after_ms"], Value::Null);
    assert_eq!(json_of(&never)["violated"], json!(["known/missing_key"]));
    assert_eq!(
        (&json_of(&never)["title"], &json_of(&never)["detail"]),
        (
            &json!("This request can never pass the limit"),
            &json!("it lacks a part of the key that the rule counts by")
        )
    );
}

#[test]
fn the_fast_path_and_the_router_give_the_same_answers() {
    let rules = "rule_sets: { api: { rules: [
        { id: no-entry, action: deny, status: 410, match: { user: [eve] } },
        { id: by-user, key: [user], on_missing_key: deny, algorithm: fixed_window,
          bands: [ { capacity: 1, calendar: year } ] } ] } }";
    let service = Service::start(&[], rules);
    let mut http = service.http();
    assert_eq!(http.post("/v1/check", r#"{"user":"ann"}"#).status, 200);
    for query in ["", "?status=true"] {
        for (fields, status) in [
            (r#""user":"bob""#, 200),
            (r#""user":"ann""#, 429),
            (r#""user":"eve""#, 410),
            (r#""user":"bob","cost":2"#, 429),
            (r#""user":"ann","wait":true,"headers":{"x-a":"1"}"#, 429),
            (r#""path":"/""#, 429),
            (r#""rule_set":"missing""#, 200),
            (r#""users":"ann""#, 400),
            (r#""ip":"here""#, 400),
            (r#""user":"ann","user":"bob""#, 400),
        ] {
            let body = format!("{{\"peek\":true,{fields}}}");
            // The fast path does not handle `TE`.
            let [fast, routed] = [("X-Any", "1"), ("TE", "trailers")].map(|header| {
                let headers = [("X-Request-Id", "r1"), header];
                let path = format!("/v1/check{query}");
                let mut answer = http.request("POST", &path, &headers, &body);
                answer.headers.retain(|(name, _)| name != "date");
                answer.headers.sort();
                (answer.status, without_digits(&format!("{answer:?}")))
            });
            assert_eq!(fast, routed, "{query} {body}");
            let expected = if query.is_empty() && status != 400 {
                200
            } else {
                status
            };
            assert_eq!(fast.0, expected, "{query} {body}");
        }
    }
}

#[test]
fn a_peek_charges_nothing() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    for _ in 0..3 {
        let answer = http.post("/v1/check", r#"{"rule_set":"api","user":"u1","peek":true}"#);
        assert_eq!(json_of(&answer)["remaining"], 2);
    }
    let answer = http.post("/v1/check", r#"{"rule_set":"api","user":"u1","cost":2}"#);
    assert_eq!(json_of(&answer)["remaining"], 0);
}

#[test]
fn checks_of_a_batch_are_decided_separately_and_in_order() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let check = r#"{"rule_set":"api","user":"u1"}"#;
    let other = r#"{"rule_set":"api","ip":"10.0.0.1","headers":{"x-tenant":7}}"#;
    let body = format!("{{\"checks\":[{check},{check},{check},{other}]}}");
    let answer = json_of(&http.post("/v1/check/batch", &body));
    let field = |key: &str| -> Vec<Value> {
        let decisions = answer["decisions"].as_array().unwrap();
        decisions
            .iter()
            .map(|decision| decision[key].clone())
            .collect()
    };
    assert_eq!(field("allowed"), [true, true, false, true]);
    assert_eq!(
        field("rule"),
        ["by-user", "by-user", "by-user", "by-tenant"]
    );
    assert_eq!(
        json_of(&http.post("/v1/check/batch", r#"{"checks":[]}"#)),
        json!({"decisions": []})
    );
}

#[test]
fn a_batch_marks_the_checks_whose_rule_set_does_not_exist() {
    let batch = r#"{"checks":[{"rule_set":"api","path":"/none"},{"rule_set":"nowhere"},
        {"rule_set":"nowhere","peek":true}]}"#;
    for (config, outcome) in [
        (RULES.to_owned(), "no_rule"),
        (format!("on_missing_rule_set: deny\n{RULES}"), "denied"),
    ] {
        let service = Service::start(&[], &config);
        let answer = service.http().post("/v1/check/batch", batch);
        assert_eq!(answer.header("x-fluxgate-rule-set"), None);
        let decisions = json_of(&answer)["decisions"].clone();
        let mark = |index: usize| decisions[index]["rule_set"].clone();
        assert_eq!(
            [mark(0), mark(1), mark(2)],
            [Value::Null, "missing".into(), "missing".into()]
        );
        assert_eq!(decisions[0]["outcome"], "no_rule");
        assert_eq!(decisions[1]["outcome"], outcome);
        let fields = decisions[0].as_object().unwrap();
        assert!(!fields.contains_key("rule_set"), "{answer:?}");
    }
}

#[test]
fn a_batch_with_an_invalid_check_charges_nothing() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let bad = r#"{"checks":[{"rule_set":"api","user":"u1","cost":2},{"rule_set":"api","ip":"x"}]}"#;
    let answer = http.post("/v1/check/batch", bad);
    assert_eq!(answer.status, 400);
    assert_eq!(
        json_of(&answer)["detail"],
        "`checks[1]`: `ip` must be an IP address, found \"x\""
    );
    let answer = http.post("/v1/check", r#"{"rule_set":"api","user":"u1","cost":2}"#);
    assert_eq!(json_of(&answer)["allowed"], true);
}

#[test]
fn parameters_may_come_with_the_call() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let body = r#"{"rule_id":"mail","identity":"u1","cost":3,"capacity":5,"refill_tokens_per_second":0.000001}"#;
    let first = http.post("/v1/consume", body);
    assert_eq!(
        first.body,
        r#"{"allowed":true,"retry_after_ms":0,"remaining":2}"#
    );
    let second = json_of(&http.post("/v1/consume", body));
    assert_eq!(
        (&second["allowed"], &second["remaining"]),
        (&json!(false), &json!(2))
    );
    // One unit in a million seconds; a few seconds may have passed.
    let wait = second["retry_after_ms"].as_u64().unwrap();
    assert!((999_900_000..=1_000_000_000).contains(&wait), "{wait}");
    // A list is another identity, and so is another name.
    for other in [
        body.replace("\"u1\"", "[\"u1\",\"\"]"),
        body.replace("mail", "post"),
    ] {
        assert_eq!(json_of(&http.post("/v1/consume", &other))["remaining"], 2);
    }
    let never = http.post("/v1/consume", &body.replace("\"cost\":3", "\"cost\":6"));
    assert_eq!(
        never.body,
        r#"{"allowed":false,"retry_after_ms":null,"remaining":2}"#
    );
}

#[test]
fn a_configured_rule_may_be_charged_by_name() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let mut consume = |body: &str| json_of(&http.post("/v1/consume", body));
    let response = consume(r#"{"rule_id":"api/by-tenant","identity":["10.0.0.1","a"],"cost":2}"#);
    assert_eq!(
        response,
        json!({"allowed": true, "retry_after_ms": 0, "remaining": 1})
    );
    let response = consume(r#"{"rule_id":"api/by-tenant","identity":["10.0.0.1","a"],"cost":2}"#);
    assert_eq!(response["allowed"], false);
    let response = consume(r#"{"rule_id":"api/nobody","identity":"u"}"#);
    assert_eq!(
        (&response["status"], &response["detail"]),
        (
            &json!(404),
            &json!("there is no rule `nobody` in rule set `api`")
        )
    );
    let response = consume(r#"{"rule_id":"nowhere/by-user","identity":"u"}"#);
    assert_eq!(response["status"], 404);
}

#[test]
fn remaining_is_null_if_nothing_is_reported() {
    let rules = r#"
store: { redis: { url: "redis://127.0.0.1:1" } }
rule_sets:
  open:
    on_error: allow
    rules: [ { id: r, scope: per_user, bands: [ { capacity: 1, window: 1h } ] } ]
"#;
    let service = Service::start(&[], rules);
    let body = r#"{"rule_id":"open/r","identity":"u"}"#;
    assert_eq!(
        service.http().post("/v1/consume", body).body,
        r#"{"allowed":true,"retry_after_ms":0,"remaining":null,"outcome":"failed_open"}"#
    );
    let shadow = r#"
rule_sets:
  shy:
    rules: [ { id: r, mode: shadow, scope: per_user, bands: [ { capacity: 1, window: 1h } ] } ]
"#;
    let service = Service::start(&[], shadow);
    for _ in 0..2 {
        let body = r#"{"rule_id":"shy/r","identity":"u"}"#;
        assert_eq!(
            service.http().post("/v1/consume", body).body,
            r#"{"allowed":true,"retry_after_ms":0,"remaining":null}"#
        );
    }
}

#[test]
fn a_rate_may_have_an_exponent() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    // The time for one unit, less the time that has passed.
    for (number, (rate, most)) in [
        ("5e-05", 20_000_000),
        ("1e-6", 1_000_000_000),
        ("1.5e0", 667),
    ]
    .into_iter()
    .enumerate()
    {
        let body = format!(
            r#"{{"rule_id":"r{number}","cost":1,"capacity":1,"refill_tokens_per_second":{rate}}}"#
        );
        assert_eq!(json_of(&http.post("/v1/consume", &body))["allowed"], true);
        let denied = json_of(&http.post("/v1/consume", &body));
        let wait = denied["retry_after_ms"].as_u64().unwrap();
        assert!(wait <= most && wait + 10_000 > most, "{rate}: {denied}");
    }
}

#[test]
fn an_unknown_rule_set_is_decided_as_configured() {
    let service = Service::start(&[], RULES);
    let answer = service
        .http()
        .post("/v1/check", r#"{"rule_set":"nowhere"}"#);
    assert_eq!(json_of(&answer)["outcome"], "no_rule");
    assert_eq!(answer.header("x-ratelimit-limit"), None);
    assert_eq!(answer.header("x-fluxgate-rule-set"), Some("missing"));
    // A query that the fast path leaves to hyper.
    for (path, rule_set, expected) in [
        ("/v1/check?status=false", "nowhere", Some("missing")),
        ("/v1/check?status=false", "api", None),
        ("/v1/check", "api", None),
    ] {
        let body = format!(r#"{{"rule_set":"{rule_set}","path":"/none"}}"#);
        let answer = service.http().post(path, &body);
        assert_eq!(
            answer.header("x-fluxgate-rule-set"),
            expected,
            "{path} {rule_set}"
        );
    }
    let strict = format!("on_missing_rule_set: deny\n{RULES}");
    let service = Service::start(&[], &strict);
    let answer = service
        .http()
        .post("/v1/check?status=true", r#"{"rule_set":"nowhere"}"#);
    assert_eq!(
        (answer.status, &json_of(&answer)["violated"]),
        (429, &json!([]))
    );
}

#[test]
fn responses_carry_the_request_id() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let mut request_id = |path: &str, headers: &[(&str, &str)]| {
        let answer = http.request("POST", path, headers, r#"{"rule_set":"api"}"#);
        answer.header("x-request-id").map(str::to_owned)
    };
    let given = request_id("/v1/check", &[("X-Request-Id", "abc-1")]);
    assert_eq!(given.as_deref(), Some("abc-1"));
    // An id with unsafe characters is replaced.
    let generated = request_id("/nothing", &[("X-Request-Id", "a\"b")]).unwrap();
    assert!(
        generated.len() == 16 && generated.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{generated}"
    );
}

#[test]
fn http_2_is_supported() {
    let service = Service::start(&[], RULES);
    let url = format!("http://{}/v1/check", service.address("api"));
    let curl = std::process::Command::new("curl")
        .args([
            "-s",
            "--http2-prior-knowledge",
            "-w",
            " %{http_version}",
            &url,
        ])
        .args(["-d", r#"{"rule_set":"api","user":"u"}"#])
        .output()
        .unwrap();
    let output = String::from_utf8(curl.stdout).unwrap();
    assert!(output.ends_with("\"violated\":[]} 2"), "{output}");
}

/// Many clients send head and body in separate packets.
#[test]
fn a_body_may_follow_its_head() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    for pause in [0, 10, 10, 300] {
        let body = r#"{"rule_set":"none"}"#;
        let length = body.len();
        let head =
            format!("POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        http.send_raw(head.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        // Nothing of the next request is lost.
        let rest = format!("{body}{head}{body}");
        http.send_raw(rest.as_bytes()).unwrap();
        for _ in 0..2 {
            let answer = http.read_answer(false).unwrap();
            assert_eq!(json_of(&answer)["outcome"], "no_rule", "{answer:?}");
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let service = Service::start(&[], RULES);
    let body = r#"{"rule_set":"api","user":"u1"}"#;
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n",
        body.len()
    );
    let plain = format!("{head}\r\n{body}");
    let closing = format!("{head}Connection: close\r\n\r\n{body}");
    let bad = plain.replace("\"user\"", "\"usr\": 1,");
    let bad = bad.replace(&body.len().to_string(), &(body.len() + 3).to_string());
    let livez = "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut http = service.http();
    // The fast path answers the first three, hyper the rest.
    let all = format!("{plain}{bad}{plain}{livez}{plain}{closing}");
    http.send_raw(all.as_bytes()).unwrap();
    let mut answers = Vec::new();
    for _ in 0..6 {
        let answer = http.read_answer(false).unwrap();
        let remaining = if answer.body.starts_with('{') {
            json_of(&answer)["remaining"].as_u64()
        } else {
            None
        };
        answers.push((answer.status, remaining));
    }
    let refused = (200, Some(0));
    let expected = [
        (200, Some(1)),
        (400, None),
        refused,
        (200, None),
        refused,
        refused,
    ];
    assert_eq!(answers, expected);
    // A request may be split anywhere.
    for cut in 1..plain.len() {
        let mut http = service.http();
        http.send_raw(&plain.as_bytes()[..cut]).unwrap();
        std::thread::yield_now();
        http.send_raw(&plain.as_bytes()[cut..]).unwrap();
        let answer = http.read_answer(false).unwrap();
        assert_eq!(json_of(&answer)["rule"], "by-user", "{cut}");
    }
}

#[test]
fn the_documented_examples_are_answered() {
    let block = |kind: &str| only(kind).trim().to_owned();
    let rules = first_of("README.md", "yaml");
    let service = Service::start(&[], &rules);
    let mut http = service.http();
    let answer = http.post("/v1/check", &block("json check"));
    assert_eq!(answer.body, block("json decision"));
    let answer = http.post("/v1/consume", &block("json consume"));
    assert_eq!(
        answer.body,
        r#"{"allowed":true,"retry_after_ms":0,"remaining":4}"#
    );
    let answer = http.post("/api/ratelimit/check", &block("json openfluxgate-check"));
    assert_eq!(answer.body, block("json openfluxgate-checked"));
}
