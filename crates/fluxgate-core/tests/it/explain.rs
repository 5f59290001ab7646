//! Why a request is decided as it is.

use std::time::Duration;

use fluxgate_core::task::ready;
use fluxgate_core::{Explanation, LimiterError, RequestContext, RuleExplanation, RuleMode};

use crate::support::{Gate, fields, set_of};

fn explain(gate: &Gate, context: &RequestContext<'_>) -> Explanation {
    ready(gate.limiter.explain("s", context)).unwrap()
}

fn rule<'e>(explanation: &'e Explanation, id: &str) -> &'e RuleExplanation {
    let mut rules = explanation.rules.iter();
    rules.find(|rule| rule.rule == id).unwrap()
}

#[test]
fn each_part_of_a_match_is_named() {
    let rules = [
        ("path", "match: { path: [\"/api/**\"] }"),
        ("not_path", "match: { not_path: [\"/x/**\"] }"),
        ("methods", "match: { methods: [POST] }"),
        ("headers.x-a", "match: { headers: { X-A: \"2\" } }"),
        (
            "headers.x-b",
            "match: { headers: { X-B: { present: true } } }",
        ),
        (
            "attributes.plan",
            "match: { attributes: { plan: { not: [free, pro] } } }",
        ),
        ("ip", "match: { ip: [192.0.2.0/24] }"),
        ("not_ip", "match: { not_ip: [10.0.0.0/8] }"),
        ("enabled", "enabled: false"),
        (
            "",
            "match: { path: [\"/x/**\"], methods: [GET, POST], headers: { X-A: [\"1\", \"2\"] } }",
        ),
    ];
    let written = rules.iter().enumerate().map(|(id, (_, matches))| {
        format!("{{ id: r{id}, scope: global, {matches}, bands: [10/s] }}")
    });
    let skips = "{ id: skips, scope: per_user, on_missing_key: skip, bands: [10/s] }";
    let written: Vec<_> = written.chain([skips.to_owned()]).collect();
    let gate = Gate::new(&set_of(&written.join(", ")));
    let context = RequestContext::builder()
        .path("/x/y")
        .method("GET")
        .ip([10, 0, 0, 1])
        .header("x-a", "1")
        .attribute("plan", "free");
    let explanation = explain(&gate, &context.build());
    for (id, (failed, _)) in rules.iter().enumerate() {
        let explained = rule(&explanation, &format!("r{id}"));
        assert_eq!(explained.failed.as_deref().unwrap_or(""), *failed);
        assert_eq!(explained.applies, failed.is_empty());
        assert_eq!(explained.bands.len(), usize::from(failed.is_empty()));
    }
    assert_eq!(rule(&explanation, "skips").failed.as_deref(), Some("key"));
    assert_eq!(explanation.rules.len(), rules.len() + 1);
}

#[test]
fn bands_are_shown_before_and_after_and_nothing_is_charged() {
    let gate = Gate::new(&set_of(
        "{ id: r, scope: per_user, cost: 3, bands: [ { id: a, capacity: 10, window: 10s }, { id: b, capacity: 5, window: 1h } ] },
         { id: dark, mode: shadow, scope: per_user, bands: [1/h] }",
    ));
    let ann = RequestContext::builder().user("ann").build();
    for _ in 0..2 {
        let explanation = explain(&gate, &ann);
        assert_eq!(
            fields(&explanation.decision),
            fields(&Gate::check(&fresh(), &ann))
        );
        let explained = rule(&explanation, "r");
        assert_eq!(explained.identity.as_deref(), Some("user=ann"));
        let left = |band: usize| {
            let band = &explained.bands[band];
            (band.before.remaining, band.after.remaining, band.denies)
        };
        assert_eq!((left(0), left(1)), ((10, 7, false), (5, 2, false)));
        let after = &explained.bands[0].after;
        assert_eq!(after.reset_after, Duration::from_secs(3));
        assert_eq!(rule(&explanation, "dark").mode, RuleMode::Shadow);
        assert_eq!(rule(&explanation, "dark").bands[0].after.remaining, 0);
    }
    assert_eq!(gate.keys(), 0);
    assert!(gate.check(&ann).allowed());
    let explanation = explain(&gate, &ann);
    assert!(!explanation.decision.allowed());
    let explained = rule(&explanation, "r");
    let denies: Vec<_> = explained.bands.iter().map(|band| band.denies).collect();
    assert_eq!(denies, [false, true]);
    for band in &explained.bands {
        assert_eq!(band.before.remaining, band.after.remaining, "not charged");
    }
    assert!(!rule(&explanation, "dark").bands[0].denies, "not decided");
}

/// The limiter of the test above, without any state.
fn fresh() -> Gate {
    Gate::new(&set_of(
        "{ id: r, scope: per_user, cost: 3, bands: [ { id: a, capacity: 10, window: 10s }, { id: b, capacity: 5, window: 1h } ] },
         { id: dark, mode: shadow, scope: per_user, bands: [1/h] }",
    ))
}

#[test]
fn groups_and_rollouts_are_explained() {
    let gate = Gate::new(&set_of(
        "{ id: pro, group: plan, scope: per_user, match: { attributes: { plan: pro } }, bands: [10/s] },
         { id: trial, group: plan, scope: per_user, rollout: 0%, bands: [1/s] },
         { id: others, group: plan, scope: per_user, bands: [5/s] },
         { id: last, group: plan, scope: per_user, bands: [5/s] }",
    ));
    let ann = RequestContext::builder().user("ann").build();
    let explanation = explain(&gate, &ann);
    let place = |id: &str| {
        let explained = rule(&explanation, id);
        let group = explained.group.as_ref().unwrap();
        (
            group.name.as_str(),
            group.place,
            explained.applies,
            group.instead.as_deref(),
        )
    };
    assert_eq!(place("pro"), ("plan", 1, false, None));
    assert_eq!(place("trial"), ("plan", 2, true, None));
    assert_eq!(place("others"), ("plan", 3, true, None));
    assert_eq!(place("last"), ("plan", 4, false, Some("others")));
    let trial = rule(&explanation, "trial");
    assert_eq!(trial.mode, RuleMode::Shadow);
    assert_eq!(trial.rollout.unwrap().to_string(), "0%");
}

#[test]
fn an_unknown_rule_set_is_an_error() {
    let gate = fresh();
    let error = ready(gate.limiter.explain("t", &RequestContext::default()));
    assert!(matches!(error, Err(LimiterError::UnknownRuleSet(_))));
}
