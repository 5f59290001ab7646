//! The embedded store: bounded, shared by threads, and without identities.
//!
//! A key is kept as a secret fingerprint: 54 bits of it beside the state, and up
//! to nine by the shard it is in. A line of two keys has a lock of its own; a
//! request takes the locks of all its keys, in one order, decides, writes and
//! lets go, so what it does is seen whole or not at all.

mod evict;
mod fast;
mod held;
mod line;
mod shard;
mod shares;
mod slot;
mod sync;
mod table;

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use crate::algorithm::{Charged, Mode, Verdict};
use crate::clock::{Clock, SystemClock};
use crate::rules::{Band, RuleNumber};
use crate::store::{Check, Checks, Group, Store, StoreError, Subject, Verdicts};
use crate::time::Timestamp;
pub(crate) use slot::Imprint;

use held::{Assessed, Held};
use table::{Key, Table};

/// How many keys are kept unless told otherwise.
pub const DEFAULT_MAX_KEYS: usize = 1_000_000;

/// How many events of sliding logs are kept unless told otherwise: as much memory
/// as [`DEFAULT_MAX_KEYS`] take, and up to twice as much.
pub const DEFAULT_MAX_LOG_EVENTS: usize = 4_000_000;

/// When a key may be forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// Once its quota is full again; before that only if there are too many
    /// keys. Then a rule that has its share of the store evicts its own keys, and
    /// another rule those of rules that have more than theirs: first those that
    /// cost least to forget.
    #[default]
    UntilFull,
    /// Never: for simulations, where the clock may go back by years.
    Forever,
}

/// The embedded store.
#[derive(Debug)]
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    table: Table,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_max_keys(DEFAULT_MAX_KEYS)
    }
}

impl MemoryStore {
    /// A store on the system's clock that keeps at most `max_keys` keys.
    pub fn with_max_keys(max_keys: usize) -> Self {
        Self::new(SystemClock::default(), max_keys, Retention::UntilFull)
    }
}

impl<C: Clock> MemoryStore<C> {
    /// A store on any clock.
    pub fn new(clock: C, max_keys: usize, retention: Retention) -> Self {
        Self {
            clock,
            table: Table::new(max_keys, retention),
        }
    }

    /// Sets how many events all sliding logs may keep together.
    ///
    /// At the bound a log merges the events of each eighth of its window into
    /// one, so that it has at most nine: its units then return up to an eighth of
    /// the window late, never early. With [`Retention::Forever`] there is no bound.
    #[must_use]
    pub fn max_log_events(mut self, max_log_events: usize) -> Self {
        self.table.max_log_events = max_log_events;
        self
    }

    /// How many events the sliding logs keep now.
    pub fn log_events(&self) -> usize {
        self.table.events.total()
    }

    /// How many keys are kept now.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no key is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes `cost` units of a limit that belongs to no rule, for any key.
    pub fn take(&self, key: &str, band: &Band, cost: u64) -> Verdict {
        self.take_at(key, band, cost, self.clock.now())
    }

    /// Like [`MemoryStore::take`], at the instant `now`.
    pub fn take_at(&self, key: &str, band: &Band, cost: u64, now: Timestamp) -> Verdict {
        let fingerprint = self.table.fingerprint(key.as_bytes());
        let key = self.table.key(fingerprint, RuleNumber::NONE, band);
        self.table.take(&key, band, now, cost)
    }

    /// Decides checks at the store's own time.
    pub fn decide_now(&self, checks: &Checks<'_>) -> Verdicts {
        self.decide_at(checks, self.clock.now())
    }

    /// Decides checks at the instant `now`.
    pub fn decide_at(&self, checks: &Checks<'_>, now: Timestamp) -> Verdicts {
        let mut verdicts = Verdicts::new();
        self.decide_into(checks, now, &mut verdicts);
        verdicts
    }

    fn decide_into(&self, checks: &Checks<'_>, now: Timestamp, verdicts: &mut Verdicts) {
        let list = checks.list();
        if let ([check], Mode::Take) = (list, checks.mode()) {
            let Subject { rule, bytes } = checks.subject(check);
            let key = self
                .table
                .key(self.table.fingerprint(bytes), rule, check.band);
            verdicts.push(self.table.take(&key, check.band, now, check.cost));
            return;
        }
        let mut keys: SmallVec<[Key; 4]> = smallvec![];
        self.add_keys(checks, &mut keys);
        if list.iter().all(|check| check.group == Group::ENFORCED) {
            let mode = checks.mode();
            let decided = self.table.decide_in_lines(&keys, list, now, mode, verdicts);
            if decided.is_some() {
                return;
            }
            verdicts.clear();
        }
        let mut held = Held::new(&self.table, &keys);
        let mut start = 0;
        while start < list.len() {
            let group = list[start].group;
            let rest = list[start..].iter();
            let end = start + rest.take_while(|check| check.group == group).count();
            let passes = decide_group(
                &mut held,
                &keys,
                list,
                start..end,
                now,
                checks.mode(),
                verdicts,
            );
            if group == Group::ENFORCED && !passes {
                break;
            }
            start = end;
        }
    }

    /// Adds the keys of all checks; a subject is hashed once for all its bands.
    fn add_keys(&self, checks: &Checks<'_>, keys: &mut SmallVec<[Key; 4]>) {
        let mut known: Option<(&Check<'_>, u64)> = None;
        for check in checks.list() {
            let subject = checks.subject(check);
            let fingerprint = match known {
                Some((before, fingerprint)) if Checks::same_subject(before, check) => fingerprint,
                _ => self.table.fingerprint(subject.bytes),
            };
            known = Some((check, fingerprint));
            keys.push(self.table.key(fingerprint, subject.rule, check.band));
        }
    }

    fn keys_of(&self, subject: Subject<'_>, bands: &[Band]) -> SmallVec<[Key; 4]> {
        let fingerprint = self.table.fingerprint(subject.bytes);
        bands
            .iter()
            .map(|band| self.table.key(fingerprint, subject.rule, band))
            .collect()
    }
}

/// Decides a range of checks that are charged together or not at all.
fn decide_group(
    held: &mut Held<'_, '_>,
    keys: &[Key],
    checks: &[Check<'_>],
    group: Range<usize>,
    now: Timestamp,
    mode: Mode,
    verdicts: &mut Verdicts,
) -> bool {
    let mut assessed: SmallVec<[Assessed; 4]> = smallvec![];
    for at in group.clone() {
        // What this request already asks of the same counter adds up.
        let before = group.start..at;
        let before = before.filter(|earlier| keys[*earlier] == keys[at]);
        let cost = before.fold(checks[at].cost, |sum, earlier| {
            sum.saturating_add(checks[earlier].cost)
        });
        assessed.push(held.assess(at, checks[at].band, now, cost, mode));
    }
    let passes = assessed.iter().all(|assessed| assessed.verdict().passes());
    for (at, assessed) in group.clone().zip(&assessed) {
        let Check { band, cost, .. } = checks[at];
        // Of checks that meet, the last one speaks for all.
        let is_last = !keys[at + 1..group.end].contains(&keys[at]);
        if passes && mode.takes() {
            if is_last {
                held.charge(at, band, now, assessed);
            }
            verdicts.push(*assessed.verdict());
            continue;
        }
        if is_last {
            held.correct(at, band, assessed);
        }
        let mut verdict = *assessed.verdict();
        if verdict.passes() && mode.takes() {
            // Not charged after all: tell what is there without it.
            let peeked = held.assess(at, band, now, cost, Mode::Peek);
            verdict = *peeked.verdict();
        }
        verdicts.push(verdict);
    }
    passes
}

impl<C: Clock> Store for MemoryStore<C> {
    async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        Ok(self.decide_now(checks))
    }

    fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
        self.decide_into(checks, self.clock.now(), verdicts);
        true
    }

    async fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> Result<Verdicts, StoreError> {
        let now = self.clock.now();
        let keys = self.keys_of(subject, bands);
        let mut held = Held::new(&self.table, &keys);
        let verdicts = bands.iter().enumerate().map(|(at, band)| {
            held.refund(at, band, now, units);
            let assessed = held.assess(at, band, now, 0, Mode::Peek);
            *assessed.verdict()
        });
        Ok(verdicts.collect())
    }

    async fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        let keys = self.keys_of(subject, bands);
        let mut held = Held::new(&self.table, &keys);
        for (at, (band, charged)) in bands.iter().zip(charged).enumerate() {
            held.cancel(at, band, now, units, charged.mark(band.limit()));
        }
        Ok(())
    }

    async fn reset(&self, subject: Subject<'_>, bands: &[Band]) -> Result<u64, StoreError> {
        let keys = self.keys_of(subject, bands);
        let mut held = Held::new(&self.table, &keys);
        Ok((0..keys.len()).map(|at| u64::from(held.remove(at))).sum())
    }

    async fn reset_rule(&self, rule: Subject<'_>) -> Result<u64, StoreError> {
        Ok(self.table.remove_rule(rule.rule))
    }
}
