//! `GET /v1/history` of one instance.

use fluxgate_testkit::{RedisServer, wait_until};
use serde_json::json;

use super::{check, expected, get, minutes, now_ms, on_redis, sums};
use crate::service::Service;
use crate::support::Dir;

const RULES: &str = r#"
rule_sets:
  api:
    rules:
      - { id: blocked, action: deny, match: { user: eve } }
      - { id: staff, action: allow, match: { user: root } }
      - { id: per-user, match: { path: ["/api/**"] }, scope: per_user, algorithm: fixed_window, bands: [ 2/h ] }
      - { id: all, match: { path: ["/api/**"] }, scope: global, algorithm: fixed_window, bands: [ 100/h ] }
      - { id: seen, match: { path: ["/api/**"] }, mode: shadow, scope: per_user, algorithm: fixed_window, bands: [ 1/h ] }
"#;

fn decide_all(service: &Service) {
    let request = |user: &str, cost: u64| json!({ "user": user, "path": "/api/x", "cost": cost });
    for (user, cost, times) in [("ann", 1, 5), ("bob", 3, 1), ("eve", 1, 2), ("root", 1, 3)] {
        for _ in 0..times {
            check(service, &request(user, cost));
        }
    }
    check(service, &json!({ "user": "ann", "path": "/elsewhere" }));
    check(service, &json!({ "rule_set": "none", "path": "/api/x" }));
    check(
        service,
        &json!({ "user": "cid", "path": "/api/x", "peek": true }),
    );
    let throttled = json!({ "rule_id": "mails", "identity": "ann", "cost": 1, "capacity": 1,
        "refill_tokens_per_second": 0.001 });
    for _ in 0..2 {
        let answer = service.http().post("/v1/consume", &throttled.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[test]
fn each_decision_counts_once_however_many_rules_took_part() {
    let server = RedisServer::start();
    for config in [RULES.to_owned(), on_redis(&server, RULES)] {
        let service = Service::start(&[], &config);
        decide_all(&service);
        let decisions = |query: &str| -> Vec<(String, u64)> {
            let history = get(&service, &format!("/v1/history?{query}"));
            let series = history["decisions"].as_array().unwrap().iter();
            series
                .map(|series| {
                    let values = series["values"].as_array().unwrap().iter();
                    let sum = values.map(|value| value.as_u64().unwrap()).sum();
                    (series["outcome"].as_str().unwrap().to_owned(), sum)
                })
                .collect()
        };
        let expected = [
            ("allowed", 3),
            ("denied", 4),
            ("exempt", 3),
            ("forbidden", 2),
            ("never", 1),
            ("no_rule", 2),
        ];
        let mut found = decisions("");
        found.sort();
        // The shadow rule denied one of the allowed requests.
        let sum: u64 = found.iter().map(|(_, sum)| sum).sum();
        assert_eq!(
            sum,
            expected.iter().map(|(_, sum)| sum).sum::<u64>(),
            "{found:?}"
        );
        for (outcome, sum) in expected {
            if outcome != "allowed" {
                assert!(found.contains(&(outcome.to_owned(), sum)), "{found:?}");
            }
        }
        let mut minutes = decisions(&minutes());
        minutes.sort();
        assert_eq!(minutes, found);
        // One rule decides only a part of a decision.
        assert_eq!(decisions("rule_set=api"), []);
        assert_eq!(decisions("rule=per-user"), []);
    }
}

#[test]
fn every_rule_that_took_part_is_counted_by_its_own_outcome() {
    let server = RedisServer::start();
    for config in [RULES.to_owned(), on_redis(&server, RULES)] {
        let service = Service::start(&[], &config);
        decide_all(&service);
        let of_all = expected([
            ("blocked forbidden", 2),
            ("staff exempt", 3),
            ("per-user allowed", 2),
            ("per-user denied", 3),
            ("per-user never", 1),
            ("all allowed", 2),
            ("seen allowed", 1),
            ("seen shadow_denied", 1),
            ("without-rule no_rule", 1),
            // The missing set, and limits that come with the call.
            ("without-set no_rule", 1),
            ("without-set allowed", 1),
            ("without-set denied", 1),
        ]);
        assert_eq!(sums(&service, ""), of_all);
        assert_eq!(
            sums(&service, "rule_set=api&rule=per-user"),
            expected([
                ("per-user allowed", 2),
                ("per-user denied", 3),
                ("per-user never", 1)
            ])
        );
        assert_eq!(sums(&service, "rule_set=elsewhere"), expected([]));
        // Minutes have the same.
        assert_eq!(sums(&service, &format!("{}&rule=per-user", minutes())), {
            sums(&service, "rule=per-user")
        });
    }
}

#[test]
fn the_sums_equal_the_metric() {
    let service = Service::start(&[], RULES);
    decide_all(&service);
    let metrics = service.http().get("/metrics").body;
    let sample = |line: &&str| line.starts_with("fluxgate_rule_decisions_total{");
    let total: u64 = { metrics.lines().filter(sample) }
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    let history = get(&service, "/v1/history");
    let values = history["series"].as_array().unwrap().iter();
    let values = values.flat_map(|series| series["values"].as_array().unwrap());
    let sum: u64 = values.map(|value| value.as_u64().unwrap()).sum();
    assert_eq!(total, sum);
}

#[test]
fn a_range_has_one_value_for_each_step() {
    let service = Service::start(&[], RULES);
    check(&service, &json!({ "user": "ann", "path": "/api/x" }));
    let now = now_ms();
    let history = get(
        &service,
        &format!("/v1/history?rule=all&from={}&to={now}", now - 10_500),
    );
    assert_eq!(history["step_s"], 1);
    let from = history["from_ms"].as_u64().unwrap();
    assert_eq!(from, (now - 10_500) / 1000 * 1000);
    let length = history["series"][0]["values"].as_array().unwrap().len() as u64;
    assert_eq!(length, now / 1000 - from / 1000 + 1);
    let history = get(
        &service,
        &format!("/v1/history?rule=all&from={}", now - 3_600_000),
    );
    assert_eq!(history["step_s"], 60);
    assert_eq!(history["from_ms"].as_u64().unwrap() % 60_000, 0);
    let length = history["series"][0]["values"].as_array().unwrap().len();
    assert!((61..=62).contains(&length), "{length}");
    // It was not yet over.
    assert_eq!(
        sums(&service, &format!("rule=all&to={}", now - 60_000)),
        expected([])
    );
}

#[test]
fn a_second_is_counted_where_it_was() {
    let service = Service::start(&[], RULES);
    let request = json!({ "user": "root" });
    check(&service, &request);
    let first = now_ms();
    wait_until("three seconds have passed", || now_ms() > first + 3_000);
    check(&service, &request);
    let last = now_ms();
    let at = |from: u64, to: u64| sums(&service, &format!("from={from}&to={to}"));
    let one = expected([("staff exempt", 1)]);
    assert_eq!(at(first - 1_500, first + 1_000), one);
    assert_eq!(at(last - 1_000, last + 1_000), one);
}

#[test]
fn a_bad_query_is_refused_with_the_reason() {
    let service = Service::start(&[], RULES);
    let week = 7 * 24 * 3_600_000;
    for (query, reason) in [
        ("from=x".to_owned(), "`from` must be a time in milliseconds"),
        ("to=-1".into(), "`to` must be a time in milliseconds"),
        (format!("from={}", now_ms() + 60_000), "must not be after"),
        (
            format!("from={}&to={}", now_ms(), now_ms() - 1),
            "must not be after",
        ),
        (
            format!("from={}", now_ms() - week - 120_000),
            "`history.keep`",
        ),
        ("by=x".into(), "unknown field `by`"),
        ("rule=%zz".into(), "badly encoded"),
    ] {
        let answer = service.http().get(&format!("/v1/history?{query}"));
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        assert!(answer.body.contains(reason), "{query}: {answer:?}");
    }
}

#[test]
fn without_history_nothing_is_recorded() {
    let server = RedisServer::start();
    let off = format!("history: false\n{RULES}");
    for config in [off.clone(), on_redis(&server, &off)] {
        let service = Service::start(&[], &config);
        decide_all(&service);
        for path in ["history", "denials", "usage", "usage?rule_set=api&rule=all"] {
            let answer = service.http().get(&format!("/v1/{path}"));
            assert_eq!(answer.status, 404, "{answer:?}");
            assert!(answer.body.contains("`history` is false"), "{answer:?}");
        }
        let metrics = service.http().get("/metrics").body;
        assert!(
            metrics.contains("fluxgate_rule_decisions_total{"),
            "{metrics}"
        );
        assert!(!metrics.contains("fluxgate_history_"), "{metrics}");
        // The last minute and the events are no part of it.
        let top = get(&service, "/v1/top?by=requests&rule=per-user");
        assert_eq!(top["entries"][0]["identity"], "user=ann");
        get(&service, "/v1/events");
        if !config.contains("redis") {
            continue;
        }
        // Written with what else there would be.
        let mut cli = server.cli();
        wait_until("the last minute is shared", || {
            !cli.keys("*:shared:top:*").is_empty()
        });
        for pattern in ["*:history:*", "*:usage:*"] {
            assert_eq!(cli.keys(pattern), Vec::<String>::new());
        }
    }
}

#[test]
fn history_needs_a_viewer() {
    let dir = Dir::new();
    // The hash of `secret`.
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    dir.write("tokens", format!("ops:viewer:{hash}\n"));
    let service = Service::start_in(
        dir,
        &[],
        &format!("admin: {{ tokens_file: tokens }}\n{RULES}"),
    );
    for path in ["history", "denials", "usage"] {
        let path = format!("/v1/{path}");
        assert_eq!(service.http().get(&path).status, 401);
        let token = [("Authorization", "Bearer secret")];
        assert_eq!(service.http().request("GET", &path, &token, "").status, 200);
    }
}

#[test]
fn decisions_without_the_store_have_an_outcome_of_their_own() {
    let rules = |on_error: &str| {
        format!(
            "rule_sets: {{ api: {{ on_error: {on_error}, rules: [ \
             {{ id: blocked, action: deny, match: {{ user: eve }} }}, \
             {{ id: r, scope: per_user, algorithm: fixed_window, bands: [ 2/h ] }} ] }} }}\n"
        )
    };
    for (on_error, outcomes) in [
        ("local", vec![("blocked forbidden", 1), ("r fallback", 3)]),
        (
            "allow",
            vec![("blocked forbidden", 1), ("without-rule failed_open", 3)],
        ),
        (
            "deny",
            vec![("blocked forbidden", 1), ("without-rule failed_closed", 3)],
        ),
    ] {
        let server = RedisServer::start();
        let store = format!(
            "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\n",
            server.url()
        );
        let service = Service::start(&[], &format!("{store}{}", rules(on_error)));
        let before = check(&service, &json!({ "user": "bob" }));
        assert_eq!(before["outcome"], "allowed");
        server.kill();
        for user in ["ann", "ann", "ann", "eve"] {
            check(&service, &json!({ "user": user }));
        }
        // They are kept until Redis is back.
        server.restart();
        let mut expected: super::Sums = { outcomes.into_iter() }
            .map(|(name, sum)| (name.to_owned(), sum))
            .collect();
        expected.insert("r allowed".into(), 1);
        wait_until("the record is read", || {
            service.http().get("/v1/history").status == 200
        });
        let mut found = sums(&service, "");
        // Redis may have had it, and has lost what it had.
        found.entry("r allowed".into()).or_insert(1);
        assert_eq!(found, expected);
    }
}
