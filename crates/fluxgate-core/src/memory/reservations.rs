//! Reservations of the embedded store that are cancelled by their ids.
//!
//! Each has a record like a hold. It is removed before any units return, so they return only
//! once.

use smallvec::SmallVec;

use super::holds::{Holds, Record};
use super::locked::LockedKeys;
use super::table::{Key, Table};
use crate::hold::HoldId;
use crate::store::{ChargedPart, KeptReservation, ReservedCharge};
use crate::time::Timestamp;

/// The reservations of a store.
#[derive(Debug)]
pub(super) struct Reservations(Holds);

impl Reservations {
    pub(super) fn new() -> Self {
        Self(Holds::new())
    }

    /// Keeps a reservation, by the keys of each subject.
    pub(super) fn keep(
        &self,
        table: &Table,
        reservation: &KeptReservation<'_>,
        keys_of: impl Fn(&ReservedCharge<'_>) -> SmallVec<[Key; 4]>,
        now: Timestamp,
    ) {
        let mut parts = Vec::new();
        for charge in &reservation.charges {
            let bands = charge.bands.iter().zip(charge.charged);
            for (key, (band, charged)) in keys_of(charge).into_iter().zip(bands) {
                parts.push(ChargedPart {
                    key,
                    band: band.clone(),
                    units: charge.units,
                    mark: charged.mark(band.limit()),
                    attribute: None,
                });
            }
        }
        let record = Record {
            end: reservation.until.micros(),
            waits_until: reservation.until.micros(),
            is_held: reservation.is_held,
            parts: parts.into(),
        };
        self.0.insert(table, reservation.id, record, now);
    }

    /// Removes a reservation of a request that still waits.
    pub(super) fn take(&self, id: HoldId, now: Timestamp) -> Option<Record> {
        self.0.remove(id).filter(|record| record.end > now.micros())
    }
}

/// Cancels the charges of a reservation.
pub(super) fn cancel(table: &Table, record: &Record, now: Timestamp) {
    let keys: SmallVec<[Key; 4]> = record.parts.iter().map(|part| part.key).collect();
    let mut locked = LockedKeys::new(table, &keys);
    for (at, part) in record.parts.iter().enumerate() {
        locked.cancel(at, &part.band, now, part.units, part.mark);
    }
}
