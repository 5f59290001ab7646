//! Rows of denials: one for each rule, identity and minute.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::Duration;

use fluxgate_redis::record::{DenialBlock, RecordBatch, RecordedDenial, RecordedRule};
use serde::{Deserialize, Serialize};

/// Rows that are kept in the process, or that wait to be written to Redis. What has no row is
/// counted.
#[derive(Debug)]
pub(super) struct DenialRows {
    minutes: BTreeMap<u64, MinuteRows>,
    /// The number of all rows.
    rows: usize,
    /// The maximum number of rows.
    most: usize,
    /// The maximum number of rows of a rule in a minute.
    most_in_minute: usize,
}

#[derive(Debug, Default)]
struct MinuteRows {
    /// When it was written last, since the start of the service.
    written: Duration,
    rules: HashMap<RecordedRule, RuleRows>,
}

#[derive(Debug, Default)]
struct RuleRows {
    /// By the id of the identity.
    rows: HashMap<Box<str>, RecordedDenial>,
    dropped: u64,
}

impl RuleRows {
    /// Keeps the `most` rows with the highest counts. Returns how many are removed.
    fn prune(&mut self, most: usize) -> usize {
        let Some(excess) = self.rows.len().checked_sub(most).filter(|it| *it > 0) else {
            return 0;
        };
        let mut by_count: Vec<_> = { self.rows.values() }
            .map(|row| (row.count, row.id.clone()))
            .collect();
        by_count.select_nth_unstable(excess - 1);
        for (count, id) in by_count.drain(..excess) {
            self.rows.remove(&*id);
            self.dropped = self.dropped.saturating_add(count);
        }
        excess
    }
}

/// What a row tells of one of its requests. The names are short, because there are many rows.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DenialDetail {
    #[serde(rename = "o")]
    pub(crate) outcome: String,
    #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
    pub(crate) band: Option<String>,
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<String>,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
}

impl DenialRows {
    pub(super) fn new(most: usize, most_in_minute: usize) -> Self {
        Self {
            minutes: BTreeMap::new(),
            rows: 0,
            most,
            most_in_minute,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Adds a row, to that of the same identity if there is one. `now` is the time since the start
    /// of the service.
    pub(super) fn add(
        &mut self,
        minute: u64,
        rule: &RecordedRule,
        row: RecordedDenial,
        now: Duration,
    ) {
        let rule = self.rule(minute, rule, now);
        match rule.rows.get_mut(&*row.id) {
            Some(known) => merge(known, row),
            None => {
                rule.rows.insert(row.id.as_str().into(), row);
                self.rows += 1;
            }
        }
    }

    /// Adds denials without a row.
    pub(super) fn add_dropped(
        &mut self,
        minute: u64,
        rule: &RecordedRule,
        dropped: u64,
        now: Duration,
    ) {
        let rule = self.rule(minute, rule, now);
        rule.dropped = rule.dropped.saturating_add(dropped);
    }

    fn rule(&mut self, minute: u64, rule: &RecordedRule, now: Duration) -> &mut RuleRows {
        let minute = self.minutes.entry(minute).or_default();
        minute.written = now;
        minute.rules.entry(rule.clone()).or_default()
    }

    /// Removes the lightest rows of minutes that have too many, and the oldest rows if there are
    /// too many in all.
    pub(super) fn prune(&mut self) {
        for rule in self
            .minutes
            .values_mut()
            .flat_map(|it| it.rules.values_mut())
        {
            self.rows -= rule.prune(self.most_in_minute);
        }
        let mut minutes = self.minutes.values_mut();
        while self.rows > self.most
            && let Some(minute) = minutes.next()
        {
            for rule in minute.rules.values_mut() {
                self.rows -= rule.prune(0);
            }
        }
    }

    /// Forgets what is too old.
    pub(super) fn forget(&mut self, now: Duration, keep: Duration) {
        self.minutes.retain(|_, minute| {
            let is_kept = now.saturating_sub(minute.written) <= keep;
            if !is_kept {
                let rows = minute.rules.values().map(|rule| rule.rows.len());
                self.rows -= rows.sum::<usize>();
            }
            is_kept
        });
    }

    /// Moves everything to a batch.
    pub(super) fn drain_to(&mut self, batch: &mut RecordBatch) {
        for (minute, rows) in std::mem::take(&mut self.minutes) {
            for (rule, of_rule) in rows.rules {
                let mut rows: Vec<_> = of_rule.rows.into_values().collect();
                rows.sort_unstable_by_key(|row| u64::MAX - row.count);
                batch.add_denials(minute, &rule, &rows, of_rule.dropped);
            }
        }
        self.rows = 0;
    }

    /// Returns the minutes and rules.
    pub(super) fn blocks(&self, range: Range<u64>) -> impl Iterator<Item = DenialBlock> {
        self.minutes.range(range).flat_map(|(minute, rows)| {
            rows.rules.keys().map(|rule| DenialBlock {
                minute: *minute,
                rule: rule.clone(),
            })
        })
    }

    /// Returns the rows of a minute and a rule, and how many denials have none.
    pub(super) fn block(&self, block: &DenialBlock) -> (Vec<RecordedDenial>, u64) {
        let minute = self.minutes.get(&block.minute);
        let rule = minute.and_then(|minute| minute.rules.get(&block.rule));
        rule.map_or((Vec::new(), 0), |rule| {
            (rule.rows.values().cloned().collect(), rule.dropped)
        })
    }
}

/// Adds a row to that of the same identity.
pub(super) fn merge(known: &mut RecordedDenial, row: RecordedDenial) {
    // Other instances may have written anything.
    known.count = known.count.saturating_add(row.count);
    known.first_ms = known.first_ms.min(row.first_ms);
    if row.last_ms >= known.last_ms {
        known.last_ms = row.last_ms;
        known.text = row.text;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(rule: &str) -> RecordedRule {
        RecordedRule {
            rule_set: "s".into(),
            rule: rule.into(),
        }
    }

    fn row(id: &str, count: u64, at: u64) -> RecordedDenial {
        RecordedDenial {
            id: id.into(),
            count,
            first_ms: at,
            last_ms: at,
            text: format!("at {at}"),
        }
    }

    fn sums(rows: &DenialRows) -> (u64, u64) {
        let blocks = rows.blocks(0..u64::MAX).map(|block| rows.block(&block));
        blocks.fold((0, 0), |(counts, all_dropped), (rows, dropped)| {
            let count: u64 = rows.iter().map(|row| row.count).sum();
            (counts + count, all_dropped + dropped)
        })
    }

    #[test]
    fn rows_of_an_identity_are_one() {
        let (mut rows, now) = (DenialRows::new(9, 9), Duration::ZERO);
        for (count, at) in [(2, 20), (3, 30), (1, 10)] {
            rows.add(7, &rule("a"), row("ann", count, at), now);
        }
        let block = rows.blocks(0..9).next().unwrap();
        let expected = RecordedDenial {
            first_ms: 10,
            ..row("ann", 6, 30)
        };
        assert_eq!(rows.block(&block), (vec![expected], 0));
        assert_eq!(rows.len(), 1);
    }

    #[test]
    fn the_lightest_rows_of_a_minute_and_the_oldest_minutes_are_dropped_and_counted() {
        let (mut rows, now) = (DenialRows::new(5, 3), Duration::ZERO);
        let mut total = 0;
        for minute in 0..3 {
            for (number, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
                let count = 1 + number as u64;
                total += count;
                rows.add(minute, &rule("r"), row(name, count, 1), now);
            }
            rows.prune();
            assert!(rows.len() <= 5);
            let (counts, dropped) = sums(&rows);
            assert_eq!(counts + dropped, total);
        }
        let last = rows.blocks(2..3).next().unwrap();
        let (mut kept, dropped) = rows.block(&last);
        kept.sort_by_key(|row| row.count);
        let ids: Vec<_> = kept.iter().map(|row| &*row.id).collect();
        assert_eq!((ids, dropped), (vec!["c", "d", "e"], 3));
        let first = rows.blocks(0..1).next().unwrap();
        assert_eq!(rows.block(&first), (Vec::new(), 15));
    }

    #[test]
    fn what_is_too_old_is_forgotten() {
        let (mut rows, second) = (DenialRows::new(9, 9), Duration::from_secs);
        rows.add(500, &rule("r"), row("a", 1, 1), second(1));
        // The clock was set back.
        rows.add(3, &rule("r"), row("b", 1, 1), second(2));
        rows.forget(second(3_602), second(3_600));
        assert_eq!((rows.len(), rows.blocks(0..9).count()), (1, 1));
    }
}
