//! envoyproxy/ratelimit.

use fluxgate_import::Format;

use super::{assert_lines, at_once, rules};

/// Returns a request with these attributes.
fn with(attributes: &str) -> String {
    format!("\"attributes\":{{{attributes}}}")
}

/// Decides descriptors, given as attributes.
#[track_caller]
fn descriptors(rules: &str, attributes: &[&str]) -> String {
    let requests: Vec<_> = attributes.iter().map(|it| with(it)).collect();
    let requests: Vec<_> = requests.iter().map(String::as_str).collect();
    at_once(rules, &requests)
}

const MAIL: &str = "
domain: mail
descriptors:
  - key: kind
    value: newsletter
    descriptors:
      - key: recipient
        rate_limit: { unit: day, requests_per_unit: 1 }
  - key: recipient
    rate_limit: { unit: day, requests_per_unit: 2, name: per-recipient }
  - key: blocked
    rate_limit: { unit: second, requests_per_unit: 0 }
";

#[test]
fn a_limit_counts_descriptors_with_exactly_its_keys() {
    let rules = rules(Format::EnvoyRatelimit, MAIL);
    assert_lines(
        &rules,
        &[
            "mail:",
            "- id: kind-newsletter-recipient",
            "attributes: { kind: newsletter }",
            "key: [\"attr:recipient\"]",
            "on_missing_key: skip",
            "algorithm: fixed_window",
            "- { capacity: 1, window: 1d }",
            "- id: recipient",
            "name: per-recipient",
            "attributes: { kind: { present: false } }",
            "- { capacity: 2, window: 1d }",
        ],
    );
    let newsletter = "\"kind\":\"newsletter\",\"recipient\":\"a\"";
    let other = "\"kind\":\"newsletter\",\"recipient\":\"b\"";
    let plain = "\"recipient\":\"a\"";
    let decided = descriptors(
        &rules,
        &[newsletter, newsletter, other, plain, plain, plain],
    );
    assert_eq!(decided, "adaaad");
}

#[test]
fn a_limit_of_zero_denies() {
    let rules = rules(Format::EnvoyRatelimit, MAIL);
    assert_eq!(
        descriptors(&rules, &["\"blocked\":\"x\"", "\"x\":\"y\""]),
        "da"
    );
    assert_lines(
        &rules,
        &[
            "- id: blocked",
            "action: deny",
            "attributes: { blocked: { present: true } }",
        ],
    );
    // A cost of its own does not help a request.
    let request = |value: &str| format!("{},\"cost\":1", with(&format!("\"blocked\":\"{value}\"")));
    assert_eq!(at_once(&rules, &[&request("x"), &request("y")]), "dd");
}

#[test]
fn a_limit_of_zero_has_exceptions() {
    let rules = rules(
        Format::EnvoyRatelimit,
        "
domain: api
descriptors:
  - key: plan
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: plan
    value: internal
    rate_limit: { unlimited: true }
",
    );
    assert_lines(
        &rules,
        &[
            "# changed: a call with a `hits_addend` of 1 passes once in 366 days for each value (line 4)",
            "attributes: { plan: { not: internal } }",
            "cost: 1000000000",
        ],
    );
    let plans = ["\"plan\":\"free\"", "\"plan\":\"internal\"", "\"x\":\"y\""];
    assert_eq!(descriptors(&rules, &plans), "daa");
}

const TIERS: &str = "
domain: api
descriptors:
  - key: plan
    rate_limit: { unit: minute, requests_per_unit: 2 }
  - key: plan
    value: gold
    rate_limit: { unit: minute, requests_per_unit: 4 }
  - key: plan
    value: internal
    rate_limit: { unlimited: true }
  - key: plan
    value: trial
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 1 }
";

#[test]
fn a_value_takes_precedence_over_any_value() {
    let rules = rules(Format::EnvoyRatelimit, TIERS);
    assert_lines(
        &rules,
        &[
            "- id: plan-gold",
            "attributes: { plan: gold }",
            "scope: global",
            "group: plan",
            "- id: plan-trial",
            "mode: shadow",
            "- id: plan",
            "attributes: { plan: { not: [internal, trial] } }",
            "group: plan",
        ],
    );
    for (plan, expected) in [
        ("free", "aaddd"),
        ("gold", "aaaad"),
        ("internal", "aaaaa"),
        ("trial", "aaaaa"),
    ] {
        let request = format!("\"plan\":\"{plan}\"");
        assert_eq!(
            descriptors(&rules, &[request.as_str(); 5]),
            expected,
            "{plan}"
        );
    }
}

#[test]
fn a_lookup_never_goes_back_up() {
    let rules = rules(
        Format::EnvoyRatelimit,
        "
domain: api
descriptors:
  - key: tenant
    descriptors:
      - key: user
        rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: tenant
    value: acme
    descriptors:
      - key: team
        rate_limit: { unit: hour, requests_per_unit: 1 }
",
    );
    let user = |tenant: &str| format!("\"tenant\":\"{tenant}\",\"user\":\"u\"");
    let (acme, other) = (user("acme"), user("other"));
    assert_eq!(descriptors(&rules, &[&acme, &acme, &other, &other]), "aaad");
}

#[test]
fn units_are_whole_multiples_of_their_length() {
    for (unit, window) in [
        ("second", "1s"),
        ("MINUTE", "1m"),
        ("hour", "1h"),
        ("day", "1d"),
        ("week", "7d"),
        ("month", "30d"),
        ("year", "365d"),
    ] {
        let text = format!(
            "domain: d\ndescriptors: [ {{ key: k, rate_limit: {{ unit: {unit}, requests_per_unit: 7 }} }} ]"
        );
        let expected = format!("- {{ capacity: 7, window: {window} }}");
        assert_lines(&rules(Format::EnvoyRatelimit, &text), &[&expected]);
    }
}

#[test]
fn what_rules_do_not_express_is_in_comments() {
    let rules = rules(
        Format::EnvoyRatelimit,
        "
domain: api
descriptors:
  - key: path
    value: /api/*
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: user
    detailed_metric: true
    rate_limit:
      unit: hour
      requests_per_unit: 4000000000
      replaces:
        - name: other
  - key: a
    descriptors:
      - key: b
        rate_limit: { unit: hour, requests_per_unit: 1 }
      - key: a
        rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: b
    descriptors:
      - key: a
        rate_limit: { unit: hour, requests_per_unit: 1 }
",
    );
    assert_lines(
        &rules,
        &[
            "# not carried over: the prefix `/api/*` of `path`, and all below it (line 4)",
            "# not carried over: a descriptor with the key `a` twice, and all below it (line 18)",
            "# not carried over: `replaces`: both limits apply (line 13)",
            "# changed: 4000000000 requests per unit are reduced to 1000000000, the maximum (line 7)",
            "# not carried over: the order of entries, so descriptors ordered as a, b count here too (line 22)",
        ],
    );
}

#[test]
fn patterns_are_left_out_wherever_their_star_is() {
    let rules = rules(
        Format::EnvoyRatelimit,
        "
domain: api
descriptors:
  - key: path
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: path
    value: /a/*/b
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: path
    value: '*.png'
    descriptors: [ { key: user, rate_limit: { unit: hour, requests_per_unit: 1 } } ]
  - key: 'x*'
    rate_limit: { unit: hour, requests_per_unit: 1 }
",
    );
    assert_lines(
        &rules,
        &[
            "# not carried over: the pattern `/a/*/b` of `path`, and all below it (line 6)",
            "# not carried over: the pattern `*.png` of `path`, and all below it (line 9)",
            "# not carried over: the pattern `x*`, and all below it (line 12)",
            "- id: path",
        ],
    );
    assert_eq!(rules.matches("- id: ").count(), 1, "{rules}");
    let path = "\"attributes\":{\"path\":\"/a/x/b\"}";
    assert_eq!(at_once(&rules, &[path; 3]), "aad");
}

#[test]
fn metrics_and_metadata_are_in_comments() {
    let rules = rules(
        Format::EnvoyRatelimit,
        "
domain: api
descriptors:
  - key: a
    metadata: { team: [x] }
    value_to_metric: true
    descriptors:
      - key: b
        detailed_metric: true
        rate_limit: { unit: hour, requests_per_unit: 1 }
",
    );
    assert_lines(
        &rules,
        &[
            "# not carried over: `metadata`: responses have none (line 5)",
            "# not carried over: `value_to_metric`: metrics have the rule, but no values (line 6)",
            "rule_sets:",
            "# not carried over: `detailed_metric`: metrics have the rule, but no values (line 9)",
            "- id: a-b",
        ],
    );
}

#[test]
fn merge_keys_are_resolved() {
    let rules = rules(
        Format::EnvoyRatelimit,
        "
domain: api
descriptors:
  - key: a
    rate_limit: &hourly { unit: hour, requests_per_unit: 7 }
  - key: b
    rate_limit: { <<: *hourly, requests_per_unit: 9 }
",
    );
    assert_lines(
        &rules,
        &[
            "- id: a",
            "- { capacity: 7, window: 1h }",
            "- id: b",
            "- { capacity: 9, window: 1h }",
        ],
    );
}
