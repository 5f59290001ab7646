//! One shard: lines of keys, and an overflow for those that find no room.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use hashbrown::HashMap;

use super::line::{Line, LineGuard};
use super::slot::{Loss, Print, Slot, State};
use crate::algorithm::Log;
use crate::time::Timestamp;

/// How often a shard can get more lines.
const LEVELS: usize = 6;
/// How many lines a shard begins with.
const FEW: usize = 16;

/// A shard begins with a few lines and gets more once keys overflow. Lines
/// that were outgrown are retired and stay empty: they are a small part.
///
/// The way to the lines is in one cache line, which nobody writes to once a
/// shard has its lines.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Shard {
    /// The level in use.
    level: AtomicUsize,
    levels: [OnceLock<Box<[Line]>>; LEVELS],
    /// What has no room in lines. Locked only after the lines of a request.
    pub(super) overflow: OverflowLock,
}

/// The lock, and the way to what it guards, in a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct OverflowLock(Mutex<Overflow>);

impl Deref for OverflowLock {
    type Target = Mutex<Overflow>;

    fn deref(&self) -> &Mutex<Overflow> {
        &self.0
    }
}

/// How many lines the shards of a table have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes([usize; LEVELS]);

impl Sizes {
    /// For shards of `keys` keys, and no more unless `unlimited`.
    pub(super) fn new(keys: usize, unlimited: bool) -> Self {
        if unlimited {
            // No more lines than keys, so that they stay close together.
            return Self(std::array::from_fn(|level| FEW << (3 * level)));
        }
        // Five keys to four lines: every seventh overflows, and a key takes 60
        // bytes. Fewer lines would be slower, more of them larger; and what is
        // outgrown is not given back, so it is one step only.
        let full = (keys * 4).div_ceil(5).max(FEW);
        let mut sizes = [full; LEVELS];
        sizes[0] = FEW;
        Self(sizes)
    }
}

impl Shard {
    /// The lines in use.
    pub(super) fn lines(&self) -> &[Line] {
        // A level is set before it is named here. Who still sees the one before
        // finds its lines retired.
        let level = self.level.load(Ordering::Acquire);
        self.levels[level].get_or_init(|| make_lines(FEW))
    }

    /// The lines in use, if there are any yet.
    pub(super) fn lines_if_any(&self) -> Option<&[Line]> {
        let level = self.level.load(Ordering::Acquire);
        self.levels[level].get().map(|lines| &**lines)
    }

    /// The place of a key's line among [`Shard::lines`].
    pub(super) fn line_of(print: Print, lines: &[Line]) -> usize {
        // Spreads homes over any number of lines without a division.
        ((u64::from(print.home()) * lines.len() as u64) >> 32) as usize
    }

    /// The next level, if it would have more lines.
    fn next_level(&self, sizes: &Sizes) -> Option<(usize, usize)> {
        let lines = self.lines().len();
        let mut sizes = sizes.0.iter().copied().enumerate();
        sizes.find(|(level, size)| *size > lines && self.levels[*level].get().is_none())
    }

    /// Whether so many keys overflow that the shard should get more lines.
    pub(super) fn is_crowded(&self, overflowing: usize, sizes: &Sizes) -> bool {
        overflowing * 2 > self.lines().len() && self.next_level(sizes).is_some()
    }

    /// Moves to more lines; `keep` says what is worth it. Says how many keys
    /// were left behind. The caller holds no lock of the shard.
    pub(super) fn grow(&self, sizes: &Sizes, keep: impl Fn(State) -> bool) -> usize {
        // In order, like every request that needs several.
        let mut held: Vec<LineGuard<'_>> = self.lines().iter().map(Line::lock).collect();
        if held.iter().any(LineGuard::is_retired) {
            return 0;
        }
        let mut overflow = super::table::lock(&self.overflow);
        let Some((level, size)) = self.next_level(sizes) else {
            return 0;
        };
        let all = overflow.take();
        let in_lines = held
            .iter()
            .flat_map(|line| line.slots().map(|(_, slot)| slot));
        let lines = make_lines(size);
        let mut left = 0;
        for slot in in_lines.chain(all) {
            if !keep(slot.state) {
                left += 1;
                continue;
            }
            let mut line = lines[Self::line_of(slot.print(), &lines)].lock();
            match line.find_empty() {
                Some(index) => line.set(index, slot),
                None => {
                    line.spill();
                    overflow.set(slot);
                }
            }
        }
        let published = self.levels[level].set(lines).is_ok();
        debug_assert!(published, "only the holder of all lines can grow a shard");
        self.level.store(level, Ordering::Release);
        for line in &mut held {
            line.retire();
        }
        left
    }
}

fn make_lines(count: usize) -> Box<[Line]> {
    (0..count).map(|_| Line::default()).collect()
}

/// Keys whose line is full, in the order of their prints: few in a shard, so
/// that shifting them costs less than the room that a hash table leaves free.
/// And the logs, of which a line or this list holds only a stand-in: what has
/// lost its stand-in counts no more.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Overflow {
    prints: Vec<u64>,
    states: Vec<State>,
    pub(super) logs: HashMap<u64, Log>,
}

impl Overflow {
    pub(super) fn len(&self) -> usize {
        self.prints.len()
    }

    pub(super) fn get(&self, print: Print) -> Option<State> {
        let index = self.search(print).ok()?;
        Some(self.states[index])
    }

    /// Where a print is, or where it would be. Prints are spread evenly, so it
    /// is not far from where it would be if they stood at equal distances: in
    /// the same cache line, mostly, where halving would touch many.
    fn search(&self, print: Print) -> Result<usize, usize> {
        let bits = print.bits();
        let guess = u128::from(bits) * self.prints.len() as u128;
        let mut index = (guess >> Print::BITS) as usize;
        while index > 0 && self.prints[index - 1] >= bits {
            index -= 1;
        }
        while index < self.prints.len() && self.prints[index] < bits {
            index += 1;
        }
        match self.prints.get(index) {
            Some(found) if *found == bits => Ok(index),
            _ => Err(index),
        }
    }

    /// Writes the state of a key, new or not.
    pub(super) fn set(&mut self, slot: Slot) {
        let print = slot.print().bits();
        match self.search(slot.print()) {
            Ok(index) => self.states[index] = slot.state,
            Err(index) => {
                if self.prints.len() == self.prints.capacity() {
                    let more = self.prints.len() / 4 + 4;
                    self.prints.reserve_exact(more);
                    self.states.reserve_exact(more);
                }
                self.prints.insert(index, print);
                self.states.insert(index, slot.state);
            }
        }
    }

    /// Keeps a log, for as long as its stand-in is kept. Before the map grows,
    /// what `is_spent` goes: also what has lost its stand-in, sooner or later.
    pub(super) fn keep_log(&mut self, print: Print, log: Log, is_spent: impl Fn(&Log) -> bool) {
        if self.logs.len() == self.logs.capacity() {
            self.logs.retain(|_, log| !is_spent(log));
        }
        self.logs.insert(print.bits(), log);
    }

    /// Forgets a key; says whether it stood in the list.
    pub(super) fn remove(&mut self, print: Print) -> bool {
        self.logs.remove(&print.bits());
        let found = self.search(print);
        if let Ok(index) = found {
            self.prints.remove(index);
            self.states.remove(index);
        }
        found.is_ok()
    }

    /// Forgets every key that `keep` does not want; says how many.
    pub(super) fn retain(&mut self, keep: impl Fn(State) -> bool) -> usize {
        let before = self.len();
        let mut kept = self.states.iter().map(|state| keep(*state));
        self.prints.retain(|_| kept.next().unwrap_or(true));
        self.states.retain(|state| keep(*state));
        before - self.len()
    }

    /// The key that costs least to forget.
    pub(super) fn cheapest(&self, now: Timestamp) -> Option<(Loss, Print)> {
        let states = self.states.iter().enumerate();
        let losses = states.map(|(index, state)| (state.loss(now), index));
        let (loss, index) = losses.min()?;
        Some((loss, Print::from_bits(self.prints[index])))
    }

    fn take(&mut self) -> impl Iterator<Item = Slot> + use<> {
        let prints = std::mem::take(&mut self.prints).into_iter();
        let states = std::mem::take(&mut self.states);
        prints.zip(states).map(|(print, state)| Slot {
            tag: Print::from_bits(print).tag(),
            state,
        })
    }
}
