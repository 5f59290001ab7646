//! The holds that were taken through this process and have not ended.
//!
//! Another process may settle a hold of a shared store. This process counts it until it expires.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::{ActiveRule, Decision, HoldId, RuleSet};
use smallvec::SmallVec;

use super::metrics::lock;

/// The number of locks. Holds are spread over them by their random ids.
const SHARDS: usize = 16;

/// A shard counts no more holds than this.
const MAX_PER_SHARD: usize = 1_000_000 / SHARDS;

/// A shard with fewer holds is not searched for expired ones when another is added.
const MIN_SWEEP: usize = 1_024;

/// All open holds. Times count from the start of the service.
#[derive(Debug, Default)]
pub(super) struct OpenHolds {
    shards: [Mutex<Shard>; SHARDS],
    /// The slots of each rule, by its number.
    slots: Mutex<HashMap<RuleNumber, Arc<RuleSlots>>>,
    /// Holds of running requests that could not be renewed in time.
    expired: AtomicU64,
    /// Holds that expired before they were settled through this process.
    unsettled: AtomicU64,
    settled_late: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    holds: HashMap<HoldId, OpenHold>,
    /// The number of holds at which expired ones are removed.
    next_sweep: usize,
}

#[derive(Debug)]
struct OpenHold {
    ends: Duration,
    slots: SmallVec<[TakenSlots; 1]>,
}

/// The slots that are held of a rule.
#[derive(Debug)]
struct RuleSlots {
    rule_set: Box<str>,
    rule: Box<str>,
    held: AtomicU64,
}

/// Slots of one hold, which are free when it is dropped.
#[derive(Debug)]
struct TakenSlots(Arc<RuleSlots>, u64);

impl Drop for TakenSlots {
    fn drop(&mut self) {
        self.0.held.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// The open holds, and how others have ended.
#[derive(Debug, Default)]
pub(super) struct HoldCounts {
    pub(super) holds: u64,
    /// By rule set and rule.
    pub(super) slots: BTreeMap<(Box<str>, Box<str>), u64>,
    pub(super) expired: u64,
    pub(super) settled_late: u64,
}

impl OpenHolds {
    /// Adds the hold of a decision. `slots` returns how many slots a rule takes.
    pub(super) fn add(
        &self,
        hold: HoldId,
        decision: &Decision,
        slots: impl Fn(&ActiveRule) -> Option<u64>,
        ends: Duration,
        now: Duration,
    ) {
        let rule_set = decision.rule_set().map_or("", RuleSet::name);
        let taken = decision.rules().filter_map(|(rule, denies)| {
            let slots = slots(rule).filter(|slots| *slots > 0 && !denies)?;
            Some(self.take(rule_set, rule, slots))
        });
        let slots = taken.collect();
        self.insert(hold, OpenHold { ends, slots }, now);
    }

    fn insert(&self, hold: HoldId, open: OpenHold, now: Duration) {
        let mut shard = self.shard(hold);
        if shard.holds.len() >= shard.next_sweep.max(MIN_SWEEP) {
            self.sweep(&mut shard, now);
            shard.next_sweep = 2 * shard.holds.len();
        }
        // All decisions of a batch have one hold.
        if let Some(known) = shard.holds.get_mut(&hold) {
            known.slots.extend(open.slots);
        } else if shard.holds.len() < MAX_PER_SHARD {
            shard.holds.insert(hold, open);
        }
    }

    fn take(&self, rule_set: &str, rule: &ActiveRule, slots: u64) -> TakenSlots {
        let mut rules = lock(&self.slots);
        let rule_slots = rules.entry(rule.number()).or_insert_with(|| {
            Arc::new(RuleSlots {
                rule_set: rule_set.into(),
                rule: rule.id().into(),
                held: AtomicU64::new(0),
            })
        });
        rule_slots.held.fetch_add(slots, Ordering::Relaxed);
        TakenSlots(Arc::clone(rule_slots), slots)
    }

    /// Records when a hold that was renewed ends.
    pub(super) fn record_renewed(&self, hold: HoldId, ends: Duration) {
        if let Some(open) = self.shard(hold).holds.get_mut(&hold) {
            open.ends = ends;
        }
    }

    /// Records that the hold of a running request has expired.
    pub(super) fn record_expired(&self, hold: HoldId) {
        self.shard(hold).holds.remove(&hold);
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a settlement, and whether the hold was still open.
    pub(super) fn record_settled(&self, hold: HoldId, was_held: bool) {
        self.shard(hold).holds.remove(&hold);
        if !was_held {
            self.settled_late.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the holds that are open at `now`. If other processes share the store, a hold that
    /// has expired may have been settled through one of them.
    pub(super) fn count(&self, is_shared: bool, now: Duration) -> HoldCounts {
        let mut holds = 0;
        for shard in &self.shards {
            let mut shard = lock(shard);
            self.sweep(&mut shard, now);
            holds += shard.holds.len() as u64;
        }
        let mut slots = BTreeMap::new();
        for rule in lock(&self.slots).values() {
            let name = (rule.rule_set.clone(), rule.rule.clone());
            *slots.entry(name).or_default() += rule.held.load(Ordering::Relaxed);
        }
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let unsettled = if is_shared { 0 } else { get(&self.unsettled) };
        HoldCounts {
            holds,
            slots,
            expired: get(&self.expired) + unsettled,
            settled_late: get(&self.settled_late),
        }
    }

    /// Removes expired holds.
    fn sweep(&self, shard: &mut Shard, now: Duration) {
        let before = shard.holds.len();
        shard.holds.retain(|_, open| open.ends > now);
        let removed = (before - shard.holds.len()) as u64;
        self.unsettled.fetch_add(removed, Ordering::Relaxed);
    }

    fn shard(&self, hold: HoldId) -> MutexGuard<'_, Shard> {
        lock(&self.shards[hold.bits() as usize % SHARDS])
    }
}

#[cfg(test)]
mod tests {
    use fluxgate_core::{Limiter, MemoryStore, RequestContext, RuleSets};

    use super::*;

    const RULES: &str = "
rule_sets:
  s:
    rules:
      - { id: exports, scope: global, algorithm: concurrency, hold: 10s, bands: [ { capacity: 9 } ] }
      - { id: rate, scope: global, bands: [ { capacity: 100, window: 1h } ] }
";

    const SECOND: Duration = Duration::from_secs(1);

    /// Takes two slots at `now`.
    async fn take(holds: &OpenHolds, now: Duration) -> HoldId {
        let rules = RuleSets::from_yaml(RULES).unwrap();
        let limiter = Limiter::new(rules, MemoryStore::default());
        let context = RequestContext::builder().cost(2).build();
        let decision = limiter.check("s", &context).await;
        let hold = decision.hold().unwrap();
        let slots = |rule: &ActiveRule| rule.slots_of(&context, None);
        let span = decision.hold_span().as_duration();
        holds.add(hold, &decision, slots, now + span, now);
        hold
    }

    fn exports(counts: &HoldCounts) -> u64 {
        let slots: Vec<_> = counts.slots.iter().collect();
        let [((rule_set, rule), held)] = slots[..] else {
            panic!("{slots:?}");
        };
        assert_eq!((&**rule_set, &**rule), ("s", "exports"));
        *held
    }

    #[tokio::test]
    async fn a_hold_counts_until_it_is_settled_or_its_time_is_over() {
        let holds = OpenHolds::default();
        let settled = take(&holds, Duration::ZERO).await;
        let renewed = take(&holds, Duration::ZERO).await;
        take(&holds, SECOND).await;
        let counts = holds.count(false, 2 * SECOND);
        assert_eq!((counts.holds, exports(&counts), counts.expired), (3, 6, 0));
        holds.record_settled(settled, true);
        holds.record_renewed(renewed, 15 * SECOND);
        let counts = holds.count(false, 11 * SECOND);
        assert_eq!((counts.holds, exports(&counts), counts.expired), (1, 2, 1));
        holds.record_expired(renewed);
        holds.record_settled(renewed, false);
        let counts = holds.count(true, 11 * SECOND);
        assert_eq!((counts.holds, exports(&counts)), (0, 0));
        assert_eq!(counts.settled_late, 1);
        assert_eq!(counts.expired, 1, "others may have settled the first");
    }

    #[test]
    fn expired_holds_make_room_for_others() {
        let holds = OpenHolds::default();
        for now in 0..4 {
            for _ in 0..SHARDS * MIN_SWEEP {
                let now = now * 100 * SECOND;
                let slots = SmallVec::new();
                let ends = now + SECOND;
                holds.insert(HoldId::random(), OpenHold { ends, slots }, now);
            }
        }
        let all: usize = holds
            .shards
            .iter()
            .map(|shard| lock(shard).holds.len())
            .sum();
        assert!(all < 3 * SHARDS * MIN_SWEEP, "{all}");
    }
}
