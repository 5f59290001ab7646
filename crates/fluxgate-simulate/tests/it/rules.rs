//! How the rules of a set combine, and which set decides.

use fluxgate_simulate::Options;

use crate::support::{allowed, denied, one_rule, simulate, simulate_with, unreported};

#[test]
fn the_bands_of_a_rule_are_charged_together_or_not_at_all() {
    let rules = &one_rule(
        "scope: global, bands: [ { id: burst, capacity: 2, window: 1s }, \
         { id: sustained, capacity: 3, window: 1m } ]",
    );
    let lines = [
        r#"{"t":0}"#,
        r#"{"t":0}"#,
        r#"{"t":0}"#,
        r#"{"t":1000000}"#,
        r#"{"t":1000000}"#,
        r#"{"t":1000000,"cost":2}"#,
        r#"{"t":1000000,"cost":3}"#,
    ];
    let run = simulate(rules, lines.join("\n"));
    assert_eq!(
        run.lines(),
        [
            allowed(0, ("r/burst", 2, 1), 500_000),
            allowed(0, ("r/burst", 2, 0), 1_000_000),
            denied(0, ("r/burst", 2, 0), 500_000, 1_000_000, &["r/burst"]),
            // The denial took nothing: 1.05 of three are left, and one is taken.
            allowed(1_000_000, ("r/sustained", 3, 0), 59_000_000),
            denied(
                1_000_000,
                ("r/sustained", 3, 0),
                19_000_000,
                59_000_000,
                &["r/sustained"]
            ),
            denied(
                1_000_000,
                ("r/sustained", 3, 0),
                39_000_000,
                59_000_000,
                &["r/burst", "r/sustained"]
            ),
            // Never is the longest wait.
            denied(
                1_000_000,
                ("r/burst", 2, 1),
                None,
                500_000,
                &["r/burst", "r/sustained"]
            ),
        ]
    );
}

#[test]
fn the_rules_of_a_set_are_charged_together_in_order_of_priority() {
    let rules = "
rule_sets:
  api:
    rules:
      - { id: last, scope: global, priority: 200, bands: [ { capacity: 1, window: 1s } ] }
      - { id: per-user, scope: per_user, bands: [ { capacity: 1, window: 1s } ] }
      - { id: first, scope: per_user, priority: -1, bands: [ { capacity: 5, window: 1s } ] }
      - { id: off, scope: global, enabled: false, bands: [ { capacity: 1, window: 1d } ] }
";
    let lines = [
        r#"{"t":0,"user":"a"}"#,
        r#"{"t":0,"user":"b"}"#,
        r#"{"t":0,"user":"a"}"#,
        r#"{"t":0,"user":"a","cost":6}"#,
    ];
    let run = simulate(rules, lines.join("\n"));
    assert_eq!(
        run.lines(),
        [
            // Of two bands with nothing left, the first is reported.
            allowed(0, ("per-user/b0", 1, 0), 1_000_000),
            denied(0, ("last/b0", 1, 0), 1_000_000, 1_000_000, &["last/b0"]),
            denied(
                0,
                ("per-user/b0", 1, 0),
                1_000_000,
                1_000_000,
                &["per-user/b0", "last/b0"]
            ),
            denied(
                0,
                ("first/b0", 5, 4),
                None,
                200_000,
                &["first/b0", "per-user/b0", "last/b0"]
            ),
        ]
    );
}

#[test]
fn a_shadow_rule_is_reported_and_never_denies() {
    let shadow = "mode: shadow, scope: per_user, bands: [ { capacity: 1, window: 1s } ]";
    let rules = &one_rule(shadow);
    let run = simulate(
        rules,
        "{\"t\":0,\"user\":\"a\"}\n{\"t\":0,\"user\":\"a\"}\n",
    );
    assert_eq!(
        run.lines(),
        [
            unreported(0, "allowed", ""),
            unreported(0, "shadow_denied", "\"r/b0\""),
        ]
    );
}

#[test]
fn an_enforced_rule_is_reported_rather_than_a_shadow_rule() {
    let rules = "
rule_sets:
  api:
    rules:
      - { id: s, mode: shadow, scope: global, priority: 1, bands: [ { capacity: 1, window: 1m } ] }
      - { id: e, scope: global, bands: [ { capacity: 2, window: 1m } ] }
";
    let run = simulate(rules, "{\"t\":0}\n{\"t\":0}\n{\"t\":0}\n");
    let second = allowed(0, ("e/b0", 2, 0), 60_000_000)
        .replace(r#""outcome":"allowed""#, r#""outcome":"shadow_denied""#)
        .replace(r#""violated":[]"#, r#""violated":["s/b0"]"#);
    assert_eq!(
        run.lines(),
        [
            allowed(0, ("e/b0", 2, 1), 30_000_000),
            second,
            // A denied request does not reach shadow rules.
            denied(0, ("e/b0", 2, 0), 30_000_000, 60_000_000, &["e/b0"]),
        ]
    );
}

#[test]
fn a_missing_key_can_deny() {
    let rules =
        &one_rule("scope: per_user, on_missing_key: deny, bands: [ { capacity: 1, window: 1s } ]");
    let run = simulate(
        rules,
        "{\"t\":0}\n{\"t\":0,\"user\":\"\"}\n{\"t\":0,\"user\":\"a\"}",
    );
    let missing = r#"{"t":0,"allowed":false,"outcome":"never","rule":"r","band":null,"limit":null,"remaining":0,"retry_after_us":null,"reset_after_us":0,"delay_us":0,"violated":["r/missing_key"]}"#;
    assert_eq!(
        run.lines(),
        [missing, missing, &allowed(0, ("r/b0", 1, 0), 1_000_000)]
    );
}

#[test]
fn a_missing_key_can_be_replaced_or_skip_the_rule() {
    let lines = concat!(
        "{\"t\":0,\"ip\":\"10.0.0.1\"}\n",
        "{\"t\":0,\"ip\":\"10.0.0.2\"}\n",
        "{\"t\":0}\n",
        "{\"t\":0}\n"
    );
    for (on_missing_key, outcomes) in [("ip", "aaad"), ("anonymous", "addd"), ("skip", "aaaa")] {
        let rules = &one_rule(&format!(
            "scope: per_user, on_missing_key: {on_missing_key}, bands: [ {{ capacity: 1, window: 1s }} ]"
        ));
        assert_eq!(
            simulate(rules, lines).outcomes(),
            outcomes,
            "{on_missing_key}"
        );
    }
}

#[test]
fn an_override_gives_an_identity_other_bands() {
    let rules = &one_rule(
        "scope: per_user, bands: [ { capacity: 1, window: 1s } ], overrides: \
         [ { identity: vip, bands: [ { id: more, capacity: 7, window: 7s } ] } ]",
    );
    let run = simulate(
        rules,
        "{\"t\":0,\"user\":\"vip\"}\n{\"t\":0,\"user\":\"ann\"}\n",
    );
    assert_eq!(
        run.lines(),
        [
            allowed(0, ("r/more", 7, 6), 1_000_000),
            allowed(0, ("r/b0", 1, 0), 1_000_000),
        ]
    );
}

const TWO_SETS: &str = "
rule_sets:
  one:
    rules: [ { id: r1, scope: global, bands: [ { capacity: 1, window: 1s } ] } ]
  two:
    rules: [ { id: r2, scope: global, bands: [ { capacity: 2, window: 2s } ] } ]
";

#[test]
fn each_line_is_decided_by_the_set_it_names() {
    let rules = TWO_SETS;
    let run = simulate(
        rules,
        "{\"t\":0,\"rule_set\":\"one\"}\n{\"t\":0,\"rule_set\":\"two\"}\n",
    );
    assert_eq!(
        run.lines(),
        [
            allowed(0, ("r1/b0", 1, 0), 1_000_000),
            allowed(0, ("r2/b0", 2, 1), 1_000_000),
        ]
    );
}

#[test]
fn a_line_without_a_rule_set_is_bad_if_there_are_several() {
    let rules = TWO_SETS;
    let run = simulate(rules, "{\"t\":0,\"rule_set\":\"one\"}\n{\"t\":0}\n");
    assert_eq!(run.decisions.lines().count(), 1);
    assert_eq!(
        run.error(),
        "line 2: `rule_set` is missing, and the rules do not have exactly one"
    );
}

#[test]
fn the_rule_set_option_is_for_lines_that_name_none() {
    let rules = TWO_SETS;
    let input = "{\"t\":0}\n{\"t\":0,\"rule_set\":\"one\"}\n{\"t\":0,\"rule_set\":null}\n";
    let run = simulate_with(
        rules,
        input,
        Options {
            rule_set: Some("two".into()),
            ..Options::default()
        },
    );
    assert_eq!(
        run.lines(),
        [
            allowed(0, ("r2/b0", 2, 1), 1_000_000),
            allowed(0, ("r1/b0", 1, 0), 1_000_000),
            allowed(0, ("r2/b0", 2, 0), 2_000_000),
        ]
    );
}

#[test]
fn an_unknown_rule_set_is_allowed_and_reported_once() {
    let rules = TWO_SETS;
    let line = "{\"t\":9,\"rule_set\":\"three\\u001b[31m\"}\n";
    let run = simulate(rules, line.repeat(3));
    assert!(run.result.is_ok());
    let expected = unreported(9, "no_rule", "") + "\n";
    assert_eq!(run.decisions, expected.repeat(3));
    assert_eq!(
        run.simulation.warnings(),
        ["there is no rule set `three\\u{1b}[31m`; its requests were allowed"]
    );
}

#[test]
fn an_unknown_rule_set_can_be_denied() {
    let rules = &format!("on_missing_rule_set: deny\n{TWO_SETS}");
    let run = simulate_with(
        rules,
        "{\"t\":9}\n",
        Options {
            rule_set: Some("three".into()),
            ..Options::default()
        },
    );
    assert!(run.result.is_ok());
    assert_eq!(
        run.decisions,
        concat!(
            r#"{"t":9,"allowed":false,"outcome":"denied","rule":null,"band":null,"limit":null,"remaining":null,"retry_after_us":null,"reset_after_us":0,"delay_us":0,"violated":[]}"#,
            "\n"
        )
    );
    assert_eq!(
        run.simulation.warnings(),
        ["there is no rule set `three`; its requests were denied"]
    );
}

#[test]
fn two_runs_write_the_same_bytes() {
    let rules = "
rule_sets:
  api:
    rules:
      - { id: tb, scope: per_user, bands: [ { capacity: 3, window: 1s }, { capacity: 40, window: 7m } ] }
      - { id: sl, scope: per_ip, algorithm: sliding_log, bands: [ { capacity: 9, window: 2s } ] }
      - { id: sw, key: [user, ip], algorithm: sliding_window, bands: [ { capacity: 5, window: 3s } ] }
      - { id: fw, scope: global, mode: shadow, algorithm: fixed_window, bands: [ { capacity: 20, window: 1s } ] }
";
    // A pseudo-random sequence that is partly out of order.
    let mut seed = 1_u64;
    let mut next = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut input = String::new();
    for index in 0..5_000 {
        let t = index * 10_000 + next(3_000_000);
        let (user, ip, cost) = (next(20), next(30), next(4));
        input +=
            &format!("{{\"t\":{t},\"user\":\"u{user}\",\"ip\":\"10.0.0.{ip}\",\"cost\":{cost}}}\n");
    }
    let run = || {
        let options = Options {
            summary: true,
            ..Options::default()
        };
        simulate_with(rules, &input, options)
    };
    let (first, second) = (run(), run());
    assert_eq!(first.lines().len(), 5_000);
    let decisions = &first.decisions;
    assert!(decisions.contains("\"denied\"") && decisions.contains("\"shadow_denied\""));
    assert!(*decisions == second.decisions);
    assert_eq!(first.summary(), second.summary());
}
