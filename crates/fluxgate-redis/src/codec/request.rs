//! One decision, refund or undo, encoded.

use std::ops::Range;

use fluxgate_core::algorithm::Mode;
use fluxgate_core::limit::Fine;
use fluxgate_core::{Algorithm, Band, Check, Checks, Group, Limit, StoreError, Subject};
use smallvec::SmallVec;

use super::answer::{Answer, sum_of};
use super::frame;
use crate::key_name::Naming;

/// The bytes of a check; `driver.lua` has the format.
pub(super) const CHECK_SIZE: usize = 46;
/// The bytes that an undo has after each check.
pub(super) const MARK_SIZE: usize = 22;
/// Where a check has the number of its key.
pub(super) const KEY_AT: Range<usize> = 7..11;
/// Where an undo has the number of the key for a note.
const NOTE_AT: Range<usize> = CHECK_SIZE + 18..CHECK_SIZE + MARK_SIZE;

/// What to do with the checks of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Take = 1,
    Peek = 2,
    Refund = 3,
    Undo = 4,
}

/// One decision, refund or undo, ready to travel. It owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    op: Op,
    /// The names of its keys, one after the other.
    names: Vec<u8>,
    keys: SmallVec<[Key; 4]>,
    /// The checks, with the keys numbered from 0.
    pub(super) checks: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Key {
    end: usize,
    is_log: bool,
}

impl Request {
    /// Decides these checks, of which there must be one at least.
    pub(crate) fn decide(checks: &Checks<'_>, naming: &Naming) -> Self {
        let op = match checks.mode() {
            Mode::Take => Op::Take,
            Mode::Peek => Op::Peek,
        };
        let list = checks.list();
        let mut request = Self::new(op, list.len());
        let mut names = Names::new(checks, naming);
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
            request.push(check.band.limit(), cost, key, is_last, ends, left);
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
            request.push(band.limit(), units, key, true, Ends::Nothing, left);
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
        let mut names = Names::new(checks, naming);
        for (at, charge) in charges.iter().enumerate() {
            let check = &checks.list()[charge.check];
            let key = names.key_of(&mut request, check);
            let note = if check.band.limit().algorithm().is_bucket() {
                names.note_of(&mut request, check)
            } else {
                key
            };
            let left = charges.len() - at - 1;
            request.push(
                check.band.limit(),
                charge.cost,
                key,
                true,
                Ends::Nothing,
                left,
            );
            put(&mut request.checks, charge.mark.whole, 7);
            put(&mut request.checks, charge.mark.part.into(), 4);
            put(&mut request.checks, answer.now().micros(), 7);
            put(&mut request.checks, note as u64, 4);
        }
        Ok(Some(request))
    }

    /// The names of its keys, and whether each is that of a log.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let mut start = 0;
        self.keys.iter().map(move |key| {
            let name = &self.names[start..key.end];
            start = key.end;
            (name, key.is_log)
        })
    }

    /// The bytes of one of its checks.
    pub(super) fn check_size(&self) -> usize {
        CHECK_SIZE + if self.op == Op::Undo { MARK_SIZE } else { 0 }
    }

    /// Where each of its checks has numbers of keys.
    pub(super) fn keys_at(&self) -> &'static [Range<usize>] {
        match self.op {
            Op::Undo => &[KEY_AT, NOTE_AT],
            _ => &[KEY_AT],
        }
    }

    fn new(op: Op, checks: usize) -> Self {
        Self {
            op,
            names: Vec::new(),
            keys: SmallVec::new(),
            checks: Vec::with_capacity(checks * (CHECK_SIZE + MARK_SIZE)),
        }
    }

    /// The number of a band's key, which is added if it is new.
    fn add_key(&mut self, head: &[u8], band: &Band) -> usize {
        let is_log = band.limit().algorithm() == Algorithm::SlidingLog;
        self.add(head, band, is_log)
    }

    fn add(&mut self, head: &[u8], band: &Band, is_log: bool) -> usize {
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
            is_log,
        });
        self.keys.len() - 1
    }

    fn push(
        &mut self,
        limit: &Limit,
        cost: u64,
        key: usize,
        is_last: bool,
        ends: Ends,
        left: usize,
    ) {
        let op = self.op;
        let out = &mut self.checks;
        out.extend_from_slice(&[op as u8, is_last.into(), ends as u8]);
        put(out, left as u64, 4);
        put(out, key as u64, 4);
        out.push(frame::tag(limit.algorithm()));
        out.extend_from_slice(&frame::code(limit));
        put(out, frame::window_ms(limit), 5);
        let capacity = limit.capacity();
        if limit.algorithm().is_bucket() {
            let far = limit.rate().furthest();
            // More than the capacity never passes, however far one may reserve.
            let never = op != Op::Refund && cost > capacity;
            let time = Some(limit.rate().time_of(cost)).filter(|time| !never && *time <= far);
            // What is more than the furthest debt is all the same.
            let time = time.unwrap_or(Fine {
                whole: far.whole + 1,
                part: 0,
            });
            put(out, limit.rate().refill(), 4);
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
            put(out, capacity, 4);
            put(out, cost.min(most), 4);
            put(out, 0, 4);
            put(out, 0, 7);
            put(out, 0, 7);
        }
    }
}

/// What a check ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Nothing = 0,
    Shadow = 1,
    Enforced = 2,
}

/// Names the keys of checks; a subject is encoded once for all its bands.
struct Names<'c, 'r> {
    checks: &'c Checks<'r>,
    naming: &'c Naming,
    subject: Option<Subject<'c>>,
    head: Vec<u8>,
}

impl<'c, 'r> Names<'c, 'r> {
    fn new(checks: &'c Checks<'r>, naming: &'c Naming) -> Self {
        Self {
            checks,
            naming,
            subject: None,
            head: Vec::new(),
        }
    }

    fn key_of(&mut self, request: &mut Request, check: &Check<'_>) -> usize {
        let subject = self.checks.subject(check);
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
        self.naming
            .write_note(self.checks.subject(check), &mut head);
        request.add(&head, check.band, false)
    }
}

/// The lowest bytes of a number that fits into them.
fn put(out: &mut Vec<u8>, number: u64, bytes: usize) {
    debug_assert!(bytes == 8 || number >> (8 * bytes) == 0);
    out.extend_from_slice(&number.to_le_bytes()[..bytes]);
}
