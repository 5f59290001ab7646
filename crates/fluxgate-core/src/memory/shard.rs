//! One shard: lines of keys, and an overflow for those that find no room.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use hashbrown::HashMap;

use super::line::{Line, LineGuard};
use super::shares::Tally;
use super::slot::{Print, Slot, State};
use crate::algorithm::Log;

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

    /// Moves to more lines, with the keys that `keep` wants. The caller holds no
    /// lock of the shard.
    pub(super) fn grow(&self, sizes: &Sizes, mut keep: impl FnMut(State) -> bool) {
        // In order, like every request that needs several.
        let mut held: Vec<LineGuard<'_>> = self.lines().iter().map(Line::lock).collect();
        if held.iter().any(LineGuard::is_retired) {
            return;
        }
        let mut overflow = super::table::lock(&self.overflow);
        let Some((level, size)) = self.next_level(sizes) else {
            return;
        };
        let all = overflow.take();
        let in_lines = held
            .iter()
            .flat_map(|line| line.slots().map(|(_, slot)| slot));
        let lines = make_lines(size);
        for slot in in_lines.chain(all) {
            if !keep(slot.state) {
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
    logs: HashMap<u64, RuleLog>,
}

/// A log, and the rule that its events are counted for.
#[derive(Debug)]
struct RuleLog {
    rule: u32,
    log: Log,
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

    /// The log of a key.
    pub(super) fn log(&mut self, print: Print) -> Option<&mut Log> {
        let known = self.logs.get_mut(&print.bits())?;
        Some(&mut known.log)
    }

    /// An empty log for a key, in place of what is left of an earlier one. Before
    /// the map grows, logs that `is_spent` go.
    pub(super) fn new_log(
        &mut self,
        print: Print,
        rule: u32,
        events: &Tally,
        is_spent: impl Fn(&Log) -> bool,
    ) -> &mut Log {
        self.remove_log(print, events);
        if self.logs.len() == self.logs.capacity() {
            self.retain_logs(events, |_, log| !is_spent(log));
        }
        let log = Log::default();
        let entry = self.logs.entry(print.bits());
        &mut entry.insert(RuleLog { rule, log }).into_mut().log
    }

    /// Deletes the log of a key, if there is one.
    pub(super) fn remove_log(&mut self, print: Print, events: &Tally) {
        if let Some(RuleLog { rule, log }) = self.logs.remove(&print.bits()) {
            recount(events, rule, log.events(), 0);
        }
    }

    /// Deletes every log that `keep` does not want.
    pub(super) fn retain_logs(&mut self, events: &Tally, keep: impl Fn(u32, &Log) -> bool) {
        self.logs.retain(|_, RuleLog { rule, log }| {
            let keeps = keep(*rule, log);
            if !keeps {
                recount(events, *rule, log.events(), 0);
            }
            keeps
        });
    }

    /// Deletes a key; returns whether it was in the list.
    pub(super) fn remove(&mut self, print: Print, events: &Tally) -> bool {
        self.remove_log(print, events);
        let found = self.search(print);
        if let Ok(index) = found {
            self.prints.remove(index);
            self.states.remove(index);
        }
        found.is_ok()
    }

    /// Deletes every key that `keep` does not want; returns how many.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(State) -> bool) -> usize {
        let before = self.len();
        let kept: Vec<bool> = self.states.iter().map(|state| keep(*state)).collect();
        let (mut of_prints, mut of_states) = (kept.iter(), kept.iter());
        self.prints.retain(|_| of_prints.next() == Some(&true));
        self.states.retain(|_| of_states.next() == Some(&true));
        before - self.len()
    }

    /// The states of the keys that are here.
    pub(super) fn states(&self) -> &[State] {
        &self.states
    }

    /// The key with the state at `index`.
    pub(super) fn slot(&self, index: usize) -> Slot {
        Slot {
            tag: Print::from_bits(self.prints[index]).tag(),
            state: self.states[index],
        }
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

/// Counts a log of a rule that had `before` events and now has `after`.
pub(super) fn recount(events: &Tally, rule: u32, before: usize, after: usize) {
    if after > before {
        events.reserve(after - before);
        events.add(rule, after - before);
    } else {
        events.release(before - after);
        events.subtract(rule, before - after);
    }
}
