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
# changed: a host that no server names gets 404 (line 1)
# not carried over: `location /static/`: it does not forward requests; they go to a later route (line 11)
# not carried over: `location = /ping`: `proxy_pass http://$where` is no upstream (line 13)
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
      rewrite: { host: "127.0.0.1:9002" }
      filters: ["shop.example.com"]
    - id: "shop.example.com/api/v1/"
      match: { path: ["/api/v1/*/**"], host: ["shop.example.com", "*.shop.example.com"] }
      upstreams: ["http://api:9001"]
      rewrite: { strip_prefix: "/api/v1", host: "api:9001" }
      filters: ["shop.example.com"]
    - id: "shop.example.com/"
      match: { host: ["shop.example.com", "*.shop.example.com"] }
      upstreams: ["http://10.0.0.1:9000", { url: "http://10.0.0.2:9000", weight: 2 }]
      rewrite: { host: backend }
      headers: { request: { set: { x-a: b } } }
      filters: ["shop.example.com"]
    # changed: `proxy_pass https://other`: the gateway verifies the certificate (line 15)
    - id: "other.example.com/x"
      match: { path: ["/x*/**"], host: ["other.example.com"] }
      upstreams: ["https://other"]
      rewrite: { host: other }
  timeouts: { request: 1m }
  limits: { body_bytes: 1048576 }
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

/// A shop with a gRPC and a REST service.
#[test]
fn what_locations_of_nginx_inherit_is_written_for_each_route() {
    let config = config(
        "nginx",
        "
http {
    upstream orders {
        least_conn;
        server 10.0.0.1:9000 weight=3 max_fails=3;
        server 10.0.0.2:9000;
        server 10.0.0.9:9000 backup;
        keepalive 32;
    }
    server { listen 80; server_name shop.example.com; return 301 https://$host$request_uri; }
    server {
        listen 443 ssl;
        http2 on;
        server_name shop.example.com;
        ssl_certificate /etc/ssl/shop.crt;
        ssl_certificate_key /etc/ssl/shop.key;
        client_max_body_size 2m;
        proxy_http_version 1.1;
        proxy_set_header Host $host;
        proxy_set_header Connection '';
        proxy_set_header X-Real-IP $remote_addr;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_set_header X-Env prod;
        proxy_set_header Accept-Encoding '';
        proxy_hide_header Server;
        proxy_connect_timeout 2s;
        proxy_read_timeout 10s;
        location /api/ { proxy_pass http://orders/; }
        location /v2/ { proxy_pass http://orders/v3/; proxy_set_header X-Env test; client_max_body_size 0; }
        location /v1 { proxy_pass http://orders/old; }
        location /old/ { proxy_pass http://orders/older; }
        location /shop.Catalog/ { grpc_pass grpc://10.0.0.3:50051; grpc_read_timeout 1h; }
        location /shop.Stock/ { grpc_pass 10.0.0.4:50051; }
    }
}
",
    );
    let expected = r##"# Imported from source
# changed: a host that no server names gets 404 (line 1)
# not carried over: `max_fails=3` of `server 10.0.0.1:9000` of `upstream orders` (line 5)
# not carried over: `server 10.0.0.9:9000 backup` of `upstream orders` (line 7)
# not carried over: `return` of `server` (line 10)
# not carried over: `listen 80`: the gateway has one listener (line 10)
# not carried over: `proxy_set_header X-Real-IP $remote_addr`: upstreams find the client in `X-Forwarded-For` (line 21)
listen: { gateway: "0.0.0.0:443", api: "127.0.0.1:8081" }
gateway:
  routes:
    - id: "shop.example.com/shop.Catalog/"
      match: { path: ["/shop.Catalog/*/**"], host: ["shop.example.com"] }
      upstreams: ["h2c://10.0.0.3:50051"]
      rewrite: { host: "10.0.0.3:50051" }
      timeouts: { request: 1h, idle: 1h }
      limits: { body_bytes: 2097152 }
    - id: "shop.example.com/shop.Stock/"
      match: { path: ["/shop.Stock/*/**"], host: ["shop.example.com"] }
      upstreams: ["h2c://10.0.0.4:50051"]
      rewrite: { host: "10.0.0.4:50051" }
      limits: { body_bytes: 2097152 }
    - id: "shop.example.com/api/"
      match: { path: ["/api/*/**"], host: ["shop.example.com"] }
      upstreams: [{ url: "http://10.0.0.1:9000", weight: 3 }, "http://10.0.0.2:9000"]
      rewrite: { strip_prefix: "/api" }
      headers: { request: { set: { x-env: prod }, remove: [accept-encoding] }, response: { remove: [server] } }
      timeouts: { connect: 2s, request: 10s, idle: 10s }
      limits: { body_bytes: 2097152 }
    # not carried over: the path of `proxy_pass http://orders/older`: paths stay as they are (line 31)
    - id: "shop.example.com/old/"
      match: { path: ["/old/*/**"], host: ["shop.example.com"] }
      upstreams: [{ url: "http://10.0.0.1:9000", weight: 3 }, "http://10.0.0.2:9000"]
      headers: { request: { set: { x-env: prod }, remove: [accept-encoding] }, response: { remove: [server] } }
      timeouts: { connect: 2s, request: 10s, idle: 10s }
      limits: { body_bytes: 2097152 }
    - id: "shop.example.com/v2/"
      match: { path: ["/v2/*/**"], host: ["shop.example.com"] }
      upstreams: [{ url: "http://10.0.0.1:9000", weight: 3 }, "http://10.0.0.2:9000"]
      rewrite: { strip_prefix: "/v2", add_prefix: "/v3", host: orders }
      headers: { request: { set: { x-env: test } }, response: { remove: [server] } }
      timeouts: { connect: 2s, request: 10s, idle: 10s }
      limits: { body_bytes: 0 }
    # changed: `proxy_pass http://orders/old`: only whole segments are replaced (line 30)
    - id: "shop.example.com/v1"
      match: { path: ["/v1*/**"], host: ["shop.example.com"] }
      upstreams: [{ url: "http://10.0.0.1:9000", weight: 3 }, "http://10.0.0.2:9000"]
      rewrite: { strip_prefix: "/v1", add_prefix: "/old" }
      headers: { request: { set: { x-env: prod }, remove: [accept-encoding] }, response: { remove: [server] } }
      timeouts: { connect: 2s, request: 10s, idle: 10s }
      limits: { body_bytes: 2097152 }
  timeouts: { request: 1m }
  limits: { body_bytes: 1048576 }
  tls: { cert: "/etc/ssl/shop.crt", key: "/etc/ssl/shop.key" }
rule_sets: {}
"##;
    assert_eq!(config, expected);
}
