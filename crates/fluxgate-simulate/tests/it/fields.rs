//! The fields of a line.

use crate::support::{TWO_A_SECOND, allowed, denied, one_rule, simulate, unreported};

const ONE: &str = "bands: [ { capacity: 1, window: 1h } ]";

/// Returns whether each line was allowed under one rule of one unit an hour.
#[track_caller]
fn outcomes(fields: &str, lines: &[&str]) -> String {
    let rules = &one_rule(&format!("{fields}, {ONE}"));
    simulate(rules, lines.join("\n")).outcomes()
}

#[test]
fn a_decision_has_eleven_fields_in_a_fixed_order() {
    let rules = TWO_A_SECOND;
    let run = simulate(
        rules,
        "{\"t\":5,\"user\":\"ann\"}\n{\"t\":5,\"user\":\"ann\",\"cost\":2}\n",
    );
    assert!(run.result.is_ok());
    assert_eq!(
        run.decisions,
        concat!(
            r#"{"t":5,"allowed":true,"outcome":"allowed","rule":"r","band":"b0","limit":2,"remaining":1,"retry_after_us":0,"reset_after_us":500000,"delay_us":0,"violated":[]}"#,
            "\n",
            r#"{"t":5,"allowed":false,"outcome":"denied","rule":"r","band":"b0","limit":2,"remaining":1,"retry_after_us":500000,"reset_after_us":500000,"delay_us":0,"violated":["r/b0"]}"#,
            "\n"
        )
    );
    for line in run.decisions.lines() {
        let fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(line).unwrap();
        assert_eq!(fields.len(), 11);
    }
}

#[test]
fn a_line_may_use_every_field_at_once() {
    let rules = &one_rule(
        "key: [ip, user, api_key, method, path, 'header:X-Tenant', 'attr:plan'], on_missing_key: deny, \
         bands: [ { capacity: 9, window: 9s } ]",
    );
    let line = r#"{"t":1,"rule_set":"api","ip":"10.0.0.1","user":"u","api_key":"k","method":"GET","path":"/x","headers":{"x-tenant":"a"},"attributes":{"plan":"free"},"cost":4}"#;
    let run = simulate(rules, line);
    assert_eq!(run.lines(), [allowed(1, ("r/b0", 9, 5), 4_000_000)]);
}

#[test]
fn every_part_of_a_key_distinguishes_identities() {
    let parts = [
        ("ip", r#""ip":"10.0.0.1""#, r#""ip":"10.0.0.2""#),
        ("user", r#""user":"a""#, r#""user":"A""#),
        ("api_key", r#""api_key":"a""#, r#""api_key":"b""#),
        ("method", r#""method":"GET""#, r#""method":"get""#),
        ("path", r#""path":"/a""#, r#""path":"/a/""#),
        (
            "'header:x'",
            r#""headers":{"X":"a"}"#,
            r#""headers":{"X":"b"}"#,
        ),
        (
            "'attr:x'",
            r#""attributes":{"x":"a"}"#,
            r#""attributes":{"x":"b"}"#,
        ),
    ];
    for (part, one, other) in parts {
        let line = |identity: &str| format!("{{\"t\":0,{identity}}}");
        let (one, other) = (line(one), line(other));
        let key = format!("key: [{part}], on_missing_key: deny");
        assert_eq!(
            outcomes(&key, &[&one, &one, &other, &other]),
            "adad",
            "{part}"
        );
    }
}

#[test]
fn time_may_be_written_as_rfc_3339_and_is_cut_at_the_microsecond() {
    let rules = TWO_A_SECOND;
    let lines = [
        r#"{"time":"1970-01-01T00:00:01.0000019Z","user":"a"}"#,
        r#"{"time":"1970-01-01T01:00:01.5+01:00","user":"a"}"#,
        r#"{"t":1500000,"user":"a"}"#,
        r#"{"time":"2024-02-29T23:59:59-12:30","user":"b"}"#,
    ];
    let run = simulate(rules, lines.join("\n"));
    assert_eq!(
        run.lines(),
        [
            allowed(1_000_001, ("r/b0", 2, 1), 500_000),
            // One microsecond short of full.
            allowed(1_500_000, ("r/b0", 2, 0), 500_001),
            denied(1_500_000, ("r/b0", 2, 0), 1, 500_001, &["r/b0"]),
            allowed(1_709_296_199_000_000, ("r/b0", 2, 1), 500_000),
        ]
    );
}

#[test]
fn a_null_field_counts_as_absent() {
    let rules = TWO_A_SECOND;
    let all_null = r#"{"t":0,"time":null,"rule_set":null,"ip":null,"user":null,"api_key":null,"method":null,"path":null,"headers":null,"attributes":null,"cost":null}"#;
    let lines = [
        all_null,
        r#"{"t":0}"#,
        r#"{"t":null,"time":"1970-01-01T00:00:00Z","headers":{"a":null,"A":"1"}}"#,
    ];
    // All three are the same anonymous user at the same time.
    assert_eq!(simulate(rules, lines.join("\n")).outcomes(), "aad");
}

#[test]
fn numbers_and_booleans_count_as_their_json_text() {
    let cases = [
        ("attributes: { v: 'true' }", r#""attributes":{"v":true}"#),
        ("attributes: { v: '1.50' }", r#""attributes":{"v":1.50}"#),
        ("attributes: { v: '-1e3' }", r#""attributes":{"v":-1e3}"#),
        ("headers: { V: '7' }", r#""headers":{"v":7}"#),
        ("headers: { V: 'false' }", r#""headers":{"v": false }"#),
        (
            "headers: { V: '12345678901234567890123' }",
            r#""headers":{"v":12345678901234567890123}"#,
        ),
    ];
    for (wanted, given) in cases {
        let rules = &one_rule(&format!("scope: global, match: {{ {wanted} }}, {ONE}"));
        let run = simulate(rules, format!("{{\"t\":0,{given}}}"));
        assert_eq!(
            run.lines(),
            [allowed(0, ("r/b0", 1, 0), 3_600_000_000)],
            "{wanted}"
        );
    }
}

#[test]
fn escapes_in_names_and_values_are_decoded() {
    let lines = [
        r#"{"t":0,"us\u0065r":"\u0061\"\\\/\ud83d\ude00"}"#,
        r#"{"t":0,"user":"a\"\\/😀"}"#,
        r#"{"t":0,"user":"a\"\\/"}"#,
    ];
    assert_eq!(outcomes("scope: per_user", &lines), "ada");
}

#[test]
fn header_names_compare_without_case_and_values_with_it() {
    let lines = [
        r#"{"t":0,"headers":{"X-TENANT":"a"}}"#,
        r#"{"t":0,"headers":{"x-tenant":"a"}}"#,
        r#"{"t":0,"headers":{"x-tenant":"A"}}"#,
    ];
    assert_eq!(outcomes("key: ['header:X-Tenant']", &lines), "ada");
}

#[test]
fn attribute_names_compare_with_case() {
    let lines = [
        r#"{"t":0,"attributes":{"a":"1","A":"2"}}"#,
        r#"{"t":0,"attributes":{"A":"1"}}"#,
        r#"{"t":0,"attributes":{"a":"1"}}"#,
    ];
    assert_eq!(
        outcomes("key: ['attr:a'], on_missing_key: anonymous", &lines),
        "aad"
    );
}

#[test]
fn a_line_with_200_000_headers_is_parsed_quickly() {
    // Comparing every pair would take minutes.
    let headers: Vec<_> = (0..200_000)
        .map(|index| format!("\"h{index}\":1"))
        .collect();
    let headers = headers.join(",");
    let rules = TWO_A_SECOND;
    let run = simulate(rules, format!("{{\"t\":0,\"headers\":{{{headers}}}}}"));
    assert_eq!(run.outcomes(), "a");
    let run = simulate(
        rules,
        format!("{{\"t\":0,\"headers\":{{{headers},\"H7\":1}}}}"),
    );
    assert_eq!(run.error(), "line 1: header \"H7\" appears twice");
}

#[test]
fn an_ipv6_address_counts_by_its_prefix_and_a_mapped_one_as_ipv4() {
    let lines = [
        r#"{"t":0,"ip":"2001:db8:0:1::1"}"#,
        r#"{"t":0,"ip":"2001:db8:0:1:ffff::2"}"#,
        r#"{"t":0,"ip":"2001:db8:0:2::1"}"#,
        r#"{"t":0,"ip":"10.0.0.1"}"#,
        r#"{"t":0,"ip":"::ffff:10.0.0.1"}"#,
    ];
    assert_eq!(outcomes("scope: per_ip", &lines), "adaad");
    let rules = format!(
        "keys: {{ ipv6_prefix: 48 }}\n{}",
        one_rule(&format!("scope: per_ip, {ONE}"))
    );
    let run = simulate(&rules, lines.join("\n"));
    assert_eq!(run.outcomes(), "addad");
}

#[test]
fn the_cost_of_a_line_replaces_that_of_every_rule() {
    let rules = &one_rule("scope: global, cost: 3, bands: [ { capacity: 10, window: 10s } ]");
    let run = simulate(
        rules,
        "{\"t\":0}\n{\"t\":0,\"cost\":5}\n{\"t\":0,\"cost\":0}\n{\"t\":0}\n",
    );
    assert_eq!(
        run.lines(),
        [
            allowed(0, ("r/b0", 10, 7), 3_000_000),
            allowed(0, ("r/b0", 10, 2), 8_000_000),
            allowed(0, ("r/b0", 10, 2), 8_000_000),
            denied(0, ("r/b0", 10, 2), 1_000_000, 8_000_000, &["r/b0"]),
        ]
    );
}

#[test]
fn a_cost_header_that_is_not_a_whole_number_from_1_counts_as_1() {
    let rules = &one_rule(
        "scope: global, cost: 'header:X-Cost', bands: [ { capacity: 100, window: 100s } ]",
    );
    let costs = [
        "7", "\"8\"", "0", "\"-5\"", "\"+5\"", "1.5", "\"\"", "null", "true",
    ];
    let lines = costs.map(|cost| format!("{{\"t\":0,\"headers\":{{\"x-cost\":{cost}}}}}\n"));
    let run = simulate(rules, lines.concat());
    let remaining: Vec<_> = run
        .lines()
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["remaining"].as_u64())
        .collect();
    let expected = [93, 85, 84, 83, 82, 81, 80, 79, 78].map(Some);
    assert_eq!(remaining, expected);
}

#[test]
fn blank_lines_and_line_ends_of_any_kind_are_ignored() {
    let rules = TWO_A_SECOND;
    let run = simulate(
        rules,
        "\n  \t\n\r\n{\"t\":0}\r\n\n  {\"t\":0}  \n\n{\"t\":0}",
    );
    assert_eq!(run.outcomes(), "aad");
}

#[test]
fn an_empty_input_gives_an_empty_output() {
    let rules = TWO_A_SECOND;
    for input in ["", "\n", "   "] {
        assert!(simulate(rules, input).lines().is_empty());
    }
}

#[test]
fn a_request_that_no_rule_matches_passes_with_nothing_reported() {
    let rules = &one_rule(&format!(
        "scope: global, match: {{ path: ['/api/**'] }}, {ONE}"
    ));
    let run = simulate(
        rules,
        "{\"t\":3}\n{\"t\":3,\"path\":\"/apis\"}\n{\"t\":3,\"path\":\"/api\"}",
    );
    assert_eq!(
        run.lines(),
        [
            unreported(3, "no_rule", ""),
            unreported(3, "no_rule", ""),
            allowed(3, ("r/b0", 1, 0), 3_600_000_000),
        ]
    );
}
