//! Stored rules when Redis is down or its content is invalid.

use super::*;

#[test]
fn the_service_starts_without_redis_and_becomes_ready_with_it() {
    let server = RedisServer::start();
    server.kill();
    let dir = Dir::new();
    let listen = "listen: { api: \"127.0.0.1:0\" }\n";
    dir.write(
        "fluxgate.yaml",
        listen.to_owned() + &config(&server.url(), "1h"),
    );
    let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    service.wait_for_log("there are no rules yet");
    let mut http = service.http();
    let answer = http.get("/readyz");
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("rules are not loaded"), "{answer:?}");
    assert_eq!(http.post("/v1/check", r#"{"rule_set":"api"}"#).status, 503);
    assert_eq!(http.get("/v1/rule_sets").status, 503);
    assert_eq!(http.get("/livez").status, 200);
    server.restart();
    service.wait_until_ready();
    put_ok(&service, "/v1/rule_sets/api", &set(10));
    assert_eq!(limit(&mut http, "api"), Some(10));
    assert_eq!(service.logs("there are no rules yet").len(), 1);
}

#[test]
fn a_service_that_denies_on_error_is_ready_only_with_its_store() {
    let server = RedisServer::start();
    server.kill();
    for (on_error, ready) in [("deny", 503), ("local", 200)] {
        let dir = Dir::new();
        let url = server.url();
        dir.write("fluxgate.yaml", format!(
            "listen: {{ api: \"127.0.0.1:0\" }}\nstore: {{ redis: {{ url: \"{url}\" }} }}\nrule_sets: {{ api: {{ on_error: {on_error}, rules: [ {{ id: r, scope: global, bands: [ {{ capacity: 1, window: 1h }} ] }} ] }} }}\n"
        ));
        let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
        service.wait_for_log("the store does not answer yet");
        service.wait_for_log("rules are active");
        let answer = service.http().get("/readyz");
        assert_eq!(answer.status, ready, "{answer:?}");
        if ready == 503 {
            server.restart();
            service.wait_until_ready();
            server.kill();
            // Once it was reached, `on_error` decides.
            assert_eq!(service.http().get("/readyz").status, 200);
        }
    }
}

#[test]
fn an_emptied_redis_lifts_no_limit() {
    let server = RedisServer::start();
    let service = start(&server.url(), "100ms");
    put_ok(&service, "/v1/rule_sets/api", &set(10));
    server.cli().command(&["FLUSHALL"]).expect_ok();
    let line = service.wait_for_refusals(1).remove(0);
    assert!(line["why"].as_str().unwrap().contains("gone"), "{line}");
    let mut http = service.http();
    assert_eq!(limit(&mut http, "api"), Some(10));
    server.kill();
    service.wait_for_refusals(2);
    assert_eq!(service.http().get("/v1/rule_sets").status, 200);
    server.restart();
    put_ok(&service, "/v1/rule_sets/api", &set(20));
    assert_eq!(limit(&mut http, "api"), Some(20));
}

/// The set is not written through the API. The last valid rules stay active.
#[test]
fn an_invalid_stored_set_is_refused() {
    let server = RedisServer::start();
    let service = start(&server.url(), "100ms");
    put_ok(&service, "/v1/rule_sets/api", &set(10));
    let mut cli = server.cli();
    let bad = set(10).replace("fixed_window", "nonsense");
    let (index, key) = ("fluxgate:1:{rules}:index", "fluxgate:1:{rules}:set:api");
    cli.command(&["SET", key, &bad]).expect_ok();
    cli.command(&[
        "HSET",
        index,
        "api",
        &fluxgate_redis::etag_of(&bad),
        "",
        "v",
    ]);
    let line = service.wait_for_refusals(1).remove(0);
    let fault = line["fault"].as_str().unwrap();
    assert!(fault.starts_with("rule set \"api\":1:"), "{fault}");
    assert!(fault.contains("nonsense"), "{fault}");
    let mut http = service.http();
    assert_eq!(limit(&mut http, "api"), Some(10));
    // Another change is stored meanwhile, but not active.
    let other = put(&mut http, "/v1/rule_sets/other", &set(5), &[]);
    assert_eq!(other.status, 202, "{other:?}");
    assert!(other.body.contains("nonsense"), "{other:?}");
    let again = put(&mut http, "/v1/rule_sets/api", &set(11), &[]);
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(
        (limit(&mut http, "api"), limit(&mut http, "other")),
        (Some(11), Some(5))
    );
    // A new instance finds a set that does not match the index.
    cli.command(&["SET", key, &bad]).expect_ok();
    let dir = Dir::new();
    let listen = "listen: { api: \"127.0.0.1:0\" }\n";
    dir.write(
        "fluxgate.yaml",
        listen.to_owned() + &config(&server.url(), "100ms"),
    );
    let late = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    late.wait_for_log("there are no rules yet");
    assert_eq!(late.http().get("/readyz").status, 503);
    put_ok(&service, "/v1/rule_sets/api", &set(12));
    late.wait_until_ready();
    assert_eq!(limit(&mut late.http(), "api"), Some(12));
}

#[test]
fn a_set_whose_content_is_lost_can_be_put_or_deleted() {
    let server = RedisServer::start();
    let service = start_without_polling(&server);
    let (mut http, mut cli) = (service.http(), server.cli());
    let (path, absent) = ("/v1/rule_sets/api", ("If-None-Match", "*"));
    let key = "fluxgate:1:{rules}:set:api";
    let etag = put_ok(&service, path, &set(10))
        .header("etag")
        .unwrap()
        .to_owned();
    cli.command(&["DEL", key]);
    for condition in [absent, ("If-Match", &etag), ("If-Match", "*")] {
        let answer = put(&mut http, path, &set(11), &[condition]);
        assert_eq!(answer.status, 409, "{answer:?}");
        assert!(answer.body.contains("index"), "{answer:?}");
    }
    // The same for a set that was written by hand.
    cli.command(&["SET", key, &set(12)]).expect_ok();
    let answer = put(&mut http, path, &set(11), &[("If-Match", "*")]);
    assert_eq!(answer.status, 409, "{answer:?}");
    cli.command(&["DEL", key]);
    assert_eq!(http.request("DELETE", path, &[], "").status, 204);
    assert_eq!(put(&mut http, path, &set(13), &[absent]).status, 201);
    assert_eq!(limit(&mut http, "api"), Some(13));
    // A missing set is not audited as deleted.
    let missing = http.request("DELETE", "/v1/rule_sets/no", &[], "");
    assert_eq!(missing.status, 404, "{missing:?}");
    service.program.signal("TERM");
    assert!(service.program.wait().success());
    assert_eq!(service.logs("changed").len(), 3);
}

#[test]
fn a_change_is_audited_even_if_the_client_disconnects() {
    let server = RedisServer::start();
    let service = start_without_polling(&server);
    put_ok(&service, "/v1/rule_sets/api", &set(10));
    let mut cli = server.cli();
    cli.command(&["CLIENT", "PAUSE", "60000", "WRITE"])
        .expect_ok();
    let mut monitor = server.cli();
    monitor.command(&["MONITOR"]).expect_ok();
    let mut http = service.http();
    let body = set(11);
    let call = format!(
        "PUT /v1/rule_sets/api HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    http.send_raw(call.as_bytes()).unwrap();
    // A script reads the set when the rules are reloaded, and only an update does so by a command.
    loop {
        let command = monitor.receive().unwrap().text();
        if command.ends_with("\"GET\" \"fluxgate:1:{rules}:set:api\"") && !command.contains(" lua]")
        {
            break;
        }
    }
    drop(http);
    cli.command(&["CLIENT", "UNPAUSE"]).expect_ok();
    assert_eq!(service.wait_for_logs("changed", 2).len(), 2);
    wait_until("the change is active", || {
        limit(&mut service.http(), "api") == Some(11)
    });
}

#[test]
fn a_change_with_an_unknown_outcome_is_audited_as_such() {
    let server = RedisServer::start();
    let service = start_without_polling(&server);
    put_ok(&service, "/v1/rule_sets/api", &set(10));
    let mut cli = server.cli();
    let pause = ["CLIENT", "PAUSE", "60000", "WRITE"];
    cli.command(&pause).expect_ok();
    let answer = put(&mut service.http(), "/v1/rule_sets/api", &set(11), &[]);
    assert_eq!(answer.status, 503, "{answer:?}");
    cli.command(&["CLIENT", "UNPAUSE"]).expect_ok();
    let line = service.wait_for_log("perhaps changed");
    assert_eq!(
        (&line["outcome"], &line["what"], &line["target"]),
        (&json!("unknown"), &json!("put rule set"), &json!("audit"))
    );
    assert_eq!(service.logs("changed").len(), 1);
}

#[test]
fn set_names_may_contain_any_printable_character() {
    let server = RedisServer::start();
    let service = start_without_polling(&server);
    for path in ["a%2Fb", "%C3%A4%20b", "%7Bx%7D", "*"] {
        let path = format!("/v1/rule_sets/{path}");
        put_ok(&service, &path, &set(3));
        assert_eq!(service.http().get(&path).body, set(3));
    }
    let list: Value = serde_json::from_str(&service.http().get("/v1/rule_sets").body).unwrap();
    let names = list["rule_sets"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|set| set["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["*", "a/b", "{x}", "ä b"]);
}

#[test]
fn rules_can_be_stored_in_a_cluster() {
    let cluster = RedisCluster::start(3);
    let urls = cluster.urls().join("\", \"");
    let config = format!(
        "store: {{ redis: {{ urls: [\"{urls}\"], deadline: 10s }} }}\nrules_from: {{ redis: {{}}, poll: 1h }}\n"
    );
    let (one, other) = (Service::start(&[], &config), Service::start(&[], &config));
    let mut http = other.http();
    for (name, capacity) in [("a", 10), ("b", 20), ("c", 30)] {
        put_ok(&one, &format!("/v1/rule_sets/{name}"), &set(capacity));
        wait_until("the change on the other instance", || {
            limit(&mut http, name) == Some(capacity)
        });
    }
    let keys: Vec<_> = cluster
        .nodes()
        .iter()
        .map(|node| {
            let keys = node.cli().keys("*");
            keys.iter().filter(|key| is_of_rules(key)).count()
        })
        .collect();
    // The index, and each set with its history.
    assert_eq!(keys.iter().max(), Some(&7), "all in one slot: {keys:?}");
    let etag = wait_for("an etag", || {
        http.get("/v1/rule_sets/a")
            .header("etag")
            .map(str::to_owned)
    });
    let deleted = http.request("DELETE", "/v1/rule_sets/a", &[("If-Match", &etag)], "");
    assert_eq!(deleted.status, 204, "{deleted:?}");
    wait_until("the deletion on the first instance", || {
        limit(&mut one.http(), "a").is_none()
    });
}
