//! The metrics of the gateway, by route and upstream.

use std::collections::BTreeMap;

use fluxgate_gateway::{
    DURATION_BOUNDS, EjectionCause, ResponseTotals, RouteStatus, STATUS_CLASS_NAMES, UpstreamStatus,
};

use super::exposition::{Exposition, Family};
use super::family::{Kind, Labels};

/// The sums of the upstreams of a route with the same host and port: a series must not appear
/// twice.
struct UpstreamSums {
    responses: ResponseTotals,
    is_up: bool,
    ejections: [u64; EjectionCause::ALL.len()],
}

/// Renders the metrics of all routes, and of requests without a route.
pub(super) fn render_gateway(out: &mut Exposition, routes: &[RouteStatus]) {
    let help =
        "Requests to the gateway by route and status class. The route is empty if none matches.";
    let name = "fluxgate_gateway_requests_total";
    let mut family = out.family(name, Kind::Counter, help);
    for route in routes {
        add_classes(&mut family, &[("route", &*route.id)], &route.responses);
    }
    let help = "Time from the head of a request to the end of its response, in seconds.";
    let name = "fluxgate_gateway_request_duration_seconds";
    let mut family = out.family(name, Kind::Histogram, help);
    for route in routes {
        add_histogram(&mut family, &[("route", &*route.id)], &route.responses);
    }
    let help = "Attempts to send a request after the first.";
    let mut family = out.family("fluxgate_retries_total", Kind::Counter, help);
    for route in with_id(routes) {
        family.sample(&[("route", &*route.id)], route.retries);
    }
    render_upstreams(out, routes);
}

fn render_upstreams(out: &mut Exposition, routes: &[RouteStatus]) {
    let sums: Vec<_> = with_id(routes)
        .flat_map(|route| {
            let sums = sums_of(&route.upstreams).into_iter();
            sums.map(move |(upstream, sums)| (&*route.id, upstream, sums))
        })
        .collect();
    let help = "Requests to an upstream by status class. A failure counts as the status that the gateway makes of it.";
    let name = "fluxgate_upstream_requests_total";
    let mut family = out.family(name, Kind::Counter, help);
    for (route, upstream, sums) in &sums {
        add_classes(&mut family, &labels_of(route, upstream), &sums.responses);
    }
    let help = "Time from the start of an attempt to the head of the response, in seconds.";
    let name = "fluxgate_upstream_duration_seconds";
    let mut family = out.family(name, Kind::Histogram, help);
    for (route, upstream, sums) in &sums {
        add_histogram(&mut family, &labels_of(route, upstream), &sums.responses);
    }
    let help = "Whether an upstream gets requests: 0 while it is out.";
    let mut family = out.family("fluxgate_upstream_up", Kind::Gauge, help);
    for (route, upstream, sums) in &sums {
        family.sample(&labels_of(route, upstream), u64::from(sums.is_up));
    }
    let help = "How often an upstream went out, by cause.";
    let name = "fluxgate_upstream_ejections_total";
    let mut family = out.family(name, Kind::Counter, help);
    for (route, upstream, sums) in &sums {
        for (cause, count) in EjectionCause::ALL.iter().zip(sums.ejections) {
            let labels = [
                ("route", *route),
                ("upstream", *upstream),
                ("reason", cause.name()),
            ];
            family.sample(&labels, count);
        }
    }
}

fn labels_of<'a>(route: &'a str, upstream: &'a str) -> [(&'static str, &'a str); 2] {
    [("route", route), ("upstream", upstream)]
}

/// Returns the routes of the config.
fn with_id(routes: &[RouteStatus]) -> impl Iterator<Item = &RouteStatus> {
    routes.iter().filter(|route| !route.id.is_empty())
}

fn sums_of(upstreams: &[UpstreamStatus]) -> BTreeMap<&str, UpstreamSums> {
    let mut all: BTreeMap<&str, UpstreamSums> = BTreeMap::new();
    for upstream in upstreams {
        let sums = all.entry(&upstream.label).or_insert(UpstreamSums {
            responses: ResponseTotals::default(),
            is_up: true,
            ejections: Default::default(),
        });
        sums.responses.add(&upstream.responses);
        sums.is_up &= upstream.out.is_none();
        for (sum, count) in sums.ejections.iter_mut().zip(upstream.ejections) {
            *sum += count;
        }
    }
    all
}

fn add_classes(family: &mut Family<'_>, labels: Labels<'_>, responses: &ResponseTotals) {
    for (class, count) in STATUS_CLASS_NAMES.into_iter().zip(responses.classes) {
        let labels = [labels, &[("status_class", class)]].concat();
        family.sample(&labels, count);
    }
}

fn add_histogram(family: &mut Family<'_>, labels: Labels<'_>, responses: &ResponseTotals) {
    let (buckets, sum) = (&responses.buckets, responses.sum_nanos);
    family.labelled_histogram(labels, &DURATION_BOUNDS, buckets, sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_with_one_host_and_port_are_one_series() {
        let upstream = |url: &str, out: Option<&str>| UpstreamStatus {
            url: url.into(),
            label: "h:80".into(),
            out: out.map(str::to_owned),
            responses: ResponseTotals {
                classes: [0, 3, 0, 0, 1],
                ..ResponseTotals::default()
            },
            ejections: [1, 0, 0, 0, 0],
            recent_requests: 0,
            recent_failures: 0,
        };
        let mut out = Exposition::prometheus();
        let route = RouteStatus {
            id: "r".into(),
            responses: ResponseTotals::default(),
            retries: 7,
            upstreams: vec![
                upstream("http://h:80", None),
                upstream("https://h:80", Some("x")),
            ],
        };
        render_gateway(&mut out, &[route]);
        let text = out.into_text();
        for line in [
            "fluxgate_gateway_requests_total{route=\"r\",status_class=\"2xx\"} 0",
            "fluxgate_retries_total{route=\"r\"} 7",
            "fluxgate_upstream_requests_total{route=\"r\",upstream=\"h:80\",status_class=\"2xx\"} 6",
            "fluxgate_upstream_requests_total{route=\"r\",upstream=\"h:80\",status_class=\"5xx\"} 2",
            "fluxgate_upstream_up{route=\"r\",upstream=\"h:80\"} 0",
            "fluxgate_upstream_ejections_total{route=\"r\",upstream=\"h:80\",reason=\"connect\"} 2",
        ] {
            assert_eq!(text.lines().filter(|it| *it == line).count(), 1, "{text}");
        }
    }
}
