//! Text that would rather be a line of the log, or colour.

use fluxgate_testkit::{RawClient, wait_until};

use super::super::{client, config, ok_upstream};
use crate::service::Service;

/// What a careless log would write as it is.
const TEXTS: [&str; 9] = [
    "%0d%0a{\"level\":\"info\",\"message\":\"forged\"}",
    "%1b[31mred%1b[0m",
    "\",\"message\":\"forged",
    "\\r\\n\\u000a\\u001b[2J",
    "\u{9b}31m",
    "\u{2028}\u{85}",
    "\u{202e}drawkcab",
    "${jndi:ldap://a}",
    "<script>",
];

/// As they stand, no header may hold them.
const RAW: [&str; 4] = ["\x1b[31mred\x1b[0m", "a\r\nX-Forged: 1", "a\rb", "a\x07b"];

#[test]
fn whatever_is_sent_the_log_is_json_line_by_line() {
    let upstream = ok_upstream();
    let config = config(&[upstream.address()], "main", "");
    let more = "filters: { main: { rule_set: api } }
telemetry: { log: json, level: debug }
rule_sets:
  api:
    rules:
      - { id: r, scope: per_api_key, bands: [ { capacity: 2, window: 1h } ] }
";
    let service = Service::start(&["gateway"], &format!("{config}{more}"));
    let own = |client: &mut RawClient| {
        client.send("GET /own HTTP/1.1\r\nHost: a\r\nX-API-Key: own\r\n\r\n");
        client.read_answer().unwrap().status
    };
    let mut kept = client(&service);
    assert_eq!(own(&mut kept), 200);
    for text in TEXTS {
        let target: String = text.chars().filter(|c| c.is_ascii() && *c != '"').collect();
        for _ in 0..4 {
            let requests = [
                format!("GET /x HTTP/1.1\r\nHost: a\r\nX-API-Key: {text}\r\n\r\n"),
                format!(
                    "GET /x HTTP/1.1\r\nHost: a\r\nX-API-Key: k\r\nUser-Agent: {text}\r\nReferer: {text}\r\nX-Request-Id: {text}\r\ntraceparent: {text}\r\n\r\n"
                ),
                format!(
                    "GET /{target}?{target} HTTP/1.1\r\nHost: a\r\nX-API-Key: own{text}\r\n\r\n"
                ),
            ];
            for request in requests {
                let mut client = client(&service);
                client.send(request.as_bytes());
                let answer = client.read_answer().unwrap();
                assert!(
                    [200, 400, 429].contains(&answer.status),
                    "{request:?} {answer:?}"
                );
                let values = answer.headers.iter().map(|(_, value)| value);
                let is_plain = |value: &String| !value.contains(char::is_control);
                assert!(values.clone().all(is_plain), "{request:?} {answer:?}");
            }
        }
    }
    for text in RAW {
        for request in [
            format!("GET /{text} HTTP/1.1\r\nHost: a\r\n\r\n"),
            format!("GET /x HTTP/1.1\r\nHost: a\r\nX-API-Key: {text}\r\n\r\n"),
            format!("GET /x HTTP/1.1\r\nHost: a\r\nUser-Agent: {text}\r\n\r\n"),
        ] {
            let mut client = client(&service);
            client.send(&request);
            let answer = client.read_answer().unwrap();
            // A line end in a value makes two headers of it, which is its sender's
            // own affair.
            let is_two = text.contains("\r\n") && request.contains(": a\r\nX-Forged");
            assert!(answer.status == 400 || is_two, "{request:?} {answer:?}");
        }
    }
    // None of them has touched another's bucket.
    assert_eq!((own(&mut kept), own(&mut kept)), (200, 429));
    let requests = upstream.requests();
    assert!(requests.iter().any(|it| it.target.contains("%1b[31mred")));

    let refused = "GET /x HTTP/1.0\r\nHost: a\r\nX-API-Key: k\r\n\r\n";
    let mut last = client(&service);
    last.send(refused);
    assert_eq!(last.read_answer().unwrap().status, 429);
    service.program.signal("TERM");
    wait_until("it has ended", || service.program.ended().is_some());
    let lines = service.program.lines();
    for line in &lines {
        let value: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(value.is_object(), "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
        assert_ne!(value["message"], "forged", "{line}");
    }
    assert!(
        lines.iter().any(|line| line.contains("closing")),
        "{lines:?}"
    );
}
