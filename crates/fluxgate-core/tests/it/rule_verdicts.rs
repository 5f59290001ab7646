//! The verdicts of single rules, and the same rules with other limits.

use std::time::Duration;

use fluxgate_core::memory::Retention;
use fluxgate_core::{
    Algorithm, Limit, Limiter, ManualClock, MemoryStore, RequestContext, RuleSets,
};

use crate::support::{SECOND, START, instant, set_of};

fn limiter(rules: RuleSets) -> Limiter<MemoryStore<ManualClock>> {
    let store = MemoryStore::new(ManualClock::default(), usize::MAX, Retention::Forever);
    Limiter::new(rules, store)
}

/// Returns the id, whether it denies, and the delay of each rule that was decided.
fn verdicts(limiter: &Limiter<MemoryStore<ManualClock>>) -> Vec<(String, bool, u64)> {
    let mut verdicts = Vec::new();
    let context = RequestContext::builder().user("ann").build();
    let _ = limiter.check_at_reporting("s", &context, instant(START), |verdict| {
        assert!(verdict.identity.is_some());
        verdicts.push((
            verdict.rule.id().to_owned(),
            verdict.denied,
            verdict.delay.get(),
        ));
    });
    verdicts
}

#[test]
fn each_rule_reports_its_own_delay_if_the_request_passes() {
    let limiter = limiter(
        RuleSets::from_yaml(&set_of(
            "{ id: gate, scope: global, algorithm: fixed_window, bands: [{ capacity: 3, window: 1h }] },
             { id: queue, scope: per_user, algorithm: leaky_bucket, shape: true,
               bands: [{ capacity: 5, window: 5s }, { capacity: 10, window: 5s }] },
             { id: try, mode: shadow, scope: global, on_exceed: wait, bands: [{ capacity: 1, window: 1s }] }",
        ))
        .unwrap(),
    );
    let verdict = |rule: &str, refused, delay| (rule.to_owned(), refused, delay);
    for queued in 0..3 {
        let expected = [
            verdict("gate", false, 0),
            verdict("queue", false, queued * SECOND),
            // It would make the request wait, but it is not enforced.
            verdict("try", false, 0),
        ];
        assert_eq!(verdicts(&limiter), expected);
    }
    // A request that one rule denies does not wait; shadow rules are not decided.
    let expected = [verdict("gate", true, 0), verdict("queue", false, 0)];
    assert_eq!(verdicts(&limiter), expected);
}

#[test]
fn limits_change_for_every_band_of_a_rule_or_for_none() {
    let rules = RuleSets::from_yaml(&set_of(
        "{ id: a, scope: per_user, bands: [{ capacity: 5, window: 1s }],
           overrides: [{ identity: ann, bands: [{ capacity: 9, window: 1s }] }] },
         { id: b, scope: per_user, bands: [{ capacity: 5, window: 1s }, { capacity: 6, window: 1s }] }",
    ))
    .unwrap();
    let mut asked = Vec::new();
    let changed = rules.with_limits(|set, rule, limit| {
        asked.push(format!("{}/{} {}", set.name(), rule.id(), limit.capacity()));
        let log = Limit::builder(Algorithm::SlidingLog, 1, Duration::from_secs(1));
        (limit.capacity() != 6).then(|| log.build().unwrap())
    });
    assert_eq!(asked, ["s/a 5", "s/a 9", "s/b 5", "s/b 6"]);
    let algorithms = |rules: &RuleSets| {
        let rules = rules.get("s").unwrap().rules().iter();
        let bands = rules.flat_map(|rule| rule.bands());
        bands
            .map(|band| band.limit().algorithm())
            .collect::<Vec<_>>()
    };
    let [log, bucket] = [Algorithm::SlidingLog, Algorithm::TokenBucket];
    assert_eq!(algorithms(&changed), [log, bucket, bucket]);
    assert_eq!(algorithms(&rules), [bucket; 3]);
    // The override has changed too.
    let limiter = limiter(changed);
    let context = RequestContext::builder().user("ann").build();
    let refused = |_| !limiter.check_at("s", &context, instant(START)).allowed();
    assert_eq!([0, 1].map(refused), [false, true]);
}
