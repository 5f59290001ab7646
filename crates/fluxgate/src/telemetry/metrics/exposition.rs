//! Prometheus' text format, version 0.0.4.
//!
//! The crate `prometheus-client` writes OpenMetrics instead, which names counters
//! differently in `# TYPE` lines, and keeps histograms behind a lock.

use std::fmt::Write as _;

/// Metrics in Prometheus' text format.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The samples of one metric.
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

/// Labels and their values.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

impl Exposition {
    /// Starts a metric. `help` is one line without a backslash.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family {
            text: &mut self.0,
            name,
        }
    }

    /// Writes a metric with one sample and no labels.
    pub(super) fn one(&mut self, name: &'static str, kind: Kind, help: &str, value: u64) {
        self.family(name, kind, help).sample(&[], value);
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

impl Family<'_> {
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: u64) {
        self.write("", labels, &value.to_string());
    }

    /// Writes nanoseconds as a sample in seconds.
    pub(super) fn seconds(&mut self, labels: Labels<'_>, nanos: u64) {
        self.write("", labels, &seconds(nanos));
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
        let mut cumulative = 0;
        for (index, bucket) in buckets.iter().enumerate() {
            cumulative += bucket;
            let bound = bounds.get(index).map(|bound| seconds(*bound));
            let bound = bound.as_deref().unwrap_or("+Inf");
            let labels = [labels, &[("le", bound)]].concat();
            self.write("_bucket", &labels, &cumulative.to_string());
        }
        self.write("_sum", labels, &seconds(sum));
        self.write("_count", labels, &cumulative.to_string());
    }

    fn write(&mut self, suffix: &str, labels: Labels<'_>, value: &str) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (index, (name, label)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"");
            for char in label.chars() {
                match char {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    _ => self.text.push(char),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

/// Formats nanoseconds as seconds, exactly.
fn seconds(nanos: u64) -> String {
    let (whole, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    if rest == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{rest:09}");
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        let cases = [
            (0, "0"),
            (1, "0.000000001"),
            (2_500, "0.0000025"),
            (1_000_000_000, "1"),
            (61_500_000_000, "61.5"),
        ];
        for (nanos, expected) in cases {
            assert_eq!(seconds(nanos), expected);
        }
    }

    #[test]
    fn labels_are_escaped_and_buckets_are_cumulative() {
        let mut text = Exposition::default();
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
