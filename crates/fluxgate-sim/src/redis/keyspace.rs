//! The keys of a server, with their expiry.

use std::collections::{BTreeMap, HashMap};

use super::sorted_set::SortedSet;

/// A value of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    Text(Vec<u8>),
    Sorted(SortedSet),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    List(Vec<Vec<u8>>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) data: Data,
    /// When it expires, in milliseconds.
    pub(super) expires: Option<u64>,
}

/// What a key was before a write.
#[derive(Clone, Debug)]
struct PastWrite {
    /// In virtual time.
    at: u64,
    key: Vec<u8>,
    before: Option<Entry>,
}

/// The data of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspace {
    entries: HashMap<Vec<u8>, Entry>,
    /// The server's time of the current command, in microseconds.
    pub(super) time: u64,
    /// The virtual time of the current command.
    pub(super) virtual_time: u64,
    /// The writes that replicas may not have, if there are replicas.
    journal: Option<Vec<PastWrite>>,
    /// Why writes are refused, if they are.
    pub(super) refuses_writes: Option<&'static str>,
    /// Whether the current script has written.
    pub(super) is_dirty: bool,
    /// The messages that the current command has published.
    pub(super) published: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Keyspace {
    /// Returns the milliseconds of the current command.
    pub(super) fn millis(&self) -> u64 {
        self.time / 1_000
    }

    fn is_expired(&self, entry: &Entry) -> bool {
        entry.expires.is_some_and(|expires| self.millis() > expires)
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Entry> {
        let entry = self.entries.get(key)?;
        (!self.is_expired(entry)).then_some(entry)
    }

    /// Returns an entry to change. Removes it if it has expired.
    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        if self.entries.contains_key(key) {
            self.remember(key);
        }
        if self.get(key).is_none() {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    pub(super) fn set(&mut self, key: &[u8], data: Data, expires: Option<u64>) {
        self.remember(key);
        self.entries.insert(key.to_vec(), Entry { data, expires });
    }

    /// Removes a key; returns whether it was there.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let was_there = self.get(key).is_some();
        if self.entries.contains_key(key) {
            self.remember(key);
            self.entries.remove(key);
        }
        was_there
    }

    /// Returns the keys that have not expired, in order.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        let live = self
            .entries
            .iter()
            .filter(|(_, entry)| !self.is_expired(entry));
        let mut keys: Vec<_> = live.map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys
    }

    /// Removes all keys.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        if let Some(journal) = &mut self.journal {
            journal.clear();
        }
    }

    /// Takes a key away, with its expiry: it moves to another node.
    pub(super) fn take(&mut self, key: &[u8]) -> Option<Entry> {
        self.entries.remove(key)
    }

    /// Puts a key that has moved here.
    pub(super) fn put(&mut self, key: &[u8], entry: Entry) {
        self.entries.insert(key.to_vec(), entry);
    }

    fn remember(&mut self, key: &[u8]) {
        let (at, entries) = (self.virtual_time, &self.entries);
        if let Some(journal) = &mut self.journal {
            let before = entries.get(key).cloned();
            let key = key.to_vec();
            journal.push(PastWrite { at, key, before });
        }
    }

    /// Starts to remember writes for [`Keyspace::as_of`].
    pub(crate) fn keep_journal(&mut self) {
        self.journal.get_or_insert_default();
    }

    /// Returns the data without the writes at `time` or later, and how many those are.
    pub(crate) fn as_of(&self, time: u64) -> (Self, usize) {
        let mut past = self.clone();
        let mut lost = 0;
        let journal = past.journal.take().unwrap_or_default();
        for write in journal
            .into_iter()
            .rev()
            .take_while(|write| write.at >= time)
        {
            lost += 1;
            match write.before {
                Some(entry) => past.entries.insert(write.key, entry),
                None => past.entries.remove(&write.key),
            };
        }
        past.journal = Some(Vec::new());
        (past, lost)
    }
}
