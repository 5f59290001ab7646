//! Properties of Spring Cloud Gateway.

use fluxgate_import::Format;

use super::{BOTH, CONFIG, Sample};

/// What limits requests, which the rules alone have, too.
pub(super) const LIMITS: Sample = Sample {
    format: Format::SpringCloudGateway,
    outputs: BOTH,
    text: TEXT,
    places: &[
        (
            "@GATEWAY@",
            &[
                "default-filters: [{name: RequestRateLimiter, args: {redis-rate-limiter.replenishRate: 9}}]",
                "filter: {request-rate-limiter: {default-key-resolver: x}}",
                "filter: {request-rate-limiter: {deny-empty-key: false}}",
                "filter: {request-rate-limiter: {empty-key-status-code: 401}}",
                "filter: {request-rate-limiter: {enabled: false}}",
                "redis-rate-limiter: {burst-capacity-header: X}",
                "redis-rate-limiter: {config: {r: {replenish-rate: 3}}}",
                "redis-rate-limiter: {include-headers: false}",
                "redis-rate-limiter: {remaining-header: X}",
                "redis-rate-limiter: {replenish-rate-header: X}",
                "redis-rate-limiter: {requested-tokens-header: X}",
            ],
        ),
        ("@ROUTE@", &["enabled: false"]),
        (
            "@PREDICATE@",
            &[
                "- After=2017-01-20T17:42:47.789-07:00[America/Denver]",
                "- Cookie=a,b",
                "- Header=X, a",
                "- Host=a.b",
                "- Method=GET",
                "- Query=a",
                "- RemoteAddr=10.0.0.0/8",
                "- Weight=g,3",
                "- XForwardedRemoteAddr=10.0.0.0/8",
                "- Misspelt=1",
            ],
        ),
        (
            "@ARGUMENT@",
            &[
                "deny-empty-key: false",
                "empty-key-status: 401",
                "key-resolver: '#{@userKeyResolver}'",
                "rate-limiter: '#{@mine}'",
                "redis-rate-limiter.burstCapacity: 3",
                "redis-rate-limiter.requestedTokens: 3",
                "status-code: 503",
                "misspelt: 1",
            ],
        ),
    ],
};

pub(super) const ROUTES: Sample = Sample {
    format: Format::SpringCloudGateway,
    outputs: CONFIG,
    text: TEXT,
    places: &[
        (
            "@SPRING@",
            &[
                "data: {redis: {cluster: {max-redirects: 3}}}",
                "data: {redis: {cluster: {nodes: 'a:1,b:2'}}}",
                "data: {redis: {host: x, client-name: c}}",
                "data: {redis: {host: x, database: 3}}",
                "data: {redis: {host: x, lettuce: {pool: {max-active: 3}}}}",
                "data: {redis: {host: x, password: p}}",
                "data: {redis: {host: x, ssl: {bundle: b}}}",
                "data: {redis: {host: x, ssl: {enabled: true}}}",
                "data: {redis: {host: x, timeout: 3s}}",
                "data: {redis: {host: x, username: p}}",
                "data: {redis: {sentinel: {master: m, nodes: 'a:1'}}}",
                "data: {redis: {url: 'redis://x'}}",
            ],
        ),
        (
            "@GATEWAY@",
            &[
                "default-filters: ['AddRequestHeader=a,b']",
                "discovery: {locator: {enabled: true}}",
                "enabled: false",
                "forwarded: {enabled: false}",
                "globalcors: {add-to-simple-url-handler-mapping: true}",
                "httpclient: {connect-timeout: 3}",
                "httpclient: {response-timeout: 3s}",
                "httpclient: {ssl: {use-insecure-trust-manager: true}}",
                "metrics: {enabled: true}",
                "trusted-proxies: x",
                "x-forwarded: {enabled: false}",
                "misspelt: 1",
            ],
        ),
        ("@ROUTE@", &["metadata: {a: b}", "misspelt: 1"]),
        (
            "@FILTER@",
            &[
                "- AddRequestHeader=a,b",
                "- CircuitBreaker=x",
                "- StripPrefix=1",
                "- TokenRelay",
                "- {name: Retry, args: {retries: 3}}",
            ],
        ),
        (
            "@TOP@",
            &[
                "server.address: 192.0.2.1",
                "server.forward-headers-strategy: native",
                "server.http2.enabled: true",
                "server.port: 3",
                "server.ssl.enabled: true",
            ],
        ),
    ],
};

pub(super) const TEXT: &str = "spring:
  @SPRING@
  cloud:
    gateway:
      @GATEWAY@
      routes:
      - id: r
        uri: http://a:1
        @ROUTE@
        predicates:
        - Path=/a
        @PREDICATE@
        filters:
        - name: RequestRateLimiter
          args:
            redis-rate-limiter.replenishRate: 2
            @ARGUMENT@
        @FILTER@
@TOP@
";
