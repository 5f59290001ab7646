//! Wrong tokens: counted, logged once, and refused for a minute.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use fluxgate_testkit::Http;

use super::super::Service;
use crate::support::{Dir, TWO_A_SECOND};

/// The token `secret` of an admin.
const TOKENS: &str = "ann:admin:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n";
const BLOCKED: &str = "too many wrong admin tokens; calls of this address that need a token are \
                       refused for a minute";

fn start(listen: &str) -> Service {
    let dir = Dir::new();
    dir.write("tokens", TOKENS);
    dir.write(
        "fluxgate.yaml",
        format!("listen: {listen}\nadmin: {{ tokens_file: tokens }}\n{TWO_A_SECOND}"),
    );
    Service::run_in(dir, &["run", "--config", "fluxgate.yaml"], 1)
}

fn status(http: &mut Http, token: &str) -> u16 {
    let value = format!("Bearer {token}");
    let headers = [("Authorization", value.as_str())];
    http.request("GET", "/v1/rule_sets", &headers, "").status
}

fn denied(http: &mut Http, reason: &str) -> u64 {
    let metrics = http.get("/metrics").body;
    let name = format!("fluxgate_admin_denied_total{{reason=\"{reason}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
    value
        .unwrap_or_else(|| panic!("{metrics}"))
        .parse()
        .unwrap()
}

#[test]
fn an_address_with_ten_wrong_tokens_is_refused_and_logged_once() {
    let service = start("{ api: '127.0.0.1:0' }");
    let mut http = service.http();
    assert_eq!(status(&mut http, "secret"), 200);
    let statuses: Vec<_> = (0..10).map(|_| status(&mut http, "guess")).collect();
    assert_eq!(statuses, [401; 10]);
    for _ in 0..500 {
        assert_eq!(status(&mut http, "guess"), 429);
    }
    // Whether a token is right must not be found out, nor may a call without one pass.
    let headers = [("Authorization", "Bearer secret")];
    let answer = http.request("GET", "/v1/rule_sets", &headers, "");
    assert_eq!(answer.status, 429, "{answer:?}");
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{answer:?}");
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(http.get("/v1/rule_sets").status, 429);
    // Other calls pass, and so do those of other addresses.
    let check = http.post("/v1/check", r#"{"rule_set":"api","user":"u"}"#);
    assert_eq!(check.status, 200);
    assert_eq!(http.get("/readyz").status, 200);
    let output = Command::new("curl")
        .args(["-s", "--interface", "127.0.0.2", "-o", "/dev/null"])
        .args(["-w", "%{http_code}", "-H", "Authorization: Bearer secret"])
        .arg(format!("http://{}/v1/rule_sets", service.address("api")))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "200");

    let line = service.wait_for_log(BLOCKED);
    assert_eq!(
        (&line["level"], &line["address"]),
        (&"WARN".into(), &"127.0.0.1".into())
    );
    assert_eq!(service.logs(BLOCKED).len(), 1);
    assert_eq!(denied(&mut http, "wrong_token"), 10);
    assert_eq!(denied(&mut http, "blocked"), 502);
    assert_eq!(denied(&mut http, "no_token"), 0);
}

#[test]
fn the_address_is_that_of_the_connection() {
    // One socket for both families: IPv4 peers appear as mapped addresses.
    let service = start("{ api: '[::]:0' }");
    let port = service.address("api").port();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut http = Http::new(address);
    for number in 0..10 {
        let forwarded = format!("203.0.113.{number}");
        let headers = [
            ("Authorization", "Bearer guess"),
            ("X-Forwarded-For", forwarded.as_str()),
        ];
        let answer = http.request("GET", "/v1/state", &headers, "");
        assert_eq!(answer.status, 401, "{answer:?}");
    }
    assert_eq!(status(&mut http, "secret"), 429);
    let line = service.wait_for_log(BLOCKED);
    assert_eq!(line["address"], "127.0.0.1");
}

#[test]
fn calls_without_a_token_are_counted_and_block_nobody() {
    let service = start("{ api: '127.0.0.1:0' }");
    let mut http = service.http();
    for _ in 0..20 {
        assert_eq!(http.get("/v1/rule_sets").status, 401);
    }
    assert_eq!(status(&mut http, "secret"), 200);
    assert_eq!(denied(&mut http, "no_token"), 20);
}
