//! Encodes decisions with their holds, refunds, undos, cancellations and lease requests, and
//! decodes the grants of leases.

use fluxgate_core::algorithm::{LeaseRequest, Mode, Overhang, balance_of};
use fluxgate_core::lease::BandLease;
use fluxgate_core::store::{Charged, Checks, Group, HoldId, Micros, Subject};
use fluxgate_core::{Algorithm, Band, StoreError, Timestamp};

use super::answer::{Answer, combined_cost};
use super::record::{charges_of, write_charges};
use super::request::{
    CheckSpec, GroupEnd, KeyKind, Op, PERMIT_SIZE, Request, SubjectKeyWriter, put,
};
use crate::error::bad_response;
use crate::keys::KeyNaming;
use crate::lease::GrantReply;

/// Requests a permit, which is taken if the request has to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermitRequest<'a> {
    /// The key of the set of permits.
    pub(crate) key: &'a [u8],
    /// The number of permits in all.
    pub(crate) max: u32,
    /// The id of this permit.
    pub(crate) id: &'a [u8; 16],
}

impl Request {
    /// Decides one or more checks. `part` is the record of their hold, if they may be only a
    /// part of it.
    pub(crate) fn decide(checks: &Checks<'_>, naming: &KeyNaming, part: Option<&HoldPart>) -> Self {
        let op = match checks.mode() {
            Mode::Take | Mode::TakeNow => Op::Take,
            Mode::Peek | Mode::PeekNow | Mode::Preview => Op::Peek,
        };
        Self::decide_as(op, checks, naming, part)
    }

    /// Decides these checks and takes a permit first, if the request has to wait. Without a free
    /// permit, decides it as if no rule let it wait.
    pub(crate) fn decide_with_permit(
        checks: &Checks<'_>,
        naming: &KeyNaming,
        permit: PermitRequest<'_>,
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
        // Only the script has the whole log, and so knows what it would have left after a charge
        // that is made always.
        let reports_charge = checks.mode().reports_charge();
        request.has_always = reports_charge && checks.charges_always();
        let mut keys = SubjectKeyWriter::new(naming);
        for (at, check) in list.iter().enumerate() {
            let (cost, is_last) = combined_cost(checks, at);
            let group_end = match list.get(at + 1) {
                Some(next) if next.group == check.group => GroupEnd::None,
                _ if check.group == Group::ENFORCED => GroupEnd::Enforced,
                _ => GroupEnd::Shadow,
            };
            let key = keys.key_of(&mut request, check);
            let limit = check.band.shared_limit();
            request.push(CheckSpec {
                limit,
                cost,
                key,
                at_once,
                is_last,
                group_end,
            });
            request.number_slots(limit, at);
        }
        if request.has_hold {
            request.push_hold(checks, naming, part);
        }
        if request.has_always {
            request.push_always(checks);
        }
        request
    }

    /// Adds whether each check is charged always; `lua/always.lua` has the format.
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

    /// Refunds units to one or more bands of a subject.
    pub(crate) fn refund(
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        naming: &KeyNaming,
    ) -> Self {
        Self::refund_or_cancel(Op::Refund, subject, bands, units, &[], naming)
    }

    /// Cancels a charge of `units` to one or more bands of a subject.
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
            request.push(CheckSpec::alone(band.shared_limit(), units, key));
            if let Some(charged) = charged.get(at) {
                let mark = charged.mark(band.limit());
                request.push_mark(mark, Timestamp::default(), key, Overhang::NONE);
            }
        }
        request
    }

    /// Undoes what was charged for `checks`, according to `answer`; `None` if nothing was.
    ///
    /// An undo is not a refund. A refund changes what an identity has left now; an undo removes
    /// one recent charge as if it had never been made. It takes units only from where the charge
    /// put them: from its window or its event, and from a bucket all but what may have refilled
    /// only because of the charge. If no other charge came in between, nothing of it stays. If
    /// in doubt, too much stays charged, never too little. The record of a hold is deleted, too.
    pub(crate) fn undo(
        checks: &Checks<'_>,
        answer: &Answer,
        naming: &KeyNaming,
        part: Option<&HoldPart>,
    ) -> Result<Option<Self>, StoreError> {
        let mut charges = answer.charges(checks)?;
        // What is charged always stays.
        charges.retain(|charge| !checks.list()[charge.check].band.charges_always());
        if charges.is_empty() {
            return Ok(None);
        }
        let mut request = Self::new(Op::Undo, charges.len());
        request.has_hold = checks.hold().is_some();
        let mut keys = SubjectKeyWriter::new(naming);
        for charge in &charges {
            let check = &checks.list()[charge.check];
            let limit = check.band.shared_limit();
            let key = keys.key_of(&mut request, check);
            let note = if limit.algorithm().is_bucket() {
                keys.undo_note_of(&mut request, check)
            } else {
                key
            };
            request.push(CheckSpec::alone(limit, charge.cost, key));
            request.number_slots(limit, charge.check);
            request.push_mark(charge.mark, answer.now, note, charge.overhang);
        }
        if let Some(hold) = checks.hold() {
            let record = part.map_or_else(|| naming.hold(hold.id), |part| part.key.clone());
            request.put_hold(HoldTrailer {
                record: Some(&record),
                id: hold.id,
                span: 0,
                life: Micros::ZERO,
                is_whole: true,
                charges: &[],
            });
        }
        Ok(Some(request))
    }
}

impl Request {
    /// Requests a lease of a band. It must not be sent twice: each report takes effect.
    pub(crate) fn lease(
        subject: Subject<'_>,
        band: &Band,
        lease: &BandLease,
        ask: &LeaseRequest,
        naming: &KeyNaming,
    ) -> Self {
        let mut request = Self::new(Op::Lease, 1);
        let mut head = Vec::new();
        naming.write_subject(subject, &mut head);
        let key = request.add_band(&head, band);
        let limit = lease.shared();
        request.push(CheckSpec::alone(limit, 0, key));
        let out_key = request.add_key(KeyKind::Other, |names| {
            naming.write_lease_subject(subject, names);
            KeyNaming::write_band(band, names);
        });
        let is_bucket = limit.algorithm().is_bucket();
        let time_of = |units: u32| limit.rate().time_of(units.into());
        let rungs = match ask.want.checked_ilog2() {
            // Up to twice as many units, to find out whether half of what is left is fewer.
            Some(highest) if is_bucket => highest + 2,
            _ => 0,
        };
        let mut out = Vec::new();
        put(&mut out, out_key as u64, 4);
        put(&mut out, lease.most(), 4);
        put(&mut out, ask.want.into(), 4);
        put(&mut out, lease.span().get() / 1000, 4);
        // At most the grants of a holder, and the bits of a number.
        out.extend_from_slice(&[ask.reports().len() as u8, rungs as u8]);
        for report in ask.reports() {
            put(&mut out, report.ends, 7);
            put(&mut out, report.spent.into(), 4);
            put(&mut out, report.returned.into(), 4);
            let time = if is_bucket {
                time_of(report.returned)
            } else {
                Default::default()
            };
            put(&mut out, time.whole, 7);
            put(&mut out, time.part.into(), 4);
        }
        for bit in (0..rungs).rev() {
            put(&mut out, 1 << bit, 4);
            let time = time_of(1 << bit);
            put(&mut out, time.whole, 7);
            put(&mut out, time.part.into(), 4);
        }
        request.trailers = out;
        request
    }
}

impl Answer {
    /// Returns the reply to a lease request.
    pub(crate) fn grant_reply(&self, lease: &BandLease) -> Result<GrantReply, StoreError> {
        let limit = lease.shared();
        let grant = self.grant.as_deref().copied();
        let mut grant = grant.ok_or_else(|| bad_response("the reply has no grant"))?;
        if limit.algorithm().is_bucket() {
            grant.window_left = None;
        }
        let cell = self.only_state()?.cell(limit)?;
        Ok(GrantReply {
            grant,
            balance: balance_of(limit, cell, self.now),
        })
    }
}

/// The index that means no key.
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
struct HoldTrailer<'h> {
    /// The key of its record, if it has one.
    record: Option<&'h [u8]>,
    id: HoldId,
    /// The requested span.
    span: u64,
    /// Its life without slots.
    life: Micros,
    /// Whether all its slots are in this call.
    is_whole: bool,
    /// The charges to write into the record.
    charges: &'h [u8],
}

/// Returns whether any check takes slots.
pub(crate) fn has_slots(checks: &Checks<'_>) -> bool {
    let mut list = checks.list().iter();
    list.any(|check| check.band.limit().algorithm() == Algorithm::Concurrency)
}

impl Request {
    /// Adds the hold of a request.
    fn push_hold(&mut self, checks: &Checks<'_>, naming: &KeyNaming, part: Option<&HoldPart>) {
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

    fn put_hold(&mut self, hold: HoldTrailer<'_>) {
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
