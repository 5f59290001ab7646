//! `GET /v1/denials`.

use std::collections::HashSet;

use fluxgate_testkit::RedisServer;
use serde_json::{Value, json};

use super::{check, get, now_ms, on_redis};
use crate::service::Service;
use crate::support::Dir;

const RULES: &str = r#"
rule_sets:
  api:
    rules:
      - { id: blocked, action: deny, match: { user: eve } }
      - { id: per-user, scope: per_user, on_missing_key: skip, algorithm: fixed_window, bands: [ { id: hour, capacity: 2, window: 1h } ] }
      - { id: per-key, scope: per_api_key, on_missing_key: skip, algorithm: fixed_window, bands: [ 1/h ] }
      - { id: all, scope: global, algorithm: fixed_window, match: { path: [/all] }, bands: [ 1/h ] }
      - { id: seen, mode: shadow, scope: per_user, on_missing_key: skip, algorithm: fixed_window, bands: [ 1/h ] }
"#;

/// The config that shows identities.
const CLEAR: &str = "telemetry: { identities: true }\n";

/// Returns all pages of a query: the rows, and how many denials have none.
pub(super) fn all(service: &Service, query: &str) -> (Vec<Value>, u64) {
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(service, &format!("/v1/denials?{query}&cursor={cursor}"));
        rows.extend(page["denials"].as_array().unwrap().iter().cloned());
        match &page["cursor"] {
            Value::Null => return (rows, page["dropped"].as_u64().unwrap()),
            next => cursor = next.as_str().unwrap().to_owned(),
        }
    }
}

/// Returns the rows as `rule outcome identity count`, in order.
fn shown(rows: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("null").to_owned();
    let mut shown: Vec<_> = rows
        .iter()
        .map(|row| {
            let [rule, outcome, identity] =
                ["rule", "outcome", "identity"].map(|it| text(&row[it]));
            format!("{rule} {outcome} {identity} {}", row["count"])
        })
        .collect();
    shown.sort();
    shown
}

fn deny_some(service: &Service) {
    for (request, times) in [
        (
            json!({ "user": "ann", "path": "/api/x?secret=1", "method": "GET" }),
            5,
        ),
        (
            json!({ "user": "bob", "path": "/api/x", "method": "POST" }),
            3,
        ),
        (json!({ "user": "eve", "path": "/api/y" }), 2),
        (json!({ "api_key": "key-of-somebody", "path": "/api/y" }), 3),
        (json!({ "path": "/all" }), 2),
        (json!({ "user": "cid", "path": "/api/z", "cost": 9 }), 1),
    ] {
        for _ in 0..times {
            check(service, &request);
        }
    }
}

#[test]
fn there_is_a_row_for_each_rule_and_identity_that_was_refused() {
    let server = RedisServer::start();
    for config in [
        format!("{CLEAR}{RULES}"),
        on_redis(&server, &format!("{CLEAR}{RULES}")),
    ] {
        let service = Service::start(&[], &config);
        let before = now_ms();
        deny_some(&service);
        let after = now_ms();
        let (rows, dropped) = all(&service, "n=2");
        assert_eq!(dropped, 0);
        let key = &rows.iter().find(|row| row["rule"] == "per-key").unwrap()["identity"];
        let key = key.as_str().unwrap();
        assert!(!key.contains("somebody"), "{key}");
        assert_eq!(
            shown(&rows),
            [
                "all denied (everyone) 1".to_owned(),
                "blocked forbidden null 2".into(),
                format!("per-key denied {key} 2"),
                "per-user denied user=ann 3".into(),
                "per-user denied user=bob 1".into(),
                "per-user never user=cid 1".into(),
                "seen shadow_denied user=ann 1".into(),
                "seen shadow_denied user=bob 1".into(),
            ]
        );
        for row in &rows {
            let time = |name: &str| row[name].as_u64().unwrap();
            let (first, last) = (time("first_ms"), time("last_ms"));
            // The clocks of the service have another resolution.
            assert!(
                before - 50 <= first && first <= last && last <= after + 50,
                "{row}"
            );
            assert_eq!(row["rule_set"], "api");
            let has_identity = row["rule"] != "blocked";
            assert_eq!(row["handle"].is_string(), has_identity, "{row}");
        }
        let of_ann = rows.iter().find(|row| row["count"] == 3).unwrap();
        assert_eq!(
            (&of_ann["band"], &of_ann["method"], &of_ann["path"]),
            (&json!("hour"), &json!("GET"), &json!("/api/x"))
        );
        let last = |row: &Value| row["last_ms"].as_u64().unwrap();
        let minute = |row: &Value| last(row) / 60_000;
        assert!(rows.is_sorted_by_key(|row| std::cmp::Reverse((minute(row), last(row)))));
    }
}

#[test]
fn denials_are_summed_by_identity_and_paged() {
    let server = RedisServer::start();
    for config in [
        format!("{CLEAR}{RULES}"),
        on_redis(&server, &format!("{CLEAR}{RULES}")),
    ] {
        let service = Service::start(&[], &config);
        deny_some(&service);
        let page = |query: &str| get(&service, &format!("/v1/denials?group=identity&{query}"));
        let whole = page("");
        assert_eq!(
            (&whole["total"], &whole["complete"], &whole["cursor"]),
            (&json!(8), &json!(true), &Value::Null)
        );
        let rows = whole["denials"].as_array().unwrap();
        let (single, _) = all(&service, "");
        assert_eq!(shown(rows), shown(&single));
        assert_eq!(rows[0]["identity"], "user=ann");
        assert!(rows.is_sorted_by_key(|row| std::cmp::Reverse(row["count"].as_u64())));
        let second = page("n=3&offset=3");
        assert_eq!(second["denials"].as_array().unwrap()[..], rows[3..6]);
        assert_eq!(second["total"], 8);
        let of_bob = page("search=BOB");
        assert_eq!(
            shown(of_bob["denials"].as_array().unwrap()),
            [
                "per-user denied user=bob 1",
                "seen shadow_denied user=bob 1"
            ]
        );
        assert_eq!(page("rule_set=api&rule=per-user")["total"], 3);
        for bad in [
            "group=rule",
            "offset=1",
            "group=identity&format=csv",
            "group=identity&offset=x",
        ] {
            let answer = service.http().get(&format!("/v1/denials?{bad}"));
            assert_eq!(answer.status, 400, "{bad}: {answer:?}");
        }
    }
}

#[test]
fn rows_are_found_by_rule_time_and_identity_in_every_form() {
    let server = RedisServer::start();
    let dir = || {
        let dir = Dir::new();
        dir.write("secret", "0123456789abcdef0123456789abcdef");
        dir
    };
    for keys in ["none", "api_keys", "all"] {
        for names in [true, false] {
            let config = format!(
                "keys: {{ hash_keys: {keys}, hash_secret_file: secret }}\n\
                 telemetry: {{ identities: {names} }}\n{RULES}"
            );
            let mut cli = server.cli();
            cli.command(&["FLUSHALL"]).expect_ok();
            for config in [config.clone(), on_redis(&server, &config)] {
                let service = Service::start_in(dir(), &[], &config);
                deny_some(&service);
                let found = |query: &str| {
                    let (rows, _) = all(&service, query);
                    rows.iter()
                        .map(|row| row["count"].as_u64().unwrap())
                        .sum::<u64>()
                };
                assert_eq!(found(""), 12, "{config}");
                assert_eq!(found("identity=user=ann"), 4);
                assert_eq!(found("identity=user%3Dann&rule=per-user"), 3);
                assert_eq!(found("identity=api_key=key-of-somebody"), 2);
                assert_eq!(found("identity=user=nobody"), 0);
                assert_eq!(found("rule_set=api&rule=blocked"), 2);
                assert_eq!(found("rule_set=other"), 0);
                assert_eq!(found(&format!("to={}", now_ms() - 60_000)), 0);
                let (rows, _) = all(&service, "identity=user=bob&rule=per-user");
                let [row] = &rows[..] else { panic!("{rows:?}") };
                let identity = row["identity"].as_str().unwrap();
                let is_clear = names && keys != "all";
                assert_eq!(identity == "user=bob", is_clear, "{config}: {identity}");
                assert_eq!(found(&format!("identity={identity}")), 2);
                // The handle means the rule, too.
                assert_eq!(
                    found(&format!("identity={}", row["handle"].as_str().unwrap())),
                    1
                );
            }
        }
    }
}

#[test]
fn a_cursor_of_another_range_finds_the_rows_after_it_only() {
    let server = RedisServer::start();
    for config in [RULES.to_owned(), on_redis(&server, RULES)] {
        let service = Service::start(&[], &config);
        deny_some(&service);
        for (cursor, rows) in [
            // The first minute of 1970.
            ("MQk2MDAwMAlhcGkJcGVyLXVzZXIJ", 0),
            // After the end of time.
            ("MTg0NDY3NDQwNzM3MDk1NTE2MTUJNjAwMDAJYXBpCXBlci11c2VyCQ", 8),
        ] {
            let page = get(&service, &format!("/v1/denials?cursor={cursor}"));
            assert_eq!(page["denials"].as_array().unwrap().len(), rows);
            assert_eq!(page["cursor"], Value::Null);
        }
    }
}

#[test]
fn rows_can_be_exported() {
    let service = Service::start(&[], &format!("{CLEAR}{RULES}"));
    for user in ["=1+1", "a,\"b\"", "@x"] {
        for _ in 0..3 {
            check(&service, &json!({ "user": user, "path": "/a,b\r\n=1" }));
        }
    }
    let json = get(&service, "/v1/denials?rule=per-user");
    let expected: HashSet<_> = { json["denials"].as_array().unwrap().iter() }
        .map(Value::to_string)
        .collect();
    assert_eq!(expected.len(), 3);
    let answer = service
        .http()
        .get("/v1/denials?rule=per-user&format=ndjson");
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let lines: HashSet<_> = { answer.body.lines() }
        .map(|line| serde_json::from_str::<Value>(line).unwrap().to_string())
        .collect();
    assert_eq!(lines, expected);
    assert_eq!(answer.header("x-fluxgate-dropped"), Some("0"));
    assert_eq!(answer.header("x-fluxgate-cursor"), None);
    let answer = service
        .http()
        .get("/v1/denials?rule=per-user&format=csv&n=2");
    assert!(
        answer
            .header("content-type")
            .unwrap()
            .starts_with("text/csv")
    );
    let cursor = answer.header("x-fluxgate-cursor").unwrap().to_owned();
    let more = format!("/v1/denials?rule=per-user&format=csv&n=2&cursor={cursor}");
    let more = service.http().get(&more);
    let all = answer.body.clone() + more.body.split_once("\r\n").unwrap().1;
    // Python reads it as a spreadsheet would.
    service.dir.write("denials.csv", &all);
    let script = "import csv, json; rows = list(csv.DictReader(open('denials.csv', newline=''))); \
                  print(json.dumps(rows))";
    let output = std::process::Command::new("python3")
        .args(["-c", script])
        .current_dir(service.dir.path(""))
        .output()
        .unwrap();
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut identities: Vec<_> = rows
        .iter()
        .map(|row| row["identity"].as_str().unwrap())
        .collect();
    identities.sort_unstable();
    assert_eq!(identities, ["user==1+1", "user=@x", "user=a,\"b\""]);
    for row in &rows {
        assert_eq!(
            (&row["count"], &row["path"]),
            (&json!("1"), &json!("/a,b\r\n=1")),
            "{row}"
        );
    }
}

#[test]
fn a_bad_query_is_refused_with_the_reason() {
    let service = Service::start(&[], RULES);
    for (query, reason) in [
        ("from=x", "`from` must be a time"),
        ("n=0", "`n` must be 1 to 10000"),
        ("cursor=x", "`cursor` must be one that was returned"),
        ("format=xml", "`format` must be json, csv or ndjson"),
        ("identity=ann", "`identity`: `ann` is not PART=VALUE"),
        ("identity=users=ann", "`identity`: `users=ann`"),
        ("user=ann", "unknown field `user`"),
    ] {
        let answer = service.http().get(&format!("/v1/denials?{query}"));
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        assert!(answer.body.contains(reason), "{query}: {answer:?}");
    }
}
