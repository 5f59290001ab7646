//! Collects what the threads have counted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fluxgate_core::{KeyPart, Outcome, RuleSets};
use fluxgate_redis::RuleStore;
use fluxgate_redis::record::{MAX_MINUTE_ROWS, RecordedDenial, RecordedRule, Step};
use tokio::runtime::Handle;

use super::audit_trail::AuditTrail;
use super::bounds::{MAX_WAITING_COUNTS, MAX_WAITING_ROWS};
use super::counts::{ALL_RULES, KeptCounts, SeriesKey, WaitingCounts};
use super::denials::{DenialDetail, DenialRows};
use super::denied_id::DeniedId;
use super::kept_changes::KeptChanges;
use super::writer::Writer;
use crate::config;
use crate::engine::Engine;
use crate::telemetry::{DeniedIdentity, RuleNames, RuleTotals, now, unix_time};

/// A pause of the collector of at least this long, or a negative one, is a jump of the clock.
const JUMP: Duration = Duration::from_secs(5);
/// How long after the start of a second the last one is collected.
const AFTER_SECOND: Duration = Duration::from_millis(2);

/// What happened. One for the service.
#[derive(Debug)]
pub(crate) struct History {
    pub(super) engine: Arc<Engine>,
    pub(super) config: config::History,
    /// Whether no identity may be kept in the clear.
    hides_identities: bool,
    /// The rules, if they are stored.
    pub(super) rule_store: Option<RuleStore>,
    state: Mutex<Collected>,
    /// Writes to Redis, if the store is there.
    pub(super) writer: Option<Writer>,
    /// Of the main thread, so that no core waits for Redis or has its connection in use.
    pub(super) runtime: Handle,
}

/// What has been collected, and is kept or waits to be written.
#[derive(Debug)]
pub(super) struct Collected {
    last: RuleTotals,
    /// When it was collected, since 1970.
    at: Duration,
    pub(super) counts: Counts,
    pub(super) denials: DenialRows,
    pub(super) changes: KeptChanges,
    pub(super) audit: AuditTrail,
}

/// What the record depends on.
#[derive(Debug)]
pub(crate) struct HistorySources {
    pub(crate) engine: Arc<Engine>,
    /// The rules, if they are stored.
    pub(crate) rule_store: Option<RuleStore>,
    /// Whether no identity may be kept in the clear.
    pub(crate) hides_identities: bool,
    /// Of the main thread.
    pub(crate) runtime: Handle,
}

/// The counts of this process.
#[derive(Debug)]
pub(super) enum Counts {
    Kept(KeptCounts),
    Waiting(WaitingCounts),
}

impl Counts {
    /// Returns the rules that have counts here, each once or more.
    pub(super) fn rules(&self) -> impl Iterator<Item = &RecordedRule> {
        let (kept, waiting) = match self {
            Self::Kept(counts) => (Some(counts.rules()), None),
            Self::Waiting(counts) => (None, Some(counts.rules())),
        };
        let waiting = waiting.into_iter().flatten();
        kept.into_iter().flatten().chain(waiting)
    }

    pub(super) fn each(
        &self,
        step: Step,
        range: std::ops::Range<u64>,
        each: impl FnMut(&SeriesKey, u64, u64),
    ) {
        match self {
            Self::Kept(counts) => counts.each(step, range, each),
            Self::Waiting(counts) => counts.each(step, range, each),
        }
    }
}

impl History {
    /// Creates a record. `instance` is the random id of this process.
    pub(crate) fn new(
        sources: HistorySources,
        config: config::History,
        instance: &str,
    ) -> Arc<Self> {
        let HistorySources {
            engine,
            rule_store,
            hides_identities,
            runtime,
        } = sources;
        engine.telemetry().keep_record();
        engine.telemetry().history().enable();
        let store = engine.store().redis();
        let writer = store.map(|store| Writer::new(store.record(instance, config.keep)));
        let counts = match writer {
            Some(_) => Counts::Waiting(WaitingCounts::default()),
            None => Counts::Kept(KeptCounts::default()),
        };
        let most_rows = match writer {
            Some(_) => MAX_WAITING_ROWS,
            None => config.denials,
        };
        Arc::new(Self {
            engine,
            config,
            hides_identities,
            rule_store,
            state: Mutex::new(Collected {
                last: RuleTotals::new(),
                at: unix_time(),
                counts,
                denials: DenialRows::new(most_rows, MAX_MINUTE_ROWS),
                changes: KeptChanges::default(),
                audit: AuditTrail::default(),
            }),
            writer,
            runtime,
        })
    }

    /// Returns how many of the heaviest identities are kept of each rule and hour.
    pub(crate) fn identities(&self) -> usize {
        self.config.identities
    }

    /// Collects each second, for as long as the runtime runs.
    pub(crate) async fn collect_each_second(&self) {
        loop {
            let into_second = Duration::from_nanos(u64::from(unix_time().subsec_nanos()));
            tokio::time::sleep(Duration::from_secs(1) - into_second + AFTER_SECOND).await;
            self.collect();
        }
    }

    /// Collects what has been counted since the last time.
    pub(super) fn collect(&self) {
        let mut state = self.lock();
        let (uptime, wall) = (self.engine.telemetry().since_start(now()), unix_time());
        let second = middle(state.at, wall).as_secs();
        state.at = wall;
        let telemetry = self.engine.telemetry();
        let mut totals = telemetry.rule_totals();
        let name = (Box::from(""), Box::from(ALL_RULES));
        totals.insert(name, telemetry.outcome_totals());
        let mut lost = 0;
        for (name, sums) in &totals {
            let before = state.last.get(name).copied().unwrap_or_default();
            for ((outcome, sum), before) in Outcome::ALL.into_iter().zip(sums).zip(before) {
                let count = sum.saturating_sub(before);
                if count == 0 {
                    continue;
                }
                let rule = RecordedRule {
                    rule_set: (*name.0).into(),
                    rule: (*name.1).into(),
                };
                let key = SeriesKey { rule, outcome };
                match &mut state.counts {
                    Counts::Kept(counts) => counts.add(second, key, count, uptime),
                    Counts::Waiting(counts) => {
                        lost += counts.add(second, &key, count, MAX_WAITING_COUNTS);
                    }
                }
            }
        }
        state.last = totals;
        self.collect_denials(&mut state, second / 60, wall, uptime);
        match &mut state.counts {
            Counts::Kept(counts) => {
                counts.prune(uptime, self.config.keep);
                state.denials.forget(uptime, self.config.keep);
            }
            Counts::Waiting(counts) => counts.prune(second),
        }
        let waiting = match &state.counts {
            Counts::Kept(_) => 0,
            Counts::Waiting(counts) => counts.len() + state.denials.len(),
        };
        let counters = self.engine.telemetry().history();
        counters.set_waiting(waiting as u64);
        counters.set_rows(state.denials.len() as u64);
        counters.add_lost_counts(lost);
    }

    /// Collects the denials of all threads. `wall` and `uptime` are the time now.
    fn collect_denials(
        &self,
        state: &mut Collected,
        minute: u64,
        wall: Duration,
        uptime: Duration,
    ) {
        let rules = self.engine.rules().unwrap_or_default();
        let wall_ms = |at: Duration| {
            let at = wall.saturating_sub(uptime.saturating_sub(at));
            at.as_millis() as u64
        };
        let rule_of = |names: &RuleNames| RecordedRule {
            rule_set: (*names.rule_set).into(),
            rule: (*names.rule).into(),
        };
        let denials = &mut state.denials;
        self.engine.telemetry().take_denials(|table| {
            for entry in table.rows() {
                let (rule_set, rule) = (&*entry.names.rule_set, &*entry.names.rule);
                let id = match &entry.identity {
                    DeniedIdentity::None => DeniedId::None,
                    DeniedIdentity::Known(identity) => {
                        let identities = self.engine.identities();
                        DeniedId::Stored(identities.stored(rule_set, rule, identity))
                    }
                    DeniedIdentity::Long(hash) => DeniedId::Long(*hash),
                };
                let text = |bytes: &[u8]| Some(String::from_utf8_lossy(bytes).into_owned());
                let shows_path = !self.hides_identities || !counts_by_path(&rules, rule_set);
                let detail = DenialDetail {
                    outcome: entry.outcome.name().to_owned(),
                    band: text(&entry.band).filter(|it| !it.is_empty()),
                    method: text(&entry.method).filter(|it| !it.is_empty()),
                    path: text(&entry.path).filter(|it| !it.is_empty() && shows_path),
                };
                let row = RecordedDenial {
                    id: id.to_text(),
                    count: entry.count,
                    first_ms: wall_ms(entry.first),
                    last_ms: wall_ms(entry.last),
                    // Texts have a form in JSON.
                    text: serde_json::to_string(&detail).unwrap_or_default(),
                };
                denials.add(minute, &rule_of(&entry.names), row, uptime);
            }
            for (names, dropped) in table.dropped() {
                denials.add_dropped(minute, &rule_of(names), dropped, uptime);
            }
        });
        denials.prune();
    }

    /// Returns for how long the record is kept, in milliseconds.
    pub(crate) fn keep_ms(&self) -> u64 {
        self.config.keep.as_millis() as u64
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Collected> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a rule of the set counts by the path, which is an identity then. A set that has
/// been removed may have had one.
fn counts_by_path(rules: &RuleSets, rule_set: &str) -> bool {
    let set = rules.get(rule_set);
    set.is_none_or(|set| {
        let mut parts = set.rules().iter().flat_map(|rule| rule.key());
        parts.any(|part| *part == KeyPart::Path)
    })
}

/// Returns the middle of the time between two collections, which lies in the second that most of
/// it belongs to. If the clock has jumped, returns the time now.
fn middle(last: Duration, now: Duration) -> Duration {
    match now.checked_sub(last) {
        Some(between) if between < JUMP => last + between / 2,
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_what_is_collected_at_its_end() {
        let millis = Duration::from_millis;
        for (last, now, second) in [
            (5_002, 6_003, 5),
            (5_002, 6_400, 5),
            (5_300, 6_003, 5),
            (5_002, 5_004, 5),
            // It has jumped.
            (5_002, 3_000, 3),
            (5_002, 99_000, 99),
        ] {
            assert_eq!(middle(millis(last), millis(now)).as_secs(), second);
        }
    }
}
