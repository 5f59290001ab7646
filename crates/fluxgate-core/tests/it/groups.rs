//! Groups, where only the first rule that matches applies, and rules that are enforced for a
//! share of identities.

use fluxgate_core::{Decision, RequestContext};

use crate::support::{Gate, fields, set_of, violated};

/// Returns the rules that were evaluated, in order.
fn applied(decision: &Decision) -> Vec<String> {
    decision.rules().map(|(rule, _)| rule.id().into()).collect()
}

const BANDS: &str = "bands: [1000/h]";

fn tiers() -> Gate {
    Gate::new(&set_of(&format!(
        "{{ id: enterprise, group: plan, scope: per_user, match: {{ attributes: {{ plan: enterprise }} }}, {BANDS} }},
         {{ id: pro, group: plan, scope: per_user, match: {{ attributes: {{ plan: [pro, team] }} }}, {BANDS} }},
         {{ id: others, group: plan, scope: per_user, {BANDS} }},
         {{ id: all, scope: global, {BANDS} }}"
    )))
}

#[test]
fn the_first_rule_of_a_group_applies() {
    let gate = tiers();
    for (plan, rule) in [
        (Some("enterprise"), "enterprise"),
        (Some("pro"), "pro"),
        (Some("team"), "pro"),
        (Some("porpoise"), "others"),
        (Some(""), "others"),
        (None, "others"),
    ] {
        let mut context = RequestContext::builder().user("ann");
        if let Some(plan) = plan {
            context = context.attribute("plan", plan);
        }
        assert_eq!(
            applied(&gate.check(&context.build())),
            [rule, "all"],
            "{plan:?}"
        );
    }
}

#[test]
fn a_rule_of_a_group_that_lacks_its_key_does_not_match() {
    let gate = Gate::new(&set_of(&format!(
        "{{ id: by-user, group: g, scope: per_user, on_missing_key: skip, {BANDS} }},
         {{ id: by-key, group: g, scope: per_api_key, on_missing_key: deny, {BANDS} }},
         {{ id: others, group: g, scope: global, {BANDS} }}"
    )));
    let ann = RequestContext::builder().user("ann").build();
    assert_eq!(applied(&gate.check(&ann)), ["by-user"]);
    let decision = gate.check(&RequestContext::default());
    assert_eq!(violated(&decision), ["by-key/missing_key"]);
    assert_eq!(applied(&decision), ["by-key"]);
}

#[test]
fn the_order_of_a_group_is_that_of_evaluation() {
    let gate = Gate::new(&set_of(&format!(
        "{{ id: a, group: g, scope: global, {BANDS} }},
         {{ id: b, group: g, scope: global, priority: 50, {BANDS} }},
         {{ id: c, group: other, scope: global, {BANDS} }},
         {{ id: d, group: g, scope: global, priority: 10, enabled: false, {BANDS} }},
         {{ id: e, group: g, scope: global, priority: 20, match: {{ not_path: [\"/**\"] }}, {BANDS} }}"
    )));
    let at_path = RequestContext::builder().path("/x").build();
    assert_eq!(applied(&gate.check(&at_path)), ["b", "c"]);
}

/// A stricter tier on trial: the shadow rules have a first one of their own.
#[test]
fn shadow_rules_of_a_group_are_chosen_by_themselves() {
    let gate = Gate::new(&set_of(
        "{ id: strict, mode: shadow, group: g, scope: global, bands: [1/h] },
         { id: stricter, mode: shadow, group: g, scope: global, bands: [1/d] },
         { id: now, group: g, scope: global, bands: [1000/h] },
         { id: never, group: g, scope: global, bands: [1/h] }",
    ));
    assert_eq!(fields(&gate.take(1)).outcome, "allowed");
    let second = gate.take(1);
    assert_eq!(fields(&second).outcome, "shadow_denied");
    assert_eq!(violated(&second), ["strict/b0"]);
    assert_eq!(gate.keys(), 2, "only the first ones count");
}

/// Returns which of 1,000 users a rule with this share denies.
fn denied(rollout: &str) -> Vec<bool> {
    let gate = Gate::new(&set_of(&format!(
        "{{ id: r, scope: per_user, rollout: {rollout}, bands: [1/h] }}"
    )));
    (0..1_000)
        .map(|user| {
            let user = format!("user-{user}");
            assert!(gate.user(&user).allowed());
            let second = gate.user(&user);
            assert_ne!(second.allowed(), fields(&second).outcome == "denied");
            if second.allowed() {
                assert_eq!(fields(&second).outcome, "shadow_denied");
            }
            !second.allowed()
        })
        .collect()
}

#[test]
fn a_rollout_enforces_for_its_share_and_only_adds() {
    let shares = ["0%", "0.5%", "10%", "50%", "99.99%", "100%"].map(denied);
    let counts = shares
        .each_ref()
        .map(|share| share.iter().filter(|it| **it).count());
    assert_eq!((counts[0], counts[5]), (0, 1_000));
    assert!((70..130).contains(&counts[2]), "{counts:?}");
    assert!((450..550).contains(&counts[3]), "{counts:?}");
    for (fewer, more) in shares.iter().zip(&shares[1..]) {
        let lost = fewer
            .iter()
            .zip(more)
            .filter(|(before, after)| **before && !**after);
        assert_eq!(lost.count(), 0);
    }
}

/// Those that the new rule is not enforced for keep the old one.
#[test]
fn a_group_falls_back_where_a_rollout_has_not_arrived() {
    let gate = Gate::new(&set_of(
        "{ id: new, group: g, scope: per_user, rollout: 50%, bands: [1/h] },
         { id: old, group: g, scope: per_user, bands: [1000/h] }",
    ));
    let (mut by_new, mut by_old) = (0, 0);
    for user in 0..100 {
        let user = format!("user-{user}");
        let decision = gate.user(&user);
        let enforced = decision.rule().map(|rule| rule.id().to_owned()).unwrap();
        let second = fields(&gate.user(&user)).outcome;
        match &*enforced {
            "new" => {
                by_new += 1;
                assert_eq!(second, "denied");
            }
            _ => {
                by_old += 1;
                assert_eq!(second, "shadow_denied");
            }
        }
    }
    assert!(by_new > 30 && by_old > 30, "{by_new} and {by_old}");
}

#[test]
fn a_shadow_rule_stays_one_whatever_its_rollout() {
    let gate = Gate::new(&set_of(
        "{ id: r, mode: shadow, scope: per_user, rollout: 100%, bands: [1/h] }",
    ));
    assert!(gate.user("ann").allowed());
    assert_eq!(fields(&gate.user("ann")).outcome, "shadow_denied");
}

/// Such a charge is made with the head of a request only, and released before the real one.
#[test]
fn a_provisional_charge_leaves_out_what_cannot_be_returned() {
    let gate = Gate::new(&set_of(&format!(
        "{{ id: slots, scope: per_user, algorithm: concurrency, bands: [ {{ capacity: 1 }} ] }},
         {{ id: requests, scope: per_user, {BANDS} }},
         {{ id: tokens, group: g, scope: per_user, cost: 'llm:total_tokens', {BANDS} }},
         {{ id: hidden, group: g, scope: per_user, {BANDS} }},
         {{ id: paced, scope: per_user, on_exceed: wait, {BANDS} }},
         {{ id: late, scope: per_user, charge: always, {BANDS} }},
         {{ id: shadow, scope: per_user, mode: shadow, {BANDS} }}"
    )));
    let context = || RequestContext::builder().user("ann").held();
    let first = gate.check(&context().provisional().build());
    assert!(first.allowed() && first.hold().is_some());
    assert_eq!(applied(&first), ["slots", "requests"]);
    let second = gate.check(&context().provisional().build());
    assert_eq!(violated(&second), ["slots/b0"]);
    let real = gate.check(&context().build());
    assert_eq!(violated(&real), ["slots/b0"]);
}
