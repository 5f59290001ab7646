//! Reads counts, summed over all instances.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fluxgate_redis::record::{RecordedChange, RecordedRule, SECONDS_KEPT, Step};

use super::bounds::MAX_VALUES;
use super::collector::History;
use super::counts::SeriesKey;
use super::error::HistoryError;
use crate::telemetry::unix_time;

/// The range that is read if the query names none.
const DEFAULT_RANGE: Duration = SECONDS_KEPT;
/// The clocks of callers may differ.
const SLACK_MS: u64 = 60_000;

/// Which counts to read. Times are in milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountQuery {
    pub(crate) rule_set: Option<String>,
    pub(crate) rule: Option<String>,
    pub(crate) from: Option<u64>,
    pub(crate) to: Option<u64>,
}

/// The counts of some rules, by step.
#[derive(Debug)]
pub(crate) struct CountReply {
    pub(crate) step: Step,
    pub(crate) from_ms: u64,
    /// In the order of rules and outcomes.
    pub(crate) series: Vec<Series>,
    /// All decisions by outcome, each counted once; none if the query names a rule set or a rule.
    pub(crate) decisions: Vec<Series>,
    pub(crate) changes: Vec<RecordedChange>,
}

/// The counts of one rule and one outcome.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) rule: RecordedRule,
    pub(crate) outcome: &'static str,
    pub(crate) values: Vec<u64>,
}

impl CountQuery {
    fn includes(&self, rule: &RecordedRule) -> bool {
        let is = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|it| it == name);
        is(&self.rule_set, &rule.rule_set) && is(&self.rule, &rule.rule)
    }
}

/// A valid range: from the first step to the one after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepRange {
    pub(super) step: Step,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// Validates a range in milliseconds.
pub(super) fn check_range(
    from: Option<u64>,
    to: Option<u64>,
    default: Duration,
    now: u64,
    keep: Duration,
) -> Result<(u64, u64), HistoryError> {
    let to = to.unwrap_or(now).min(now);
    let from = from.unwrap_or_else(|| to.saturating_sub(default.as_millis() as u64));
    if from > to {
        let message = format!("`from` ({from}) must not be after `to` ({to}, at most now)");
        return Err(HistoryError::Request(message));
    }
    let oldest = now.saturating_sub(keep.as_millis() as u64);
    if from < oldest.saturating_sub(SLACK_MS) {
        let message = format!(
            "`from` must be within `history.keep`, so {oldest} or later, not {from}: what is older \
             is not kept"
        );
        return Err(HistoryError::Request(message));
    }
    Ok((from, to))
}

/// Refuses to read too many values at once.
fn check_size(rules: usize, steps: usize) -> Result<(), HistoryError> {
    if rules as u64 * steps as u64 <= MAX_VALUES {
        return Ok(());
    }
    Err(HistoryError::Request(format!(
        "{rules} rules in {steps} steps are too much to read at once; name a rule set or a rule, or a \
         shorter range"
    )))
}

impl StepRange {
    fn new(from: u64, to: u64, now: u64) -> Self {
        let recent = now.saturating_sub(SECONDS_KEPT.as_millis() as u64);
        let step = if from >= recent {
            Step::Second
        } else {
            Step::Minute
        };
        let millis = 1000 * step.seconds();
        Self {
            step,
            from: from / millis,
            // The step that `to` lies in is not over, and belongs to it.
            to: to / millis + 1,
        }
    }
}

impl History {
    /// Returns counts of the fleet.
    pub(crate) async fn counts(
        self: &Arc<Self>,
        query: CountQuery,
    ) -> Result<CountReply, HistoryError> {
        let now = unix_time().as_millis() as u64;
        let (from, to) = check_range(query.from, query.to, DEFAULT_RANGE, now, self.config.keep)?;
        let range = StepRange::new(from, to, now);
        let this = Arc::clone(self);
        let read = self
            .runtime
            .spawn(async move { this.read_counts(&query, range).await });
        read.await.unwrap_or(Err(HistoryError::Closing))
    }

    async fn read_counts(
        &self,
        query: &CountQuery,
        range: StepRange,
    ) -> Result<CountReply, HistoryError> {
        self.collect();
        let StepRange { step, from, to } = range;
        let length = (to - from) as usize;
        let mut all: HashMap<SeriesKey, Vec<u64>> = HashMap::new();
        let mut add = |key: &SeriesKey, at: u64, count: u64| {
            if query.includes(&key.rule) {
                let values = match all.get_mut(key) {
                    Some(values) => values,
                    None => all.entry(key.clone()).or_insert_with(|| vec![0; length]),
                };
                let value = &mut values[(at - from) as usize];
                // Other instances may have written anything.
                *value = value.saturating_add(count);
            }
        };
        match &self.writer {
            None => {
                let state = self.lock();
                let includes = |rule: &&RecordedRule| query.includes(rule);
                let rules: HashSet<_> = state.counts.rules().filter(includes).collect();
                check_size(rules.len(), length)?;
                state.counts.each(step, from..to, add);
            }
            Some(writer) => {
                // What is on its way is either in Redis or here.
                let mut sending = writer.lock().await;
                writer.confirm(&mut sending).await?;
                let mut rules = writer.record.rules().await?;
                rules.retain(|rule| query.includes(rule));
                check_size(rules.len(), length)?;
                for count in writer.record.counts(step, from, to, &rules).await? {
                    let (rule, outcome) = (count.rule, count.outcome);
                    add(&SeriesKey { rule, outcome }, count.at, count.count);
                }
                self.lock().counts.each(step, from..to, add);
            }
        }
        let mut series: Vec<_> = all.into_iter().collect();
        series.sort_by(|(a, _), (b, _)| {
            (&a.rule, a.outcome as usize).cmp(&(&b.rule, b.outcome as usize))
        });
        let (decisions, series): (Vec<_>, Vec<_>) =
            series.into_iter().partition(|(key, _)| key.is_of_all());
        let named = |series: Vec<(SeriesKey, Vec<u64>)>| {
            let series = series.into_iter().map(|(key, values)| Series {
                rule: key.rule,
                outcome: key.outcome.name(),
                values,
            });
            series.collect()
        };
        let millis = 1000 * step.seconds();
        let changes = self.changes(query.rule_set.as_deref(), from * millis, to * millis);
        let changes = changes.await?;
        Ok(CountReply {
            step,
            from_ms: from * step.seconds() * 1000,
            series: named(series),
            decisions: named(decisions),
            changes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;
    const MINUTE: u64 = 60_000;
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

    #[test]
    fn a_range_of_the_last_15_minutes_has_seconds() {
        for (from, step) in [
            (NOW, Step::Second),
            (NOW - 15 * MINUTE, Step::Second),
            (NOW - 15 * MINUTE - 1, Step::Minute),
        ] {
            let range = StepRange::new(from, NOW, NOW);
            assert_eq!(range.step, step);
            let millis = 1000 * step.seconds();
            assert!(range.from * millis <= from && NOW < range.to * millis);
        }
    }

    #[test]
    fn a_read_is_bounded() {
        assert!(check_size(500, 10_000).is_ok());
        let refused = check_size(501, 10_000).unwrap_err().to_string();
        assert!(refused.starts_with("501 rules in 10000 steps"), "{refused}");
    }

    #[test]
    fn a_range_outside_what_is_kept_is_refused() {
        let check = |from, to| {
            check_range(from, to, DEFAULT_RANGE, NOW, WEEK).map_err(|error| error.to_string())
        };
        assert_eq!(check(None, None), Ok((NOW - 15 * MINUTE, NOW)));
        assert_eq!(check(Some(NOW - 5), Some(NOW + 5)), Ok((NOW - 5, NOW)));
        assert!(
            check(Some(NOW - 1), Some(NOW - 2))
                .unwrap_err()
                .contains("must not be after `to`")
        );
        assert!(check(Some(NOW + 1), None).is_err());
        let oldest = NOW - WEEK.as_millis() as u64;
        assert!(check(Some(oldest - MINUTE), None).is_ok());
        assert!(
            check(Some(oldest - MINUTE - 1), None)
                .unwrap_err()
                .contains("`history.keep`")
        );
        assert!(check(Some(0), None).is_err());
    }
}
