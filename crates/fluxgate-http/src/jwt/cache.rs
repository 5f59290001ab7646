//! Caches verified tokens, so that a token that is sent repeatedly is verified once.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ring::digest::{SHA256, digest};

use super::claim_set::Millis;
use super::token::VerifiedToken;
use crate::claims::Claims;

/// The number of sets in a shard, a power of two.
const SETS: usize = 1024;
/// The most tokens in a set.
const WAYS: usize = 4;
/// The largest number of shards, a power of two.
const MAX_SHARDS: usize = 64;

/// Verified tokens, by their SHA-256: equal hashes mean equal tokens, and the cache holds no
/// token that could be stolen from it.
///
/// Every thread has its own shard, unless there are more threads than shards, so cores rarely
/// wait for each other. Each shard holds at most [`SETS`] × [`WAYS`] tokens. A new token
/// replaces the least recently used one of its set.
#[derive(Debug)]
pub(super) struct TokenCache {
    shards: Box<[Mutex<Shard>]>,
}

/// The hash of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenHash([u8; 32]);

#[derive(Debug, Default)]
struct Shard {
    /// Empty until the first token.
    entries: Vec<Option<Entry>>,
    /// Counts the uses of entries.
    clock: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    hash: TokenHash,
    /// The generation of the keys that verified it.
    generation: u64,
    valid_until: Millis,
    claims: Claims,
    /// The clock of the shard when it was last used.
    used: u64,
}

impl TokenHash {
    pub(super) fn of(token: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token).as_ref());
        Self(hash)
    }

    /// Returns the set of the token. Only verified tokens are stored, so a client cannot fill a
    /// set with tokens of its choice.
    fn set(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[0], self.0[1]])) % SETS
    }
}

impl TokenCache {
    /// Creates an empty cache.
    pub(super) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = cores.next_power_of_two().min(MAX_SHARDS);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
        }
    }

    /// Returns the claims of a token that was verified by keys of this generation, unless it
    /// has expired since.
    pub(super) fn get(&self, hash: TokenHash, generation: u64, now: Millis) -> Option<Claims> {
        let mut shard = self.shard();
        shard.clock += 1;
        let clock = shard.clock;
        let set = shard.set(hash)?;
        let mut entries = set.iter_mut().flatten();
        let entry = entries.find(|entry| entry.hash == hash)?;
        if entry.generation != generation || now >= entry.valid_until {
            return None;
        }
        entry.used = clock;
        Some(entry.claims.clone())
    }

    /// Stores a token that keys of this generation have verified.
    pub(super) fn put(&self, hash: TokenHash, generation: u64, verified: &VerifiedToken) {
        let mut shard = self.shard();
        if shard.entries.is_empty() {
            shard.entries.resize(SETS * WAYS, None);
        }
        let entry = Entry {
            hash,
            generation,
            valid_until: verified.valid_until,
            claims: verified.claims.clone(),
            used: shard.clock,
        };
        let Some(set) = shard.set(hash) else {
            return;
        };
        let same = set
            .iter()
            .position(|it| it.as_ref().is_some_and(|it| it.hash == hash));
        let place = same.or_else(|| {
            // `None`, an empty place, is less than any use.
            let uses = set.iter().map(|it| it.as_ref().map(|it| it.used));
            let oldest = uses.enumerate().min_by_key(|(_, used)| *used);
            oldest.map(|(place, _)| place)
        });
        if let Some(place) = place {
            set[place] = Some(entry);
        }
    }

    fn shard(&self) -> MutexGuard<'_, Shard> {
        let shard = thread_number() & (self.shards.len() - 1);
        let shard = self.shards[shard].lock();
        shard.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Returns the places for a token, unless the shard is empty.
    fn set(&mut self, hash: TokenHash) -> Option<&mut [Option<Entry>]> {
        let start = hash.set() * WAYS;
        self.entries.get_mut(start..start + WAYS)
    }
}

/// Returns the number of this thread. Threads are numbered in the order of their first call.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    // The number of a thread that is ending may be gone.
    let number = NUMBER.try_with(|number| {
        let known = number.get();
        let known = known.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        number.set(Some(known));
        known
    });
    number.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(valid_until: Millis) -> VerifiedToken {
        let claim = ("sub".into(), "ann".into());
        VerifiedToken {
            claims: Claims::new([claim].into_iter()),
            valid_until,
        }
    }

    #[test]
    fn a_token_is_found_until_it_expires_or_the_keys_change() {
        let cache = TokenCache::new();
        let hash = TokenHash::of(b"a.b.c");
        assert!(cache.get(hash, 1, 0).is_none());
        cache.put(hash, 1, &verified(1000));
        let found = cache.get(hash, 1, 999).unwrap();
        assert_eq!(found.get("sub"), Some("ann"));
        assert!(cache.get(hash, 1, 1000).is_none(), "it has expired");
        assert!(cache.get(hash, 2, 0).is_none(), "the keys have changed");
        assert!(cache.get(TokenHash::of(b"a.b.d"), 1, 0).is_none());
        cache.put(hash, 2, &verified(1000));
        assert!(cache.get(hash, 2, 0).is_some());
    }

    #[test]
    fn many_tokens_do_not_grow_the_cache() {
        let cache = TokenCache::new();
        let hot = TokenHash::of(b"hot");
        cache.put(hot, 1, &verified(1));
        for number in 0..20 * SETS * WAYS {
            assert!(cache.get(hot, 1, 0).is_some(), "it is used all the time");
            let hash = TokenHash::of(&number.to_le_bytes());
            cache.put(hash, 1, &verified(1));
        }
        let shards = cache.shards.iter().map(|shard| shard.lock().unwrap());
        let entries: Vec<_> = shards.map(|shard| shard.entries.len()).collect();
        let full = entries.iter().filter(|entries| **entries > 0).count();
        assert_eq!(entries.iter().sum::<usize>(), SETS * WAYS * full);
        assert_eq!(full, 1, "one thread uses one shard");
    }
}
