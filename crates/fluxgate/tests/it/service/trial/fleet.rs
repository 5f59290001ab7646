//! Trials on what all instances have recorded, from the counters as they stood then.

use std::thread;
use std::time::Duration;

use fluxgate_testkit::{RedisServer, wait_until};
use serde_json::{Value, json};

use crate::service::Service;
use crate::service::live::{get, post};
use crate::support::unix_time;

/// Limits of a second, of a minute and of an hour. The last is used up in the middle of the test, as
/// limits of a day are in a real service long before a recording begins.
const RULES: &str = r#"
rule_sets:
  api:
    rules:
      - { id: second, match: { path: ["/second"] }, scope: per_user, bands: [ 20/s ] }
      - { id: minute, match: { path: ["/minute"] }, scope: per_user, algorithm: sliding_window, bands: [ 60/m ] }
      - { id: hour, match: { path: ["/hour"] }, scope: per_user, algorithm: fixed_window, bands: [ 150/h ] }
      - { id: slots, match: { path: ["/slots"] }, scope: per_user, algorithm: concurrency, bands: [ { capacity: 1 } ] }
"#;
const PATHS: [&str; 3] = ["/second", "/minute", "/hour"];

fn config(server: &RedisServer, records: bool, more: &str) -> String {
    let url = server.url();
    format!(
        "store: {{ redis: {{ url: \"{url}\", deadline: 5s }} }}\n\
         admin: {{ record: {records} }}\n{more}{RULES}"
    )
}

fn fleet(server: &RedisServer, more: &str) -> [Service; 2] {
    let services = [0, 1].map(|_| Service::start(&[], &config(server, true, more)));
    for service in &services {
        wait_until("both instances are known", || {
            get(service, "/v1/instances")["instances"]
                .as_array()
                .unwrap()
                .len()
                == 2
        });
    }
    services
}

/// Two users send many requests to each limit, in turn by all services.
fn overload(services: &[&Service], rounds: usize) -> Vec<(usize, bool)> {
    let mut https: Vec<_> = services.iter().map(|it| it.http()).collect();
    let count = https.len();
    let mut decisions = Vec::new();
    for round in 0..rounds {
        for (place, path) in PATHS.into_iter().enumerate() {
            let user = ["ann", "bob"][round / 2 % 2];
            let request = json!({ "user": user, "path": path }).to_string();
            let answer = https[round % count].post("/v1/check", &request);
            let decision: Value = serde_json::from_str(&answer.body).unwrap();
            decisions.push((place, decision["allowed"] == false));
        }
        thread::sleep(Duration::from_millis(5));
    }
    decisions
}

fn trial(service: &Service, more: Value) -> Value {
    let mut body = json!({ "recent": true, "from_state": true });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    post(service, "/v1/simulate", &body)
}

/// The limits of a minute and of an hour were used up before the recording began, which only the
/// state tells: a trial from empty counters would admit them again.
#[test]
fn a_trial_of_the_unchanged_rules_reproduces_what_two_instances_have_recorded() {
    wait_until("the hour has some minutes left", || {
        unix_time().as_secs() / 60 % 60 < 57
    });
    let server = RedisServer::start();
    let silent = Service::start(&[], &config(&server, false, ""));
    overload(&[&silent], 400);
    silent.program.signal("TERM");
    assert!(silent.program.wait().success());
    let services = fleet(&server, "");
    let decisions = overload(&[&services[0], &services[1]], 600);
    let denied = |place: Option<usize>| {
        let of_place = decisions
            .iter()
            .filter(|(of, is_denied)| *is_denied && place.is_none_or(|place| place == *of));
        of_place.count() as u64
    };
    let (requests, truth) = (decisions.len() as u64, denied(None));
    assert!(truth * 2 > requests, "{truth} of {requests}");
    for service in &services {
        let tried = trial(service, json!({}));
        let recorded = &tried["recorded"];
        // Nothing is missing, whichever instance is asked.
        assert_eq!(recorded["total"]["requests"], requests, "{recorded}");
        assert_eq!(recorded["total"]["denied"], truth, "{recorded}");
        let all = json!({ "known": 2, "answered": 2, "recording": 2 });
        assert_eq!(recorded["instances"], all);
        assert_eq!(
            (&recorded["failure"], &tried["changes"]),
            (&Value::Null, &Value::Null)
        );
        // The error is at most 2% of the requests, in all and of each limit.
        let found = tried["summary"]["total"]["denied"].as_u64().unwrap();
        assert!(
            found.abs_diff(truth) * 50 <= requests,
            "{found} of {truth} in {requests}"
        );
        let alike = tried["start"]["as_recorded"].as_u64().unwrap();
        // Which of the requests of a second pass depends on the microsecond.
        assert!(alike * 100 >= requests * 80, "{alike} of {requests}");
        for (place, rule) in ["second", "minute", "hour"].into_iter().enumerate() {
            let mut rules = tried["summary"]["rules"].as_array().unwrap().iter();
            let found = rules.find(|it| it["rule"] == rule).unwrap()["denied"].as_u64();
            let (found, truth) = (found.unwrap(), denied(Some(place)));
            let most = requests / PATHS.len() as u64 / 20;
            assert!(found.abs_diff(truth) <= most, "{rule}: {found} of {truth}");
        }
        // Without the state, what was used before is free again.
        let cold = post(service, "/v1/simulate", &json!({ "recent": true }));
        let cold = cold["summary"]["total"]["denied"].as_u64().unwrap();
        assert!(cold + 250 < truth, "{cold} of {truth}");
    }
}

#[test]
fn what_a_trial_cannot_know_is_said() {
    let server = RedisServer::start();
    let services = fleet(&server, "telemetry: { identities: true }\n");
    let check = |index: usize, path: &str| {
        let request = json!({ "user": "ann", "path": path });
        post(&services[index], "/v1/check", &request)
    };
    for index in 0..4 {
        check(index % 2, "/hour");
    }
    check(0, "/slots");
    assert_eq!(check(1, "/slots")["allowed"], false);
    let rules = RULES.replace("150/h", "1/h");
    let tried = trial(&services[1], json!({ "rules": rules }));
    assert_eq!(tried["recorded"]["left_out"]["slots"], 1);
    assert_eq!(tried["recorded"]["total"]["requests"], 5);
    // Four requests of a limit of one.
    assert_eq!(tried["changes"]["newly_denied"], 3, "{tried}");
    let identity = &tried["changes"]["identities"][0];
    assert_eq!(
        (&identity["identity"], &identity["rule"]),
        (&json!("user=ann"), &json!("hour"))
    );
    let handle = identity["handle"].as_str().unwrap();
    let state = get(&services[0], &format!("/v1/state?handle={handle}"));
    assert_eq!(state["bands"][0]["remaining"], 146);
    // Nothing was charged by it.
    assert_eq!(tried["summary"]["total"]["denied"], 3);
    let other = trial(&services[0], json!({ "rule_set": "other" }));
    assert_eq!(other["recorded"]["total"]["requests"], 0);
    assert_eq!(other["recorded"]["left_out"]["other_sets"], 6);
    for bad in [
        json!({ "from_state": true }),
        json!({ "recent": true, "events": [] }),
        json!({ "recent": true, "rules": "rule_sets: 1" }),
    ] {
        let answer = services[0].http().post("/v1/simulate", &bad.to_string());
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
    }
}

#[test]
fn recent_requests_are_those_of_all_instances() {
    let server = RedisServer::start();
    let services = fleet(&server, "telemetry: { identities: true }\n");
    for (index, user) in [(0, "ann"), (1, "ann"), (1, "bob"), (0, "ann")] {
        let request = json!({ "user": user, "path": "/hour", "ip": format!("192.0.2.{index}") });
        post(&services[index], "/v1/check", &request);
    }
    for service in &services {
        let all = get(service, "/v1/recent");
        assert_eq!(
            (&all["scope"], &all["records"]),
            (&json!("fleet"), &json!(true))
        );
        assert_eq!(all["failure"], Value::Null);
        let known = json!({ "known": 2, "answered": 2, "recording": 2 });
        assert_eq!(all["instances"], known);
        let places = |list: &Value| -> Vec<String> {
            let events = list["events"].as_array().unwrap().iter();
            events.map(|it| it["ip"].as_str().unwrap().into()).collect()
        };
        assert_eq!(
            places(&all),
            ["192.0.2.0", "192.0.2.1", "192.0.2.1", "192.0.2.0"]
        );
        // The filter applies everywhere, and the count to all together.
        let ann = get(
            service,
            "/v1/recent?identity=user=ann&rule=hour&outcome=allowed&n=2",
        );
        assert_eq!(places(&ann), ["192.0.2.1", "192.0.2.0"]);
        let handle = ann["decisions"][0]["handle"].as_str().unwrap();
        let same = get(service, &format!("/v1/recent?handle={handle}"));
        assert_eq!(places(&same), ["192.0.2.0", "192.0.2.1", "192.0.2.0"]);
        assert_eq!(places(&get(service, "/v1/recent?rule_set=no")), [""; 0]);
    }
    // What was wanted and shared is encrypted.
    let mut redis = server.cli();
    let mut keys = redis.keys("*:shared:wanted:*");
    assert!(!keys.is_empty());
    keys.extend(redis.keys("*:shared:recorded:*"));
    for key in &keys {
        let shared = redis.command(&["GET", key]);
        let shared = String::from_utf8_lossy(shared.bytes()).into_owned();
        assert!(!shared.contains("ann"), "{key}: {shared}");
    }
    // One that is gone is missing.
    let [asked, gone] = services;
    gone.program.kill();
    let rest = get(&asked, "/v1/recent");
    let known = json!({ "known": 2, "answered": 1, "recording": 1 });
    assert_eq!(rest["instances"], known);
    assert_eq!(rest["events"].as_array().unwrap().len(), 2);
    drop(server);
    let alone = get(&asked, "/v1/recent");
    assert_eq!(alone["scope"], "instance");
    assert!(alone["failure"].is_string(), "{alone}");
    assert_eq!(alone["events"].as_array().unwrap().len(), 2);
}

#[test]
fn a_trial_without_a_recording_is_refused() {
    let service = Service::start(&[], RULES);
    let answer = service.http().post("/v1/simulate", "{\"recent\":true}");
    assert_eq!(answer.status, 409, "{answer:?}");
    assert!(answer.body.contains("record: true"), "{answer:?}");
}

#[test]
fn one_instance_is_enough() {
    let service = Service::start(&[], &format!("admin: {{ record: true }}\n{RULES}"));
    for _ in 0..30 {
        post(
            &service,
            "/v1/check",
            &json!({ "user": "ann", "path": "/second" }),
        );
    }
    let tried = trial(&service, json!({}));
    let known = json!({ "known": 1, "answered": 1, "recording": 1 });
    assert_eq!(tried["recorded"]["instances"], known);
    assert_eq!(tried["start"]["as_recorded"], 30, "{tried}");
}

#[test]
fn the_identities_that_are_shared_are_encrypted() {
    let server = RedisServer::start();
    let services = fleet(&server, "");
    for service in &services {
        let request = json!({ "user": "user-in-the-clear", "path": "/hour" });
        post(service, "/v1/check", &request);
    }
    let tried = trial(&services[0], json!({}));
    assert_eq!(tried["recorded"]["total"]["requests"], 2);
    assert!(!tried.to_string().contains("user-in-the-clear"), "{tried}");
    let mut redis = server.cli();
    let keys = redis.keys("*shared:recorded*");
    assert!(!keys.is_empty());
    for key in &keys {
        let shared = redis.command(&["GET", key]);
        let shared = String::from_utf8_lossy(shared.bytes()).into_owned();
        assert!(!shared.is_empty() && !shared.contains("user-in-the-clear"));
    }
}
