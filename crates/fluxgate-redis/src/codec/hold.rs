//! Encodes the hold of a request that is charged.

use fluxgate_core::Algorithm;
use fluxgate_core::store::{Checks, HoldId, Micros};

use super::record::{charges_of, write_charges};
use super::request::{KeyKind, Request, put};
use crate::keys::KeyNaming;

/// Stands for no key.
pub(super) const NO_KEY: u32 = u32::MAX;
/// A time to live that is not asked for: longer than any.
const NO_SPAN: u64 = 1 << 53;

/// Where the record of a hold goes that is not the only part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HoldPart {
    /// The key of the record.
    pub(crate) key: Vec<u8>,
    /// How long the whole hold lives; if this is the whole one, how long without slots.
    pub(crate) life: Micros,
    pub(crate) is_whole: bool,
}

/// Returns whether any check is one of slots.
pub(crate) fn has_slots(checks: &Checks<'_>) -> bool {
    let mut list = checks.list().iter();
    list.any(|check| check.band.limit().algorithm() == Algorithm::Concurrency)
}

impl Request {
    /// Adds what the script needs for the hold of a charge.
    pub(super) fn push_hold(
        &mut self,
        checks: &Checks<'_>,
        naming: &KeyNaming,
        part: Option<&HoldPart>,
    ) {
        let Some(hold) = checks.hold() else {
            // Slots that nobody gives back.
            let life = Micros::ZERO;
            return self.put_hold(None, HoldId::random(), NO_SPAN, life, true, &[]);
        };
        let span = hold.span.map_or(NO_SPAN, Micros::get).min(NO_SPAN);
        if let Some(part) = part {
            let key = Some(&part.key[..]);
            return self.put_hold(key, hold.id, span, part.life, part.is_whole, &[]);
        }
        let mut charges = Vec::new();
        write_charges(&charges_of(checks, hold, naming), &mut charges);
        let life = hold.span_without_slots();
        let key = naming.hold(hold.id);
        self.put_hold(Some(&key), hold.id, span, life, true, &charges);
    }

    pub(super) fn put_hold(
        &mut self,
        record: Option<&[u8]>,
        id: HoldId,
        span: u64,
        life: Micros,
        is_whole: bool,
        charges: &[u8],
    ) {
        let key = match record {
            Some(name) => {
                self.add_key(KeyKind::Other, |names| names.extend_from_slice(name)) as u32
            }
            None => NO_KEY,
        };
        put(&mut self.trailers, key.into(), 4);
        self.trailers.extend_from_slice(&id.bits().to_le_bytes());
        put(&mut self.trailers, span, 7);
        put(&mut self.trailers, life.get().min(NO_SPAN), 7);
        self.trailers.push(is_whole.into());
        put(&mut self.trailers, charges.len() as u64, 4);
        self.trailers.extend_from_slice(charges);
    }
}
