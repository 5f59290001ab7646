//! Kong.

use fluxgate_import::Format;

use super::{assert_lines, at_once, import, rules};

const SHOP: &str = r#"
_format_version: "3.0"
services:
  - name: orders
    url: http://orders.internal
    plugins:
      - name: rate-limiting
        config: { minute: 3, limit_by: ip, policy: redis, fault_tolerant: true }
    routes:
      - name: orders
        paths: [/orders]
      - name: reports
        paths: [/orders/reports]
        methods: [GET]
        hosts: [shop.example.com]
        plugins:
          - name: rate-limiting
            config:
              second: 1
              limit_by: header
              header_name: X-Tenant
              error_code: 503
              hide_client_headers: true
  - name: status
    url: http://status.internal
    routes:
      - { name: status, paths: [/orders/status] }
consumers:
  - username: robot
    plugins:
      - name: rate-limiting
        config: { month: 2, year: 20 }
plugins:
  - name: rate-limiting
    config: { hour: 2 }
  - name: rate-limiting-advanced
    config:
      limit: [5, 100]
      window_size: [30, 3600]
      identifier: credential
      strategy: local
      sync_rate: -1
  - name: key-auth
  - name: response-ratelimiting
    config: { limits: { sms: { minute: 10 } } }
"#;

fn request(path: &str, more: &str) -> String {
    format!("\"ip\":\"192.0.2.1\",\"method\":\"GET\",\"path\":\"{path}\"{more}")
}

#[test]
fn the_most_specific_plugin_applies() {
    let rules = rules(Format::Kong, SHOP);
    assert_lines(
        &rules,
        &[
            "# not carried over: the plugin `response-ratelimiting` (line 44)",
            "# changed: the consumer is the attribute `consumer`, which the filter must set (line 31)",
            "kong:",
            "on_error: allow",
            "- id: robot",
            "attributes: { consumer: robot }",
            "scope: global",
            "group: rate-limiting",
            "- { id: month, capacity: 2, calendar: month }",
            "- { id: year, capacity: 20, calendar: year }",
            "# not carried over: `error_code: 503`: a denied request is answered with 429 (line 22)",
            "# not carried over: `hide_client_headers`: see `headers` of the filter (line 23)",
            "# not carried over: `hosts` of route `reports`: the rule applies regardless of it (line 15)",
            "- id: reports",
            "path: [\"/orders/reports*/**\"]",
            "methods: [GET]",
            "key: [\"header:X-Tenant\"]",
            "- { id: second, capacity: 1, window: 1s }",
            "# changed: the rule applies to all methods and headers: its routes have different ones (line 7)",
            "- id: orders",
            "path: [\"/orders*/**\", \"/orders/reports*/**\"]",
            "not_path: [\"/orders/status*/**\"]",
            "- { id: minute, capacity: 3, window: 1m }",
            "- id: global",
            "key: [\"attr:consumer\"]",
            "- { id: hour, capacity: 2, window: 1h }",
            "# changed: denied requests are not counted (line 36)",
            "- id: global-advanced",
            "scope: per_api_key",
            "algorithm: sliding_window",
            "- { capacity: 5, window: 30s }",
            "- { capacity: 100, window: 1h }",
        ],
    );
    for (path, more, expected) in [
        ("/orders/1", "", "aaad"),
        ("/orders/reports", "", "addd"),
        ("/orders/status", "", "aadd"),
        ("/other", "", "aadd"),
        (
            "/orders/1",
            ",\"attributes\":{\"consumer\":\"robot\"}",
            "aadd",
        ),
        ("/other", ",\"attributes\":{\"consumer\":\"eve\"}", "aadd"),
    ] {
        let request = request(path, more);
        assert_eq!(
            at_once(&rules, &[request.as_str(); 4]),
            expected,
            "{path}{more}"
        );
    }
}

#[test]
fn a_plugin_may_refer_to_its_scope() {
    let rules = rules(
        Format::Kong,
        r#"
_format_version: "3.0"
services: [ { name: a, url: http://a }, { name: b, id: b-id, url: http://b } ]
routes:
  - { name: one, service: { name: a }, paths: ["/one/", "~/one-[^/]+$"] }
  - { name: two, service: b, paths: ["~/(x", /two] }
plugins:
  - name: rate-limiting-advanced
    service: a
    config: { limit: [2], window_size: [60], window_type: fixed, identifier: service }
  - name: rate-limiting-advanced
    route: two
    enabled: false
    instance_name: Two!
    config: { limit: [9000000000, 1], window_size: [1, 40000000], identifier: ip, disable_penalty: true }
  - name: rate-limiting
    config: { second: 1.0, limit_by: path, path: /upload, fault_tolerant: false }
  - name: rate-limiting
    consumer_group: gold
    config: { second: 1 }
"#,
    );
    assert_lines(
        &rules,
        &[
            "# not carried over: the plugin `rate-limiting` of a consumer group (line 18)",
            "on_error: deny",
            "# changed: 9000000000 requests are reduced to 1000000000, the maximum (line 15)",
            "# not carried over: 1 requests per 40000000 s: a window has at most 366 d (line 15)",
            "# not carried over: the path `~/(x` of route `two` (line 6)",
            "- id: two",
            "enabled: false",
            "path: [\"/two*/**\"]",
            "- id: a-advanced",
            "path: [\"/one/*/**\", \"/one-?*\"]",
            "scope: global",
            "group: rate-limiting-advanced",
            "algorithm: fixed_window",
            "- { capacity: 2, window: 1m }",
            "- id: global-path",
            "path: [\"/upload\"]",
            "scope: global",
            "group: rate-limiting",
            "- id: global",
            "not_path: [\"/upload\"]",
            "scope: per_ip",
        ],
    );
}

/// Kong prefers a route with more conditions to one with a longer path.
#[test]
fn a_longer_path_is_not_excluded_from_a_route_with_more_conditions() {
    let rules = rules(
        Format::Kong,
        r#"
_format_version: "3.0"
services:
  - name: a
    url: http://a
    routes:
      - name: reads
        paths: [/a]
        methods: [GET]
        headers: { X-Plan: [free] }
        plugins: [ { name: rate-limiting, config: { day: 1, limit_by: ip } } ]
      - { name: long, paths: [/a/b] }
"#,
    );
    assert_lines(
        &rules,
        &["# changed: the value of the header `X-Plan` is case-sensitive (line 10)"],
    );
    let request = request("/a/b", ",\"headers\":{\"X-Plan\":\"free\"}");
    assert_eq!(at_once(&rules, &[&request, &request]), "ad");
}

#[test]
fn a_service_without_usable_paths_is_reported() {
    let rules = rules(
        Format::Kong,
        r#"
_format_version: "3.0"
services:
  - { name: a, url: http://a, routes: [ { name: ra, paths: [/a] } ] }
  - { name: b, url: http://b, routes: [ { name: rb, paths: ["~/(b"] } ] }
plugins: [ { name: rate-limiting, config: { day: 1, limit_by: service } } ]
"#,
    );
    assert_lines(
        &rules,
        &[
            "# not carried over: the path `~/(b` of route `rb` (line 5)",
            "# not carried over: the limits of a plugin whose routes have no path that a rule can match (line 6)",
        ],
    );
}

#[test]
fn a_global_limit_by_service_is_a_limit_of_each() {
    let rules = rules(
        Format::Kong,
        r#"
_format_version: "3.0"
services:
  - { name: a, url: http://a, routes: [ { name: ra, paths: [/a] } ] }
  - { name: b, url: http://b, routes: [ { name: rb, paths: [/b] } ] }
plugins: [ { name: rate-limiting, config: { day: 1, limit_by: service } } ]
"#,
    );
    let (a, b) = (request("/a", ""), request("/b/x", ""));
    assert_eq!(at_once(&rules, &[&a, &a, &b, &b]), "adad");
}

#[test]
fn fields_that_are_not_read_are_reported() {
    let rules = rules(
        Format::Kong,
        r#"
_format_version: "3.0"
plugins:
  - name: rate-limiting
    id: 6b8d1d6e-0000-4000-8000-000000000000
    created_at: 1700000000
    tags: [edge]
    protocols: [grpc, grpcs, http, https]
    ordering: { before: { access: [key-auth] } }
    config:
      day: 5
      seconds: 1
      limit_by: ip
      policy: redis
      redis: { host: redis.internal }
      redis_host: redis.internal
      sync_rate: -1
      header_name: null
  - name: rate-limiting-advanced
    protocols: [https]
    config:
      limit: [5]
      window_size: [30]
      window_type: fixed
      identifier: ip
      compound_identifier: [consumer, ip]
      consumer_groups: [gold]
      dictionary_name: counters
      foo: []
  - name: rate-limiting
    service: null
    instance_name: no-limit
    config: { seconds: 1 }
"#,
    );
    assert_lines(
        &rules,
        &[
            "# not carried over: `policy`, `redis`, `redis_host`, `sync_rate`, `dictionary_name`: the `store` of \
             the config says where counters are (line 14)",
            "# not carried over: the plugin `rate-limiting`: it has no limit (line 30)",
            "# not carried over: `seconds` in `config` (line 33)",
            "# not carried over: `ordering` in a plugin (line 9)",
            "# not carried over: `seconds` in `config` (line 12)",
            "- id: global",
            "# not carried over: `protocols` in a plugin (line 20)",
            "# not carried over: `compound_identifier` in `config` (line 26)",
            "# not carried over: `consumer_groups` in `config` (line 27)",
            "- id: global-advanced",
        ],
    );
    assert_eq!(rules.matches("# not carried over").count(), 8, "{rules}");
}

#[test]
fn a_limit_by_route_is_a_limit_of_each() {
    let rules = rules(
        Format::Kong,
        "
_format_version: '3.0'
services:
- name: shop
  routes:
  - { name: all, paths: [/] }
  - { name: reads, paths: [/api], methods: [GET] }
  - { name: orders, paths: [/api/orders] }
- name: other
  routes: [ { name: other, paths: [/other] } ]
plugins:
- name: rate-limiting-advanced
  service: shop
  config: { limit: [1], window_size: [60], identifier: route }
",
    );
    assert_lines(
        &rules,
        &[
            "- id: shop-advanced-reads",
            "methods: [GET]",
            "- id: shop-advanced-orders",
            "- id: shop-advanced-all",
        ],
    );
    assert!(!rules.contains("advanced-other"), "{rules}");
    let requests = [
        ("POST", "/api/orders"),
        ("POST", "/api/orders/1"),
        ("GET", "/api/x"),
        ("GET", "/api/y"),
        ("GET", "/"),
        ("GET", "/x"),
        ("GET", "/other"),
    ];
    let requests = requests.map(|(method, path)| {
        format!("\"ip\":\"192.0.2.1\",\"method\":\"{method}\",\"path\":\"{path}\"")
    });
    let requests: Vec<_> = requests.iter().map(String::as_str).collect();
    assert_eq!(at_once(&rules, &requests), "adadada");
}

#[test]
fn a_limit_by_route_of_one_route_is_one_rule() {
    let rules = rules(
        Format::Kong,
        "
_format_version: '3.0'
routes:
- name: r
  paths: [/a]
  plugins:
  - { name: rate-limiting, config: { minute: 1, limit_by: route } }
",
    );
    assert_lines(&rules, &["- id: r", "scope: global"]);
    assert_eq!(rules.matches("- id: ").count(), 1, "{rules}");
}

#[test]
fn what_is_not_about_limits_is_in_one_comment() {
    let rules = rules(
        Format::Kong,
        "
_format_version: '3.0'
services:
- name: s
  url: http://s
  enabled: false
  routes:
  - name: r
    paths: [/a]
    strip_path: false
    plugins:
    - name: rate-limiting
      ordering: { before: { access: [key-auth] } }
      config: { minute: 1, policy: redis, redis: { host: h } }
- { name: t, url: 'http://t' }
upstreams: [ { name: u } ]
plugins:
- { name: cors }
- { name: key-auth }
- name: rate-limiting-advanced
  config: { limit: [1], window_size: [60], strategy: redis, redis: { host: h }, header_name: H }
",
    );
    assert_lines(
        &rules,
        &[
            "# not carried over: `url` of services, `strip_path` of routes, `upstreams`, the plugins \
             `cors`, `key-auth`: rules only limit (line 5)",
            "# not carried over: `enabled: false` of service `s`: its rules apply (line 6)",
            "# not carried over: `policy`, `redis`, `strategy`: the `store` of the config says where \
             counters are (line 14)",
            "rule_sets:",
            "# not carried over: `ordering` in a plugin (line 13)",
            "- id: r",
            "# not carried over: `header_name`: only `identifier: header` reads it (line 21)",
            "- id: global-advanced",
        ],
    );
}

#[test]
fn merge_keys_are_resolved() {
    let rules = rules(
        Format::Kong,
        r#"
_format_version: "3.0"
x-limits:
  - &ip { limit_by: ip, hour: 9 }
  - &slow { second: 1, hour: 5 }
services:
  - name: a
    url: http://a
    routes: [ { name: ra, paths: [/a] } ]
    plugins: [ { name: rate-limiting, config: { <<: [*ip, *slow], hour: 2 } } ]
plugins:
  - name: rate-limiting
    config:
      <<: *ip
      minute: 3
"#,
    );
    assert_lines(
        &rules,
        &[
            "- id: a",
            "scope: per_ip",
            "- { id: second, capacity: 1, window: 1s }",
            "- { id: hour, capacity: 2, window: 1h }",
            "- id: global",
            "scope: per_ip",
            "- { id: minute, capacity: 3, window: 1m }",
            "- { id: hour, capacity: 9, window: 1h }",
        ],
    );
    let (a, other) = (request("/a", ""), request("/b", ""));
    assert_eq!(at_once(&rules, &[&a, &a, &other, &other]), "adaa");
}

#[test]
fn the_number_of_rules_has_a_bound() {
    let routes: String = (0..1_100)
        .map(|index| format!("- {{ name: r{index}, paths: [/{index}] }}\n"))
        .collect();
    let plugin = "- { name: rate-limiting, config: { minute: 1, limit_by: route } }\n";
    let text = format!(
        "_format_version: '3.0'\nroutes:\n{routes}plugins:\n{}",
        plugin.repeat(10)
    );
    let error = import(Format::Kong, &text).unwrap_err().to_string();
    assert_eq!(error, "1:1: the plugins have more than 10000 rules");
}
