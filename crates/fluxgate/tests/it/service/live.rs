//! What the console is made of: the live view, the heaviest identities, recorded requests,
//! simulations, instances and sessions.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use fluxgate_testkit::{RedisServer, wait_for, wait_until};
use serde_json::{Value, json};

use super::Service;
use crate::support::Dir;

const RULES: &str = r#"
rule_sets:
  api:
    rules:
      - id: per-user
        match: { path: ["/api/**"] }
        scope: per_user
        algorithm: fixed_window
        bands: [ { id: month, capacity: 3, window: 30d } ]
      - { id: all, scope: global, algorithm: fixed_window, bands: [ { capacity: 1000, window: 30d } ] }
"#;

#[track_caller]
fn get(service: &Service, path: &str) -> Value {
    let answer = service.http().get(path);
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

#[track_caller]
fn post(service: &Service, path: &str, body: &Value) -> Value {
    let answer = service.http().post(path, &body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

#[track_caller]
fn check(service: &Service, user: &str) -> bool {
    let request = json!({
        "user": user, "path": "/api/x", "method": "GET", "ip": "203.0.113.9",
        "api_key": "secret-key", "headers": { "x-client": "app" },
    });
    post(service, "/v1/check", &request)["allowed"] == true
}

/// Reads the events of `/v1/live`.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(service: &Service) -> Self {
        let mut stream = TcpStream::connect(service.address("api")).unwrap();
        let head = "GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    /// Returns the next event; `None` at the end.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }
}

#[test]
fn the_live_view_shows_each_decision_once() {
    let service = Service::start(&[], RULES);
    let mut events = Events::open(&service);
    let first = events.next().unwrap();
    assert_eq!(first["store"]["kind"], "memory");
    assert_eq!(first["store"]["breaker"], "closed");
    assert_eq!(first["leases"], Value::Null);
    for _ in 0..5 {
        check(&service, "ann");
    }
    let (mut allowed, mut denied, mut used) = (0, 0, 0.0_f64);
    while allowed + denied < 5 {
        let event = events.next().unwrap();
        let count = |name: &str| event["decisions"][name].as_u64().unwrap_or_default();
        allowed += count("allowed");
        denied += count("denied");
        for rule in event["rules"].as_array().unwrap() {
            assert_eq!(rule["rule"], "per-user");
            used = used.max(rule["used"].as_f64().unwrap());
            assert!(event["latency_us"]["p99"].as_f64().unwrap() > 0.0);
        }
    }
    assert_eq!((allowed, denied, used), (3, 2, 1.0));
    let quiet = events.next().unwrap();
    assert_eq!(quiet["decisions"], json!({}));
    assert_eq!(quiet["rules"], json!([]));
    assert_eq!(quiet["latency_us"], json!({ "p50": null, "p99": null }));
}

#[test]
fn many_viewers_get_each_event() {
    let service = Service::start(&[], RULES);
    let mut viewers: Vec<_> = (0..300).map(|_| Events::open(&service)).collect();
    for viewer in &mut viewers {
        let mut time = || viewer.next().unwrap()["at_ms"].as_u64().unwrap();
        let [first, second, third] = [time(), time(), time()];
        assert!(first < second && second < third);
    }
}

#[test]
fn the_live_view_ends_with_the_service() {
    let service = Service::start(&[], RULES);
    let mut events = Events::open(&service);
    events.next().unwrap();
    service.program.signal("TERM");
    while events.next().is_some() {}
    assert!(service.program.wait().success());
}

#[test]
fn the_revision_follows_the_rules() {
    let revision = |rules: &str| {
        let service = Service::start(&[], rules);
        let event = Events::open(&service).next().unwrap();
        event["revision"].as_str().unwrap().to_owned()
    };
    let first = revision(RULES);
    assert_eq!(first, revision(RULES));
    assert_ne!(first, revision(&RULES.replace("1000", "1001")));
}

#[test]
fn the_heaviest_identities_are_listed_by_rule() {
    let service = Service::start(&[], RULES);
    for (user, times) in [("ann", 7), ("<b>bob</b>", 4), ("carol", 2)] {
        for _ in 0..times {
            check(&service, user);
        }
    }
    let denied = get(&service, "/v1/top");
    let entry = |identity: &str, count: u64| {
        json!({
            "rule_set": "api", "rule": "per-user", "identity": identity, "count": count, "error": 0,
        })
    };
    assert_eq!(
        denied,
        json!({
            "by": "denied", "window_ms": 60_000, "total": 5, "error": 0,
            "entries": [entry("user=ann", 4), entry("user=<b>bob</b>", 1)],
        })
    );
    let requests = get(&service, "/v1/top?by=requests&window=10s&n=1");
    assert_eq!(requests["entries"], json!([entry("user=ann", 7)]));
    assert_eq!(
        (&requests["total"], &requests["window_ms"]),
        (&json!(13), &json!(10_000))
    );
    for bad in ["by=cost", "window=61s", "window=x", "n=0", "m=1", "n=%zz"] {
        let answer = service.http().get(&format!("/v1/top?{bad}"));
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
    }
}

#[test]
fn hashed_identities_are_not_listed_by_name() {
    let dir = Dir::new();
    dir.write("secret", "0123456789abcdef0123456789abcdef");
    let config = "keys: { hash_keys: all, hash_secret_file: secret }\nadmin: { record: true }\n";
    let service = Service::start_in(dir, &[], &format!("{config}{RULES}"));
    check(&service, "ann");
    check(&service, "ann");
    let top = get(&service, "/v1/top?by=requests").to_string();
    let recent = get(&service, "/v1/recent").to_string();
    assert!(top.contains("\"count\":2"), "{top}");
    for text in [top, recent] {
        assert!(!text.contains("ann") && text.contains("~"), "{text}");
    }
}

#[test]
fn requests_are_recorded_only_if_asked_for_and_without_identities() {
    let service = Service::start(&[], RULES);
    check(&service, "ann");
    assert_eq!(
        get(&service, "/v1/recent"),
        json!({ "records": false, "identities": false, "events": [] })
    );

    let service = Service::start(&[], &format!("admin: {{ record: true }}\n{RULES}"));
    for user in ["ann", "bob", "ann"] {
        check(&service, user);
    }
    let recent = get(&service, "/v1/recent");
    let events = recent["events"].as_array().unwrap();
    assert_eq!((events.len(), &recent["records"]), (3, &json!(true)));
    assert_eq!(events[0]["user"], events[2]["user"]);
    assert_ne!(events[0]["user"], events[1]["user"]);
    assert_eq!(events[0]["path"], "/api/x");
    let header = &events[0]["headers"]["x-client"];
    assert!(header.as_str().unwrap().starts_with('~'), "{header}");
    assert!(events[0]["ip"].as_str().unwrap().starts_with("203.0."));
    for hidden in ["ann", "203.0.113.9", "secret-key"] {
        assert!(!recent.to_string().contains(hidden), "{recent}");
    }
    let last = get(&service, "/v1/recent?n=1");
    assert_eq!(last["events"], json!([events[2]]));
    // They can be tried as they are.
    let rules = RULES.replace("capacity: 3", "capacity: 1");
    let tried = post(
        &service,
        "/v1/simulate",
        &json!({ "rules": rules, "events": events }),
    );
    assert_eq!(tried["changes"]["newly_denied"], 1);

    let config = "admin: { record: true }\ntelemetry: { identities: true }\n";
    let service = Service::start(&[], &format!("{config}{RULES}"));
    check(&service, "ann");
    let named = get(&service, "/v1/recent");
    assert_eq!(named["events"][0]["user"], "ann");
    assert_eq!(named["events"][0]["headers"]["x-client"], "app");
    assert_eq!(named["identities"], true);
    assert!(!named.to_string().contains("secret-key"));
}

#[test]
fn recorded_requests_show_only_the_values_that_rules_match() {
    let rules = r#"
keys: { hash_keys: all }
admin: { record: true }
rule_sets:
  api:
    rules:
      - { id: a, match: { headers: { x-plan: free }, attributes: { kind: read } }, key: ["header:x-tenant"], bands: [ 9/h ] }
  paths:
    rules:
      - { id: p, key: [path], bands: [ 9/h ] }
"#;
    let service = Service::start(&[], rules);
    let request = json!({
        "rule_set": "api", "path": "/x?token=t0ken",
        "headers": { "X-Plan": "free", "x-tenant": "acme", "cookie": "sid=1" },
        "attributes": { "kind": "read", "email": "a@example.com" },
    });
    post(&service, "/v1/check", &request);
    let request = json!({ "rule_set": "paths", "path": "/u/ann" });
    post(&service, "/v1/check", &request);
    let recent = get(&service, "/v1/recent");
    let event = &recent["events"][0];
    assert_eq!(event["path"], "/x");
    assert_eq!(event["headers"]["X-Plan"], "free", "{event}");
    assert_eq!(event["attributes"]["kind"], "read");
    for hidden in ["t0ken", "acme", "sid=1", "example.com", "/u/ann"] {
        assert!(!recent.to_string().contains(hidden), "{hidden}: {recent}");
    }
}

#[test]
fn recorded_requests_are_decided_as_they_were() {
    let rules = r#"
keys: { ipv6_prefix: 48 }
admin: { record: true }
rule_sets:
  api: { rules: [ { id: ip, scope: per_ip, algorithm: fixed_window, bands: [ { capacity: 3, window: 30d } ] } ] }
"#;
    let service = Service::start(&[], rules);
    for host in 1..=6 {
        let request = json!({ "ip": format!("2001:db8:1:{host}::{host}") });
        let decision = post(&service, "/v1/check", &request);
        assert_eq!(decision["allowed"], host <= 3);
    }
    let events = get(&service, "/v1/recent")["events"].clone();
    let only = &rules[rules.find("rule_sets").unwrap()..];
    let tried = post(
        &service,
        "/v1/simulate",
        &json!({ "rules": only, "events": events }),
    );
    assert_eq!(tried["summary"]["total"]["denied"], 3);
    assert_eq!(tried["changes"]["newly_allowed"], 0);
    assert_eq!(tried["changes"]["newly_denied"], 0);
}

#[test]
fn a_simulation_has_a_bound() {
    let service = Service::start(&[], RULES);
    let rule = |id: usize| json!({ "id": format!("r{id}"), "scope": "per_user", "bands": ["9/h"] });
    let rules: Vec<_> = (0..500).map(rule).collect();
    let rules = json!({ "rule_sets": { "api": { "rules": rules } } }).to_string();
    let events: Vec<_> = (0..1000)
        .map(|t| json!({ "t": t, "user": "ann" }))
        .collect();
    let mut http = service.http();
    let request = json!({ "rules": rules, "events": events }).to_string();
    let refused = http.post("/v1/simulate", &request);
    assert_eq!(refused.status, 400, "{refused:?}");
    let expected = "`events[400]`: the events before it were counted by 200000 rules in all";
    assert!(refused.body.contains(expected), "{refused:?}");
}

#[test]
fn the_live_view_ends_when_its_token_is_taken_away() {
    let dir = Dir::new();
    // The hash of `secret`.
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    dir.write("tokens", format!("ops:viewer:{hash}\n"));
    let config = format!("admin: {{ tokens_file: tokens }}\n{RULES}");
    let service = Service::start_in(dir, &[], &config);
    let mut stream = TcpStream::connect(service.address("api")).unwrap();
    let head = "GET /v1/live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut events = Events(BufReader::new(stream));
    events.next().unwrap();
    service
        .dir
        .write("tokens", format!("ops:viewer:{}\n", hash.replace('2', "3")));
    while events.next().is_some() {}
}

#[test]
fn rules_are_tried_without_touching_the_store() {
    let service = Service::start(&[], RULES);
    let event = |t: u64| json!({ "t": t, "user": "ann", "path": "/api/x" });
    let events: Vec<_> = (0..4).map(event).collect();
    let active = post(&service, "/v1/simulate", &json!({ "events": events }));
    let allowed = |answer: &Value| -> Vec<bool> {
        let decisions = answer["decisions"].as_array().unwrap().iter();
        decisions.map(|it| it["allowed"] == true).collect()
    };
    assert_eq!(allowed(&active), [true, true, true, false]);
    assert_eq!(active["changes"], Value::Null);
    assert_eq!(active["summary"]["total"]["denied"], 1);
    let rules = RULES.replace("capacity: 3", "capacity: 1");
    let changed = post(
        &service,
        "/v1/simulate",
        &json!({ "rules": rules, "events": events }),
    );
    assert_eq!(allowed(&changed), [true, false, false, false]);
    assert_eq!(
        changed["changes"],
        json!({
            "newly_denied": 2, "newly_allowed": 0,
            "identities": [{
                "rule_set": "api", "rule": "per-user", "identity": "user=ann",
                "newly_denied": 2, "newly_allowed": 0,
            }],
        })
    );
    let state = get(
        &service,
        "/v1/state?rule_set=api&rule=per-user&identity=ann",
    );
    assert_eq!(state["bands"][0]["remaining"], 3);
}

#[test]
fn what_cannot_be_simulated_is_named() {
    let service = Service::start(&[], RULES);
    let many = vec![json!({ "t": 0 }); 10_001];
    let cases = [
        (json!({}), "`events` is missing"),
        (
            json!({ "events": [{ "t": 0 }, { "t": -1 }] }),
            "`events[1]`: ",
        ),
        (
            json!({ "events": many }),
            "`events` has 10001; at most 10000 are allowed",
        ),
        (
            json!({ "events": [], "rules": "rule_sets: 1" }),
            "the rules are invalid",
        ),
    ];
    for (body, expected) in cases {
        let answer = service.http().post("/v1/simulate", &body.to_string());
        let detail: Value = serde_json::from_str(&answer.body).unwrap();
        let detail = detail["detail"].as_str().unwrap_or_default();
        assert!(
            answer.status == 400 && detail.starts_with(expected),
            "{answer:?}"
        );
    }
    let bad = json!({ "events": [{ "t": 0 }, { "t": -1 }], "lenient": true });
    let lenient = post(&service, "/v1/simulate", &bad);
    assert_eq!(lenient["skipped"], 1);
    let events = json!([{ "t": 0, "rule_set": "none", "user": "ann" }]);
    let missing = post(&service, "/v1/simulate", &json!({ "events": events }));
    let expected = "there is no rule set `none`; its requests were allowed";
    assert_eq!(missing["warnings"], json!([expected]));
}

#[test]
fn instances_of_one_redis_know_each_other() {
    let server = RedisServer::start();
    let config = format!(
        "store: {{ redis: {{ url: \"{}\" }} }}\n{RULES}",
        server.url()
    );
    let services = [Service::start(&[], &config), Service::start(&[], &config)];
    let instances = |service: &Service| -> Vec<Value> {
        let list = get(service, "/v1/instances");
        assert_eq!(list["failure"], Value::Null);
        list["instances"].as_array().unwrap().clone()
    };
    wait_until("both are there", || {
        services.iter().all(|service| instances(service).len() == 2)
    });
    let [first, second] = services;
    let list = instances(&first);
    assert_eq!(
        (&list[0]["is_self"], &list[1]["is_self"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(list[0]["revision"], list[1]["revision"]);
    assert_eq!(list[0]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(get(&second, "/v1/session")["instance"], list[1]["id"]);
    second.program.signal("TERM");
    assert!(second.program.wait().success());
    assert_eq!(instances(&first).len(), 1);
    drop(server);
    let alone = wait_for("Redis is gone", || {
        let list = get(&first, "/v1/instances");
        list["failure"].is_string().then_some(list)
    });
    assert_eq!(alone["instances"].as_array().unwrap().len(), 1);
}

#[test]
fn an_instance_in_memory_is_alone() {
    let service = Service::start(&[], RULES);
    let list = get(&service, "/v1/instances");
    assert_eq!(list["instances"].as_array().unwrap().len(), 1);
    assert_eq!(
        list["instances"][0]["id"],
        get(&service, "/v1/session")["instance"]
    );
}

#[test]
fn a_session_says_what_the_caller_may_do() {
    let service = Service::start(&[], RULES);
    let session = get(&service, "/v1/session");
    assert_eq!(
        (
            &session["name"],
            &session["role"],
            &session["tokens"],
            &session["writable"]
        ),
        (
            &json!("loopback"),
            &json!("admin"),
            &json!(false),
            &json!(false)
        )
    );
    let dir = Dir::new();
    // The hash of `secret`.
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    dir.write("tokens", format!("ops:operator:{hash}\n"));
    let config = format!("admin: {{ tokens_file: tokens }}\n{RULES}");
    let service = Service::start_in(dir, &[], &config);
    let paths = [
        "session",
        "live",
        "top",
        "recent",
        "instances",
        "rules_text",
    ];
    for path in paths {
        let answer = service.http().get(&format!("/v1/{path}"));
        assert_eq!(answer.status, 401, "{path}: {answer:?}");
    }
    let token = [("Authorization", "Bearer secret")];
    let answer = service.http().request("GET", "/v1/session", &token, "");
    let session: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(
        (&session["name"], &session["role"]),
        (&json!("ops"), &json!("operator"))
    );
}

#[test]
fn the_page_is_served_with_a_strict_policy() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    for path in ["/", "/console"] {
        let answer = http.get(path);
        assert_eq!(
            (answer.status, answer.header("location")),
            (307, Some("/console/"))
        );
    }
    let page = http.get("/console/");
    assert_eq!(page.status, 200, "{page:?}");
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let policy = page.header("content-security-policy").unwrap();
    for directive in policy.split("; ") {
        let (name, sources) = directive.split_once(' ').unwrap();
        assert!(matches!(sources, "'none'" | "'self'"), "{name}: {sources}");
    }
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    let etag = page.header("etag").unwrap();
    let known = http.request("GET", "/console/", &[("If-None-Match", etag)], "");
    assert_eq!((known.status, known.body.len()), (304, 0));
    let script = http.get("/console/main.js");
    assert_eq!(
        script.header("content-type"),
        Some("text/javascript; charset=utf-8")
    );
    assert_eq!(http.get("/console/nothing.js").status, 404);
    assert_eq!(http.get("/console/../Cargo.toml").status, 404);
    // As curl understands it.
    let url = format!("http://{}/console/main.js", service.address("api"));
    let curl = std::process::Command::new("curl");
    let curl = { curl }
        .args(["-s", "--compressed", "-D", "-", &url])
        .output()
        .unwrap();
    let text = String::from_utf8(curl.stdout).unwrap();
    assert!(text.contains("content-encoding: gzip") && text.ends_with(&script.body));
}
