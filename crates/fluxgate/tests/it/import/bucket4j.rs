//! The Spring Boot starter for Bucket4j.

use super::{assert_lines, at_once, decide, rules};

const SHOP: &str = r#"
spring: { application: { name: shop } }
bucket4j:
  enabled: true
  filters:
    - id: login
      cache-name: buckets
      url: /login
      http-response-body: '{ "message": "slow down" }'
      rate-limits:
        - cache-key: getRemoteAddr()
          execute-predicates: [ { METHOD: "POST" } ]
          bandwidths:
            - { capacity: 2, time: 1, unit: minutes, refill-speed: interval }
    - cacheName: buckets
      url: ^(/api/).*
      strategy: first
      rateLimits:
        - execute-condition: "@security.isInternal()"
          cache-key: "1"
          bandwidths: [ { capacity: 5, time: 1, unit: seconds } ]
        - execute-condition: "getHeader('X-Plan') == 'gold'"
          cache-key: "getHeader('X-Api-Key') ?: getRemoteAddr()"
          bandwidths: [ { capacity: 4, time: 1, unit: seconds, initial-capacity: 2 } ]
        - cache-key: "@security.username()"
          skip-condition: "getHeader('X-Internal') != null"
          num-tokens: 2
          bandwidths:
            - { id: burst, capacity: 4, time: 1, unit: SECONDS }
            - { capacity: "${DAILY:100}", refill-capacity: 50, time: 1, unit: days }
    - url: (?!/public).*
      rate-limits: [ { bandwidths: [ { capacity: 1, time: 1, unit: seconds } ] } ]
    - url: .*
      rate-limits:
        - cache-key: "@geo.country()"
          bandwidths: [ { capacity: 1, time: 1, unit: seconds } ]
  methods:
    - { name: expensive, cache-name: buckets }
"#;

#[test]
fn filters_become_groups_of_rules() {
    let rules = rules("bucket4j", SHOP);
    assert_lines(
        &rules,
        &[
            "# not carried over: the rate limit with `execute-condition: @security.isInternal()` (line 19)",
            "# not carried over: the filter for `(?!/public).*`: no path pattern matches the same paths (line 31)",
            "# not carried over: a rate limit by `@geo.country()`: a rule cannot count by it (line 35)",
            "# not carried over: `methods`: rules apply to requests, not to methods (line 37)",
            "bucket4j:",
            "# not carried over: `http-response-body`: a denial is problem+json (line 9)",
            "# changed: intervals begin at fixed times, not with the first request of a key (line 14)",
            "- id: login",
            "path: [\"/login\"]",
            "methods: [POST]",
            "scope: per_ip",
            "algorithm: fixed_window",
            "- { capacity: 2, window: 1m }",
            "# not carried over: `initial-capacity: 2`: buckets start full (line 24)",
            "- id: filter-2-2",
            "path: [\"/api/*/**\"]",
            "headers: { X-Plan: gold }",
            "key: [\"header:X-Api-Key\"]",
            "group: filter-2",
            "- { capacity: 4, window: 1s }",
            "# changed: `@security.username()` is the user of the request, see `identity` of the filter (line 25)",
            "# changed: `${DAILY}` is its default, 100 (line 30)",
            "- id: filter-2-3",
            "headers: { X-Internal: { present: false } }",
            "scope: per_user",
            "group: filter-2",
            "on_missing_key: anonymous",
            "- { id: burst, capacity: 4, window: 1s }",
            "- { capacity: 100, window: 1d, refill: 50, period: 1d }",
            "cost: 2",
        ],
    );
    let api = |headers: &str| {
        format!("\"path\":\"/api/x\",\"user\":\"u\",\"ip\":\"192.0.2.1\",\"headers\":{{{headers}}}")
    };
    for (headers, expected) in [
        ("", "aaddd"),
        ("\"X-Plan\":\"gold\"", "aaaad"),
        ("\"X-Internal\":\"1\"", "aaaaa"),
    ] {
        let request = api(headers);
        assert_eq!(
            at_once(&rules, &[request.as_str(); 5]),
            expected,
            "{headers}"
        );
    }
    let login =
        |method: &str| format!("\"path\":\"/login\",\"method\":\"{method}\",\"ip\":\"192.0.2.1\"");
    let (post, get) = (login("POST"), login("GET"));
    assert_eq!(at_once(&rules, &[&post, &post, &post, &get]), "aada");
}

#[test]
fn a_greedy_refill_is_continuous() {
    let text = "bucket4j: { filters: [ { rate-limits: [ { bandwidths: [ { capacity: 2, time: 1, unit: seconds } ] } ] } ] }";
    let rules = rules("bucket4j", text);
    let lines = [0, 0, 0, 499_999, 500_000, 500_000].map(|t| format!("{{\"t\":{t}}}\n"));
    assert_eq!(decide(&rules, &lines.concat()), "aaddad");
}

#[test]
fn both_kinds_of_refill_need_two_rules() {
    let rules = rules(
        "bucket4j",
        "
bucket4j:
  enabled: false
  filters:
    - strategy: all
      rate-limits:
        - post-execute-condition: getStatus() eq 401
          bandwidths:
            - { capacity: 10, time: 1, unit: seconds }
            - { capacity: 1000, time: 1, unit: days, refillSpeed: INTERVAL }
        - bandwidths: [ { capacity: 1, time: 1000, unit: days }, { capacity: 5, time: 1, unit: hours } ]
",
    );
    assert_lines(
        &rules,
        &[
            "# changed: `enabled: false`, so the rules are disabled (line 3)",
            "# not carried over: `post-execute-condition`: every request counts (line 7)",
            "- id: filter-1-1",
            "enabled: false",
            "- { capacity: 10, window: 1s }",
            "- id: filter-1-1-interval",
            "algorithm: fixed_window",
            "- { capacity: 1000, window: 1d }",
            "# not carried over: a bandwidth whose time is longer than 366 days (line 11)",
            "- { capacity: 5, window: 1h }",
        ],
    );
    assert!(!rules.contains("group"), "{rules}");
}
