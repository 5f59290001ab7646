//! The limit headers that clients of language models read.

use fluxgate_core::store::Micros;
use fluxgate_core::{BandLevel, Decision};
use fluxgate_http::LimitHeaders;
use http::{HeaderName, HeaderValue};

const REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

/// Returns the headers about the tightest band that counts requests and the tightest that
/// counts tokens.
pub(crate) fn llm_limit_headers(
    reports: &LimitHeaders<Decision>,
) -> Vec<(HeaderName, HeaderValue)> {
    let levels = || {
        let shown = reports.reports().filter(|(families, _)| families.legacy);
        shown.flat_map(|(_, decision)| decision.levels())
    };
    let requests = levels().filter(|level| level.rule.counts_requests());
    let tokens = levels().filter(|level| level.rule.tokens().is_some());
    let tightest = [
        (REQUESTS, requests.min_by_key(|level| level.remaining)),
        (TOKENS, tokens.min_by_key(|level| level.remaining)),
    ];
    let named = tightest.into_iter().filter_map(|(names, level)| {
        let values = values(&level?);
        Some(names.into_iter().zip(values))
    });
    named.flatten().collect()
}

fn values(level: &BandLevel<'_>) -> [HeaderValue; 3] {
    let reset = duration(level.reset_after);
    [
        level.band.limit().capacity().into(),
        level.remaining.into(),
        // Digits and letters make a value.
        HeaderValue::try_from(reset).unwrap_or_else(|_| HeaderValue::from_static("0s")),
    ]
}

/// Formats a duration as these headers have it: `0s`, `12ms`, `1.5s`, `6m0s`, `1h0m0s`.
/// Milliseconds are rounded up.
fn duration(span: Micros) -> String {
    let millis = span.get().div_ceil(1000);
    if (1..1000).contains(&millis) {
        return format!("{millis}ms");
    }
    let (seconds, part) = (millis / 1000, millis % 1000);
    let fraction = match part {
        0 => String::new(),
        part => format!(".{part:03}").trim_end_matches('0').to_owned(),
    };
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, _) => format!("{minutes}m{seconds}{fraction}s"),
        _ => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (micros, text) in [
            (0, "0s"),
            (1, "1ms"),
            (12_000, "12ms"),
            (999_001, "1s"),
            (1_000_000, "1s"),
            (8_640_000, "8.64s"),
            (59_700_000, "59.7s"),
            (60_000_000, "1m0s"),
            (360_000_000, "6m0s"),
            (3_600_000_000, "1h0m0s"),
            (86_399_999_999, "24h0m0s"),
            (90_061_005_000, "25h1m1.005s"),
        ] {
            assert_eq!(duration(Micros::new(micros)), text);
        }
    }
}
