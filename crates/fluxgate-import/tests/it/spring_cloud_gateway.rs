//! Spring Cloud Gateway.

use fluxgate_import::{Format, Output};

use super::{assert_lines, at_once, decide, rules};

/// Returns a route with these predicates and filters.
fn route(predicates: &str, filters: &str) -> String {
    format!(
        "spring:\n  cloud:\n    gateway:\n      routes:\n      - id: orders\n        \
         uri: http://orders:8080\n        predicates: [ {predicates} ]\n        filters:\n{filters}"
    )
}

/// Returns a filter with this rate, burst and tokens of a request.
fn limiter(rate: u64, burst: u64, tokens: u64, more: &str) -> String {
    format!(
        "        - name: RequestRateLimiter\n          args:\n            \
         redis-rate-limiter.replenishRate: {rate}\n            \
         redis-rate-limiter.burstCapacity: {burst}\n            \
         redis-rate-limiter.requestedTokens: {tokens}\n            {more}\n"
    )
}

const REQUEST: &str = "\"user\":\"ann\",\"path\":\"/orders/1\"";

#[test]
fn a_limiter_is_a_token_bucket_for_each_key() {
    for (rate, burst, tokens) in [(1, 1, 1), (10, 20, 1), (1, 60, 20), (5, 7, 3)] {
        let text = route("Path=/orders/**", &limiter(rate, burst, tokens, ""));
        let rules = rules(Format::SpringCloudGateway, &text);
        let admitted = usize::try_from(burst / tokens).unwrap();
        let expected = "a".repeat(admitted) + &"d".repeat(30 - admitted);
        assert_eq!(at_once(&rules, &[REQUEST; 30]), expected, "{rules}");
        // Another key has a bucket of its own.
        let other = REQUEST.replace("ann", "bob");
        assert_eq!(at_once(&rules, &[other.as_str()]), "a");
    }
    let text = route("Path=/orders/**", &limiter(2, 4, 1, ""));
    let rules = rules(Format::SpringCloudGateway, &text);
    let at = |micros: u64| format!("{{\"t\":{micros},{REQUEST}}}\n");
    let times = [0, 0, 0, 0, 0, 499_999, 500_000, 1_000_000, 1_000_000];
    assert_eq!(decide(&rules, &times.map(at).concat()), "aaaaddaad");
}

#[test]
fn both_names_of_the_properties_are_read() {
    let old = route("Path=/orders/**", &limiter(1, 2, 1, ""));
    let new = old.replace(
        "    gateway:\n      routes:",
        "    gateway.server:\n      webflux.routes:",
    );
    assert_eq!(
        rules(Format::SpringCloudGateway, &old),
        rules(Format::SpringCloudGateway, &new)
    );
}

#[test]
fn predicates_become_conditions() {
    let predicates = "'Path=/orders/{id},/o/**', 'Method=get,POST', 'Header=X-Plan, free', \
                      'Header=X-Beta', 'RemoteAddr=192.0.2.1/24', 'Host=**.example.com', \
                      { name: Query, args: { param: debug } }";
    let text = route(predicates, &limiter(1, 2, 1, ""));
    let rules = rules(Format::SpringCloudGateway, &text);
    assert_lines(
        &rules,
        &[
            "# changed: use this set for the requests of the route `orders`, which has `Host=**.example.com` and `Query=debug` (line 5)",
            "orders:",
            "on_error: allow",
            "- id: orders",
            "path: [\"/orders/{id}\", \"/o/**\"]",
            "methods: [GET, POST]",
            "headers: { X-Plan: free, X-Beta: { present: true } }",
            "ip: [\"192.0.2.0/24\"]",
        ],
    );
}

#[test]
fn key_resolvers_are_known_by_their_names() {
    for (resolver, lines) in [
        ("", &["scope: per_user", "on_missing_key: deny"][..]),
        ("key-resolver: '#{@ipKeyResolver}'", &["scope: per_ip"]),
        (
            "deny-empty-key: false",
            &["scope: per_user", "on_missing_key: skip"],
        ),
        (
            "key-resolver: '#{@tenantKeyResolver}'",
            &["key: [\"attr:tenantKeyResolver\"]"],
        ),
    ] {
        let text = route("Path=/orders/**", &limiter(1, 2, 1, resolver));
        assert_lines(&rules(Format::SpringCloudGateway, &text), lines);
    }
}

#[test]
fn each_route_has_the_default_filters_with_its_own_counters() {
    let text = "
spring.cloud.gateway:
  default-filters:
    - name: RequestRateLimiter
      args: { redis-rate-limiter: { replenishRate: 1, burstCapacity: 3 } }
    - AddResponseHeader=X-A, b
  routes:
    - { id: a, uri: 'http://a', predicates: [ Path=/a ] }
    - id: b
      uri: http://b
      predicates: [ Path=/b ]
      filters:
        - name: RequestRateLimiter
          args:
            redis-rate-limiter.replenishRate: 2
            redis-rate-limiter.burstCapacity: 5
            key-resolver: '#{@ipKeyResolver}'
";
    let rules = rules(Format::SpringCloudGateway, text);
    assert_lines(
        &rules,
        &[
            "a:",
            "- id: a",
            "scope: per_user",
            "- { capacity: 3, window: 1s, refill: 1 }",
            "# changed: the limiters of a route have the numbers of the last one (line 4)",
            "b:",
            "- id: b",
            "scope: per_user",
            "- { capacity: 5, window: 1s, refill: 2 }",
            "- id: b-2",
            "scope: per_ip",
            "- { capacity: 5, window: 1s, refill: 2 }",
        ],
    );
}

#[test]
fn buckets_that_cannot_be_carried_over_are_explained() {
    let forgotten = route("Path=/a", &limiter(10, 1, 1, ""));
    assert_lines(
        &rules(Format::SpringCloudGateway, &forgotten),
        &[
            "# changed: Spring Cloud Gateway forgets a bucket of 1 at a rate of 10 at once, and so denies nothing; this rule does (line 9)",
        ],
    );
    let closed = route("Path=/a", &limiter(1, 0, 1, ""));
    assert_lines(
        &rules(Format::SpringCloudGateway, &closed),
        &["action: deny", "status: 429"],
    );
    let short = route(
        "Path=/a",
        "        - 'RequestRateLimiter=2, 4, #{@ipKeyResolver}'\n",
    );
    assert_lines(
        &rules(Format::SpringCloudGateway, &short),
        &[
            "# changed: Spring Cloud Gateway does not read the values of `RequestRateLimiter=2, 4, #{@ipKeyResolver}`; this rule does (line 9)",
            "- { capacity: 4, window: 1s, refill: 2 }",
        ],
    );
    let custom =
        "        - name: RequestRateLimiter\n          args: { rate-limiter: '#{@mine}' }\n";
    let error = super::import(Format::SpringCloudGateway, &route("Path=/a", custom)).unwrap_err();
    let expected = "there are settings but no rules in it; `--config` writes a configuration";
    assert_eq!(error.to_string(), expected);
    let text = route("Path=/a", custom);
    let config =
        fluxgate_import::import(Format::SpringCloudGateway, "source", &text, Output::Config);
    assert_lines(
        &config.unwrap().text,
        &[
            "# not carried over: the rate limiter `#{@mine}`: it is Java code (line 9)",
            "# not carried over: `RequestRateLimiter=#{@mine}`: its numbers are not in this file (line 9)",
        ],
    );
}

#[test]
fn a_korean_id_is_kept_as_the_name() {
    let text = route("Path=/a", &limiter(1, 2, 1, "")).replace("id: orders", "id: 주문-api");
    let rules = rules(Format::SpringCloudGateway, &text);
    let id = fluxgate_import::rule_id("주문-api");
    assert_lines(
        &rules,
        &[
            "\"주문-api\":",
            "# changed: the id `주문-api` is kept in `name` (line 9)",
            &format!("- id: {id}"),
            "name: \"주문-api\"",
        ],
    );
}

#[test]
fn routes_that_cannot_be_written_are_named() {
    let text = "
spring.cloud.gateway.routes:
  - { id: a, uri: 'forward:/x', predicates: [ Path=/a ] }
  - { id: b, uri: 'http://b', predicates: [ 'Query=x' ] }
  - { id: c, uri: 'lb://c', predicates: [ 'Path=/c/{n}' ], filters: [ StripPrefix=1, PreserveHostHeader ], metadata: { x: 1 } }
  - { id: d, uri: 'http://d', predicates: [ 'Host=*.d.example' ], order: -1 }
spring.cloud.gateway.globalcors.add-to-simple-url-handler-mapping: true
";
    let found = fluxgate_import::import(Format::SpringCloudGateway, "source", text, Output::Config);
    assert_lines(
        &found.unwrap().text,
        &[
            "# not carried over: the route `a`: `forward:/x` is no upstream (line 3)",
            "# not carried over: the route `b`: routes cannot express `Query=x`; requests go to a later route (line 4)",
            "# not carried over: `spring.cloud.gateway.globalcors.add-to-simple-url-handler-mapping` (line 7)",
            "# changed: the host `*.d.example` matches subdomains of any depth (line 6)",
            "- id: d",
            "host: [\"*.d.example\"]",
            "# not carried over: `metadata` in a route (line 5)",
            "# not carried over: the filter `StripPrefix=1` (line 5)",
            "# changed: `lb://c` is the host `c`: FluxGate asks DNS, no registry (line 5)",
            "- id: c",
            "path: [\"/c/{n}\", \"/c/{n}/\"]",
            "upstreams: [\"http://c\"]",
        ],
    );
}
