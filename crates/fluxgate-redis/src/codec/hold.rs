//! Encodes the hold of a request that is charged.

use fluxgate_core::Algorithm;
use fluxgate_core::store::{Checks, HoldId, Micros};

use super::record::{charges_of, write_charges};
use super::request::{KeyKind, Request, put};
use crate::keys::KeyNaming;

/// Stands for no key.
pub(super) const NO_KEY: u32 = u32::MAX;
/// The span of a hold without a requested one: longer than any.
const NO_SPAN: u64 = 1 << 53;

/// The record of one part of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HoldPart {
    /// The key of the record.
    pub(crate) key: Vec<u8>,
    /// The life of the whole hold; if this is its only part, its life without slots.
    pub(crate) life: Micros,
    /// Whether this is the only part.
    pub(crate) is_whole: bool,
}

/// The hold of a request, as `lua/hold.lua` reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldTrailer<'h> {
    /// The key of its record, if it has one.
    pub(super) record: Option<&'h [u8]>,
    pub(super) id: HoldId,
    /// The requested span.
    pub(super) span: u64,
    /// Its life without slots.
    pub(super) life: Micros,
    /// Whether all its slots are in this call.
    pub(super) is_whole: bool,
    /// The charges to write into the record.
    pub(super) charges: &'h [u8],
}

/// Returns whether any check takes slots.
pub(crate) fn has_slots(checks: &Checks<'_>) -> bool {
    let mut list = checks.list().iter();
    list.any(|check| check.band.limit().algorithm() == Algorithm::Concurrency)
}

impl Request {
    /// Adds the hold of a request.
    pub(super) fn push_hold(
        &mut self,
        checks: &Checks<'_>,
        naming: &KeyNaming,
        part: Option<&HoldPart>,
    ) {
        let Some(hold) = checks.hold() else {
            // Slots that are never released.
            return self.put_hold(HoldTrailer {
                record: None,
                id: HoldId::random(),
                span: NO_SPAN,
                life: Micros::ZERO,
                is_whole: true,
                charges: &[],
            });
        };
        let trailer = HoldTrailer {
            record: None,
            id: hold.id,
            span: hold.span.map_or(NO_SPAN, Micros::get).min(NO_SPAN),
            life: hold.span_without_slots(),
            is_whole: true,
            charges: &[],
        };
        if let Some(part) = part {
            return self.put_hold(HoldTrailer {
                record: Some(&part.key),
                life: part.life,
                is_whole: part.is_whole,
                ..trailer
            });
        }
        let mut charges = Vec::new();
        write_charges(&charges_of(checks, hold, naming), &mut charges);
        self.put_hold(HoldTrailer {
            record: Some(&naming.hold(hold.id)),
            charges: &charges,
            ..trailer
        });
    }

    pub(super) fn put_hold(&mut self, hold: HoldTrailer<'_>) {
        let key = match hold.record {
            Some(name) => {
                self.add_key(KeyKind::Other, |names| names.extend_from_slice(name)) as u32
            }
            None => NO_KEY,
        };
        let out = &mut self.trailers;
        put(out, key.into(), 4);
        out.extend_from_slice(&hold.id.bits().to_le_bytes());
        put(out, hold.span, 7);
        put(out, hold.life.get().min(NO_SPAN), 7);
        out.push(hold.is_whole.into());
        put(out, hold.charges.len() as u64, 4);
        out.extend_from_slice(hold.charges);
    }
}
