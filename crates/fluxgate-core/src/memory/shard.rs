//! A shard: lines of keys, and an overflow for those that find no room.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::entry::{Fingerprint, State};
use super::line::{Line, LineGuard};
use super::overflow::OverflowLock;

/// How often a shard can grow.
const LEVELS: usize = 6;
/// The number of lines at the start.
const FEW: usize = 16;

/// A shard starts with a few lines and grows once keys overflow. Lines that were outgrown
/// are retired and stay empty: they are a small part.
///
/// The path to the lines is in one cache line, which is not written to after the shard has
/// grown.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Shard {
    /// The level in use.
    level: AtomicUsize,
    levels: [OnceLock<Arc<[Line]>>; LEVELS],
    /// The keys without room in the lines. Locked only after the lines of a request.
    pub(super) overflow: OverflowLock,
}

/// The number of lines of a table's shards, at each level.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardSizes([usize; LEVELS]);

impl ShardSizes {
    /// Computes the sizes for shards of `keys` keys, or more if `unlimited`.
    pub(super) fn new(keys: usize, unlimited: bool) -> Self {
        if unlimited {
            // Not more lines than keys, so that they stay close together.
            return Self(std::array::from_fn(|level| FEW << (3 * level)));
        }
        // Five keys to four lines: every seventh overflows, and a key takes 60 bytes.
        // Fewer lines would be slower, more would take more memory. Outgrown lines are not
        // freed, so there is only one step.
        let full = (keys * 4).div_ceil(5).max(FEW);
        let mut sizes = [full; LEVELS];
        sizes[0] = FEW;
        Self(sizes)
    }
}

impl Shard {
    /// Returns the lines in use.
    pub(super) fn lines(&self) -> &[Line] {
        self.shared_lines()
    }

    /// Returns the lines in use, to be kept by a caller.
    pub(super) fn shared_lines(&self) -> &Arc<[Line]> {
        // A level is set before it is published here. A thread that still reads the level
        // before finds its lines retired.
        let level = self.level.load(Ordering::Acquire);
        self.levels[level].get_or_init(|| make_lines(FEW))
    }

    /// Returns the lines in use, if there are any yet.
    pub(super) fn lines_if_any(&self) -> Option<&[Line]> {
        let level = self.level.load(Ordering::Acquire);
        self.levels[level].get().map(|lines| &**lines)
    }

    /// Returns the index of a key's line in [`Shard::lines`].
    pub(super) fn line_of(fingerprint: Fingerprint, lines: &[Line]) -> usize {
        // Distributes homes over any number of lines without a division.
        ((u64::from(fingerprint.home()) * lines.len() as u64) >> 32) as usize
    }

    /// Returns the next level and its size, if it would have more lines.
    fn next_level(&self, sizes: &ShardSizes) -> Option<(usize, usize)> {
        let lines = self.lines().len();
        let mut sizes = sizes.0.iter().copied().enumerate();
        sizes.find(|(level, size)| *size > lines && self.levels[*level].get().is_none())
    }

    /// Returns whether so many keys overflow that the shard should grow.
    pub(super) fn is_crowded(&self, overflowing: usize, sizes: &ShardSizes) -> bool {
        overflowing * 2 > self.lines().len() && self.next_level(sizes).is_some()
    }

    /// Moves the keys for which `keep` returns true to more lines. The caller holds no lock
    /// of the shard.
    pub(super) fn grow(&self, sizes: &ShardSizes, mut keep: impl FnMut(State) -> bool) {
        // In order, like every request that locks several.
        let mut locked: Vec<LineGuard<'_>> = self.lines().iter().map(Line::lock).collect();
        if locked.iter().any(LineGuard::is_retired) {
            return;
        }
        let mut overflow = self.overflow.lock();
        let Some((level, size)) = self.next_level(sizes) else {
            return;
        };
        let overflowing = overflow.take();
        let in_lines = locked
            .iter()
            .flat_map(|line| line.entries().map(|(_, entry)| entry));
        let lines = make_lines(size);
        for entry in in_lines.chain(overflowing) {
            if !keep(entry.state) {
                continue;
            }
            let mut line = lines[Self::line_of(entry.fingerprint(), &lines)].lock();
            match line.find_empty() {
                Some(index) => line.set(index, entry),
                None => {
                    line.spill();
                    overflow.set(entry);
                }
            }
        }
        let published = self.levels[level].set(lines).is_ok();
        debug_assert!(published, "only the holder of all locks can grow a shard");
        self.level.store(level, Ordering::Release);
        for line in &mut locked {
            line.retire();
        }
    }
}

fn make_lines(count: usize) -> Arc<[Line]> {
    (0..count).map(|_| Line::default()).collect()
}
