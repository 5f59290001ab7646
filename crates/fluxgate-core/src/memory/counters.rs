//! The counters of the locked keys of one request: cells, and lists of events or slots.

use super::entry::LimitBits;
use super::list::List;
use super::locked::LockedKeys;
use super::overflow::recount;
use super::table::Retention;
use crate::algorithm::{
    Adjusted, Adjustment, Assessment, Cell, Counter, CounterAssessment, Log, Mode, Slots, Verdict,
};
use crate::band::Band;
use crate::hold::HoldId;
use crate::limit::{Algorithm, FracMicros};
use crate::store::Counters;
use crate::time::Micros;

impl Counters for LockedKeys<'_, '_> {
    fn is_same(&self, one: usize, other: usize) -> bool {
        self.keys[one] == self.keys[other]
    }

    fn assess(&mut self, at: usize, band: &Band, cost: u64, mode: Mode) -> CounterAssessment {
        if self.keys[at].is_list {
            return self.assess_list(at, band, cost, mode);
        }
        let cell = self.cell(at, band);
        CounterAssessment::Cell(Cell::assess(band.limit(), cell, self.now, cost, mode))
    }

    fn assess_charged(&mut self, at: usize, band: &Band, units: u64, cost: u64) -> Verdict {
        let stored = if self.keys[at].is_list {
            let log = self.list(at).and_then(List::as_log);
            log.map(|log| Counter::Log(log.clone()))
        } else {
            self.cell(at, band).map(Counter::Cell)
        };
        Counter::assess_charged(band.limit(), stored, self.now, units, cost)
    }

    fn correct(&mut self, at: usize, band: &Band, assessment: &CounterAssessment) {
        let CounterAssessment::Cell(Assessment { corrected, .. }) = assessment else {
            return self.correct_list(at, band, assessment);
        };
        if let Some(cell) = corrected {
            self.replace(at, self.keys[at].entry(band, cell));
        }
    }

    fn charge(&mut self, at: usize, band: &Band, assessment: &CounterAssessment) {
        let CounterAssessment::Cell(assessment) = assessment else {
            return self.charge_list(at, band, assessment);
        };
        if let Some(cell) = assessment.to_write() {
            self.write(at, self.keys[at].entry(band, cell));
        }
    }

    fn adjust(&mut self, at: usize, band: &Band, adjustment: &Adjustment) -> u64 {
        if self.keys[at].is_list {
            return self.adjust_log(at, band, adjustment);
        }
        let cell = self.cell(at, band);
        let Adjusted { state, uncharged } = Cell::adjust(band.limit(), cell, self.now, adjustment);
        if state.is_some() {
            self.set_cell(at, band, state);
        }
        uncharged
    }

    fn release(&mut self, at: usize, band: &Band, hold: HoldId) {
        self.change_list(at, band, |list| {
            if let Some(slots) = list.as_slots() {
                slots.release(hold);
            }
        });
    }

    fn renew(&mut self, at: usize, band: &Band, hold: HoldId, span: Micros) -> Option<u64> {
        let (now, mut end) = (self.now, None);
        self.change_list(at, band, |list| {
            end = list
                .as_slots()
                .and_then(|slots| slots.renew(hold, now, span));
        });
        end
    }

    fn end_of_slots(&mut self, at: usize, _: &Band, hold: HoldId) -> Option<u64> {
        self.list(at)?.as_slots()?.end_of(hold)
    }
}

impl LockedKeys<'_, '_> {
    /// Refunds units. Slots are released by their holds only.
    pub(super) fn refund(&mut self, at: usize, band: &Band, units: u64) {
        let (limit, now) = (band.limit(), self.now);
        if self.keys[at].is_list {
            self.change_list(at, band, |list| {
                if let Some(log) = list.as_log() {
                    log.refund(limit, now, units);
                }
            });
        } else if let Some(cell) = self.cell(at, band) {
            self.set_cell(at, band, Cell::refund(limit, cell, now, units));
        }
    }

    /// Cancels a charge that went to `mark`.
    pub(super) fn cancel(&mut self, at: usize, band: &Band, units: u64, mark: FracMicros) {
        if self.keys[at].is_list {
            self.change_list(at, band, |list| {
                if let Some(log) = list.as_log() {
                    log.cancel(mark.whole, units);
                }
            });
        } else if let Some(cell) = self.cell(at, band) {
            let cancelled = Cell::cancel(band.limit(), cell, self.now, units, mark);
            self.set_cell(at, band, cancelled);
        }
    }

    fn set_cell(&mut self, at: usize, band: &Band, cell: Option<Cell>) {
        match cell {
            Some(cell) => self.write(at, self.keys[at].entry(band, &cell)),
            None => {
                self.remove(at);
            }
        }
    }

    fn cell(&mut self, at: usize, band: &Band) -> Option<Cell> {
        self.state(at)?.cell(LimitBits::of(band.limit()))
    }

    /// Assesses a request on a key whose state is a list.
    fn assess_list(&mut self, at: usize, band: &Band, cost: u64, mode: Mode) -> CounterAssessment {
        let (limit, hold, now) = (band.limit(), self.hold, self.now);
        let list = self.list(at);
        if limit.algorithm() == Algorithm::Concurrency {
            let slots = list.and_then(List::as_slots).map(|slots| &*slots);
            let span = hold.and_then(|(_, span)| span);
            let assessment = Slots::assess(limit, slots, now, cost, mode, span);
            return CounterAssessment::Slots(assessment);
        }
        let log = list.and_then(List::as_log).map(|log| &*log);
        CounterAssessment::Log(Log::assess(limit, log, now, cost, mode))
    }

    /// Writes the correction of an assessment that is not charged.
    fn correct_list(&mut self, at: usize, band: &Band, assessment: &CounterAssessment) {
        self.change_list(at, band, |list| correct(list, assessment));
    }

    /// Writes the charge of an assessment that passes.
    fn charge_list(&mut self, at: usize, band: &Band, assessment: &CounterAssessment) {
        let (limit, hold) = (band.limit(), self.hold);
        let keep_ended = self.table.retention == Retention::Forever;
        match assessment {
            CounterAssessment::Log(log) if log.charges => {
                let mut mark = 0;
                self.grow_list(at, band, |list| {
                    correct(list, assessment);
                    if let Some(events) = list.as_log() {
                        if keep_ended && hold.is_some() {
                            events.keeps_gone = true;
                        }
                        events.charge(limit, log);
                        mark = events.mark_of(log);
                    }
                });
                if hold.is_some() {
                    self.log_marks.push((at, mark));
                }
            }
            CounterAssessment::Slots(slots) if slots.charges => {
                self.grow_list(at, band, |list| {
                    correct(list, assessment);
                    if let Some(held) = list.as_slots() {
                        held.charge(limit, slots, hold.map(|(id, _)| id), keep_ended);
                    }
                });
            }
            _ => self.correct_list(at, band, assessment),
        }
    }

    /// Changes a charge of a log to its real cost. Returns the units that did not fit.
    fn adjust_log(&mut self, at: usize, band: &Band, adjustment: &Adjustment) -> u64 {
        let (now, mut uncharged) = (self.now, 0);
        let adjust = |list: &mut List| {
            if let Some(log) = list.as_log() {
                uncharged = log.adjust(band.limit(), now, adjustment);
            }
        };
        if adjustment.cost > adjustment.reserved {
            self.grow_list(at, band, adjust);
        } else {
            self.change_list(at, band, adjust);
        }
        uncharged
    }

    /// Adds to a list, which need not exist.
    fn grow_list(&mut self, at: usize, band: &Band, change: impl FnOnce(&mut List)) {
        let (key, table, now) = (self.keys[at], self.table, self.now);
        let rule = key.rule.get();
        let is_known = self.list(at).is_some();
        let overflow = self.locked_overflow(key.shard);
        let expires = table.retention == Retention::UntilFull;
        let list = if is_known {
            overflow.list(key.fingerprint)
        } else {
            let is_expired = |list: &List| expires && list.is_expired(now);
            let list = List::new(band.limit());
            Some(overflow.new_list(key.fingerprint, rule, list, &table.items, is_expired))
        };
        let list = list.expect("the list exists or was created");
        let before = list.items();
        change(list);
        recount(&table.items, rule, before, list.items());
        let is_crowded = list.items() > List::MOST_COARSE_ITEMS && !table.has_room_for_items(rule);
        if is_crowded {
            let before = list.items();
            list.coarsen();
            recount(&table.items, rule, before, list.items());
        }
        let entry = key.entry_of_list(band, list);
        if is_crowded {
            self.sweep_lists(key.shard);
        }
        self.write(at, entry);
    }

    /// Changes a list, if it exists, and deletes it if nothing is left.
    fn change_list(&mut self, at: usize, band: &Band, change: impl FnOnce(&mut List)) {
        let (key, table) = (self.keys[at], self.table);
        let Some(list) = self.list(at) else { return };
        let before = list.items();
        change(list);
        recount(&table.items, key.rule.get(), before, list.items());
        if list.units() == 0 && list.items() == 0 {
            self.remove(at);
        } else {
            let entry = key.entry_of_list(band, list);
            self.replace(at, entry);
        }
    }

    /// Deletes the expired lists of the next shard in turn, unless another was swept just
    /// before.
    fn sweep_lists(&mut self, own: u32) {
        let (table, now) = (self.table, self.now);
        let Some(shard) = table.next_to_sweep(now) else {
            return;
        };
        if shard == own {
            let overflow = self.locked_overflow(own);
            overflow.retain_lists(&table.items, |_, list| !list.is_expired(now));
        } else if let Some(mut overflow) = table.shards[shard as usize].overflow.try_lock() {
            overflow.retain_lists(&table.items, |_, list| !list.is_expired(now));
        }
    }

    /// Returns the list of a key, if there is a stand-in for it.
    fn list(&mut self, at: usize) -> Option<&mut List> {
        self.state(at).filter(|state| state.is_list())?;
        let key = &self.keys[at];
        self.locked_overflow(key.shard).list(key.fingerprint)
    }
}

fn correct(list: &mut List, assessment: &CounterAssessment) {
    match (list, assessment) {
        (List::Log(log), CounterAssessment::Log(assessment)) => log.correct(assessment),
        (List::Slots(slots), CounterAssessment::Slots(assessment)) => slots.correct(assessment),
        _ => {}
    }
}
