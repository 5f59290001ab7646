//! Commands about what happened: `fluxgate history`, `denials`, `usage` and `events`.

use fluxgate_testkit::wait_for;
use serde_json::{Value, json};

use super::{ok, run, start_with};
use crate::service::Service;

const RULES: &str = r#"
admin: { tokens_file: tokens }
telemetry: { identities: true }
rule_sets:
  api:
    rules:
      - { id: per-user, scope: per_user, algorithm: fixed_window, notify: [50%, 100%], bands: [ { id: month, capacity: 2, window: 30d } ] }
"#;

fn start() -> Service {
    let service = start_with("viewer", RULES);
    for (user, times) in [("ann", 5), ("bob", 3)] {
        let body = json!({ "user": user, "method": "GET", "path": "/cart" }).to_string();
        for _ in 0..times {
            assert_eq!(service.http().post("/v1/check", &body).status, 200);
        }
    }
    service
}

fn json_of(service: &Service, arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(service, arguments)).unwrap()
}

#[test]
fn denials_are_a_table_with_pages_or_json() {
    let service = start();
    let found = json_of(&service, &["denials", "api/per-user", "--json"]);
    assert_eq!(
        (&found["dropped"], &found["cursor"]),
        (&json!(0), &Value::Null)
    );
    let rows = found["denials"].as_array().unwrap();
    let mut counts: Vec<_> = { rows.iter() }
        .map(|row| {
            (
                row["identity"].as_str().unwrap(),
                row["count"].as_u64().unwrap(),
            )
        })
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [("user=ann", 3), ("user=bob", 1)]);
    let first = ok(&service, &["denials", "-n", "1"]);
    let (rows, cursor) = first.trim_end().rsplit_once("\nolder: --cursor ").unwrap();
    let second = ok(&service, &["denials", "-n", "1", "--cursor", cursor]);
    assert!(!second.contains("older:"), "{second}");
    for (user, count) in [("user=ann", "3"), ("user=bob", "1")] {
        let mut pages = [rows, &second].into_iter();
        let page = pages.find(|page| page.contains(user)).unwrap();
        let line = page.lines().nth(1).unwrap();
        let cells: Vec<_> = line.split("  ").filter(|it| !it.is_empty()).collect();
        let cells: Vec<_> = cells[1..].iter().map(|it| it.trim()).collect();
        let expected = [count, user, "api/per-user", "month", "denied", "GET /cart"];
        assert_eq!(cells, expected, "{page}");
    }
    let none = ok(&service, &["denials", "--identity", "user=eve"]);
    assert_eq!(none, "no denials in this time\n");
}

#[test]
fn history_and_usage_are_tables_or_json() {
    let service = start();
    let history = json_of(&service, &["history", "api", "--json"]);
    let sum = |outcome: &str| {
        let mut series = history["series"].as_array().unwrap().iter();
        let series = series.find(|it| it["outcome"] == outcome).unwrap();
        let values = series["values"].as_array().unwrap().iter();
        values.map(|value| value.as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((sum("allowed"), sum("denied")), (4, 4));
    let text = ok(&service, &["history", "api/per-user"]);
    assert!(text.starts_with("RULE "), "{text}");
    assert!(text.contains("\napi/per-user  denied "), "{text}");
    let usage = json_of(&service, &["usage", "api", "--json"]);
    let rows = usage["usage"].as_array().unwrap();
    let shares: Vec<_> = rows.iter().map(|row| row["used_share"].as_f64()).collect();
    assert_eq!(shares, [Some(1.0), Some(1.0)]);
    let text = ok(&service, &["usage", "-n", "1"]);
    assert!(text.ends_with("\n1 row\n"), "{text}");
    assert!(text.contains("  100%  0     2      2 "), "{text}");
}

#[test]
fn events_are_lines_of_text_or_of_json_by_kind() {
    let service = start();
    let lines = wait_for("the events", || {
        let lines = ok(&service, &["events", "--json", "--kind", "threshold"]);
        Some(lines).filter(|lines| lines.lines().count() == 4)
    });
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["identity"], &first["share"]),
        (&json!("user=ann"), &json!(50))
    );
    let text = ok(&service, &["events", "-n", "1"]);
    assert!(
        text.contains("  threshold  user=bob has used 100% "),
        "{text}"
    );
    let none = ok(&service, &["events", "--kind", "store"]);
    assert_eq!(none, "no events\n");
}

#[test]
fn what_is_not_recorded_is_a_failure_that_says_so() {
    let service = start_with("viewer", &format!("history: false\n{RULES}"));
    for command in ["history", "denials", "usage"] {
        let run = run(&service, &[command]);
        assert_eq!(run.code, Some(65), "{run:?}");
        assert!(run.stderr.contains("`history` is false"), "{run:?}");
    }
}
