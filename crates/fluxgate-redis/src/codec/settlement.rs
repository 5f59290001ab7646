//! Encodes settlements and renewals of holds, and adds up what was settled.

use fluxgate_core::store::{HoldId, Micros, Settled, Settlement};

use super::record::{RecordedCharge, RecordedCounter};
use super::request::{KeyKind, Op, Request, put};
use super::state::{BUCKET_TAG, CALENDAR_TAG, SLOTS_TAG, bucket_tag};

/// The span of a renewal has six bytes, and the life of a record five.
const MAX_SPAN: u64 = (1 << 48) - 1;
const MAX_LIFE: u64 = (1 << 40) - 1;
/// Whether the hold ends even if it has expired, in the first check.
const FLAG_AT: usize = 1;

/// How a settlement changes a charge.
struct Adjustment {
    cost: u64,
    /// The units to return or, if it owes, to charge in addition.
    units: u64,
    owes: bool,
}

/// The first check of a settlement or a renewal.
struct HoldCheck<'r> {
    /// The key of the record.
    record: &'r [u8],
    id: HoldId,
    span: Micros,
    life: Micros,
    longest_wait: Micros,
}

impl Adjustment {
    fn of(charge: &RecordedCharge, settlement: &Settlement<'_>) -> Self {
        let cost = settlement.cost_of(charge.units, charge.attribute.as_deref());
        Self {
            cost,
            units: cost.abs_diff(charge.units),
            owes: cost > charge.units,
        }
    }
}

impl Request {
    /// Settles the hold, or the part of one, whose record is at this key.
    pub(crate) fn settle(
        record: &[u8],
        id: HoldId,
        charges: &[RecordedCharge],
        settlement: &Settlement<'_>,
    ) -> Self {
        let mut request = Self::new(Op::Settle, charges.len() + 1);
        let record = request.push_hold_check(HoldCheck {
            record,
            id,
            span: Micros::ZERO,
            life: Micros::ZERO,
            longest_wait: Micros::ZERO,
        });
        request.checks[FLAG_AT] = u8::from(*settlement == Settlement::Cancelled);
        for (at, charge) in charges.iter().enumerate() {
            request.push_charge(record, at, charge, settlement);
        }
        request
    }

    /// Extends a hold to `span` from now. If the hold has other parts, extends its record to
    /// `life`.
    pub(crate) fn renew(
        record: &[u8],
        id: HoldId,
        charges: &[RecordedCharge],
        span: Micros,
        life: Micros,
    ) -> Self {
        let slots = charges
            .iter()
            .enumerate()
            .filter(|(_, charge)| charge.has_slots());
        let mut request = Self::new(Op::Renew, slots.clone().count() + 1);
        let waits = charges.iter().map(RecordedCharge::longest_wait);
        let record = request.push_hold_check(HoldCheck {
            record,
            id,
            span,
            life,
            longest_wait: waits.max().unwrap_or_default(),
        });
        for (at, charge) in slots {
            request.push_charge(record, at, charge, &Settlement::AsReserved);
        }
        request
    }

    /// Adds the first check of a settlement or a renewal. Returns the number of the record's
    /// key.
    fn push_hold_check(&mut self, check: HoldCheck<'_>) -> usize {
        let key = self.add_key(KeyKind::Other, |names| {
            names.extend_from_slice(check.record);
        });
        self.push_head(false, key, SLOTS_TAG);
        let out = &mut self.checks;
        out.push(0);
        put(out, check.life.get().min(MAX_LIFE), 5);
        // In seconds: 32 bits hold more than a century.
        let wait = check.longest_wait.get().div_ceil(1_000_000);
        put(out, wait.min(u32::MAX.into()), 4);
        out.extend_from_slice(&check.id.bits().to_le_bytes());
        put(out, check.span.get().min(MAX_SPAN), 6);
        key
    }

    fn push_charge(
        &mut self,
        record: usize,
        at: usize,
        charge: &RecordedCharge,
        settlement: &Settlement<'_>,
    ) {
        let Adjustment { units, owes, .. } = Adjustment::of(charge, settlement);
        let has_change = match charge.counter {
            RecordedCounter::Slots { taken, .. } => taken > 0,
            _ => charge.units > 0 && units > 0,
        };
        if !has_change {
            // A check that changes nothing, so that the others keep their positions.
            self.push_head(false, record, BUCKET_TAG);
            return self.push_numbers(0, 0, [0; 5]);
        }
        // A band owes at most twice its capacity.
        let units = units.min(2 * charge.counter.capacity());
        let kind = match charge.counter {
            RecordedCounter::Window { tag: 245, .. } | RecordedCounter::Slots { .. } => {
                KeyKind::Log
            }
            _ => KeyKind::Cell,
        };
        let start = self.checks.len();
        let key = self.add_key(kind, |names| names.extend_from_slice(&charge.key));
        match charge.counter {
            RecordedCounter::Bucket(bucket) => {
                let numbers = [bucket.refill, units, bucket.capacity, bucket.period, 0];
                self.push_head(owes, key, bucket_tag(bucket.shape));
                self.push_numbers(bucket.horizon, bucket.max_wait_ms, numbers);
            }
            RecordedCounter::Window {
                tag,
                window_ms,
                capacity,
            } => {
                self.push_head(owes, key, tag);
                self.push_numbers(0, window_ms, [capacity, units, 0, 0, 0]);
            }
            RecordedCounter::Calendar { calendar, capacity } => {
                self.push_head(owes, key, CALENDAR_TAG);
                self.push_numbers(0, 0, [capacity, units, 0, 0, 0]);
                self.calendars.push((start, calendar));
            }
            RecordedCounter::Slots { longest, taken } => {
                self.push_head(false, key, SLOTS_TAG);
                self.push_numbers(0, 0, [0, taken, at as u64, longest, 0]);
            }
        }
    }
}

/// What a settlement has charged so far, in all parts of a hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SettlementTotal {
    cost: u64,
    uncharged: u64,
    /// Whether the units of any rate have changed.
    pub(crate) has_changed: bool,
}

impl SettlementTotal {
    /// Adds a part, by what the script charged in addition to each charge; `None` where nothing
    /// had been charged.
    pub(crate) fn add(
        &mut self,
        charges: &[RecordedCharge],
        settlement: &Settlement<'_>,
        charged: &[Option<u32>],
    ) {
        for (charge, charged) in charges.iter().zip(charged) {
            let Some(charged) = charged.filter(|_| charge.units > 0) else {
                continue;
            };
            let Adjustment { cost, units, owes } = Adjustment::of(charge, settlement);
            self.cost = self.cost.max(cost);
            if charge.has_slots() {
                continue;
            }
            if owes {
                let uncharged = units.saturating_sub(charged.into());
                self.uncharged = self.uncharged.max(uncharged);
            }
            self.has_changed |= units > 0;
        }
    }

    pub(crate) fn settled(&self) -> Settled {
        Settled {
            charged: self.cost.saturating_sub(self.uncharged),
            uncharged: self.uncharged,
        }
    }
}
