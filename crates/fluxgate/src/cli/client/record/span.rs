//! A span of the past, as people write it: `--from 2h`, `--to 2026-11-18T09:00:00Z`.

use std::time::Duration;

use fluxgate_core::Timestamp;
use fluxgate_core::rules::values::parse_duration;
use fluxgate_core::time::{format_rfc3339, parse_rfc3339};
use url::form_urlencoded::Serializer;

use super::invalid;
use crate::cli::Failure;
use crate::telemetry::unix_time;

/// The options that name a span.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SpanArguments {
    /// From when: how long ago, such as 10m, 24h or 7d, or an instant in RFC 3339 (default: 15
    /// minutes of history, a day of denials)
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Until when, likewise (default: now)
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
}

impl SpanArguments {
    /// Adds the span to a query.
    pub(super) fn add_to(&self, query: &mut Serializer<'_, String>) -> Result<(), Failure> {
        let now = unix_time();
        let millis = |option, text: &Option<String>| match text {
            Some(text) => millis_of(option, text, now).map(Some),
            None => Ok(None),
        };
        let (from, to) = (millis("--from", &self.from)?, millis("--to", &self.to)?);
        if from.zip(to).is_some_and(|(from, to)| to < from) {
            return Err(invalid("--to", "must not be before --from"));
        }
        for (name, at) in [("from", from), ("to", to)] {
            if let Some(at) = at {
                query.append_pair(name, &at.to_string());
            }
        }
        Ok(())
    }
}

/// Returns an instant in milliseconds since 1970.
fn millis_of(option: &str, text: &str, now: Duration) -> Result<u64, Failure> {
    if let Some(ago) = parse_duration(text) {
        return Ok(now.saturating_sub(ago).as_millis() as u64);
    }
    let instant = parse_rfc3339(text).map(|instant| instant.micros() / 1000);
    instant.ok_or_else(|| {
        let message = format!("{text:?} is neither a span such as 15m nor 2026-01-31T09:00:00Z");
        invalid(option, message)
    })
}

/// Returns an instant as text, in UTC and without fractions of a second.
pub(super) fn instant_text(millis: u64) -> String {
    let micros = (millis / 1000).saturating_mul(1_000_000);
    format_rfc3339(Timestamp::saturating_from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_a_time_ago_or_a_date() {
        let now = Duration::from_secs(1_000_000);
        let millis = |text| millis_of("--from", text, now).map_err(|failure| failure.message);
        assert_eq!(millis("15m"), Ok(999_100_000));
        assert_eq!(millis("1970-01-02T00:00:00Z"), Ok(86_400_000));
        // Not before 1970.
        assert_eq!(millis("366d"), Ok(0));
        assert!(millis("yesterday").unwrap_err().starts_with("--from: "));
        assert_eq!(instant_text(86_400_999), "1970-01-02T00:00:00Z");
    }
}
