//! Properties of envoyproxy/ratelimit.

use fluxgate_import::Format;

use super::{RULES, Sample};

pub(super) const SAMPLE: Sample = Sample {
    format: Format::EnvoyRatelimit,
    outputs: RULES,
    text: "domain: d
@ROOT@
descriptors:
- key: a
  @OUTER@
  descriptors:
  - key: b
    @INNER@
    rate_limit:
      unit: day
      requests_per_unit: 5
      @LIMIT@
- key: c
  rate_limit: { unlimited: true @UNLIMITED@ }
",
    places: &[
        ("@ROOT@", &["misspelt: 1"]),
        (
            "@OUTER@",
            &[
                "detailed_metric: true",
                "metadata: {a: 1}",
                "misspelt: 1",
                "quota_mode: true",
                "rate_limit: {unit: day, requests_per_unit: 5}",
                "share_threshold: true",
                "value: x",
                "value: x*",
                "value: '*x'",
                "value: x*y",
                "value_to_metric: true",
            ],
        ),
        (
            "@INNER@",
            &[
                "detailed_metric: true",
                "metadata: {a: 1}",
                "misspelt: 1",
                "quota_mode: true",
                "shadow_mode: true",
                "share_threshold: true",
                "value: x",
                "value_to_metric: true",
            ],
        ),
        (
            "@LIMIT@",
            &[
                "misspelt: 1",
                "name: n",
                "replaces: [{name: other}]",
                "unlimited: true",
            ],
        ),
        ("@UNLIMITED@", &[", name: n", ", unit: day"]),
    ],
};
