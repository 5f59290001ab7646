//! What the console shows: the live view, the heaviest identities, instances and sessions.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use fluxgate_testkit::{RedisServer, wait_for, wait_until};
use serde_json::{Value, json};

use super::Service;
use crate::support::Dir;

/// Events come every second.
const MOST_SILENCE: Duration = Duration::from_secs(30);

pub(super) const RULES: &str = r#"
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
pub(super) fn get(service: &Service, path: &str) -> Value {
    let answer = service.http().get(path);
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

#[track_caller]
pub(super) fn post(service: &Service, path: &str, body: &Value) -> Value {
    let answer = service.http().post(path, &body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

#[track_caller]
pub(super) fn check(service: &Service, user: &str) -> bool {
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
        Self::of(stream)
    }

    fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(MOST_SILENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    /// Returns the next event; `None` at the end.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            match self.0.read_line(&mut line) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no event: {error}"),
                // The last chunk, or the end of the connection.
                Ok(0) | Err(_) => return None,
                Ok(_) if line == "0\r\n" => return None,
                Ok(_) => {}
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
    let mut events = Events::of(stream);
    events.next().unwrap();
    service
        .dir
        .write("tokens", format!("ops:viewer:{}\n", hash.replace('2', "3")));
    while events.next().is_some() {}
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
    let entry = |handle: &Value, identity: &str, outcomes: Value| {
        assert!(handle.is_string());
        let counts = outcomes.as_object().unwrap().values();
        let count: u64 = counts.filter_map(Value::as_u64).sum();
        json!({
            "rule_set": "api", "rule": "per-user", "identity": identity, "handle": handle,
            "count": count, "error": 0, "outcomes": outcomes,
        })
    };
    let handles = [0, 1].map(|index| &denied["entries"][index]["handle"]);
    assert_eq!(
        denied,
        json!({
            "by": "denied", "window_ms": 60_000, "total": 5, "error": 0,
            "scope": "instance", "instances": 1, "failure": null,
            "entries": [
                entry(handles[0], "user=ann", json!({ "denied": 4 })),
                entry(handles[1], "user=<b>bob</b>", json!({ "denied": 1 })),
            ],
        })
    );
    let ann = entry(handles[0], "user=ann", json!({ "allowed": 3, "denied": 4 }));
    let requests = get(&service, "/v1/top?by=requests&window=50s&n=1&rule=per-user");
    assert_eq!(requests["entries"], json!([ann]));
    // Both rules decide each request. The global one has the most.
    assert_eq!(
        (&requests["total"], &requests["window_ms"]),
        (&json!(26), &json!(50_000))
    );
    let all = get(&service, "/v1/top?by=requests&n=1");
    assert_eq!(
        (
            &all["entries"][0]["identity"],
            &all["entries"][0]["outcomes"]
        ),
        (&json!("(everyone)"), &json!({ "allowed": 8 }))
    );
    for query in ["identity=user%3Dann", "rule_set=api&outcome=denied&n=1"] {
        let found = get(&service, &format!("/v1/top?{query}"));
        assert_eq!(found["entries"][0]["handle"], *handles[0], "{query}");
        assert_eq!(found["entries"].as_array().unwrap().len(), 1, "{query}");
    }
    for bad in [
        "outcome=x",
        "identity=ann",
        "handle=x",
        "by=cost",
        "window=61s",
        "window=x",
        "n=0",
        "m=1",
        "n=%zz",
    ] {
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
        let names_ann = text.contains("=ann") || text.contains("\"ann\"");
        assert!(!names_ann && text.contains('~'), "{text}");
    }
}

#[test]
fn instances_of_one_redis_know_each_other() {
    let server = RedisServer::start();
    let config = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\n{RULES}",
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
    for (entry, service) in [(&list[0], &first), (&list[1], &second)] {
        assert_eq!(entry["address"], service.address("api").to_string());
        assert_eq!(
            entry["store"],
            json!({ "kind": "redis", "breaker": "closed" })
        );
        for (field, value) in [("waiting", 0), ("slots", 0), ("leased_units", 0)] {
            assert_eq!(entry[field], value, "{field}");
        }
        assert_eq!(entry["webhooks"], json!([]));
    }
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
