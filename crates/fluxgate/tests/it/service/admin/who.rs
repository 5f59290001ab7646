//! Who may do what, and who did.

use super::*;

/// SHA-256 of the names of the roles.
pub(super) const TOKENS: &str = "# name:role:sha256
vera:viewer:d35ca5051b82ffc326a3b0b6574a9a3161dee16b9478a199ee39cd803ce5b799
olaf:operator:06e55b633481f7bb072957eabcf110c972e86691c3cfedabe088024bffe42f23
anna:admin:8c6976e5b5410415bde908bd4dee15dfb167a9c873fc4bb8a81f6f2ab448a918
";

#[test]
fn every_call_needs_its_role() {
    let server = RedisServer::start();
    let dir = Dir::new();
    dir.write("tokens", TOKENS);
    let config = config(&server.url(), "1h") + "admin: { tokens_file: tokens }\n";
    let service = Service::start_in(dir, &[], &config);
    let mut http = service.http();
    let set = set(10);
    let (of_set, of_rule) = ("/v1/rule_sets/api", "/v1/rule_sets/api/rules/r");
    let rule = r#"{"scope":"per_user","bands":[{"capacity":3,"window":"1h"}]}"#;
    let subject = r#"{"rule_set":"api","rule":"r","identity":"u"}"#;
    let refund = r#"{"rule_set":"api","rule":"r","identity":"u","units":1}"#;
    let give_back = r#"{"rule_set":"api","user":"u","reservation":"r=1.0"}"#;
    let calls = [
        ("PUT", of_set, &*set, "admin", 201),
        ("PUT", of_rule, rule, "admin", 200),
        ("GET", "/v1/rule_sets", "", "viewer", 200),
        ("GET", of_set, "", "viewer", 200),
        ("GET", of_rule, "", "viewer", 200),
        (
            "GET",
            "/v1/state?rule_set=api&rule=r&identity=u",
            "",
            "viewer",
            200,
        ),
        ("POST", "/v1/refund", refund, "operator", 200),
        ("POST", "/v1/give_back", give_back, "operator", 200),
        ("POST", "/v1/reset", subject, "operator", 200),
        (
            "POST",
            "/v1/rule_sets/api/rules/r/disable",
            "",
            "operator",
            200,
        ),
        (
            "POST",
            "/v1/rule_sets/api/rules/r/enable",
            "",
            "operator",
            200,
        ),
        ("DELETE", "/v1/rule_sets/api/rules/no", "", "admin", 404),
        ("DELETE", of_set, "", "admin", 204),
    ];
    let roles = ["viewer", "operator", "admin"];
    for (method, path, body, needed, good) in calls {
        let mut ask = |authorization: Option<&str>| {
            let mut headers = vec![("Content-Type", "application/json")];
            headers.extend(authorization.map(|it| ("Authorization", it)));
            http.request(method, path, &headers, body)
        };
        for bad in [
            None,
            Some("Bearer nobody"),
            Some("Bearer "),
            Some("Basic admin"),
            Some("admin"),
        ] {
            let answer = ask(bad);
            assert_eq!(answer.status, 401, "{method} {path} {bad:?}");
            assert!(
                answer
                    .header("www-authenticate")
                    .unwrap()
                    .starts_with("Bearer")
            );
        }
        for role in roles {
            let answer = ask(Some(&format!("bearer {role}")));
            let rank = |name| roles.iter().position(|role| *role == name);
            if rank(role) < rank(needed) {
                assert_eq!(answer.status, 403, "{method} {path} {role}: {answer:?}");
                continue;
            }
            assert_eq!(answer.status, good, "{method} {path} {role}: {answer:?}");
            // Who comes after has the same before him.
            if method == "PUT" || method == "DELETE" {
                break;
            }
        }
    }
    // Decisions need no token.
    assert_eq!(http.post("/v1/check", r#"{"rule_set":"api"}"#).status, 200);
}

#[test]
fn every_change_is_noted_with_who_and_what() {
    let server = RedisServer::start();
    let dir = Dir::new();
    dir.write("tokens", TOKENS);
    let config = config(&server.url(), "1h") + "admin: { tokens_file: tokens }\n";
    let service = Service::start_in(dir, &[], &config);
    let mut http = service.http();
    let mut ask = |method: &str, path: &str, body: &str| {
        let headers = [
            ("Content-Type", "application/json"),
            ("Authorization", "Bearer admin"),
            ("X-Request-Id", "call-7"),
        ];
        http.request(method, path, &headers, body)
    };
    let one = ask("PUT", "/v1/rule_sets/api", &set(10));
    let two = ask("PUT", "/v1/rule_sets/api", &set(20));
    ask("PUT", "/v1/rule_sets/api", "{}");
    ask(
        "POST",
        "/v1/refund",
        r#"{"rule_set":"api","rule":"r","identity":"secret-u","units":3}"#,
    );
    ask("POST", "/v1/reset", r#"{"rule_set":"api","rule":"r"}"#);
    ask("POST", "/v1/rule_sets/api/rules/r/disable", "");
    ask("DELETE", "/v1/rule_sets/api", "");
    let lines = service.wait_for_logs("changed", 6);
    assert_eq!(lines.len(), 6, "{lines:#?}");
    for line in &lines {
        assert_eq!(
            (&line["target"], &line["who"]),
            (&json!("audit"), &json!("anna"))
        );
        assert_eq!(
            (&line["rule_set"], &line["request_id"]),
            (&json!("api"), &json!("call-7"))
        );
    }
    let what: Vec<_> = lines
        .iter()
        .map(|line| line["what"].as_str().unwrap())
        .collect();
    let expected = [
        "put rule set",
        "put rule set",
        "refund",
        "reset",
        "disable rule",
        "delete rule set",
    ];
    assert_eq!(what, expected);
    let bare = |answer: &Answer| answer.header("etag").unwrap().replace('"', "");
    assert_eq!(lines[0]["etag_before"], Value::Null);
    assert_eq!(lines[0]["etag_after"], bare(&one));
    assert_eq!(
        (&lines[1]["etag_before"], &lines[1]["etag_after"]),
        (&json!(bare(&one)), &json!(bare(&two)))
    );
    assert_eq!(
        (&lines[2]["identity"], &lines[2]["units"]),
        (&json!("(redacted)"), &json!(3))
    );
    assert_eq!(
        (&lines[3]["rule"], &lines[3]["identity"]),
        (&json!("r"), &Value::Null)
    );
    assert!(
        service
            .program
            .lines()
            .iter()
            .all(|line| !line.contains("secret-u"))
    );
}

#[test]
fn identities_are_noted_where_the_config_says_so_and_api_keys_by_their_ends() {
    let config = "telemetry: { identities: true }\n".to_owned()
        + RULES
        + r#"
  keys:
    rules:
      - { id: by-key, scope: per_api_key, bands: [ { capacity: 5, window: 1h } ] }
      - { id: by-both, key: [user, api_key], bands: [ { capacity: 5, window: 1h } ] }
"#;
    let service = Service::start(&[], &config);
    let mut http = service.http();
    let mut lines = 0;
    for (path, set, rule, identity, said) in [
        ("reset", "api", "per-user", json!("u"), "user=u"),
        ("refund", "api", "all", json!([]), "(everyone)"),
        (
            "refund",
            "keys",
            "by-key",
            json!("0123456789abcdef"),
            "api_key=0123…ef",
        ),
        (
            "reset",
            "keys",
            "by-both",
            json!(["ann", "0123456789abcdef"]),
            "user=ann api_key=0123…ef",
        ),
    ] {
        let mut body = json!({"rule_set": set, "rule": rule, "identity": identity});
        if path == "refund" {
            body["units"] = json!(1);
        }
        let answer = http.post(&format!("/v1/{path}"), &body.to_string());
        assert_eq!(answer.status, 200, "{body}: {answer:?}");
        lines += 1;
        let line = service.wait_for_logs("changed", lines).remove(lines - 1);
        assert_eq!(
            (&line["who"], &line["identity"]),
            (&json!("loopback"), &json!(said))
        );
    }
    let log = service.program.lines();
    assert!(log.iter().all(|line| !line.contains("456789")), "{log:#?}");
}

#[test]
fn a_change_is_noted_with_the_trace_that_it_belongs_to() {
    let service = Service::start(&[], RULES);
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let headers = [
        ("Content-Type", "application/json"),
        ("traceparent", &*format!("00-{trace}-{span}-01")),
    ];
    let body = r#"{"rule_set":"api","rule":"all"}"#;
    service.http().request("POST", "/v1/reset", &headers, body);
    let line = service.wait_for_log("changed");
    assert_eq!(
        (&line["trace_id"], &line["span_id"]),
        (&json!(trace), &json!(span))
    );
}

#[test]
fn bad_tokens_end_it_at_the_start() {
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        "listen: { api: \"127.0.0.1:0\" }\nadmin: { tokens_file: tokens }\n",
    );
    dir.write("tokens", "# ok\n\nann:king:12\nplain-secret\n");
    let run = dir.run(&["run", "--config", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(78), "{run:?}");
    let lines: Vec<_> = run.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{run:?}");
    assert!(lines[0].starts_with("tokens:3:1: the role"), "{run:?}");
    assert!(lines[1].starts_with("tokens:4:1: a line"), "{run:?}");
    assert!(!run.stderr.contains("plain-secret"));
    std::fs::remove_file(dir.path("tokens")).unwrap();
    let run = dir.run(&["run", "--config", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(78), "{run:?}");
    let beginning = "`admin.tokens_file`: tokens: No such file";
    assert!(run.stderr.starts_with(beginning), "{run:?}");
}

#[test]
fn on_a_network_address_nothing_is_served_without_tokens() {
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        "listen: { api: \"0.0.0.0:0\" }\n".to_owned() + RULES,
    );
    let service = Service::run_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    let mut http = service.http();
    let refund = r#"{"rule_set":"api","rule":"all","units":1}"#;
    let answers = [
        http.get("/v1/state?rule_set=api&rule=all"),
        http.post("/v1/refund", refund),
        http.post(
            "/v1/give_back",
            r#"{"rule_set":"api","reservation":"r=1.0"}"#,
        ),
        http.post("/v1/reset", r#"{"rule_set":"api","rule":"all"}"#),
        http.get("/v1/rule_sets/api"),
        put(&mut http, "/v1/rule_sets/api", &set(1), &[]),
        http.request("DELETE", "/v1/rule_sets/api", &[], ""),
        http.post("/v1/rule_sets/api/rules/all/disable", ""),
    ];
    for answer in answers {
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(answer.body.contains("admin.tokens_file"), "{answer:?}");
    }
    assert_eq!(http.get("/v1/rule_sets").status, 200);
    assert_eq!(http.post("/v1/check", "{}").status, 200);
}

#[test]
fn with_tokens_a_network_address_serves_those_who_have_one() {
    let dir = Dir::new();
    dir.write("tokens", TOKENS);
    let config = "listen: { api: \"0.0.0.0:0\" }\nadmin: { tokens_file: tokens }\n";
    dir.write("fluxgate.yaml", config.to_owned() + RULES);
    let service = Service::run_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    let mut http = service.http();
    let path = "/v1/state?rule_set=api&rule=all";
    assert_eq!(http.get(path).status, 401);
    let answer = http.request("GET", path, &[("Authorization", "Bearer viewer")], "");
    assert_eq!(answer.status, 200);
}

#[test]
fn a_token_that_is_taken_back_opens_nothing() {
    let dir = Dir::new();
    dir.write("tokens", TOKENS);
    let config = format!("admin: {{ tokens_file: tokens }}\n{RULES}");
    let service = Service::start_in(dir, &[], &config);
    let mut http = service.http();
    let mut status_of = |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", &*bearer)];
        let path = "/v1/state?rule_set=api&rule=all";
        http.request("GET", path, &headers, "").status
    };
    assert_eq!([status_of("viewer"), status_of("admin")], [200, 200]);
    let said = |what: &str| service.program.lines().iter().any(|it| it.contains(what));

    // What cannot be read changes nothing.
    service.dir.write("tokens", "vera:viewer:12\n");
    service.program.signal("HUP");
    wait_until("it is told", || said("the admin API keeps its tokens"));
    assert!(said("tokens:1:1: the hash must be"));
    assert_eq!(status_of("viewer"), 200);

    let without_viewer: Vec<_> = TOKENS.lines().filter(|it| !it.contains("vera")).collect();
    service.dir.write("tokens", without_viewer.join("\n"));
    // Without a signal, too.
    wait_until("the token is forgotten", || status_of("viewer") == 401);
    assert_eq!(status_of("admin"), 200);
    assert!(said("the tokens of the admin API have changed"));
}

/// What a page in somebody's browser can send without being asked first.
#[test]
fn pages_of_other_sites_change_nothing() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    check(&mut http, "u");
    let body = r#"{"rule_set":"api","rule":"all"}"#;
    let json = ("Content-Type", "application/json");
    for (headers, status) in [
        (&[("Content-Type", "text/plain")][..], 415),
        (&[], 415),
        (
            &[("Content-Type", "application/x-www-form-urlencoded")],
            415,
        ),
        (&[json, ("Origin", "https://evil.example")], 403),
        (&[json, ("Origin", "null")], 403),
    ] {
        let answer = http.request("POST", "/v1/reset", headers, body);
        assert_eq!(answer.status, status, "{headers:?}");
    }
    // A name that was made to lead here.
    let rebound = format!(
        "POST /v1/reset HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let look = "GET /v1/rule_sets HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    for call in [&rebound, look] {
        http.send_raw(call.as_bytes()).unwrap();
        assert_eq!(http.read_answer(false).unwrap().status, 403, "{call}");
    }
    assert_eq!(remaining(&mut http, "rule=all"), [49]);
    let own = format!("http://{}", service.address("api"));
    let headers = [
        ("Content-Type", "application/json; charset=utf-8"),
        ("Origin", &own),
    ];
    assert_eq!(
        http.request("POST", "/v1/reset", &headers, body).status,
        200
    );
    assert_eq!(remaining(&mut http, "rule=all"), [50]);
}
