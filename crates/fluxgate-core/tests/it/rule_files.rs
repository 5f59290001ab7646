//! Whole rule files, valid and not.

use fluxgate_core::RuleSets;
use proptest::prelude::*;

use crate::support::{cases, set_of};

/// Everything that a rule file can hold.
const FULL: &str = r#"
on_missing_rule_set: allow
keys: { ipv6_prefix: 64 }
rule_sets:
  api-limits:
    on_error: local              # allow | deny | local (default)
    rules:
      - id: per-user             # [a-z0-9][a-z0-9_-]*, unique in its set
        name: "Per user"         # optional, for people
        enabled: true            # default true
        mode: enforce            # enforce (default) | shadow
        priority: 100            # default 100
        match:                   # all given parts must hold; all optional
          path: ["/api/**"]
          not_path: ["/api/health"]
          methods: [GET, POST]
          headers: { X-Plan: "free" }
          attributes: { plan: "free" }
        scope: per_user          # global | per_ip | per_user | per_api_key
        on_missing_key: ip       # ip (default) | anonymous | skip | deny
        algorithm: token_bucket  # default
        shape: false             # leaky_bucket only
        bands:
          - { id: burst, capacity: 10, window: 1s }
          - { id: sustained, capacity: 100, window: 1m, refill: 100, period: 1m }
        cost: 1                  # default; or "header:X-Cost", "attr:tokens"
        on_exceed: reject        # reject (default) | wait
        max_wait: 5s             # with wait; default 5s
        overrides:
          - { identity: "user-42", bands: [ { id: burst, capacity: 100, window: 1s } ] }
        notify: [80%, 100%]      # optional
        reset_on_change: false
        attributes: { tier: standard }
      - id: by-tenant
        key: [ip, "header:X-Tenant-Id"]
        bands: [ { capacity: 1, window: 500ms } ]
        cost: "header:X-Cost"
"#;

#[test]
fn the_full_example_is_good() {
    let sets = RuleSets::from_yaml(FULL).unwrap();
    let set = sets.only().unwrap();
    let ids: Vec<_> = set.rules().iter().map(|rule| rule.id()).collect();
    assert_eq!(
        (set.name(), ids),
        ("api-limits", vec!["per-user", "by-tenant"])
    );
    let rule = set.rule("per-user").unwrap();
    assert_eq!(rule.name(), Some("Per user"));
    assert_eq!(
        rule.attributes().collect::<Vec<_>>(),
        [("tier", "standard")]
    );
    let bands: Vec<_> = rule.bands().iter().map(|band| band.id()).collect();
    assert_eq!(bands, ["burst", "sustained"]);
}

#[test]
fn json_is_accepted_too() {
    let json = r#"{ "rule_sets": { "s": { "rules": [
        { "id": "r", "scope": "global", "bands": [ { "capacity": 1, "window": "1s" } ] } ] } } }"#;
    assert!(RuleSets::from_yaml(json).is_ok());
}

#[test]
fn invalid_yaml_is_one_fault() {
    for text in [
        "rule_sets: [",
        "a: b: c",
        "'unfinished",
        "rule_sets: {}\n---\nrule_sets: {}",
        "&a [*a]",
    ] {
        let error = RuleSets::from_yaml(text).unwrap_err();
        assert_eq!(error.0.len(), 1, "{error}");
    }
    for text in ["", "null", "[]", "just a text", "42"] {
        assert!(RuleSets::from_yaml(text).is_err(), "{text:?}");
    }
}

/// Aliases may refer to values with aliases in them, but not without a bound on depth.
#[test]
fn deep_nesting_is_rejected() {
    let nested = |levels: usize, inside: &str| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!("{open}{inside}{close}")
    };
    let told = |text: &str| RuleSets::from_yaml(text).unwrap_err().to_string();
    assert!(told(&nested(66, "")).contains("nested too deeply"));
    assert!(!told(&nested(65, "")).contains("nested too deeply"));
    let aliases = format!("[&a {}, &b {}]", nested(40, ""), nested(40, "*a"));
    assert!(told(&aliases).contains("nested too deeply"));
}

/// Even if the last line has no end.
#[test]
fn a_value_missing_at_the_end_is_reported_there() {
    for (text, place) in [
        ("a: [", "1:5: "),
        ("a:\n  [é", "2:5: "),
        ("a: [\n", "2:1: "),
        ("? ", "1:3: "),
    ] {
        let told = RuleSets::from_yaml(text).unwrap_err().to_string();
        assert!(told.starts_with(place), "{text:?}: {told}");
    }
}

#[test]
fn of_very_many_faults_some_are_reported_and_the_rest_counted() {
    let rules = "{}, ".repeat(5_000);
    let error = RuleSets::from_yaml(&set_of(&rules)).unwrap_err();
    assert!(error.0.len() <= 201, "{}", error.0.len());
    let last = error.0.last().unwrap();
    assert!(last.message.starts_with("and ") && last.message.ends_with(" more"));
    assert!(error.0.is_sorted_by_key(|fault| fault.position));
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn random_bytes_are_rejected_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(RuleSets::from_yaml(&String::from_utf8_lossy(&bytes)).is_err());
    }

    #[test]
    fn random_yaml_is_rejected_without_a_panic(text in "[\\[\\]{}:,&*!|>'\"#%@\n \\-a-c0-9?]{0,120}") {
        prop_assert!(RuleSets::from_yaml(&text).is_err());
    }

    #[test]
    fn a_mangled_file_never_causes_a_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..5_u8, "[ -~\n\u{e4}]{0,6}"), 1..6)
    ) {
        let mut text: Vec<char> = FULL.chars().collect();
        for (at, to, kind, new) in edits {
            let (at, to) = (at.index(text.len()), to.index(text.len()));
            match kind {
                // Overwrite, insert, delete a few, double a part, swap.
                0 => text[at] = new.chars().next().unwrap_or('\n'),
                1 => drop(text.splice(at..at, new.chars())),
                2 => drop(text.drain(at..(at + to % 40).min(text.len()))),
                3 => {
                    let part = text[at..(at + to % 80).min(text.len())].to_vec();
                    drop(text.splice(to..to, part));
                }
                _ => text.swap(at, to),
            }
            if text.is_empty() {
                text.push(' ');
            }
        }
        let text = String::from_iter(text);
        // Valid or not, but every fault must be inside of the text.
        if let Err(error) = RuleSets::from_yaml(&text) {
            prop_assert!(!error.0.is_empty());
            let lines = text.split('\n').count();
            for fault in &error.0 {
                prop_assert!((1..=lines).contains(&fault.position.line), "{}", fault);
                prop_assert!(fault.position.column >= 1);
            }
            prop_assert!(error.0.is_sorted_by_key(|fault| fault.position));
        }
    }
}
