//! What both forms of metrics share.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Labels and their values.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// Formats nanoseconds as seconds, exactly.
pub(super) fn seconds(nanos: u64) -> String {
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
}
