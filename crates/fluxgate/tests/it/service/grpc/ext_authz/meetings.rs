//! External authorization with slots, waits, shadow and action rules, and the record.

use fluxgate_testkit::{Http, wait_until};
use serde_json::Value;

use super::Described;
use crate::service::Service;
use crate::service::grpc::Client;

/// Envoy does not say when a request ends, so a slot ends with its `hold`, and nothing renews it.
#[test]
fn slots_stay_taken_for_their_hold() {
    let config = r#"
filters: { main: { rule_set: s } }
rule_sets:
  s:
    rules:
      - { id: slots, scope: per_ip, algorithm: concurrency, hold: 2s, bands: [ { id: b, capacity: 2 } ] }
      - { id: dark, mode: shadow, scope: per_ip, algorithm: concurrency, hold: 1h, bands: [ { id: b, capacity: 1 } ] }
"#;
    let service = Service::start(&["grpc"], config);
    let mut client = Client::of(&service);
    let mut status = || Described::get("/").send(&mut client).status();
    assert_eq!([status(), status(), status()], [0, 0, 429]);
    let state = |rule: &str| {
        let path = format!("/v1/state?rule_set=s&rule={rule}&identity=192.0.2.1");
        let state: Value = serde_json::from_str(&service.http().get(&path).body).unwrap();
        state["bands"][0]["remaining"].as_u64().unwrap()
    };
    // Slots of shadow rules are taken, too.
    assert_eq!(state("dark"), 0);
    wait_until("the slots expire", || state("slots") == 2);
    assert_eq!(state("dark"), 0);
    assert_eq!([status(), status(), status()], [0, 0, 429]);
}

/// The permits to wait are those of the filter, whichever listener a request comes in on.
#[test]
fn a_request_that_has_to_wait_is_held() {
    let config = r#"
filters: { main: { rule_set: api, max_concurrent_waits: 1 } }
gateway: { routes: [ { id: all, upstreams: [echo], filters: [main] } ] }
rule_sets:
  api:
    rules:
      - { id: slow, match: { path: ["/slow"] }, scope: global, on_exceed: wait, max_wait: 1h, bands: [ { capacity: 1, window: 1h } ] }
      - { id: quick, match: { path: ["/quick"] }, scope: global, on_exceed: wait, bands: [ { capacity: 1, window: 500ms } ] }
      - { id: even, match: { path: ["/even"] }, scope: global, algorithm: leaky_bucket, shape: true, bands: [ { capacity: 2, window: 1s } ] }
"#;
    let service = Service::start(&["grpc", "gateway"], config);
    let mut client = Client::of(&service);
    let waiting = |count: u8| {
        let metrics = service.http().get("/metrics").body;
        metrics.contains(&format!("\nfluxgate_waiting {count}\n"))
    };
    for path in ["/quick", "/quick", "/even", "/even"] {
        assert_eq!(Described::get(path).send(&mut client).status(), 0, "{path}");
    }
    assert_eq!(Described::get("/slow").send(&mut client).status(), 0);
    let mut patient = Client::of(&service);
    Described::get("/slow").timeout(3).start(&mut patient);
    wait_until("a request waits", || waiting(1));
    let refused = Described::get("/slow").send(&mut client);
    assert_eq!(refused.status(), 429);
    let mut gateway = Http::new(service.address("gateway"));
    assert_eq!(gateway.get("/slow").status, 429);
    // Envoy gives up.
    assert_eq!(patient.next()["error"]["code"], "DEADLINE_EXCEEDED");
    wait_until("no request waits", || waiting(0));
    // Its units came back: otherwise the next would wait for two hours.
    let state = service.http().get("/v1/state?rule_set=api&rule=slow").body;
    let state: Value = serde_json::from_str(&state).unwrap();
    let reset = state["bands"][0]["reset_after_ms"].as_u64().unwrap();
    assert!(reset <= 3_600_000, "{reset}");
}

#[test]
fn decisions_are_recorded_like_those_of_the_gateway() {
    let config = r#"
admin: { record: true }
filters: { main: { rule_set: s } }
rule_sets:
  s:
    rules:
      - { id: no, action: deny, match: { path: ["/no"] } }
      - { id: dark, mode: shadow, scope: per_user, bands: [ { id: b, capacity: 1, window: 1h } ] }
      - { id: r, scope: per_user, bands: [ { id: b, capacity: 2, window: 1h } ] }
"#;
    let service = Service::start(&["grpc"], config);
    let mut client = Client::of(&service);
    let send = |path: &str, client: &mut Client| {
        let request = Described::get(path).header("X-User-Id", "ann");
        let request = request.header("X-Request-Id", "id-of-the-client");
        request.metadata("x-request-id", "of-the-call").send(client)
    };
    let statuses: Vec<_> = ["/a", "/a", "/a", "/no"]
        .map(|path| send(path, &mut client).status())
        .into();
    assert_eq!(statuses, [0, 0, 429, 403]);
    let metrics = service.http().get("/metrics").body;
    for (rule, outcome) in [
        ("dark", "shadow_denied"),
        ("r", "denied"),
        ("no", "forbidden"),
    ] {
        let line = format!(
            r#"fluxgate_decisions_total{{rule_set="s",rule="{rule}",outcome="{outcome}"}} 1"#
        );
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let recent: Value = serde_json::from_str(&service.http().get("/v1/recent").body).unwrap();
    let text = recent.to_string();
    assert!(text.contains("/no") && text.contains("/a"), "{text}");
    wait_until("the denials are recorded", || {
        let denials = service.http().get("/v1/denials").body;
        denials.contains(r#""path":"/a""#) && denials.contains(r#""method":"GET""#)
    });
    let lines = service.program.lines();
    let denied = lines.iter().find(|line| line.contains("id-of-the-client"));
    assert!(denied.is_some(), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("of-the-call")));
}
