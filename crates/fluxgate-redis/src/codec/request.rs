//! One decision, refund or undo, encoded.

use std::ops::Range;

use fluxgate_core::algorithm::{Mode, Overhang};
use fluxgate_core::limit::{FracMicros, Horizon};
use fluxgate_core::{
    Algorithm, Band, Charged, Check, Checks, Group, Limit, StoreError, Subject, Timestamp,
};
use smallvec::SmallVec;

use super::answer::{Answer, sum_of};
use super::frame;
use crate::key_name::Naming;

/// The bytes of a check; `driver.lua` has the format.
pub(super) const CHECK_SIZE: usize = 44;
/// The bytes that an undo or a cancellation has after each check.
pub(super) const MARK_SIZE: usize = 26;
/// Where a check has the number of its key.
pub(super) const KEY_AT: Range<usize> = 7..11;
/// Where these have the number of the key for a note.
const NOTE_AT: Range<usize> = CHECK_SIZE + 18..CHECK_SIZE + 22;

/// What to do with the checks of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Take = 1,
    Peek = 2,
    Refund = 3,
    Undo = 4,
    Cancel = 5,
    /// Like `Take`, but to wait it takes one of a bounded number of places.
    TakePlace = 6,
}

impl Op {
    /// Whether each check is followed by where its charge went.
    fn has_marks(self) -> bool {
        matches!(self, Self::Undo | Self::Cancel)
    }
}

/// A place to wait in, to be taken if the request has to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceWanted<'a> {
    /// The key of all places.
    pub(crate) key: &'a [u8],
    /// How many there are.
    pub(crate) most: u32,
    /// The name of this one.
    pub(crate) id: &'a [u8; 16],
}

/// One decision, refund, undo or cancellation, ready to travel. It owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    op: Op,
    /// The names of its keys, one after the other.
    names: Vec<u8>,
    keys: SmallVec<[Key; 4]>,
    /// The checks, with the keys numbered from 0.
    pub(super) checks: Vec<u8>,
    /// What follows them, where a place is wanted: it begins with the number of its
    /// key.
    pub(super) place: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Key {
    end: usize,
    kind: KeyKind,
}

/// What stands at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Cell,
    Log,
    Places,
}

impl Request {
    /// Decides these checks, of which there must be one at least.
    pub(crate) fn decide(checks: &Checks<'_>, naming: &Naming) -> Self {
        let op = match checks.mode() {
            Mode::Take | Mode::TakeNow => Op::Take,
            Mode::Peek | Mode::PeekNow => Op::Peek,
        };
        Self::decide_by(op, checks, naming)
    }

    /// Decides these checks and, where the request has to wait, takes a place for it
    /// first; without one it is decided as if no rule let it wait.
    pub(crate) fn decide_with_permit(
        checks: &Checks<'_>,
        naming: &Naming,
        place: PlaceWanted<'_>,
    ) -> Self {
        let mut request = Self::decide_by(Op::TakePlace, checks, naming);
        request.names.extend_from_slice(place.key);
        request.keys.push(Key {
            end: request.names.len(),
            kind: KeyKind::Places,
        });
        let number = request.keys.len() as u64 - 1;
        put(&mut request.place, number, 4);
        put(&mut request.place, place.most.into(), 4);
        request.place.extend_from_slice(place.id);
        request
    }

    fn decide_by(op: Op, checks: &Checks<'_>, naming: &Naming) -> Self {
        let at_once = !checks.mode().waits();
        let list = checks.list();
        let mut request = Self::new(op, list.len());
        let mut names = Names::new(naming);
        for (at, check) in list.iter().enumerate() {
            let next = list.get(at + 1);
            let (cost, is_last) = sum_of(checks, at);
            let ends = match next {
                Some(next) if next.group == check.group => Ends::Nothing,
                _ if check.group == Group::ENFORCED => Ends::Enforced,
                _ => Ends::Shadow,
            };
            let key = names.key_of(&mut request, check);
            let left = list.len() - at - 1;
            let limit = check.band.limit();
            request.push(op, limit, cost, at_once, key, is_last, ends, left);
        }
        request
    }

    /// Gives units back to every band of a subject, of which there must be one
    /// at least.
    pub(crate) fn refund(
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        naming: &Naming,
    ) -> Self {
        let mut request = Self::new(Op::Refund, bands.len());
        let mut head = Vec::new();
        naming.write_subject(subject, &mut head);
        for (at, band) in bands.iter().enumerate() {
            let key = request.add_key(&head, band);
            let left = bands.len() - at - 1;
            let limit = band.limit();
            request.push(
                Op::Refund,
                limit,
                units,
                false,
                key,
                true,
                Ends::Nothing,
                left,
            );
        }
        request
    }

    /// Cancels a charge of `units` to every band of a subject, of which there must
    /// be one at least.
    pub(crate) fn cancel(
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
        naming: &Naming,
    ) -> Self {
        let mut request = Self::new(Op::Cancel, bands.len());
        let mut head = Vec::new();
        naming.write_subject(subject, &mut head);
        let count = bands.len().min(charged.len());
        for (at, (band, charged)) in bands.iter().zip(charged).enumerate() {
            let key = request.add_key(&head, band);
            let limit = band.limit();
            let left = count - at - 1;
            request.push(
                Op::Cancel,
                limit,
                units,
                false,
                key,
                true,
                Ends::Nothing,
                left,
            );
            request.push_mark(
                charged.mark(limit),
                Timestamp::default(),
                key,
                Overhang::NONE,
            );
        }
        request
    }

    /// Takes back what `answer` says was charged for `checks`; `None` if that
    /// is nothing.
    ///
    /// This is not a refund. A refund is about what an identity holds now; an
    /// undo is about one charge, made moments ago, that must be as if it had
    /// never been. It takes units from nowhere but where that charge put them:
    /// from its window, from its event, and from a bucket all but what may have
    /// been refilled since only because of it. Where nobody else came in between
    /// nothing stays of the charge; where it cannot tell, it leaves too much
    /// charged and never too little.
    pub(crate) fn undo(
        checks: &Checks<'_>,
        answer: &Answer,
        naming: &Naming,
    ) -> Result<Option<Self>, StoreError> {
        let charges = answer.charges(checks)?;
        if charges.is_empty() {
            return Ok(None);
        }
        let mut request = Self::new(Op::Undo, charges.len());
        let mut names = Names::new(naming);
        for (at, charge) in charges.iter().enumerate() {
            let check = &checks.list()[charge.check];
            let key = names.key_of(&mut request, check);
            let note = if check.band.limit().algorithm().is_bucket() {
                names.note_of(&mut request, check)
            } else {
                key
            };
            let left = charges.len() - at - 1;
            let (limit, ends) = (check.band.limit(), Ends::Nothing);
            request.push(Op::Undo, limit, charge.cost, false, key, true, ends, left);
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

    /// The names of its keys, and what stands at each.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&[u8], KeyKind)> {
        let mut start = 0;
        self.keys.iter().map(move |key| {
            let name = &self.names[start..key.end];
            start = key.end;
            (name, key.kind)
        })
    }

    /// The bytes of one of its checks.
    pub(super) fn check_size(&self) -> usize {
        CHECK_SIZE + if self.op.has_marks() { MARK_SIZE } else { 0 }
    }

    /// Where each of its checks has numbers of keys.
    pub(super) fn keys_at(&self) -> &'static [Range<usize>] {
        match self.op.has_marks() {
            true => &[KEY_AT, NOTE_AT],
            false => &[KEY_AT],
        }
    }

    fn new(op: Op, checks: usize) -> Self {
        Self {
            op,
            names: Vec::new(),
            keys: SmallVec::new(),
            checks: Vec::with_capacity(checks * (CHECK_SIZE + MARK_SIZE)),
            place: Vec::new(),
        }
    }

    /// The number of a band's key, which is added if it is new.
    fn add_key(&mut self, head: &[u8], band: &Band) -> usize {
        let kind = match band.limit().algorithm() {
            Algorithm::SlidingLog => KeyKind::Log,
            _ => KeyKind::Cell,
        };
        self.add(head, band, kind)
    }

    fn add(&mut self, head: &[u8], band: &Band, kind: KeyKind) -> usize {
        let start = self.names.len();
        self.names.extend_from_slice(head);
        Naming::write_band(band, &mut self.names);
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

    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of a check, in their order"
    )]
    fn push(
        &mut self,
        op: Op,
        limit: &Limit,
        cost: u64,
        at_once: bool,
        key: usize,
        is_last: bool,
        ends: Ends,
        left: usize,
    ) {
        let out = &mut self.checks;
        out.extend_from_slice(&[op as u8, is_last.into(), ends as u8]);
        put(out, left as u64, 4);
        put(out, key as u64, 4);
        let capacity = limit.capacity();
        out.push(frame::tag(limit));
        if limit.algorithm().is_bucket() {
            let rate = limit.rate();
            let time = rate.time_of(cost);
            let far = match at_once {
                false => rate.furthest(),
                // A queue that shapes must be empty.
                true if rate.shape() => time,
                true => rate.fill(),
            };
            let time = match op {
                // What is more than any horizon is all the same.
                Op::Refund => time.min(ANY_DEBT),
                // More than the capacity never passes, however far one may reserve.
                _ if cost > capacity => FracMicros {
                    whole: rate.furthest().whole + 1,
                    part: 0,
                },
                _ => time,
            };
            let far = if cost > capacity { rate.fill() } else { far };
            out.push(rate.horizon().exponent());
            put(out, frame::window_ms(limit), 5);
            put(out, rate.refill(), 4);
            put(out, time.part.into(), 4);
            put(out, far.part.into(), 4);
            put(out, time.whole, 7);
            put(out, far.whole, 7);
        } else {
            // No count is above the largest capacity there is, so a refund of
            // more is all the same; and more than the capacity never passes.
            let most = if op == Op::Refund {
                u32::MAX.into()
            } else {
                capacity + 1
            };
            out.push(0);
            put(out, frame::window_ms(limit), 5);
            put(out, capacity, 4);
            put(out, cost.min(most), 4);
            put(out, 0, 4);
            put(out, 0, 7);
            put(out, 0, 7);
        }
    }
}

/// Longer than any bucket is from full.
const ANY_DEBT: FracMicros = FracMicros {
    whole: 1 << (Horizon::MAX_EXPONENT + 1),
    part: 0,
};

/// What a check ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Nothing = 0,
    Shadow = 1,
    Enforced = 2,
}

/// Names the keys of checks; a subject is encoded once for all its bands.
struct Names<'c> {
    naming: &'c Naming,
    subject: Option<Subject<'c>>,
    head: Vec<u8>,
}

impl<'c> Names<'c> {
    fn new(naming: &'c Naming) -> Self {
        Self {
            naming,
            subject: None,
            head: Vec::new(),
        }
    }

    fn key_of(&mut self, request: &mut Request, check: &Check<'c>) -> usize {
        let subject = check.subject;
        if self.subject != Some(subject) {
            self.head.clear();
            self.naming.write_subject(subject, &mut self.head);
            self.subject = Some(subject);
        }
        request.add_key(&self.head, check.band)
    }

    /// The key for a note that something of a check was taken back.
    fn note_of(&self, request: &mut Request, check: &Check<'_>) -> usize {
        let mut head = Vec::new();
        self.naming.write_note(check.subject, &mut head);
        request.add(&head, check.band, KeyKind::Cell)
    }
}

/// The lowest bytes of a number that fits into them.
fn put(out: &mut Vec<u8>, number: u64, bytes: usize) {
    debug_assert!(bytes == 8 || number >> (8 * bytes) == 0);
    out.extend_from_slice(&number.to_le_bytes()[..bytes]);
}
