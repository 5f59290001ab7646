//! The script beside the memory store: the same sequences at the same instants,
//! and no difference in any field of any verdict.

use fluxgate_core::memory::Retention;
use fluxgate_core::{
    Band, Checks, Group, ManualClock, MemoryStore, Mode, RuleNumber, Store, Subject, Timestamp,
    Verdict, ready,
};
use fluxgate_redis::injected_time::ScriptStore;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use crate::sequences::{
    BANDS, Change, Cost, LATEST, Numbers, Request, SUBJECTS, Span, Step, all_numbers, few_numbers,
    start, step, wide_numbers,
};
use crate::server::{RedisServer, Wire};

const NAMES: [&str; BANDS] = ["burst", "b1"];

/// Both stores, and the rules in force.
struct World<'w> {
    clock: ManualClock,
    now: u64,
    memory: MemoryStore<ManualClock>,
    redis: ScriptStore<&'w Wire, ManualClock>,
    numbers: Vec<Vec<Numbers>>,
    bands: Vec<Vec<Band>>,
    /// What the last verdict of the first subject said.
    last: Option<Verdict>,
}

impl<'w> World<'w> {
    fn new(wire: &'w Wire, start: u64, numbers: Vec<Vec<Numbers>>) -> Self {
        wire.clear();
        let clock = ManualClock::new(Timestamp::from_micros(start).unwrap());
        let mut world = Self {
            memory: MemoryStore::new(clock.clone(), 1_000, Retention::Forever),
            redis: ScriptStore::on_clock(wire, clock.clone()),
            clock,
            now: start,
            numbers,
            bands: Vec::new(),
            last: None,
        };
        world.make_bands();
        world
    }

    fn make_bands(&mut self) {
        let subjects = self.numbers.iter();
        self.bands = subjects
            .map(|numbers| {
                let bands = NAMES.iter().zip(numbers);
                bands
                    .map(|(name, numbers)| Band::new(name, numbers.limit()))
                    .collect()
            })
            .collect();
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Forward(span) => self.set((self.now + self.span(span)).min(LATEST)),
            Step::Back(span) => self.set(self.now.saturating_sub(self.span(span))),
            Step::Decide(requests) => return self.decide(requests),
            Step::Refund(subject, cost) => {
                let units = self.cost(*subject, cost);
                let bands = &self.bands[*subject];
                let memory = ready(self.memory.refund(subject_of(*subject), bands, units));
                let redis = ready(self.redis.refund(subject_of(*subject), bands, units));
                prop_assert_eq!(memory, redis);
            }
            Step::Reset(subject) => {
                let bands = &self.bands[*subject];
                let memory = ready(self.memory.reset(subject_of(*subject), bands));
                let redis = ready(self.redis.reset(subject_of(*subject), bands));
                prop_assert_eq!(memory, redis);
            }
            Step::Change(change) => self.change(change),
        }
        Ok(())
    }

    fn change(&mut self, change: &Change) {
        let band = &mut self.numbers[change.subject][change.band];
        let old = band.clone();
        *band = change.numbers.clone();
        if change.adjusts {
            band.algorithm = old.algorithm;
            band.window_ms = old.window_ms;
        }
        self.make_bands();
    }

    fn decide(&mut self, requests: &[(Option<Change>, Request)]) -> Result<(), TestCaseError> {
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
        let redis = match &batch[..] {
            [single] => vec![ready(self.redis.decide(single))],
            batch => {
                let all = self.redis.decide_all(&batch.iter().collect::<Vec<_>>());
                all.map_err(|error| TestCaseError::fail(error.to_string()))?
            }
        };
        let mut last = None;
        for (checks, redis) in batch.iter().zip(redis) {
            let memory = self.memory.decide_now(checks);
            prop_assert_eq!(Ok(&memory), redis.as_ref());
            last = memory.first().copied();
        }
        self.last = last;
        Ok(())
    }

    fn checks<'b>(&self, bands: &'b [Vec<Band>], request: &Request) -> Checks<'b> {
        let mode = if request.takes {
            Mode::Take
        } else {
            Mode::Peek
        };
        let mut checks = Checks::new(mode);
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
            Cost::Left(more) => self.last.map_or(1, |last| last.remaining) + more,
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

fn subject_of(index: usize) -> Subject<'static> {
    const SUBJECTS: [&[u8]; 3] = [b"first", b"second}", b"\x00\xff%"];
    Subject {
        rule: RuleNumber::NONE,
        bytes: SUBJECTS[index],
    }
}

/// Runs so many sequences on rules of these numbers.
fn run(seed: u64, cases: u32, numbers: &BoxedStrategy<Numbers>) {
    let server = RedisServer::start();
    let wire = server.connect();
    let config = Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let rules = prop::collection::vec(numbers.clone(), BANDS);
    let rules = prop::collection::vec(rules, SUBJECTS);
    let sequence = prop::collection::vec(step(numbers), 1..80);
    proptest!(config, |(start in start(), rules in rules, sequence in sequence)| {
        let mut world = World::new(&wire, start, rules);
        for step in &sequence {
            world.step(step)?;
        }
    });
}

#[test]
fn over_the_whole_domain() {
    run(1, 1_200, &all_numbers());
}

#[test]
fn with_rules_that_change_to_and_fro() {
    run(2, 1_200, &few_numbers());
}

#[test]
fn where_no_product_fits_into_a_double() {
    run(3, 400, &wide_numbers());
}
