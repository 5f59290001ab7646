//! Rules that are stored in Redis and written through the API.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fluxgate_testkit::{Answer, Http, RedisCluster, RedisServer, wait_for, wait_until};
use serde_json::{Value, json};

use super::Service;
use crate::support::Dir;

const JSON: (&str, &str) = ("Content-Type", "application/json");
const REFUSED: &str = "new rules are refused; those in force stay";

pub(super) fn config(url: &str, poll: &str) -> String {
    format!(
        "store: {{ redis: {{ url: \"{url}\", deadline: 2s, near_cache: false }} }}\nrules_from: {{ redis: {{}}, poll: {poll} }}\n"
    )
}

fn start(url: &str, poll: &str) -> Service {
    Service::start(&[], &config(url, poll))
}

/// So long that only messages can have told of a change.
fn start_deaf_to_time(server: &RedisServer) -> Service {
    start(&server.url(), "1h")
}

pub(super) fn rule(id: &str, capacity: u64) -> Value {
    json!({
        "id": id, "scope": "per_user", "algorithm": "fixed_window",
        "bands": [{ "capacity": capacity, "window": "30d" }],
    })
}

pub(super) fn set(capacity: u64) -> String {
    json!({ "on_error": "deny", "rules": [rule("r", capacity)] }).to_string()
}

pub(super) fn put(http: &mut Http, path: &str, body: &str, more: &[(&str, &str)]) -> Answer {
    let headers: Vec<_> = [JSON].iter().chain(more).copied().collect();
    http.request("PUT", path, &headers, body)
}

#[track_caller]
fn put_good(service: &Service, path: &str, body: &str) -> Answer {
    let answer = put(&mut service.http(), path, body, &[]);
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    answer
}

/// What limit a set has now; nothing if there is no such set.
fn limit(http: &mut Http, set: &str) -> Option<u64> {
    let body = format!(r#"{{"rule_set":"{set}","user":"looker","peek":true}}"#);
    let answer = http.post("/v1/check", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    answer["limit"].as_u64()
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long it takes is what is tested"
)]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[test]
fn what_was_put_is_what_is_got_and_in_force_at_once() {
    let server = RedisServer::start();
    let service = start_deaf_to_time(&server);
    let mut http = service.http();
    assert_eq!(http.get("/v1/rule_sets/api").status, 404);
    let body = r#"{ "rules": [ {"id":"r","scope":"per_user",
        "attributes": {"tier": 1.50}, "bands":[{"window":"30d","capacity":10}]} ],
        "on_error":"deny" }"#;
    let created = put(&mut http, "/v1/rule_sets/api", body, &[]);
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(limit(&mut http, "api"), Some(10));
    let got = http.get("/v1/rule_sets/api");
    assert_eq!(got.status, 200);
    // The same to the digit and the order, without the spaces.
    let spaceless: String = body.split_whitespace().collect();
    assert_eq!((&got.body, &created.body), (&spaceless, &spaceless));
    assert_eq!(got.header("etag"), created.header("etag"));
    assert_eq!(got.header("content-type"), Some("application/json"));
    let etag = got.header("etag").unwrap().to_owned();
    let known = http.request("GET", "/v1/rule_sets/api", &[("If-None-Match", &etag)], "");
    assert_eq!((known.status, known.header("etag")), (304, Some(&*etag)));
    let replaced = put(&mut http, "/v1/rule_sets/api", &set(20), &[]);
    assert_eq!(replaced.status, 200);
    assert_ne!(replaced.header("etag"), Some(&*etag));
    assert_eq!(limit(&mut http, "api"), Some(20));
    let deleted = http.request("DELETE", "/v1/rule_sets/api", &[], "");
    assert_eq!(deleted.status, 204);
    assert_eq!(limit(&mut http, "api"), None);
    let again = http.request("DELETE", "/v1/rule_sets/api", &[], "");
    assert_eq!(again.status, 404);
}

#[test]
fn a_rule_is_put_switched_and_deleted_by_itself() {
    let server = RedisServer::start();
    let service = start_deaf_to_time(&server);
    let mut http = service.http();
    let path = "/v1/rule_sets/api/rules/more";
    assert_eq!(
        put(&mut http, path, &rule("more", 5).to_string(), &[]).status,
        404
    );
    put_good(&service, "/v1/rule_sets/api", &set(10));
    let created = put(&mut http, path, &rule("more", 5).to_string(), &[]);
    assert_eq!(created.status, 201, "{created:?}");
    let got = http.get(path);
    assert_eq!(
        serde_json::from_str::<Value>(&got.body).unwrap(),
        rule("more", 5)
    );
    assert_eq!(got.header("etag"), created.header("etag"));
    assert_eq!(limit(&mut http, "api"), Some(5));
    // Only what is enabled is in force, and what is switched is not lost.
    let off = http.post(&format!("{path}/disable"), "");
    assert_eq!(off.status, 200, "{off:?}");
    assert!(off.body.contains(r#""enabled":false"#), "{off:?}");
    assert_eq!(limit(&mut http, "api"), Some(10));
    // What has no body need not say of which type it is.
    let enable = format!("{path}/enable");
    let typed = [("Content-Type", "text/plain")];
    let evil = [("Origin", "https://evil.example")];
    for (headers, body, status) in [
        (&[][..], "{}", 415),
        (&typed, "{}", 415),
        (&evil, "", 403),
        (&[], "", 200),
    ] {
        let on = http.request("POST", &enable, headers, body);
        assert_eq!(on.status, status, "{headers:?} {on:?}");
    }
    assert_eq!(limit(&mut http, "api"), Some(5));
    let without_id = r#"{"scope":"global","bands":[{"capacity":4,"window":"1h"}]}"#;
    assert_eq!(put(&mut http, path, without_id, &[]).status, 200);
    assert_eq!(limit(&mut http, "api"), Some(4));
    assert_eq!(http.request("DELETE", path, &[], "").status, 204);
    assert_eq!(http.get(path).status, 404);
    assert_eq!(limit(&mut http, "api"), Some(10));
    // A set without rules is none.
    let last = http.request("DELETE", "/v1/rule_sets/api/rules/r", &[], "");
    assert_eq!(last.status, 409, "{last:?}");
    for missing in ["/v1/rule_sets/api/rules/no", "/v1/rule_sets/no/rules/r"] {
        assert_eq!(http.request("DELETE", missing, &[], "").status, 404);
        assert_eq!(http.get(missing).status, 404);
        assert_eq!(http.post(&format!("{missing}/enable"), "").status, 404);
    }
}

#[test]
fn bad_rules_are_refused_with_their_places_and_nothing_is_stored() {
    let server = RedisServer::start();
    let service = start_deaf_to_time(&server);
    let mut http = service.http();
    put_good(&service, "/v1/rule_sets/api", &set(10));
    let bad = "{\n \"rules\": [\n  { \"id\": \"r\", \"scope\": \"nobody\", \"bands\": [{\"capacity\": 0, \"window\": \"1s\"}] }\n ]\n}";
    let answer = put(&mut http, "/v1/rule_sets/api", bad, &[]);
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let problem: Value = serde_json::from_str(&answer.body).unwrap();
    let faults = problem["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 2, "{problem}");
    assert_eq!(
        (&faults[0]["line"], &faults[0]["column"]),
        (&json!(3), &json!(25))
    );
    assert!(faults[0]["message"].as_str().unwrap().contains("`scope`"));
    let at = "/v1/rule_sets/api/rules/r";
    for (path, body, status) in [
        ("/v1/rule_sets/api", "{", 400),
        ("/v1/rule_sets/api", "[]", 400),
        ("/v1/rule_sets/api", "", 400),
        ("/v1/rule_sets/api", "rules: []", 400),
        ("/v1/rule_sets/api", r#"{"rules":[]}"#, 400),
        ("/v1/rule_sets/api", r#"{"rules":[],"rules":[]}"#, 400),
        ("/v1/rule_sets/api", r#"{"rule_sets":{}}"#, 400),
        ("/v1/rule_sets/a%01b", &set(1), 400),
        (at, &rule("other", 1).to_string(), 400),
        (at, r#"{"id":5}"#, 400),
        (at, r#"{"id":["r"]}"#, 400),
        (at, "{}", 400),
        (
            "/v1/rule_sets/api/rules/UPPER",
            &rule("UPPER", 1).to_string(),
            400,
        ),
        ("/v1/rule_sets/api", &" ".repeat(64 * 1024 + 1), 413),
    ] {
        let answer = put(&mut http, path, body, &[]);
        assert_eq!(answer.status, status, "{path} {body:.99}: {answer:?}");
    }
    assert_eq!(http.get("/v1/rule_sets/api").body, set(10));
    let mut cli = server.cli();
    let keys = cli.keys("*");
    assert_eq!(keys.len(), 2, "{keys:?}");
}

#[test]
fn conditions_are_kept_for_sets_and_rules() {
    let server = RedisServer::start();
    let service = start_deaf_to_time(&server);
    let mut http = service.http();
    let (of_set, of_rule) = ("/v1/rule_sets/api", "/v1/rule_sets/api/rules/r");
    assert_eq!(
        put(&mut http, of_set, &set(1), &[("If-Match", "*")]).status,
        412
    );
    assert_eq!(
        put(&mut http, of_set, &set(1), &[("If-None-Match", "*")]).status,
        201
    );
    assert_eq!(
        put(&mut http, of_set, &set(2), &[("If-None-Match", "*")]).status,
        412
    );
    for path in [of_set, of_rule] {
        let old = http.get(path).header("etag").unwrap().to_owned();
        let body = |capacity| match path == of_set {
            true => set(capacity),
            false => rule("r", capacity).to_string(),
        };
        let done = put(&mut http, path, &body(7), &[("If-Match", &old)]);
        assert_eq!(done.status, 200, "{done:?}");
        let new = done.header("etag").unwrap().to_owned();
        for bad in [&*old, "\"x\"", &format!("W/{new}")] {
            let refused = put(&mut http, path, &body(8), &[("If-Match", bad)]);
            assert_eq!(refused.status, 412, "{bad}");
            let refused = http.request("DELETE", path, &[("If-Match", bad)], "");
            assert_eq!(refused.status, 412, "{bad}");
        }
        assert_eq!(
            put(&mut http, path, &body(8), &[("If-Match", "x")]).status,
            400
        );
        let either = format!("{old}, {new}");
        assert_eq!(
            put(&mut http, path, &body(9), &[("If-Match", &either)]).status,
            200
        );
    }
    assert_eq!(limit(&mut http, "api"), Some(9));
}

/// Each of many writers has seen the same; in each round one of them wins.
#[test]
fn of_many_writers_who_saw_the_same_just_one_wins() {
    let server = RedisServer::start();
    let services = [start_deaf_to_time(&server), start_deaf_to_time(&server)];
    put_good(&services[0], "/v1/rule_sets/api", &set(1));
    for (round, path) in (0..10).zip(
        ["/v1/rule_sets/api", "/v1/rule_sets/api/rules/r"]
            .iter()
            .cycle(),
    ) {
        let etag = services[0]
            .http()
            .get(path)
            .header("etag")
            .unwrap()
            .to_owned();
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8_u64)
                .map(|writer| {
                    let (service, etag) = (&services[usize::from(writer % 2 == 0)], &etag);
                    scope.spawn(move || {
                        let capacity = 100 * round + writer + 2;
                        let body = match path.ends_with("api") {
                            true => set(capacity),
                            false => rule("r", capacity).to_string(),
                        };
                        put(&mut service.http(), path, &body, &[("If-Match", etag)]).status
                    })
                })
                .collect();
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .collect()
        });
        let won = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(won, 1, "{statuses:?}");
        assert!(
            statuses.iter().all(|status| matches!(status, 200 | 412)),
            "{statuses:?}"
        );
    }
}

#[test]
fn writers_of_different_rules_lose_nothing() {
    let server = RedisServer::start();
    let services = [start_deaf_to_time(&server), start_deaf_to_time(&server)];
    put_good(&services[0], "/v1/rule_sets/api", &set(1));
    std::thread::scope(|scope| {
        for writer in 0..8_u64 {
            let service = &services[usize::from(writer % 2 == 0)];
            scope.spawn(move || {
                for count in 0..4 {
                    let id = format!("r{writer}-{count}");
                    let path = format!("/v1/rule_sets/api/rules/{id}");
                    let body = rule(&id, 100).to_string();
                    let answer = put(&mut service.http(), &path, &body, &[]);
                    assert_eq!(answer.status, 201, "{answer:?}");
                }
            });
        }
    });
    let stored: Value =
        serde_json::from_str(&services[0].http().get("/v1/rule_sets/api").body).unwrap();
    assert_eq!(stored["rules"].as_array().unwrap().len(), 33);
}

#[test]
fn a_change_is_live_on_the_other_instance_within_a_second() {
    let server = RedisServer::start();
    let (one, other) = (start_deaf_to_time(&server), start_deaf_to_time(&server));
    let mut http = other.http();
    let mut slowest = Duration::ZERO;
    for capacity in 1..=20 {
        put_good(&one, "/v1/rule_sets/api", &set(capacity));
        let written = now();
        wait_until("the change on the other", || {
            limit(&mut http, "api") == Some(capacity)
        });
        slowest = slowest.max(written.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    println!("the slowest of 20 changes was live on the other after {slowest:?}");
}

#[test]
fn two_instances_enforce_one_limit_exactly() {
    let server = RedisServer::start();
    let (one, other) = (start_deaf_to_time(&server), start_deaf_to_time(&server));
    put_good(&one, "/v1/rule_sets/api", &set(100));
    wait_until("both have the rules", || {
        limit(&mut other.http(), "api") == Some(100)
    });
    let allowed: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = [&one, &other, &one, &other]
            .into_iter()
            .map(|service| {
                scope.spawn(|| {
                    let mut http = service.http();
                    let ask = |_: &u32| {
                        let body = r#"{"rule_set":"api","user":"u"}"#;
                        http.post("/v1/check", body)
                            .body
                            .contains("\"allowed\":true")
                    };
                    (0..60).filter(ask).count()
                })
            })
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum()
    });
    assert_eq!(allowed, 100);
}

/// A user who may neither say nor hear anything on a channel.
#[test]
fn without_messages_a_change_is_live_at_the_next_poll() {
    let mute = "mute on >pw ~* resetchannels +@all";
    let server = RedisServer::builder().user(mute).start();
    let url = server.url_as("mute", "pw");
    let (one, other) = (start(&url, "300ms"), start(&url, "300ms"));
    let line = other.wait_for_log("changes of stored rules are not heard of, only looked for");
    assert_eq!(line["reason"], "noperm");
    put_good(&one, "/v1/rule_sets/api", &set(10));
    let written = now();
    let mut http = other.http();
    wait_until("the change on the other", || {
        limit(&mut http, "api") == Some(10)
    });
    let took = written.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    let told = other.logs("changes of stored rules are not heard of, only looked for");
    assert_eq!(told.len(), 1);
}

#[test]
fn who_has_lost_the_messages_looks_once_they_are_back() {
    let server = RedisServer::start();
    let (one, other) = (start_deaf_to_time(&server), start_deaf_to_time(&server));
    put_good(&one, "/v1/rule_sets/api", &set(1));
    wait_until("the first", || limit(&mut other.http(), "api") == Some(1));
    let mut cli = server.cli();
    for capacity in 2..6 {
        assert!(cli.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int() >= 1);
        put_good(&one, "/v1/rule_sets/api", &set(capacity));
        let mut http = other.http();
        wait_until("the change", || limit(&mut http, "api") == Some(capacity));
        wait_until("both listen again", || {
            let clients = cli.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).text();
            clients.lines().count() == 2
        });
    }
}

#[test]
fn a_hundred_changes_cost_no_answer_and_no_count() {
    let server = RedisServer::start();
    let (one, other) = (start_deaf_to_time(&server), start_deaf_to_time(&server));
    put_good(&one, "/v1/rule_sets/kept", &set(1_000_000));
    wait_until("both have it", || {
        limit(&mut other.http(), "kept") == Some(1_000_000)
    });
    let done = AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut https = [one.http(), other.http()];
            let mut asked = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let http = &mut https[usize::from(asked.is_multiple_of(2))];
                let answer = http.post("/v1/check", r#"{"rule_set":"kept","user":"u"}"#);
                assert_eq!(answer.status, 200, "{answer:?}");
                asked += 1;
                let answer: Value = serde_json::from_str(&answer.body).unwrap();
                assert_eq!(answer["remaining"], 1_000_000 - asked, "after {asked}");
            }
            asked
        });
        for change in 1..=100 {
            put_good(&one, "/v1/rule_sets/other", &set(change));
        }
        done.store(true, Ordering::Relaxed);
        asking.join().unwrap()
    });
    assert!(asked > 100, "{asked}");
}

#[test]
fn a_rule_that_resets_on_change_starts_afresh() {
    let server = RedisServer::start();
    let service = start_deaf_to_time(&server);
    let mut http = service.http();
    let body = |capacity: u64| {
        let mut fresh = rule("r", capacity);
        fresh["reset_on_change"] = true.into();
        json!({ "rules": [fresh] }).to_string()
    };
    put_good(&service, "/v1/rule_sets/api", &body(10));
    http.post("/v1/check", r#"{"user":"u"}"#);
    let state = "/v1/state?rule_set=api&rule=r&identity=u";
    assert!(http.get(state).body.contains("\"remaining\":9"));
    put_good(&service, "/v1/rule_sets/api", &body(20));
    assert!(http.get(state).body.contains("\"remaining\":20"));
    // What the old rule counted is gone by itself.
    let mut cli = server.cli();
    wait_until("nothing is left behind", || {
        cli.keys("fluxgate:{1*").is_empty()
    });
}

#[test]
fn it_starts_without_redis_and_is_ready_by_itself_once_redis_is_there() {
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
    put_good(&service, "/v1/rule_sets/api", &set(10));
    assert_eq!(limit(&mut http, "api"), Some(10));
    assert_eq!(service.logs("there are no rules yet").len(), 1);
}

#[test]
fn a_service_that_denies_without_its_store_is_not_ready_before_it() {
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
        service.wait_for_log("rules are in force");
        let answer = service.http().get("/readyz");
        assert_eq!(answer.status, ready, "{answer:?}");
        if ready == 503 {
            server.restart();
            service.wait_until_ready();
            server.kill();
            // It was reached once; that it is gone is for `on_error` to say.
            assert_eq!(service.http().get("/readyz").status, 200);
        }
    }
}

#[test]
fn a_redis_that_lost_everything_lifts_no_limit() {
    let server = RedisServer::start();
    let service = start(&server.url(), "100ms");
    put_good(&service, "/v1/rule_sets/api", &set(10));
    server.cli().command(&["FLUSHALL"]).expect_ok();
    let line = service.wait_for_log(REFUSED);
    assert!(line["why"].as_str().unwrap().contains("gone"), "{line}");
    let mut http = service.http();
    assert_eq!(limit(&mut http, "api"), Some(10));
    server.kill();
    service.wait_for_logs(REFUSED, 2);
    assert_eq!(service.http().get("/v1/rule_sets").status, 200);
    server.restart();
    put_good(&service, "/v1/rule_sets/api", &set(20));
    assert_eq!(limit(&mut http, "api"), Some(20));
}

/// Written past the API: refused as a whole, and told; the last good stays.
#[test]
fn a_stored_set_that_is_no_good_is_refused() {
    let server = RedisServer::start();
    let service = start(&server.url(), "100ms");
    put_good(&service, "/v1/rule_sets/api", &set(10));
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
    let line = service.wait_for_log(REFUSED);
    let fault = line["fault"].as_str().unwrap();
    assert!(fault.starts_with("rule set \"api\":1:"), "{fault}");
    assert!(fault.contains("nonsense"), "{fault}");
    let mut http = service.http();
    assert_eq!(limit(&mut http, "api"), Some(10));
    // What another writes meanwhile is stored, and said not to be in force.
    let other = put(&mut http, "/v1/rule_sets/other", &set(5), &[]);
    assert_eq!(other.status, 202, "{other:?}");
    assert!(other.body.contains("nonsense"), "{other:?}");
    let again = put(&mut http, "/v1/rule_sets/api", &set(11), &[]);
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(
        (limit(&mut http, "api"), limit(&mut http, "other")),
        (Some(11), Some(5))
    );
    // One that starts now finds something else than its index says.
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
    put_good(&service, "/v1/rule_sets/api", &set(12));
    late.wait_until_ready();
    assert_eq!(limit(&mut late.http(), "api"), Some(12));
}

#[test]
fn a_set_whose_text_is_lost_can_be_put_or_deleted() {
    let server = RedisServer::start();
    let service = start_deaf_to_time(&server);
    let (mut http, mut cli) = (service.http(), server.cli());
    let (path, absent) = ("/v1/rule_sets/api", ("If-None-Match", "*"));
    let key = "fluxgate:1:{rules}:set:api";
    let etag = put_good(&service, path, &set(10))
        .header("etag")
        .unwrap()
        .to_owned();
    cli.command(&["DEL", key]);
    for condition in [absent, ("If-Match", &etag), ("If-Match", "*")] {
        let answer = put(&mut http, path, &set(11), &[condition]);
        assert_eq!(answer.status, 409, "{answer:?}");
        assert!(answer.body.contains("index"), "{answer:?}");
    }
    // What was written by hand is as bad.
    cli.command(&["SET", key, &set(12)]).expect_ok();
    let answer = put(&mut http, path, &set(11), &[("If-Match", "*")]);
    assert_eq!(answer.status, 409, "{answer:?}");
    cli.command(&["DEL", key]);
    assert_eq!(http.request("DELETE", path, &[], "").status, 204);
    assert_eq!(put(&mut http, path, &set(13), &[absent]).status, 201);
    assert_eq!(limit(&mut http, "api"), Some(13));
    // One that is not there is not said to have been deleted.
    let missing = http.request("DELETE", "/v1/rule_sets/no", &[], "");
    assert_eq!(missing.status, 404, "{missing:?}");
    assert_eq!(service.logs("changed").len(), 3);
}

#[test]
fn a_change_is_noted_even_if_its_client_has_gone() {
    let server = RedisServer::start();
    let service = start_deaf_to_time(&server);
    put_good(&service, "/v1/rule_sets/api", &set(10));
    let mut cli = server.cli();
    cli.command(&["CONFIG", "RESETSTAT"]).expect_ok();
    cli.command(&["CLIENT", "PAUSE", "1000", "WRITE"])
        .expect_ok();
    let mut http = service.http();
    let body = set(11);
    let call = format!(
        "PUT /v1/rule_sets/api HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    http.send_raw(call.as_bytes()).unwrap();
    wait_until("it has looked, and waits to write", || {
        let stats = cli.command(&["INFO", "commandstats"]);
        stats.text().contains("cmdstat_get:")
    });
    drop(http);
    assert_eq!(service.wait_for_logs("changed", 2).len(), 2);
    wait_until("it is in force", || {
        limit(&mut service.http(), "api") == Some(11)
    });
}

#[test]
fn a_change_of_which_nobody_knows_whether_it_was_made_is_noted_as_such() {
    let server = RedisServer::start();
    let service = start_deaf_to_time(&server);
    put_good(&service, "/v1/rule_sets/api", &set(10));
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
fn names_may_be_odd() {
    let server = RedisServer::start();
    let service = start_deaf_to_time(&server);
    for path in ["a%2Fb", "%C3%A4%20b", "%7Bx%7D", "*"] {
        let path = format!("/v1/rule_sets/{path}");
        put_good(&service, &path, &set(3));
        assert_eq!(service.http().get(&path).body, set(3));
    }
    let list: Value = serde_json::from_str(&service.http().get("/v1/rule_sets").body).unwrap();
    let names = list["rule_sets"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|set| set["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["*", "a/b", "{x}", "ä b"]);
}

#[test]
fn rules_are_stored_in_a_cluster_too() {
    let cluster = RedisCluster::start(3);
    let urls = cluster.urls().join("\", \"");
    let config = format!(
        "store: {{ redis: {{ urls: [\"{urls}\"], deadline: 2s }} }}\nrules_from: {{ redis: {{}}, poll: 1h }}\n"
    );
    let (one, other) = (Service::start(&[], &config), Service::start(&[], &config));
    let mut http = other.http();
    for (name, capacity) in [("a", 10), ("b", 20), ("c", 30)] {
        put_good(&one, &format!("/v1/rule_sets/{name}"), &set(capacity));
        wait_until("the change on the other", || {
            limit(&mut http, name) == Some(capacity)
        });
    }
    let keys: Vec<_> = cluster
        .nodes()
        .iter()
        .map(|node| node.cli().keys("*:{rules}:*").len())
        .collect();
    assert_eq!(keys.iter().max(), Some(&4), "all in one slot: {keys:?}");
    let etag = wait_for("an etag", || {
        http.get("/v1/rule_sets/a")
            .header("etag")
            .map(str::to_owned)
    });
    let deleted = http.request("DELETE", "/v1/rule_sets/a", &[("If-Match", &etag)], "");
    assert_eq!(deleted.status, 204, "{deleted:?}");
    wait_until("it is gone from the first", || {
        limit(&mut one.http(), "a").is_none()
    });
}
