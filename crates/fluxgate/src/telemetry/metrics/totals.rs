//! The decisions counted so far, and the difference of two such readings.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use fluxgate_core::Outcome;

use super::durations::{BOUNDS, DurationTotals};
use super::shard::Shards;

/// The decisions of a rule.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::telemetry) struct RuleCounts {
    pub(in crate::telemetry) by_outcome: [u64; Outcome::ALL.len()],
    pub(in crate::telemetry) denied: u64,
}

/// The decisions that each rule took part in, by its own outcome, since the service started. By
/// rule set and rule; the rule is empty for decisions without one.
pub(crate) type RuleTotals = BTreeMap<(Box<str>, Box<str>), [u64; Outcome::ALL.len()]>;

/// Reads the outcomes of all rules.
pub(in crate::telemetry) fn read_rule_totals(shards: &Shards) -> RuleTotals {
    let mut totals = RuleTotals::new();
    for counters in shards.all().iter().flat_map(|shard| shard.decisions()) {
        let names = &counters.names;
        let name = (names.rule_set.clone(), names.rule.clone());
        let sums = totals.entry(name).or_default();
        for (sum, count) in sums.iter_mut().zip(&counters.own_outcomes) {
            *sum += count.get();
        }
    }
    totals
}

/// Reads the outcomes of all decisions: each counts once, however many rules took part in it.
pub(in crate::telemetry) fn read_outcome_totals(shards: &Shards) -> [u64; Outcome::ALL.len()] {
    let mut sums = [0; Outcome::ALL.len()];
    for counters in shards.all().iter().flat_map(|shard| shard.decisions()) {
        for (sum, count) in sums.iter_mut().zip(&counters.by_outcome) {
            *sum += count.get();
        }
    }
    sums
}

/// The decisions counted up to some moment, or between two.
#[derive(Clone, Debug, Default)]
pub(in crate::telemetry) struct DecisionTotals {
    /// By rule set and rule; the rule is empty for decisions without one.
    pub(in crate::telemetry) rules: BTreeMap<(Box<str>, Box<str>), RuleCounts>,
    /// The highest used share of a band of each rule since the last reading, in thousandths.
    pub(in crate::telemetry) used: BTreeMap<(Box<str>, Box<str>), u64>,
    durations: DurationTotals,
}

impl DecisionTotals {
    /// Reads the counters of all threads. Resets the used shares.
    pub(super) fn read(shards: &Shards) -> Self {
        let mut totals = Self::default();
        for shard in shards.all() {
            totals.durations.add(&shard.durations);
            for decisions in shard.decisions() {
                let names = &decisions.names;
                let name = || (names.rule_set.clone(), names.rule.clone());
                let sums = totals.rules.entry(name()).or_default();
                for (sum, count) in sums.by_outcome.iter_mut().zip(&decisions.by_outcome) {
                    *sum += count.get();
                }
                sums.denied += decisions.denied.get();
                if let Some(used) = decisions
                    .most_used
                    .swap(0, Ordering::Relaxed)
                    .checked_sub(1)
                {
                    let most = totals.used.entry(name()).or_default();
                    *most = used.max(*most);
                }
            }
        }
        totals
    }
    /// Subtracts what was counted earlier. Rules without a decision since are left out.
    pub(in crate::telemetry) fn since(mut self, earlier: &Self) -> Self {
        for (name, sums) in &mut self.rules {
            let before = earlier.rules.get(name).copied().unwrap_or_default();
            for (sum, before) in sums.by_outcome.iter_mut().zip(before.by_outcome) {
                *sum = sum.saturating_sub(before);
            }
            sums.denied = sums.denied.saturating_sub(before.denied);
        }
        self.rules
            .retain(|_, sums| sums.by_outcome.iter().any(|sum| *sum > 0));
        let buckets = self.durations.buckets.iter_mut();
        for (bucket, before) in buckets.zip(earlier.durations.buckets) {
            *bucket = bucket.saturating_sub(before);
        }
        self
    }

    /// Returns the decisions of all rules.
    pub(in crate::telemetry) fn total(&self) -> RuleCounts {
        let mut total = RuleCounts::default();
        for sums in self.rules.values() {
            for (sum, count) in total.by_outcome.iter_mut().zip(sums.by_outcome) {
                *sum += count;
            }
            total.denied += sums.denied;
        }
        total
    }

    /// Returns the time in nanoseconds that this share of the decisions took at most, in
    /// thousandths; `None` without decisions. Between the bounds of the histogram it is
    /// interpolated.
    pub(in crate::telemetry) fn quantile(&self, thousandths: u64) -> Option<u64> {
        let buckets = &self.durations.buckets;
        let total: u64 = buckets.iter().sum();
        let wanted = (total * thousandths).div_ceil(1000).max(1);
        let mut below = 0;
        for (index, count) in buckets.iter().enumerate() {
            if below + count >= wanted {
                let lower = index.checked_sub(1).map_or(0, |index| BOUNDS[index]);
                // Of the last bucket, only the lower bound is known.
                let upper = BOUNDS.get(index).copied().unwrap_or(lower);
                return Some(lower + (upper - lower) * (wanted - below) / count);
            }
            below += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    fn count(metrics: &Metrics, outcome: Outcome, micros: u64, used: Option<u64>) {
        let took = Duration::from_micros(micros);
        let is_allowed = outcome == Outcome::Allowed;
        metrics.count_decision("s", None, outcome, is_allowed, took, used);
    }

    #[test]
    fn a_reading_has_what_was_counted_since_the_last() {
        let metrics = Metrics::new(Duration::ZERO);
        count(&metrics, Outcome::Allowed, 1, Some(400));
        let first = metrics.read_totals();
        count(&metrics, Outcome::Allowed, 1, Some(300));
        count(&metrics, Outcome::Denied, 1, Some(1000));
        count(&metrics, Outcome::Fallback, 1, None);
        let name = ("s".into(), "".into());
        assert_eq!(first.used[&name], 400);
        let second = metrics.read_totals();
        assert_eq!(second.used[&name], 1000);
        let since = second.since(&first);
        let total = since.total();
        assert_eq!(total.by_outcome[Outcome::Allowed as usize], 1);
        assert_eq!(total.by_outcome[Outcome::Denied as usize], 1);
        assert_eq!(total.denied, 2);
        let third = metrics.read_totals();
        assert!(third.used.is_empty());
        let none = third.since(&metrics.read_totals());
        assert!(none.rules.is_empty() && none.quantile(500).is_none());
    }

    #[test]
    fn quantiles_are_between_the_bounds_of_their_bucket() {
        let metrics = Metrics::new(Duration::ZERO);
        for _ in 0..99 {
            count(&metrics, Outcome::Allowed, 4, None);
        }
        count(&metrics, Outcome::Allowed, 2_000_000, None);
        let counted = metrics.read_totals();
        let p50 = counted.quantile(500).unwrap();
        assert!((2_500..=5_000).contains(&p50), "{p50}");
        assert_eq!(counted.quantile(990), Some(5_000));
        assert_eq!(counted.quantile(1000), Some(1_000_000_000));
    }
}
