//! Rules that decide by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::task::ready;
use fluxgate_core::{
    Decision, Limiter, LimiterError, Observer, RequestContext, Rule, RuleAction, RuleSet, RuleSets,
    ValueMatch,
};

use crate::rules::rule_refused;
use crate::store_failures::Fragile;
use crate::support::{DecisionFields, Gate, fields, parse, set_of, violated};

const LIMIT: &str = "{ id: limit, scope: per_user, bands: [10/m] }";

fn forbidden(rule: &str) -> DecisionFields {
    DecisionFields {
        allowed: false,
        outcome: "forbidden",
        rule: Some(rule.into()),
        band: None,
        limit: None,
        remaining: Some(0),
        retry: None,
        reset: 0,
        delay: 0,
        violated: vec![format!("{rule}/deny")],
    }
}

fn exempt(rule: &str) -> DecisionFields {
    DecisionFields {
        allowed: true,
        outcome: "exempt",
        rule: Some(rule.into()),
        band: None,
        limit: None,
        remaining: None,
        retry: Some(0),
        reset: 0,
        delay: 0,
        violated: vec![],
    }
}

fn context<'a>(user: &'a str) -> RequestContext<'a> {
    RequestContext::builder().user(user).build()
}

#[test]
fn a_rule_that_denies_decides_before_every_limit_and_charges_nothing() {
    let rules = set_of(&format!(
        "{LIMIT}, {{ id: blocked, action: deny, match: {{ user: [eve, mallory] }} }}, \
         {{ id: seen, scope: per_user, mode: shadow, bands: [1/h] }}"
    ));
    let gate = Gate::new(&rules);
    for cost in [None, Some(0), Some(1), Some(1_000)] {
        let mut eve = RequestContext::builder().user("eve");
        if let Some(cost) = cost {
            eve = eve.cost(cost);
        }
        let eve = eve.build();
        let decision = gate.check(&eve);
        assert_eq!(fields(&decision), forbidden("blocked"));
        assert_eq!(decision.forbidden_status(), Some(403));
        assert_eq!(decision.worth_waiting(), None);
        let decided: Vec<_> = decision
            .rules()
            .map(|(rule, denies)| (rule.id(), denies))
            .collect();
        assert_eq!(decided, [("blocked", true)], "no other rule is decided");
        assert_eq!(fields(&gate.peek(&eve)), forbidden("blocked"));
        assert_eq!(
            fields(&gate.limiter.check_sync("s", &eve)),
            forbidden("blocked")
        );
    }
    assert_eq!(gate.keys(), 0);
    assert_eq!(gate.user("ann").remaining(), Some(9));
}

#[test]
fn a_rule_that_allows_decides_before_every_limit_and_charges_nothing() {
    let rules = set_of(&format!(
        "{LIMIT}, {{ id: office, action: allow, match: {{ ip: [192.0.2.0/24] }} }}"
    ));
    let gate = Gate::new(&rules);
    let office = RequestContext::builder()
        .user("ann")
        .ip([192, 0, 2, 7])
        .cost(99);
    let office = office.hold(Duration::from_secs(60)).build();
    for _ in 0..20 {
        let decision = gate.check(&office);
        assert_eq!(fields(&decision), exempt("office"));
        assert_eq!(decision.forbidden_status(), None);
        assert_eq!(decision.hold(), None);
        assert_eq!(fields(&gate.peek(&office)), exempt("office"));
    }
    assert_eq!(gate.keys(), 0);
}

#[test]
fn the_first_action_in_the_order_of_evaluation_decides() {
    let deny = "id: deny, action: deny, match: { path: [\"/a/**\"] }";
    let allow = "id: allow, action: allow, match: { user: ann }";
    let both = RequestContext::builder().user("ann").path("/a/b").build();
    for (first, second, expected) in [
        (
            format!("{{ {deny} }}"),
            format!("{{ {allow} }}"),
            forbidden("deny"),
        ),
        (
            format!("{{ {allow} }}"),
            format!("{{ {deny} }}"),
            exempt("allow"),
        ),
        (
            format!("{{ {deny}, priority: 101 }}"),
            format!("{{ {allow} }}"),
            exempt("allow"),
        ),
        (
            format!("{{ {allow} }}"),
            format!("{{ {deny}, priority: -1 }}"),
            forbidden("deny"),
        ),
        (
            format!("{{ {deny}, enabled: false }}"),
            format!("{{ {allow} }}"),
            exempt("allow"),
        ),
    ] {
        let gate = Gate::new(&set_of(&format!("{first}, {LIMIT}, {second}")));
        assert_eq!(fields(&gate.check(&both)), expected);
    }
}

#[test]
fn an_excepted_path_keeps_an_action_from_deciding() {
    let rules = set_of(&format!(
        "{{ id: down, action: deny, status: 410, match: {{ not_path: [\"/health\"] }} }}, {LIMIT}"
    ));
    let gate = Gate::new(&rules);
    let at = |path| RequestContext::builder().user("ann").path(path).build();
    assert_eq!(fields(&gate.check(&at("/x"))), forbidden("down"));
    assert_eq!(gate.check(&at("/x")).forbidden_status(), Some(410));
    assert_eq!(gate.check(&at("/health")).remaining(), Some(9));
    assert_eq!(
        fields(&gate.check(&context("ann"))),
        forbidden("down"),
        "no path is not excepted"
    );
}

#[test]
fn a_shadow_deny_is_a_would_be_denial_in_its_place() {
    let rules = set_of(
        "{ id: s1, scope: per_user, mode: shadow, bands: [1/h], priority: 1 }, \
         { id: no, action: deny, mode: shadow, match: { user: eve }, priority: 2 }, \
         { id: s2, scope: per_user, mode: shadow, bands: [1/h], priority: 3 }, \
         { id: limit, scope: per_user, bands: [3/h] }",
    );
    let gate = Gate::new(&rules);
    let first = gate.user("eve");
    assert_eq!(first.outcome().name(), "shadow_denied");
    assert_eq!(violated(&first), ["no/deny"]);
    assert_eq!(
        (first.rule().unwrap().id(), first.remaining()),
        ("limit", Some(2))
    );
    assert_eq!(violated(&gate.user("eve")), ["s1/b0", "no/deny", "s2/b0"]);
    assert!(gate.user("eve").allowed());
    let denied = gate.user("eve");
    assert_eq!(
        violated(&denied),
        ["limit/b0"],
        "shadow rules are not decided"
    );
    assert_eq!(gate.user("ann").outcome().name(), "allowed");
}

#[test]
fn alone_a_shadow_deny_is_reported_and_a_shadow_allow_is_no_rule() {
    let deny = Gate::new(&set_of("{ id: no, action: deny, mode: shadow }"));
    let decision = deny.user("eve");
    assert_eq!(violated(&decision), ["no/deny"]);
    assert_eq!(
        fields(&decision),
        DecisionFields {
            outcome: "shadow_denied",
            rule: None,
            violated: vec!["no/deny".into()],
            ..exempt("")
        }
    );
    let allow = Gate::new(&set_of("{ id: yes, action: allow, mode: shadow }"));
    let expected = DecisionFields {
        outcome: "no_rule",
        rule: None,
        ..exempt("")
    };
    assert_eq!(fields(&allow.user("eve")), expected);
    assert_eq!(allow.user("eve").rules().count(), 0);
}

/// An action needs no store, so a store that fails changes nothing.
#[test]
fn a_store_that_fails_does_not_change_what_actions_decide() {
    for on_error in ["allow", "deny", "local"] {
        let rules = format!(
            "rule_sets: {{ s: {{ on_error: {on_error}, rules: [ {LIMIT}, \
             {{ id: no, action: deny, match: {{ user: eve }} }}, \
             {{ id: yes, action: allow, match: {{ user: bob }} }} ] }} }}"
        );
        let limiter = Limiter::new(parse(&rules), Fragile::broken());
        assert_eq!(
            fields(&ready(limiter.check("s", &context("eve")))),
            forbidden("no")
        );
        assert_eq!(
            fields(&ready(limiter.check("s", &context("bob")))),
            exempt("yes")
        );
        let all = [context("bob"), context("ann")];
        let decisions = ready(limiter.check_all("s", &all));
        assert_eq!(fields(&decisions[0]), exempt("yes"));
        assert!(decisions[1].outcome().is_store_failure());
    }
}

#[test]
fn one_forbidden_request_of_several_refuses_all_of_them() {
    let rules = set_of(&format!(
        "{LIMIT}, {{ id: no, action: deny, match: {{ user: eve }} }}, \
         {{ id: yes, action: allow, match: {{ user: bob }} }}"
    ));
    let gate = Gate::new(&rules);
    let all = [context("ann"), context("eve"), context("bob")];
    let decisions = ready(gate.limiter.check_all("s", &all));
    assert_eq!(
        decisions[0].outcome().name(),
        "no_rule",
        "it is not decided"
    );
    assert_eq!(fields(&decisions[1]), forbidden("no"));
    assert_eq!(fields(&decisions[2]), exempt("yes"));
    assert_eq!(gate.keys(), 0, "nothing is charged");
    let fine = ready(
        gate.limiter
            .check_all("s", &[context("ann"), context("bob")]),
    );
    assert_eq!(fine[0].remaining(), Some(9));
    assert_eq!(fields(&fine[1]), exempt("yes"));
}

#[test]
fn calls_about_an_identity_of_an_action_are_refused() {
    let gate = Gate::new(&set_of(&format!("{LIMIT}, {{ id: no, action: deny }}")));
    let limiter = &gate.limiter;
    let refusal = LimiterError::NotALimit {
        rule_set: "s".into(),
        rule: "no".into(),
        action: "deny",
    };
    let message = "rule `no` of rule set `s` counts nothing: it has `action: deny`";
    assert_eq!(refusal.to_string(), message);
    assert_eq!(
        ready(limiter.consume("s", "no", &[], None)).unwrap_err(),
        refusal
    );
    assert_eq!(ready(limiter.state("s", "no", &[])).unwrap_err(), refusal);
    assert_eq!(
        ready(limiter.refund("s", "no", &[], 1)).unwrap_err(),
        refusal
    );
    assert_eq!(ready(limiter.reset("s", "no", &[])).unwrap_err(), refusal);
    assert_eq!(ready(limiter.reset_rule("s", "no")).unwrap_err(), refusal);
    assert_eq!(ready(limiter.reset_set("s")).unwrap(), 0);
}

#[test]
fn an_explanation_names_the_action_and_what_did_not_decide() {
    let rules = "rule_sets: { s: { lists: { vips: [bob] }, rules: [ \
                 { id: limit, scope: per_user, bands: [10/m] }, \
                 { id: vip, action: allow, match: { user: { in: vips } } }, \
                 { id: no, action: deny, match: { user: eve } } ] } }";
    let gate = Gate::new(rules);
    let explanation = ready(gate.limiter.explain("s", &context("eve"))).unwrap();
    assert_eq!(fields(&explanation.decision), forbidden("no"));
    let [limit, vip, no] = &explanation.rules[..] else {
        panic!("three rules")
    };
    assert_eq!((&limit.failed, limit.applies), (&None, false));
    assert_eq!(limit.bands.len(), 0);
    assert_eq!(vip.failed.as_deref(), Some("user"));
    assert_eq!(vip.list.as_deref(), Some("vips"));
    assert_eq!((vip.action, vip.applies), (RuleAction::Allow, false));
    assert_eq!((&no.failed, no.applies), (&None, true));
    assert_eq!(no.action, RuleAction::Deny { status: 403 });
    assert_eq!(no.identity, None);
}

#[test]
fn observers_receive_what_actions_decide() {
    #[derive(Debug)]
    struct Count(Arc<AtomicU64>);
    impl Observer for Count {
        fn decided(&self, decision: &Decision, _: Duration) {
            assert_eq!(decision.rule().map(|rule| rule.id()), Some("no"));
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let count = Arc::new(AtomicU64::new(0));
    let rules = parse(&set_of("{ id: no, action: deny }"));
    let limiter = Limiter::builder(rules, Fragile::broken());
    let limiter = limiter.observer(Count(Arc::clone(&count))).build();
    assert!(!ready(limiter.check("s", &context("eve"))).allowed());
    assert!(!ready(limiter.peek("s", &context("eve"))).allowed());
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn an_action_has_only_the_fields_of_an_action() {
    for (field, value) in [
        ("scope", "global"),
        ("key", "[ip]"),
        ("group", "g"),
        ("rollout", "10%"),
        ("on_missing_key", "ip"),
        ("algorithm", "token_bucket"),
        ("shape", "false"),
        ("hold", "1m"),
        ("bands", "[10/s]"),
        ("cost", "1"),
        ("clamp", "false"),
        ("on_exceed", "reject"),
        ("max_wait", "1s"),
        ("lease", "{ share: 20%, for: 1s }"),
        ("overrides", "[]"),
        ("reset_on_change", "false"),
    ] {
        for action in ["deny", "allow"] {
            let body = format!("{{ id: r, action: {action}, {field}: §{value} }}");
            rule_refused(&body, &format!("`action: {action}` has no `{field}`"));
        }
    }
    rule_refused(
        "{ id: r, action: allow, status: §403 }",
        "only for `action: deny`",
    );
    rule_refused(
        "{ id: r, scope: global, status: §403, BANDS }",
        "only for `action: deny`",
    );
    for status in ["200", "399", "500", "\"403\"", "4e2"] {
        rule_refused(
            &format!("{{ id: r, action: deny, status: §{status} }}"),
            "`status` must be a whole number from 400 to 499",
        );
    }
    rule_refused(
        "{ id: r, action: §refuse }",
        "must be one of limit, deny, allow",
    );
    parse(&set_of(
        "{ id: r, name: R, enabled: true, mode: shadow, action: deny, status: 499, priority: 1, \
         match: { path: [/x] }, attributes: { a: b } }",
    ));
    parse(&set_of(
        "{ id: r, action: limit, scope: global, bands: [1/s] }",
    ));
}

#[test]
fn actions_in_rust_are_those_of_a_file() {
    let built = RuleSet::builder("s")
        .list("blocked", ["eve"])
        .list("office", ["192.0.2.0/24"])
        .rule(
            Rule::new("no")
                .match_user(ValueMatch::in_list("blocked"))
                .deny_with(451),
        )
        .rule(Rule::new("yes").match_ip_in("office").allow().shadow())
        .rule(
            Rule::new("keyless")
                .match_not_ip_in("office")
                .match_api_key(ValueMatch::absent())
                .deny(),
        )
        .build();
    let built = RuleSets::from(built.unwrap());
    let written = "rule_sets:
  s:
    lists:
      blocked: [eve]
      office: [\"192.0.2.0/24\"]
    rules:
      - id: \"no\"
        action: deny
        status: 451
        match: { user: { in: blocked } }
      - id: \"yes\"
        mode: shadow
        action: allow
        match: { ip: { in: office } }
      - id: keyless
        action: deny
        match: { api_key: { present: false }, not_ip: { in: office } }
";
    assert_eq!(built.to_yaml(), written);
    assert_eq!(parse(written), built);
    let wrong = Rule::new("no").deny_with(500).per_user().group("g");
    let faults = RuleSet::builder("s").rule(wrong).build().unwrap_err();
    let faults: Vec<_> = faults.faults().iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 3, "{faults:?}");
    assert!(
        faults[0].starts_with("s.rules[0].status: `status` must be"),
        "{faults:?}"
    );
    assert!(faults[1].starts_with("s.rules[0].key: a rule with `action: deny` has no `key`"));
    assert!(faults[2].starts_with("s.rules[0].group: "), "{faults:?}");
}
