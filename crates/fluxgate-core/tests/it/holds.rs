//! Holds: random sequences of charges that are settled, renewed or left to expire, against the
//! model, and the cases that documents name.

use std::collections::BTreeMap;
use std::time::Duration;

use fluxgate_core::algorithm::Mode;
use fluxgate_core::key::RuleNumber;
use fluxgate_core::limit::MAX_UNITS;
use fluxgate_core::memory::Retention;
use fluxgate_core::store::{Charged, Checks, Group, HoldRequest, Micros, Subject};
use fluxgate_core::task::ready;
use fluxgate_core::{
    Algorithm, Band, HoldId, IdentityRef, Limit as RealLimit, ManualClock, MemoryStore,
    RequestContext, Settlement, Store, Timestamp,
};
use proptest::prelude::*;

use crate::model::{Counter, Limit, Mark};
use crate::support::{Gate, SECOND, START, cases, set_of};

const SUBJECT: Subject<'_> = Subject {
    rule: RuleNumber::NONE,
    bytes: b"ann",
};

#[derive(Clone, Debug)]
enum Step {
    Advance(u64),
    Back(u64),
    /// A cost, and how long it asks to be held, if it asks to be held.
    Check(u64, Option<u64>),
    /// The index of a hold, and the cost if it is not as reserved.
    Settle(usize, Option<u64>),
    /// The index of a reservation, which is cancelled if it still waits.
    Cancel(usize),
    Refund(u64),
    Renew(usize, u64),
}

struct Held {
    id: HoldId,
    reserved: u64,
    marks: Vec<Mark>,
    /// When it ends, if it has no slots.
    end: i128,
}

/// A request that is not held and waits.
struct Waiting {
    cost: u64,
    charged: Vec<Charged>,
    marks: Vec<Mark>,
    /// When it goes on.
    at: u64,
}

struct Run {
    clock: ManualClock,
    store: MemoryStore<ManualClock>,
    bands: Vec<Band>,
    model: Vec<(Limit, Counter)>,
    now: u64,
    holds: BTreeMap<u64, Held>,
    waiting: Vec<Waiting>,
    next: u64,
}

impl Run {
    fn new(limits: Vec<Limit>) -> Self {
        let bands = limits.iter().enumerate().map(|(index, limit)| {
            let window = Duration::from_micros(limit.window);
            let mut real = RealLimit::builder(limit.algorithm, limit.capacity, window);
            if limit.algorithm.is_bucket() {
                real = real
                    .refill(limit.refill)
                    .period(Duration::from_micros(limit.period));
                real = real.shape(limit.shape);
                if let Some(max_wait) = limit.max_wait {
                    real = real.max_wait(Duration::from_micros(max_wait));
                }
            }
            Band::new(format!("b{index}"), real.build().unwrap())
        });
        let clock = ManualClock::default();
        Self {
            store: MemoryStore::new(clock.clone(), usize::MAX, Retention::Forever),
            clock,
            bands: bands.collect(),
            model: limits
                .into_iter()
                .map(|limit| (limit, Counter::default()))
                .collect(),
            now: 20_000 * 86_400 * SECOND,
            holds: BTreeMap::new(),
            waiting: Vec::new(),
            next: 0,
        }
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.now).unwrap()
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Advance(span) => self.now += span,
            Step::Back(span) => self.now -= span,
            Step::Check(cost, span) => return self.check(cost, span),
            Step::Settle(index, cost) => return self.settle(index, cost),
            Step::Renew(index, span) => return self.renew(index, span),
            Step::Cancel(index) => self.cancel(index),
            Step::Refund(units) => return self.refund(units),
        }
        Ok(())
    }

    fn check(&mut self, cost: u64, span: Option<u64>) -> Result<(), TestCaseError> {
        self.next += 1;
        let id = HoldId::from_bits(self.next.into());
        let mut checks = Checks::new(Mode::Take);
        checks.push(SUBJECT, &self.bands, cost, Group::ENFORCED);
        let has_slots = self.model.iter().any(|(limit, _)| is_slots(limit));
        if span.is_some() || has_slots {
            checks.set_hold(HoldRequest::new(
                id,
                span.map(Micros::new),
                self.bands.iter().map(|_| None),
            ));
        }
        let verdicts = self.store.decide_at(&checks, self.at());
        let answers = crate::model::decide(&mut self.model, self.now, cost, false);
        let passes = answers.iter().all(|answer| answer.passes);
        if passes && cost > 0 {
            let now = self.now;
            let model = self.model.iter_mut();
            let marks = model
                .map(|(limit, counter)| counter.charge_hold(limit, now, cost, self.next, span));
            let held = Held {
                id,
                reserved: cost,
                marks: marks.collect(),
                end: i128::from(now + span.unwrap_or(60 * SECOND)),
            };
            let delay = answers.iter().map(|answer| answer.delay).max().unwrap();
            if span.is_some() || has_slots {
                self.holds.insert(self.next, held);
            } else if delay > 0 {
                self.waiting.push(Waiting {
                    cost,
                    charged: verdicts.iter().map(Charged::by).collect(),
                    marks: held.marks,
                    at: now + delay,
                });
            }
        }
        for ((verdict, answer), (limit, counter)) in verdicts.iter().zip(&answers).zip(&self.model)
        {
            let (remaining, reset) = counter.left(limit, self.now);
            let expected = (answer.retry, answer.delay, remaining, reset);
            let retry = verdict.retry_after.after().map(|retry| retry.get());
            let delay = verdict.delay.get();
            let found = (
                retry,
                delay,
                verdict.remaining.into(),
                verdict.reset_after.get(),
            );
            prop_assert_eq!(found, expected, "{:?} at {}", limit, self.now);
        }
        Ok(())
    }

    fn nth(&self, index: usize) -> Option<u64> {
        let holds = self.holds.len();
        self.holds.keys().nth(index.checked_rem(holds)?).copied()
    }

    /// Returns whether a hold has not ended.
    fn is_held(&self, number: u64) -> bool {
        let ends = self.model.iter();
        let ends = ends.filter_map(|(limit, counter)| counter.end_of(limit, number));
        let end = ends.max().unwrap_or(self.holds[&number].end);
        end > i128::from(self.now)
    }

    fn settle(&mut self, index: usize, cost: Option<u64>) -> Result<(), TestCaseError> {
        let Some(number) = self.nth(index) else {
            return Ok(());
        };
        let settlement = cost.map_or(Settlement::AsReserved, Settlement::Cost);
        let is_held = self.is_held(number);
        let settled = self
            .store
            .settle_at(self.holds[&number].id, settlement, self.at());
        prop_assert_eq!(settled.is_some(), is_held);
        let Some(settled) = settled else {
            return Ok(());
        };
        let held = self.holds.remove(&number).unwrap();
        let cost = cost.unwrap_or(held.reserved);
        let now = self.now;
        let bands = self.model.iter_mut().zip(&held.marks);
        let uncharged = bands.map(|((limit, counter), mark)| {
            counter.settle_hold(limit, now, (number, held.reserved, mark), cost)
        });
        let uncharged = uncharged.max().unwrap();
        prop_assert_eq!(
            (settled.charged, settled.uncharged),
            (cost - uncharged, uncharged)
        );
        let again = self.store.settle_at(held.id, settlement, self.at());
        prop_assert_eq!(again, None, "a hold is settled once");
        Ok(())
    }

    /// Cancels a reservation that waits. If another band delayed it, what has refilled since
    /// does not return, so this is for one band only.
    fn cancel(&mut self, index: usize) {
        let now = self.now;
        self.waiting.retain(|waiting| waiting.at > now);
        let Some(index) = index.checked_rem(self.waiting.len()) else {
            return;
        };
        let Waiting {
            cost,
            charged,
            marks,
            ..
        } = self.waiting.swap_remove(index);
        self.clock.set(self.at());
        ready(self.store.cancel(SUBJECT, &self.bands, cost, &charged)).unwrap();
        for ((limit, counter), mark) in self.model.iter_mut().zip(&marks) {
            counter.cancel(limit, now, cost, mark);
        }
    }

    fn refund(&mut self, units: u64) -> Result<(), TestCaseError> {
        self.clock.set(self.at());
        let left = ready(self.store.refund(SUBJECT, &self.bands, units)).unwrap();
        for (verdict, (limit, counter)) in left.iter().zip(&mut self.model) {
            counter.refund(limit, self.now, units);
            let found = (verdict.remaining.into(), verdict.reset_after.get());
            prop_assert_eq!(found, counter.left(limit, self.now), "{:?}", limit);
            prop_assert!(verdict.remaining <= limit.capacity as u32);
        }
        Ok(())
    }

    fn renew(&mut self, index: usize, span: u64) -> Result<(), TestCaseError> {
        let Some(number) = self.nth(index) else {
            return Ok(());
        };
        let is_held = self.is_held(number);
        self.clock.set(self.at());
        let renewed = ready(
            self.store
                .renew(&[(self.holds[&number].id, Micros::new(span))]),
        );
        prop_assert_eq!(renewed.unwrap(), [is_held]);
        if is_held {
            let now = self.now;
            for (limit, counter) in self.model.iter_mut().filter(|(limit, _)| is_slots(limit)) {
                // A slot that has ended is not revived.
                if counter
                    .end_of(limit, number)
                    .is_some_and(|end| end > i128::from(now))
                {
                    counter.renew(limit, now, number, span);
                }
            }
            self.holds.get_mut(&number).unwrap().end = i128::from(now + span);
        }
        Ok(())
    }
}

fn is_slots(limit: &Limit) -> bool {
    limit.algorithm == Algorithm::Concurrency
}

fn limit() -> impl Strategy<Value = Limit> {
    let algorithms = [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::Concurrency,
    ];
    let capacity = prop_oneof![5 => 1..=12_u64, 1 => 1..=1_000_u64, 1 => Just(MAX_UNITS)];
    let refill = prop_oneof![Just(None), (1..=7_u64).prop_map(Some)];
    (
        prop::sample::select(algorithms.to_vec()),
        capacity,
        1..=20_u64,
        refill,
    )
        .prop_map(|(algorithm, capacity, seconds, refill)| {
            let capacity = match algorithm {
                Algorithm::SlidingLog => capacity.min(100_000),
                _ => capacity,
            };
            let refill = refill.filter(|_| algorithm.is_bucket() && capacity < 10_000);
            Limit {
                algorithm,
                capacity,
                window: seconds * SECOND,
                refill: refill.unwrap_or(capacity),
                period: seconds * SECOND,
                max_wait: None,
                shape: false,
            }
        })
}

/// Buckets that let requests wait. A unit takes whole microseconds, and nothing lies 16 s
/// ahead, so that nothing is rounded.
fn waiting_limit() -> impl Strategy<Value = Limit> {
    let units = || prop::sample::select(vec![1_u64, 2, 4, 5, 8, 10]);
    let style = prop_oneof![3 => (1..=6_u64).prop_map(Some), 1 => Just(None)];
    (units(), units(), style).prop_map(|(capacity, refill, max_wait)| Limit {
        algorithm: match max_wait {
            Some(_) => Algorithm::TokenBucket,
            None => Algorithm::LeakyBucket,
        },
        capacity,
        window: SECOND,
        refill,
        // It takes two seconds to fill.
        period: 2 * SECOND * refill / capacity,
        max_wait: max_wait.map(|seconds| seconds * SECOND),
        shape: max_wait.is_none(),
    })
}

fn waiting_step() -> impl Strategy<Value = Step> {
    let hold = prop_oneof![1 => Just(None), 2 => Just(Some(30 * SECOND))];
    let span = prop_oneof![
        0..SECOND,
        (0..=4_u64).prop_map(|halves| halves * SECOND / 2)
    ];
    prop_oneof![
        8 => (0..=6_u64, hold).prop_map(|(cost, span)| Step::Check(cost, span)),
        4 => (any::<usize>(), prop_oneof![3 => 0..=4_u64, 1 => 0..=12_u64])
            .prop_map(|(index, cost)| Step::Settle(index, Some(cost))),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => (0..=3_u64).prop_map(Step::Refund),
        3 => span.prop_map(Step::Advance),
        1 => (0..SECOND).prop_map(Step::Back),
    ]
}

#[test]
fn settlements_beside_reservations_agree_with_the_model() {
    let steps = prop::collection::vec(waiting_step(), 1..60);
    proptest!(cases(1500), |(limit in waiting_limit(), steps in steps)| {
        let mut run = Run::new(vec![limit]);
        for step in &steps {
            run.step(step)?;
        }
    });
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..=3_u64,
        0..30 * SECOND,
        (0..=20_u64).prop_map(|seconds| seconds * SECOND)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let cost = || prop_oneof![6 => 0..=4_u64, 2 => 0..=30_u64, 1 => Just(2 * MAX_UNITS)];
    let hold = prop_oneof![1 => Just(None), 3 => (1..30 * SECOND).prop_map(Some)];
    prop_oneof![
        5 => (cost(), hold).prop_map(|(cost, span)| Step::Check(cost, span)),
        4 => (any::<usize>(), prop::option::weighted(0.8, cost()))
            .prop_map(|(index, cost)| Step::Settle(index, cost)),
        1 => (any::<usize>(), 1..30 * SECOND).prop_map(|(index, span)| Step::Renew(index, span)),
        3 => span().prop_map(Step::Advance),
        1 => span().prop_map(Step::Back),
    ]
}

#[test]
fn holds_agree_with_the_model() {
    let limits = prop::collection::vec(limit(), 1..=3);
    let steps = prop::collection::vec(step(), 1..50);
    proptest!(cases(2000), |(limits in limits, steps in steps)| {
        let mut run = Run::new(limits);
        for step in &steps {
            run.step(step)?;
        }
    });
}

fn limiter(
    rule: &str,
) -> (
    fluxgate_core::Limiter<MemoryStore<ManualClock>>,
    ManualClock,
) {
    let clock = ManualClock::new(Timestamp::from_micros(1_000 * SECOND).unwrap());
    let rules = crate::support::parse(&set_of(rule));
    let store = MemoryStore::with_clock(clock.clone());
    (fluxgate_core::Limiter::new(rules, store), clock)
}

const SLOTS: &str =
    "{ id: r, scope: global, algorithm: concurrency, hold: 30s, bands: [ { capacity: 1 } ] }";

#[test]
fn a_hold_that_is_dropped_is_released() {
    let (limiter, _) = limiter(SLOTS);
    let context = fluxgate_core::RequestContext::default();
    let hold = ready(limiter.hold("s", &context)).unwrap();
    assert_eq!(hold.decision().remaining(), Some(0));
    assert!(!ready(limiter.hold("s", &context)).unwrap_err().allowed());
    drop(hold);
    assert_eq!(limiter.store().holds(), 0);
    let hold = ready(limiter.hold("s", &context)).unwrap();
    let id = hold.leave().unwrap();
    assert!(ready(limiter.hold("s", &context)).is_err());
    let settled = ready(limiter.settle(id, Settlement::RELEASE)).unwrap();
    assert!(settled.is_some());
    assert_eq!(
        ready(limiter.settle(id, Settlement::RELEASE)).unwrap(),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn a_kept_hold_is_renewed_until_it_is_dropped() {
    let (limiter, clock) = limiter(SLOTS);
    let context = fluxgate_core::RequestContext::default();
    let check = || limiter.check_sync("s", &context);
    let decision = check();
    let kept = limiter.keep_hold(&decision).unwrap();
    for _ in 0..12 {
        clock.advance(Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(10_001)).await;
        assert!(!check().allowed(), "the slot is still held");
    }
    assert_eq!(limiter.kept_holds(), 1);
    drop(kept);
    assert_eq!(limiter.kept_holds(), 0);
    let decision = check();
    assert!(decision.allowed(), "the slot is free");
    // Nobody keeps this one.
    clock.advance(Duration::from_secs(30));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(check().allowed(), "the slot has expired");
}

/// Holds of other rules must not put off a renewal: each time one of them comes, the next
/// renewal is due sooner, and not later.
#[tokio::test(start_paused = true)]
async fn short_holds_that_come_and_go_do_not_put_off_renewals() {
    let rules = "{ id: short, match: { path: [/short] }, scope: global, \
                 algorithm: concurrency, hold: 3s, bands: [ { capacity: 1 } ] }, \
                 { id: long, match: { path: [/long] }, scope: global, \
                 algorithm: concurrency, hold: 30s, bands: [ { capacity: 1 } ] }";
    let (limiter, clock) = limiter(rules);
    let check = |path| {
        let request = fluxgate_core::RequestContext::builder().path(path).build();
        limiter.check_sync("s", &request)
    };
    let _long = limiter.keep_hold(&check("/long")).unwrap();
    for _ in 0..200 {
        let short = limiter.keep_hold(&check("/short")).unwrap();
        clock.advance(Duration::from_millis(500));
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(short);
        assert!(!check("/long").allowed(), "the slot is still held");
    }
}

#[test]
fn attributes_settle_only_the_rules_that_count_them() {
    let rules = "{ id: requests, scope: global, bands: [ 10/h ] }, \
                 { id: tokens, scope: global, cost: attr:tokens, bands: [ 1000/h ] }";
    let (limiter, _) = limiter(rules);
    let request = fluxgate_core::RequestContext::builder()
        .attribute("tokens", "400")
        .hold(Duration::from_secs(60))
        .build();
    let hold = limiter.check_sync("s", &request).hold().unwrap();
    let costs = [("tokens", 150)];
    let settled = ready(limiter.settle(hold, Settlement::Attributes(&costs))).unwrap();
    assert_eq!(settled.map(|settled| settled.charged), Some(150));
    let left = |rule| ready(limiter.state("s", rule, &[])).unwrap()[0].remaining;
    assert_eq!((left("requests"), left("tokens")), (9, 850));
}

#[test]
fn slots_end_one_after_the_other() {
    let rules = "{ id: slots, scope: per_user, algorithm: concurrency, hold: 30s, cost: attr:n, \
                 bands: [ { capacity: 5 } ] }, { id: rate, scope: per_user, bands: [ 10/h ] }";
    let (limiter, clock) = limiter(rules);
    let check = |cost| {
        let request = RequestContext::builder();
        let request = request.user("ann").attribute("n", cost).build();
        assert!(limiter.check_sync("s", &request).allowed());
    };
    let ends = |rule, user, most| {
        let identity = IdentityRef::Values(&[user]);
        let ends = ready(limiter.slot_ends("s", rule, identity, most)).unwrap();
        ends.iter().map(Duration::as_secs).collect::<Vec<_>>()
    };
    assert!(ends("slots", "ann", 20).is_empty());
    check("1");
    clock.advance(Duration::from_secs(10));
    check("2");
    clock.advance(Duration::from_secs(5));
    check("1");
    assert_eq!(ends("slots", "ann", 20), [15, 25, 25, 30]);
    assert_eq!(ends("slots", "ann", 2), [25, 30]);
    clock.advance(Duration::from_secs(15));
    assert_eq!(ends("slots", "ann", 20), [10, 10, 15]);
    assert!(ends("slots", "bob", 20).is_empty());
    assert!(ends("rate", "ann", 20).is_empty());
}

/// Holds that are not settled expire, and the store drops their records.
#[test]
fn the_records_of_holds_that_have_expired_are_swept_as_new_ones_come() {
    let rules = set_of("{ id: r, scope: global, bands: [ { capacity: 1000000, window: 1d } ] }");
    let gate = Gate::with_store(&rules, 100, Retention::UntilFull);
    let context = RequestContext::builder()
        .hold(Duration::from_secs(1))
        .build();
    for millis in 0..20_000 {
        assert!(gate.at(START + millis * 1_000).check(&context).allowed());
    }
    // A thousand are live, in 64 shards.
    let records = gate.limiter.store().holds();
    assert!((1_000..1_700).contains(&records), "{records}");
}
