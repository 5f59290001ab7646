//! Grants of the script next to those of the core: the same sequences at the same instants,
//! and no difference in any number.

use fluxgate_core::algorithm::{
    Cell, Grant, GrantReport, LeaseRequest, Outstanding, balance_of, grant,
};
use fluxgate_core::key::RuleNumber;
use fluxgate_core::store::{Checks, Group, Mode, Subject};
use fluxgate_core::task::ready;
use fluxgate_core::{Band, ManualClock, Store, Timestamp};
use fluxgate_redis::injected_time::ScriptStore;
use fluxgate_testkit::RedisServer;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use crate::support::{is_long, rules};
use crate::wire::Wire;

const SUBJECT: Subject<'static> = Subject {
    rule: RuleNumber::NONE,
    bytes: b"ann",
};

#[derive(Clone, Debug)]
enum Step {
    Pass(i64),
    Decide(u64),
    /// Requests units, and reports for some earlier grants, by number, how many units were spent
    /// and returned.
    Lease(u32, Vec<(usize, u32, u32)>),
}

fn step() -> impl Strategy<Value = Step> {
    let micros = prop_oneof![
        8 => 0_i64..400_000,
        2 => 0_i64..3_000_000,
        1 => -2_000_000_i64..0,
        1 => Just(-3_600_000_000),
        1 => Just(86_400_000_000),
    ];
    let reports = prop::collection::vec((0_usize..6, 0_u32..12, 0_u32..12), 0..4);
    prop_oneof![
        3 => micros.prop_map(Step::Pass),
        2 => (0_u64..9).prop_map(Step::Decide),
        5 => (0_u32..70, reports).prop_map(|(want, reports)| Step::Lease(want, reports)),
    ]
}

fn band() -> impl Strategy<Value = Band> {
    let bucket = (2_u64..90, 1_u64..50, 1_u64..3000).prop_map(|(capacity, refill, millis)| {
        format!("algorithm: token_bucket, bands: [ {{ capacity: {capacity}, window: 1s, refill: {refill}, period: {millis}ms }} ]")
    });
    let window = (4_u64..90, 1_u64..3000).prop_map(|(capacity, millis)| {
        format!(
            "algorithm: fixed_window, bands: [ {{ capacity: {capacity}, window: {millis}ms }} ]"
        )
    });
    let calendar = (4_u64..90).prop_map(|capacity| {
        format!("algorithm: fixed_window, bands: [ {{ capacity: {capacity}, calendar: day }} ]")
    });
    let limit = prop_oneof![3 => bucket, 2 => window, 1 => calendar];
    let share = prop_oneof![Just("10%"), Just("50%"), Just("1%")];
    (limit, share, prop_oneof![Just("100ms"), Just("1s"), Just("101ms")]).prop_filter_map(
        "the band is leased",
        |(limit, share, span)| {
            let rules = rules(&format!(
                "rule_sets: {{ s: {{ rules: [ {{ id: r, scope: global, {limit}, lease: {{ share: {share}, for: {span} }} }} ] }} }}"
            ));
            let band = rules.get("s").unwrap().rules()[0].bands()[0].clone();
            band.lease().is_some().then_some(band)
        },
    )
}

/// Runs a sequence on the script and on the core.
fn compare(wire: &Wire, band: &Band, steps: &[Step]) {
    wire.clear();
    let lease = band.lease().unwrap();
    let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_123_456).unwrap());
    let store = ScriptStore::on_clock(wire, clock.clone());
    let (mut cell, mut outstanding) = (None, Outstanding::default());
    let mut grants: Vec<Grant> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let now = fluxgate_core::Clock::now(&clock);
        match step {
            Step::Pass(micros) => {
                let now = now.micros().saturating_add_signed(*micros);
                clock.set(Timestamp::from_micros(now).unwrap());
            }
            Step::Decide(cost) => {
                let mut checks = Checks::new(Mode::Take);
                checks.push(SUBJECT, std::slice::from_ref(band), *cost, Group::ENFORCED);
                let verdict = ready(store.decide(&checks)).unwrap()[0];
                let assessed = Cell::assess(lease.shared(), cell, now, *cost, Mode::Take);
                assert_eq!(verdict, assessed.verdict, "step {number}");
                cell = assessed.to_write().copied().or(cell);
            }
            Step::Lease(want, reports) => {
                let report = |(grant, spent, returned): &(usize, u32, u32)| {
                    let known = grants.iter().rev().nth(*grant);
                    GrantReport {
                        ends: known.map_or(now.micros() + 1, |grant| grant.ends),
                        spent: *spent,
                        returned: *returned,
                    }
                };
                let request = LeaseRequest::new(*want, reports.iter().map(report));
                let (granted, after) = grant(lease, cell, &mut outstanding, now, &request);
                cell = after;
                let left = balance_of(lease.shared(), cell, now);
                let reply = store.lease(SUBJECT, band, &request).unwrap();
                assert_eq!(
                    (reply.grant, reply.balance),
                    (granted, left),
                    "step {number}: {request:?}"
                );
                assert!(
                    u64::from(granted.outstanding) <= lease.most(),
                    "step {number}"
                );
                grants.push(granted);
            }
        }
    }
}

#[test]
fn the_script_grants_what_the_core_grants() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let config = Config {
        cases: if is_long() { 3000 } else { 300 },
        rng_seed: RngSeed::Fixed(17),
        failure_persistence: None,
        ..Config::default()
    };
    let sequences = (band(), prop::collection::vec(step(), 1..60));
    proptest!(config, |((band, steps) in sequences)| {
        compare(&wire, &band, &steps);
    });
}
