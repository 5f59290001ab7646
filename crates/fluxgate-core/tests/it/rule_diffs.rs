//! What has changed between two versions of the rules.

use crate::support::parse;

fn changes(before: &str, after: &str) -> Vec<String> {
    let changes = parse(after).changes_since(&parse(before));
    changes.iter().map(ToString::to_string).collect()
}

fn api(rules: &str) -> String {
    format!("rule_sets: {{ api: {{ rules: [ {rules} ] }} }}")
}

#[test]
fn rules_are_added_removed_and_changed_by_field() {
    let before = api(
        "{ id: a, scope: per_user, match: { path: [\"/a\"], methods: [GET] }, bands: [10/s] },
         { id: b, scope: global, bands: [1/s] },
         { id: c, scope: global, bands: [1/s] }",
    );
    let after = api(
        "{ id: c, scope: global, bands: [1/s] },
         { id: a, scope: per_user, mode: shadow, match: { path: [\"/a\", \"/b\"] }, bands: [10/s, 100/m] },
         { id: d, scope: global, bands: [1/s] }",
    );
    assert_eq!(
        changes(&before, &after),
        [
            "api/b: removed",
            "api/a: match.path changed from [\"/a\"] to [\"/a\", \"/b\"]; \
             match.methods no longer [GET]; \
             bands changed from [{ capacity: 10, window: 1s }] to \
             [{ capacity: 10, window: 1s }, { capacity: 100, window: 1m }]; \
             mode set to shadow",
            "api/d: added",
            "api: rules reordered",
        ]
    );
    assert_eq!(changes(&before, &before), [""; 0]);
}

#[test]
fn a_lease_is_a_change() {
    let rule = |lease: &str| {
        api(&format!(
            "{{ id: a, scope: global, {lease} bands: [10/s] }}"
        ))
    };
    let lease = |share| rule(&format!("lease: {{ share: {share}, for: 1s }},"));
    assert_eq!(
        changes(&rule(""), &lease("20%")),
        ["api/a: lease set to { share: 20%, for: 1s }"]
    );
    assert_eq!(
        changes(&lease("20%"), &lease("30%")),
        ["api/a: lease changed from { share: 20%, for: 1s } to { share: 30%, for: 1s }"]
    );
    assert_eq!(changes(&lease("20%"), &lease("20.0%")), [""; 0]);
}

#[test]
fn another_spelling_is_no_change() {
    let short = api("{ id: a, scope: global, bands: [60/m] }");
    let long = api(
        "{ id: a, scope: global, enabled: true, bands: [{ id: b0, capacity: 60, window: 60s }] }",
    );
    assert_eq!(changes(&short, &long), [""; 0]);
}

#[test]
fn sets_are_added_removed_and_changed() {
    let rules = "rules: [{ id: a, scope: global, bands: [1/s] }]";
    let before = format!("rule_sets: {{ a: {{ {rules} }}, b: {{ {rules} }} }}");
    let after = format!(
        "keys: {{ ipv6_prefix: 48 }}\n\
         rule_sets: {{ b: {{ on_error: deny, {rules} }}, c: {{ {rules} }} }}"
    );
    assert_eq!(
        changes(&before, &after),
        [
            "a: removed",
            "b: on_error changed from local to deny; ipv6_prefix changed from 64 to 48",
            "c: added",
        ]
    );
}
