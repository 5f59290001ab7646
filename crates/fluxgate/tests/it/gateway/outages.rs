//! An upstream that goes out is logged, counted, shown and told of, and so is its return.

use std::net::TcpListener;

use fluxgate_testkit::wait_until;
use serde_json::Value;

use super::*;

/// A header that sends a request through hyper instead of the fast path.
const HYPER: [(&str, &str); 1] = [("TE", "trailers")];

/// Returns the upstreams of the only route, by `GET /v1/routes`.
fn upstreams(service: &Service) -> Vec<Value> {
    let answer = service.http().get("/v1/routes");
    assert_eq!(answer.status, 200, "{answer:?}");
    let routes: Value = serde_json::from_str(&answer.body).unwrap();
    let [route] = &routes["routes"].as_array().unwrap()[..] else {
        panic!("{routes}");
    };
    assert_eq!(route["id"], "all");
    route["upstreams"].as_array().unwrap().clone()
}

/// Returns the value of a series.
#[track_caller]
fn metric(service: &Service, series: &str) -> u64 {
    let metrics = service.http().get("/metrics").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    let value = line.unwrap_or_else(|| panic!("no {series} in {metrics}"));
    value.trim().parse().unwrap()
}

/// Returns the events about upstreams.
fn events(service: &Service) -> Vec<Value> {
    let answer = service.http().get("/v1/events");
    let events: Value = serde_json::from_str(&answer.body).unwrap();
    let mut events = events["events"].as_array().unwrap().clone();
    events.retain(|event| event["kind"] == "upstream");
    events
}

#[test]
fn an_upstream_that_is_out_is_reported_once_and_so_is_its_return() {
    let upstream = Upstream::with_body("up");
    // Nothing listens there yet.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = listener.local_addr().unwrap();
    drop(listener);
    let up = upstream.url().replace("http://", "");
    let route = format!("{{ id: all, upstreams: [\"http://{dead}\", \"http://{up}\"] }}");
    let service = start(&[route], "");
    let mut http = client(&service);
    for (index, headers) in [&[][..], &HYPER].into_iter().cycle().take(10).enumerate() {
        let answer = http.request("GET", "/", headers, "");
        assert_eq!((answer.status, &*answer.body), (200, "up"), "{index}");
    }
    let [out, healthy] = &upstreams(&service)[..] else {
        panic!()
    };
    assert_eq!(out["url"], format!("http://{dead}"));
    assert_eq!(out["health"], "out");
    let reason = out["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("the upstream cannot be reached: "),
        "{reason}"
    );
    assert!(out["failures"].as_u64() >= Some(1), "{out}");
    assert_eq!(
        (&healthy["health"], &healthy["reason"]),
        (&"up".into(), &Value::Null)
    );
    assert_eq!(
        (&healthy["requests"], &healthy["failures"]),
        (&10.into(), &0.into())
    );

    let line = service.wait_for_log("an upstream is out");
    assert_eq!(line["route"], "all");
    assert_eq!(line["upstream"], dead.to_string());
    assert_eq!(line["reason"], reason);
    let of =
        |upstream: &str, rest: &str| format!("{{route=\"all\",upstream=\"{upstream}\"{rest}}}");
    let dead_name = dead.to_string();
    let ejected = of(&dead_name, ",reason=\"connect\"");
    let ejected = format!("fluxgate_upstream_ejections_total{ejected}");
    assert_eq!(metric(&service, &ejected), 1);
    assert_eq!(
        metric(
            &service,
            &format!("fluxgate_upstream_up{}", of(&dead_name, ""))
        ),
        0
    );
    assert_eq!(
        metric(&service, &format!("fluxgate_upstream_up{}", of(&up, ""))),
        1
    );
    let responses = of(&up, ",status_class=\"2xx\"");
    let responses = format!("fluxgate_upstream_requests_total{responses}");
    assert_eq!(metric(&service, &responses), 10);
    wait_until("both requests are counted for the route", || {
        let series = "fluxgate_gateway_requests_total{route=\"all\",status_class=\"2xx\"}";
        metric(&service, series) == 10
    });
    let count = "fluxgate_gateway_request_duration_seconds_count{route=\"all\"}";
    assert_eq!(metric(&service, count), 10);
    assert!(metric(&service, "fluxgate_retries_total{route=\"all\"}") >= 1);

    // Once it listens, a probe brings it back.
    let back = Upstream::start_on(TcpListener::bind(dead).unwrap(), |_, stream| {
        use std::io::Write as _;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nback")
            .is_ok()
    });
    wait_until("the upstream is back", || http.get("/").body == "back");
    assert_eq!(upstreams(&service)[0]["health"], "up");
    service.wait_for_log("an upstream is back");
    let events = events(&service);
    let states: Vec<_> = events.iter().map(|event| &event["state"]).collect();
    assert_eq!(states, ["out", "back"], "{events:?}");
    assert_eq!(events[0]["route"], "all");
    assert_eq!(events[0]["upstream"], dead.to_string());
    assert_eq!(events[0]["reason"], reason);
    assert_eq!(service.logs("an upstream is out").len(), 1);
    drop(back);
}

#[test]
fn requests_are_counted_by_route_whatever_answers_them() {
    let upstream = Upstream::with_body("ok");
    let limited = route(
        "limited",
        "match: { path: [/l] }, filters: [main],",
        &[&upstream],
    );
    let config = format!("filters: {{ main: {{ rule_set: s }} }}\n{ONE_A_MINUTE}");
    let service = start(&[limited], &config);
    let mut http = client(&service);
    for headers in [&[][..], &HYPER] {
        http.request("GET", "/l", headers, "");
        http.request("GET", "/none", headers, "");
    }
    wait_until("all are counted", || {
        let count = |route: &str, class: &str| {
            let labels = format!("{{route=\"{route}\",status_class=\"{class}\"}}");
            metric(
                &service,
                &format!("fluxgate_gateway_requests_total{labels}"),
            )
        };
        [
            count("limited", "2xx"),
            count("limited", "4xx"),
            count("", "4xx"),
        ] == [1, 1, 2]
    });
}
