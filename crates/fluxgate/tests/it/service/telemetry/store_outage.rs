//! Metrics and log lines about the store: outages, reloaded scripts, failovers.

use fluxgate_testkit::{RedisServer, Sentinels, wait_until};

use super::{Metrics, end, log_of, with_message};
use crate::service::Service;

/// Returns a config with a rule set for each value of `on_error`.
fn config(server: &RedisServer) -> String {
    let set = |name: &str| {
        format!(
            "  {name}:\n    on_error: {name}\n    rules:\n      \
             - {{ id: r, scope: per_user, bands: [ {{ capacity: 1000, window: 1h }} ] }}\n"
        )
    };
    let sets: String = ["allow", "deny", "local"].map(set).concat();
    let url = server.url();
    // A deadline that only an outage misses, even on a busy machine.
    format!("store: {{ redis: {{ url: '{url}', deadline: 10s }} }}\nrule_sets:\n{sets}")
}

/// Checks by each rule set, `times` times. Returns the outcomes.
fn check_all_sets(service: &Service, times: usize) -> Vec<String> {
    let mut http = service.http();
    let mut check = |set: &str| {
        let body = format!(r#"{{"rule_set":"{set}","user":"ann"}}"#);
        let answer = http.post("/v1/check", &body);
        assert_eq!(answer.status, 200);
        let answer: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        answer["outcome"].as_str().unwrap().to_owned()
    };
    let sets = ["allow", "deny", "local"].iter().cycle().take(3 * times);
    sets.map(|set| check(set)).collect()
}

#[test]
fn an_outage_is_counted_by_reason_and_logged_when_it_starts_and_ends() {
    let server = RedisServer::start();
    let service = Service::start(&[], &config(&server));
    wait_until("the store answers", || {
        check_all_sets(&service, 1) == ["allowed", "allowed", "allowed"]
    });
    let before = Metrics::of(&service);
    let earlier = with_message(&log_of(&service), "the store is failing").len();
    assert_eq!(before.get("fluxgate_breaker_state"), 0);

    server.kill();
    const TIMES: usize = 100;
    let outcomes = check_all_sets(&service, TIMES);
    let expected = ["failed_open", "failed_closed", "fallback"].iter().cycle();
    assert!(
        outcomes.iter().zip(expected).all(|(a, b)| a == b),
        "{outcomes:?}"
    );

    let after = Metrics::of(&service);
    let grown = |start: &str| after.sum(start) - before.sum(start);
    // A peek is not counted, even if it fails.
    let peek = r#"{"rule_set":"deny","user":"ann","peek":true}"#;
    let peeked = service.http().post("/v1/check", peek);
    assert!(peeked.body.contains("failed_closed"), "{peeked:?}");
    let counted = |metrics: &Metrics| metrics.sum("fluxgate_failclosed_total{");
    assert_eq!(counted(&Metrics::of(&service)), counted(&after));
    assert_eq!(grown("fluxgate_store_errors_total{"), 3 * TIMES as u64);
    assert_eq!(grown("fluxgate_failclosed_total{"), TIMES as u64);
    assert_eq!(grown("fluxgate_fallback_decisions_total"), TIMES as u64);
    assert!(grown("fluxgate_store_errors_total{reason=\"redis_error\"}") > 0);
    assert!(grown("fluxgate_store_errors_total{reason=\"circuit_open\"}") > 0);
    let decisions = |set: &str, rule: &str, outcome: &str| {
        grown(&format!(
            "fluxgate_decisions_total{{rule_set=\"{set}\",rule=\"{rule}\",outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!(decisions("allow", "", "failed_open"), TIMES as u64);
    assert_eq!(decisions("deny", "", "failed_closed"), TIMES as u64);
    assert_eq!(decisions("local", "r", "fallback"), TIMES as u64);
    assert_eq!(after.get("fluxgate_breaker_state"), 2);

    server.restart();
    wait_until("the store is back", || {
        check_all_sets(&service, 1);
        !with_message(&log_of(&service), "the store is back").is_empty()
    });
    assert_eq!(
        check_all_sets(&service, 1),
        ["allowed", "allowed", "allowed"]
    );
    assert_eq!(Metrics::of(&service).get("fluxgate_breaker_state"), 0);
    let lines = end(&service);
    let starts = with_message(&lines, "the store is failing");
    assert_eq!(starts.len(), earlier + 1, "{lines:#?}");
    let back = with_message(&lines, "the store is back");
    assert!(back[0]["failures"].as_u64().unwrap() >= 3 * TIMES as u64);
    // At most one line per second in between.
    let still = with_message(&lines, "the store is still failing").len() as u64;
    let seconds: u64 = back
        .iter()
        .map(|line| line["failed_for_ms"].as_u64().unwrap() / 1_000)
        .sum();
    assert!(still <= seconds, "{still} lines in {seconds} s");
}

#[test]
fn a_store_without_memory_is_counted_with_the_reason_oom() {
    let server = RedisServer::start();
    let service = Service::start(&[], &config(&server));
    wait_until("the store answers", || {
        check_all_sets(&service, 1) == ["allowed", "allowed", "allowed"]
    });
    let before = Metrics::of(&service);
    server
        .cli()
        .command(&["CONFIG", "SET", "maxmemory", "1"])
        .expect_ok();
    assert_eq!(
        check_all_sets(&service, 2)[..3],
        ["failed_open", "failed_closed", "fallback"]
    );
    let after = Metrics::of(&service);
    let grown = |sample: &str| after.get(sample) - before.get(sample);
    assert_eq!(grown("fluxgate_store_errors_total{reason=\"oom\"}"), 6);
    assert_eq!(grown("fluxgate_failclosed_total{reason=\"oom\"}"), 2);
    let line = with_message(&end(&service), "the store is failing")
        .pop()
        .unwrap();
    assert_eq!(line["reason"], "oom", "{line}");
}

#[test]
fn reloads_of_the_script_are_counted_and_logged() {
    const MESSAGE: &str = "the script was missing and has been loaded";
    let server = RedisServer::start();
    let service = Service::start(&[], &config(&server));
    let reloads = || Metrics::of(&service).get("fluxgate_store_script_reloads_total");
    for times in 1..=3 {
        check_all_sets(&service, 1);
        wait_until("the script is loaded", || reloads() == times);
        assert_eq!(
            check_all_sets(&service, 20)[..3],
            ["allowed", "allowed", "allowed"],
            "no more loads"
        );
        assert_eq!(reloads(), times);
        server.cli().command(&["SCRIPT", "FLUSH"]).expect_ok();
    }
    assert_eq!(server.cli().calls("script|load"), 3);
    let lines = with_message(&end(&service), MESSAGE);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for line in lines {
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["server"], server.addr().to_string());
    }
}

#[test]
fn a_script_that_cannot_be_loaded_is_counted_and_logged_once() {
    const MESSAGE: &str = "the script is missing and cannot be loaded";
    let server = RedisServer::start();
    let deny = ["ACL", "SETUSER", "default", "-script|load"];
    server.cli().command(&deny).expect_ok();
    let service = Service::start(&[], &config(&server));
    let failures = || Metrics::of(&service).get("fluxgate_store_script_reload_failures_total");
    for times in 1..=3 {
        // The decision sends the whole script, which the server then has.
        assert_eq!(check_all_sets(&service, 1), ["allowed"; 3]);
        wait_until("the load has failed", || failures() == times);
        server.cli().command(&["SCRIPT", "FLUSH"]).expect_ok();
    }
    assert_eq!(
        Metrics::of(&service).get("fluxgate_store_script_reloads_total"),
        0
    );
    let lines = end(&service);
    let failed = with_message(&lines, MESSAGE);
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert_eq!(failed[0]["level"], "WARN");
    assert_eq!(failed[0]["server"], server.addr().to_string());
    assert!(
        failed[0]["error"].as_str().unwrap().contains("NOPERM"),
        "{failed:?}"
    );
    let detected = with_message(&lines, "the mode of Redis was detected");
    assert_eq!(detected.len(), 1, "{detected:#?}");
    assert_eq!(detected[0]["mode"], "standalone");
    assert_eq!(detected[0]["servers"], server.addr().to_string());
}

#[test]
fn a_failover_is_counted_and_logged_with_both_addresses() {
    let sentinels = Sentinels::start();
    let (urls, master) = (sentinels.sentinel_urls(), sentinels.master_name());
    let service = Service::start(
        &[],
        &format!(
            "store: {{ redis: {{ urls: {urls:?}, mode: sentinel, sentinel: {{ master: {master} }} }} }}\n\
             rule_sets: {{ allow: {{ rules: [ {{ id: r, scope: per_user, \
             bands: [ {{ capacity: 1000, window: 1h }} ] }} ] }} }}\n"
        ),
    );
    let outcome = || {
        let body = r#"{"rule_set":"allow","user":"ann"}"#;
        let answer = service.http().post("/v1/check", body);
        let answer: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        answer["outcome"].as_str().unwrap().to_owned()
    };
    let failovers = || Metrics::of(&service).get("fluxgate_store_failovers_total");
    wait_until("the store answers", || outcome() == "allowed");
    assert_eq!(failovers(), 0);
    let old = sentinels.primary();
    let new = sentinels.fail_over();
    wait_until("the failover is followed", || failovers() == 1);
    wait_until("the new primary answers", || outcome() == "allowed");
    let scripts = || new.cli().calls("evalsha") + new.cli().calls("eval");
    assert!(scripts() > 0);
    assert_eq!(failovers(), 1);
    let lines = with_message(&end(&service), "failed over to another primary");
    let [line] = &lines[..] else {
        panic!("{lines:#?}");
    };
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["primary"], master);
    assert_eq!(line["from"], old.addr().to_string());
    assert_eq!(line["to"], new.addr().to_string());
}
