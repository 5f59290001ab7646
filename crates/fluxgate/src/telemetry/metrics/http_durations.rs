//! The durations of the gateway's requests by route, method and status, as OpenTelemetry names them.
//! Counted only if metrics are exported over OTLP.

use std::collections::HashMap;
use std::sync::MutexGuard;

use fluxgate_gateway::EndedRequest;

use super::otlp::OtlpMetrics;
use crate::telemetry::{clock, otlp_json};

/// The upper bounds of the buckets in nanoseconds, which OpenTelemetry recommends. One more bucket
/// has no bound.
const BOUNDS: [u64; 14] = [
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    75_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    750_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    7_500_000_000,
    10_000_000_000,
];
/// The largest number of series of a thread: upstreams choose the statuses. Further requests are
/// counted together.
const MAX_SERIES: usize = 2_000;
/// The methods that OpenTelemetry knows; the others are one.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];
pub(in crate::telemetry) const OTHER_METHOD: &str = "_OTHER";

/// The durations of one thread's requests.
#[derive(Debug, Default)]
pub(in crate::telemetry) struct HttpDurations {
    /// By route, which is empty if there is none.
    routes: HashMap<Box<str>, HashMap<Series, Durations>>,
    series: usize,
    overflow: Durations,
}

/// What tells the requests of a route apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Series {
    method: &'static str,
    status: u16,
    scheme: &'static str,
    protocol: &'static str,
}

#[derive(Clone, Copy, Debug, Default)]
struct Durations {
    buckets: [u64; BOUNDS.len() + 1],
    /// In nanoseconds.
    sum: u64,
}

/// Returns a method as OpenTelemetry names it.
pub(in crate::telemetry) fn known_method(method: &str) -> &'static str {
    let known = METHODS.iter().find(|known| **known == method);
    known.copied().unwrap_or(OTHER_METHOD)
}

/// Returns the version of a protocol such as `HTTP/1.1`.
pub(in crate::telemetry) fn version_of(protocol: &'static str) -> &'static str {
    protocol.strip_prefix("HTTP/").unwrap_or(protocol)
}

impl HttpDurations {
    pub(in crate::telemetry) fn count(&mut self, request: &EndedRequest<'_>) {
        let facts = &request.facts;
        let series = Series {
            method: known_method(facts.method),
            status: request.status,
            scheme: facts.scheme,
            protocol: version_of(facts.protocol),
        };
        let route = request.route.unwrap_or_default();
        self.durations(route, series)
            .add(clock::nanos(request.took));
    }

    fn durations(&mut self, route: &str, series: Series) -> &mut Durations {
        let is_full = self.series >= MAX_SERIES;
        if !self.routes.contains_key(route) {
            if is_full {
                return &mut self.overflow;
            }
            self.routes.insert(route.into(), HashMap::new());
        }
        let of_route = self.routes.get_mut(route);
        let Some(of_route) = of_route.filter(|it| !is_full || it.contains_key(&series)) else {
            return &mut self.overflow;
        };
        of_route.entry(series).or_insert_with(|| {
            self.series += 1;
            Durations::default()
        })
    }
}

impl Durations {
    fn add(&mut self, took: u64) {
        let bucket = BOUNDS.iter().position(|bound| took <= *bound);
        self.buckets[bucket.unwrap_or(BOUNDS.len())] += 1;
        self.sum = self.sum.wrapping_add(took);
    }

    fn merge(&mut self, other: &Self) {
        for (sum, count) in self.buckets.iter_mut().zip(other.buckets) {
            *sum += count;
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// Adds the durations of all threads.
pub(super) fn render<'s>(
    out: &mut OtlpMetrics,
    threads: impl Iterator<Item = MutexGuard<'s, HttpDurations>>,
) {
    let mut all: HashMap<(Box<str>, Series), Durations> = HashMap::new();
    let mut overflow = Durations::default();
    for durations in threads {
        for (route, of_route) in &durations.routes {
            for (series, counts) in of_route {
                all.entry((route.clone(), *series))
                    .or_default()
                    .merge(counts);
            }
        }
        overflow.merge(&durations.overflow);
    }
    let help = "Duration of HTTP server requests.";
    out.family_in("s", "http.server.request.duration", help);
    let mut add = |attributes, counts: &Durations| {
        out.histogram(attributes, &BOUNDS, &counts.buckets, counts.sum);
    };
    for ((route, series), counts) in &all {
        let mut attributes = vec![
            otlp_json::text("http.request.method", series.method),
            otlp_json::number("http.response.status_code", u64::from(series.status)),
            otlp_json::text("url.scheme", series.scheme),
            otlp_json::text("network.protocol.version", series.protocol),
        ];
        if !route.is_empty() {
            attributes.push(otlp_json::text("http.route", route));
        }
        if series.status >= 500 {
            let status = series.status.to_string();
            attributes.push(otlp_json::text("error.type", &status));
        }
        add(attributes, counts);
    }
    if overflow.buckets.iter().any(|count| *count > 0) {
        add(vec![otlp_json::flag("otel.metric.overflow")], &overflow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_bounded() {
        let mut durations = HttpDurations::default();
        for status in 0..3_000 {
            for route in ["a", "b"] {
                let series = Series {
                    method: known_method("BREW"),
                    status,
                    scheme: "http",
                    protocol: version_of("HTTP/1.1"),
                };
                durations.durations(route, series).add(u64::from(status));
            }
        }
        let kept: usize = durations.routes.values().map(HashMap::len).sum();
        assert_eq!(kept, MAX_SERIES);
        assert_eq!(durations.overflow.buckets[0], 6_000 - MAX_SERIES as u64);
    }

    #[test]
    fn methods_and_versions_are_named_as_opentelemetry_does() {
        let methods = ["GET", "get", "BREW", "PATCH"].map(known_method);
        assert_eq!(methods, ["GET", OTHER_METHOD, OTHER_METHOD, "PATCH"]);
        let versions = ["HTTP/1.0", "HTTP/1.1", "HTTP/2"].map(version_of);
        assert_eq!(versions, ["1.0", "1.1", "2"]);
    }
}
