//! How long a hold is asked to live, in the API and in commands.

use std::time::Duration;

use fluxgate_core::internals::values::parse_duration;
use fluxgate_core::internals::{MAX_HOLD, MIN_HOLD};

/// Reads a duration from 1s to 24h. The error names the field.
pub(crate) fn parse_hold_span(field: &str, text: &str) -> Result<Duration, String> {
    let allowed = MIN_HOLD.as_duration()..=MAX_HOLD.as_duration();
    let span = parse_duration(text).filter(|span| allowed.contains(span));
    span.ok_or_else(|| format!("`{field}` must be a duration from 1s to 24h, such as 60s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_lives_for_a_second_to_a_day() {
        for (text, seconds) in [("1s", Some(1)), ("60s", Some(60)), ("24h", Some(86_400))] {
            let span = parse_hold_span("hold", text).ok();
            assert_eq!(span.map(|span| span.as_secs()), seconds);
        }
        for text in ["", "999ms", "25h", "60", "1.5s", "-1s"] {
            let fault = parse_hold_span("hold", text).unwrap_err();
            assert!(fault.starts_with("`hold` must be a duration"), "{text}");
        }
    }
}
