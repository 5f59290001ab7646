//! The script next to the memory store: the same sequences at the same instants,
//! and no difference in any field of any verdict.

use fluxgate_core::key::RuleNumber;
use fluxgate_core::memory::Retention;
use fluxgate_core::store::{Charged, Checks, Group, Subject, Verdict, Verdicts};
use fluxgate_core::task::ready;
use fluxgate_core::{Band, LocalStore, ManualClock, MemoryStore, Store, StoreError, Timestamp};
use fluxgate_redis::injected_time::ScriptStore;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use crate::sequences::{
    BANDS, Change, Cost, LATEST, Numbers, Request, SUBJECTS, Span, Step, all_numbers,
    calendar_numbers, few_numbers, start, step, wide_numbers,
};
use crate::wire::Wire;
use fluxgate_testkit::RedisServer;

const NAMES: [&str; BANDS] = ["burst", "b1"];

/// The store that is compared with the memory store.
pub(crate) trait Beside {
    /// Whether a denied request may leave a trace, because it was charged in one
    /// slot and undone there. Only a clock that goes back, or another rule, can
    /// see it.
    const TAKES_BACK: bool;

    /// Decides requests in order.
    fn decide_all(&self, batch: &[&Checks<'_>]) -> Vec<Result<Verdicts, StoreError>>;

    fn refund(&self, subject: usize, bands: &[Band], units: u64) -> Result<Verdicts, StoreError>;

    fn cancel(&self, charge: &Charge) -> Result<(), StoreError>;

    fn reset(&self, subject: usize, bands: &[Band]) -> Result<u64, StoreError>;
}

/// The charge of a request of one subject.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    pub(crate) subject: usize,
    pub(crate) bands: Vec<Band>,
    pub(crate) units: u64,
    pub(crate) charged: Vec<Charged>,
}

impl Beside for ScriptStore<&Wire, ManualClock> {
    const TAKES_BACK: bool = false;

    fn decide_all(&self, batch: &[&Checks<'_>]) -> Vec<Result<Verdicts, StoreError>> {
        match batch {
            [single] => vec![ready(Store::decide(self, single))],
            batch => ScriptStore::decide_all(self, batch).unwrap(),
        }
    }

    fn refund(&self, subject: usize, bands: &[Band], units: u64) -> Result<Verdicts, StoreError> {
        ready(Store::refund(self, subject_of(subject), bands, units))
    }

    fn cancel(&self, charge: &Charge) -> Result<(), StoreError> {
        let Charge {
            subject,
            bands,
            units,
            charged,
        } = charge;
        let subject = subject_of(*subject);
        ready(Store::cancel(self, subject, bands, *units, charged))
    }

    fn reset(&self, subject: usize, bands: &[Band]) -> Result<u64, StoreError> {
        ready(Store::reset(self, subject_of(subject), bands))
    }
}

/// Both stores, and the active rules.
pub(crate) struct World<R> {
    clock: ManualClock,
    now: u64,
    memory: MemoryStore<ManualClock>,
    redis: R,
    numbers: Vec<Vec<Numbers>>,
    bands: Vec<Vec<Band>>,
    /// The last verdict of the first subject.
    last: Option<Verdict>,
    /// The subjects with undone charges.
    taken_back: [bool; SUBJECTS],
    /// The last charges of requests of one subject.
    charges: Vec<Charge>,
}

impl<R: Beside> World<R> {
    /// Compares a store that is empty and uses this clock.
    pub(crate) fn new(
        redis: R,
        clock: ManualClock,
        start: u64,
        numbers: Vec<Vec<Numbers>>,
    ) -> Self {
        let mut world = Self {
            memory: MemoryStore::new(clock.clone(), 1_000, Retention::Forever),
            redis,
            clock,
            now: start,
            numbers,
            bands: Vec::new(),
            last: None,
            taken_back: [false; SUBJECTS],
            charges: Vec::new(),
        };
        world.set(start);
        world.make_bands();
        world
    }

    fn make_bands(&mut self) {
        let subjects = self.numbers.iter();
        self.bands = subjects
            .map(|numbers| {
                let bands = NAMES.iter().zip(numbers);
                bands
                    .map(|(name, numbers)| Band::new(*name, numbers.limit()))
                    .collect()
            })
            .collect();
    }

    pub(crate) fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Forward(span) => self.set((self.now + self.span(span)).min(LATEST)),
            Step::Back(span) => {
                for subject in 0..SUBJECTS {
                    self.reset_undone(subject);
                }
                self.set(self.now.saturating_sub(self.span(span)));
            }
            Step::Decide(requests) => return self.decide(requests),
            Step::Refund(subject, cost) => {
                let units = self.cost(*subject, cost);
                let bands = &self.bands[*subject];
                let memory = ready(self.memory.refund(subject_of(*subject), bands, units));
                let redis = self.redis.refund(*subject, bands, units);
                prop_assert_eq!(memory, redis);
            }
            Step::Cancel(back) => {
                let Some(index) = self.charges.len().checked_sub(back + 1) else {
                    return Ok(());
                };
                let charge = self.charges.remove(index);
                let subject = subject_of(charge.subject);
                let (bands, charged) = (&charge.bands, &charge.charged);
                let memory = ready(self.memory.cancel(subject, bands, charge.units, charged));
                let redis = self.redis.cancel(&charge);
                prop_assert_eq!(memory, redis);
            }
            Step::Reset(subject) => {
                self.reset_undone(*subject);
                let bands = &self.bands[*subject];
                let memory = ready(self.memory.reset(subject_of(*subject), bands));
                let redis = self.redis.reset(*subject, bands);
                prop_assert_eq!(memory, redis);
            }
            Step::Change(change) => self.change(change),
        }
        Ok(())
    }

    /// Resets a subject that has undone charges.
    fn reset_undone(&mut self, subject: usize) {
        if std::mem::take(&mut self.taken_back[subject]) {
            let bands = &self.bands[subject];
            ready(self.memory.reset(subject_of(subject), bands)).unwrap();
            self.redis.reset(subject, bands).unwrap();
        }
    }

    /// Records which subjects a request may have charged before another one
    /// denied: the order depends on which denied last.
    fn record_undone(&mut self, request: &Request, verdicts: &[Verdict]) {
        let passes = |subject: usize| {
            let mut asked = request.enforced.iter().zip(verdicts.chunks(BANDS));
            asked.all(|((of, _), verdicts)| *of != subject || verdicts.iter().all(Verdict::passes))
        };
        let subjects = request.enforced.iter().map(|(subject, _)| *subject);
        if !R::TAKES_BACK || !request.mode.takes() || subjects.clone().all(passes) {
            return;
        }
        for subject in subjects.filter(|subject| passes(*subject)) {
            self.taken_back[subject] = true;
        }
    }

    fn change(&mut self, change: &Change) {
        self.reset_undone(change.subject);
        let band = &mut self.numbers[change.subject][change.band];
        let old = band.clone();
        *band = change.numbers.clone();
        if change.adjusts {
            band.algorithm = old.algorithm;
            band.window_ms = old.window_ms;
            band.calendar = old.calendar;
        }
        self.make_bands();
    }

    fn decide(&mut self, requests: &[(Option<Change>, Request)]) -> Result<(), TestCaseError> {
        // If requests cannot share a call, each is planned by itself.
        if R::TAKES_BACK {
            for (change, request) in requests {
                if let Some(change) = change {
                    self.change(change);
                }
                let bands = self.bands.clone();
                let checks = self.checks(&bands, request);
                let units = first_cost(&checks);
                let memory = self.compare(&[checks])?;
                self.record_undone(request, &memory);
                self.record_charge(request, &bands, units, &memory);
            }
            return Ok(());
        }
        // Each request has the rules that it was planned with.
        let planned: Vec<_> = requests
            .iter()
            .map(|(change, request)| {
                if let Some(change) = change {
                    self.change(change);
                }
                (self.bands.clone(), request)
            })
            .collect();
        let batch: Vec<_> = planned
            .iter()
            .map(|(bands, request)| self.checks(bands, request))
            .collect();
        let units = batch.last().map_or(0, first_cost);
        let last = self.compare(&batch)?;
        drop(batch);
        if let Some((bands, request)) = planned.last() {
            self.record_charge(request, bands, units, &last);
        }
        Ok(())
    }

    /// Records the charge of a request of one subject.
    fn record_charge(
        &mut self,
        request: &Request,
        bands: &[Vec<Band>],
        units: u64,
        verdicts: &[Verdict],
    ) {
        let [(subject, _)] = &request.enforced[..] else {
            return;
        };
        let passes = verdicts.iter().take(BANDS).all(Verdict::passes);
        if !passes || !request.mode.takes() || units == 0 {
            return;
        }
        self.charges.push(Charge {
            subject: *subject,
            bands: bands[*subject].clone(),
            units,
            charged: verdicts.iter().take(BANDS).map(Charged::by).collect(),
        });
    }

    /// Lets both stores decide and returns the last verdicts.
    fn compare(&mut self, batch: &[Checks<'_>]) -> Result<Verdicts, TestCaseError> {
        let redis = self.redis.decide_all(&batch.iter().collect::<Vec<_>>());
        let mut last = Verdicts::new();
        for (checks, redis) in batch.iter().zip(redis) {
            last = self.memory.decide_now(checks);
            prop_assert_eq!(Ok(&last), redis.as_ref());
        }
        self.last = last.first().copied();
        Ok(last)
    }

    fn checks<'b>(&self, bands: &'b [Vec<Band>], request: &Request) -> Checks<'b> {
        let mut checks = Checks::new(request.mode);
        for (subject, cost) in &request.enforced {
            let units = self.cost(*subject, cost);
            checks.push(
                subject_of(*subject),
                &bands[*subject],
                units,
                Group::ENFORCED,
            );
        }
        for (index, (subject, cost)) in request.shadow.iter().enumerate() {
            let units = self.cost(*subject, cost);
            let group = Group::shadow(index);
            checks.push(subject_of(*subject), &bands[*subject], units, group);
        }
        checks
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
            Span::Reset(more) => {
                let reset = last.map(|last| last.reset_after);
                near(reset.unwrap_or_default().get(), more)
            }
        }
    }

    fn set(&mut self, now: u64) {
        self.now = now;
        self.clock.set(Timestamp::from_micros(now).unwrap());
    }
}

fn first_cost(checks: &Checks<'_>) -> u64 {
    checks.list().first().map_or(0, |check| check.cost)
}

pub(crate) fn subject_of(index: usize) -> Subject<'static> {
    const SUBJECTS: [&[u8]; 3] = [b"first", b"second}", b"\x00\xff%"];
    Subject {
        rule: RuleNumber::NONE,
        bytes: SUBJECTS[index],
    }
}

/// Runs this many sequences on rules with these numbers.
fn run(seed: u64, cases: u32, numbers: &BoxedStrategy<Numbers>) {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let config = Config {
        cases: crate::support::cases(cases),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let rules = prop::collection::vec(numbers.clone(), BANDS);
    let rules = prop::collection::vec(rules, SUBJECTS);
    let sequence = prop::collection::vec(step(numbers), 1..80);
    proptest!(config, |(start in start(), rules in rules, sequence in sequence)| {
        wire.clear();
        let clock = ManualClock::new(Timestamp::from_micros(start).unwrap());
        let redis = ScriptStore::on_clock(&wire, clock.clone());
        let mut world = World::new(redis, clock, start, rules);
        for step in &sequence {
            world.step(step)?;
        }
    });
}

#[test]
fn over_the_whole_domain() {
    run(1, 600, &all_numbers());
}

#[test]
fn with_rules_that_change() {
    run(2, 600, &few_numbers());
}

#[test]
fn with_calendars() {
    run(4, 300, &calendar_numbers());
}

#[test]
fn with_products_beyond_a_double() {
    run(3, 200, &wide_numbers());
}
