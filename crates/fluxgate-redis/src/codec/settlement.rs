//! Encodes settlements and renewals of holds, and sums up what was settled.

use fluxgate_core::store::{HoldId, Micros, Settled, Settlement};

use super::record::{Counter, RecordedCharge};
use super::request::{KeyKind, Op, Request, put};
use super::state::{BUCKET_TAG, CALENDAR_TAG, SLOTS_TAG, bucket_tag};

/// The time to live of a renewal has six bytes, and five if slots are elsewhere.
const MAX_SPAN: u64 = (1 << 48) - 1;
const MAX_LIFE: u64 = (1 << 40) - 1;
/// Where the first check has whether the hold ends even if it has expired.
const FLAG_AT: usize = 1;

/// How a charge changes.
struct Change {
    cost: u64,
    /// The units to give back, or to charge on top.
    units: u64,
    owes: bool,
}

impl Change {
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
    /// Settles what has its record at this key.
    pub(crate) fn settle(
        record: &[u8],
        id: HoldId,
        charges: &[RecordedCharge],
        settlement: &Settlement<'_>,
    ) -> Self {
        let mut request = Self::new(Op::Settle, charges.len() + 1);
        let record = request.push_hold_check(record, id, Micros::ZERO, Micros::ZERO, Micros::ZERO);
        request.checks[FLAG_AT] = u8::from(*settlement == Settlement::Cancelled);
        for (at, charge) in charges.iter().enumerate() {
            request.push_charge(record, at, charge, settlement);
        }
        request
    }

    /// Lets a hold live for `span` from now on. If other slots of the hold are elsewhere,
    /// its record lives for `life`.
    pub(crate) fn renew(
        record: &[u8],
        id: HoldId,
        charges: &[RecordedCharge],
        span: Micros,
        life: Micros,
    ) -> Self {
        let slots = charges.iter().enumerate();
        let slots = slots.filter(|(_, charge)| charge.has_slots());
        let mut request = Self::new(Op::Renew, slots.clone().count() + 1);
        let waits = charges.iter().map(RecordedCharge::longest_wait);
        let longest_wait = waits.max().unwrap_or_default();
        let record = request.push_hold_check(record, id, span, life, longest_wait);
        for (at, charge) in slots {
            request.push_charge(record, at, charge, &Settlement::AsReserved);
        }
        request
    }

    /// Adds the check that a settlement or a renewal begins with. Returns the number of
    /// the record's key.
    fn push_hold_check(
        &mut self,
        record: &[u8],
        id: HoldId,
        span: Micros,
        life: Micros,
        longest_wait: Micros,
    ) -> usize {
        let key = self.add_key(KeyKind::Other, |names| names.extend_from_slice(record));
        self.push_head(false, key, SLOTS_TAG);
        self.checks.push(0);
        put(&mut self.checks, life.get().min(MAX_LIFE), 5);
        // In seconds: 32 bits hold more than a century.
        put(
            &mut self.checks,
            longest_wait.get().div_ceil(1_000_000).min(u32::MAX.into()),
            4,
        );
        self.checks.extend_from_slice(&id.bits().to_le_bytes());
        put(&mut self.checks, span.get().min(MAX_SPAN), 6);
        key
    }

    fn push_charge(
        &mut self,
        record: usize,
        at: usize,
        charge: &RecordedCharge,
        settlement: &Settlement<'_>,
    ) {
        let Change { units, owes, .. } = Change::of(charge, settlement);
        let has_change = match charge.counter {
            Counter::Slots { taken, .. } => taken > 0,
            _ => charge.units > 0 && units > 0,
        };
        if !has_change {
            // One that changes nothing, so that the others keep their places.
            self.push_head(false, record, BUCKET_TAG);
            return self.push_numbers(0, 0, [0; 5]);
        }
        // A band owes at most twice its capacity.
        let units = units.min(2 * charge.counter.capacity());
        let kind = match charge.counter {
            Counter::Window { tag: 245, .. } | Counter::Slots { .. } => KeyKind::Log,
            _ => KeyKind::Cell,
        };
        let start = self.checks.len();
        let key = self.add_key(kind, |names| names.extend_from_slice(&charge.key));
        match charge.counter {
            Counter::Bucket {
                shape,
                horizon,
                max_wait_ms,
                capacity,
                refill,
                period,
            } => {
                self.push_head(owes, key, bucket_tag(shape));
                self.push_numbers(horizon, max_wait_ms, [refill, units, capacity, period, 0]);
            }
            Counter::Window {
                tag,
                window_ms,
                capacity,
            } => {
                self.push_head(owes, key, tag);
                self.push_numbers(0, window_ms, [capacity, units, 0, 0, 0]);
            }
            Counter::Calendar { calendar, capacity } => {
                self.push_head(owes, key, CALENDAR_TAG);
                self.push_numbers(0, 0, [capacity, units, 0, 0, 0]);
                self.calendars.push((start, calendar));
            }
            Counter::Slots { longest, taken } => {
                self.push_head(false, key, SLOTS_TAG);
                self.push_numbers(0, 0, [0, taken, at as u64, longest, 0]);
            }
        }
    }
}

/// What a settlement has charged so far, over all parts of a hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    cost: u64,
    uncharged: u64,
    /// Whether a rate has other units now.
    pub(crate) has_changed: bool,
}

impl Tally {
    /// Adds a part, by what the script charged on top: `None` where it had charged nothing.
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
            let Change { cost, units, owes } = Change::of(charge, settlement);
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
