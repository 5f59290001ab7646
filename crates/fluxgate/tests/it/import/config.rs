//! `fluxgate import --config`.

use super::import;
use crate::support::Dir;

const GATEWAY: &str = "
server: { port: 9090 }
spring:
  data.redis: { host: redis.example, port: 6380, database: 2 }
  cloud.gateway:
    httpclient: { connect-timeout: 2000, response-timeout: 5s }
    routes:
      - id: orders
        uri: http://orders.example:8080
        predicates: [ 'Path=/orders/**', 'Method=GET,POST', 'Host=**.shop.example' ]
        filters:
          - name: RequestRateLimiter
            args:
              redis-rate-limiter.replenishRate: 10
              redis-rate-limiter.burstCapacity: 20
              key-resolver: '#{@userKeyResolver}'
      - { id: rest, uri: 'https://www.example', predicates: [ 'Path=/**' ] }
";

/// Writes the configuration of a text. Returns it if it is valid.
#[track_caller]
fn config(format: &str, text: &str) -> String {
    let dir = Dir::new();
    dir.write("source", text);
    let run = dir.run(&[
        "import",
        format,
        "source",
        "--config",
        "--output",
        "fluxgate.yaml",
    ]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let config = dir.read("fluxgate.yaml");
    let validated = dir.run(&["validate", "fluxgate.yaml"]);
    assert_eq!(validated.code, Some(0), "{}\n{config}", validated.stderr);
    config
}

#[test]
fn routes_filters_and_stores_are_written() {
    let config = config("spring-cloud-gateway", GATEWAY);
    let expected = r##"# Imported from source
# changed: upstreams get the `Host` of the client, as with the filter PreserveHostHeader (line 8)
store:
  redis:
    url: "redis://redis.example:6380/2"
listen: { gateway: "0.0.0.0:9090", api: "127.0.0.1:8081" }
filters:
  orders:
    rule_set: orders
gateway:
  routes:
    - id: orders
      match: { path: ["/orders/**"], host: ["shop.example", "*.shop.example"], methods: [GET, POST] }
      upstreams: ["http://orders.example:8080"]
      filters: [orders]
    - id: rest
      match: { path: ["/**"] }
      upstreams: ["https://www.example"]
  timeouts: { connect: 2s, request: 5s }
rule_sets:
  orders:
    on_error: allow
    rules:
      # changed: a request without a key gets 429, not 403 (line 12)
      # changed: the key resolver `userKeyResolver` is Java code, taken for the user, which `identity.user` of the filter finds (line 12)
      - id: orders
        match: { path: ["/orders/**"], methods: [GET, POST] }
        scope: per_user
        on_missing_key: deny
        bands:
          - { capacity: 20, window: 1s, refill: 10 }
"##;
    assert_eq!(config, expected);
}

#[test]
fn the_routes_are_counted() {
    let dir = Dir::new();
    dir.write("source", GATEWAY);
    let run = dir.run(&["import", "spring-cloud-gateway", "source", "--config"]);
    assert_eq!(run.stderr, "source: 1 rule(s), 2 route(s)\n");
}

#[test]
fn a_source_without_routes_and_settings_has_no_config() {
    let dir = Dir::new();
    dir.write(
        "source",
        "limit_req_zone $uri zone=z:1m rate=1r/s;\nlimit_req zone=z;\n",
    );
    let run = dir.run(&["import", "nginx", "source", "--config"]);
    let expected = "source: only the rules of this format are carried over; leave out `--config`\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(78), expected));
}

#[test]
fn settings_without_rules_need_the_flag() {
    let run = import("openfluxgate", "fluxgate: { redis: { enabled: true } }\n");
    assert_eq!((run.code, run.stdout.as_str()), (Some(78), ""));
    let expected =
        "source: there are settings but no rules in it; `--config` writes a configuration\n";
    assert_eq!(run.stderr, expected);
}

#[test]
fn settings_of_openfluxgate_without_mongodb_are_valid() {
    let config = config(
        "openfluxgate",
        "fluxgate:\n  redis: { enabled: true, uri: 'redis://a:1,redis://b:2' }\n  \
         ratelimit: { filter-enabled: true, default-rule-set-id: 주문, include-patterns: [/api/**], \
         exclude-patterns: [/health], missing-rule-behavior: DENY, trust-client-ip-header: false }\n",
    );
    for line in [
        "    urls: [\"redis://a:1\", \"redis://b:2\"]",
        "    mode: cluster",
        "    rule_set: \"주문\"",
        "    include: [\"/api/**\"]",
        "    exclude: [\"/health\"]",
        "    max_concurrent_waits: 0",
        "on_missing_rule_set: deny",
        "rule_sets: {}",
    ] {
        assert!(config.lines().any(|it| it == line), "{line}\n{config}");
    }
    assert!(!config.contains("trusted_proxies"), "{config}");
}

#[test]
fn locations_of_nginx_become_routes() {
    let config = config(
        "nginx",
        "
http {
    limit_req_zone $binary_remote_addr zone=perip:10m rate=10r/s;
    upstream backend { server 10.0.0.1:9000; server 10.0.0.2:9000 weight=2; keepalive 8; }
    server {
        listen 8080;
        server_name shop.example.com *.shop.example.com;
        limit_req zone=perip burst=20 nodelay;
        location / { proxy_pass http://backend; proxy_set_header X-A b; }
        location /api/v1/ { proxy_pass http://api:9001/; }
        location /static/ { root /var/www; }
        location ~ \\.php$ { proxy_pass http://127.0.0.1:9002; }
        location = /ping { proxy_pass http://$where; }
    }
    server { listen 443 ssl; server_name other.example.com; location /x { proxy_pass https://other; } }
}
",
    );
    let expected = r##"# Imported from source
# changed: upstreams get the `Host` of the client, not `$proxy_host`, and a host that no server names gets 404 (line 1)
# not carried over: `server 10.0.0.2:9000 weight=2` of `upstream backend` (line 4)
# not carried over: `keepalive 8` of `upstream backend` (line 4)
# not carried over: `proxy_set_header` of `location /` (line 9)
# not carried over: `location /static/`: it does not forward requests; they go to a later route (line 11)
# not carried over: `location = /ping`: `proxy_pass http://$where` is no upstream (line 13)
# not carried over: TLS: name the certificate and the key in `gateway.tls` (line 15)
# not carried over: `listen 443 ssl`: the gateway has one listener (line 15)
listen: { gateway: "0.0.0.0:8080", api: "127.0.0.1:8081" }
filters:
  "shop.example.com":
    rule_set: "shop.example.com"
gateway:
  routes:
    - id: "shop.example.com\\.php$"
      match: { path: ["/**/*.php"], host: ["shop.example.com", "*.shop.example.com"] }
      upstreams: ["http://127.0.0.1:9002"]
      filters: ["shop.example.com"]
    # not carried over: the path of `proxy_pass http://api:9001/`: paths stay as they are (line 10)
    - id: "shop.example.com/api/v1/"
      match: { path: ["/api/v1/*/**"], host: ["shop.example.com", "*.shop.example.com"] }
      upstreams: ["http://api:9001"]
      filters: ["shop.example.com"]
    - id: "shop.example.com/"
      match: { host: ["shop.example.com", "*.shop.example.com"] }
      upstreams: ["http://10.0.0.1:9000", "http://10.0.0.2:9000"]
      filters: ["shop.example.com"]
    - id: "other.example.com/x"
      match: { path: ["/x*/**"], host: ["other.example.com"] }
      upstreams: ["https://other"]
rule_sets:
  # changed: the server is also named `*.shop.example.com`: use this set for all its names (line 5)
  "shop.example.com":
    rules:
      - id: perip
        scope: per_ip
        bands:
          - { capacity: 21, window: 1s, refill: 10 }
"##;
    assert_eq!(config, expected);
}
