//! Which route a request takes.

use super::*;

#[test]
fn the_first_matching_route_is_used() {
    let names = ["host", "header", "method", "path"];
    let upstreams = names.map(Upstream::with_body);
    let matches = [
        "match: { host: [api.example.com] },",
        "match: { headers: { X-Plan: pro } },",
        "match: { path: [/x/**], methods: [PUT] },",
        "match: { path: [/x/**] },",
    ];
    let routes: Vec<_> = (0..4)
        .map(|at| route(names[at], matches[at], &[&upstreams[at]]))
        .collect();
    let service = start(&routes, "");
    let mut http = client(&service);
    for (method, path, header, expected) in [
        ("GET", "/x/y", ("A", "b"), "path"),
        ("PUT", "/x/y", ("A", "b"), "method"),
        ("PUT", "/x/y", ("X-Plan", "pro"), "header"),
        ("GET", "/elsewhere", ("x-plan", "pro"), "header"),
        ("GET", "/x?/y", ("X-Plan", "free"), "path"),
    ] {
        let response = http.request(method, path, &[header], "");
        assert_eq!(
            (response.status, &*response.body),
            (200, expected),
            "{path}"
        );
    }
    let by_host = "GET /none HTTP/1.1\r\nHost: API.example.com:81\r\n\r\n";
    http.send_raw(by_host.as_bytes()).unwrap();
    assert_eq!(http.read_answer(false).unwrap().body, "host");
    assert_problem(&http.get("/none"), 404);
    // The fast path and hyper each keep one connection to an upstream.
    for (upstream, name) in upstreams.iter().zip(names) {
        assert!((1..=2).contains(&upstream.connections()), "{name}");
    }
}

#[test]
fn requests_are_counted_by_status_class() {
    let upstream = Upstream::with_body("ok");
    let service = start(&[route("r", "match: { path: [/x] },", &[&upstream])], "");
    let mut http = client(&service);
    assert_eq!(http.get("/x").status, 200);
    assert_eq!(http.get("/y").status, 404);
    let metrics = service.http().get("/metrics").body;
    for class in ["2xx", "4xx"] {
        let line = format!(
            "fluxgate_http_requests_total{{listener=\"gateway\",status_class=\"{class}\"}} 1"
        );
        assert!(metrics.lines().any(|it| it == line), "{metrics}");
    }
}
