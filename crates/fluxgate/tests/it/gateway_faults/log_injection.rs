//! Input that tries to forge log lines or terminal escapes.

use fluxgate_testkit::RawClient;

use super::{client, config, ok_upstream};
use crate::service::Service;

/// Values that a careless logger would write unescaped.
const PAYLOADS: [&str; 9] = [
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

/// Bytes that are not valid in a header.
const INVALID: [&str; 4] = ["\x1b[31mred\x1b[0m", "a\r\nX-Forged: 1", "a\rb", "a\x07b"];

#[test]
fn every_log_line_is_json_whatever_clients_send() {
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
    let send_own = |client: &mut RawClient| {
        client.send("GET /own HTTP/1.1\r\nHost: a\r\nX-API-Key: own\r\n\r\n");
        client.read_answer().unwrap().status
    };
    let mut reused = client(&service);
    assert_eq!(send_own(&mut reused), 200);
    for text in PAYLOADS {
        let target: String = text.chars().filter(|c| c.is_ascii() && *c != '"').collect();
        for _ in 0..4 {
            let requests = [
                format!("GET /x HTTP/1.1\r\nHost: a\r\nX-API-Key: {text}\r\n\r\n"),
                format!(
                    "GET /x HTTP/1.1\r\nHost: a\r\nX-API-Key: k\r\nUser-Agent: {text}\r\nReferer: {text}\r\nX-Request-Id: {text}\r\ntraceparent: {text}\r\n\r\n"
                ),
                format!("GET /{target} HTTP/1.1\r\nHost: a\r\nX-API-Key: own{text}\r\n\r\n"),
                format!("GET /?{target} HTTP/1.1\r\nHost: a\r\nX-API-Key: own{text}\r\n\r\n"),
            ];
            for request in requests {
                let mut client = client(&service);
                client.send(request.as_bytes());
                let response = client.read_answer().unwrap();
                assert!(
                    [200, 400, 429].contains(&response.status),
                    "{request:?} {response:?}"
                );
                let values = response.headers.iter().map(|(_, value)| value);
                let is_printable = |value: &String| !value.contains(char::is_control);
                assert!(values.clone().all(is_printable), "{request:?} {response:?}");
            }
        }
    }
    for text in INVALID {
        for request in [
            format!("GET /{text} HTTP/1.1\r\nHost: a\r\n\r\n"),
            format!("GET /x HTTP/1.1\r\nHost: a\r\nX-API-Key: {text}\r\n\r\n"),
            format!("GET /x HTTP/1.1\r\nHost: a\r\nUser-Agent: {text}\r\n\r\n"),
        ] {
            let mut client = client(&service);
            client.send(&request);
            let response = client.read_answer().unwrap();
            // A line end in a value makes two headers of it, which is valid.
            let is_two_headers = text.contains("\r\n") && request.contains(": a\r\nX-Forged");
            assert!(
                response.status == 400 || is_two_headers,
                "{request:?} {response:?}"
            );
        }
    }
    // None of them has used units of this key.
    assert_eq!((send_own(&mut reused), send_own(&mut reused)), (200, 429));
    let requests = upstream.requests();
    assert!(requests.iter().any(|it| it.target.contains("%1b[31mred")));

    let denied = "GET /x HTTP/1.0\r\nHost: a\r\nX-API-Key: k\r\n\r\n";
    let mut last = client(&service);
    last.send(denied);
    assert_eq!(last.read_answer().unwrap().status, 429);
    service.program.signal("TERM");
    service.program.wait();
    let lines = service.program.lines();
    for line in &lines {
        let value: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(value.is_object(), "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
        assert_ne!(value["message"], "forged", "{line}");
    }
    assert!(
        lines.iter().any(|line| line.contains("shutting down")),
        "{lines:?}"
    );
}
