//! What upstreams keep, and what ends with those that leave.

use std::io::Write as _;

use super::*;
use crate::http2_peers::Http2Upstream;

/// Starts an upstream whose health checks fail if `is_healthy` says so.
fn checked(is_healthy: bool) -> Upstream {
    Upstream::start(move |request, stream| {
        let is_check = request.request_line() == "GET /healthz HTTP/1.1";
        let status = if is_check && !is_healthy { 500 } else { 200 };
        write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").is_ok()
    })
}

fn checks(upstream: &Upstream) -> usize {
    let requests = upstream.requests();
    let is_check = |it: &&upstream::ReceivedRequest| it.request_line().contains("/healthz");
    requests.iter().filter(is_check).count()
}

fn with_checks(urls: &[String], fields: &str) -> String {
    format!(
        "{{ id: all, health: {{ path: /healthz, interval: 20ms, timeout: 10s, unhealthy: 1 }}, \
         upstreams: {urls:?}, {fields} }}"
    )
}

fn status(service: &Service) -> Vec<(String, String, u64)> {
    let routes: Value = serde_json::from_str(&service.http().get("/v1/routes").body).unwrap();
    let upstreams = routes["routes"][0]["upstreams"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    upstreams
        .map(|it| {
            (
                text(&it["url"]),
                text(&it["health"]),
                it["requests"].as_u64().unwrap(),
            )
        })
        .collect()
}

#[test]
fn upstreams_that_stay_keep_their_connections_health_and_counters() {
    let upstreams = [checked(true), checked(false), checked(true)];
    let urls = upstreams.each_ref().map(Upstream::url);
    let service = run(&config(&[with_checks(&urls[..2], "")], ""));
    wait_until("the second is out", || status(&service)[1].1 == "out");
    let mut http = client(&service);
    for _ in 0..5 {
        assert_eq!(http.get("/x").status, 200);
    }
    let sent = |upstream: &Upstream| upstream.requests().len() - checks(upstream);
    assert_eq!([sent(&upstreams[0]), sent(&upstreams[1])], [5, 0]);
    // Each check opens one of its own.
    let opened = || upstreams[0].connections() - checks(&upstreams[0]);
    let before_changes = opened();

    // The checks stay as they are, and then change. The second upstream is out all along.
    for changed in ["timeouts: { request: 20s }", "timeouts: { idle: 50s }"] {
        reload(&service, &config(&[with_checks(&urls[..2], changed)], ""));
        let now = status(&service);
        assert_eq!([&*now[0].1, &*now[1].1], ["up", "out"], "{now:?}");
        assert!(now[0].2 >= 5, "{now:?}");
        assert_eq!(http.get("/x").status, 200);
    }
    let before = checks(&upstreams[1]);
    wait_until("it is still checked", || checks(&upstreams[1]) > before + 2);
    assert_eq!(status(&service)[1].1, "out");
    assert_eq!([sent(&upstreams[0]), sent(&upstreams[1])], [7, 0]);
    // A check may be on its way.
    assert!(opened() <= before_changes + 1);
    assert_eq!(service.logs("an upstream is out").len(), 1);
    let total = "fluxgate_gateway_requests_total{route=\"all\",status_class=\"2xx\"} 7";
    assert!(metrics(&service).contains(total));

    // Without a check it gets requests again.
    reload(&service, &config(&[to(&urls[..2])], ""));
    service.wait_for_log("an upstream is back");
    assert_eq!(status(&service)[1].1, "up");
    wait_until("both are used", || {
        http.get("/x");
        sent(&upstreams[1]) > 0
    });
}

#[test]
fn upstreams_that_leave_are_drained_and_checked_no_more() {
    let upstreams = [checked(true), checked(true)];
    let urls = upstreams.each_ref().map(Upstream::url);
    let service = run(&config(&[with_checks(&urls, "")], ""));
    let mut http = client(&service);
    wait_until("both are used", || {
        http.get("/x");
        upstreams.iter().all(|it| it.requests().len() > checks(it))
    });
    reload(&service, &config(&[with_checks(&urls[1..], "")], ""));
    wait_until("its connections are closed", || {
        upstreams[0].open_connections() == 0
    });
    let (left, stays) = (checks(&upstreams[0]), checks(&upstreams[1]));
    let connections = upstreams[0].connections();
    wait_until("the other is checked", || {
        checks(&upstreams[1]) > stays + 20
    });
    assert_eq!(
        (checks(&upstreams[0]), upstreams[0].connections()),
        (left, connections)
    );
    let label = urls[0].replace("http://", "");
    assert!(!metrics(&service).contains(&label));
    assert_eq!(status(&service).len(), 1);

    // It may come back.
    reload(&service, &config(&[with_checks(&urls, "")], ""));
    wait_until("it is checked again", || checks(&upstreams[0]) > left);
    let sent = upstreams[0].requests().len() - checks(&upstreams[0]);
    wait_until("it is used again", || {
        http.get("/x");
        upstreams[0].requests().len() - checks(&upstreams[0]) > sent
    });
}

#[test]
fn connections_over_http2_are_drained_as_well() {
    let upstreams = [Http2Upstream::start(), Http2Upstream::start()];
    let urls = upstreams.each_ref().map(Http2Upstream::url);
    let service = run(&config(&[with_checks(&urls, "")], ""));
    let mut http = client(&service);
    let checked = |upstream: &Http2Upstream| {
        let requests = upstream.requests();
        let checks = requests.iter().filter(|it| it.target == "/healthz").count();
        (checks, requests.len() - checks)
    };
    wait_until("both are checked and used", || {
        http.get("/x");
        upstreams
            .iter()
            .all(|it| checked(it).0 > 1 && checked(it).1 > 0)
    });
    reload(&service, &config(&[with_checks(&urls[1..], "")], ""));
    // Those of the checks, too.
    wait_until("all connections are closed", || {
        upstreams[0].open_connections() == 0
    });
    assert!(upstreams[1].open_connections() > 0);
}
