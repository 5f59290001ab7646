//! Metrics as a request to an OTLP collector.

use std::time::Duration;

use serde_json::{Value, json};

use super::family::{Kind, Labels, seconds};
use crate::telemetry::{clock, otlp_json};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;

/// Metrics in the JSON form of OTLP.
#[derive(Debug)]
pub(super) struct OtlpMetrics {
    /// When counting began, and when this is, in nanoseconds since 1970.
    interval: [String; 2],
    metrics: Vec<OtlpMetric>,
}

#[derive(Debug)]
struct OtlpMetric {
    name: &'static str,
    kind: Kind,
    description: String,
    unit: &'static str,
    points: Vec<Value>,
}

impl OtlpMetrics {
    /// Starts with no metrics. Counting began at `started`, since 1970.
    pub(super) fn new(started: Duration) -> Self {
        let interval = [started, clock::unix_time()];
        Self {
            interval: interval.map(|at| clock::nanos(at).to_string()),
            metrics: Vec::new(),
        }
    }

    /// Starts a metric.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let units = [("_seconds", "s"), ("_bytes", "By")];
        let stem = name.strip_suffix("_total").unwrap_or(name);
        let unit = units.iter().find(|(suffix, _)| stem.ends_with(suffix));
        self.metrics.push(OtlpMetric {
            name,
            kind,
            description: help.to_owned(),
            unit: unit.map_or("", |(_, unit)| unit),
            points: Vec::new(),
        });
    }

    /// Starts a metric of this unit.
    pub(super) fn family_in(&mut self, unit: &'static str, name: &'static str, help: &str) {
        self.family(name, Kind::Histogram, help);
        if let Some(metric) = self.metrics.last_mut() {
            metric.unit = unit;
        }
    }

    pub(super) fn sample(&mut self, labels: Labels<'_>, value: u64) {
        self.add(attributes(labels), |point| {
            point["asInt"] = value.to_string().into();
        });
    }

    /// Adds nanoseconds as a sample in seconds.
    pub(super) fn seconds(&mut self, labels: Labels<'_>, nanos: u64) {
        self.add(attributes(labels), |point| {
            point["asDouble"] = in_seconds(nanos).into();
        });
    }

    /// Adds a histogram of nanoseconds. The last of the `buckets` has no bound.
    pub(super) fn histogram(
        &mut self,
        attributes: Vec<Value>,
        bounds: &[u64],
        buckets: &[u64],
        sum: u64,
    ) {
        let count: u64 = buckets.iter().sum();
        let counts: Vec<_> = buckets.iter().map(u64::to_string).collect();
        let bounds: Vec<_> = bounds.iter().map(|bound| in_seconds(*bound)).collect();
        self.add(attributes, |point| {
            point["count"] = count.to_string().into();
            point["sum"] = in_seconds(sum).into();
            point["bucketCounts"] = counts.into();
            point["explicitBounds"] = bounds.into();
        });
    }

    fn add(&mut self, attributes: Vec<Value>, set: impl FnOnce(&mut Value)) {
        let [start, now] = &self.interval;
        let Some(metric) = self.metrics.last_mut() else {
            return;
        };
        let mut point = json!({ "attributes": attributes, "timeUnixNano": now });
        if metric.kind != Kind::Gauge {
            point["startTimeUnixNano"] = start.as_str().into();
        }
        set(&mut point);
        metric.points.push(point);
    }

    /// Returns the body of the request: an `ExportMetricsServiceRequest`.
    pub(super) fn into_request(self) -> String {
        let used = self.metrics.into_iter();
        let used = used.filter(|metric| !metric.points.is_empty());
        let metrics: Vec<_> = used.map(OtlpMetric::into_json).collect();
        let request = json!({
            "resourceMetrics": [{
                "resource": otlp_json::resource(),
                "scopeMetrics": [{ "scope": otlp_json::scope(), "metrics": metrics }],
            }],
        });
        request.to_string()
    }
}

impl OtlpMetric {
    fn into_json(self) -> Value {
        let points = self.points;
        let (field, data) = match self.kind {
            Kind::Counter => (
                "sum",
                json!({ "dataPoints": points, "isMonotonic": true, "aggregationTemporality": CUMULATIVE }),
            ),
            Kind::Gauge => ("gauge", json!({ "dataPoints": points })),
            Kind::Histogram => (
                "histogram",
                json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE }),
            ),
        };
        let mut metric = json!({
            "name": self.name,
            "description": self.description,
            "unit": self.unit,
        });
        metric[field] = data;
        metric
    }
}

pub(super) fn attributes(labels: Labels<'_>) -> Vec<Value> {
    let labels = labels.iter();
    labels
        .map(|(name, value)| otlp_json::text(name, value))
        .collect()
}

/// Returns nanoseconds as seconds, which OTLP has as doubles.
fn in_seconds(nanos: u64) -> f64 {
    // The text is exact; the double is the nearest to it.
    seconds(nanos).parse().unwrap_or_default()
}
