//! `POST /v1/release`, on the fast path and through hyper, which must answer alike.

use fluxgate_testkit::{Answer, Http};

use super::Service;

const RULES: &str = "
rule_sets:
  api:
    rules:
      - { id: r, scope: global, algorithm: concurrency, bands: [ { capacity: 2 } ] }
";

fn held(http: &mut Http) -> Option<String> {
    let answer = http.post("/v1/check", r#"{"rule_set":"api","hold":"60s"}"#);
    let json: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    json["hold"].as_str().map(str::to_owned)
}

/// What an answer says, but for the time and the end of the connection.
fn content(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let headers = answer.headers.iter();
    let mut headers: Vec<_> = headers
        .filter(|(name, _)| !["date", "connection"].contains(&name.as_str()))
        .cloned()
        .collect();
    headers.sort();
    (answer.status, headers, answer.body.clone())
}

#[test]
fn both_paths_answer_alike() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    // A header that the fast path leaves to hyper, which then keeps the connection.
    let send = |path: &[(&str, &str)], body: &str| {
        let mut headers = vec![("Content-Type", "application/json"), ("X-Request-Id", "r1")];
        headers.extend(path);
        service
            .http()
            .request("POST", "/v1/release", &headers, body)
    };
    let on = |path: &[(&str, &str)], http: &mut Http| {
        let id = held(http).unwrap();
        let body = format!(r#"{{"hold":"{id}"}}"#);
        let first = content(&send(path, &body));
        assert_eq!(first.0, 200);
        assert_eq!(first.2, r#"{"settled":true,"charged":0,"uncharged":0}"#);
        let mut answers = vec![first];
        // It is gone now, and the others never were.
        for body in [
            &body,
            r#"{"hold":"x"}"#,
            "{}",
            "{",
            r#"{"hold":"x","cost":1}"#,
        ] {
            answers.push(content(&send(path, body)));
        }
        answers
    };
    let fast = on(&[], &mut http);
    let by_hyper = on(&[("Connection", "close")], &mut http);
    assert_eq!(fast, by_hyper);
    let statuses: Vec<_> = fast.iter().map(|(status, ..)| *status).collect();
    assert_eq!(statuses, [200, 404, 404, 400, 400, 400]);
}

#[test]
fn one_connection_takes_and_releases_slots() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    for _ in 0..5 {
        let ids = [held(&mut http).unwrap(), held(&mut http).unwrap()];
        assert_eq!(held(&mut http), None);
        for id in ids {
            let answer = http.post("/v1/release", &format!(r#"{{"hold":"{id}"}}"#));
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
}
