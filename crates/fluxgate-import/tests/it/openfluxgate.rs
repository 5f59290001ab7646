//! OpenFluxGate.

use fluxgate_import::{Format, Output};

use super::{assert_lines, at_once, rules};

const EXPORT: &str = r#"[
  {
    "_id": { "$oid": "65a000000000000000000001" },
    "id": "per-user", "name": "Per user", "enabled": true,
    "scope": "PER_USER", "keyStrategyId": "userId",
    "onLimitExceedPolicy": "REJECT_REQUEST", "ruleSetId": "api",
    "bands": [
      { "windowSeconds": { "$numberLong": "1" }, "capacity": { "$numberLong": "2" }, "label": "2 per second" },
      { "windowSeconds": 2592000, "capacity": 1000, "label": "quota", "algorithm": "FIXED_WINDOW",
        "quotaPeriod": "MONTHLY", "zoneId": "Asia/Seoul" }
    ],
    "methods": ["get"], "pathPatterns": ["/api/**"], "excludePathPatterns": ["/api/health"],
    "headerEquals": { "X-Plan": "free" }, "headerPresent": ["X-Client"],
    "attributes": { "tier": "free", "owners": ["a", "b"] },
    "allowedIps": ["10.0.0.9/8"], "deniedIps": ["198.51.100.7"],
    "priority": 10
  },
  {
    "id": "Tenant", "name": "Tenant", "enabled": false,
    "scope": "CUSTOM", "keyStrategyId": "tenantId",
    "onLimitExceedPolicy": "WAIT_FOR_REFILL", "ruleSetId": "api",
    "bands": [ { "windowSeconds": 60, "capacity": 100, "algorithm": "SLIDING_WINDOW" } ],
    "allowedIps": ["10.0.0.0/8", "192.0.2.0/24"], "deniedKeys": ["user:mallory"]
  },
  {
    "id": "logins", "name": "Logins", "scope": "PER_IP", "onLimitExceedPolicy": "REJECT_REQUEST",
    "ruleSetId": "site", "bands": [ { "window": "PT1H", "capacity": 1 } ],
    "matcher": { "methods": [], "pathPatterns": ["/login"] }
  }
]
"#;

#[test]
fn an_export_becomes_rule_sets() {
    let rules = rules(Format::OpenFluxgate, EXPORT);
    assert_lines(
        &rules,
        &[
            "# not carried over: `allowedIps` that not every rule of the set has (line 2)",
            "api:",
            "- id: denied-ips",
            "action: deny",
            "ip: [\"198.51.100.7\"]",
            "# not carried over: the attribute `owners`: its value is not a text (line 14)",
            "# not carried over: `priority: 10`: all rules that match apply, in any order (line 16)",
            "- id: per-user-bucket",
            "name: \"Per user\"",
            "path: [\"/api/**\"]",
            "not_path: [\"/api/health\"]",
            "methods: [GET]",
            "headers: { X-Plan: free, X-Client: { present: true } }",
            "not_ip: [\"10.0.0.0/8\"]",
            "scope: per_user",
            "- { id: \"2-per-second\", capacity: 2, window: 1s }",
            "attributes: { tier: free }",
            "- id: per-user-fixed",
            "algorithm: fixed_window",
            "- { id: quota, capacity: 1000, calendar: month, time_zone: \"Asia/Seoul\" }",
            "# not carried over: `deniedKeys` (line 23)",
            "# changed: the window slides smoothly, not by sub-windows (line 22)",
            "- id: tenant",
            "name: Tenant",
            "enabled: false",
            "key: [\"attr:tenantId\"]",
            "algorithm: sliding_window",
            "on_exceed: wait",
            "max_wait: 5s",
            "site:",
            "- id: logins",
            "- { capacity: 1, window: 1h }",
        ],
    );
    let request = |ip: &str| {
        format!(
            "\"rule_set\":\"api\",\"ip\":\"{ip}\",\"user\":\"u\",\"method\":\"GET\",\"path\":\"/api/x\",\
             \"headers\":{{\"X-Plan\":\"free\",\"X-Client\":\"c\"}}"
        )
    };
    for (ip, expected) in [
        ("192.0.2.1", "aadd"),
        ("10.1.2.3", "aaaa"),
        ("198.51.100.7", "dddd"),
    ] {
        assert_eq!(
            at_once(&rules, &[request(ip).as_str(); 4]),
            expected,
            "{ip}"
        );
    }
}

#[test]
fn a_set_or_one_rule_is_enough() {
    let one = "id: r\nscope: GLOBAL\nbands: [ { windowSeconds: 1, capacity: 1 } ]\n";
    assert_lines(
        &rules(Format::OpenFluxgate, one),
        &["default:", "- id: r", "scope: global"],
    );
    let set =
        "ruleSetId: edge\nrules:\n  - { id: r, bands: [ { windowSeconds: 1, capacity: 1 } ] }\n";
    assert_lines(
        &rules(Format::OpenFluxgate, set),
        &["edge:", "- id: r", "scope: per_api_key"],
    );
}

#[test]
fn fields_that_are_not_read_are_reported() {
    let rules = rules(
        Format::OpenFluxgate,
        "
ruleSetId: edge
owner: team-a
rules:
  - id: a
    _class: org.example.Rule
    burst: 5
    bands: [ { windowSeconds: 1, capacity: 1, refill: 2 } ]
    matcher: { methods: [GET], hosts: [a.example.com] }
    pathPatterns: [/x]
",
    );
    assert_lines(
        &rules,
        &[
            "# not carried over: `owner` in a rule set (line 3)",
            "# not carried over: `hosts` in `matcher` (line 9)",
            "# not carried over: `burst` in a rule (line 7)",
            "# not carried over: `pathPatterns` in a rule (line 10)",
            "# not carried over: `refill` in a band (line 8)",
            "- id: a",
        ],
    );
    assert_eq!(rules.matches("# not carried over").count(), 5, "{rules}");
}

#[test]
fn ids_that_rules_cannot_have_are_kept_as_names() {
    let text = "
- { id: 사용자별-한도, name: 사용자, bands: [ { windowSeconds: 1, capacity: 1 } ] }
- { id: 주문, bands: [ { windowSeconds: 1, capacity: 1 } ] }
- { id: Per-User, name: Per user, bands: [ { windowSeconds: 1, capacity: 1 } ] }
";
    let both = rules(Format::OpenFluxgate, text);
    let [first, second] = ["사용자별-한도", "주문"].map(fluxgate_import::rule_id);
    assert_lines(
        &both,
        &[
            &format!(
                "# changed: the id `사용자별-한도` is `{first}` here, and kept in `name` (line 2)"
            ),
            &format!("- id: {first}"),
            "name: \"사용자 (사용자별-한도)\"",
            &format!("- id: {second}"),
            "name: \"주문\"",
            "# changed: the id `Per-User` is `per-user` here, and kept in `name` (line 4)",
            "- id: per-user",
            "name: \"Per user (Per-User)\"",
        ],
    );
    assert_eq!(both.matches("not carried over").count(), 0, "{both}");
    // Those of bands, too.
    let bands = rules(
        Format::OpenFluxgate,
        "{ id: r, bands: [ { windowSeconds: 60, capacity: 5, label: 분당 } ] }",
    );
    assert_lines(
        &bands,
        &[
            "# changed: the band `분당` has the id `band-b22b47fd6f65` in responses, logs and commands (line 1)",
            "- { id: band-b22b47fd6f65, capacity: 5, window: 1m }",
        ],
    );
    // The id does not depend on other rules.
    let alone = text.lines().nth(2).unwrap();
    let alone = rules(Format::OpenFluxgate, alone);
    assert_lines(&alone, &[&format!("- id: {second}")]);
}

fn config(text: &str) -> String {
    let found = fluxgate_import::import(Format::OpenFluxgate, "source", text, Output::Config);
    let found = found.unwrap();
    let lost = found.text.matches("# not carried over: ").count();
    assert_eq!(found.lost, lost, "{}", found.text);
    found.text
}

#[test]
fn an_application_becomes_a_config() {
    let found = config(
        "
spring.application.name: ${NAME}
fluxgate:
  mongo:
    enabled: true
    uri: mongodb://${USER:ann}:secret@db:27017/fluxgate?authSource=admin
    database: limits
    event-collection: events
    ddl-auto: create
  redis: { enabled: true, uri: 'redis://r:6379?timeout=5s', timeout-ms: 100 }
  ratelimit:
    filterEnabled: true
    default-rule-set-id: api
    include-patterns: /api/**, /*
    exclude-patterns: [ /health, '/x/{id:[0-9]+}' ]
    client-ip-header: X-Real-IP
    include-headers: false
    filter-order: 1
    wait-for-refill: { enabled: true, max-wait-time-ms: 2000 }
    burst: 5
  reload: { strategy: NONE, cache.ttl: 5m, pubsub.channel: other }
  resilience: { retry.max-attempts: 3, circuit-breaker.fallback: FAIL_CLOSED }
  metrics.enabled: true
---
spring.config.activate.on-profile: docker
fluxgate.redis.uri: redis://docker
",
    );
    let expected = r##"# Imported from source
# changed: `${USER}` is its default, ann (line 6)
# not carried over: the settings for the profile `docker`: import them as a file (line 25)
# not carried over: `fluxgate.ratelimit.burst` (line 20)
# changed: OpenFluxGate denies requests if Redis fails; FluxGate goes on counting in the process, unless the rule set says `on_error: deny` (line 22)
# not carried over: `fluxgate.resilience.retry.max-attempts`: FluxGate has a breaker of its own (line 22)
# not carried over: `fluxgate.metrics.enabled`: metrics are at `/metrics` of the API listener (line 23)
store:
  # not carried over: `?timeout=5s` of the URL of Redis (line 10)
  # changed: keys begin with `fluxgate2:`, because OpenFluxGate deletes those that begin with `fluxgate:` when it reloads all rules (line 10)
  # not carried over: `timeout-ms` of Redis: a decision takes at most `deadline`, 50ms (line 10)
  redis:
    url: "redis://r:6379"
    key_prefix: fluxgate2
listen: { api: "127.0.0.1:8081" }
filters:
  # changed: `/*` includes paths of any depth, as a servlet's pattern does (line 14)
  # not carried over: the exclusion of `/x/{id:[0-9]+}` (line 15)
  # changed: OpenFluxGate believes `X-Real-IP` of every client; FluxGate believes it only of `trusted_proxies`, and there are none: add your proxies (line 16)
  # not carried over: `filter-order`: a route names its filters in their order (line 18)
  # not carried over: `max-wait-time-ms: 2000`: rules have their own `max_wait`, 5s unless they say otherwise (line 19)
  main:
    rule_set: api
    include: ["/api/**", "/**"]
    exclude: ["/health"]
    client_ip: "header:X-Real-IP"
    headers: { legacy: false, ietf: false }
    max_concurrent_waits: 100
rules_from:
  # changed: the URL of MongoDB has a password: `url_file` names a file with the URL instead (line 6)
  # not carried over: `event-collection`: FluxGate keeps denials itself, see `history` (line 8)
  # not carried over: `ddl-auto: create`: FluxGate only reads the collection (line 9)
  # changed: FluxGate always watches its rules, though `reload` is off (line 21)
  # not carried over: the channel `other`: FluxGate listens on `fluxgate:rule-reload` (line 21)
  # not carried over: `fluxgate.reload.cache.ttl`: FluxGate reads rules when they change (line 21)
  mongodb:
    url: "mongodb://ann:secret@db:27017/fluxgate?authSource=admin"
    database: limits
    collection: rate_limit_rules
    # cache_file: /var/lib/fluxgate/rules.yaml  # keeps the last good rules, for a start without MongoDB
"##;
    assert_eq!(found, expected);
}

#[test]
fn a_remark_on_reloading_has_the_line_of_its_property() {
    let start = "fluxgate:\n  mongo.enabled: true\n  reload:\n    enabled:";
    for (rest, expected) in [
        (
            "true\n    strategy: PUBSUB",
            "with `strategy: PUBSUB` OpenFluxGate only listens for messages; FluxGate also polls \
             (line 5)",
        ),
        (
            "true\n    strategy: POLLING",
            "with `strategy: POLLING` OpenFluxGate only polls; FluxGate also listens for messages \
             (line 5)",
        ),
        (
            "false\n    strategy: PUBSUB",
            "FluxGate always watches its rules, though `reload` is off (line 4)",
        ),
        (
            "true\n    strategy: NONE",
            "FluxGate always watches its rules, though `reload` is off (line 5)",
        ),
    ] {
        let found = config(&format!("{start} {rest}\n"));
        assert_lines(&found, &[&format!("# changed: {expected}")]);
    }
}

#[test]
fn an_application_may_say_little() {
    let found = config("fluxgate.ratelimit.filter-enabled: true\n");
    let expected = "# Imported from source\n\
        # not carried over: where the rules are: add `rule_sets` or `rules_from` (line 1)\n\
        listen: { api: \"127.0.0.1:8081\" }\n\
        filters:\n  \
          # not carried over: the rule set of the filter is in Java code: name it in `rule_set` (line 1)\n  \
          # changed: OpenFluxGate believes `X-Forwarded-For` of every client; FluxGate believes it only of `trusted_proxies`, and there are none: add your proxies (line 1)\n  \
          main:\n    max_concurrent_waits: 0\n\
        rule_sets: {}\n";
    assert_eq!(found, expected);
    let found = config(
        "fluxgate: { ratelimit: { enabled: false, default-rule-set-id: a, trust-client-ip-header: false } }",
    );
    assert_lines(
        &found,
        &["# changed: `enabled: false`: the filter has no rule set, so all requests pass (line 1)"],
    );
    assert!(!found.contains("rule_set: a"), "{found}");
}

#[test]
fn a_wrong_value_of_an_application_is_named() {
    let text = "fluxgate:\n  ratelimit:\n    include-headers: perhaps\n    wait-for-refill.max-concurrent-waits: -1\n";
    let error = fluxgate_import::import(Format::OpenFluxgate, "source", text, Output::Config);
    let expected = "3:22: `fluxgate.ratelimit.include-headers` must be true or false, not `perhaps`\n\
        4:43: `fluxgate.ratelimit.wait-for-refill.max-concurrent-waits` must be a whole number of at least 0, not `-1`";
    assert_eq!(error.unwrap_err().to_string(), expected);
}
