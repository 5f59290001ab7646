//! Limits whose numbers come with the call, as `CL.THROTTLE` gives them.

use std::time::Duration;

use fluxgate_core::{Algorithm, Band, Limit, LimitError};

const MOST_UNITS: u64 = 1_000_000_000;
const LONGEST_PERIOD: u64 = 366 * 24 * 60 * 60;
const WINDOW: Duration = Duration::from_secs(1);

/// The numbers of a `CL.THROTTLE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThrottleParameters {
    pub(crate) max_burst: i64,
    pub(crate) count: i64,
    pub(crate) period: i64,
}

impl ThrottleParameters {
    /// Returns the bucket with these parameters. The error names the one that is out of range.
    pub(crate) fn band(self) -> Result<Band, String> {
        let within = |name, given: i64, least, most| {
            let given = u64::try_from(given).ok();
            given
                .filter(|given| (least..=most).contains(given))
                .ok_or_else(|| format!("{name} must be from {least} to {most}"))
        };
        let capacity = 1 + within("max_burst", self.max_burst, 0, MOST_UNITS - 1)?;
        let count = within("count", self.count, 1, MOST_UNITS)?;
        let period = within("period", self.period, 1, LONGEST_PERIOD)?;
        // A key keeps its state only if the window stays the same, so all have one window.
        let limit = Limit::builder(Algorithm::TokenBucket, capacity, WINDOW)
            .refill(count)
            .period(Duration::from_secs(period));
        // Each number alone is valid.
        let limit = limit.build().map_err(|error| match error {
            LimitError::FillTooLong => {
                "(max_burst + 1) * period / count must be at most 316224000 seconds".into()
            }
            error => error.to_string(),
        })?;
        Ok(Band::new("", limit))
    }
}
