//! Encodes a request to the script: its keys, checks and trailers.

use std::ops::Range;

use fluxgate_core::algorithm::Overhang;
use fluxgate_core::limit::{FracMicros, Horizon};
use fluxgate_core::store::{Check, Subject};
use fluxgate_core::{Algorithm, Band, Calendar, Limit, Timestamp};
use smallvec::SmallVec;

use super::state::{SLOTS_TAG, tag_of, window_ms};
use crate::keys::KeyNaming;

/// The bytes of a check; `wire.lua` has the format.
const CHECK_SIZE: usize = 44;
/// The bytes after each check of an undo or a cancellation.
const MARK_SIZE: usize = 26;
/// The bytes of a permit request.
pub(super) const PERMIT_SIZE: usize = 24;
/// The number of the key in a check.
const KEY_AT: Range<usize> = 7..11;
/// The number of checks that follow, in a check.
const LEFT_AT: Range<usize> = 3..7;
/// The [`GroupEnd`] in a check.
const GROUP_END_AT: usize = 2;
/// The length of the calendar window in ms, its start, and the end of the next one, in a check.
const WINDOW_AT: Range<usize> = 13..18;
const START_AT: Range<usize> = 30..37;
const NEXT_END_AT: Range<usize> = 37..44;
/// The number of the key for an undo note, in a mark.
const NOTE_AT: Range<usize> = CHECK_SIZE + 18..CHECK_SIZE + 22;

/// The index of a check of slots in its request, in a check.
const NUMBER_AT: Range<usize> = 26..30;
/// Added to the operation of a request with a hold.
const WITH_HOLD: u8 = 8;
/// Added to the operation of a request with checks that are charged always.
const WITH_ALWAYS: u8 = 32;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Take = 1,
    Peek = 2,
    Refund = 3,
    Undo = 4,
    Cancel = 5,
    /// Like `Take`, but a request that has to wait takes one of a bounded number of permits.
    TakePermit = 6,
    /// The first check has the key of a hold's record; the others are its charges.
    Settle = 16,
    Renew = 17,
    /// Requests a lease.
    Lease = 18,
}

impl Op {
    /// Returns whether a mark follows each check: where its charge went.
    fn has_marks(self) -> bool {
        matches!(self, Self::Undo | Self::Cancel)
    }
}

/// Room for the name of most keys, so that the vector need not grow.
pub(super) const USUAL_NAME: usize = 96;

/// An encoded request to the script.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    op: Op,
    /// The number of checks that are not added yet.
    left: usize,
    /// The names of its keys, one after the other.
    names: Vec<u8>,
    keys: SmallVec<[Key; 4]>,
    /// The checks, with the keys numbered from 0.
    pub(super) checks: Vec<u8>,
    /// The parts after the checks: a permit request, a hold and the charges of denied requests,
    /// or else a lease request. Permit, hold and lease requests begin with the number of a key.
    pub(super) trailers: Vec<u8>,
    /// The calendars of checks, each with the offset of its check.
    pub(super) calendars: SmallVec<[(usize, Calendar); 1]>,
    pub(super) has_hold: bool,
    /// Whether some checks are charged even if the request is denied.
    pub(super) has_always: bool,
    has_slots: bool,
    /// Lease requests that go with it and are answered after it.
    pub(crate) lease_requests: Vec<Request>,
}

/// A key: where its name ends, and what it holds.
#[derive(Clone, Debug)]
struct Key {
    end: usize,
    kind: KeyKind,
}

/// The kind of value that a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Cell,
    /// A log, or slots.
    Log,
    /// Permits, or the record of a hold.
    Other,
}

/// One check of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckSpec<'l> {
    pub(super) limit: &'l Limit,
    pub(super) cost: u64,
    /// The number of its key.
    pub(super) key: usize,
    /// Whether a request that would have to wait is denied.
    pub(super) at_once: bool,
    /// Whether it is the last check of its counter in its group, which is charged for all.
    pub(super) is_last: bool,
    pub(super) group_end: GroupEnd,
}

impl<'l> CheckSpec<'l> {
    /// Returns a check of a counter by itself.
    pub(super) fn alone(limit: &'l Limit, cost: u64, key: usize) -> Self {
        Self {
            limit,
            cost,
            key,
            at_once: false,
            is_last: true,
            group_end: GroupEnd::None,
        }
    }
}

impl Request {
    pub(super) fn push_mark(
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

    /// Returns its first key.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        self.keys().next().map(|(name, _)| name)
    }

    /// Returns whether its checks are complete, of its operation, and have known keys.
    pub(super) fn has_whole_checks(&self) -> bool {
        let checks = self.checks.chunks(self.check_size());
        let count = checks.len();
        checks.enumerate().all(|(at, check)| {
            let number = |range: &Range<usize>| {
                let bytes = check[range.clone()].try_into().unwrap_or([0xff; 4]);
                u32::from_le_bytes(bytes) as usize
            };
            let mut ranges = self.key_ranges().iter();
            check.len() == self.check_size()
                && check[0] == self.op as u8
                && number(&LEFT_AT) == count - 1 - at
                && ranges.all(|range| number(range) < self.keys.len())
        })
    }

    /// Returns the size of one of its checks, in bytes.
    pub(super) fn check_size(&self) -> usize {
        CHECK_SIZE + if self.op.has_marks() { MARK_SIZE } else { 0 }
    }

    /// Returns the positions of key numbers in each of its checks.
    pub(super) fn key_ranges(&self) -> &'static [Range<usize>] {
        if self.op.has_marks() {
            &[KEY_AT, NOTE_AT]
        } else {
            &[KEY_AT]
        }
    }

    /// Returns the positions of key numbers in the trailers.
    pub(super) fn trailer_key_ranges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let has_permit = matches!(self.op, Op::TakePermit | Op::Lease);
        let hold_at = if has_permit { PERMIT_SIZE } else { 0 };
        let permit = has_permit.then_some(0);
        let hold = self.has_hold.then_some(hold_at);
        permit.into_iter().chain(hold).map(|at| at..at + 4)
    }

    pub(super) fn new(op: Op, checks: usize) -> Self {
        Self {
            op,
            left: checks,
            names: Vec::with_capacity(USUAL_NAME),
            keys: SmallVec::new(),
            checks: Vec::with_capacity(checks * (CHECK_SIZE + MARK_SIZE)),
            trailers: Vec::new(),
            calendars: SmallVec::new(),
            has_hold: false,
            has_always: false,
            has_slots: false,
            lease_requests: Vec::new(),
        }
    }

    /// Returns whether it needs the functions of holds: for slots, for a hold, or to charge
    /// always, which is done as in a settlement.
    pub(super) fn has_holds(&self) -> bool {
        self.has_hold || self.has_slots || self.has_always
    }

    /// Adds a band's key, if it is new. Returns its number.
    pub(super) fn add_band(&mut self, head: &[u8], band: &Band) -> usize {
        let kind = match band.limit().algorithm() {
            Algorithm::SlidingLog | Algorithm::Concurrency => KeyKind::Log,
            _ => KeyKind::Cell,
        };
        self.add_key(kind, |names| {
            names.extend_from_slice(head);
            KeyNaming::write_band(band, names);
        })
    }

    /// Adds a key, if it is new. Returns its number.
    pub(super) fn add_key(&mut self, kind: KeyKind, write: impl FnOnce(&mut Vec<u8>)) -> usize {
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
    pub(super) fn push(&mut self, check: CheckSpec<'_>) {
        let CheckSpec {
            limit,
            cost,
            at_once,
            ..
        } = check;
        let op = self.op;
        let start = self.checks.len();
        self.push_head(check.is_last, check.key, tag_of(limit));
        self.checks[start + GROUP_END_AT] = check.group_end as u8;
        let capacity = limit.capacity();
        if limit.algorithm().is_bucket() {
            let rate = limit.rate();
            let exact = rate.time_of(cost);
            let time = match op {
                // Beyond any horizon, more makes no difference.
                Op::Refund => exact.min(ANY_DEBT),
                // More than the capacity never passes, however long it may wait.
                _ if cost > capacity => FracMicros {
                    whole: rate.furthest().whole + 1,
                    part: 0,
                },
                _ => exact,
            };
            let far = if cost > capacity {
                rate.fill()
            } else if !at_once {
                rate.furthest()
            } else if rate.shape() {
                // The queue must be empty.
                exact
            } else {
                rate.fill()
            };
            let numbers = [
                rate.refill(),
                time.part.into(),
                far.part.into(),
                time.whole,
                far.whole,
            ];
            let max_wait_ms = if at_once { 0 } else { window_ms(limit) };
            self.push_numbers(rate.horizon().exponent(), max_wait_ms, numbers);
            return;
        }
        // No count is above twice the largest capacity, so a greater refund makes no
        // difference; and more than the capacity never passes.
        let max = match op {
            Op::Refund => u32::MAX.into(),
            _ => capacity + 1,
        };
        let longest = match limit.algorithm() {
            Algorithm::Concurrency => limit.window().get(),
            _ => 0,
        };
        self.push_numbers(
            0,
            window_ms(limit),
            [capacity, cost.min(max), 0, longest, 0],
        );
        if let Some(calendar) = limit.windows() {
            self.calendars.push((start, *calendar));
        }
    }

    /// Adds the start of a check that ends no group.
    pub(super) fn push_head(&mut self, flag: bool, key: usize, tag: u8) {
        self.left -= 1;
        self.has_slots |= tag == SLOTS_TAG;
        let hold = if self.has_hold { WITH_HOLD } else { 0 };
        let always = if self.has_always { WITH_ALWAYS } else { 0 };
        self.checks
            .extend_from_slice(&[self.op as u8 + hold + always, flag.into(), 0]);
        put(&mut self.checks, self.left as u64, 4);
        put(&mut self.checks, key as u64, 4);
        self.checks.push(tag);
    }

    /// Adds the rest of a check.
    pub(super) fn push_numbers(&mut self, horizon: u8, window_ms: u64, numbers: [u64; 5]) {
        let out = &mut self.checks;
        out.push(horizon);
        put(out, window_ms, 5);
        for (number, bytes) in numbers.into_iter().zip([4, 4, 4, 7, 7]) {
            put(out, number, bytes);
        }
    }

    /// Sets the number of the check that was added last, if it is one of slots.
    pub(super) fn number_slots(&mut self, limit: &Limit, number: usize) {
        if limit.algorithm() == Algorithm::Concurrency {
            let check = self.checks.len() - CHECK_SIZE;
            let number = (number as u32).to_le_bytes();
            self.checks[check..][NUMBER_AT].copy_from_slice(&number);
        }
    }

    /// Returns whether it has calendar windows, so that it depends on the time.
    pub(crate) fn has_calendars(&self) -> bool {
        !self.calendars.is_empty()
    }

    /// Sets the calendar windows to those that contain an instant.
    pub(crate) fn set_windows(&mut self, at: Timestamp) {
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
        for request in &mut self.lease_requests {
            request.set_windows(at);
        }
    }

    /// Returns whether it is a lease request, or some go with it.
    pub(super) fn has_leases(&self) -> bool {
        self.op == Op::Lease || !self.lease_requests.is_empty()
    }
}

/// Longer than any bucket takes to fill.
const ANY_DEBT: FracMicros = FracMicros {
    whole: 1 << (Horizon::MAX_EXPONENT + 1),
    part: 0,
};

/// The group that ends with a check, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupEnd {
    None = 0,
    Shadow = 1,
    Enforced = 2,
}

/// Appends the lowest bytes of a number that fits into them.
pub(super) fn put(out: &mut Vec<u8>, number: u64, bytes: usize) {
    debug_assert!(bytes == 8 || number >> (8 * bytes) == 0);
    out.extend_from_slice(&number.to_le_bytes()[..bytes]);
}

/// Writes the keys of checks. Encodes a subject once for all its bands.
pub(super) struct SubjectKeyWriter<'c> {
    naming: &'c KeyNaming,
    subject: Option<Subject<'c>>,
    head: Vec<u8>,
}

impl<'c> SubjectKeyWriter<'c> {
    pub(super) fn new(naming: &'c KeyNaming) -> Self {
        Self {
            naming,
            subject: None,
            head: Vec::with_capacity(USUAL_NAME),
        }
    }

    /// Adds the key of a check to a request. Returns its number.
    pub(super) fn key_of(&mut self, request: &mut Request, check: &Check<'c>) -> usize {
        self.set_subject(check.subject);
        request.add_band(&self.head, check.band)
    }

    /// Returns the name of the key of a check.
    pub(super) fn name_of(&mut self, check: &Check<'c>) -> Vec<u8> {
        self.set_subject(check.subject);
        let mut name = self.head.clone();
        KeyNaming::write_band(check.band, &mut name);
        name
    }

    fn set_subject(&mut self, subject: Subject<'c>) {
        if self.subject != Some(subject) {
            self.head.clear();
            self.naming.write_subject(subject, &mut self.head);
            self.subject = Some(subject);
        }
    }

    /// Adds the key for the note that a charge of a check was undone. Returns its number.
    pub(super) fn undo_note_of(&self, request: &mut Request, check: &Check<'_>) -> usize {
        request.add_key(KeyKind::Cell, |names| {
            let subject = check.subject;
            self.naming.write_undo_subject(subject, names);
            KeyNaming::write_band(check.band, names);
        })
    }
}
