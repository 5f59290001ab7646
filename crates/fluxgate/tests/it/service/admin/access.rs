//! Tokens and roles, and access without tokens.

use super::*;

/// Tokens that are the names of their roles.
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
    for (index, (method, path, body, needed, good)) in calls.into_iter().enumerate() {
        let mut call = |authorization: Option<&str>| {
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
            // The tenth wrong token would block the address.
            if index >= 9 && bad == Some("Bearer nobody") {
                continue;
            }
            let answer = call(bad);
            assert_eq!(answer.status, 401, "{method} {path} {bad:?}");
            assert!(
                answer
                    .header("www-authenticate")
                    .unwrap()
                    .starts_with("Bearer")
            );
        }
        for role in roles {
            let answer = call(Some(&format!("bearer {role}")));
            let rank = |name| roles.iter().position(|role| *role == name);
            if rank(role) < rank(needed) {
                assert_eq!(answer.status, 403, "{method} {path} {role}: {answer:?}");
                continue;
            }
            assert_eq!(answer.status, good, "{method} {path} {role}: {answer:?}");
            // The next role would find another state.
            if method == "PUT" || method == "DELETE" {
                break;
            }
        }
    }
    // Decisions need no token.
    assert_eq!(http.post("/v1/check", r#"{"rule_set":"api"}"#).status, 200);
}

#[test]
fn invalid_tokens_prevent_the_start() {
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
    let beginning = "fluxgate.yaml:2:23: `admin.tokens_file`: tokens: No such file";
    assert!(run.stderr.starts_with(beginning), "{run:?}");
}

#[test]
fn without_tokens_a_network_address_refuses_admin_calls() {
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
fn with_tokens_a_network_address_accepts_admin_calls() {
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
fn a_removed_token_is_refused() {
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
    let has_logged = |text: &str| service.program.lines().iter().any(|it| it.contains(text));

    // An invalid file changes nothing.
    service.dir.write("tokens", "vera:viewer:12\n");
    service.program.signal("HUP");
    wait_until("the fault is logged", || {
        has_logged("the admin API keeps its tokens")
    });
    assert!(has_logged("tokens:1:1: the hash must be"));
    assert_eq!(status_of("viewer"), 200);

    let without_viewer: Vec<_> = TOKENS.lines().filter(|it| !it.contains("vera")).collect();
    service.dir.write("tokens", without_viewer.join("\n"));
    // A change is also noticed without a signal.
    wait_until("the token is removed", || status_of("viewer") == 401);
    assert_eq!(status_of("admin"), 200);
    wait_until("the change is logged", || {
        has_logged("the tokens of the admin API have changed")
    });
}

/// Sends what a page in a browser can send without a preflight. A form of the default type
/// encodes quotes and braces, so that its body is not JSON.
#[test]
fn cross_origin_requests_change_nothing() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    check(&mut http, "u");
    let body = r#"{"rule_set":"api","rule":"all"}"#;
    let json = ("Content-Type", "application/json");
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let encoded = "%7B%22rule_set%22%3A%22api%22%2C%22rule%22%3A%22all%22%7D=";
    for (headers, body, status) in [
        (&[("Content-Type", "text/plain")][..], body, 415),
        (
            &[("Content-Type", "multipart/form-data; boundary=x")],
            body,
            415,
        ),
        (&[form], encoded, 400),
        (&[("Origin", "https://evil.example")], body, 403),
        (&[("Sec-Fetch-Site", "cross-site")], body, 403),
        (&[form, ("Origin", "https://evil.example")], body, 403),
        (&[json, ("Origin", "https://evil.example")], body, 403),
        (&[json, ("Origin", "null")], body, 403),
    ] {
        let answer = http.request("POST", "/v1/reset", headers, body);
        assert_eq!(answer.status, status, "{headers:?}");
    }
    // DNS rebinding.
    let rebound = format!(
        "POST /v1/reset HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let list = "GET /v1/rule_sets HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    for call in [&rebound, list] {
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
