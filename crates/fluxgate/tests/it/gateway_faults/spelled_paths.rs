//! Paths that servers read in more ways than one, on the wire: no way of spelling one gets
//! around its limit.

use std::net::SocketAddr;
use std::process::Command;

use fluxgate_testkit::RawUpstream;

use super::{client, config, ok_upstream};
use crate::service::Service;

/// Ways to write `/api/x`.
const SPELLED: [&str; 14] = [
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
    "\\api/x",
];

/// Paths with dots in either form.
const DOTS: [&str; 14] = [
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

/// What takes a request on each of the ways through the gateway.
const FAST: &str = "";
const LIBRARY: &str = "TE: trailers\r\n";
const WAYS: [&str; 2] = [FAST, LIBRARY];

/// A gateway with a filter that is set like this, and these rules.
fn limited(upstream: SocketAddr, filter: &str, rule: &str) -> Service {
    let config = config(&[upstream], "main", "");
    let rest = format!(
        "filters: {{ main: {{ rule_set: s{filter} }} }}
rule_sets: {{ s: {{ rules: [ {{ id: r, bands: [ {{ capacity: 1, window: 1h }} ], {rule} }} ] }} }}
"
    );
    Service::start(&["gateway"], &format!("{config}{rest}"))
}

/// The status of a request of this user.
fn status(service: &Service, line: &str, way: &str, user: &str) -> u16 {
    let mut client = client(service);
    client.send(format!(
        "{line} HTTP/1.1\r\nHost: a\r\n{way}X-User-Id: {user}\r\n\r\n"
    ));
    let answer = client.read_answer();
    answer.unwrap_or_else(|why| panic!("{line}: {why}")).status
}

/// What the upstream was asked for, in the order of the alphabet.
fn targets(upstream: &RawUpstream) -> Vec<String> {
    let requests = upstream.requests().into_iter();
    let mut targets: Vec<_> = requests.map(|request| request.target).collect();
    targets.sort();
    targets
}

#[test]
fn a_limit_on_a_path_holds_however_it_is_spelled() {
    let upstream = ok_upstream();
    let rule = "scope: per_user, match: { path: ['/api/**'] }";
    let service = limited(upstream.address(), "", rule);
    for (index, spelled) in SPELLED.into_iter().enumerate() {
        for (number, way) in WAYS.into_iter().enumerate() {
            let [first, second] = ["a", "b"].map(|name| format!("{name}-{index}-{number}"));
            let ask =
                |target: &str, user: &str| status(&service, &format!("GET {target}"), way, user);
            // The first is counted, and reaches the upstream as it was sent.
            let passed = ask(spelled, &first);
            let is_refused = passed == 400;
            assert!(is_refused || passed == 200, "{spelled}: {passed}");
            assert_eq!(is_refused, !spelled.starts_with('/'), "{spelled}");
            assert_eq!(
                targets(&upstream).contains(&spelled.to_owned()),
                !is_refused
            );
            let plain = ask("/api/x", &first);
            assert_eq!(plain, if is_refused { 200 } else { 429 }, "{spelled}");
            // And is limited, when others have been counted.
            assert_eq!(ask("/api/x", &second), 200);
            let limited = ask(spelled, &second);
            assert_eq!(limited, if is_refused { 400 } else { 429 }, "{spelled}");
        }
    }
}

#[test]
fn a_limit_on_a_path_holds_over_http2() {
    let upstream = ok_upstream();
    let rule = "scope: global, match: { path: ['/api/**'] }";
    let service = limited(upstream.address(), "", rule);
    assert_eq!(status(&service, "GET /api/x", FAST, "u"), 200);
    for spelled in SPELLED {
        if spelled.contains('\\') {
            continue;
        }
        let url = format!("http://{}{spelled}", service.address("gateway"));
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
            "{spelled}: {output:?}"
        );
    }
    assert_eq!(targets(&upstream), ["/api/x"]);
}

#[test]
fn a_bucket_of_a_path_is_one_however_it_is_spelled() {
    let upstream = ok_upstream();
    let service = limited(upstream.address(), "", "key: [user, path]");
    for (index, spelled) in SPELLED.into_iter().enumerate() {
        let user = format!("u{index}");
        assert_eq!(status(&service, "GET /api/x", FAST, &user), 200);
        for way in WAYS {
            let limited = status(&service, &format!("GET {spelled}"), way, &user);
            assert!([429, 400].contains(&limited), "{spelled}: {limited}");
        }
        assert_eq!(status(&service, "GET /api/y", FAST, &user), 200);
    }
}

#[test]
fn options_of_the_whole_server_meets_the_filters() {
    let upstream = ok_upstream();
    let service = limited(upstream.address(), "", "scope: per_user");
    let ask = |line: &str| status(&service, line, FAST, "u");
    assert_eq!([ask("OPTIONS *"), ask("OPTIONS *")], [200, 429]);
    assert_eq!(targets(&upstream), ["*"]);
    // It counts as `/*`.
    let upstream = ok_upstream();
    let rule = "scope: global, match: { path: ['/?'], methods: [OPTIONS] }";
    let service = limited(upstream.address(), ", include: ['/*']", rule);
    let ask = |line: &str| status(&service, line, FAST, "u");
    assert_eq!([ask("OPTIONS *"), ask("OPTIONS *")], [200, 429]);
    assert_eq!(
        [ask("GET *"), ask("CONNECT a:80"), ask("GET a:80")],
        [400, 405, 400]
    );
    assert_eq!(targets(&upstream), ["*"]);
}

#[test]
fn targets_in_absolute_form_are_limited_by_their_path() {
    let upstream = ok_upstream();
    let rule = "scope: per_user, match: { path: ['/', '/api/**'] }";
    let service = limited(upstream.address(), "", rule);
    let targets_and_forwarded = [
        ("http://a/api/x", "/api/x"),
        ("http://a/%61pi//x", "/%61pi//x"),
        ("http://a", "/"),
        ("http://a/", "/"),
    ];
    for (index, (target, forwarded)) in targets_and_forwarded.into_iter().enumerate() {
        let user = format!("u{index}");
        let ask = || status(&service, &format!("GET {target}"), FAST, &user);
        assert_eq!([ask(), ask()], [200, 429], "{target}");
        assert!(
            targets(&upstream).iter().any(|it| it == forwarded),
            "{target}"
        );
    }
    assert_eq!(status(&service, "GET http://a/x/../api/x", FAST, "u"), 400);
}

#[test]
fn dots_in_either_form_are_refused() {
    let upstream = ok_upstream();
    let service = limited(upstream.address(), "", "scope: global");
    for path in DOTS {
        for way in WAYS {
            let refused = status(&service, &format!("GET {path}"), way, "u");
            assert_eq!(refused, 400, "{path}");
        }
    }
    for path in ["/a%00b", "/api;%2fy/x", "/api;a\\y/x"] {
        assert_eq!(
            status(&service, &format!("GET {path}"), FAST, "u"),
            400,
            "{path}"
        );
    }
    assert_eq!(targets(&upstream), [""; 0]);
    // Dots that are no segments are good.
    for (path, way) in [("/.well-known/a..b/...", FAST), ("/x/%2e%2e.", LIBRARY)] {
        let passed = status(&service, &format!("GET {path}"), way, "u");
        assert!([200, 429].contains(&passed), "{path}: {passed}");
    }
}

#[test]
fn two_forms_with_two_routes_are_refused() {
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
    for way in WAYS {
        for (path, expected) in [
            ("/api/x", 200),
            ("/api/%78;y//z", 200),
            ("/other%20x", 200),
            ("/%61pi/x", 400),
            ("//api/x", 400),
            ("/api;v=1", 400),
            ("/api%2fx", 400),
        ] {
            let found = status(&service, &format!("GET {path}"), way, "u");
            assert_eq!(found, expected, "{path}");
        }
    }
    let both = ["/api/%78;y//z", "/api/%78;y//z", "/api/x", "/api/x"];
    assert_eq!(targets(&api), both);
    assert_eq!(targets(&rest), ["/other%20x"; 2]);
}

#[test]
fn a_path_is_included_by_either_form_and_excluded_by_both() {
    let upstream = ok_upstream();
    let told = |service: &Service, path: &str, way: &str| {
        let mut client = client(service);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{way}\r\n"));
        let answer = client.read_answer().unwrap();
        assert_eq!(answer.status, 200, "{path}");
        !answer.values("ratelimit").is_empty()
    };
    let rule = "key: [path], match: { not_path: ['/api/free/**'] }";
    let filter = ", include: ['/api/**'], exclude: ['/api/health']";
    for way in WAYS {
        let service = limited(upstream.address(), filter, rule);
        for (path, is_limited) in [
            ("/api/a", true),
            ("/%61pi/b", true),
            ("//api/c", true),
            ("/other", false),
            ("/%6fther", false),
            ("/api/health", false),
            // `/api/health;x` is another path for some.
            ("/api/health;x", true),
            ("/api/free/a", false),
            ("/api/free/%61", false),
            ("/api/fre%65/b", true),
        ] {
            assert_eq!(told(&service, path, way), is_limited, "{path}");
        }
    }
}
