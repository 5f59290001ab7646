//! Counts by rule and outcome: per second for 15 minutes, and per minute.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::Duration;

use fluxgate_core::Outcome;
use fluxgate_redis::record::{RecordBatch, RecordedRule, SECONDS_KEPT, Step};

/// Stands for all rules: its counts are those of the decisions, each counted once. No rule has this
/// id.
pub(super) const ALL_RULES: &str = "*";

/// A rule and an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SeriesKey {
    pub(super) rule: RecordedRule,
    pub(super) outcome: Outcome,
}

impl SeriesKey {
    /// Returns whether its counts are those of all decisions.
    pub(super) fn is_of_all(&self) -> bool {
        self.rule.rule_set.is_empty() && &*self.rule.rule == ALL_RULES
    }
}

/// The counts that a process without Redis keeps. Clocks may jump, so how long is measured by a
/// monotonic clock.
#[derive(Debug, Default)]
pub(super) struct KeptCounts {
    series: Vec<SeriesKey>,
    numbers: HashMap<SeriesKey, u32>,
    seconds: BTreeMap<u64, KeptStep>,
    minutes: BTreeMap<u64, KeptStep>,
}

/// The counts of one step, by the number of the series, in order.
#[derive(Debug, Default)]
struct KeptStep {
    /// When it was written last, since the start of the service.
    written: Duration,
    counts: Vec<(u32, u64)>,
}

impl KeptStep {
    fn add(&mut self, series: u32, count: u64) {
        match self.counts.binary_search_by_key(&series, |it| it.0) {
            Ok(index) => self.counts[index].1 += count,
            Err(index) => self.counts.insert(index, (series, count)),
        }
    }
}

impl KeptCounts {
    /// Adds decisions of a second. `now` is the time since the start of the service.
    pub(super) fn add(&mut self, second: u64, key: SeriesKey, count: u64, now: Duration) {
        let next = u32::try_from(self.series.len()).unwrap_or(u32::MAX);
        let series = *self.numbers.entry(key.clone()).or_insert(next);
        if series == next {
            self.series.push(key);
        }
        for (steps, at) in [
            (&mut self.seconds, second),
            (&mut self.minutes, second / Step::Minute.seconds()),
        ] {
            let step = steps.entry(at).or_default();
            step.written = now;
            step.add(series, count);
        }
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = &RecordedRule> {
        self.series.iter().map(|key| &key.rule)
    }

    /// Forgets what is too old.
    pub(super) fn prune(&mut self, now: Duration, keep: Duration) {
        let is_kept = |step: &KeptStep, keep| now.saturating_sub(step.written) <= keep;
        self.seconds.retain(|_, step| is_kept(step, SECONDS_KEPT));
        self.minutes.retain(|_, step| is_kept(step, keep));
    }

    pub(super) fn each(
        &self,
        step: Step,
        range: Range<u64>,
        mut each: impl FnMut(&SeriesKey, u64, u64),
    ) {
        let steps = match step {
            Step::Second => &self.seconds,
            Step::Minute => &self.minutes,
        };
        for (at, kept) in steps.range(range) {
            for (series, count) in &kept.counts {
                if let Some(key) = self.series.get(*series as usize) {
                    each(key, *at, *count);
                }
            }
        }
    }
}

/// The counts that are not yet written to Redis.
#[derive(Debug, Default)]
pub(super) struct WaitingCounts {
    counts: HashMap<(Step, u64, SeriesKey), u64>,
    /// How many of them are those of seconds.
    seconds: usize,
}

impl WaitingCounts {
    /// Adds decisions of a second. Returns how many are lost, because there is no room for more.
    pub(super) fn add(&mut self, second: u64, key: &SeriesKey, count: u64, most: usize) -> u64 {
        if self.counts.len() >= most && self.seconds > 0 {
            // Seconds are kept for a short time, and nothing is missing of what lasts.
            self.retain_seconds(|_| false);
        }
        let mut lost = 0;
        for (step, at) in [
            (Step::Minute, second / Step::Minute.seconds()),
            (Step::Second, second),
        ] {
            let has_room = self.counts.len() < most;
            let entry = (step, at, key.clone());
            match self.counts.get_mut(&entry) {
                Some(sum) => *sum += count,
                None if has_room => {
                    self.counts.insert(entry, count);
                    self.seconds += usize::from(step == Step::Second);
                }
                None if step == Step::Minute => lost = count,
                None => {}
            }
        }
        lost
    }

    /// Forgets seconds that no reader would see.
    pub(super) fn prune(&mut self, second: u64) {
        let first = second.saturating_sub(SECONDS_KEPT.as_secs());
        self.retain_seconds(|at| at >= first);
    }

    fn retain_seconds(&mut self, is_kept: impl Fn(u64) -> bool) {
        if self.seconds > 0 {
            self.counts
                .retain(|(step, at, _), _| *step == Step::Minute || is_kept(*at));
            let steps = self.counts.keys().map(|(step, _, _)| *step);
            self.seconds = steps.filter(|step| *step == Step::Second).count();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = &RecordedRule> {
        self.counts.keys().map(|(_, _, key)| &key.rule)
    }

    /// Moves everything to a batch.
    pub(super) fn drain_to(&mut self, batch: &mut RecordBatch) {
        self.seconds = 0;
        for ((step, at, key), count) in self.counts.drain() {
            batch.add_count(step, at, &key.rule, key.outcome, count);
        }
    }

    pub(super) fn each(
        &self,
        step: Step,
        range: Range<u64>,
        mut each: impl FnMut(&SeriesKey, u64, u64),
    ) {
        for ((known, at, key), count) in &self.counts {
            if *known == step && range.contains(at) {
                each(key, *at, *count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(rule: &str, outcome: Outcome) -> SeriesKey {
        let rule = RecordedRule {
            rule_set: "s".into(),
            rule: rule.into(),
        };
        SeriesKey { rule, outcome }
    }

    fn kept(counts: &KeptCounts, step: Step, range: Range<u64>) -> Vec<(String, u64, u64)> {
        let mut found = Vec::new();
        counts.each(step, range, |key, at, count| {
            found.push((key.rule.rule.to_string(), at, count));
        });
        found
    }

    #[test]
    fn seconds_add_up_to_minutes_and_are_kept_for_less_time() {
        let (mut counts, second) = (KeptCounts::default(), Duration::from_secs);
        counts.add(119, key("a", Outcome::Allowed), 2, second(1));
        counts.add(120, key("b", Outcome::Allowed), 3, second(2));
        counts.add(121, key("a", Outcome::Allowed), 4, second(3));
        let minutes = [
            ("a".to_owned(), 1, 2),
            ("a".into(), 2, 4),
            ("b".into(), 2, 3),
        ];
        assert_eq!(kept(&counts, Step::Minute, 0..9), minutes);
        assert_eq!(
            kept(&counts, Step::Second, 120..121),
            [("b".into(), 120, 3)]
        );
        counts.prune(second(903), second(3600));
        assert_eq!(kept(&counts, Step::Second, 0..999), [("a".into(), 121, 4)]);
        counts.prune(second(3603), second(3600));
        assert_eq!(kept(&counts, Step::Minute, 0..9), minutes[1..]);
    }

    /// A clock that jumps puts counts elsewhere, and loses none of them.
    #[test]
    fn a_clock_that_jumps_forgets_nothing() {
        let (mut counts, second) = (KeptCounts::default(), Duration::from_secs);
        for (number, at) in [1_000_000, 1_000_000_000, 5, 1_000_001]
            .into_iter()
            .enumerate()
        {
            counts.add(at, key("a", Outcome::Denied), 1, second(number as u64));
            counts.prune(second(number as u64), second(3600));
        }
        let sum: u64 = kept(&counts, Step::Minute, 0..u64::MAX)
            .iter()
            .map(|it| it.2)
            .sum();
        assert_eq!(sum, 4);
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_lost_is_counted() {
        let mut counts = WaitingCounts::default();
        let sum = |counts: &WaitingCounts, step| {
            let mut sum = 0;
            counts.each(step, 0..u64::MAX, |_, _, count| sum += count);
            sum
        };
        assert_eq!(counts.add(60, &key("a", Outcome::Allowed), 5, 2), 0);
        assert_eq!(
            (sum(&counts, Step::Minute), sum(&counts, Step::Second)),
            (5, 5)
        );
        // Seconds make room for minutes.
        assert_eq!(counts.add(60, &key("b", Outcome::Allowed), 7, 2), 0);
        assert_eq!(
            (sum(&counts, Step::Minute), sum(&counts, Step::Second)),
            (12, 0)
        );
        assert_eq!(counts.add(60, &key("c", Outcome::Allowed), 2, 2), 2);
        // The minute is known, and has room for more.
        assert_eq!(counts.add(61, &key("a", Outcome::Allowed), 1, 2), 0);
        assert_eq!((sum(&counts, Step::Minute), counts.len()), (13, 2));
    }

    #[test]
    fn old_seconds_do_not_wait() {
        let mut counts = WaitingCounts::default();
        counts.add(60, &key("a", Outcome::Allowed), 5, 9);
        counts.add(61, &key("a", Outcome::Allowed), 5, 9);
        counts.prune(61 + 900);
        assert_eq!(counts.len(), 2);
        counts.prune(62 + 900);
        assert_eq!(counts.len(), 1);
    }
}
