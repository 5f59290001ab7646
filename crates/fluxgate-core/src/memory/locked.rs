//! The locked keys of one request.
//!
//! Every request locks in the same order: lines by shard and index, then overflows by
//! shard. Lines of other keys, in a search for a key to evict, are locked only if they are
//! free.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::entry::{Entry, Key, State};
use super::evict::{Victim, VictimLocation, find_victim};
use super::line::{Line, LineGuard};
use super::overflow::Overflow;
use super::shard::Shard;
use super::table::Table;
use crate::hold::HoldId;
use crate::store::HoldRequest;
use crate::time::{Micros, Timestamp};

/// How often a search for a key to evict is repeated because the counts have changed.
const TRIES: usize = 4;

/// The keys of one request, with the locks of their lines and overflows.
pub(super) struct LockedKeys<'t, 'k> {
    pub(super) table: &'t Table,
    pub(super) keys: &'k [Key],
    pub(super) now: Timestamp,
    lines: SmallVec<[LineGuard<'t>; 4]>,
    /// The index of each key's line.
    line_indices: SmallVec<[u16; 8]>,
    overflows: SmallVec<[(u32, MutexGuard<'t, Overflow>); 1]>,
    /// The hold that takes slots, and its requested lifetime.
    pub(super) hold: Option<(HoldId, Option<Micros>)>,
    /// The events that the hold was charged by logs, by the index of the key.
    pub(super) log_marks: SmallVec<[(usize, u64); 1]>,
    /// Shards that should grow.
    crowded: SmallVec<[u32; 1]>,
}

/// The line that a key belongs to.
#[derive(Clone, Copy)]
struct LineRef<'t> {
    shard: u32,
    index: usize,
    line: &'t Line,
}

impl LineRef<'_> {
    fn order(&self) -> (u32, usize) {
        (self.shard, self.index)
    }
}

impl<'t, 'k> LockedKeys<'t, 'k> {
    /// Locks these keys. All methods refer to them by their index, and to the time `now`.
    pub(super) fn new(table: &'t Table, keys: &'k [Key], now: Timestamp) -> Self {
        loop {
            if let Some(locked) = Self::try_new(table, keys, now) {
                return locked;
            }
        }
    }

    /// Returns `None` if a shard has just grown.
    fn try_new(table: &'t Table, keys: &'k [Key], now: Timestamp) -> Option<Self> {
        let mut locked = Self {
            table,
            keys,
            now,
            lines: SmallVec::new(),
            line_indices: SmallVec::new(),
            overflows: SmallVec::new(),
            hold: None,
            log_marks: SmallVec::new(),
            crowded: SmallVec::new(),
        };
        locked.lock_lines()?;
        locked.lock_overflows();
        Some(locked)
    }

    fn lock_lines(&mut self) -> Option<()> {
        let mut line_refs: SmallVec<[LineRef<'t>; 4]> = SmallVec::new();
        for key in self.keys {
            let lines = self.table.shards[key.shard as usize].lines();
            let index = Shard::line_of(key.fingerprint, lines);
            line_refs.push(LineRef {
                shard: key.shard,
                index,
                line: &lines[index],
            });
        }
        let mut in_order = line_refs.clone();
        in_order.sort_unstable_by_key(LineRef::order);
        in_order.dedup_by_key(|line_ref| line_ref.order());
        for line_ref in &in_order {
            let guard = line_ref.line.lock();
            // The shard has grown since, and the key belongs to another line.
            if guard.is_retired() {
                return None;
            }
            self.lines.push(guard);
        }
        for line_ref in &line_refs {
            let mut in_order = in_order.iter();
            let index = in_order.position(|other| other.order() == line_ref.order());
            self.line_indices.push(index.unwrap_or(0) as u16);
        }
        Some(())
    }

    /// Locks the overflows that may contain a key or may have to store one.
    fn lock_overflows(&mut self) {
        let mut shards: SmallVec<[u32; 4]> = SmallVec::new();
        for (at, key) in self.keys.iter().enumerate() {
            let line = self.line(at);
            let may_be_elsewhere = || {
                line.find(key.fingerprint).is_none()
                    && (line.is_spilled() || line.find_empty().is_none() || self.has_company(key))
            };
            if key.is_list || may_be_elsewhere() {
                shards.push(key.shard);
            }
        }
        shards.sort_unstable();
        shards.dedup();
        for shard in shards {
            let overflow = self.table.shards[shard as usize].overflow.lock();
            self.overflows.push((shard, overflow));
        }
    }

    /// Returns whether another key of the request may take the last entry of the line.
    fn has_company(&self, key: &Key) -> bool {
        let mut others = self.keys.iter().filter(|other| *other != key);
        others.any(|other| other.shard == key.shard)
    }

    /// Takes slots for this hold.
    pub(super) fn for_hold(mut self, hold: Option<&HoldRequest<'_>>) -> Self {
        self.hold = hold.map(|hold| (hold.id, hold.span));
        self
    }

    /// Deletes a key. Returns whether it existed.
    pub(super) fn remove(&mut self, at: usize) -> bool {
        let key = self.keys[at];
        let in_line = self.line(at).find(key.fingerprint);
        if let Some(entry) = in_line {
            self.line_mut(at).clear(entry);
        }
        let table = self.table;
        let overflow = self.overflow(key.shard);
        let in_overflow =
            overflow.is_some_and(|overflow| overflow.remove(key.fingerprint, &table.items));
        let existed = in_line.is_some() || in_overflow;
        table.release(key.rule.get(), usize::from(existed));
        existed
    }

    pub(super) fn state(&mut self, at: usize) -> Option<State> {
        let key = &self.keys[at];
        let line = self.line(at);
        match line.find(key.fingerprint) {
            Some(entry) => Some(line.state(entry)),
            None => self.overflow(key.shard)?.get(key.fingerprint),
        }
    }

    /// Writes the state of a key, which need not exist.
    pub(super) fn write(&mut self, at: usize, entry: Entry) {
        if !self.replace(at, entry) {
            self.insert(at, entry);
        }
    }

    /// Writes the state of a key if it exists. Returns whether it does.
    pub(super) fn replace(&mut self, at: usize, entry: Entry) -> bool {
        let key = &self.keys[at];
        let fingerprint = key.fingerprint;
        let line = self.line_mut(at);
        if let Some(index) = line.find(fingerprint) {
            line.set_state(index, entry.state);
            return true;
        }
        let overflow = self.overflow(key.shard);
        match overflow.filter(|overflow| overflow.get(fingerprint).is_some()) {
            Some(overflow) => {
                overflow.set(entry);
                true
            }
            None => false,
        }
    }

    /// Adds a key that does not exist.
    fn insert(&mut self, at: usize, entry: Entry) {
        let (table, now) = (self.table, self.now);
        let rule = self.keys[at].rule.get();
        let line = self.line_mut(at);
        let empty = line.find_empty();
        if let Some(index) = empty
            && table.try_reserve()
        {
            table.keys.add(rule, 1);
            line.set(index, entry);
            return;
        }
        // Expired keys stay as long as there is room: they cost nothing, and are found at
        // once if they return.
        let expired = line
            .entries()
            .find(|(_, entry)| table.is_expired(entry.state, now));
        if let Some((index, expired)) = expired {
            let replaced = expired.state.rule();
            if replaced != rule {
                table.keys.add(rule, 1);
                table.keys.subtract(replaced, 1);
            }
            line.set(index, entry);
            return;
        }
        table.keys.add(rule, 1);
        if empty.is_some() || !table.try_reserve() {
            if !self.evict(at) {
                // The table is full, and other requests hold every key that may be
                // evicted. Only then it holds one key more, for a charge is never
                // dropped.
                table.keys.reserve(1);
            } else if table.is_over() && self.evict(at) {
                table.keys.release(1);
            }
        }
        let line = self.line_mut(at);
        if let Some(index) = line.find_empty() {
            line.set(index, entry);
            return;
        }
        line.spill();
        let shard = self.keys[at].shard;
        let overflow = self.locked_overflow(shard);
        if overflow.len().is_power_of_two() {
            overflow.retain(|state| !table.release_expired(state, now));
        }
        overflow.set(entry);
        if table.shards[shard as usize].is_crowded(overflow.len(), &table.sizes) {
            self.crowded.push(shard);
        }
    }

    /// Evicts a key for a new one, which must not exist yet. Returns whether there was one to
    /// evict. The total does not change.
    fn evict(&mut self, at: usize) -> bool {
        let (table, key, now) = (self.table, &self.keys[at], self.now);
        for _ in 0..TRIES {
            let claim = table.claim(key.rule);
            let line = &self.lines[usize::from(self.line_indices[at])];
            let mut overflows = self.overflows.iter();
            let overflow = overflows.find(|(locked, _)| *locked == key.shard);
            let overflow = overflow.map(|(_, overflow)| &**overflow);
            let victim = find_victim(table, key, (line, overflow), claim, now);
            let Some(Victim {
                entry, location, ..
            }) = victim
            else {
                return false;
            };
            if table.claim_key(&claim, entry.state, now) {
                self.clear(at, entry, location);
                return true;
            }
        }
        false
    }

    fn clear(&mut self, at: usize, entry: Entry, location: VictimLocation<'t>) {
        let (table, fingerprint) = (self.table, entry.fingerprint());
        let shard = match location {
            VictimLocation::OwnLine(index) => {
                self.line_mut(at).clear(index);
                self.keys[at].shard
            }
            VictimLocation::OwnOverflow => {
                let shard = self.keys[at].shard;
                self.locked_overflow(shard)
                    .remove(fingerprint, &table.items);
                return;
            }
            VictimLocation::Line(shard, mut line, index) => {
                line.clear(index);
                shard as u32
            }
            VictimLocation::Overflow(mut overflow) => {
                overflow.remove(fingerprint, &table.items);
                return;
            }
        };
        if !entry.state.is_list() {
            return;
        }
        // A list is deleted with its stand-in. If the overflow is locked, it is deleted after
        // it has expired.
        if let Some(overflow) = self.overflow(shard) {
            overflow.remove_list(fingerprint, &table.items);
        } else if let Some(mut overflow) = table.shards[shard as usize].overflow.try_lock() {
            overflow.remove_list(fingerprint, &table.items);
        }
    }

    fn line(&self, at: usize) -> &LineGuard<'t> {
        &self.lines[usize::from(self.line_indices[at])]
    }

    fn line_mut(&mut self, at: usize) -> &mut LineGuard<'t> {
        &mut self.lines[usize::from(self.line_indices[at])]
    }

    fn overflow(&mut self, shard: u32) -> Option<&mut Overflow> {
        let mut overflows = self.overflows.iter_mut();
        let found = overflows.find(|(locked, _)| *locked == shard);
        found.map(|(_, overflow)| &mut **overflow)
    }

    pub(super) fn locked_overflow(&mut self, shard: u32) -> &mut Overflow {
        let overflow = self.overflow(shard);
        overflow.expect("every key that may need an overflow has locked it")
    }
}

impl Drop for LockedKeys<'_, '_> {
    /// Releases the locks, then grows crowded shards.
    fn drop(&mut self) {
        if self.crowded.is_empty() {
            return;
        }
        self.lines.clear();
        self.overflows.clear();
        let (table, now) = (self.table, self.now);
        for shard in &self.crowded {
            let shard = &table.shards[*shard as usize];
            shard.grow(&table.sizes, |state| !table.release_expired(state, now));
        }
    }
}
