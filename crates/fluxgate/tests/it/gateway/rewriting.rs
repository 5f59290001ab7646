//! Changed paths, hosts and headers, and requests from pages of other sites, on both transports.

use std::io::Write as _;

use super::*;

/// A header that sends a request through hyper instead of the fast path.
const HYPER: (&str, &str) = ("TE", "trailers");
const TRANSPORTS: [Option<(&str, &str)>; 2] = [None, Some(HYPER)];

const PAGE: (&str, &str) = ("Origin", "https://app.example.com");

#[test]
fn rules_see_the_path_of_the_client_and_upstreams_the_changed_one() {
    for more in TRANSPORTS {
        let upstream = Upstream::with_body("ok");
        let rewrite =
            "rewrite: { strip_prefix: /api, add_prefix: /v1, host: upstream }, filters: [main],";
        let rules = "filters: { main: { rule_set: s } }
rule_sets: { s: { rules: [ { id: r, match: { path: [/api/x] }, scope: global, bands: [ { capacity: 1, window: 1h } ] } ] } }
";
        let service = start(&[route("all", rewrite, &[&upstream])], rules);
        let mut http = client(&service);
        let headers: Vec<_> = more.into_iter().collect();
        assert_eq!(
            http.request("GET", "/api/x?q=/api", &headers, "").status,
            200
        );
        assert_eq!(http.request("GET", "/api/x", &headers, "").status, 429);
        // The changed path is not counted.
        assert_eq!(http.request("GET", "/v1/x", &headers, "").status, 200);
        assert_eq!(
            http.request("GET", "/api//host/x", &headers, "").status,
            200
        );
        assert_problem(&http.request("GET", "/%61pi/x", &headers, ""), 400);
        let requests = upstream.requests();
        let lines: Vec<_> = requests.iter().map(|it| it.request_line()).collect();
        assert_eq!(
            lines,
            [
                "GET /v1/x?q=/api HTTP/1.1",
                "GET /v1/v1/x HTTP/1.1",
                "GET /v1/host/x HTTP/1.1"
            ]
        );
        let host = upstream.url().replace("http://", "");
        assert_eq!(requests[0].header("host"), [host]);
        let gateway = service.address("gateway").to_string();
        assert_ne!(
            requests[0].header("x-forwarded-host"),
            requests[0].header("host"),
            "{gateway}"
        );
    }
}

#[test]
fn headers_are_set_and_removed_in_both_directions() {
    for more in TRANSPORTS {
        let upstream = Upstream::start(|_, stream| {
            let response = "HTTP/1.1 200 OK\r\nServer: secret\r\nX-Keep: 1\r\nCache-Control: a\r\n\
                            Content-Length: 2\r\n\r\nok";
            stream.write_all(response.as_bytes()).is_ok()
        });
        let fields = "rewrite: { host: api.internal }, headers: { request: { set: { X-Env: prod }, remove: [X-Debug] }, response: { set: { Cache-Control: no-store }, remove: [Server] } },";
        let service = start(&[route("all", fields, &[&upstream])], "");
        let sent = [
            ("X-Env", "mine"),
            ("X_Env", "alike"),
            ("X-Debug", "1"),
            ("X.Debug", "1"),
            ("X-Other", "1"),
        ];
        let headers: Vec<_> = sent.into_iter().chain(more).collect();
        let response = client(&service).request("GET", "/", &headers, "");
        assert_eq!(response.body, "ok");
        let values = |name: &str| {
            let named = response.headers.iter().filter(|(known, _)| known == name);
            named.map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        assert_eq!(values("server"), [""; 0]);
        assert_eq!(
            (values("cache-control"), values("x-keep")),
            (vec!["no-store".into()], vec!["1".into()])
        );
        let request = upstream.only_request();
        assert_eq!(request.header("host"), ["api.internal"]);
        assert_eq!(request.header("x-env"), ["prod"]);
        for name in ["x_env", "x-debug", "x.debug"] {
            assert_eq!(request.header(name), [""; 0], "{name}");
        }
        assert_eq!(request.header("x-other"), ["1"]);
    }
}

#[test]
fn a_route_may_require_headers_as_rules_do() {
    let upstreams = ["beta", "none", "old", "rest"].map(Upstream::with_body);
    let matches = [
        "match: { headers: { X-Beta: [\"1\", \"2\"] } },",
        "match: { headers: { X-Key: { present: false }, X-Old: { present: false } } },",
        "match: { headers: { X-Version: { not: new } } },",
        "",
    ];
    let routes: Vec<_> = (0..4)
        .map(|at| route(&format!("r{at}"), matches[at], &[&upstreams[at]]))
        .collect();
    let service = start(&routes, "");
    let mut http = client(&service);
    for (headers, expected) in [
        (&[("X-Beta", "2")][..], "beta"),
        (&[("X-Beta", "3")], "none"),
        (&[("X-Beta", "1"), ("X-Beta", "2")], "none"),
        (&[("X-Key", "k")], "old"),
        (&[("X-Key", "k"), ("X-Version", "old")], "old"),
        (&[("X-Key", "k"), ("X-Version", "new")], "rest"),
    ] {
        assert_eq!(
            http.request("GET", "/", headers, "").body,
            expected,
            "{headers:?}"
        );
    }
}

/// Starts a gateway whose only route pages of one origin may use, once an hour.
fn start_with_cors(upstream: &Upstream, credentials: bool) -> Service {
    let cors = format!(
        "match: {{ methods: [GET, PUT] }}, cors: {{ origins: [\"https://app.example.com\"], methods: [GET, PUT], headers: [Content-Type, X-A], credentials: {credentials}, max_age: 10m }}, filters: [main],"
    );
    let rules = "filters: { main: { rule_set: s } }
rule_sets: { s: { rules: [ { id: r, scope: global, bands: [ { capacity: 1, window: 1h } ] } ] } }
";
    start(&[route("all", &cors, &[upstream])], rules)
}

#[test]
fn a_browser_that_asks_is_answered_without_a_charge() {
    for more in TRANSPORTS {
        let upstream = Upstream::with_body("ok");
        let service = start_with_cors(&upstream, true);
        let mut http = client(&service);
        let asks = ("Access-Control-Request-Method", "PUT");
        let mut ask = |origin: (&'static str, &'static str)| {
            let headers: Vec<_> = [origin, asks].into_iter().chain(more).collect();
            http.request("OPTIONS", "/x", &headers, "")
        };
        for _ in 0..3 {
            let answer = ask(PAGE);
            assert_eq!((answer.status, &*answer.body), (204, ""), "{answer:?}");
            for (name, value) in [
                ("access-control-allow-origin", "https://app.example.com"),
                ("access-control-allow-methods", "GET, PUT"),
                ("access-control-allow-headers", "Content-Type, X-A"),
                ("access-control-allow-credentials", "true"),
                ("access-control-max-age", "600"),
                ("vary", "Origin"),
            ] {
                assert_eq!(answer.header(name), Some(value), "{answer:?}");
            }
            assert_eq!(answer.header("content-length"), None);
        }
        let foreign = ask(("Origin", "https://evil.example"));
        assert_problem(&foreign, 403);
        assert_eq!(foreign.header("access-control-allow-origin"), None);
        assert_eq!(upstream.requests().len(), 0);
        // No other question is answered: no route is for this method.
        let headers: Vec<_> = [PAGE].into_iter().chain(more).collect();
        assert_problem(&http.request("OPTIONS", "/x", &headers, ""), 404);
        // Nothing has been charged.
        assert_eq!(http.request("PUT", "/x", &headers, "").status, 200);
    }
}

#[test]
fn responses_and_refusals_may_be_read_by_the_page() {
    for more in TRANSPORTS {
        let upstream = Upstream::start(|_, stream| {
            let response = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\n\
                            Access-Control-Allow-Credentials: true\r\nVary: Accept\r\n\
                            Content-Length: 2\r\n\r\nok";
            stream.write_all(response.as_bytes()).is_ok()
        });
        let service = start_with_cors(&upstream, false);
        let mut http = client(&service);
        let headers: Vec<_> = [PAGE].into_iter().chain(more).collect();
        for status in [200, 429] {
            let answer = http.request("GET", "/", &headers, "");
            assert_eq!(answer.status, status);
            let values = |name: &str| {
                let named = answer.headers.iter().filter(|(known, _)| known == name);
                named.map(|(_, value)| value.clone()).collect::<Vec<_>>()
            };
            assert_eq!(
                values("access-control-allow-origin"),
                [PAGE.1],
                "{answer:?}"
            );
            assert_eq!(values("access-control-allow-credentials"), [""; 0]);
            assert!(values("vary").contains(&"Origin".into()), "{answer:?}");
            let exposed = values("access-control-expose-headers").concat();
            assert!(
                exposed.contains("Retry-After") && exposed.contains("RateLimit"),
                "{exposed}"
            );
            if status == 200 {
                assert!(values("vary").contains(&"Accept".into()), "{answer:?}");
            }
        }
        // Other pages get nothing that lets them read it.
        let foreign: Vec<_> = [("Origin", "https://evil.example")]
            .into_iter()
            .chain(more)
            .collect();
        let answer = http.request("GET", "/", &foreign, "");
        assert_eq!(answer.header("access-control-allow-origin"), None);
        assert_eq!(answer.header("vary"), Some("Origin"));
    }
}
