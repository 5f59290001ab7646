//! Holds of the script next to those of the memory store: the same sequences at the same
//! instants, and no difference in any verdict, settlement or renewal.

use std::cell::Cell;

use fluxgate_core::store::{Checks, Group, HoldRequest, Micros, Mode, Verdict, Verdicts};
use fluxgate_core::task::ready;
use fluxgate_core::{
    Algorithm, Band, HoldId, ManualClock, MemoryStore, Settled, Settlement, Store, StoreError,
    Timestamp,
};
use fluxgate_redis::RedisStore;
use fluxgate_redis::injected_time::ScriptStore;
use fluxgate_testkit::{RedisCluster, RedisServer, valkey};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tokio::runtime::{Builder, Runtime};

use super::sequences::{RealCost, Request, Sequence, Step, sequence};
use crate::differential::subject_of;
use crate::sequences::{BANDS, Cost, LATEST, Numbers, SECOND, SUBJECTS, Span};
use crate::support::{cases, patient};
use crate::wire::Wire;

const NAMES: [&str; BANDS] = ["burst", "b1"];
/// What the rule of each subject counts.
const ATTRIBUTES: [Option<&str>; SUBJECTS] = [None, Some("tokens"), Some("other")];

/// A store that is compared with the memory store.
trait Beside {
    /// Whether a hold has several records, which may disagree on when it ends if the clock
    /// goes back, or a shadow rule with slots denies.
    const HAS_PARTS: bool;

    fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError>;
    fn settle(&self, id: HoldId, cost: Settlement<'_>) -> Result<Option<Settled>, StoreError>;
    fn renew(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError>;
    fn reset(&self, subject: usize, bands: &[Band]) -> Result<u64, StoreError>;
}

impl Beside for ScriptStore<&Wire, ManualClock> {
    const HAS_PARTS: bool = false;

    fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        ready(Store::decide(self, checks))
    }

    fn settle(&self, id: HoldId, cost: Settlement<'_>) -> Result<Option<Settled>, StoreError> {
        ready(Store::settle(self, id, cost))
    }

    fn renew(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        ready(Store::renew(self, holds))
    }

    fn reset(&self, subject: usize, bands: &[Band]) -> Result<u64, StoreError> {
        ready(Store::reset(self, subject_of(subject), bands))
    }
}

struct WholeStore<'r, const HAS_PARTS: bool> {
    runtime: &'r Runtime,
    store: &'r RedisStore,
}

impl<const HAS_PARTS: bool> Beside for WholeStore<'_, HAS_PARTS> {
    const HAS_PARTS: bool = HAS_PARTS;

    fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        self.runtime.block_on(self.store.decide(checks))
    }

    fn settle(&self, id: HoldId, cost: Settlement<'_>) -> Result<Option<Settled>, StoreError> {
        self.runtime.block_on(self.store.settle(id, cost))
    }

    fn renew(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        self.runtime.block_on(self.store.renew(holds))
    }

    fn reset(&self, subject: usize, bands: &[Band]) -> Result<u64, StoreError> {
        let reset = self.store.reset(subject_of(subject), bands);
        self.runtime.block_on(reset)
    }
}

struct World<'s, R> {
    clock: ManualClock,
    now: u64,
    memory: MemoryStore<ManualClock>,
    redis: R,
    bands: Vec<Vec<Band>>,
    last: Option<Verdict>,
    holds: Vec<HoldId>,
    ids: u128,
    seen: &'s Seen,
}

/// How often the interesting things happened, over all sequences.
#[derive(Debug, Default)]
struct Seen {
    settled: Cell<u32>,
    gone: Cell<u32>,
    uncharged: Cell<u32>,
    renewed: Cell<u32>,
    slots_denied: Cell<u32>,
}

impl Seen {
    fn count(count: &Cell<u32>, happened: bool) {
        count.set(count.get() + u32::from(happened));
    }

    /// Checks that each happened often enough in this many sequences.
    fn check(&self, cases: u32) {
        let is_enough = self.settled.get() >= 2 * cases
            && self.gone.get() >= 2 * cases
            && self.uncharged.get() >= cases / 4
            && self.renewed.get() >= cases / 4
            && self.slots_denied.get() >= cases / 4;
        assert!(is_enough, "{self:?} in {cases} sequences");
    }
}

impl<'s, R: Beside> World<'s, R> {
    fn new(
        redis: R,
        clock: ManualClock,
        start: u64,
        numbers: &[Vec<Numbers>],
        seen: &'s Seen,
    ) -> Self {
        let bands = numbers.iter().map(|numbers| {
            let bands = NAMES.iter().zip(numbers);
            let bands = bands.map(|(name, numbers)| band(name, numbers));
            bands.collect()
        });
        let mut world = Self {
            // Slots that have ended are dropped as in Redis.
            memory: MemoryStore::with_clock(clock.clone()),
            redis,
            clock,
            now: start,
            bands: bands.collect(),
            last: None,
            holds: Vec::new(),
            ids: 0,
            seen,
        };
        world.set(start);
        world
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Forward(span) => self.set((self.now + self.span(span)).min(LATEST)),
            Step::Back(_) | Step::Reset(_) | Step::Change(..) if R::HAS_PARTS => {}
            Step::Back(span) => self.set(self.now.saturating_sub(self.span(span))),
            Step::Decide(request) => {
                let bands = self.bands.clone();
                let checks = self.checks(&bands, request);
                let passes = self.compare(&checks)?;
                // Some of those that were denied, too, which hold nothing.
                let hold = checks.hold().filter(|_| checks.mode().takes());
                if let Some(hold) = hold.filter(|_| passes || self.ids.is_multiple_of(16)) {
                    self.holds.push(hold.id);
                }
            }
            Step::Settle(index, cost) => self.settle(*index, cost)?,
            Step::Renew(renewed) => self.renew(renewed)?,
            Step::Reset(subject) => {
                let bands = &self.bands[*subject];
                let memory = ready(self.memory.reset(subject_of(*subject), bands));
                prop_assert_eq!(memory, self.redis.reset(*subject, bands));
            }
            Step::Change(subject, band, numbers) => {
                self.bands[*subject][*band] = self::band(NAMES[*band], numbers);
            }
        }
        Ok(())
    }

    fn checks<'b>(&mut self, bands: &'b [Vec<Band>], request: &Request) -> Checks<'b> {
        let mut checks = Checks::new(request.mode);
        let mut attributes = Vec::new();
        for (subject, cost) in &request.enforced {
            let units = self.cost(*subject, cost);
            let of = &bands[*subject];
            checks.push(subject_of(*subject), of, units, Group::ENFORCED);
            attributes.extend([ATTRIBUTES[*subject]; BANDS]);
        }
        for (index, (subject, cost)) in request.shadow.iter().enumerate() {
            let of = &bands[*subject];
            let is_enforced = request.enforced.iter().any(|(other, _)| other == subject);
            let is_earlier = { request.shadow[..index].iter() }.any(|(other, _)| other == subject);
            // No rule is both, or twice one of them.
            if is_enforced || is_earlier || R::HAS_PARTS && has_slots(of) {
                continue;
            }
            let units = self.cost(*subject, cost);
            checks.push(subject_of(*subject), of, units, Group::shadow(index));
            attributes.extend([ATTRIBUTES[*subject]; BANDS]);
        }
        let takes_slots = { checks.list().iter() }
            .any(|check| check.band.limit().algorithm() == Algorithm::Concurrency);
        if request.hold.is_some() || takes_slots {
            self.ids += 1;
            checks.set_hold(HoldRequest::new(
                HoldId::from_bits(self.ids),
                request.hold.flatten().map(Micros::new),
                attributes,
            ));
        }
        checks
    }

    /// Returns whether the request passes.
    fn compare(&mut self, checks: &Checks<'_>) -> Result<bool, TestCaseError> {
        let redis = self.redis.decide(checks);
        let memory = ready(self.memory.decide(checks)).unwrap();
        prop_assert_eq!(Ok(&memory), redis.as_ref(), "{:?} at {}", checks, self.now);
        let denied = checks.list().iter().zip(&memory).any(|(check, verdict)| {
            check.band.limit().algorithm() == Algorithm::Concurrency
                && verdict
                    .retry_after
                    .after()
                    .is_some_and(|retry| retry.get() > 0)
        });
        Seen::count(&self.seen.slots_denied, denied);
        self.last = memory.first().copied();
        Ok(memory.iter().all(Verdict::passes))
    }

    /// Compares what every subject has left.
    fn compare_all(&mut self) -> Result<(), TestCaseError> {
        let last = self.last;
        for subject in 0..SUBJECTS {
            let bands = self.bands.clone();
            let mut checks = Checks::new(Mode::Peek);
            checks.push(subject_of(subject), &bands[subject], 1, Group::ENFORCED);
            self.compare(&checks)?;
        }
        self.last = last;
        Ok(())
    }

    fn settle(&mut self, index: usize, cost: &RealCost) -> Result<(), TestCaseError> {
        let Some(index) = index.checked_rem(self.holds.len()) else {
            return Ok(());
        };
        let id = self.holds.swap_remove(index);
        let attributes = match cost {
            RealCost::Attributes(cost) => [("tokens", self.cost(1, cost)), ("unknown", 7)],
            _ => [("", 0); 2],
        };
        let settlement = match cost {
            RealCost::AsReserved => Settlement::AsReserved,
            RealCost::Of(cost) => Settlement::Cost(self.cost(0, cost)),
            RealCost::Attributes(_) => Settlement::Attributes(&attributes),
        };
        for _ in 0..2 {
            // The second time there is nothing left to settle.
            let redis = self.redis.settle(id, settlement);
            let memory = ready(self.memory.settle(id, settlement)).unwrap();
            prop_assert_eq!(
                Ok(memory),
                redis,
                "{:?} {:?} at {}",
                id,
                settlement,
                self.now
            );
            Seen::count(&self.seen.settled, memory.is_some());
            Seen::count(&self.seen.gone, memory.is_none());
            let is_uncharged = memory.is_some_and(|settled| settled.uncharged > 0);
            Seen::count(&self.seen.uncharged, is_uncharged);
        }
        self.compare_all()
    }

    fn renew(&mut self, renewed: &[(usize, u64)]) -> Result<(), TestCaseError> {
        let count = self.holds.len();
        let renewed = renewed.iter().filter_map(|(index, span)| {
            let id = self.holds[index.checked_rem(count)?];
            Some((id, Micros::new(*span)))
        });
        let mut renewed: Vec<_> = renewed.collect();
        renewed.sort_by_key(|(id, _)| *id);
        renewed.dedup_by_key(|(id, _)| *id);
        // One that never was.
        renewed.push((HoldId::from_bits(u128::MAX), Micros::new(SECOND)));
        let redis = self.redis.renew(&renewed);
        let memory = ready(self.memory.renew(&renewed)).unwrap();
        prop_assert_eq!(Ok(&memory), redis.as_ref(), "{:?} at {}", renewed, self.now);
        Seen::count(&self.seen.renewed, memory.contains(&true));
        self.compare_all()
    }

    fn cost(&self, subject: usize, cost: &Cost) -> u64 {
        let limit = self.bands[subject][0].limit();
        match *cost {
            Cost::Units(units) => units,
            Cost::PartOfCapacity(part) => limit.capacity() * part / 1_000,
            Cost::Left(more) => self.last.map_or(1, |last| last.remaining.into()) + more,
        }
    }

    fn span(&self, span: &Span) -> u64 {
        let near = |micros: u64, more: i64| micros.saturating_add_signed(more);
        let last = self.last.as_ref();
        match *span {
            Span::Micros(micros) => micros,
            Span::PartOfWindow(part) => self.bands[0][0].limit().window().get() / 1_000 * part,
            Span::Retry(more) => {
                let retry = last.and_then(|last| last.retry_after.after());
                near(retry.unwrap_or_default().get(), more)
            }
            Span::Reset(more) => near(last.map_or(0, |last| last.reset_after.get()), more),
        }
    }

    fn set(&mut self, now: u64) {
        self.now = now;
        self.clock.set(Timestamp::from_micros(now).unwrap());
    }
}

/// Returns a band. Some of those that let nothing wait are charged always.
fn band(name: &str, numbers: &Numbers) -> Band {
    let limit = numbers.limit();
    let band = Band::new(name, limit);
    let (rate, is_slots) = (limit.rate(), limit.algorithm() == Algorithm::Concurrency);
    let may_owe = rate.max_wait().is_none() && !rate.shape() && !is_slots;
    if may_owe && limit.capacity().is_multiple_of(3) {
        band.charging_always()
    } else {
        band
    }
}

fn has_slots(bands: &[Band]) -> bool {
    let mut bands = bands.iter();
    bands.any(|band| band.limit().algorithm() == Algorithm::Concurrency)
}

fn run(seed: u64, cases: u32, run: impl Fn(Sequence) -> Result<(), TestCaseError>) {
    let config = Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&sequence(), run);
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

fn run_script(seed: u64, usual: u32, server: &RedisServer) {
    let wire = Wire::to(server);
    let (seen, cases) = (Seen::default(), cases(usual));
    run(seed, cases, |(start, rules, sequence)| {
        wire.clear();
        let clock = ManualClock::new(Timestamp::from_micros(start).unwrap());
        let redis = ScriptStore::on_clock(&wire, clock.clone());
        let mut world = World::new(redis, clock, start, &rules, &seen);
        sequence.iter().try_for_each(|step| world.step(step))
    });
    seen.check(cases);
}

#[test]
fn the_script_holds_as_the_memory_store_does() {
    run_script(31, 1_500, &RedisServer::start());
}

#[test]
fn the_script_on_valkey_holds_as_the_memory_store_does() {
    let Some(binary) = valkey() else {
        println!("left out: valkey-server is not installed");
        return;
    };
    run_script(34, 300, &RedisServer::builder().binary(binary).start());
}

fn run_on<const HAS_PARTS: bool>(seed: u64, usual: u32, urls: Vec<String>, clear: impl Fn()) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let clock = ManualClock::new(Timestamp::from_micros(0).unwrap());
    let store = patient(urls)
        .near_cache(false)
        .injected_clock(clock.clone());
    let store = runtime.block_on(store.connect()).unwrap();
    let (seen, cases) = (Seen::default(), cases(usual));
    run(seed, cases, |(start, rules, sequence)| {
        clear();
        let (runtime, store) = (&runtime, &store);
        let redis = WholeStore::<HAS_PARTS> { runtime, store };
        let mut world = World::new(redis, clock.clone(), start, &rules, &seen);
        sequence.iter().try_for_each(|step| world.step(step))
    });
    seen.check(cases);
}

#[test]
fn the_store_on_one_server_holds_as_the_memory_store_does() {
    let server = RedisServer::start();
    run_on::<false>(32, 300, vec![server.url()], || {
        server.cli().command(&["FLUSHALL"]).expect_ok();
    });
}

#[test]
fn the_store_on_a_cluster_holds_as_the_memory_store_does() {
    let cluster = RedisCluster::start(3);
    run_on::<true>(33, 400, cluster.urls(), || {
        for node in cluster.nodes() {
            node.cli().command(&["FLUSHALL", "SYNC"]).expect_ok();
        }
    });
}
