//! The units that each identity requests in its busiest window.

mod busiest_window;

use std::collections::HashMap;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::{Algorithm, Band, Limit, RuleVerdict, Timestamp};

use busiest_window::BusiestWindow;

/// The most identities that are followed, over all rules.
const MAX_IDENTITIES: usize = 100_000;

/// The busiest windows of identities, by rule and band.
#[derive(Debug, Default)]
pub(super) struct IdentityUsage {
    rules: HashMap<RuleNumber, RuleUsage>,
    identities: usize,
}

#[derive(Debug, Default)]
struct RuleUsage {
    /// By encoded identity, one for each band of the rule.
    identities: HashMap<Box<[u8]>, Box<[BusiestWindow]>>,
    /// Whether some identities came after too many others.
    is_partial: bool,
}

/// The units that the identities of one band request in their busiest windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Percentiles {
    pub(super) identities: u64,
    /// How many of them stay within the capacity as it is.
    pub(super) within: u64,
    /// The units of the identity at the 50th, the 90th and the 99th percentile.
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    /// The units of the identity that requests most.
    pub(super) max: u64,
    /// Whether these are only the identities that came first.
    pub(super) is_partial: bool,
}

impl IdentityUsage {
    /// Counts a request that a rule matched, whether or not it was admitted.
    pub(super) fn record(&mut self, at: Timestamp, verdict: &RuleVerdict<'_>) {
        // An override has other bands. A cost of 0 uses nothing.
        let Some(identity) = verdict.identity else {
            return;
        };
        if verdict.is_overridden || verdict.units == 0 {
            return;
        }
        let bands = verdict.rule.bands();
        // How many slots an identity needs depends on how long it holds them.
        let is_slot = |band: &Band| band.algorithm() == Algorithm::Concurrency;
        if bands.iter().any(is_slot) {
            return;
        }
        let rule = self.rules.entry(verdict.rule.number()).or_default();
        if !rule.identities.contains_key(identity) {
            if self.identities == MAX_IDENTITIES {
                rule.is_partial = true;
                return;
            }
            self.identities += 1;
            let windows = bands.iter().map(|band| BusiestWindow::new(band.limit()));
            rule.identities.insert(identity.into(), windows.collect());
        }
        let windows = rule.identities.get_mut(identity).into_iter().flatten();
        for (window, band) in windows.zip(bands) {
            window.record(band.limit(), at, verdict.units);
        }
    }

    /// Returns the percentiles of a band, by its index; `None` if no identity used it.
    pub(super) fn percentiles(
        &self,
        rule: RuleNumber,
        band: usize,
        limit: &Limit,
    ) -> Option<Percentiles> {
        let rule = self.rules.get(&rule)?;
        let windows = rule.identities.values().filter_map(|bands| bands.get(band));
        let mut units: Vec<_> = windows.map(BusiestWindow::most).collect();
        units.sort_unstable();
        Percentiles::of(&units, limit.capacity(), rule.is_partial)
    }
}

impl Percentiles {
    /// Returns the percentiles of units in ascending order.
    fn of(units: &[u64], capacity: u64, is_partial: bool) -> Option<Self> {
        let percentile = |percent: usize| {
            let rank = (units.len() * percent).div_ceil(100);
            units.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Some(Self {
            identities: units.len() as u64,
            within: units.partition_point(|units| *units <= capacity) as u64,
            p50: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
            max: *units.last()?,
            is_partial,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_identity_of_that_rank() {
        let of = |units: &[u64]| Percentiles::of(units, 3, false);
        assert_eq!(of(&[]), None);
        let one = of(&[7]).unwrap();
        assert_eq!((one.p50, one.p99, one.max, one.within), (7, 7, 7, 0));
        let hundred: Vec<_> = (1..=100).collect();
        let hundred = of(&hundred).unwrap();
        assert_eq!((hundred.p50, hundred.p90, hundred.p99), (50, 90, 99));
        assert_eq!((hundred.max, hundred.within), (100, 3));
        let two = of(&[1, 9]).unwrap();
        assert_eq!((two.p50, two.p90, two.within), (1, 9, 1));
    }
}
