//! The Spring Boot starter for Bucket4j.

use fluxgate_import::Format;

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
    let rules = rules(Format::Bucket4j, SHOP);
    assert_lines(
        &rules,
        &[
            "# not carried over: the rate limit with `execute-condition: @security.isInternal()` (line 19)",
            "# changed: `${DAILY}` is its default, 100 (line 30)",
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
            "- id: filter-2-3",
            "headers: { X-Internal: { present: false } }",
            "scope: per_user",
            "group: filter-2",
            "on_missing_key: anonymous",
            "- { id: burst, capacity: 4, window: 1s }",
            "- { capacity: 100, window: 1d, refill: 50 }",
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
    let rules = rules(Format::Bucket4j, text);
    let lines = [0, 0, 0, 499_999, 500_000, 500_000].map(|t| format!("{{\"t\":{t}}}\n"));
    assert_eq!(decide(&rules, &lines.concat()), "aaddad");
}

#[test]
fn both_kinds_of_refill_need_two_rules() {
    let rules = rules(
        Format::Bucket4j,
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

#[test]
fn placeholders_become_their_defaults_in_every_text() {
    let rules = rules(
        Format::Bucket4j,
        "
bucket4j:
  enabled: ${RL:false}
  filters:
    - id: ${ID:login}
      url: '/${BASE:${ROOT:api}}/login'
      strategy: ${STRATEGY:all}
      rate-limits:
        - cache-key: \"getHeader('${HEADER:X-Key}')\"
          execute-condition: \"getHeader('X-Plan') == '${PLAN}'\"
          num-tokens: ${TOKENS:2}
          bandwidths: [ { capacity: '${CAPACITY:10}', time: 1, unit: '${UNIT:hours}' } ]
",
    );
    assert_lines(
        &rules,
        &[
            "# changed: `${RL}` is its default, false (line 3)",
            "# changed: `enabled: false`, so the rules are disabled (line 3)",
            "# changed: `${BASE}` is its default, api (line 6)",
            "# not carried over: `${PLAN}` has no default: write its value in its place (line 10)",
            "- id: login",
            "enabled: false",
            "path: [\"/api/login\"]",
            "headers: { X-Plan: \"${PLAN}\" }",
            "key: [\"header:X-Key\"]",
            "- { capacity: 10, window: 1h }",
            "cost: 2",
        ],
    );
}

#[test]
fn documents_become_rule_sets() {
    let limit = |capacity: u32| {
        format!(
            "bucket4j: {{ filters: [ {{ rate-limits: [ {{ bandwidths: [ {{ capacity: {capacity}, time: 1, unit: days }} ] }} ] }} ] }}\n"
        )
    };
    let (first, second) = (limit(1), limit(2));
    let prod = "spring: { config: { activate: { on-profile: prod } } }\n";
    let one = rules(
        Format::Bucket4j,
        &format!("server: {{ port: 80 }}\n---\n{prod}{first}"),
    );
    assert_lines(
        &one,
        &[
            "# changed: these rules are for the profile `prod` only (line 3)",
            "bucket4j:",
            "- { capacity: 1, window: 1d }",
        ],
    );
    let off = "spring.config.activate.on-profile: dev\nbucket4j: { enabled: false }\n";
    let all = rules(
        Format::Bucket4j,
        &format!("{first}---\n{prod}{second}---\n{off}"),
    );
    assert_lines(
        &all,
        &[
            "# not carried over: this document: it has no limits of its own (line 6)",
            "bucket4j:",
            "- { capacity: 1, window: 1d }",
            "# changed: these rules are for the profile `prod` only (line 3)",
            "# changed: Spring replaces the limits of earlier documents by these; use one of the sets (line 3)",
            "bucket4j-prod:",
            "- { capacity: 2, window: 1d }",
        ],
    );
}

#[test]
fn a_path_predicate_and_a_url_both_hold() {
    let with = |url: &str, strategy: &str, predicate: &str| {
        let band = "bandwidths: [ { capacity: 1, time: 1, unit: days } ]";
        format!(
            "bucket4j:\n  filters:\n  - url: {url}\n    strategy: {strategy}\n    rate-limits:\n    \
             - {{ execute-predicates: [ '{predicate}' ], {band} }}\n    - {{ {band} }}\n"
        )
    };
    for (url, path) in [
        ("/api/users/me", "/api/users/me"),
        ("/api/.*", "/api/users/**"),
        (".*", "/api/users/**"),
    ] {
        let rules = rules(Format::Bucket4j, &with(url, "first", "PATH=/api/users/**"));
        let path = format!("path: [\"{path}\"]");
        assert_lines(&rules, &["- id: filter-1-1", &path, "- id: filter-1-2"]);
        assert!(!rules.contains("# changed"), "{rules}");
    }
    let wider = rules(Format::Bucket4j, &with("/(a|b)/.*", "all", "PATH=/a/**"));
    assert_lines(
        &wider,
        &[
            "# changed: `PATH: /a/**` is left out: the limit applies to all paths of `url` (line 6)",
            "- id: filter-1-1",
            "path: [\"/a/*/**\", \"/b/*/**\"]",
        ],
    );
    let grouped = rules(Format::Bucket4j, &with("/(a|b)/.*", "first", "PATH=/a/**"));
    assert_lines(
        &grouped,
        &[
            "# not carried over: the rate limit with the predicate `PATH: /a/**` together with `url` (line 6)",
        ],
    );
    let twice = rules(
        Format::Bucket4j,
        &with("/x", "all", "METHOD=GET', 'METHOD=POST"),
    );
    assert_lines(
        &twice,
        &[
            "# not carried over: the rate limit with the predicate `METHOD: POST` together with another condition of its kind (line 6)",
        ],
    );
}

#[test]
fn fields_that_are_not_read_are_reported() {
    let rules = rules(
        Format::Bucket4j,
        "
bucket4j:
  cache-to-use: redis
  filter-config-caching-enabled: true
  filters-order: 1
  filters:
    - cache-name: buckets
      filter-method: servlet
      filterOrder: -10
      metrics: { tags: [] }
      urls: [/x]
      rate-limits:
        - cache-key: getRemoteAddr()
          post-execute-predicates: [ 'METHOD=GET' ]
          tokens-inheritance-strategy: RESET
          bandwidths:
            - &day { capacity: 1, time: 1, unit: days }
            - { <<: *day, capacity: 2, refill-capicity: 1 }
",
    );
    assert_lines(
        &rules,
        &[
            "# not carried over: `cache-to-use`: the `store` of the config says where counters are (line 3)",
            "# not carried over: `filter-config-caching-enabled`: rules change while FluxGate runs (line 4)",
            "# not carried over: `filters-order` in `bucket4j` (line 5)",
            "# not carried over: `urls` in a filter (line 11)",
            "# not carried over: `cache-name`: the `store` of the config says where counters are (line 7)",
            "# not carried over: `filter-method`: a route names its filters in their order (line 8)",
            "# not carried over: `filterOrder`: a route names its filters in their order (line 9)",
            "# not carried over: `metrics`: metrics are always on, with tags of their own (line 10)",
            "# not carried over: `post-execute-predicates` in a rate limit (line 14)",
            "# not carried over: `refill-capicity` in a bandwidth (line 18)",
            "- id: filter-1",
            "- { capacity: 1, window: 1d }",
            "- { capacity: 2, window: 1d }",
            "reset_on_change: true",
        ],
    );
    assert_eq!(rules.matches("# not carried over").count(), 10, "{rules}");
}

#[test]
fn a_change_of_the_limit_may_reset_it() {
    let limit = |strategy: &str| {
        let text = format!(
            "bucket4j: {{ filters: [ {{ rate-limits: [ {{ tokens-inheritance-strategy: {strategy}, \
             bandwidths: [ {{ capacity: 1, time: 1, unit: days }} ] }} ] }} ] }}"
        );
        rules(Format::Bucket4j, &text)
    };
    for strategy in ["RESET", "reset"] {
        assert_lines(&limit(strategy), &["reset_on_change: true"]);
    }
    let found = limit("as-is");
    let expected = "# changed: `tokens-inheritance-strategy: as-is`: used units stay if the limit \
                    changes (line 1)";
    assert_lines(&found, &[expected]);
    assert!(!found.contains("reset_on_change"), "{found}");
}

#[test]
fn ids_of_bandwidths_that_a_band_cannot_have_are_changed() {
    let rules = rules(
        Format::Bucket4j,
        "
bucket4j:
  filters:
  - rate-limits:
    - bandwidths:
      - { id: 하루, capacity: 9, time: 1, unit: days }
      - { id: fast, capacity: 3, time: 1, unit: minutes }
      - { id: fast, capacity: 1, time: 1, unit: seconds }
      - { id: api-분, capacity: 2, time: 30, unit: seconds }
",
    );
    assert_lines(
        &rules,
        &[
            "# changed: the band `하루` has the id `band-d1eac0b90be1` in responses, logs and commands (line 6)",
            "# changed: the band `api-분` has the id `api-da103de3e76d` in responses, logs and commands (line 9)",
            "# not carried over: the id `fast` of a band: another band of the rule has it (line 8)",
            "- { id: band-d1eac0b90be1, capacity: 9, window: 1d }",
            "- { id: fast, capacity: 3, window: 1m }",
            "- { capacity: 1, window: 1s }",
            "- { id: api-da103de3e76d, capacity: 2, window: 30s }",
        ],
    );
}
