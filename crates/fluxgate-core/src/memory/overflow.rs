//! The keys of a shard that have no room in its lines, and all its lists.

use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;

use super::entry::{Entry, Fingerprint, State};
use super::list::List;
use super::shares::Tally;

/// An overflow and its lock, in a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct OverflowLock(Mutex<Overflow>);

impl OverflowLock {
    /// Waits for the lock. A panic in another thread leaves nothing half-written, because
    /// each write is one assignment.
    pub(super) fn lock(&self) -> MutexGuard<'_, Overflow> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires the lock, if it is free.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Overflow>> {
        self.0.try_lock().ok()
    }
}

/// Keys whose line is full, sorted by their fingerprints. They are few, so shifting them
/// costs less than the free room of a hash table. And the lists: a line or the overflow
/// holds only a stand-in, and a list without one no longer counts.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Overflow {
    fingerprints: Vec<u64>,
    states: Vec<State>,
    lists: HashMap<u64, RuleList>,
}

/// A list and its rule.
#[derive(Debug)]
struct RuleList {
    rule: u32,
    list: List,
}

impl Overflow {
    pub(super) fn len(&self) -> usize {
        self.fingerprints.len()
    }

    pub(super) fn get(&self, fingerprint: Fingerprint) -> Option<State> {
        let index = self.search(fingerprint).ok()?;
        Some(self.states[index])
    }

    /// Returns the index of a fingerprint, or the index to insert it at. Fingerprints are
    /// evenly distributed, so the search starts where it would be at equal distances. That
    /// is mostly in the right cache line, while a binary search would touch many.
    fn search(&self, fingerprint: Fingerprint) -> Result<usize, usize> {
        let bits = fingerprint.bits();
        let guess = u128::from(bits) * self.fingerprints.len() as u128;
        let mut index = (guess >> Fingerprint::BITS) as usize;
        while index > 0 && self.fingerprints[index - 1] >= bits {
            index -= 1;
        }
        while index < self.fingerprints.len() && self.fingerprints[index] < bits {
            index += 1;
        }
        match self.fingerprints.get(index) {
            Some(found) if *found == bits => Ok(index),
            _ => Err(index),
        }
    }

    /// Inserts or replaces the state of a key.
    pub(super) fn set(&mut self, entry: Entry) {
        let fingerprint = entry.fingerprint().bits();
        match self.search(entry.fingerprint()) {
            Ok(index) => self.states[index] = entry.state,
            Err(index) => {
                if self.fingerprints.len() == self.fingerprints.capacity() {
                    let more = self.fingerprints.len() / 4 + 4;
                    self.fingerprints.reserve_exact(more);
                    self.states.reserve_exact(more);
                }
                self.fingerprints.insert(index, fingerprint);
                self.states.insert(index, entry.state);
            }
        }
    }

    /// Returns the list of a key.
    pub(super) fn list(&mut self, fingerprint: Fingerprint) -> Option<&mut List> {
        let known = self.lists.get_mut(&fingerprint.bits())?;
        Some(&mut known.list)
    }

    /// Creates a list for a key, in place of an earlier one. Before the map grows, expired
    /// lists are deleted.
    pub(super) fn new_list(
        &mut self,
        fingerprint: Fingerprint,
        rule: u32,
        list: List,
        items: &Tally,
        is_expired: impl Fn(&List) -> bool,
    ) -> &mut List {
        self.remove_list(fingerprint, items);
        if self.lists.len() == self.lists.capacity() {
            self.retain_lists(items, |_, list| !is_expired(list));
        }
        let entry = self.lists.entry(fingerprint.bits());
        &mut entry.insert_entry(RuleList { rule, list }).into_mut().list
    }

    /// Deletes the list of a key, if there is one.
    pub(super) fn remove_list(&mut self, fingerprint: Fingerprint, items: &Tally) {
        if let Some(RuleList { rule, list }) = self.lists.remove(&fingerprint.bits()) {
            recount(items, rule, list.items(), 0);
        }
    }

    /// Deletes every list for which `keep` returns false.
    pub(super) fn retain_lists(&mut self, items: &Tally, keep: impl Fn(u32, &List) -> bool) {
        self.lists.retain(|_, RuleList { rule, list }| {
            let keeps = keep(*rule, list);
            if !keeps {
                recount(items, *rule, list.items(), 0);
            }
            keeps
        });
    }

    /// Deletes a key. Returns whether it was in the list.
    pub(super) fn remove(&mut self, fingerprint: Fingerprint, items: &Tally) -> bool {
        self.remove_list(fingerprint, items);
        let found = self.search(fingerprint);
        if let Ok(index) = found {
            self.fingerprints.remove(index);
            self.states.remove(index);
        }
        found.is_ok()
    }

    /// Deletes every key for which `keep` returns false. Returns how many.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(State) -> bool) -> usize {
        let before = self.len();
        let kept: Vec<bool> = self.states.iter().map(|state| keep(*state)).collect();
        let (mut of_prints, mut of_states) = (kept.iter(), kept.iter());
        self.fingerprints
            .retain(|_| of_prints.next() == Some(&true));
        self.states.retain(|_| of_states.next() == Some(&true));
        before - self.len()
    }

    /// Returns the states of all keys.
    pub(super) fn states(&self) -> &[State] {
        &self.states
    }

    /// Returns the key with the state at `index`.
    pub(super) fn entry(&self, index: usize) -> Entry {
        Entry {
            tag: Fingerprint::from_bits(self.fingerprints[index]).tag(),
            state: self.states[index],
        }
    }

    /// Removes all keys, but not the lists.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Entry> + use<> {
        let fingerprints = std::mem::take(&mut self.fingerprints).into_iter();
        let states = std::mem::take(&mut self.states);
        fingerprints.zip(states).map(|(fingerprint, state)| Entry {
            tag: Fingerprint::from_bits(fingerprint).tag(),
            state,
        })
    }
}

/// Updates the tally after the items of a rule's list changed from `before` to `after`.
pub(super) fn recount(items: &Tally, rule: u32, before: usize, after: usize) {
    if after > before {
        items.reserve(after - before);
        items.add(rule, after - before);
    } else {
        items.release(before - after);
        items.subtract(rule, before - after);
    }
}
