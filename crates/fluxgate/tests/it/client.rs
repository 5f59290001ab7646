//! Commands that ask a running service.

mod health;
mod record;
mod rules;

use fluxgate_testkit::wait_for;
use serde_json::{Value, json};

use crate::service::Service;
use crate::support::{Dir, Run};

const RULES: &str = r#"
admin: { tokens_file: tokens }
rule_sets:
  api:
    rules:
      - { id: per-user, scope: per_user, algorithm: fixed_window, bands: [ { id: month, capacity: 2, window: 30d } ] }
      - { id: all, scope: global, algorithm: fixed_window, bands: [ { capacity: 100, window: 30d } ] }
"#;

/// A service with a token `secret` of this role.
fn start(role: &str) -> Service {
    start_with(role, RULES)
}

fn start_with(role: &str, config: &str) -> Service {
    let dir = Dir::new();
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    dir.write("tokens", format!("ops:{role}:{hash}\n"));
    dir.write("token", "secret\n");
    Service::start_in(dir, &[], config)
}

fn run(service: &Service, arguments: &[&str]) -> Run {
    let server = format!("http://{}", service.address("api"));
    let options = ["--server", &server, "--token-file", "token"];
    service.dir.run(&[arguments, &options].concat())
}

#[track_caller]
fn ok(service: &Service, arguments: &[&str]) -> String {
    let run = run(service, arguments);
    assert_eq!(run.code, Some(0), "{run:?}");
    run.stdout
}

#[test]
fn a_request_is_checked_explained_refunded_and_reset() {
    let service = start("operator");
    let request = r#"{"user":"ann"}"#;
    for left in [1, 0] {
        let decision = ok(&service, &["check", "--request", request]);
        let decision: Value = serde_json::from_str(&decision).unwrap();
        assert_eq!(decision["remaining"], left);
    }
    let denied = run(&service, &["check", "--request", request]);
    assert_eq!((denied.code, &*denied.stderr), (Some(75), "denied\n"));
    let denied: Value = serde_json::from_str(&denied.stdout).unwrap();
    assert_eq!(denied["violated"], json!(["per-user/month"]));
    let explained = ok(&service, &["explain", "--json", "--request", request]);
    let explained: Value = serde_json::from_str(&explained).unwrap();
    assert_eq!(explained["decision"]["outcome"], "denied");
    let text = ok(&service, &["explain", "--request", request]);
    let lines: Vec<_> = text.lines().collect();
    assert!(
        lines[0].starts_with("denied: per-user/month, 0 of 2 left, retry after "),
        "{text}"
    );
    assert_eq!(lines[1], "violated: per-user/month");
    assert!(
        text.contains("\n  band month: 0 of 2 left, denies; full in "),
        "{text}"
    );
    let state = ok(&service, &["state", "api/per-user", "ann"]);
    let lines: Vec<Vec<_>> = state
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[1][..3], ["month", "2", "0"], "{state}");
    let refunded = ok(&service, &["refund", "api/per-user", "ann", "--units", "1"]);
    assert_eq!(refunded, "refunded 1 to api/per-user of ann: 1 left\n");
    let state = ok(&service, &["state", "api/per-user", "ann", "--json"]);
    let state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!(state["bands"][0]["remaining"], 1);
    let reset = ok(&service, &["reset", "api/per-user", "ann"]);
    assert_eq!(reset, "reset api/per-user of ann: 1 counter\n");
    let state = ok(&service, &["state", "api/per-user", "ann"]);
    let cells: Vec<_> = state.split_whitespace().rev().take(5).collect();
    assert_eq!(cells, ["-", "now", "2", "2", "month"], "{state}");
    for reset in ["1 counter", "0 counters"] {
        assert_eq!(
            ok(&service, &["reset", "api/all", "--all"]),
            format!("reset api/all: {reset}\n")
        );
    }
}

#[test]
fn rules_and_the_overview_are_shown() {
    let service = start("viewer");
    ok(
        &service,
        &["check", "--request", r#"{"user":"ann\u001b[31m"}"#],
    );
    let rules = ok(&service, &["rules"]);
    assert!(
        rules.contains("api/per-user  -     enforce  fixed_window  user    2 per 30d"),
        "{rules}"
    );
    let yaml = ok(&service, &["rules", "--yaml"]);
    service.dir.write("rules.yaml", &yaml);
    assert_eq!(service.dir.run(&["validate", "rules.yaml"]).code, Some(0));
    let top = wait_for("the request is in the overview", || {
        let top = ok(&service, &["top", "--requests"]);
        let row = "user=ann\u{fffd}[31m  api/per-user  1        1";
        top.contains(row).then_some(top)
    });
    assert!(!top.contains('\u{1b}'));
}

#[test]
fn a_failure_says_what_is_wrong() {
    let service = start("viewer");
    let server = format!("http://{}", service.address("api"));
    let cases: [(&[&str], i32, &str); 7] = [
        (
            &["rules", "--server", &server],
            77,
            "401: a bearer token is required",
        ),
        (
            &["rules", "--server", "http://127.0.0.1:1"],
            69,
            "Connection refused",
        ),
        (
            &["rules", "--server", "ftp://x"],
            65,
            "is not an address such as",
        ),
        (
            &["rules", "--token-file", "none"],
            66,
            "--token-file: none: No such file",
        ),
        (
            &["state", "per-user"],
            65,
            "is not a rule such as api/per-user",
        ),
        (&["explain", "--request", "{}"], 2, "--rules"),
        (
            &[
                "explain",
                "--request",
                "{}",
                "--rules",
                "x",
                "--server",
                "y",
            ],
            2,
            "cannot be used with",
        ),
    ];
    for (arguments, code, expected) in cases {
        let run = service.dir.run(arguments);
        assert_eq!(run.code, Some(code), "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(expected), "{arguments:?}: {run:?}");
    }
    let forbidden = run(&service, &["refund", "api/per-user", "ann", "--units", "1"]);
    assert_eq!(forbidden.code, Some(77), "{forbidden:?}");
    assert!(
        forbidden.stderr.contains("this needs the role operator"),
        "{forbidden:?}"
    );
    let unknown = run(&service, &["state", "api/none", "ann"]);
    assert_eq!(unknown.code, Some(65), "{unknown:?}");
}
