//! What one thread has counted, and how it finds where to count.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fluxgate_core::{Outcome, Rule};
use fluxgate_redis::reason;

use super::durations::Durations;
use super::durations::Tally;
use crate::http::Listener;

/// How many classes of status there are: 1xx to 5xx.
pub(super) const STATUS_CLASSES: usize = 5;

/// What one thread has counted. On cache lines of its own, so that no two
/// threads ever meet.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) durations: Durations,
    pub(super) answered: [[Tally; STATUS_CLASSES]; Listener::ALL.len()],
    pub(super) store_errors: [Tally; reason::ALL.len()],
    pub(super) failed_closed: [Tally; reason::ALL.len()],
    /// Denials of which no line was written.
    pub(super) unlogged: Tally,
    /// Everything that this thread has ever decided by. Only looked at to add
    /// to it, and to tell.
    decisions: Mutex<Vec<Arc<Decisions>>>,
}

/// What one thread decided by one rule, or without one.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Decisions {
    pub(super) by_outcome: [Tally; Outcome::ALL.len()],
    pub(super) rule_set: Box<str>,
    pub(super) rule: Box<str>,
}

/// The shards of all threads.
#[derive(Debug)]
pub(super) struct Shards {
    /// Tells these shards from those of another service in the same process,
    /// as tests have it.
    number: u64,
    all: Mutex<Vec<Arc<Shard>>>,
}

/// A thread's shard, and how to find things in it.
struct Mine {
    /// Whose shard it is.
    number: u64,
    shard: Arc<Shard>,
    /// By the number of the rule, which are dense.
    by_rule: Vec<Option<Arc<Decisions>>>,
    /// Of no rule, by the rule set; the empty name is no set.
    by_set: HashMap<Box<str>, Arc<Decisions>>,
    /// The one of them that was met last, which is most likely to be next.
    recent: Option<Arc<Decisions>>,
}

thread_local! {
    static MINE: RefCell<Option<Mine>> = const { RefCell::new(None) };
}

impl Shards {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            all: Mutex::default(),
        }
    }

    /// Counts something in this thread's shard.
    pub(super) fn count<T>(&self, count: impl FnOnce(&Shard) -> T) -> T {
        self.with_mine(|mine| count(&mine.shard))
    }

    /// Counts a decision in this thread's shard.
    pub(super) fn count_decision(
        &self,
        rule_set: &str,
        rule: Option<&Rule>,
        count: impl FnOnce(&Shard, &Decisions),
    ) {
        self.with_mine(|mine| mine.count_decision(rule_set, rule, count));
    }

    /// The shards of all threads that ever counted. Those of threads that have
    /// ended stay, for no count ever goes down.
    pub(super) fn all(&self) -> Vec<Arc<Shard>> {
        lock(&self.all).clone()
    }

    fn with_mine<T>(&self, count: impl FnOnce(&mut Mine) -> T) -> T {
        MINE.with_borrow_mut(|mine| match mine {
            Some(mine) if mine.number == self.number => count(mine),
            _ => count(mine.insert(self.add_mine())),
        })
    }

    #[cold]
    fn add_mine(&self) -> Mine {
        let shard = Arc::new(Shard::default());
        lock(&self.all).push(Arc::clone(&shard));
        Mine {
            number: self.number,
            shard,
            by_rule: Vec::new(),
            by_set: HashMap::new(),
            recent: None,
        }
    }
}

impl Mine {
    fn count_decision(
        &mut self,
        rule_set: &str,
        rule: Option<&Rule>,
        count: impl FnOnce(&Shard, &Decisions),
    ) {
        let known = match (rule, &self.recent) {
            (Some(rule), _) => self.by_rule.get(index(rule)).and_then(Option::as_ref),
            (None, Some(recent)) if *recent.rule_set == *rule_set => Some(recent),
            (None, _) => {
                self.recent = self.by_set.get(rule_set).cloned();
                self.recent.as_ref()
            }
        };
        match known {
            Some(decisions) => count(&self.shard, decisions),
            None => {
                let decisions = self.add(rule_set, rule);
                count(&self.shard, &decisions);
            }
        }
    }

    /// A rule, or a set, that this thread meets for the first time.
    #[cold]
    fn add(&mut self, rule_set: &str, rule: Option<&Rule>) -> Arc<Decisions> {
        let decisions = Arc::new(Decisions {
            by_outcome: Default::default(),
            rule_set: rule_set.into(),
            rule: rule.map_or("", Rule::id).into(),
        });
        lock(&self.shard.decisions).push(Arc::clone(&decisions));
        match rule {
            Some(rule) => {
                let index = index(rule);
                if self.by_rule.len() <= index {
                    self.by_rule.resize(index + 1, None);
                }
                self.by_rule[index] = Some(Arc::clone(&decisions));
            }
            None => {
                let decisions = Arc::clone(&decisions);
                self.by_set.insert(rule_set.into(), decisions);
            }
        }
        decisions
    }
}

impl Shard {
    /// Everything that this thread has ever decided by.
    pub(super) fn decisions(&self) -> Vec<Arc<Decisions>> {
        lock(&self.decisions).clone()
    }
}

fn index(rule: &Rule) -> usize {
    rule.number().get() as usize
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
