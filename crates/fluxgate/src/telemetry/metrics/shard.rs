//! The counters of each thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fluxgate_core::{ActiveRule, Outcome, WaitRefusal};
use fluxgate_http::server::Listener;
use fluxgate_redis::reason;

use super::durations::{DurationHistogram, Tally};
use super::http_durations::HttpDurations;
use crate::telemetry::denial_table::DenialTables;
use crate::telemetry::recent::RecentRequests;
use crate::telemetry::rule_names::RuleNames;
use crate::telemetry::top::TopCounts;

/// The number of status classes: 1xx to 5xx.
pub(super) const STATUS_CLASSES: usize = 5;

/// The counters of one thread, on cache lines of their own, so that threads do not contend.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(in crate::telemetry) struct Shard {
    pub(super) durations: DurationHistogram,
    pub(super) responses: [[Tally; STATUS_CLASSES]; Listener::ALL.len()],
    /// Handshakes that failed.
    pub(in crate::telemetry) tls_failures: [Tally; Listener::ALL.len()],
    pub(super) store_errors: [Tally; reason::ALL.len()],
    pub(super) failed_closed: [Tally; reason::ALL.len()],
    /// Requests that were not allowed to wait, by the reason.
    pub(in crate::telemetry) refused_waits: [Tally; WaitRefusal::ALL.len()],
    /// Denials that were left out of the log.
    pub(in crate::telemetry) unlogged: Tally,
    /// The heaviest identities of this thread. Other threads lock it only to read.
    pub(in crate::telemetry) top: Mutex<TopCounts>,
    /// Who was denied by this thread since the last second. Other threads lock it only to take it.
    pub(in crate::telemetry) denials: Mutex<DenialTables>,
    /// The durations of the gateway's requests, if metrics are exported. Other threads lock it only
    /// to read.
    pub(in crate::telemetry) http: Mutex<HttpDurations>,
    /// The last requests of this thread, if they are recorded.
    pub(in crate::telemetry) recent: Mutex<RecentRequests>,
    /// The counters of every rule. Locked only to add a rule, and to render.
    decisions: Mutex<Vec<Arc<RuleCounters>>>,
}

/// One thread's decisions by one rule, or without a rule.
#[derive(Debug)]
#[repr(align(64))]
pub(in crate::telemetry) struct RuleCounters {
    pub(super) by_outcome: [Tally; Outcome::ALL.len()],
    /// The decisions that it took part in, by its own outcome.
    pub(in crate::telemetry) own_outcomes: [Tally; Outcome::ALL.len()],
    /// Denied decisions of any outcome: a fallback allows or denies.
    pub(super) denied: Tally,
    /// The highest used share of a reported band since it was read last, in thousandths, plus
    /// one; 0 if there was none.
    pub(super) most_used: AtomicU64,
    pub(in crate::telemetry) names: Arc<RuleNames>,
}

/// The shards of all threads.
#[derive(Debug)]
pub(in crate::telemetry) struct Shards {
    /// Distinguishes services in one process, which tests have.
    number: u64,
    all: Mutex<Vec<Arc<Shard>>>,
}

/// The shard of this thread, with indices into it.
struct LocalShard {
    /// The number of the [`Shards`] that it belongs to.
    number: u64,
    shard: Arc<Shard>,
    /// By rule number; these are dense.
    by_rule: Vec<Option<Arc<RuleCounters>>>,
    /// Decisions without a rule, by rule set; the empty name means no set.
    by_set: HashMap<Box<str>, Arc<RuleCounters>>,
    /// The last used entry of `by_set`, which is likely to be the next.
    recent: Option<Arc<RuleCounters>>,
}

thread_local! {
    static LOCAL: RefCell<Option<LocalShard>> = const { RefCell::new(None) };
}

impl Shards {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            all: Mutex::default(),
        }
    }

    /// Runs `count` on this thread's shard.
    pub(in crate::telemetry) fn count<T>(&self, count: impl FnOnce(&Shard) -> T) -> T {
        self.with_local(|local| count(&local.shard))
    }

    /// Runs `count` on this thread's shard and its counters of a rule.
    pub(in crate::telemetry) fn count_decision(
        &self,
        rule_set: &str,
        rule: Option<&ActiveRule>,
        count: impl FnOnce(&Shard, &RuleCounters),
    ) {
        self.with_local(|local| local.count_decision(rule_set, rule, count));
    }

    /// Returns the shards of all threads, including those that have ended: counters never
    /// decrease.
    pub(in crate::telemetry) fn all(&self) -> Vec<Arc<Shard>> {
        lock(&self.all).clone()
    }

    fn with_local<T>(&self, count: impl FnOnce(&mut LocalShard) -> T) -> T {
        LOCAL.with_borrow_mut(|local| match local {
            Some(local) if local.number == self.number => count(local),
            _ => count(local.insert(self.add_local())),
        })
    }

    #[cold]
    fn add_local(&self) -> LocalShard {
        let shard = Arc::new(Shard::default());
        lock(&self.all).push(Arc::clone(&shard));
        LocalShard {
            number: self.number,
            shard,
            by_rule: Vec::new(),
            by_set: HashMap::new(),
            recent: None,
        }
    }
}

impl LocalShard {
    fn count_decision(
        &mut self,
        rule_set: &str,
        rule: Option<&ActiveRule>,
        count: impl FnOnce(&Shard, &RuleCounters),
    ) {
        let known = match (rule, &self.recent) {
            (Some(rule), _) => self.by_rule.get(index(rule)).and_then(Option::as_ref),
            (None, Some(recent)) if *recent.names.rule_set == *rule_set => Some(recent),
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

    /// Adds the counters of a rule, or of a set, that this thread has not used before.
    #[cold]
    fn add(&mut self, rule_set: &str, rule: Option<&ActiveRule>) -> Arc<RuleCounters> {
        let decisions = Arc::new(RuleCounters {
            by_outcome: Default::default(),
            own_outcomes: Default::default(),
            denied: Default::default(),
            most_used: AtomicU64::new(0),
            names: Arc::new(RuleNames {
                rule_set: rule_set.into(),
                rule: rule.map_or("", ActiveRule::id).into(),
            }),
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
    /// Returns the counters of every rule.
    pub(super) fn decisions(&self) -> Vec<Arc<RuleCounters>> {
        lock(&self.decisions).clone()
    }
}

fn index(rule: &ActiveRule) -> usize {
    rule.number().get() as usize
}

pub(in crate::telemetry) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
