//! Concurrent writers, and several instances with one Redis.

use super::*;

#[test]
fn one_of_several_writers_with_the_same_etag_wins() {
    let server = RedisServer::start();
    let services = [
        start_without_polling(&server),
        start_without_polling(&server),
    ];
    put_ok(&services[0], "/v1/rule_sets/api", &set(1));
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
                        let body = if path.ends_with("api") {
                            set(capacity)
                        } else {
                            rule("r", capacity).to_string()
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
fn concurrent_writes_of_different_rules_all_succeed() {
    let server = RedisServer::start();
    let services = [
        start_without_polling(&server),
        start_without_polling(&server),
    ];
    put_ok(&services[0], "/v1/rule_sets/api", &set(1));
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
fn a_change_is_active_on_another_instance_within_a_second() {
    let server = RedisServer::start();
    let (one, other) = (
        start_without_polling(&server),
        start_without_polling(&server),
    );
    let mut http = other.http();
    let mut times = Vec::new();
    for capacity in 1..=20 {
        put_ok(&one, "/v1/rule_sets/api", &set(capacity));
        let written = now();
        wait_until("the change on the other instance", || {
            limit(&mut http, "api") == Some(capacity)
        });
        times.push(written.elapsed());
    }
    times.sort_unstable();
    // A busy machine may be late for some of them, but no message is lost: nothing polls.
    assert!(
        times[times.len() * 3 / 4] < Duration::from_secs(1),
        "{times:?}"
    );
    assert!(
        times[times.len() - 1] < Duration::from_secs(10),
        "{times:?}"
    );
    println!("20 changes were active on the other instance after {times:?}");
}

#[test]
fn two_instances_enforce_one_limit_exactly() {
    let server = RedisServer::start();
    let (one, other) = (
        start_without_polling(&server),
        start_without_polling(&server),
    );
    put_ok(&one, "/v1/rule_sets/api", &set(100));
    wait_until("both have the rules", || {
        limit(&mut other.http(), "api") == Some(100)
    });
    let allowed: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = [&one, &other, &one, &other]
            .into_iter()
            .map(|service| {
                scope.spawn(|| {
                    let mut http = service.http();
                    let is_allowed = |_: &u32| {
                        let body = r#"{"rule_set":"api","user":"u"}"#;
                        http.post("/v1/check", body)
                            .body
                            .contains("\"allowed\":true")
                    };
                    (0..60).filter(is_allowed).count()
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

/// A Redis user without access to channels.
#[test]
fn without_messages_a_change_is_active_after_the_next_poll() {
    let mute = "mute on >pw ~* resetchannels +@all";
    let server = RedisServer::builder().user(mute).start();
    let url = server.url_as("mute", "pw");
    let (one, other) = (start(&url, "300ms"), start(&url, "300ms"));
    let silence = "no messages about rules arrive; changes take effect at the next poll";
    let line = other.wait_for_log(silence);
    assert_eq!(line["reason"], "noperm");
    put_ok(&one, "/v1/rule_sets/api", &set(10));
    let written = now();
    let mut http = other.http();
    wait_until("the change on the other instance", || {
        limit(&mut http, "api") == Some(10)
    });
    let took = written.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(other.logs(silence).len(), 1);
}

#[test]
fn rules_are_read_again_when_messages_are_back() {
    let server = RedisServer::start();
    let (one, other) = (
        start_without_polling(&server),
        start_without_polling(&server),
    );
    put_ok(&one, "/v1/rule_sets/api", &set(1));
    wait_until("the first rules", || {
        limit(&mut other.http(), "api") == Some(1)
    });
    let mut cli = server.cli();
    for capacity in 2..6 {
        assert!(cli.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int() >= 1);
        put_ok(&one, "/v1/rule_sets/api", &set(capacity));
        let mut http = other.http();
        wait_until("the change", || limit(&mut http, "api") == Some(capacity));
        wait_until("both subscriptions", || {
            let clients = cli.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).text();
            clients.lines().count() == 2
        });
    }
}

#[test]
fn a_hundred_changes_lose_no_request_and_no_units() {
    let server = RedisServer::start();
    let (one, other) = (
        start_without_polling(&server),
        start_without_polling(&server),
    );
    put_ok(&one, "/v1/rule_sets/kept", &set(1_000_000));
    wait_until("both have it", || {
        limit(&mut other.http(), "kept") == Some(1_000_000)
    });
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // Closed when this ends, also by a panic.
        let (_changing, changed) = mpsc::channel::<()>();
        let client = scope.spawn(|| {
            let changed = changed;
            let mut https = [one.http(), other.http()];
            while changed.try_recv() == Err(mpsc::TryRecvError::Empty) {
                let count = sent.load(Ordering::Relaxed) + 1;
                let http = &mut https[usize::from(count.is_multiple_of(2))];
                let answer = http.post("/v1/check", r#"{"rule_set":"kept","user":"u"}"#);
                assert_eq!(answer.status, 200, "{answer:?}");
                let answer: Value = serde_json::from_str(&answer.body).unwrap();
                assert_eq!(answer["remaining"], 1_000_000 - count, "after {count}");
                sent.store(count, Ordering::Relaxed);
            }
        });
        for change in 1..=100 {
            let before = sent.load(Ordering::Relaxed);
            put_ok(&one, "/v1/rule_sets/other", &set(change));
            // A busy machine may run the changes first.
            wait_until("a request to each instance", || {
                client.is_finished() || sent.load(Ordering::Relaxed) >= before + 2
            });
        }
    });
}

#[test]
fn a_rule_with_reset_on_change_starts_again() {
    let server = RedisServer::start();
    let service = start_without_polling(&server);
    let mut http = service.http();
    let body = |capacity: u64| {
        let mut fresh = rule("r", capacity);
        fresh["reset_on_change"] = true.into();
        json!({ "rules": [fresh] }).to_string()
    };
    put_ok(&service, "/v1/rule_sets/api", &body(10));
    http.post("/v1/check", r#"{"user":"u"}"#);
    let state = "/v1/state?rule_set=api&rule=r&identity=u";
    assert!(http.get(state).body.contains("\"remaining\":9"));
    put_ok(&service, "/v1/rule_sets/api", &body(20));
    assert!(http.get(state).body.contains("\"remaining\":20"));
    // The state of the old rule is deleted.
    let mut cli = server.cli();
    wait_until("the old state is deleted", || {
        cli.keys("fluxgate:{2*").is_empty()
    });
}
