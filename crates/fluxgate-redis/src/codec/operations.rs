//! Encodes one decision, refund, undo or cancellation for the script.

use fluxgate_core::algorithm::{Mode, Overhang};
use fluxgate_core::store::{Charged, Checks, Group, Micros, Subject};
use fluxgate_core::{Band, StoreError, Timestamp};

use super::answer::{Answer, combined_cost};
use super::hold::{HoldPart, has_slots};
use super::request::{Ends, KeyKind, Op, PERMIT_SIZE, Request, put};
use super::subject_keys::SubjectKeys;
use crate::keys::KeyNaming;

/// A permit to wait, taken if the request has to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedPermit<'a> {
    /// The key of the set of permits.
    pub(crate) key: &'a [u8],
    /// How many there are.
    pub(crate) max: u32,
    /// Identifies this one.
    pub(crate) id: &'a [u8; 16],
}

impl Request {
    /// Decides these checks. There must be at least one. If they are not the whole of a
    /// hold, `part` says where their record goes.
    pub(crate) fn decide(checks: &Checks<'_>, naming: &KeyNaming, part: Option<&HoldPart>) -> Self {
        let op = match checks.mode() {
            Mode::Take | Mode::TakeNow => Op::Take,
            Mode::Peek | Mode::PeekNow | Mode::Preview => Op::Peek,
        };
        Self::decide_as(op, checks, naming, part)
    }

    /// Decides these checks and, if the request has to wait, takes a permit first.
    /// Without a free permit it is decided as if no rule let it wait.
    pub(crate) fn decide_with_permit(
        checks: &Checks<'_>,
        naming: &KeyNaming,
        permit: WantedPermit<'_>,
    ) -> Self {
        let mut request = Self::decide_as(Op::TakePermit, checks, naming, None);
        let key = request.add_key(KeyKind::Other, |names| {
            names.extend_from_slice(permit.key);
        });
        let mut trailer = Vec::with_capacity(PERMIT_SIZE + request.trailers.len());
        put(&mut trailer, key as u64, 4);
        put(&mut trailer, permit.max.into(), 4);
        trailer.extend_from_slice(permit.id);
        // Before the hold.
        trailer.append(&mut request.trailers);
        request.trailers = trailer;
        request
    }

    fn decide_as(op: Op, checks: &Checks<'_>, naming: &KeyNaming, part: Option<&HoldPart>) -> Self {
        let at_once = !checks.mode().waits();
        let list = checks.list();
        let mut request = Self::new(op, list.len());
        request.has_hold = op != Op::Peek && (checks.hold().is_some() || has_slots(checks));
        // Only the script knows a whole log, and so what a charge in any case would leave of it.
        let reports_charge = checks.mode().reports_charge();
        request.has_always = reports_charge && checks.charges_always();
        let mut keys = SubjectKeys::new(naming);
        for (at, check) in list.iter().enumerate() {
            let (cost, is_last) = combined_cost(checks, at);
            let ends = match list.get(at + 1) {
                Some(next) if next.group == check.group => Ends::Nothing,
                _ if check.group == Group::ENFORCED => Ends::Enforced,
                _ => Ends::Shadow,
            };
            let key = keys.key_of(&mut request, check);
            request.push(check.band.shared_limit(), cost, at_once, key, is_last, ends);
            request.number_slots(check.band.shared_limit(), at);
        }
        if request.has_hold {
            request.push_hold(checks, naming, part);
        }
        if request.has_always {
            request.push_always(checks);
        }
        request
    }

    /// Adds whether each check is charged in any case; `lua/always.lua` has the format.
    fn push_always(&mut self, checks: &Checks<'_>) {
        for (at, check) in checks.list().iter().enumerate() {
            let limit = check.band.shared_limit();
            let always = u8::from(check.band.charges_always());
            let is_refused = checks.is_refused() && check.group == Group::ENFORCED;
            let (units, _) = combined_cost(checks, at);
            self.trailers.push(always + 2 * u8::from(is_refused));
            // A charge takes a band from C to −C at most, so more than 2C has no effect.
            put(&mut self.trailers, units.min(2 * limit.capacity()), 4);
            put(&mut self.trailers, limit.capacity(), 4);
            put(&mut self.trailers, limit.rate().period().get(), 7);
        }
    }

    /// Refunds units to every band of a subject. There must be at least one.
    pub(crate) fn refund(
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        naming: &KeyNaming,
    ) -> Self {
        Self::refund_or_cancel(Op::Refund, subject, bands, units, &[], naming)
    }

    /// Cancels a charge of `units` to every band of a subject. There must be at
    /// least one.
    pub(crate) fn cancel(
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
        naming: &KeyNaming,
    ) -> Self {
        let bands = &bands[..bands.len().min(charged.len())];
        Self::refund_or_cancel(Op::Cancel, subject, bands, units, charged, naming)
    }

    fn refund_or_cancel(
        op: Op,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
        naming: &KeyNaming,
    ) -> Self {
        let mut request = Self::new(op, bands.len());
        let mut head = Vec::new();
        naming.write_subject(subject, &mut head);
        for (at, band) in bands.iter().enumerate() {
            let key = request.add_band(&head, band);
            request.push(band.shared_limit(), units, false, key, true, Ends::Nothing);
            if let Some(charged) = charged.get(at) {
                let mark = charged.mark(band.limit());
                request.push_mark(mark, Timestamp::default(), key, Overhang::NONE);
            }
        }
        request
    }

    /// Undoes what `answer` says was charged for `checks`; `None` if that is
    /// nothing.
    ///
    /// An undo is not a refund. A refund changes what an identity has left now; an
    /// undo removes one recent charge as if it had never been made. It takes units
    /// only from where the charge put them: from its window, from its event, and
    /// from a bucket all but what may have refilled since only because of it. If
    /// no other charge came in between, nothing of it stays; in doubt, too much
    /// stays charged and never too little. The record of a hold goes with it.
    pub(crate) fn undo(
        checks: &Checks<'_>,
        answer: &Answer,
        naming: &KeyNaming,
        part: Option<&HoldPart>,
    ) -> Result<Option<Self>, StoreError> {
        let mut charges = answer.charges(checks)?;
        // What is charged in any case stays.
        charges.retain(|charge| !checks.list()[charge.check].band.charges_always());
        if charges.is_empty() {
            return Ok(None);
        }
        let mut request = Self::new(Op::Undo, charges.len());
        request.has_hold = checks.hold().is_some();
        let mut keys = SubjectKeys::new(naming);
        for charge in &charges {
            let check = &checks.list()[charge.check];
            let key = keys.key_of(&mut request, check);
            let note = if check.band.shared_limit().algorithm().is_bucket() {
                keys.note_of(&mut request, check)
            } else {
                key
            };
            let limit = check.band.shared_limit();
            request.push(limit, charge.cost, false, key, true, Ends::Nothing);
            request.number_slots(limit, charge.check);
            request.push_mark(charge.mark, answer.now(), note, charge.overhang);
        }
        if let Some(hold) = checks.hold() {
            let record = part.map_or_else(|| naming.hold(hold.id), |part| part.key.clone());
            request.put_hold(Some(&record), hold.id, 0, Micros::ZERO, true, &[]);
        }
        Ok(Some(request))
    }
}
