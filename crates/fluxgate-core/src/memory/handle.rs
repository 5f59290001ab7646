//! A handle to one key, for callers that check the same key again and again.
//!
//! It skips the hash and the search for the key: only the decision is left. The decision and
//! the state are those of every other path, so all of them may use the key at once.
//!
//! The handle reads the state without a lock, decides, and locks the line only if it is as it
//! was read ([`Line::lock_unchanged`]). So a charge is written only over the state that it
//! was computed from: no charge is lost, and no unit is admitted twice.

use std::sync::Arc;

use super::entry::{COUNT_MASK, INSTANT_MASK, Key, LimitBits, State};
use super::line::{FirstTag, Line, spin};
use super::shard::Shard;
use super::table::Table;
use crate::algorithm::{Bucket, Overhang, Verdict};
use crate::band::Band;
use crate::clock::Clock;
use crate::limit::{FracMicros, Limit};

/// The number of tries against other threads, before this one waits for the lock.
const TRIES: u32 = 6;
/// How long to wait after the first try ([`spin`]): about a microsecond. The thread that has
/// the line makes several decisions in that time. If the line moved to another core for each
/// of them, two threads together would be slower than one.
const FIRST_WAIT: u32 = 5;

/// A key, and where its entry was found last.
#[derive(Clone, Debug)]
pub(crate) struct KeyHandle {
    /// The lines of its shard. They are retired, and the handle is slow, once the shard has
    /// grown.
    lines: Arc<[Line]>,
    index: usize,
    /// Its usual state, if it is a bucket that lets nothing wait.
    plain: Option<PlainBucket>,
    tag: FirstTag,
    band: Band,
    key: Key,
}

impl KeyHandle {
    pub(super) fn new(table: &Table, key: Key, band: &Band) -> Self {
        let lines = table.shards[key.shard as usize].shared_lines();
        let (limit, rate) = (band.limit(), band.limit().rate());
        let may_wait = rate.max_wait().is_some() || rate.shape();
        let is_plain = limit.algorithm().is_bucket() && !may_wait;
        Self {
            lines: Arc::clone(lines),
            index: Shard::line_of(key.fingerprint, lines),
            plain: is_plain.then(|| PlainBucket::new(&key, limit)),
            tag: FirstTag::of(key.fingerprint),
            band: band.clone(),
            key,
        }
    }

    /// Takes `cost` units, and passes the verdict to `then`, which is compiled once for charges
    /// and once for denials.
    #[inline(always)]
    pub(super) fn take<R>(
        &self,
        table: &Table,
        clock: &impl Clock,
        cost: u64,
        then: impl Fn(&Verdict) -> R,
    ) -> R {
        match self.take_plain(clock, cost) {
            Some(Ok(passes)) => then(&passes),
            Some(Err(denies)) => then(&denies),
            None => then(&self.take_slowly(table, clock, cost)),
        }
    }

    /// Returns the verdict, as an error if it denies. Returns `None` if another thread
    /// interferes, or the state is not the usual one.
    #[inline(always)]
    fn take_plain(&self, clock: &impl Clock, cost: u64) -> Option<Result<Verdict, Verdict>> {
        let plain = self.plain.as_ref()?;
        let line = self.lines.get(self.index)?;
        let (state, version) = line.peek_first(self.tag)?;
        let full_at = plain.full_at(state)?;
        let limit = self.band.limit();
        // The clock is read last: the processor finishes all earlier instructions before it
        // reads its cycle counter.
        let now = clock.now();
        let charge = Bucket::take_plain(limit, full_at, now, cost)?;
        match charge.full_at {
            Some(full_at) => {
                let words = plain.words(full_at);
                line.lock_unchanged(version)?.set_first(words);
                // The line is unlocked again: this takes longer than the decision.
                Some(Ok(charge.verdict(now)))
            }
            None => { line.is_still(version) }.then(|| Err(charge.verdict(now))),
        }
    }

    #[inline(never)]
    fn take_slowly(&self, table: &Table, clock: &impl Clock, cost: u64) -> Verdict {
        let line = &self.lines[self.index];
        let mut tries = 0;
        while self.plain.is_some() && tries < TRIES {
            let before = line.version();
            spin(FIRST_WAIT + tries);
            tries += 1;
            if let Some(Ok(verdict) | Err(verdict)) = self.take_plain(clock, cost) {
                return verdict;
            }
            if before.is_some_and(|before| line.is_still(before)) {
                // No other thread interferes.
                break;
            }
        }
        table.take(&self.key, &self.band, clock.now(), cost)
    }
}

/// All bits of the state of a bucket that a limit has charged last, and that no reservation
/// was cancelled in, except the instant and its fraction.
#[derive(Clone, Copy, Debug)]
struct PlainBucket(State);

impl PlainBucket {
    fn new(key: &Key, limit: &Limit) -> Self {
        let bucket = Bucket {
            full_at: FracMicros::default(),
            // At most MAX_UNITS.
            refill: limit.rate().refill() as u32,
            horizon: limit.rate().horizon(),
            overhang: Overhang::NONE,
        };
        let bits = LimitBits::of(limit);
        Self(State::of_bucket(key, bits, bucket))
    }

    /// Returns the instant at which a bucket is full, if this is its state.
    #[inline(always)]
    fn full_at(&self, state: State) -> Option<FracMicros> {
        // Bits that are the same cancel each other out.
        let [whole, part, rest] = std::array::from_fn(|word| state.0[word] ^ self.0.0[word]);
        let is_plain = whole <= INSTANT_MASK && part <= COUNT_MASK && rest == 0;
        is_plain.then_some(FracMicros {
            whole,
            part: part as u32,
        })
    }

    /// Returns the first two words of the state. The third is the same for all.
    #[inline(always)]
    fn words(&self, full_at: FracMicros) -> [u64; 2] {
        let [no_instant, no_part, _] = self.0.0;
        [
            no_instant | full_at.whole,
            no_part | u64::from(full_at.part),
        ]
    }
}
