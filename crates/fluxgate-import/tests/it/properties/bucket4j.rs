//! Properties of the Spring Boot starter for Bucket4j.

use fluxgate_import::Format;

use super::{RULES, Sample};

pub(super) const SAMPLE: Sample = Sample {
    format: Format::Bucket4j,
    outputs: RULES,
    text: "bucket4j:
  @ROOT@
  filters:
  - url: /a
    @FILTER@
    rate-limits:
    - cache-key: getRemoteAddr()
      @LIMIT@
      bandwidths:
      - capacity: 10
        time: 1
        unit: minutes
        @BANDWIDTH@
@TOP@
",
    places: &[
        (
            "@TOP@",
            &["bucket4j.enabled: false", "'bucket4j.filters[0].url': /x"],
        ),
        (
            "@ROOT@",
            &[
                "cache-to-use: redis-lettuce",
                "default-http-content-type: text/plain",
                "default-http-response-body: x",
                "default-http-status-code: 503",
                "default-method-metric-tags: [{key: a, expression: b}]",
                "default-metric-tags: [{key: a, expression: b}]",
                "enabled: false",
                "filter-config-cache-name: x",
                "filter-config-caching-enabled: true",
                "methods: [{name: a}]",
                "misspelt: 1",
            ],
        ),
        (
            "@FILTER@",
            &[
                "cache-name: x",
                "filter-method: webflux",
                "filter-order: 3",
                "hide-http-response-headers: true",
                "http-content-type: a",
                "http-response-body: x",
                "http-response-headers: {a: b}",
                "http-status-code: 503",
                "id: x",
                "major-version: 2",
                "metrics: {enabled: false}",
                "metrics: {types: [a], tags: [{key: a, expression: b}]}",
                "minorVersion: 2",
                "strategy: moon",
                "misspelt: 1",
            ],
        ),
        (
            "@LIMIT@",
            &[
                "execute-condition: getMethod() == 'GET'",
                "execute-predicates: [{METHOD: GET}]",
                "expression: x",
                "num-tokens: 3",
                "post-execute-condition: getStatus() eq 401",
                "skip-condition: getMethod() == 'GET'",
                "skip-predicates: [{METHOD: GET}]",
                "tokens-inheritance-strategy: ADDITIVE",
                "tokens-inheritance-strategy: AS_IS",
                "tokens-inheritance-strategy: PROPORTIONALLY",
                "tokens-inheritance-strategy: RESET",
                "tokens-inheritance-strategy: moon",
                "misspelt: 1",
            ],
        ),
        (
            "@BANDWIDTH@",
            &[
                "fixed-refill-interval-unit: seconds",
                "fixed-refill-interval: 3",
                "id: b0",
                "id: day",
                "id: 하루",
                "initial-capacity: 3",
                "initial-capacity: 30",
                "refill-capacity: 3",
                "refill-speed: interval",
                "misspelt: 1",
            ],
        ),
    ],
};
