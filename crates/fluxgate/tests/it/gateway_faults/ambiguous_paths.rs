//! Paths that servers read differently: no spelling of a path bypasses its limit.

use std::net::SocketAddr;
use std::process::Command;

use fluxgate_testkit::{RawUpstream, WireRequest};

use super::{FAST_PATH, HYPER, TRANSPORTS, client, config, ok_upstream};
use crate::http2_peers::Http2Upstream;
use crate::service::Service;

/// Other spellings of `/api/x`.
const SPELLINGS: [&str; 17] = [
    "/%61pi/x",
    "/%61%70%69/%78",
    "//api/x",
    "/api//x",
    "/api;v=1/x",
    "/api;/x;a=b",
    "/api%3Bv=1/x",
    "/api%2fx",
    "/api%2Fx",
    "/api\\x",
    "/api%5cx",
    "/%2fapi/x",
    "/;v/api/x",
    "/api/x/",
    "/api/x//",
    "/api/x%2f;y",
    "\\api/x",
];

/// Paths with dot segments in either form.
const DOT_SEGMENTS: [&str; 14] = [
    "/x/../api/x",
    "/./api/x",
    "/x/%2e%2e/api/x",
    "/x/.%2E/api/x",
    "/%2e/api/x",
    "/x/..;/api/x",
    "/x/..;a=b/api/x",
    "/.;x/api/x",
    "/x/..%3b/api/x",
    "/x%2f..%2fapi/x",
    "/x\\..\\api/x",
    "/x%5c..%5capi/x",
    "/x/..",
    "/x/.",
];

/// Starts a gateway with one rule, and a filter with these further fields.
fn limited(upstream: SocketAddr, filter: &str, rule: &str) -> Service {
    limited_by(&config(&[upstream], "main", ""), filter, rule)
}

/// The same, with this section `gateway`.
fn limited_by(config: &str, filter: &str, rule: &str) -> Service {
    let rest = format!(
        "filters: {{ main: {{ rule_set: s{filter} }} }}
rule_sets: {{ s: {{ rules: [ {{ id: r, bands: [ {{ capacity: 1, window: 1h }} ], {rule} }} ] }} }}
"
    );
    Service::start(&["gateway"], &format!("{config}{rest}"))
}

/// Sends a request of this user and returns the status.
fn status(service: &Service, line: &str, transport: &str, user: &str) -> u16 {
    let mut client = client(service);
    client.send(format!(
        "{line} HTTP/1.1\r\nHost: a\r\n{transport}X-User-Id: {user}\r\n\r\n"
    ));
    let response = client.read_answer();
    response
        .unwrap_or_else(|why| panic!("{line}: {why}"))
        .status
}

/// Returns the targets that the upstream received, sorted.
fn targets(upstream: &RawUpstream) -> Vec<String> {
    targets_of(upstream.requests())
}

fn targets_of(requests: Vec<WireRequest>) -> Vec<String> {
    let mut targets: Vec<_> = requests.into_iter().map(|it| it.target).collect();
    targets.sort();
    targets
}

const PATH_RULE: &str = "scope: per_user, match: { path: ['/api/**'] }";

#[test]
fn a_limit_on_a_path_applies_to_every_spelling() {
    let upstream = ok_upstream();
    let service = limited(upstream.address(), "", PATH_RULE);
    check_spellings(&service, || targets(&upstream));
}

#[test]
fn a_limit_on_a_path_applies_to_every_spelling_before_http2_upstreams() {
    let upstream = Http2Upstream::start();
    let config = config(&[upstream.address()], "main", "").replace("http:", "h2c:");
    let service = limited_by(&config, "", PATH_RULE);
    check_spellings(&service, || targets_of(upstream.requests()));
}

/// Checks every spelling; `targets` returns those that the upstream received.
fn check_spellings(service: &Service, targets: impl Fn() -> Vec<String>) {
    for (index, spelling) in SPELLINGS.into_iter().enumerate() {
        for (number, transport) in TRANSPORTS.into_iter().enumerate() {
            let [first, second] = ["a", "b"].map(|name| format!("{name}-{index}-{number}"));
            let send = |target: &str, user: &str| {
                status(service, &format!("GET {target}"), transport, user)
            };
            // The spelling uses the limit, and reaches the upstream as sent.
            let status = send(spelling, &first);
            let is_rejected = status == 400;
            assert!(is_rejected || status == 200, "{spelling}: {status}");
            assert_eq!(is_rejected, !spelling.starts_with('/'), "{spelling}");
            assert_eq!(targets().contains(&spelling.to_owned()), !is_rejected);
            let canonical = send("/api/x", &first);
            assert_eq!(canonical, if is_rejected { 200 } else { 429 }, "{spelling}");
            // The spelling is denied after the canonical path has used the limit.
            assert_eq!(send("/api/x", &second), 200);
            let denied = send(spelling, &second);
            assert_eq!(denied, if is_rejected { 400 } else { 429 }, "{spelling}");
        }
    }
}

#[test]
fn a_limit_on_a_path_applies_to_every_spelling_over_http2() {
    let upstream = ok_upstream();
    let rule = "scope: global, match: { path: ['/api/**'] }";
    let service = limited(upstream.address(), "", rule);
    assert_eq!(status(&service, "GET /api/x", FAST_PATH, "u"), 200);
    for spelling in SPELLINGS {
        if spelling.contains('\\') {
            continue;
        }
        let url = format!("http://{}{spelling}", service.address("gateway"));
        let mut curl = Command::new("curl");
        curl.args([
            "-sS",
            "--http2-prior-knowledge",
            "--path-as-is",
            "-o",
            "/dev/null",
        ]);
        let output = curl
            .args(["-w", "%{http_version} %{http_code}", &url])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "2 429",
            "{spelling}: {output:?}"
        );
    }
    assert_eq!(targets(&upstream), ["/api/x"]);
}

#[test]
fn all_spellings_of_a_path_share_one_bucket() {
    let upstream = ok_upstream();
    let service = limited(upstream.address(), "", "key: [user, path]");
    for (index, spelling) in SPELLINGS.into_iter().enumerate() {
        let user = format!("u{index}");
        assert_eq!(status(&service, "GET /api/x", FAST_PATH, &user), 200);
        for transport in TRANSPORTS {
            let denied = status(&service, &format!("GET {spelling}"), transport, &user);
            assert!([429, 400].contains(&denied), "{spelling}: {denied}");
        }
        assert_eq!(status(&service, "GET /api/y", FAST_PATH, &user), 200);
    }
}

#[test]
fn options_asterisk_is_limited() {
    let upstream = ok_upstream();
    let service = limited(upstream.address(), "", "scope: per_user");
    let send = |line: &str| status(&service, line, FAST_PATH, "u");
    assert_eq!([send("OPTIONS *"), send("OPTIONS *")], [200, 429]);
    assert_eq!(targets(&upstream), ["*"]);
    // It counts as `/*`.
    let upstream = ok_upstream();
    let rule = "scope: global, match: { path: ['/?'], methods: [OPTIONS] }";
    let service = limited(upstream.address(), ", include: ['/*']", rule);
    let send = |line: &str| status(&service, line, FAST_PATH, "u");
    assert_eq!([send("OPTIONS *"), send("OPTIONS *")], [200, 429]);
    assert_eq!(
        [send("GET *"), send("CONNECT a:80"), send("GET a:80")],
        [400, 405, 400]
    );
    assert_eq!(targets(&upstream), ["*"]);
}

#[test]
fn absolute_targets_are_limited_by_their_path() {
    let upstream = ok_upstream();
    let rule = "scope: per_user, match: { path: ['/', '/api/**'] }";
    let service = limited(upstream.address(), "", rule);
    let cases = [
        ("http://a/api/x", "/api/x"),
        ("http://a/%61pi//x", "/%61pi//x"),
        ("http://a", "/"),
        ("http://a/", "/"),
    ];
    for (index, (target, forwarded)) in cases.into_iter().enumerate() {
        let user = format!("u{index}");
        let send = || status(&service, &format!("GET {target}"), FAST_PATH, &user);
        assert_eq!([send(), send()], [200, 429], "{target}");
        assert!(
            targets(&upstream).iter().any(|it| it == forwarded),
            "{target}"
        );
    }
    assert_eq!(
        status(&service, "GET http://a/x/../api/x", FAST_PATH, "u"),
        400
    );
}

#[test]
fn dot_segments_in_either_form_are_rejected() {
    let upstream = ok_upstream();
    let service = limited(upstream.address(), "", "scope: global");
    for path in DOT_SEGMENTS {
        for transport in TRANSPORTS {
            let status = status(&service, &format!("GET {path}"), transport, "u");
            assert_eq!(status, 400, "{path}");
        }
    }
    for path in [
        "/a%00b",
        "/api;%2fy/x",
        "/api;a\\y/x",
        "/api/x%0a",
        "/api/x%0D",
        "/api%7f/x",
        "/api/x%80",
        "/api/x%ff",
    ] {
        for transport in TRANSPORTS {
            let status = status(&service, &format!("GET {path}"), transport, "u");
            assert_eq!(status, 400, "{path}");
        }
    }
    assert_eq!(targets(&upstream), [""; 0]);
    // Dots within a segment are valid.
    for (path, transport) in [("/.well-known/a..b/...", FAST_PATH), ("/x/%2e%2e.", HYPER)] {
        let status = status(&service, &format!("GET {path}"), transport, "u");
        assert!([200, 429].contains(&status), "{path}: {status}");
    }
}

#[test]
fn a_path_whose_forms_match_different_routes_is_rejected() {
    let [api, rest] = [ok_upstream(), ok_upstream()];
    let config = format!(
        "gateway:
  routes:
    - {{ id: api, match: {{ path: ['/api/**'] }}, upstreams: ['http://{}'] }}
    - {{ id: rest, match: {{ path: ['/**'] }}, upstreams: ['http://{}'] }}
",
        api.address(),
        rest.address()
    );
    let service = Service::start(&["gateway"], &config);
    for transport in TRANSPORTS {
        for (path, expected) in [
            ("/api/x", 200),
            ("/api/%78;y//z", 200),
            ("/other%20x", 200),
            ("/%61pi/x", 400),
            ("//api/x", 400),
            ("/api;v=1", 400),
            ("/api%2fx", 400),
        ] {
            let status = status(&service, &format!("GET {path}"), transport, "u");
            assert_eq!(status, expected, "{path}");
        }
    }
    let expected = ["/api/%78;y//z", "/api/%78;y//z", "/api/x", "/api/x"];
    assert_eq!(targets(&api), expected);
    assert_eq!(targets(&rest), ["/other%20x"; 2]);
}

#[test]
fn a_path_is_included_by_either_form_and_excluded_by_both() {
    let upstream = ok_upstream();
    let is_limited = |service: &Service, path: &str, transport: &str| {
        let mut client = client(service);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{transport}\r\n"));
        let response = client.read_answer().unwrap();
        assert_eq!(response.status, 200, "{path}");
        !response.values("ratelimit").is_empty()
    };
    let rule = "key: [path], match: { not_path: ['/api/free/**'] }";
    let filter = ", include: ['/api/**'], exclude: ['/api/health', '/api/live']";
    for transport in TRANSPORTS {
        let service = limited(upstream.address(), filter, rule);
        for (path, expected) in [
            ("/api/a", true),
            ("/%61pi/b", true),
            ("//api/c", true),
            ("/other", false),
            ("/%6fther", false),
            ("/api/health", false),
            // Some servers read `/api/health;x` as another path.
            ("/api/health;x", true),
            ("/api/live/", true),
            ("/api/free/a", false),
            ("/api/free/%61", false),
            ("/api/fre%65/b", true),
        ] {
            assert_eq!(is_limited(&service, path, transport), expected, "{path}");
        }
    }
}

/// Frameworks that ignore a slash at the end serve `/login/` as `/login`; those that ignore case
/// serve `/LOGIN`, too.
#[test]
fn a_limit_on_one_path_counts_a_slash_at_the_end_and_other_case() {
    let upstream = ok_upstream();
    let rule = "scope: per_user, match: { path: ['/Login'] }";
    for (filter, spelled, other) in [
        ("", "/Login/", "/login"),
        (", ignore_case: true", "/login/", "/logins"),
        (
            ", ignore_case: true, include: ['/LOG*']",
            "/%4cogin",
            "/logins",
        ),
    ] {
        let service = limited(upstream.address(), filter, rule);
        for transport in TRANSPORTS {
            let user = if transport == HYPER { "a" } else { "b" };
            let send = |target: &str| status(&service, &format!("GET {target}"), transport, user);
            assert_eq!(send(spelled), 200, "{filter}");
            assert_eq!([send("/Login"), send(spelled)], [429, 429], "{filter}");
            assert_eq!(send(other), 200, "{filter}");
        }
    }
    let excluded = ", exclude: ['/Login'], ignore_case: true";
    let service = limited(upstream.address(), excluded, "scope: global");
    let send = |target: &str| status(&service, &format!("GET {target}"), FAST_PATH, "u");
    assert_eq!([send("/LOGIN"), send("/login"), send("/LogIn")], [200; 3]);
    assert_eq!([send("/login/"), send("/LOGIN/")], [200, 429]);
}
