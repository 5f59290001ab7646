//! Encodes one decision, refund, undo or cancellation for the script.

use std::ops::Range;

use fluxgate_core::internals::algorithm::{Mode, Overhang};
use fluxgate_core::internals::limit::{FracMicros, Horizon};
use fluxgate_core::store::{Charged, Check, Checks, Group, Subject};
use fluxgate_core::{Algorithm, Band, Calendar, Limit, StoreError, Timestamp};
use smallvec::SmallVec;

use super::answer::{Answer, combined_cost};
use super::state::{tag_of, window_ms};
use crate::keys::KeyNaming;

/// The bytes of a check; `wire.lua` has the format.
const CHECK_SIZE: usize = 44;
/// The bytes that an undo or a cancellation has after each check.
const MARK_SIZE: usize = 26;
/// Where a check has the number of its key.
const KEY_AT: Range<usize> = 7..11;
/// Where the check of a calendar has the length of the window in ms, its start, and the
/// end of the next one.
const WINDOW_AT: Range<usize> = 13..18;
const START_AT: Range<usize> = 30..37;
const NEXT_END_AT: Range<usize> = 37..44;
/// Where a mark has the number of the key for a note.
const NOTE_AT: Range<usize> = CHECK_SIZE + 18..CHECK_SIZE + 22;

/// What to do with the checks of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Take = 1,
    Peek = 2,
    Refund = 3,
    Undo = 4,
    Cancel = 5,
    /// Like `Take`, but a request that has to wait takes one of a bounded number
    /// of permits.
    TakePermit = 6,
}

impl Op {
    /// Returns whether each check is followed by a mark: where its charge went.
    fn has_marks(self) -> bool {
        matches!(self, Self::Undo | Self::Cancel)
    }
}

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

/// Room for the name of most keys, so that it is written without growing.
const USUAL_NAME: usize = 96;

/// One decision, refund, undo or cancellation, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    op: Op,
    /// How many checks are still to be added.
    left: usize,
    /// The names of its keys, one after the other.
    names: Vec<u8>,
    keys: SmallVec<[Key; 4]>,
    /// The checks, with the keys numbered from 0.
    pub(super) checks: Vec<u8>,
    /// Follows the checks if a permit is wanted. Begins with the number of its key.
    pub(super) permit: Vec<u8>,
    /// The calendars that checks follow, and where those begin.
    calendars: SmallVec<[(usize, Calendar); 1]>,
}

#[derive(Clone, Debug)]
struct Key {
    end: usize,
    kind: KeyKind,
}

/// The kind of value that a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Cell,
    Log,
    Permits,
}

impl Request {
    /// Decides these checks. There must be at least one.
    pub(crate) fn decide(checks: &Checks<'_>, naming: &KeyNaming) -> Self {
        let op = match checks.mode() {
            Mode::Take | Mode::TakeNow => Op::Take,
            Mode::Peek | Mode::PeekNow | Mode::Preview => Op::Peek,
        };
        Self::decide_as(op, checks, naming)
    }

    /// Decides these checks and, if the request has to wait, takes a permit first.
    /// Without a free permit it is decided as if no rule let it wait.
    pub(crate) fn decide_with_permit(
        checks: &Checks<'_>,
        naming: &KeyNaming,
        permit: WantedPermit<'_>,
    ) -> Self {
        let mut request = Self::decide_as(Op::TakePermit, checks, naming);
        let key = request.add_key(KeyKind::Permits, |names| {
            names.extend_from_slice(permit.key);
        });
        put(&mut request.permit, key as u64, 4);
        put(&mut request.permit, permit.max.into(), 4);
        request.permit.extend_from_slice(permit.id);
        request
    }

    fn decide_as(op: Op, checks: &Checks<'_>, naming: &KeyNaming) -> Self {
        let at_once = !checks.mode().waits();
        let list = checks.list();
        let mut request = Self::new(op, list.len());
        let mut keys = SubjectKeys::new(naming);
        for (at, check) in list.iter().enumerate() {
            let (cost, is_last) = combined_cost(checks, at);
            let ends = match list.get(at + 1) {
                Some(next) if next.group == check.group => Ends::Nothing,
                _ if check.group == Group::ENFORCED => Ends::Enforced,
                _ => Ends::Shadow,
            };
            let key = keys.key_of(&mut request, check);
            request.push(check.band.limit(), cost, at_once, key, is_last, ends);
        }
        request
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
            request.push(band.limit(), units, false, key, true, Ends::Nothing);
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
    /// stays charged and never too little.
    pub(crate) fn undo(
        checks: &Checks<'_>,
        answer: &Answer,
        naming: &KeyNaming,
    ) -> Result<Option<Self>, StoreError> {
        let charges = answer.charges(checks)?;
        if charges.is_empty() {
            return Ok(None);
        }
        let mut request = Self::new(Op::Undo, charges.len());
        let mut keys = SubjectKeys::new(naming);
        for charge in &charges {
            let check = &checks.list()[charge.check];
            let key = keys.key_of(&mut request, check);
            let note = if check.band.limit().algorithm().is_bucket() {
                keys.note_of(&mut request, check)
            } else {
                key
            };
            let limit = check.band.limit();
            request.push(limit, charge.cost, false, key, true, Ends::Nothing);
            request.push_mark(charge.mark, answer.now(), note, charge.overhang);
        }
        Ok(Some(request))
    }

    fn push_mark(
        &mut self,
        mark: FracMicros,
        charged_at: Timestamp,
        note: usize,
        overhang: Overhang,
    ) {
        put(&mut self.checks, mark.whole, 7);
        put(&mut self.checks, mark.part.into(), 4);
        put(&mut self.checks, charged_at.micros(), 7);
        put(&mut self.checks, note as u64, 4);
        put(&mut self.checks, overhang.bits().into(), 4);
    }

    /// Returns the names of its keys, and what each holds.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&[u8], KeyKind)> {
        let mut start = 0;
        self.keys.iter().map(move |key| {
            let name = &self.names[start..key.end];
            start = key.end;
            (name, key.kind)
        })
    }

    /// Returns the size of one of its checks, in bytes.
    pub(super) fn check_size(&self) -> usize {
        CHECK_SIZE + if self.op.has_marks() { MARK_SIZE } else { 0 }
    }

    /// Returns where each of its checks has numbers of keys.
    pub(super) fn keys_at(&self) -> &'static [Range<usize>] {
        match self.op.has_marks() {
            true => &[KEY_AT, NOTE_AT],
            false => &[KEY_AT],
        }
    }

    fn new(op: Op, checks: usize) -> Self {
        Self {
            op,
            left: checks,
            names: Vec::with_capacity(USUAL_NAME),
            keys: SmallVec::new(),
            checks: Vec::with_capacity(checks * (CHECK_SIZE + MARK_SIZE)),
            permit: Vec::new(),
            calendars: SmallVec::new(),
        }
    }

    /// Returns the number of a band's key, which is added if it is new.
    fn add_band(&mut self, head: &[u8], band: &Band) -> usize {
        let kind = match band.limit().algorithm() {
            Algorithm::SlidingLog => KeyKind::Log,
            _ => KeyKind::Cell,
        };
        self.add_key(kind, |names| {
            names.extend_from_slice(head);
            KeyNaming::write_band(band, names);
        })
    }

    fn add_key(&mut self, kind: KeyKind, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let start = self.names.len();
        write(&mut self.names);
        let mut earlier = self.keys();
        let known = earlier.position(|(name, _)| *name == self.names[start..]);
        drop(earlier);
        if let Some(known) = known {
            self.names.truncate(start);
            return known;
        }
        self.keys.push(Key {
            end: self.names.len(),
            kind,
        });
        self.keys.len() - 1
    }

    /// Adds a check.
    fn push(
        &mut self,
        limit: &Limit,
        cost: u64,
        at_once: bool,
        key: usize,
        is_last: bool,
        ends: Ends,
    ) {
        self.left -= 1;
        let (op, left, out) = (self.op, self.left, &mut self.checks);
        let start = out.len();
        out.extend_from_slice(&[op as u8, is_last.into(), ends as u8]);
        put(out, left as u64, 4);
        put(out, key as u64, 4);
        let capacity = limit.capacity();
        out.push(tag_of(limit));
        if limit.algorithm().is_bucket() {
            let rate = limit.rate();
            let time = rate.time_of(cost);
            let far = match at_once {
                false => rate.furthest(),
                // A shaping queue must be empty.
                true if rate.shape() => time,
                true => rate.fill(),
            };
            let time = match op {
                // Beyond any horizon, more makes no difference.
                Op::Refund => time.min(ANY_DEBT),
                // More than the capacity never passes, however long it may wait.
                _ if cost > capacity => FracMicros {
                    whole: rate.furthest().whole + 1,
                    part: 0,
                },
                _ => time,
            };
            let far = if cost > capacity { rate.fill() } else { far };
            out.push(rate.horizon().exponent());
            put(out, window_ms(limit), 5);
            put(out, rate.refill(), 4);
            put(out, time.part.into(), 4);
            put(out, far.part.into(), 4);
            put(out, time.whole, 7);
            put(out, far.whole, 7);
        } else {
            // No count is above the largest capacity, so a greater refund makes no
            // difference; and more than the capacity never passes.
            let max = if op == Op::Refund {
                u32::MAX.into()
            } else {
                capacity + 1
            };
            out.push(0);
            put(out, window_ms(limit), 5);
            put(out, capacity, 4);
            put(out, cost.min(max), 4);
            put(out, 0, 4);
            put(out, 0, 7);
            put(out, 0, 7);
            if let Some(calendar) = limit.windows() {
                self.calendars.push((start, *calendar));
            }
        }
    }

    /// Returns whether checks follow a calendar, so that the request depends on the time.
    pub(crate) fn is_dated(&self) -> bool {
        !self.calendars.is_empty()
    }

    /// Sets the calendar windows to those that contain an instant.
    pub(crate) fn set_time(&mut self, at: Timestamp) {
        for (check, calendar) in &self.calendars {
            let window = calendar.window_at(at);
            let next = calendar.window_at(Timestamp::saturating_from_micros(window.end));
            let check = &mut self.checks[*check..*check + CHECK_SIZE];
            let mut set = |at: Range<usize>, number: u64| {
                let bytes = at.len();
                check[at].copy_from_slice(&number.to_le_bytes()[..bytes]);
            };
            set(WINDOW_AT, (window.end - window.start) / 1000);
            set(START_AT, window.start);
            set(NEXT_END_AT, next.end);
        }
    }
}

/// Longer than any bucket takes to fill.
const ANY_DEBT: FracMicros = FracMicros {
    whole: 1 << (Horizon::MAX_EXPONENT + 1),
    part: 0,
};

/// What ends with a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Nothing = 0,
    Shadow = 1,
    Enforced = 2,
}

/// Adds the keys of checks to a request; encodes a subject once for all its bands.
struct SubjectKeys<'c> {
    naming: &'c KeyNaming,
    subject: Option<Subject<'c>>,
    head: Vec<u8>,
}

impl<'c> SubjectKeys<'c> {
    fn new(naming: &'c KeyNaming) -> Self {
        Self {
            naming,
            subject: None,
            head: Vec::with_capacity(USUAL_NAME),
        }
    }

    fn key_of(&mut self, request: &mut Request, check: &Check<'c>) -> usize {
        let subject = check.subject;
        if self.subject != Some(subject) {
            self.head.clear();
            self.naming.write_subject(subject, &mut self.head);
            self.subject = Some(subject);
        }
        request.add_band(&self.head, check.band)
    }

    /// Returns the key for the note that a charge of a check was undone.
    fn note_of(&self, request: &mut Request, check: &Check<'_>) -> usize {
        request.add_key(KeyKind::Cell, |names| {
            let subject = check.subject;
            self.naming.write_note_subject(subject, names);
            KeyNaming::write_band(check.band, names);
        })
    }
}

/// Appends the lowest bytes of a number that fits into them.
fn put(out: &mut Vec<u8>, number: u64, bytes: usize) {
    debug_assert!(bytes == 8 || number >> (8 * bytes) == 0);
    out.extend_from_slice(&number.to_le_bytes()[..bytes]);
}
