//! The whole store on a cluster next to the memory store: rules in different
//! slots are decided as if they were in one slot.

use std::cell::RefCell;

use fluxgate_core::store::{Checks, Verdicts};
use fluxgate_core::{Band, ManualClock, Store, StoreError, Timestamp};
use fluxgate_redis::RedisStore;
use fluxgate_testkit::{RedisCluster, hash_slot_of};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tokio::runtime::{Builder, Runtime};

use crate::differential::{Beside, Charge, World, subject_of};
use crate::sequences::{
    BANDS, Numbers, SUBJECTS, all_numbers, few_numbers, start, step, wide_numbers,
};
use crate::support::patient;

struct OnCluster<'r> {
    runtime: &'r Runtime,
    store: &'r RedisStore,
}

impl Beside for OnCluster<'_> {
    const TAKES_BACK: bool = true;

    fn decide_all(&self, batch: &[&Checks<'_>]) -> Vec<Result<Verdicts, StoreError>> {
        let decide = |checks: &&Checks<'_>| self.runtime.block_on(self.store.decide(checks));
        batch.iter().map(decide).collect()
    }

    fn refund(&self, subject: usize, bands: &[Band], units: u64) -> Result<Verdicts, StoreError> {
        let refund = self.store.refund(subject_of(subject), bands, units);
        self.runtime.block_on(refund)
    }

    fn cancel(&self, charge: &Charge) -> Result<(), StoreError> {
        let subject = subject_of(charge.subject);
        let (bands, charged) = (&charge.bands, &charge.charged);
        let cancel = Store::cancel(self.store, subject, bands, charge.units, charged);
        self.runtime.block_on(cancel)
    }

    fn reset(&self, subject: usize, bands: &[Band]) -> Result<u64, StoreError> {
        let reset = self.store.reset(subject_of(subject), bands);
        self.runtime.block_on(reset)
    }
}

fn run(seed: u64, cases: u32, numbers: &BoxedStrategy<Numbers>) {
    let cluster = RedisCluster::start(3);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let clock = ManualClock::new(Timestamp::from_micros(0).unwrap());
    let store = patient(cluster.urls()).near_cache(false);
    let store = store.injected_clock(clock.clone()).connect();
    let store = runtime.block_on(store).unwrap();
    let nodes = cluster.nodes().iter().map(|node| RefCell::new(node.cli()));
    let nodes: Vec<_> = nodes.collect();
    let config = Config {
        cases: crate::support::cases(cases),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let rules = prop::collection::vec(numbers.clone(), BANDS);
    let rules = prop::collection::vec(rules, SUBJECTS);
    let sequence = prop::collection::vec(step(numbers), 1..60);
    let mut runner = TestRunner::new(config);
    let result = runner.run(&(start(), rules, sequence), |(start, rules, sequence)| {
        for node in &nodes {
            let flush = ["FLUSHALL", "SYNC"];
            node.borrow_mut().command(&flush).expect_ok();
        }
        let (runtime, store) = (&runtime, &store);
        let mut world = World::new(OnCluster { runtime, store }, clock.clone(), start, rules);
        for step in &sequence {
            world.step(step)?;
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn the_subjects_are_in_different_slots() {
    let tags: [&[u8]; SUBJECTS] = [b"2~first", b"2~second%)", b"2~\x00\xff%%"];
    let slots = tags.map(hash_slot_of);
    assert!(slots[0] != slots[1] && slots[1] != slots[2] && slots[2] != slots[0]);
}

#[test]
fn over_the_whole_domain() {
    run(11, 300, &all_numbers());
}

#[test]
fn with_rules_that_change() {
    run(12, 300, &few_numbers());
}

#[test]
fn with_products_beyond_a_double() {
    run(13, 100, &wide_numbers());
}
