//! The comparison with old rules.

use fluxgate_core::RuleSets;
use fluxgate_simulate::{Options, Simulation};

use crate::support::{Run, one_rule, simulate};

/// Replays the input through new rules, compared with old ones.
fn against(new: &str, old: &str, input: &str, options: Options) -> Run {
    let [new, old] = [new, old].map(|rules| RuleSets::from_yaml(rules).unwrap());
    Run::new(Simulation::new(new, options).against(old), input)
}

fn per_user(capacity: u64) -> String {
    one_rule(&format!(
        "scope: per_user, algorithm: fixed_window, bands: [ {{ capacity: {capacity}, window: 1h }} ]"
    ))
}

/// Returns a request of each user in turn, a second apart.
fn requests_of(users: &str) -> String {
    let users = (0_u64..).zip(users.split_whitespace());
    let lines = users.map(|(second, user)| {
        let t = second * 1_000_000;
        format!("{{\"t\":{t},\"user\":\"{user}\"}}\n")
    });
    lines.collect()
}

#[test]
fn newly_denied_requests_count_by_rule_and_identity() {
    let input = requests_of("ann ann ann bob ann bob bob eve");
    let run = against(&per_user(1), &per_user(3), &input, Options::default());
    let expected = "\
rule            newly denied  identities  newly admitted  identities
api/r                      4           2               0           0
(all requests)             4                           0

    requests  newly denied identities
           2  api/r  user=ann  (first 1970-01-01T00:00:01Z)
           2  api/r  user=bob  (first 1970-01-01T00:00:05Z)
";
    assert_eq!(run.changes(), expected);
    // The decisions are those of the new rules.
    assert_eq!(run.decisions, simulate(&per_user(1), &input).decisions);
}

#[test]
fn newly_admitted_requests_count_for_the_old_rules() {
    let input = requests_of("ann ann ann");
    let options = Options {
        summary: true,
        ..Options::default()
    };
    let run = against(&per_user(2), &per_user(1), &input, options);
    let expected = "\
rule                requests       allowed        denied  shadow-denied
api/r                      3             2             1              0
(all requests)             3             2             1              0

      denied  most denied identities
           1  api/r  user=ann
";
    assert_eq!(run.summary(), expected);
    let expected = "\
rule            newly denied  identities  newly admitted  identities
api/r                      0           0               1           1
(all requests)             0                           1

    requests  newly admitted identities
           1  api/r  user=ann  (first 1970-01-01T00:00:01Z)
";
    assert_eq!(run.changes(), expected);
}

/// A request that two rules deny counts for both, but once in total. Shadow rules deny
/// nothing.
#[test]
fn rules_may_be_added_and_removed() {
    let rules = |more: &str| {
        format!(
            "rule_sets: {{ api: {{ rules: [ {{ id: same, scope: global, bands: [ {{ capacity: 9, window: 1h }} ] }}, {more} ] }} }}"
        )
    };
    let new = rules(
        "{ id: a, scope: per_user, bands: [ { capacity: 1, window: 1h } ] }, \
         { id: b, scope: global, bands: [ { capacity: 1, window: 1h } ] }, \
         { id: c, mode: shadow, scope: global, bands: [ { capacity: 1, window: 1h } ] }",
    );
    let old = rules("{ id: d, scope: per_user, bands: [ { capacity: 9, window: 1h } ] }");
    let run = against(&new, &old, &requests_of("ann ann"), Options::default());
    let expected = "\
rule             newly denied  identities  newly admitted  identities
api/a (added)               1           1               0           0
api/b (added)               1           1               0           0
api/c (added)               0           0               0           0
api/d (removed)             0           0               0           0
api/same                    0           0               0           0
(all requests)              1                           0

    requests  newly denied identities
           1  api/a  user=ann  (first 1970-01-01T00:00:01Z)
           1  api/b  (everyone)  (first 1970-01-01T00:00:01Z)
";
    assert_eq!(run.changes(), expected);
}

#[test]
fn requests_without_a_set_use_the_only_one_of_each_file() {
    let renamed = per_user(1).replacen("api:", "api-2:", 1);
    for rule_set in [None, Some("api-2".to_owned())] {
        let options = Options {
            rule_set,
            ..Options::default()
        };
        let run = against(&renamed, &per_user(3), &requests_of("ann ann"), options);
        let expected = "\
rule             newly denied  identities  newly admitted  identities
api-2/r (added)             1           1               0           0
api/r (removed)             0           0               0           0
(all requests)              1                           0

    requests  newly denied identities
           1  api-2/r  user=ann  (first 1970-01-01T00:00:01Z)
";
        assert_eq!(run.changes(), expected);
    }
}

#[test]
fn a_set_that_one_file_lacks_is_named() {
    let input = "{\"t\":0,\"rule_set\":\"api\",\"user\":\"ann\"}\n".repeat(2);
    let renamed = per_user(1).replacen("api:", "web:", 1);
    let run = against(&renamed, &per_user(1), &input, Options::default());
    let expected = "\
rule             newly denied  identities  newly admitted  identities
api/r (removed)             0           0               1           1
web/r (added)               0           0               0           0
(all requests)              0                           1

    requests  newly admitted identities
           1  api/r  user=ann  (first 1970-01-01T00:00:00Z)
";
    assert_eq!(run.changes(), expected);
    assert_eq!(
        run.simulation.warnings(),
        ["there is no rule set `api`; its requests were allowed"]
    );
    // No rule denies these requests.
    let deny = format!("on_missing_rule_set: deny\n{renamed}");
    let run = against(&per_user(2), &deny, &input, Options::default());
    let expected = "\
rule                newly denied  identities  newly admitted  identities
(no such rule set)             0           0               2           0
api/r (added)                  0           0               0           0
web/r (removed)                0           0               0           0
(all requests)                 0                           2
";
    assert_eq!(run.changes(), expected);
    assert_eq!(
        run.simulation.warnings(),
        ["the old rules have no rule set `api`; its requests were denied"]
    );
}

#[test]
fn only_the_ten_most_changed_are_named_and_api_keys_by_their_ends() {
    let by_key = |capacity: u64| per_user(capacity).replace("per_user", "per_api_key");
    let mut input = String::new();
    for key in 0..15 {
        let line = format!("{{\"t\":0,\"api_key\":\"secret-key-{key:02}-0123456789\"}}\n");
        input += &line.repeat(2 + key / 2);
    }
    let run = against(&by_key(1), &by_key(99), &input, Options::default());
    let changes = run.changes();
    let (_, most) = changes.split_once("newly denied identities\n").unwrap();
    let most: Vec<_> = most.lines().map(str::trim_start).collect();
    assert_eq!(most.len(), 10);
    assert!(
        most[0].starts_with("8  api/r  api_key=secr…89  (first "),
        "{most:?}"
    );
    assert!(!changes.contains("secret-key"));
}
