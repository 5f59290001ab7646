//! Clients that have more names than one.

use super::super::{client, config, ok_upstream};
use crate::service::Service;

/// What takes the longer way through the gateway.
const NOT_PLAIN: &str = "TE: trailers\r\n";

/// An upstream that reads the last line would serve somebody who is not counted.
#[test]
fn whoever_says_twice_whom_he_is_is_refused() {
    let upstream = ok_upstream();
    let config = config(&[upstream.address()], "main", "");
    let rest = "filters: { main: { rule_set: api, identity: { user: 'header:X-Who' } } }
rule_sets:
  api:
    rules:
      - { id: user, scope: per_user, bands: [ { capacity: 9, window: 1h } ] }
      - { id: key, scope: per_api_key, bands: [ { capacity: 9, window: 1h } ] }
";
    let service = Service::start(&["gateway"], &format!("{config}{rest}"));
    for way in ["", NOT_PLAIN] {
        for (lines, status) in [
            ("X-Who: a\r\nX-API-Key: k\r\n", 200),
            // Nobody reads these here.
            ("X-User-Id: a\r\nX-User-Id: b\r\n", 200),
            ("X-Who: a\r\nx-who: b\r\n", 400),
            ("X-Who: a\r\nX-Who: a\r\n", 200),
            ("X-API-Key: k\r\nX-Who: a\r\nX-API-KEY:\r\n", 400),
        ] {
            let before = upstream.requests().len();
            let mut client = client(&service);
            client.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{way}{lines}\r\n"));
            let answer = client.read_answer().unwrap();
            assert_eq!(answer.status, status, "{way}{lines}");
            let forwarded = upstream.requests().len() - before;
            assert_eq!(forwarded, usize::from(status == 200), "{way}{lines}");
        }
    }
}
