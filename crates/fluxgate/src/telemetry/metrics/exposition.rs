//! All metrics in one of two forms: Prometheus' text format, version 0.0.4, or a request to an OTLP
//! collector.
//!
//! The crate `prometheus-client` writes OpenMetrics instead, which names counters
//! differently in `# TYPE` lines, and keeps histograms behind a lock.

use std::fmt::Write as _;
use std::time::Duration;

use super::family::{Kind, Labels, seconds};
use super::otlp::{OtlpMetrics, attributes};

/// Metrics in one of the forms.
#[derive(Debug)]
pub(super) enum Exposition {
    Prometheus(String),
    Otlp(OtlpMetrics),
}

/// The samples of one metric.
pub(super) struct Family<'a> {
    out: &'a mut Exposition,
    name: &'static str,
}

impl Exposition {
    pub(super) fn prometheus() -> Self {
        Self::Prometheus(String::new())
    }

    /// Metrics for a collector. Counting began at `started`, since 1970.
    pub(super) fn otlp(started: Duration) -> Self {
        Self::Otlp(OtlpMetrics::new(started))
    }

    /// Starts a metric. `help` is one line without a backslash.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        match self {
            Self::Prometheus(text) => {
                let kind = match kind {
                    Kind::Counter => "counter",
                    Kind::Gauge => "gauge",
                    Kind::Histogram => "histogram",
                };
                // Writing to a string cannot fail, here and below.
                let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            }
            Self::Otlp(metrics) => metrics.family(name, kind, help),
        }
        Family { out: self, name }
    }

    /// Writes a metric with one sample and no labels.
    pub(super) fn one(&mut self, name: &'static str, kind: Kind, help: &str, value: u64) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// Returns the text, or the body of the request.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Prometheus(text) => text,
            Self::Otlp(metrics) => metrics.into_request(),
        }
    }
}

impl Family<'_> {
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: u64) {
        match self.out {
            Exposition::Prometheus(text) => {
                write(text, (self.name, ""), labels, &value.to_string());
            }
            Exposition::Otlp(metrics) => metrics.sample(labels, value),
        }
    }

    /// Writes nanoseconds as a sample in seconds.
    pub(super) fn seconds(&mut self, labels: Labels<'_>, nanos: u64) {
        match self.out {
            Exposition::Prometheus(text) => write(text, (self.name, ""), labels, &seconds(nanos)),
            Exposition::Otlp(metrics) => metrics.seconds(labels, nanos),
        }
    }

    /// Writes a histogram of nanoseconds in seconds. The last of the `buckets` has no bound
    /// in `bounds`.
    pub(super) fn histogram(&mut self, bounds: &[u64], buckets: &[u64], sum: u64) {
        self.labelled_histogram(&[], bounds, buckets, sum);
    }

    /// Like [`Family::histogram`], with labels.
    pub(super) fn labelled_histogram(
        &mut self,
        labels: Labels<'_>,
        bounds: &[u64],
        buckets: &[u64],
        sum: u64,
    ) {
        let text = match self.out {
            Exposition::Prometheus(text) => text,
            Exposition::Otlp(metrics) => {
                return metrics.histogram(attributes(labels), bounds, buckets, sum);
            }
        };
        let name = self.name;
        let mut cumulative = 0;
        for (index, bucket) in buckets.iter().enumerate() {
            cumulative += bucket;
            let bound = bounds.get(index).map(|bound| seconds(*bound));
            let bound = bound.as_deref().unwrap_or("+Inf");
            let labels = [labels, &[("le", bound)]].concat();
            write(text, (name, "_bucket"), &labels, &cumulative.to_string());
        }
        write(text, (name, "_sum"), labels, &seconds(sum));
        write(text, (name, "_count"), labels, &cumulative.to_string());
    }
}

/// Appends a sample in Prometheus' format.
fn write(text: &mut String, (name, suffix): (&str, &str), labels: Labels<'_>, value: &str) {
    let _ = write!(text, "{name}{suffix}");
    for (index, (name, label)) in labels.iter().enumerate() {
        let before = if index == 0 { '{' } else { ',' };
        let _ = write!(text, "{before}{name}=\"");
        for char in label.chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                _ => text.push(char),
            }
        }
        text.push('"');
    }
    if !labels.is_empty() {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_buckets_are_cumulative() {
        let mut text = Exposition::prometheus();
        let mut family = text.family("a_total", Kind::Counter, "Things.");
        family.sample(&[("x", "q\"b\\n\n"), ("y", "")], 3);
        let mut family = text.family("b_seconds", Kind::Histogram, "Times.");
        family.histogram(&[1_000, 2_000_000_000], &[4, 0, 1], 5);
        assert_eq!(
            text.into_text(),
            "# HELP a_total Things.\n# TYPE a_total counter\n\
             a_total{x=\"q\\\"b\\\\n\\n\",y=\"\"} 3\n\
             # HELP b_seconds Times.\n# TYPE b_seconds histogram\n\
             b_seconds_bucket{le=\"0.000001\"} 4\n\
             b_seconds_bucket{le=\"2\"} 4\n\
             b_seconds_bucket{le=\"+Inf\"} 5\n\
             b_seconds_sum 0.000000005\nb_seconds_count 5\n"
        );
    }
}
