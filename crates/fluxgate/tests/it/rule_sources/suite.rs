//! What every source must do.

use std::time::Duration;

use fluxgate_testkit::{Http, Stopwatch, now, wait_for, wait_until};
use serde_json::{Value, json};

pub(super) use super::vectors::the_vectors_are_decided_as_they_should;
use super::{Corruption, POLL, RuleHost, one_limit, one_rule};
use crate::service::Service;
use crate::support::Dir;

const NONE_YET: &str = "there are no rules yet";
const LISTEN: &str = "listen: { api: \"127.0.0.1:0\" }\n";
const RUN: [&str; 3] = ["run", "--config", "fluxgate.yaml"];
/// How late a service may notice a change on a busy machine.
const LATE: Duration = Duration::from_millis(800);
/// The longest message about content of any size.
const LONGEST_MESSAGE: usize = 2_000;

/// Makes the tests of a host: the cases of all hosts, and those that are named.
macro_rules! rule_source_suite {
    ($host:ty $(, $case:ident)*) => {
        rule_source_suite! {
            cases of $host:
            a_change_is_seen_within_poll,
            bad_rules_are_refused_with_their_place,
            content_that_cannot_be_rules_is_refused,
            an_outage_keeps_the_rules,
            a_service_without_rules_is_alive_and_not_ready,
            the_vectors_are_decided_as_they_should
            $(, $case)*
        }
    };
    (cases of $host:ty: $($case:ident),*) => {
        $(
            #[test]
            fn $case() {
                $crate::rule_sources::suite::$case::<$host>();
            }
        )*
    };
}
pub(super) use rule_source_suite;

/// A host and a service that reads its rules there.
fn start<H: RuleHost>(capacity: u64) -> (H, Service) {
    let host = H::start(&one_limit(capacity));
    let service = Service::start(&[], &host.config(""));
    wait_for_limit(&service, capacity);
    (host, service)
}

/// Returns a directory with the config of a service.
fn prepare<H: RuleHost>(host: &H, fields: &str) -> Dir {
    let dir = Dir::new();
    dir.write("fluxgate.yaml", LISTEN.to_owned() + &host.config(fields));
    dir
}

/// Returns the limit of the set `api`, which the service must know, and at once.
#[track_caller]
fn limit(http: &mut Http) -> Option<u64> {
    let check = r#"{"rule_set":"api","user":"observer","peek":true}"#;
    let watch = Stopwatch::start();
    let answer = http.post("/v1/check", check);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(watch.elapsed() < Duration::from_secs(5));
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    answer["limit"].as_u64()
}

#[track_caller]
fn wait_for_limit(service: &Service, expected: u64) {
    let mut http = service.http();
    wait_until("the new limit", || limit(&mut http) == Some(expected));
}

fn metric(service: &Service, name: &str) -> u64 {
    let metrics = service.http().get("/metrics").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().parse().unwrap()
}

/// Waits for a refusal after the first `known` ones, and returns its message.
#[track_caller]
fn wait_for_refusal(service: &Service, known: usize) -> String {
    let lines = service.wait_for_refusals(known + 1);
    message(&lines[known])
}

/// Returns the message of a line about refused rules.
fn message(line: &Value) -> String {
    let text = [&line["fault"], &line["why"]]
        .into_iter()
        .find_map(Value::as_str);
    text.unwrap_or_else(|| panic!("{line}")).to_owned()
}

pub(super) fn a_change_is_seen_within_poll<H: RuleHost>() {
    let (host, service) = start::<H>(10);
    let mut http = service.http();
    let mut times: Vec<_> = (11..16)
        .map(|capacity| {
            host.write(&one_limit(capacity));
            let watch = Stopwatch::start();
            wait_until("the change", || limit(&mut http) == Some(capacity));
            watch.elapsed()
        })
        .collect();
    times.sort_unstable();
    assert!(times[2] < POLL + LATE, "{times:?}");
    assert_eq!(service.refusals().len(), 0);
}

pub(super) fn bad_rules_are_refused_with_their_place<H: RuleHost>() {
    let (host, service) = start::<H>(10);
    let band = json!([{ "capacity": 1, "window": "1s" }]);
    let cases = [
        (
            json!({ "id": "r", "scope": "global", "bands": [{ "capacity": 0, "window": "1s" }] }),
            "`capacity`",
        ),
        (
            json!({ "id": "r", "scope": "nobody", "bands": band }),
            "nobody",
        ),
        (
            json!({ "id": "r", "scope": "global", "bands": band, "limit": 1 }),
            "`limit`",
        ),
        (
            json!({ "id": "r", "scope": "global", "bands": [] }),
            "bands",
        ),
    ];
    for (rule, expected) in cases {
        let known = service.refusals().len();
        let failures = metric(&service, "fluxgate_config_reload_failures_total");
        host.write(&one_rule(rule));
        let text = wait_for_refusal(&service, known);
        let line = &service.refusals()[known];
        assert_eq!(
            line["message"],
            "new rules are refused; the active rules stay"
        );
        let place = host.place();
        assert!(text.contains(&place), "{text} does not name {place}");
        assert!(text.contains(expected), "{text}");
        wait_until("the event", || {
            let events = service.http().get("/v1/events").body;
            let events: Value = serde_json::from_str(&events).unwrap();
            let events = events["events"].as_array().unwrap();
            let told = events.last().filter(|event| event["action"] == "refused");
            told.is_some_and(|event| {
                let text = event["text"].as_str().unwrap();
                text.contains(&place) && text.contains(expected)
            })
        });
        assert_eq!(limit(&mut service.http()), Some(10));
        let successful = "fluxgate_config_last_reload_successful";
        assert_eq!(metric(&service, successful), 0);
        let counted = metric(&service, "fluxgate_config_reload_failures_total");
        assert_eq!(counted, failures + 1);
        host.write(&one_limit(10));
        wait_until("it is valid again", || metric(&service, successful) == 1);
    }
}

pub(super) fn content_that_cannot_be_rules_is_refused<H: RuleHost>() {
    let (host, service) = start::<H>(10);
    let mut capacity = 10;
    for how in Corruption::ALL {
        let known = service.refusals().len();
        let Some(expected) = host.corrupt(how) else {
            continue;
        };
        // While a server takes the content, a read may fail in another way.
        let mut text = String::new();
        wait_until(&format!("{how:?}: {expected}"), || {
            let lines = service.refusals();
            let mut texts = lines[known..].iter().map(message);
            texts
                .find(|it| it.contains(&expected))
                .is_some_and(|found| {
                    text = found;
                    true
                })
        });
        assert!(text.len() < LONGEST_MESSAGE, "{how:?}: {}", text.len());
        assert_eq!(limit(&mut service.http()), Some(capacity), "{how:?}");
        capacity += 1;
        host.write(&one_limit(capacity));
        wait_for_limit(&service, capacity);
    }
    assert_eq!(service.program.ended(), None);
}

pub(super) fn an_outage_keeps_the_rules<H: RuleHost>() {
    let (host, service) = start::<H>(10);
    for capacity in [20, 30] {
        let known = service.refusals().len();
        host.take_down();
        wait_for_refusal(&service, known);
        let line = &service.refusals()[known];
        assert_eq!(
            line["message"],
            "the rules cannot be read; the active rules stay"
        );
        let start = now();
        wait_until("some polls", || start.elapsed() > 4 * POLL);
        assert_eq!(limit(&mut service.http()), Some(capacity - 10));
        assert_eq!(service.http().get("/readyz").status, 200);
        assert_eq!(service.refusals().len(), known + 1);
        assert_eq!(
            metric(&service, "fluxgate_config_last_reload_successful"),
            0
        );
        host.bring_back();
        host.write(&one_limit(capacity));
        wait_for_limit(&service, capacity);
        assert_eq!(
            metric(&service, "fluxgate_config_last_reload_successful"),
            1
        );
    }
}

pub(super) fn silence_keeps_the_rules<H: RuleHost>() {
    let (host, service) = start::<H>(10);
    host.stall();
    host.write(&one_limit(20));
    let start = now();
    wait_until("some polls", || {
        assert_eq!(limit(&mut service.http()), Some(10));
        start.elapsed() > 4 * POLL
    });
    host.bring_back();
    wait_for_limit(&service, 20);
}

pub(super) fn a_service_without_rules_is_alive_and_not_ready<H: RuleHost>() {
    let host = H::start(&one_limit(10));
    host.take_down();
    let dir = prepare(&host, "");
    if !H::IS_SERVER {
        let run = dir.run(&RUN);
        assert_eq!(run.code, Some(66), "{run:?}");
        assert!(run.stderr.contains("`rules_from."), "{run:?}");
        return;
    }
    let service = Service::open_in(dir, &RUN, 1);
    service.wait_for_log(NONE_YET);
    let mut http = service.http();
    assert_eq!(http.get("/livez").status, 200);
    assert_eq!(http.get("/readyz").status, 503);
    let check = http.post("/v1/check", r#"{"rule_set":"api","user":"a"}"#);
    assert_eq!(check.status, 503, "{check:?}");
    assert_eq!(service.logs(NONE_YET).len(), 1);
    // Bad rules do not make it ready either.
    host.write(&one_limit(0));
    host.bring_back();
    let place = host.place();
    wait_until("the fault", || {
        service
            .logs(NONE_YET)
            .iter()
            .any(|line| message(line).contains(&place))
    });
    assert_eq!(http.get("/readyz").status, 503);
    host.write(&one_limit(20));
    service.wait_until_ready();
    wait_for_limit(&service, 20);
}

pub(super) fn the_cache_is_enough_for_a_start<H: RuleHost>() {
    let host = H::start(&one_limit(10));
    let dir = prepare(&host, ", cache_file: cache.yaml");
    let service = Service::run_in(dir, &RUN, 1);
    wait_until("the cache", || service.dir.path("cache.yaml").exists());
    service.program.kill();
    let mut dir = service.dir;
    for capacity in [20, 30] {
        if capacity == 20 {
            host.take_down();
        } else {
            host.stall();
        }
        let service = Service::run_in(dir, &RUN, 1);
        assert_eq!(limit(&mut service.http()), Some(capacity - 10));
        service.wait_for_log("the last good rules are active");
        host.bring_back();
        host.write(&one_limit(capacity));
        wait_for_limit(&service, capacity);
        wait_for("the new cache", || {
            let cache = service.dir.read("cache.yaml");
            cache
                .contains(&format!("capacity: {capacity},"))
                .then_some(())
        });
        service.program.kill();
        dir = service.dir;
    }
}
