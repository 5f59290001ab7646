//! Properties of OpenFluxGate.

use fluxgate_import::Format;

use super::{CONFIG, Sample};

pub(super) const SAMPLE: Sample = Sample {
    format: Format::OpenFluxgate,
    outputs: CONFIG,
    text: "fluxgate:
  mongo:
    enabled: true
    @MONGO@
  redis:
    enabled: true
    @REDIS@
  ratelimit:
    default-rule-set-id: a
    @LIMIT@
  reload:
    @RELOAD@
@TOP@
",
    places: &[
        (
            "@MONGO@",
            &[
                "database: d",
                "ddl-auto: create",
                "ddl-auto: validate",
                "event-collection: e",
                "rule-collection: c",
                "uri: mongodb+srv://x/y",
                "uri: mongodb://x/y",
                "misspelt: 1",
            ],
        ),
        (
            "@REDIS@",
            &[
                "mode: cluster",
                "mode: moon",
                "mode: standalone",
                "timeout-ms: 5",
                "uri: redis://a:1",
                "misspelt: 1",
            ],
        ),
        (
            "@LIMIT@",
            &[
                "client-ip-header: X",
                "enabled: false",
                "exclude-patterns: [/x]",
                "filter-enabled: false",
                "filter-order: 1",
                "include-headers: false",
                "include-patterns: ['/*']",
                "include-patterns: [/x]",
                "missing-rule-behavior: DENY",
                "missing-rule-behavior: moon",
                "trust-client-ip-header: false",
                "wait-for-refill: {enabled: true, max-concurrent-waits: 9999999}",
                "wait-for-refill: {enabled: true, max-wait-time-ms: 3}",
                "wait-for-refill: {enabled: true}",
                "wait-for-refill: {max-concurrent-waits: 5}",
                "wait-for-refill: {max-wait-time-ms: 3}",
                "misspelt: 1",
            ],
        ),
        (
            "@RELOAD@",
            &[
                "cache: {ttl: 3s}",
                "enabled: false",
                "polling: {initial-delay: 3s}",
                "polling: {interval: 3s}",
                "pubsub: {channel: x}",
                "pubsub: {retry-interval: 3s}",
                "pubsub: {retry-on-failure: true}",
                "strategy: NONE",
                "strategy: POLLING",
                "strategy: PUBSUB",
                "strategy: moon",
                "misspelt: 1",
            ],
        ),
        (
            "@TOP@",
            &[
                "fluxgate.actuator.health.enabled: false",
                "fluxgate.api.url: http://x",
                "fluxgate.control.redis.uri: redis://x",
                "fluxgate.control.source: x",
                "fluxgate.metrics.enabled: true",
                "fluxgate.misspelt: 1",
                "fluxgate.mongo.enabled: false",
                "fluxgate.redis.enabled: false",
                "fluxgate.resilience.circuit-breaker.enabled: true",
                "fluxgate.resilience.circuit-breaker.fallback: FAIL_CLOSED",
                "fluxgate.resilience.misspelt: 1",
                "fluxgate.resilience.retry.enabled: true",
                "fluxgate.services.control-plane-url: http://x",
            ],
        ),
    ],
};
