//! Faults of rule files. Every fault has a position, which the snippets mark with `§`
//! before its first character.

use fluxgate_core::path::{PathSet, Pattern};
use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::{Fault, Faults, Node, Position, Value};
use fluxgate_core::{OnMissingRuleSet, RuleSets};

/// Checks that the faults of a marked snippet are at its marks, in their order, with
/// these pieces of text.
#[track_caller]
pub(crate) fn refused(marked: &str, pieces: &[&str]) {
    let mut text = String::new();
    let mut places = Vec::new();
    let (mut line, mut column) = (1, 1);
    for char in marked.chars() {
        match char {
            '§' => {
                places.push(Position { line, column });
                continue;
            }
            '\n' => (line, column) = (line + 1, 1),
            _ => column += 1,
        }
        text.push(char);
    }
    let Err(error) = RuleSets::from_yaml(&text) else {
        panic!("this is taken for good:\n{text}");
    };
    let found: Vec<_> = error.0.iter().map(|fault| fault.position).collect();
    assert_eq!(found, places, "{error}\nin {text}");
    for (fault, piece) in error.0.iter().zip(pieces) {
        assert!(
            fault.message.contains(piece),
            "`{piece}` is not in: {fault}\nin {text}"
        );
    }
    assert_eq!(pieces.len(), places.len(), "a piece for each mark");
    let shown: Vec<_> = error.0.iter().map(ToString::to_string).collect();
    assert_eq!(error.to_string(), shown.join("\n"), "one line a fault");
}

/// Returns a rule with this body; the mark is on its second line.
pub(crate) fn rule(body: &str) -> String {
    format!("rule_sets: {{ s: {{ rules: [\n{body}\n] }} }}")
}

const BANDS: &str = "bands: [{ capacity: 1, window: 1s }]";

#[track_caller]
pub(crate) fn rule_refused(body: &str, piece: &str) {
    refused(&rule(&body.replace("BANDS", BANDS)), &[piece]);
}

#[track_caller]
pub(crate) fn band_refused(algorithm: &str, band: &str, piece: &str) {
    let body = format!("{{ id: r, scope: global, algorithm: {algorithm}, bands: [{band}] }}");
    refused(&rule(&body), &[piece]);
}

#[test]
fn unknown_fields_are_rejected_everywhere() {
    refused("rule_sets: {}\n§rules: []", &["unknown field `rules`"]);
    refused(
        "keys: { §ipv4_prefix: 24 }\nrule_sets: {}",
        &["unknown field `ipv4_prefix`"],
    );
    refused(
        "rule_sets: { s: { §onerror: allow, rules: [\n{ id: r, scope: global, bands: [{ capacity: 1, window: 1s }] }\n] } }",
        &["unknown field `onerror`"],
    );
    rule_refused(
        "{ id: r, scope: global, §limit: 1, BANDS }",
        "unknown field `limit`",
    );
    rule_refused(
        "{ id: r, scope: global, match: { §paths: [\"/\"] }, BANDS }",
        "unknown field `paths`",
    );
    band_refused(
        "token_bucket",
        "{ capacity: 1, window: 1s, §rates: 1 }",
        "unknown field `rates`",
    );
    rule_refused(
        "{ id: r, scope: per_user, BANDS, overrides: [{ identity: u, §cost: 2, BANDS }] }",
        "unknown field `cost`",
    );
}

#[test]
fn unknown_names_are_rejected() {
    refused(
        "on_missing_rule_set: §maybe\nrule_sets: {}",
        &["`on_missing_rule_set` must be one of allow, deny"],
    );
    refused(
        "rule_sets: { s: { on_error: §retry, rules: [\n{ id: r, scope: global, bands: [{ capacity: 1, window: 1s }] }\n] } }",
        &["`on_error` must be one of allow, deny, local; `retry` is not"],
    );
    rule_refused(
        "{ id: r, scope: §per_tenant, BANDS }",
        "`scope` must be one of global, per_ip",
    );
    rule_refused(
        "{ id: r, scope: global, mode: §dry_run, BANDS }",
        "`mode` must be one of enforce, shadow",
    );
    rule_refused(
        "{ id: r, scope: global, algorithm: §tokenbucket, BANDS }",
        "`algorithm` must be one of token_bucket",
    );
    rule_refused(
        "{ id: r, scope: global, on_exceed: §queue, BANDS }",
        "`on_exceed` must be one of reject, wait",
    );
    rule_refused(
        "{ id: r, scope: global, on_missing_key: §allow, BANDS }",
        "`on_missing_key` must be one of ip, anonymous, skip, deny",
    );
    rule_refused(
        "{ id: r, key: [§cookie], BANDS }",
        "`cookie` is not a part of a key",
    );
    rule_refused(
        "{ id: r, key: [§\"header:\"], BANDS }",
        "cannot be the name of a header",
    );
    rule_refused(
        "{ id: r, key: [§\"attr:\"], BANDS }",
        "is not a part of a key",
    );
    rule_refused(
        "{ id: r, scope: global, enabled: §yes, BANDS }",
        "`enabled` must be true or false",
    );
    rule_refused(
        "{ id: r, scope: global, priority: §high, BANDS }",
        "`priority` must be a whole number",
    );
}

#[test]
fn missing_fields_are_named() {
    refused("§on_missing_rule_set: allow", &["`rule_sets` is missing"]);
    refused(
        "rule_sets: { s: §{ on_error: allow } }",
        &["has no `rules`"],
    );
    rule_refused("§{ scope: global, BANDS }", "needs an `id`");
    rule_refused("§{ id: r, scope: global }", "needs `bands`");
    rule_refused("§{ id: r, BANDS }", "needs a `scope` or a `key`");
    rule_refused(
        "{ id: r, scope: global, key: §[ip], BANDS }",
        "either a `scope` or a `key`",
    );
    band_refused("token_bucket", "§{ capacity: 1 }", "needs a `window`");
    band_refused("token_bucket", "§{ window: 1s }", "needs a `capacity`");
    band_refused(
        "token_bucket",
        "{ capacity: 1, window: 1s }, §{ capacity: 1, window: null }",
        "needs a `window`",
    );
    rule_refused(
        "{ id: r, scope: per_user, BANDS, overrides: [§{ BANDS }] }",
        "needs an `identity`",
    );
    rule_refused(
        "{ id: r, scope: per_user, BANDS, overrides: [§{ identity: u }] }",
        "needs `bands`",
    );
}

#[test]
fn a_value_that_is_not_a_mapping_is_one_fault() {
    refused("rule_sets: { s: §[] }", &["a rule set must be a mapping"]);
    let error = RuleSets::from_yaml("rule_sets:\n  s:\n    rules:\n    -\n").unwrap_err();
    assert_eq!(error.0.len(), 1, "{error}");
    rule_refused(" §~", "a rule must be a mapping, not nothing");
    rule_refused(" §x", "a rule must be a mapping");
    rule_refused(" §[x]", "a rule must be a mapping");
    band_refused("token_bucket", "§[10/s]", "a band must be a mapping");
    rule_refused(
        "{ id: r, scope: per_user, BANDS, overrides: [§u] }",
        "an override must be a mapping",
    );
}

#[test]
fn every_bad_part_of_a_key_is_reported() {
    let faults = |key: &str, pieces: &[&str]| {
        let body = format!("{{ id: r, key: {key}, BANDS }}");
        refused(&rule(&body.replace("BANDS", BANDS)), pieces);
    };
    let twice = |part: &str| format!("`{part}` appears twice in `key`");
    faults(
        "[§cookie, ip, §[], §\"header:a b\", §\"attr:\", §ip, §nothing]",
        &[
            "`cookie` is not a part of a key",
            "a part of a key must be a text",
            "`a b` cannot be the name of a header",
            "`attr:` is not a part of a key",
            &twice("ip"),
            "`nothing` is not a part of a key",
        ],
    );
    faults(
        "[§\"header:\", user, §\"header:a b\", §user, \"attr:A\", \"attr:a\", header:X, §header:x]",
        &[
            "`` cannot be the name of a header",
            "`a b` cannot be the name of a header",
            &twice("user"),
            &twice("header:x"),
        ],
    );
}

#[test]
fn a_band_cannot_have_the_name_of_a_missing_key() {
    band_refused(
        "token_bucket",
        "{ id: §missing_key, capacity: 1, window: 1s }",
        "`missing_key` is not a band id",
    );
    rule_refused(
        "{ id: r, scope: per_user, BANDS, overrides: [{ identity: u, bands: [{ id: §missing_key, capacity: 1, window: 1s }] }] }",
        "`missing_key` is not a band id",
    );
}

#[test]
fn empty_lists_are_rejected() {
    refused(
        "rule_sets: { s: { rules: §[] } }",
        &["`rules` must not be an empty list"],
    );
    rule_refused(
        "{ id: r, scope: global, bands: §[] }",
        "`bands` must not be an empty list",
    );
    rule_refused(
        "{ id: r, key: §[], BANDS }",
        "`key` must not be an empty list",
    );
    for field in ["path", "not_path", "methods"] {
        let body = format!("{{ id: r, scope: global, match: {{ {field}: §[] }}, BANDS }}");
        rule_refused(&body, &format!("`{field}` must not be an empty list"));
    }
    rule_refused(
        "{ id: r, scope: per_user, BANDS, overrides: §[] }",
        "`overrides` must not be an empty list",
    );
    rule_refused(
        "{ id: r, scope: per_user, BANDS, overrides: [{ identity: u, bands: §[] }] }",
        "`bands` must not be",
    );
    rule_refused(
        "{ id: r, scope: per_user, BANDS, overrides: [{ identity: §[], BANDS }] }",
        "`identity` must not be",
    );
}

#[test]
fn duplicates_are_rejected() {
    rule_refused(
        "{ id: r, scope: global, BANDS }, { id: §r, scope: per_ip, BANDS }",
        "already has a rule `r`",
    );
    // A disabled rule still has its id.
    rule_refused(
        "{ id: r, scope: global, enabled: false, BANDS }, { id: §r, scope: per_ip, BANDS }",
        "already has a rule `r`",
    );
    let band = "capacity: 1, window: 1s";
    let two = |first: &str, second: &str| format!("{{ {first}{band} }}, {second}");
    band_refused(
        "token_bucket",
        &two("id: a, ", &format!("{{ id: §a, {band} }}")),
        "already has a band `a`",
    );
    // The first is b0 by its position.
    band_refused(
        "token_bucket",
        &two("", &format!("{{ id: §b0, {band} }}")),
        "already has a band `b0`",
    );
    band_refused(
        "token_bucket",
        &two("id: b1, ", &format!("§{{ {band} }}")),
        "already has a band `b1`",
    );
    refused(
        "rule_sets:\n  s: { rules: [{ id: r, scope: global, bands: [{ capacity: 1, window: 1s }] }] }\n  §s: null",
        &["`s` appears twice"],
    );
    rule_refused(
        "{ id: r, scope: global, §scope: per_ip, BANDS }",
        "`scope` appears twice",
    );
    rule_refused(
        "{ id: r, scope: global, match: { headers: { X-A: \"1\", §x-a: \"2\" } }, BANDS }",
        "appears twice",
    );
}

#[test]
fn ids_have_a_small_alphabet() {
    for id in ["Per-User", "_r", "-r", "a.b", "a/b", "a b", "ä"] {
        rule_refused(
            &format!("{{ id: §\"{id}\", scope: global, BANDS }}"),
            "is not a rule id",
        );
    }
    rule_refused("{ id: §\"\", scope: global, BANDS }", "is not a rule id");
    band_refused(
        "token_bucket",
        "{ id: §\"a/b\", capacity: 1, window: 1s }",
        "is not a band id",
    );
}

#[test]
fn several_faults_are_reported_in_the_order_of_the_text() {
    refused(
        "
rule_sets:
  one:
    §onerror: allow
    rules:
      - id: §Bad
        scope: §nobody
        bands:
          - { capacity: §0, window: §1w }
          - §{ capacity: 5 }
        cost: §-1
  two:
    rules:
      - id: fine
        scope: global
        bands: [ { capacity: 1, window: 1s } ]
      - id: §fine
        key: [ip]
        §colour: red
        bands: §{}
",
        &[
            "unknown field `onerror`",
            "`Bad` is not a rule id",
            "`scope` must be one of",
            "`capacity` must be a whole number from 1",
            "`window` must be",
            "needs a `window`",
            "`cost` must be",
            "rule set `two` already has a rule",
            "unknown field `colour`",
            "`bands` must be a list, not a mapping",
        ],
    );
}

#[test]
fn rule_sets_can_be_part_of_a_larger_file() {
    let text = "
store: memory
rule_sets:
  api:
    rules:
      - { id: r, scope: per_ip, bands: [ { capacity: 1, window: 1s } ] }
      - { id: r, scope: nobody, bands: [ { capacity: 1, window: 1s } ] }
";
    let root = Node::parse(text).unwrap();
    let Value::Map(pairs) = &root.value else {
        panic!("{root:?}")
    };
    let options = RuleOptions {
        ipv6_prefix: 48,
        on_missing_rule_set: OnMissingRuleSet::Deny,
        ..RuleOptions::default()
    };
    let mut faults = Faults::default();
    let sets = RuleSets::read(&pairs[1].1, options, &mut faults);
    assert_eq!(sets.on_missing(), OnMissingRuleSet::Deny);
    let lines: Vec<_> = faults.into_sorted().iter().map(Fault::to_string).collect();
    assert_eq!(
        lines,
        [
            "7:15: rule set `api` already has a rule `r`",
            "7:25: `scope` must be one of global, per_ip, per_user, per_api_key; `nobody` is not",
        ]
    );
}

#[test]
fn path_sets_work_outside_of_rules() {
    let patterns = ["/api/**", "/v?/x"].map(|text| Pattern::parse(text).unwrap());
    let paths = PathSet::new(patterns.into());
    for (path, fits) in [
        ("/api", true),
        ("/v1/x", true),
        ("/v10/x", false),
        ("api", false),
    ] {
        assert_eq!(paths.contains(Some(path)), fits, "{path}");
    }
    assert!(!paths.contains(None));
    assert!(Pattern::parse("api").is_err());
}

/// `/**` is a special case, however it is written; it matches the same paths.
#[test]
fn every_path_begins_with_a_slash() {
    for pattern in ["/**", "/**/**"] {
        for others in [&[][..], &["/x"]] {
            let patterns = others.iter().chain([&pattern]);
            let patterns = patterns.map(|text| Pattern::parse(text).unwrap());
            let paths = PathSet::new(patterns.collect());
            for path in ["/", "//", "/a", "/a/b/", "/\u{e4}", "/a?b"] {
                assert!(paths.contains(Some(path)), "{pattern} {path}");
            }
            for path in [None, Some(""), Some("*"), Some("a/b")] {
                assert!(!paths.contains(path), "{pattern} {path:?}");
            }
        }
    }
}

#[test]
fn rules_that_are_only_tried_have_numbers_of_their_own() {
    let rule = |id: &str| format!("{{ id: {id}, scope: global, bands: [ 1/s ] }}");
    let text = format!(
        "rule_sets: {{ a: {{ rules: [ {}, {} ] }}, b: {{ rules: [ {} ] }} }}",
        rule("x"),
        rule("y"),
        rule("x"),
    );
    let options = RuleOptions {
        is_trial: true,
        ..RuleOptions::default()
    };
    let numbers = |text: &str| {
        let sets = RuleSets::from_node_with(&Node::parse(text).unwrap(), options).unwrap();
        let rules = ["a", "b"].map(|set| sets.get(set).unwrap().rules().to_vec());
        let rules = rules.iter().flatten();
        rules.map(|rule| rule.number().get()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&text), [1, 2, 3]);
    assert_eq!(numbers(&text.replace("id: y", "id: z")), [1, 2, 3]);
}
