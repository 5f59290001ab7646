//! Shares of limits that identities reach, for rules that notify.
//!
//! A decision says what it left of a band, so a share that is reached is found without a look at
//! the store. What this process has found it remembers, and hands on once: the log of the fleet
//! decides which instance tells it. A decision that itself takes the use to a share is always
//! handed on, because no other decision did. One that finds the use there already is handed on
//! only if nothing is remembered.
//!
//! A bucket that is hammered falls below its limit for an instant whenever a unit refills, and so
//! does a sliding window. If the use was seen at the share less than [`DIP`] before, it has not
//! fallen: otherwise one client could cause an event for every unit. Such a decision is handed on
//! as one that finds the use there, at most once in that time: in the meantime another instance
//! may have refunded units, and forgotten what was told.
//!
//! The memory is bounded. What it forgets is handed on once more, and the log knows it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use fluxgate_core::key::{Fingerprinter, RuleNumber, SubjectBytes};
use fluxgate_core::store::Micros;
use fluxgate_core::{ActiveRule, Algorithm, Band, BandUse, Decision, Percent, RuleSet, Timestamp};
use tokio::sync::Notify;

use super::metrics::lock;

/// A use that is seen at a share again within this time has not fallen below it in between.
pub(crate) const DIP: Duration = Duration::from_secs(1);
/// A share is handed on again after half the time until the band is full, but after this long at
/// the latest: the log forgets it when the band would be full.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);
const SHARDS: usize = 16;
/// How many shares of identities each shard remembers.
const MAX_PER_SHARD: usize = 8192;
/// How many shares wait to be handed on. More are found again by the next decision that sees them.
const MAX_FOUND: usize = 32_768;

/// Finds the shares that decisions reach.
#[derive(Debug)]
pub(crate) struct Thresholds {
    fingerprinter: Fingerprinter,
    known: [Mutex<HashMap<u64, KnownShare>>; SHARDS],
    /// How many shares are remembered.
    len: AtomicUsize,
    found: Mutex<FoundShares>,
    /// Wakes the task that hands shares on.
    wake: Notify,
    /// How many shares did not fit into the queue.
    overflows: AtomicU64,
}

/// What a decision says about a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundState {
    /// It took the use to the share. The use may not have been seen there for `gap` before.
    Reached { gap: Duration },
    /// It found the use there.
    Above,
    /// It found the use below the share.
    Below,
}

/// A share that a decision has found.
#[derive(Clone, Debug)]
pub(crate) struct FoundShare {
    pub(crate) rule_set: Box<str>,
    pub(crate) rule: Box<str>,
    pub(crate) rule_number: RuleNumber,
    /// The rule and the identity, encoded.
    pub(crate) subject: Box<[u8]>,
    /// Where the identity begins in the subject.
    pub(crate) identity_at: usize,
    pub(crate) band: Box<str>,
    pub(crate) band_tag: u64,
    pub(crate) share: Percent,
    pub(crate) limit: u64,
    pub(crate) state: FoundState,
    pub(crate) at: Timestamp,
    pub(crate) reset_after: Micros,
}

impl FoundShare {
    /// Names the band and the share.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.band, self.share)
    }

    /// Returns the encoded identity.
    pub(crate) fn identity(&self) -> &[u8] {
        self.subject.get(self.identity_at..).unwrap_or_default()
    }
}

/// A share that is known to be reached. Times are in µs.
#[derive(Clone, Copy, Debug)]
struct KnownShare {
    /// When it was last seen reached, by the clock of the store.
    seen_at: u64,
    limit: u64,
    /// When it was handed on, since the start of the service.
    handed_on: u64,
    /// Whether it is in the queue, to be handed on later.
    is_deferred: bool,
    /// The decision that reached it, if the queue was full.
    owed: Option<(FoundState, Timestamp)>,
}

/// The shares to hand on.
#[derive(Debug, Default)]
struct FoundShares {
    now: VecDeque<FoundShare>,
    /// With when they are due, in µs since the start of the service. In about that order.
    later: VecDeque<(u64, u64, FoundShare)>,
}

/// When a share that was found is handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Now,
    At(u64),
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            fingerprinter: Fingerprinter::random(),
            known: Default::default(),
            len: AtomicUsize::new(0),
            found: Mutex::default(),
            wake: Notify::new(),
            overflows: AtomicU64::new(0),
        }
    }
}

impl Thresholds {
    /// Finds the shares that a decision has reached, or fallen below. `identity_of` returns the
    /// identity that a rule counts. `now` is the time since the
    /// start of the service.
    pub(super) fn record(
        &self,
        identity_of: impl Fn(&RuleSet, &ActiveRule) -> Option<SubjectBytes>,
        decision: &Decision,
        now: Duration,
    ) {
        let mut identity: Option<(RuleNumber, Option<SubjectBytes>)> = None;
        for band_use in decision.uses() {
            let (rule, set) = (band_use.rule, decision.rule_set());
            let least = rule.notify().first();
            let is_low = least.is_some_and(|it| band_use.used < it.reached_at(limit_of(&band_use)));
            // Nothing is reached, and nothing that could be below is known: the usual case.
            if is_low && self.len.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let Some(set) = set else { continue };
            if identity
                .as_ref()
                .is_none_or(|(known, _)| *known != rule.number())
            {
                identity = Some((rule.number(), identity_of(set, rule)));
            }
            let Some((_, Some(identity))) = &identity else {
                continue;
            };
            self.record_use(set, &band_use, identity, now);
        }
    }

    fn record_use(&self, set: &RuleSet, band_use: &BandUse<'_>, identity: &[u8], now: Duration) {
        let rule = band_use.rule;
        let hash = self.fingerprinter.of(identity);
        for share in rule.notify() {
            let key = key_of(hash, rule.number(), band_use.band.tag(), *share);
            let Some((state, at, delivery)) = self.find(key, band_use, *share, micros(now)) else {
                continue;
            };
            let found = found_share(set, band_use, identity, *share, (state, at));
            self.hand_on(key, found, delivery);
        }
    }

    /// Returns what to hand on about a share, if anything, and remembers that.
    fn find(
        &self,
        key: u64,
        band_use: &BandUse<'_>,
        share: Percent,
        now: u64,
    ) -> Option<(FoundState, Timestamp, Delivery)> {
        let (limit, at) = (limit_of(band_use), band_use.at);
        let least = share.reached_at(limit);
        let mut shard = self.shard(key);
        if band_use.used < least {
            // What a lease leaves is an estimate, so the use may not have fallen yet.
            let margin = band_use.band.lease().map_or(0, |lease| lease.most());
            let known = shard.get(&key)?;
            // It may have fallen for an instant only.
            let unseen = at.micros().saturating_sub(known.seen_at);
            if band_use.used + margin >= least || unseen <= micros(gap_of(band_use.band)) {
                return None;
            }
            shard.remove(&key);
            self.len.fetch_sub(1, Ordering::Relaxed);
            return Some((FoundState::Below, at, Delivery::Now));
        }
        let gap = gap_of(band_use.band);
        let reached = FoundState::Reached { gap };
        let is_reached = band_use.used_before.is_some_and(|before| before < least);
        let state = if is_reached {
            reached
        } else {
            FoundState::Above
        };
        let Some(known) = shard.get_mut(&key) else {
            if shard.len() >= MAX_PER_SHARD {
                forget_one(&mut shard, now);
                self.len.fetch_sub(1, Ordering::Relaxed);
            }
            shard.insert(key, KnownShare::new(at, limit, now));
            self.len.fetch_add(1, Ordering::Relaxed);
            return Some((state, at, Delivery::Now));
        };
        let since_seen = at.micros().saturating_sub(known.seen_at);
        let was_above = known.limit == limit && since_seen <= micros(gap);
        known.seen_at = known.seen_at.max(at.micros());
        known.limit = limit;
        if let Some((state, at)) = known.owed.take() {
            known.handed_on = now;
            return Some((state, at, Delivery::Now));
        }
        if is_reached && !was_above {
            known.handed_on = now;
            return Some((state, at, Delivery::Now));
        }
        let silence = if is_reached {
            DIP
        } else {
            silence_of(band_use)
        };
        let due = known.handed_on.saturating_add(micros(silence));
        // What is in the queue is handed on from there.
        if due <= now && !known.is_deferred {
            known.handed_on = now;
            return Some((FoundState::Above, at, Delivery::Now));
        }
        if is_reached && !std::mem::replace(&mut known.is_deferred, true) {
            return Some((FoundState::Above, at, Delivery::At(due)));
        }
        None
    }

    fn hand_on(&self, key: u64, share: FoundShare, delivery: Delivery) {
        let mut found = lock(&self.found);
        if found.now.len() + found.later.len() < MAX_FOUND {
            match delivery {
                Delivery::Now => found.now.push_back(share),
                Delivery::At(due) => found.later.push_back((due, key, share)),
            }
            drop(found);
            self.wake.notify_one();
            return;
        }
        drop(found);
        self.overflows.fetch_add(1, Ordering::Relaxed);
        // The next decision that sees it hands it on.
        if let Some(known) = self.shard(key).get_mut(&key) {
            known.is_deferred = false;
            known.handed_on = 0;
            if matches!(share.state, FoundState::Reached { .. }) {
                known.owed = Some((share.state, share.at));
            }
        }
    }

    /// Moves up to `most` shares that are due to `due`. Returns when the next one is due, in time
    /// since the start of the service.
    pub(crate) fn take(
        &self,
        now: Duration,
        most: usize,
        due: &mut Vec<FoundShare>,
    ) -> Option<Duration> {
        let mut found = lock(&self.found);
        let mut deferred = Vec::new();
        while found
            .later
            .front()
            .is_some_and(|(at, ..)| *at <= micros(now))
        {
            if let Some((_, key, share)) = found.later.pop_front() {
                deferred.push(key);
                found.now.push_back(share);
            }
        }
        let count = found.now.len().min(most);
        due.extend(found.now.drain(..count));
        let next = found
            .later
            .front()
            .map(|(at, ..)| Duration::from_micros(*at));
        let next = if found.now.is_empty() {
            next
        } else {
            Some(now)
        };
        drop(found);
        for key in deferred {
            if let Some(known) = self.shard(key).get_mut(&key) {
                known.is_deferred = false;
                known.handed_on = micros(now);
            }
        }
        next
    }

    /// Forgets shares that the use has fallen below. The next decision that reaches one hands it on
    /// at once.
    pub(crate) fn forget(&self, shares: &[FoundShare]) {
        for share in shares {
            let hash = self.fingerprinter.of(share.identity());
            let key = key_of(hash, share.rule_number, share.band_tag, share.share);
            if self.shard(key).remove(&key).is_some() {
                self.len.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Forgets all shares. Those that are still reached are handed on once more.
    pub(crate) fn forget_all(&self) {
        for shard in &self.known {
            let mut shard = lock(shard);
            self.len.fetch_sub(shard.len(), Ordering::Relaxed);
            shard.clear();
        }
    }

    /// Waits until shares are handed on.
    pub(crate) async fn wait(&self) {
        self.wake.notified().await;
    }

    /// Returns how many shares did not fit into the queue.
    pub(crate) fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, HashMap<u64, KnownShare>> {
        lock(&self.known[key as usize % SHARDS])
    }
}

impl KnownShare {
    fn new(at: Timestamp, limit: u64, now: u64) -> Self {
        Self {
            seen_at: at.micros(),
            limit,
            handed_on: now,
            is_deferred: false,
            owed: None,
        }
    }
}

fn found_share(
    set: &RuleSet,
    band_use: &BandUse<'_>,
    identity: &[u8],
    share: Percent,
    (state, at): (FoundState, Timestamp),
) -> FoundShare {
    let rule: &ActiveRule = band_use.rule;
    let head = rule.subject().bytes;
    FoundShare {
        rule_set: set.name().into(),
        rule: rule.id().into(),
        rule_number: rule.number(),
        subject: [head, identity].concat().into(),
        identity_at: head.len(),
        band: band_use.band.id().into(),
        band_tag: band_use.band.tag(),
        share,
        limit: limit_of(band_use),
        state,
        at,
        reset_after: band_use.reset_after,
    }
}

fn limit_of(band_use: &BandUse<'_>) -> u64 {
    band_use.band.capacity()
}

/// Returns how long the use must not have been seen at a share to have fallen below it. In a fixed
/// window it falls only when another one begins, or units are returned.
pub(crate) fn gap_of(band: &Band) -> Duration {
    if band.algorithm() == Algorithm::FixedWindow {
        Duration::ZERO
    } else {
        DIP
    }
}

/// Returns for how long a known share is not handed on.
fn silence_of(band_use: &BandUse<'_>) -> Duration {
    let until_full = band_use.reset_after.as_duration();
    (until_full / 2).clamp(DIP, LONGEST_SILENCE)
}

/// Forgets the share that was handed on first among a few.
fn forget_one(shard: &mut HashMap<u64, KnownShare>, now: u64) {
    const CANDIDATES: usize = 16;
    let candidates = shard.iter().take(CANDIDATES);
    let oldest = candidates.max_by_key(|(_, known)| now.saturating_sub(known.handed_on));
    if let Some(key) = oldest.map(|(key, _)| *key) {
        shard.remove(&key);
    }
}

fn key_of(identity: u64, rule: RuleNumber, band: u64, share: Percent) -> u64 {
    let mut key = identity;
    for number in [u64::from(rule.get()), band, share.hundredths().into()] {
        key = (key ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }
    key
}

fn micros(span: Duration) -> u64 {
    super::clock::micros(span)
}

#[cfg(test)]
mod tests {
    use fluxgate_core::{Limiter, ManualClock, MemoryStore, RequestContext, RuleSets};

    use super::*;

    /// A limiter on a manual clock, and the shares that its decisions have found.
    struct Gate {
        clock: ManualClock,
        limiter: Limiter<MemoryStore<ManualClock>>,
        thresholds: Thresholds,
    }

    impl Gate {
        fn new(fields: &str) -> Self {
            Self::without_notify(&format!("{fields}, notify: [80%, 100%]"))
        }

        fn without_notify(fields: &str) -> Self {
            let rule = format!("{{ id: r, scope: per_user, {fields} }}");
            let rules = format!("rule_sets: {{ s: {{ rules: [ {rule} ] }} }}");
            let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000).unwrap());
            let store = MemoryStore::with_clock(clock.clone());
            Self {
                limiter: Limiter::new(RuleSets::from_yaml(&rules).unwrap(), store),
                clock,
                thresholds: Thresholds::default(),
            }
        }

        /// The time since the start, which passes as the clock does.
        fn now(&self) -> Duration {
            use fluxgate_core::Clock;
            Duration::from_micros(self.clock.now().micros() - 1_700_000_000_000_000)
        }

        fn advance(&self, span: Duration) {
            self.clock.advance(span);
        }

        /// Decides a request, and returns the shares that are due.
        fn spend(&self, user: &str, cost: u64) -> Vec<(String, FoundState)> {
            let context = RequestContext::builder().user(user).cost(cost).build();
            let decision = self.limiter.check_sync("s", &context);
            let identity = |set: &RuleSet, rule: &ActiveRule| set.identity_of(rule, &context);
            self.thresholds.record(identity, &decision, self.now());
            self.due()
        }

        fn due(&self) -> Vec<(String, FoundState)> {
            let mut due = Vec::new();
            self.thresholds.take(self.now(), usize::MAX, &mut due);
            due.iter()
                .map(|found| (found.share.to_string(), found.state))
                .collect()
        }
    }

    fn reached(share: &str, gap: Duration) -> (String, FoundState) {
        (share.into(), FoundState::Reached { gap })
    }

    fn above(share: &str) -> (String, FoundState) {
        (share.into(), FoundState::Above)
    }

    fn below(share: &str) -> (String, FoundState) {
        (share.into(), FoundState::Below)
    }

    #[test]
    fn what_a_decision_reaches_is_handed_on_once() {
        let gate = Gate::new("algorithm: fixed_window, bands: [ 10/h ]");
        assert_eq!(gate.spend("ann", 7), []);
        assert_eq!(gate.spend("ann", 1), [reached("80%", Duration::ZERO)]);
        assert_eq!(gate.spend("ann", 1), []);
        assert_eq!(gate.spend("ann", 1), [reached("100%", Duration::ZERO)]);
        assert_eq!(gate.spend("ann", 1), [], "denied");
        let both = [
            reached("80%", Duration::ZERO),
            reached("100%", Duration::ZERO),
        ];
        assert_eq!(gate.spend("bob", 10), both);
        // The next window, even at once.
        gate.advance(Duration::from_secs(3600));
        let fallen = [below("80%"), below("100%")];
        assert_eq!(gate.spend("ann", 1), fallen);
        assert_eq!(gate.spend("ann", 7), [reached("80%", Duration::ZERO)]);
        assert_eq!(
            gate.spend("bob", 9),
            [reached("80%", Duration::ZERO), below("100%")]
        );
    }

    #[test]
    fn a_bucket_that_is_hammered_is_handed_on_once_a_second_as_one_that_is_above() {
        let gate = Gate::new("bands: [ 600/m ]");
        let both = [reached("80%", DIP), reached("100%", DIP)];
        assert_eq!(gate.spend("ann", 600), both);
        let mut found = Vec::new();
        for _ in 0..300 {
            gate.advance(Duration::from_millis(10));
            found.extend(gate.spend("ann", 1));
        }
        // Every tenth request takes a unit that has refilled. The others find the limit used up.
        assert!((2..=3).contains(&found.len()), "{found:?}");
        assert!(found.iter().all(|it| *it == above("100%")), "{found:?}");
        // Idle for more than a second, it falls.
        gate.advance(Duration::from_secs(2));
        assert_eq!(gate.spend("ann", 20), [reached("100%", DIP)]);
    }

    #[test]
    fn what_is_reached_again_at_once_waits_for_the_second() {
        let gate = Gate::new("bands: [ 10/h ]");
        assert_eq!(gate.spend("ann", 8), [reached("80%", DIP)]);
        let refund = gate.limiter.refund("s", "r", &["ann"], 5);
        fluxgate_core::task::ready(refund).unwrap();
        gate.advance(Duration::from_millis(300));
        assert_eq!(gate.spend("ann", 5), []);
        gate.advance(Duration::from_millis(600));
        assert_eq!(gate.due(), []);
        gate.advance(Duration::from_millis(100));
        assert_eq!(gate.due(), [above("80%")]);
        assert_eq!(gate.due(), []);
    }

    #[test]
    fn what_was_forgotten_is_handed_on_at_once() {
        let gate = Gate::new("bands: [ 10/h ]");
        let context = RequestContext::builder().user("ann").cost(8).build();
        let decision = gate.limiter.check_sync("s", &context);
        let identity = |set: &RuleSet, rule: &ActiveRule| set.identity_of(rule, &context);
        gate.thresholds.record(identity, &decision, gate.now());
        let mut found = Vec::new();
        gate.thresholds.take(gate.now(), 9, &mut found);
        gate.thresholds.forget(&found);
        fluxgate_core::task::ready(gate.limiter.reset("s", "r", &["ann"])).unwrap();
        assert_eq!(gate.spend("ann", 8), [reached("80%", DIP)]);
        gate.thresholds.forget_all();
        assert_eq!(gate.spend("ann", 1), [above("80%")]);
    }

    #[test]
    fn what_does_not_fit_is_handed_on_by_a_later_decision() {
        let gate = Gate::new("algorithm: fixed_window, bands: [ 10/h ]");
        let spend = |user: &str, cost| {
            let context = RequestContext::builder().user(user).cost(cost).build();
            let decision = gate.limiter.check_sync("s", &context);
            let identity = |set: &RuleSet, rule: &ActiveRule| set.identity_of(rule, &context);
            gate.thresholds.record(identity, &decision, gate.now());
        };
        for user in 0..MAX_FOUND {
            spend(&user.to_string(), 8);
        }
        assert_eq!(gate.thresholds.overflows(), 0);
        spend("late", 8);
        assert_eq!(gate.thresholds.overflows(), 1);
        assert_eq!(gate.due().len(), MAX_FOUND);
        assert_eq!(gate.spend("late", 1), [reached("80%", Duration::ZERO)]);
        assert_eq!(gate.spend("late", 0), []);
    }

    #[test]
    fn a_decision_that_crosses_nothing_allocates_nothing_more() {
        let bands = "algorithm: fixed_window, \
                     bands: [ { capacity: 1000, window: 1h }, { capacity: 9000, window: 1d } ]";
        let allocations = |gate: &Gate| {
            let context = RequestContext::builder().user("ann").build();
            let identity = |set: &RuleSet, rule: &ActiveRule| set.identity_of(rule, &context);
            let decide = || {
                let decision = gate.limiter.check_sync("s", &context);
                assert!(decision.allowed());
                gate.thresholds.record(identity, &decision, gate.now());
            };
            // What is created once.
            (0..3).for_each(|_| decide());
            allocation_counter::measure(|| (0..10).for_each(|_| decide())).count_total
        };
        let (plain, notifying) = (Gate::without_notify(bands), Gate::new(bands));
        let least = allocations(&plain);
        assert_eq!(allocations(&notifying), least);
        // Another identity is above.
        assert_eq!(notifying.spend("bob", 900).len(), 1);
        assert_eq!(allocations(&notifying), least);
        // It is itself, and was so before.
        assert_eq!(notifying.spend("ann", 800).len(), 1);
        assert_eq!(allocations(&notifying), least);
    }

    #[test]
    fn the_memory_is_bounded() {
        let gate = Gate::new("algorithm: fixed_window, bands: [ 10/h ]");
        for user in 0..200_000 {
            gate.spend(&user.to_string(), 8);
        }
        let len = gate.thresholds.len.load(Ordering::Relaxed);
        assert!((100_000..=SHARDS * MAX_PER_SHARD).contains(&len), "{len}");
        let known: usize = gate
            .thresholds
            .known
            .iter()
            .map(|shard| lock(shard).len())
            .sum();
        assert_eq!(known, len);
    }
}
