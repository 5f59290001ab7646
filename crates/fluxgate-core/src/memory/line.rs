//! A cache line that holds two keys and their lock.
//!
//! All words are atomic, so a line can be read without its lock: a reader loads the words
//! and then checks that the lock was not taken since (a sequence lock). A denial, which
//! changes nothing, therefore writes nothing, and the line of a key under attack stays in
//! the caches of all cores.

// Loom's atomics try every order in which threads can meet.
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::entry::{Entry, Fingerprint, State};

/// The number of keys in a line.
pub(super) const SLOTS: usize = 2;

const TAGS: usize = 1;
const STATES: usize = 2;
const STATE_WORDS: usize = 3;
const WORDS: usize = STATES + SLOTS * STATE_WORDS;

// The lower half of the first word: three flags and a count of changes.
const LOCKED: u64 = 1;
/// The line has been replaced; look again.
const RETIRED: u64 = 2;
/// Keys that belong here may be in the shard's overflow.
const SPILLED: u64 = 4;
const ONE_CHANGE: u64 = 8;
const LOWER: u64 = 0xffff_ffff;

/// Two keys and their states.
///
/// | words | |
/// |---|---|
/// | 0 | flags and version, 32 bits; the first tag's lower 32 bits |
/// | 1 | the first tag's upper 16 bits; the second tag, 48 bits |
/// | 2 to 4, 5 to 7 | the states |
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Line([AtomicU64; WORDS]);

impl Default for Line {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// A key as read without the lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRead {
    /// The entry and the state of the key, if it is in the line.
    pub(super) found: Option<(usize, State)>,
    /// The version that was read.
    pub(super) version: Version,
}

/// The first word of a line that is not locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(u64);

impl Version {
    /// Returns whether the line had been replaced.
    pub(super) fn is_retired(self) -> bool {
        self.0 & RETIRED != 0
    }
}

/// The tag of a key as a line stores it in its first entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstTag {
    /// The lower 32 bits, at their position in the first word.
    lower: u64,
    /// The upper 16 bits.
    upper: u16,
}

impl FirstTag {
    pub(super) fn of(fingerprint: Fingerprint) -> Self {
        let tag = fingerprint.tag();
        Self {
            lower: tag << 32,
            // A tag has 48 bits.
            upper: (tag >> 32) as u16,
        }
    }
}

impl Line {
    /// Reads a key without the lock. Returns `None` if another thread is writing.
    pub(super) fn read(&self, fingerprint: Fingerprint) -> Option<KeyRead> {
        let version = self.0[0].load(Ordering::Acquire);
        if version & LOCKED != 0 {
            return None;
        }
        let entry = self.find(version, fingerprint);
        let found = entry.map(|entry| (entry, self.state(entry)));
        let version = Version(version);
        self.is_still(version).then_some(KeyRead { found, version })
    }

    /// Reads the first entry without the lock: its state, if it has this tag. Returns `None` if
    /// it has not, another thread is writing, or the line has been replaced.
    ///
    /// The words are those of one state only if the line is still at the version that is
    /// returned ([`Line::is_still`], [`Line::lock_unchanged`]).
    #[inline(always)]
    pub(super) fn peek_first(&self, tag: FirstTag) -> Option<(State, Version)> {
        let version = self.0[0].load(Ordering::Acquire);
        let state = self.state(0);
        let second = self.0[TAGS].load(Ordering::Relaxed);
        let is_it =
            version & (!LOWER | LOCKED | RETIRED) == tag.lower && second as u16 == tag.upper;
        is_it.then_some((state, Version(version)))
    }

    /// Returns the version, unless another thread is writing.
    pub(super) fn version(&self) -> Option<Version> {
        let version = self.0[0].load(Ordering::Relaxed);
        (version & LOCKED == 0).then_some(Version(version))
    }

    /// Returns whether nothing has changed since `version`.
    pub(super) fn is_still(&self, Version(version): Version) -> bool {
        fence(Ordering::Acquire);
        self.0[0].load(Ordering::Relaxed) == version
    }

    /// Waits for the lock. Another thread holds it for well under a microsecond, unless it
    /// is preempted; then this one yields too.
    pub(super) fn lock(&self) -> LineGuard<'_> {
        let mut tries = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            spin(tries);
            tries += 1;
        }
    }

    /// Acquires the lock, if it is free.
    pub(super) fn try_lock(&self) -> Option<LineGuard<'_>> {
        self.lock_unchanged(self.version()?)
    }

    /// Acquires the lock, if it is free and nothing has changed since `version`.
    pub(super) fn lock_unchanged(&self, Version(version): Version) -> Option<LineGuard<'_>> {
        if version & LOCKED != 0 {
            return None;
        }
        self.0[0]
            .compare_exchange(
                version,
                version | LOCKED,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .ok()?;
        // A reader that sees any word written from here on sees the lock too.
        fence(Ordering::Release);
        let changed = version.wrapping_add(ONE_CHANGE) & LOWER;
        Some(LineGuard {
            line: self,
            first: version & !LOWER | changed,
        })
    }

    /// Returns the entry of a key. `first` is the first word.
    fn find(&self, first: u64, fingerprint: Fingerprint) -> Option<usize> {
        let tags = self.tags(first);
        let is_in =
            |entry: usize| (tags[entry] == fingerprint.tag()) & self.state(entry).has(fingerprint);
        // Which entry it is cannot be predicted, so there is no branch.
        let (first, second) = (is_in(0), is_in(1));
        (first | second).then_some(usize::from(second))
    }

    fn tags(&self, first: u64) -> [u64; SLOTS] {
        let second = self.0[TAGS].load(Ordering::Relaxed);
        [first >> 32 | (second & 0xffff) << 32, second >> 16]
    }

    #[inline]
    fn state(&self, entry: usize) -> State {
        let start = STATES + entry * STATE_WORDS;
        let word = |index: usize| self.0[start + index].load(Ordering::Relaxed);
        State([word(0), word(1), word(2)])
    }
}

/// Waits for another thread, longer with every try.
#[cfg(not(loom))]
pub(super) fn spin(tries: u32) {
    const IN_PLACE: u32 = 6;
    if tries < IN_PLACE {
        for _ in 0..1 << tries {
            std::hint::spin_loop();
        }
    } else {
        std::thread::yield_now();
    }
}

#[cfg(loom)]
pub(super) fn spin(_tries: u32) {
    loom::thread::yield_now();
}

/// A locked line. No other thread can change it, or read it without noticing.
#[derive(Debug)]
pub(super) struct LineGuard<'l> {
    line: &'l Line,
    /// The first word after the lock is released.
    first: u64,
}

impl LineGuard<'_> {
    /// Returns whether the line has been replaced.
    pub(super) fn is_retired(&self) -> bool {
        self.first & RETIRED != 0
    }

    pub(super) fn retire(&mut self) {
        self.first |= RETIRED;
    }

    /// Returns whether keys of this line may be in the overflow.
    pub(super) fn is_spilled(&self) -> bool {
        self.first & SPILLED != 0
    }

    pub(super) fn spill(&mut self) {
        self.first |= SPILLED;
    }

    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<usize> {
        self.line.find(self.first, fingerprint)
    }

    /// Returns a entry without a key.
    pub(super) fn find_empty(&self) -> Option<usize> {
        (0..SLOTS).find(|entry| self.line.state(*entry).is_empty())
    }

    pub(super) fn state(&self, entry: usize) -> State {
        self.line.state(entry)
    }

    /// Returns the keys in the line.
    pub(super) fn entries(&self) -> impl Iterator<Item = (usize, Entry)> {
        let tags = self.line.tags(self.first);
        (0..SLOTS).filter_map(move |index| {
            let state = self.line.state(index);
            let tag = tags[index];
            (!state.is_empty()).then_some((index, Entry { tag, state }))
        })
    }

    /// Writes the state of a key that is in the line.
    pub(super) fn set_state(&mut self, entry: usize, state: State) {
        let start = STATES + entry * STATE_WORDS;
        for (word, value) in self.line.0[start..].iter().zip(state.0) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Writes the first two words of the state of the key in the first entry.
    pub(super) fn set_first(&mut self, [first, second]: [u64; 2]) {
        self.line.0[STATES].store(first, Ordering::Relaxed);
        self.line.0[STATES + 1].store(second, Ordering::Relaxed);
    }

    /// Writes a key and its state.
    pub(super) fn set(&mut self, index: usize, Entry { tag, state }: Entry) {
        let second = &self.line.0[TAGS];
        let known = second.load(Ordering::Relaxed);
        if index == 0 {
            self.first = self.first & LOWER | tag << 32;
            second.store(known & !0xffff | tag >> 32, Ordering::Relaxed);
        } else {
            second.store(known & 0xffff | tag << 16, Ordering::Relaxed);
        }
        self.set_state(index, state);
    }

    pub(super) fn clear(&mut self, entry: usize) {
        self.set_state(entry, State::EMPTY);
    }
}

impl Drop for LineGuard<'_> {
    fn drop(&mut self) {
        self.line.0[0].store(self.first, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn entry(number: u64) -> Entry {
        // Any three words with an algorithm in the second one.
        let state = State([number, number | 1 << 61, number]);
        Entry {
            tag: Fingerprint::of(0).tag(),
            state,
        }
    }

    fn line() -> (Arc<Line>, Version) {
        let line = Arc::new(Line::default());
        line.lock().set(0, entry(0));
        let version = Version(line.0[0].load(Ordering::Relaxed));
        (line, version)
    }

    /// Adds one to the state if the line has not changed; returns whether it did. There is
    /// no load before the lock, because loom would not try changes after it.
    fn add_one(line: &Line, version: Version) -> bool {
        let Some(mut line) = line.lock_unchanged(version) else {
            return false;
        };
        let State([number, ..]) = line.state(0);
        line.set(0, entry(number + 1));
        true
    }

    /// If two threads read the same version, only one can write.
    #[test]
    fn loom_no_change_is_lost() {
        loom::model(|| {
            let (line, version) = line();
            let other = Arc::clone(&line);
            let thread = thread::spawn(move || add_one(&other, version));
            let here = add_one(&line, version);
            let there = thread.join().unwrap();
            assert!(here != there, "one of them, and only one");
            assert_eq!(line.lock().state(0), entry(1).state);
        });
    }

    /// Adds one like a handle: reads without the lock, and writes if nothing has changed.
    fn add_one_by_handle(line: &Line) -> bool {
        let tag = FirstTag::of(Fingerprint::of(0));
        let Some((State([number, ..]), version)) = line.peek_first(tag) else {
            return false;
        };
        let Some(mut line) = line.lock_unchanged(version) else {
            return false;
        };
        line.set_first([number + 1, number + 1 | 1 << 61]);
        true
    }

    /// Whatever two threads read, a state is only written over the one it was computed from.
    #[test]
    fn loom_no_change_by_a_handle_is_lost() {
        loom::model(|| {
            let (line, version) = line();
            let other = Arc::clone(&line);
            let thread = thread::spawn(move || add_one_by_handle(&other));
            let here = add_one(&line, version) as u64 + add_one_by_handle(&line) as u64;
            let there = thread.join().unwrap() as u64;
            let State([number, ..]) = line.lock().state(0);
            assert_eq!(number, here + there);
        });
    }

    /// One thread writes while another reads: it reads all of a state or nothing.
    #[test]
    fn loom_a_read_is_never_torn() {
        loom::model(|| {
            let (line, version) = line();
            let other = Arc::clone(&line);
            let thread = thread::spawn(move || add_one(&other, version));
            if let Some(KeyRead { found, .. }) = line.read(Fingerprint::of(0)) {
                let state = found.map(|(_, state)| state.0);
                assert!(state == Some(entry(0).state.0) || state == Some(entry(1).state.0));
            }
            assert!(thread.join().unwrap());
        });
    }
}
