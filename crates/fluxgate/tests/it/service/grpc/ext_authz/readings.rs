//! Requests that frameworks read as another one.

use std::fmt::Write as _;

use fluxgate_testkit::readings::{READINGS, Reading, SentRequest, Treatment};

use super::Described;
use crate::service::Service;
use crate::service::grpc::Client;

/// Returns a filter and a rule set for each reading and form of headers, with a limit of one.
pub(super) fn config() -> String {
    let (mut filters, mut sets) = (String::from("filters:\n"), String::from("rule_sets:\n"));
    for (number, Reading { api_key, rule, .. }) in READINGS.iter().enumerate() {
        for form in ["joined", "raw"] {
            let name = format!("{form}-{number}");
            writeln!(
                filters,
                "  {name}: {{ rule_set: {name}, identity: {{ api_key: '{api_key}' }} }}"
            )
            .unwrap();
            writeln!(
                sets,
                "  {name}: {{ rules: [ {{ id: r, bands: [ {{ capacity: 1, window: 1h }} ], {rule} }} ] }}"
            )
            .unwrap();
        }
    }
    filters + &sets
}

#[test]
fn external_authorization_counts_what_frameworks_read() {
    let service = Service::start(&["grpc"], &config());
    let mut client = Client::of(&service);
    for (number, reading) in READINGS.iter().enumerate() {
        for form in ["joined", "raw"] {
            let mut send = |sent: &SentRequest| {
                let request = Described::new(sent.method, sent.target);
                let request = request.filter(&format!("{form}-{number}"));
                let headers = sent.headers.iter();
                let request = headers.fold(request, |it, (name, value)| it.header(name, value));
                let request = if form == "raw" {
                    request.raw()
                } else {
                    request
                };
                request.send(&mut client).status()
            };
            assert_eq!(send(&reading.plain), 0, "{form}: {reading:?}");
            // FluxGate does not forward the request, so it cannot remove a header.
            let expected = match reading.treatment {
                Treatment::Counted => 429,
                _ => 400,
            };
            assert_eq!(send(&reading.spelled), expected, "{form}: {reading:?}");
        }
    }
}

#[test]
fn a_limit_on_a_path_holds_for_every_spelling() {
    let config = r#"
filters:
  main: { rule_set: s, include: ["/api/**", "/*"], exclude: ["/api/health"] }
rule_sets:
  s:
    rules:
      - { id: r, key: [ip, path], match: { not_path: ["/api/free"] }, bands: [ { capacity: 1, window: 1h } ] }
"#;
    let service = Service::start(&["grpc"], config);
    let mut client = Client::of(&service);
    let spelled = [
        "/%61pi/x",
        "//api/x",
        "/api;v=1/x",
        "/api%3bv=1/x",
        "/api%2fx",
        "/api\\x",
        "/api%5Cx",
        "/%2fapi/x",
        "/api//x",
        "http://h/%61pi/x",
    ];
    for (index, spelled) in spelled.into_iter().enumerate() {
        let address = format!("192.0.2.{index}");
        let mut send = |path: &str| {
            let request = Described::get(path).source(&address);
            request.send(&mut client).status()
        };
        let statuses = [send(spelled), send("/api/x"), send(spelled)];
        assert_eq!(statuses, [0, 429, 429], "{spelled}");
    }
    for refused in [
        "/api/../x",
        "/api/%2e%2e/x",
        "/api/..;/x",
        "/api/.%2e",
        "/api%5c..%5cx",
        "/a%00",
        "/api/x%0a",
        "/api/x%80",
        "/api;%2fy/x",
    ] {
        let answer = Described::get(refused).send(&mut client);
        assert_eq!(answer.status(), 400, "{refused}");
        let detail = answer.json()["detail"].to_string();
        assert!(detail.contains("the request is ambiguous"), "{detail}");
    }
    // Excluded only in both forms.
    for (path, is_limited) in [
        ("/api/health", false),
        ("/api/health;x", true),
        ("/api/free", false),
        ("/api/fre%65", true),
    ] {
        let answer = Described::get(path).source("192.0.2.99").send(&mut client);
        assert_eq!(answer.header("ratelimit").is_some(), is_limited, "{path}");
    }
    // `*` matches `/*`.
    let mut options = || Described::new("OPTIONS", "*").send(&mut client).status();
    assert_eq!([options(), options()], [0, 429]);
}

/// Envoy joins repeated headers by a comma unless it sends them line by line.
#[test]
fn repeated_headers_that_count_are_refused() {
    let config = r#"
filters: { main: { rule_set: s, exclude: ["/free"], attributes: { tenant: "header:X-Tenant" } } }
rule_sets:
  s:
    rules:
      - { id: r, scope: per_user, bands: [ { capacity: 4, window: 1h } ] }
      - { id: p, key: ["header:X-Plan"], on_missing_key: skip, bands: [ { capacity: 9, window: 1h } ] }
"#;
    let service = Service::start(&["grpc"], config);
    let mut client = Client::of(&service);
    let user = ("X-User-Id", "a");
    for (lines, joined, raw) in [
        (&[user][..], 0, 0),
        (&[user, ("X-User-Id", "b")], 400, 400),
        // Whether this was one line is known only if lines are sent.
        (&[("X-User-Id", "a, b")], 400, 0),
        (&[user, ("X-Tenant", "a"), ("X-Tenant", "b")], 400, 400),
        (&[user, ("X-Plan", "a"), ("X-Plan", "b")], 400, 400),
        (&[user, ("X-Other", "a"), ("X-Other", "b")], 0, 0),
        (&[user, ("X_User_Id", "b")], 400, 400),
        (&[("X_User_Id", "b")], 400, 400),
        (&[user, ("X.Forwarded.Proto", "b")], 400, 400),
        (&[user, user], 400, 429),
    ] {
        for (expected, is_raw) in [(joined, false), (raw, true)] {
            let request = Described::get("/x");
            let request = lines
                .iter()
                .fold(request, |it, (name, value)| it.header(name, value));
            let request = if is_raw { request.raw() } else { request };
            let answer = request.send(&mut client);
            assert_eq!(answer.status(), expected, "{lines:?} {is_raw}: {answer:?}");
        }
    }
    let free = Described::get("/free").header("X_User_Id", "b");
    assert_eq!(free.send(&mut client).status(), 0);
}
