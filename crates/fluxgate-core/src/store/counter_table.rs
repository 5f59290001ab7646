//! A store's table of counters, and everything that is decided on it.

use super::charge_record::ChargeRecord;
use super::counters::{self, Counters};
use super::{Checks, HoldRequest, Verdicts};
use crate::algorithm::{Adjustment, Charged, Counter, CounterAssessment, Mode, Verdict};
use crate::band::Band;
use crate::hold::{HoldId, Settled, Settlement};
use crate::key::{RuleNumber, Subject};
use crate::time::{Micros, Timestamp};

/// A table of counters. A store implements [`get`](CounterTable::get) and
/// [`set`](CounterTable::set), and gets all decisions for it.
///
/// A counter belongs to the [bytes](Subject::bytes) of a subject and the
/// [tag](Band::tag) of a band. Each call must see and write all of its counters as one: lock
/// the table, or run the call in a transaction.
pub trait CounterTable {
    /// Returns the counter of a subject and a band, if it has one.
    fn get(&self, subject: Subject<'_>, band: &Band) -> Option<Counter>;

    /// Replaces or deletes the counter of a subject and a band.
    fn set(&mut self, subject: Subject<'_>, band: &Band, counter: Option<Counter>);

    /// Decides checks like [`Store::decide`](super::Store::decide). If they have a hold and
    /// charge anything, returns its record, which the store keeps by its
    /// [id](HoldRecord::id).
    fn decide(&mut self, checks: &Checks<'_>, now: Timestamp) -> (Verdicts, Option<HoldRecord>)
    where
        Self: Sized,
    {
        let mut verdicts = Verdicts::new();
        let list = checks.list();
        let keys = list.iter().map(|check| (check.subject, check.band.tag()));
        let mut entries = TableEntries::new(self, keys.collect(), now, checks.hold());
        counters::decide(&mut entries, checks, &mut verdicts);
        let record = ChargeRecord::of(
            checks,
            &verdicts,
            now,
            |index| entries.log_mark(index),
            |index| (list[index].subject.rule, list[index].subject.bytes.into()),
        );
        let held = checks.hold().zip(record).map(|(hold, record)| HoldRecord {
            id: hold.id,
            record,
        });
        (verdicts, held)
    }

    /// Refunds units like [`Store::refund`](super::Store::refund).
    fn refund(
        &mut self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        now: Timestamp,
    ) -> Verdicts {
        let refund = |band: &Band| {
            let counter = self.get(subject, band);
            let refunded = counter.and_then(|counter| counter.refund(band.limit(), now, units));
            self.set(subject, band, refunded.clone());
            *Counter::assess(band.limit(), refunded.as_ref(), now, 0, Mode::Peek, None).verdict()
        };
        bands.iter().map(refund).collect()
    }

    /// Cancels a charge like [`Store::cancel`](super::Store::cancel).
    fn cancel(
        &mut self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
        now: Timestamp,
    ) {
        for (band, charged) in bands.iter().zip(charged) {
            if let Some(counter) = self.get(subject, band) {
                let mark = charged.mark(band.limit());
                self.set(
                    subject,
                    band,
                    counter.cancel(band.limit(), now, units, mark),
                );
            }
        }
    }

    /// Settles a hold like [`Store::settle`](super::Store::settle). The store forgets the hold
    /// in the same transaction.
    fn settle(
        &mut self,
        hold: &HoldRecord,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Option<Settled>
    where
        Self: Sized,
    {
        let HoldRecord { id, record } = hold;
        let mut entries = TableEntries::new(self, hold.keys(), now, None);
        let applies = record.can_settle(&mut entries, *id, settlement, now);
        applies.then(|| record.settle(&mut entries, *id, settlement))
    }

    /// Extends a hold to `span` from `now`, like [`Store::renew`](super::Store::renew). Returns
    /// whether it is still held.
    fn renew(&mut self, hold: &mut HoldRecord, span: Micros, now: Timestamp) -> bool
    where
        Self: Sized,
    {
        let mut record = hold.record.clone();
        let mut entries = TableEntries::new(self, hold.keys(), now, None);
        let is_held = record.renew(&mut entries, hold.id, span, now);
        hold.record = record;
        is_held
    }

    /// Deletes the counters of a subject like [`Store::reset`](super::Store::reset). Returns how
    /// many there were.
    fn reset(&mut self, subject: Subject<'_>, bands: &[Band]) -> u64 {
        let mut deleted = 0;
        for band in bands {
            deleted += u64::from(self.get(subject, band).is_some());
            self.set(subject, band, None);
        }
        deleted
    }
}

/// What a hold has charged: everything that [`CounterTable::settle`] needs.
#[derive(Clone, Debug)]
pub struct HoldRecord {
    id: HoldId,
    record: ChargeRecord<(RuleNumber, Box<[u8]>)>,
}

impl HoldRecord {
    /// Returns the id of the hold.
    pub fn id(&self) -> HoldId {
        self.id
    }

    /// Returns whether the hold may still be settled. A store deletes other records at any
    /// time.
    pub fn is_needed(&self, now: Timestamp) -> bool {
        self.record.is_needed(now)
    }

    fn keys(&self) -> Vec<(Subject<'_>, u64)> {
        let parts = self.record.parts.iter();
        let keys = parts.map(|part| {
            let (rule, bytes) = (part.key.0, &*part.key.1);
            (Subject { rule, bytes }, part.band.tag())
        });
        keys.collect()
    }
}

/// The entries of a table that one call is about.
struct TableEntries<'t, 'k, T> {
    table: &'t mut T,
    /// The subject of each, and the tag of its band.
    keys: Vec<(Subject<'k>, u64)>,
    now: Timestamp,
    /// The hold that takes slots, and its requested lifetime.
    hold: Option<(HoldId, Option<Micros>)>,
    /// The events that the hold was charged by logs, by the index of the check.
    log_marks: Vec<(usize, u64)>,
}

impl<'t, 'k, T: CounterTable> TableEntries<'t, 'k, T> {
    fn new(
        table: &'t mut T,
        keys: Vec<(Subject<'k>, u64)>,
        now: Timestamp,
        hold: Option<&HoldRequest<'_>>,
    ) -> Self {
        Self {
            table,
            keys,
            now,
            hold: hold.map(|hold| (hold.id, hold.span)),
            log_marks: Vec::new(),
        }
    }

    /// Returns the event that the log of a check was charged by. The last check of a counter
    /// charges it for those before.
    fn log_mark(&self, index: usize) -> Option<u64> {
        let mut marks = self.log_marks.iter();
        let mark = marks.find(|(charged, _)| self.is_same(*charged, index));
        mark.map(|(_, mark)| *mark)
    }

    fn get(&self, at: usize, band: &Band) -> Option<Counter> {
        self.table.get(self.keys[at].0, band)
    }

    fn set(&mut self, at: usize, band: &Band, counter: Option<Counter>) {
        self.table.set(self.keys[at].0, band, counter);
    }
}

impl<T: CounterTable> Counters for TableEntries<'_, '_, T> {
    fn is_same(&self, one: usize, other: usize) -> bool {
        let ((one, tag), (other, other_tag)) = (self.keys[one], self.keys[other]);
        tag == other_tag && one.bytes == other.bytes
    }

    fn assess(&mut self, at: usize, band: &Band, cost: u64, mode: Mode) -> CounterAssessment {
        let span = self.hold.and_then(|(_, span)| span);
        let stored = self.get(at, band);
        Counter::assess(band.limit(), stored.as_ref(), self.now, cost, mode, span)
    }

    fn assess_charged(&mut self, at: usize, band: &Band, units: u64, cost: u64) -> Verdict {
        Counter::assess_charged(band.limit(), self.get(at, band), self.now, units, cost)
    }

    fn correct(&mut self, at: usize, band: &Band, assessment: &CounterAssessment) {
        let corrected = Counter::correct(self.get(at, band), assessment);
        self.set(at, band, corrected);
    }

    fn charge(&mut self, at: usize, band: &Band, assessment: &CounterAssessment) {
        let hold = self.hold.map(|(id, _)| id);
        let charged = Counter::charge(band.limit(), self.get(at, band), assessment, hold);
        if let (Some(Counter::Log(log)), CounterAssessment::Log(assessment)) =
            (&charged, assessment)
            && assessment.charges
        {
            self.log_marks.push((at, log.mark_of(assessment)));
        }
        self.set(at, band, charged);
    }

    fn adjust(&mut self, at: usize, band: &Band, adjustment: &Adjustment) -> u64 {
        let stored = self.get(at, band);
        let (adjusted, uncharged) = Counter::adjust(band.limit(), stored, self.now, adjustment);
        self.set(at, band, adjusted);
        uncharged
    }

    fn release(&mut self, at: usize, band: &Band, hold: HoldId) {
        let released = self.get(at, band).and_then(|counter| counter.release(hold));
        self.set(at, band, released);
    }

    fn renew(&mut self, at: usize, band: &Band, hold: HoldId, span: Micros) -> Option<u64> {
        let Counter::Slots(mut slots) = self.get(at, band)? else {
            return None;
        };
        let end = slots.renew(hold, self.now, span);
        self.set(at, band, Some(Counter::Slots(slots)));
        end
    }

    fn end_of_slots(&mut self, at: usize, band: &Band, hold: HoldId) -> Option<u64> {
        match self.get(at, band)? {
            Counter::Slots(slots) => slots.end_of(hold),
            _ => None,
        }
    }
}
