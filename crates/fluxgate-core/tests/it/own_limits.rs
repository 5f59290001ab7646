//! Limits that come with some requests of a call, beside rules for the others.

use std::time::Duration;

use fluxgate_core::{
    AdHocCheck, AdHocDecision, AdHocKey, Algorithm, Band, Decision, Limit, Limiter, ManualClock,
    MemoryStore, Outcome, RequestContext, RuleSets,
};

const RULES: &str = "
rule_sets:
  s:
    rules:
      - { id: no, action: deny, match: { user: eve } }
      - { id: free, action: allow, match: { user: fay } }
      - { id: dark, mode: shadow, scope: per_user, bands: [ { capacity: 100, window: 1h } ] }
      - { id: r, scope: per_user, on_missing_key: skip, algorithm: fixed_window, bands: [ { capacity: 3, window: 1h } ] }
      - { id: late, key: ['attr:late'], on_missing_key: skip, charge: always, bands: [ { capacity: 10, window: 1h } ] }
";

struct Calls {
    limiter: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
}

impl Calls {
    fn new() -> Self {
        let clock = ManualClock::default();
        let store = MemoryStore::with_clock(clock.clone());
        let limiter = Limiter::new(RuleSets::from_yaml(RULES).unwrap(), store);
        Self { limiter, clock }
    }

    /// Returns the decisions on these users, and on these own limits.
    async fn check(
        &self,
        users: &[&str],
        own: &[AdHocCheck],
    ) -> (Vec<Decision>, Vec<AdHocDecision>) {
        let contexts: Vec<_> = users
            .iter()
            .map(|user| RequestContext::builder().user(*user).build())
            .collect();
        self.limiter.check_all_with("s", &contexts, own).await
    }

    async fn left(&self, user: &str, rule: &str) -> u64 {
        let state = self.limiter.state("s", rule, &[user]).await.unwrap();
        state[0].remaining
    }
}

/// A limit per hour for a value, or one that allows nothing.
fn own(value: &str, limit: u64, cost: u64) -> AdHocCheck {
    let entries = [(&b"user"[..], value.as_bytes())];
    let limit = Limit::builder(Algorithm::FixedWindow, limit, Duration::from_secs(3600)).build();
    AdHocCheck {
        key: AdHocKey::descriptor("s", entries),
        band: limit.ok().map(|limit| Band::new("hour", limit)),
        cost,
    }
}

fn allowed(decisions: &(Vec<Decision>, Vec<AdHocDecision>)) -> (Vec<bool>, Vec<bool>) {
    let (rules, own) = decisions;
    let rules = rules.iter().map(Decision::allowed).collect();
    (rules, own.iter().map(|it| it.allowed).collect())
}

#[tokio::test]
async fn an_own_limit_decides_alone() {
    let calls = Calls::new();
    for remaining in [1, 0] {
        let (rules, decided) = calls.check(&[], &[own("ann", 2, 1)]).await;
        assert!(rules.is_empty());
        assert_eq!(decided[0].remaining, Some(remaining));
        assert_eq!(decided[0].outcome, Outcome::Allowed);
    }
    let (_, denied) = calls.check(&[], &[own("ann", 2, 1)]).await;
    assert_eq!(denied[0].outcome, Outcome::Denied);
    // Another value, another domain, and the rules are other counters.
    assert!(calls.check(&[], &[own("bob", 2, 1)]).await.1[0].allowed);
    let other = AdHocCheck {
        key: AdHocKey::descriptor("t", [(&b"user"[..], &b"ann"[..])]),
        ..own("ann", 2, 1)
    };
    assert!(calls.check(&[], &[other]).await.1[0].allowed);
    assert_eq!(calls.left("ann", "r").await, 3);
    // A higher limit with the same window counts what was counted.
    let (_, more) = calls.check(&[], &[own("ann", 3, 1)]).await;
    assert_eq!((more[0].allowed, more[0].remaining), (true, Some(0)));
    calls.clock.advance(Duration::from_secs(3600));
    assert!(calls.check(&[], &[own("ann", 2, 2)]).await.1[0].allowed);
}

#[tokio::test]
async fn rules_and_own_limits_are_charged_together_or_not_at_all() {
    let calls = Calls::new();
    let both = calls.check(&["ann"], &[own("x", 1, 1)]).await;
    assert_eq!(allowed(&both), (vec![true], vec![true]));
    assert_eq!(calls.left("ann", "r").await, 2);
    assert_eq!(calls.left("ann", "dark").await, 99);
    // The own limit denies: the rule is not charged, and the shadow rule is not decided.
    let both = calls.check(&["ann"], &[own("x", 1, 1)]).await;
    assert_eq!(allowed(&both), (vec![true], vec![false]));
    assert_eq!(calls.left("ann", "r").await, 2);
    assert_eq!(calls.left("ann", "dark").await, 99);
    assert!(both.0[0].rules().all(|(rule, _)| rule.id() != "dark"));
    // The rule denies: the own limit is not charged.
    for _ in 0..2 {
        assert_eq!(allowed(&calls.check(&["ann"], &[]).await).0, [true]);
    }
    for _ in 0..3 {
        let both = calls.check(&["ann"], &[own("y", 1, 1)]).await;
        assert_eq!(allowed(&both), (vec![false], vec![true]));
    }
    let free = calls.check(&["bob"], &[own("y", 1, 1)]).await;
    assert_eq!(allowed(&free), (vec![true], vec![true]));
    // Two checks of one call on one counter add up.
    let twice = calls.check(&[], &[own("z", 1, 1), own("z", 1, 1)]).await;
    assert_eq!(allowed(&twice).1, [true, false]);
    assert!(calls.check(&[], &[own("z", 1, 1)]).await.1[0].allowed);
}

#[tokio::test]
async fn a_limit_of_nothing_denies_the_whole_call() {
    let calls = Calls::new();
    let call = calls
        .check(&["ann"], &[own("x", 5, 1), own("y", 0, 1)])
        .await;
    assert_eq!(allowed(&call), (vec![true], vec![true, false]));
    assert_eq!(call.1[1].outcome, Outcome::Never);
    assert_eq!(calls.left("ann", "r").await, 3);
    let (_, left) = calls.check(&[], &[own("x", 5, 0)]).await;
    assert_eq!(left[0].remaining, Some(5));
    // Nothing is asked of it.
    let call = calls.check(&["ann"], &[own("y", 0, 0)]).await;
    assert_eq!(allowed(&call), (vec![true], vec![true]));
    assert_eq!(calls.left("ann", "r").await, 2);
    let alone = calls.check(&[], &[own("y", 0, 1)]).await;
    assert_eq!(allowed(&alone).1, [false]);
}

#[tokio::test]
async fn actions_and_posterior_charges_keep_their_meaning() {
    let calls = Calls::new();
    let call = calls.check(&["eve", "ann"], &[own("x", 1, 1)]).await;
    assert_eq!(call.0[0].outcome(), Outcome::Forbidden);
    assert_eq!(call.1[0].outcome, Outcome::NoRule);
    assert_eq!(calls.left("ann", "r").await, 3);
    let call = calls.check(&["fay"], &[own("x", 1, 1)]).await;
    assert_eq!(call.0[0].outcome(), Outcome::Exempt);
    assert!(call.1[0].allowed);
    assert!(!calls.check(&["fay"], &[own("x", 1, 1)]).await.1[0].allowed);
    // What is charged in any case is charged, although an own limit denies.
    let late = RequestContext::builder()
        .attribute("late", "a")
        .cost(4)
        .build();
    for refused in [own("x", 1, 1), own("y", 0, 1)] {
        let contexts = [late.clone()];
        let (_, decided) = calls
            .limiter
            .check_all_with("s", &contexts, &[refused])
            .await;
        assert!(!decided[0].allowed);
    }
    assert_eq!(calls.left("a", "late").await, 2);
}

/// A call in which every request has its own limit needs no rule set.
#[tokio::test]
async fn own_limits_need_no_rules() {
    let calls = Calls::new();
    let call = |users: &'static [&'static str]| {
        let contexts: Vec<_> = users
            .iter()
            .map(|user| RequestContext::builder().user(*user).build())
            .collect();
        let limiter = calls.limiter.clone();
        async move {
            limiter
                .check_all_with("none", &contexts, &[own("x", 2, 1)])
                .await
        }
    };
    let (rules, decided) = call(&[]).await;
    assert_eq!((rules.len(), decided[0].remaining), (0, Some(1)));
    let (rules, decided) = call(&["ann", "bob"]).await;
    assert!(rules.iter().all(|it| it.outcome() == Outcome::NoRule));
    assert_eq!((rules.len(), decided[0].remaining), (2, Some(0)));
    assert!(!call(&[]).await.1[0].allowed);
}
