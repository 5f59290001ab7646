//! The summary of a run.

use fluxgate_simulate::Options;

use crate::support::{TWO_A_SECOND, one_rule, simulate_with};

#[test]
fn the_table_counts_by_rule_and_names_the_most_denied() {
    let rules = "
rule_sets:
  api:
    rules:
      - { id: per-user, scope: per_user, bands: [ { capacity: 1, window: 1h } ] }
      - { id: try, mode: shadow, scope: global, bands: [ { capacity: 2, window: 1h } ] }
  b:
    rules:
      - { id: r, scope: per_ip, match: { path: [/x] }, bands: [ { capacity: 1, window: 1h } ] }
";
    let users = ["ann", "ann", "ann", "bob", "bob", "eve"];
    let mut input = String::new();
    for user in users {
        input += &format!("{{\"t\":0,\"rule_set\":\"api\",\"user\":\"{user}\"}}\n");
    }
    for path in ["/x", "/x", "/y"] {
        input +=
            &format!("{{\"t\":0,\"rule_set\":\"b\",\"ip\":\"10.0.0.1\",\"path\":\"{path}\"}}\n");
    }
    let run = simulate_with(
        rules,
        input,
        Options {
            summary: true,
            ..Options::default()
        },
    );
    assert!(run.result.is_ok());
    assert_eq!(run.decisions.lines().count(), 9);
    // What `per-user` denies does not reach `try`.
    let expected = "\
rule                requests       allowed        denied  shadow-denied
api/per-user               6             3             3              0
api/try                    3             3             0              1
b/r                        2             1             1              0
(all requests)             9             5             4              1
1 request(s) matched no rule

      denied  most denied identities
           2  api/per-user  user=ann
           1  api/per-user  user=bob
           1  b/r  ip=10.0.0.1
";
    assert_eq!(run.summary(), expected);
}

#[test]
fn a_rule_that_no_request_matched_has_zeros() {
    let rules = "
rule_sets:
  b:
    rules:
      - { id: used, scope: global, bands: [ { capacity: 9, window: 1h } ] }
      - { id: a-typo, scope: global, match: { path: [/lgoin] }, bands: [ { capacity: 1, window: 1h } ] }
      - { id: off, enabled: false, scope: global, bands: [ { capacity: 1, window: 1h } ] }
  a:
    rules:
      - { id: never-asked, scope: global, bands: [ { capacity: 1, window: 1h } ] }
";
    let run = simulate_with(
        rules,
        "{\"t\":0,\"rule_set\":\"b\"}\n",
        Options {
            summary: true,
            ..Options::default()
        },
    );
    let expected = "\
rule                requests       allowed        denied  shadow-denied
a/never-asked              0             0             0              0
b/a-typo                   0             0             0              0
b/used                     1             1             0              0
(all requests)             1             1             0              0
";
    assert_eq!(run.summary(), expected);
}

#[test]
fn only_the_ten_most_denied_are_named_in_a_fixed_order() {
    let rules = &one_rule("scope: per_user, bands: [ { capacity: 1, window: 1h } ]");
    let mut input = String::new();
    for user in 0..15 {
        // The later ones are denied more often, in pairs.
        for _ in 0..2 + user / 2 {
            input += &format!("{{\"t\":0,\"user\":\"u{user:02}\"}}\n");
        }
    }
    let run = simulate_with(
        rules,
        input,
        Options {
            summary: true,
            ..Options::default()
        },
    );
    let summary = run.summary();
    let (_, most) = summary.split_once("most denied identities\n").unwrap();
    let most: Vec<_> = most.lines().map(str::trim_start).collect();
    let expected = [
        "8  api/r  user=u14",
        "7  api/r  user=u12",
        "7  api/r  user=u13",
        "6  api/r  user=u10",
        "6  api/r  user=u11",
        "5  api/r  user=u08",
        "5  api/r  user=u09",
        "4  api/r  user=u06",
        "4  api/r  user=u07",
        "3  api/r  user=u04",
    ];
    assert_eq!(most, expected);
}

#[test]
fn identities_are_shown_by_part_and_api_keys_by_their_ends() {
    let rules = &one_rule(
        "key: [ip, user, api_key, method, path, 'header:X', 'attr:a'], on_missing_key: anonymous, \
         bands: [ { capacity: 1, window: 1h } ]",
    );
    let line = r#"{"t":0,"ip":"2001:db8::1","user":"\u001b[2Jann","api_key":"secret-key-0123456789","method":"GET","path":"/a","headers":{"x":"1"}}"#;
    let run = simulate_with(
        rules,
        format!("{line}\n{line}\n"),
        Options {
            summary: true,
            ..Options::default()
        },
    );
    let summary = run.summary();
    let shown = summary.lines().last().unwrap();
    assert_eq!(
        shown.trim_start(),
        "1  api/r  ip=2001:db8:: user=\\u{1b}[2Jann api_key=secr…89 method=GET path=/a header:x=1 anonymous"
    );
    assert!(!summary.contains("secret-key"));
}

#[test]
fn a_global_rule_denies_everyone() {
    let rules = &one_rule("scope: global, bands: [ { capacity: 1, window: 1h } ]");
    let run = simulate_with(
        rules,
        "{\"t\":0}\n{\"t\":0}\n",
        Options {
            summary: true,
            ..Options::default()
        },
    );
    assert!(
        run.summary().ends_with("           1  api/r  (everyone)\n"),
        "{}",
        run.summary()
    );
}

#[test]
fn a_missing_key_is_counted_and_has_no_identity() {
    let rules =
        &one_rule("scope: per_user, on_missing_key: deny, bands: [ { capacity: 1, window: 1h } ]");
    let run = simulate_with(
        rules,
        "{\"t\":0}\n{\"t\":0}\n",
        Options {
            summary: true,
            ..Options::default()
        },
    );
    let expected = "\
rule                requests       allowed        denied  shadow-denied
api/r                      2             0             2              0
(all requests)             2             0             2              0
";
    assert_eq!(run.summary(), expected);
}

#[test]
fn the_summary_of_no_requests_has_zeros() {
    let rules = TWO_A_SECOND;
    let run = simulate_with(
        rules,
        "",
        Options {
            summary: true,
            lenient: true,
            ..Options::default()
        },
    );
    let expected = "\
rule                requests       allowed        denied  shadow-denied
api/r                      0             0             0              0
(all requests)             0             0             0              0
";
    assert_eq!(run.summary(), expected);
}
