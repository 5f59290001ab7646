//! The families of limit headers, and how a report is written in them.

use http::HeaderMap;

use super::values::{Field, HeaderSink, HeaderValues, TextSink};
use crate::report::Report;

const MICROS_PER_SECOND: u64 = 1_000_000;

/// The families of headers that responses carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFamilies {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub legacy: bool,
    /// `RateLimit-Policy` and `RateLimit` (IETF draft).
    pub ietf: bool,
    /// `Retry-After`, on denied requests.
    pub retry_after: bool,
    /// The format of `X-RateLimit-Reset`.
    pub reset: ResetFormat,
}

/// The format of `X-RateLimit-Reset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetFormat {
    /// Unix seconds, by the clock that the decision used.
    #[default]
    Epoch,
    /// Seconds from now.
    Delta,
}

impl Default for HeaderFamilies {
    fn default() -> Self {
        Self {
            legacy: true,
            ietf: true,
            retry_after: true,
            reset: ResetFormat::Epoch,
        }
    }
}

impl HeaderFamilies {
    /// Sets the headers of a report, replacing those of the same names.
    pub fn write(&self, report: &impl Report, headers: &mut HeaderMap) {
        self.values(report).insert_into(headers);
    }

    /// Appends the headers of a report as text, each with its line end.
    pub fn write_text(&self, report: &impl Report, out: &mut Vec<u8>) {
        self.write_to(report, &mut TextSink(out));
    }

    /// Returns the header values of a report.
    pub fn values(&self, report: &impl Report) -> HeaderValues {
        HeaderValues::collect(|sink| self.write_to(report, sink))
    }

    pub(super) fn write_to(&self, report: &impl Report, sink: &mut impl HeaderSink) {
        if self.legacy {
            self.write_legacy(report, sink);
        }
        if self.ietf {
            sink.text(Field::Policy, |text| report.write_policies(text));
            sink.text(Field::RateLimit, |text| report.write_rate_limit(text));
        }
        if self.retry_after
            && let Some(seconds) = retry_after_secs(report)
        {
            sink.number(Field::RetryAfter, seconds);
        }
    }

    pub(super) fn write_legacy(&self, report: &impl Report, sink: &mut impl HeaderSink) {
        if let (Some(limit), Some(remaining)) = (report.limit(), report.remaining()) {
            sink.number(Field::Limit, limit);
            sink.number(Field::Remaining, remaining);
            let reset = match self.reset {
                ResetFormat::Epoch => report.reset_at().micros().div_ceil(MICROS_PER_SECOND),
                ResetFormat::Delta => report.reset_after().ceil_secs(),
            };
            sink.number(Field::Reset, reset);
        }
    }
}

/// Returns the value of `Retry-After` for a denied request, unless it can never be allowed.
pub(super) fn retry_after_secs(report: &impl Report) -> Option<u64> {
    let wait = report.retry_after().after()?;
    (!report.allowed()).then(|| wait.ceil_secs().max(1))
}

#[cfg(test)]
mod tests {
    use fluxgate_core::memory::Retention;
    use fluxgate_core::{Limiter, ManualClock, MemoryStore, RequestContext, RuleSets, Timestamp};

    use super::*;

    const RULES: &str = "
rule_sets:
  s:
    rules:
      - id: per-user
        scope: per_user
        bands:
          - { id: burst, capacity: 2, window: 500ms }
          - { id: sustained, capacity: 100, window: 90s }
        overrides: [ { identity: [vip], bands: [ { capacity: 20, window: 1500ms } ] } ]
      - { id: dark, mode: shadow, scope: global, bands: [ { capacity: 9, window: 1m } ] }
      - { id: late, match: { path: [/late] }, scope: global, bands: [ { capacity: 1, window: 1h } ] }
";

    /// Returns the header lines of the last of so many requests, half a second past 1000.
    fn lines(families: HeaderFamilies, path: &str, requests: usize, cost: u64) -> Vec<String> {
        let store = MemoryStore::new(ManualClock::default(), 1_000, Retention::default());
        let limiter = Limiter::new(RuleSets::from_yaml(RULES).unwrap(), store);
        let context = RequestContext::builder().user("u").path(path).cost(cost);
        let context = context.build();
        let now = Timestamp::from_micros(1_000_500_000).unwrap();
        let decisions = (0..requests).map(|_| limiter.check_at("s", &context, now));
        let decision = decisions.reduce(|_, last| last).unwrap();
        let (mut text, mut headers) = (Vec::new(), HeaderMap::new());
        families.write_text(&decision, &mut text);
        families.write(&decision, &mut headers);
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let values = headers.iter().map(|(name, value)| {
            let value = value.to_str().unwrap();
            format!("{name}: {value}")
        });
        let mut sorted = (lines.clone(), values.collect::<Vec<_>>());
        sorted.0.sort();
        sorted.1.sort();
        assert_eq!(sorted.0, sorted.1, "as text and as a map");
        lines
    }

    #[test]
    fn all_enforced_bands_are_listed_and_one_is_reported() {
        assert_eq!(
            lines(HeaderFamilies::default(), "/", 1, 1),
            [
                "x-ratelimit-limit: 2",
                "x-ratelimit-remaining: 1",
                "x-ratelimit-reset: 1001",
                "ratelimit-policy: \"per-user/burst\";q=2,\"per-user/sustained\";q=100;w=90",
                "ratelimit: \"per-user/burst\";r=1",
            ]
        );
    }

    #[test]
    fn the_bands_of_an_override_are_listed_and_seconds_are_rounded_up() {
        let rules = RuleSets::from_yaml(RULES).unwrap();
        let limiter = Limiter::new(rules, MemoryStore::default());
        let context = RequestContext::builder().user("vip").path("/").build();
        let decision = limiter.check_at("s", &context, Timestamp::default());
        let mut text = Vec::new();
        decision.write_policies(&mut text);
        assert_eq!(text, b"\"per-user/b0\";q=20;w=2");
    }

    /// Returns the policies of a request of `user` by the rules of one set.
    fn policies(rules: &str, user: &str) -> String {
        let rules = format!("rule_sets: {{ s: {{ rules: [ {rules} ] }} }}");
        let limiter = Limiter::new(RuleSets::from_yaml(&rules).unwrap(), MemoryStore::default());
        let context = RequestContext::builder().user(user).path("/").build();
        let mut text = Vec::new();
        let decision = limiter.check_at("s", &context, Timestamp::default());
        decision.write_policies(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_window_of_a_bucket_is_the_time_to_fill_it() {
        for (band, parameters) in [
            ("10/s", "q=10;w=1"),
            ("{ rate: 10/s, burst: 100 }", "q=100;w=10"),
            ("{ rate: 100/s, burst: 10 }", "q=10"),
            ("{ rate: 3/s, burst: 10 }", "q=10;w=4"),
            (
                "{ capacity: 10, window: 1h, refill: 1, period: 500ms }",
                "q=10;w=5",
            ),
            // A third of a microsecond less than a second, and as much more.
            (
                "{ capacity: 2999999, window: 1s, refill: 3000000, period: 1s }",
                "q=2999999",
            ),
            (
                "{ capacity: 3000001, window: 1s, refill: 3000000, period: 1s }",
                "q=3000001;w=2",
            ),
        ] {
            let rule = format!("{{ id: r, scope: global, bands: [ {band} ] }}");
            assert_eq!(policies(&rule, "u"), format!("\"r/b0\";{parameters}"));
            let leaky = rule.replace("scope", "algorithm: leaky_bucket, scope");
            assert_eq!(policies(&leaky, "u"), policies(&rule, "u"));
        }
        let window = "{ id: r, algorithm: sliding_window, scope: global, bands: [ 5/m ] }";
        assert_eq!(policies(window, "u"), "\"r/b0\";q=5;w=60");
    }

    #[test]
    fn only_bands_that_were_enforced_for_the_identity_are_listed() {
        let rule =
            |share| format!("{{ id: r, scope: per_user, rollout: {share}, bands: [ 5/m ] }}");
        assert_eq!(policies(&rule("0%"), "u"), "");
        assert_eq!(policies(&rule("100%"), "u"), "\"r/b0\";q=5;w=60");
        let listed = (0..100).filter(|user| !policies(&rule("50%"), &user.to_string()).is_empty());
        assert!((20..80).contains(&listed.count()));
        // The first enforced rule of a group applies, with the bands of its override.
        let group = "{ id: a, group: g, rollout: 0%, scope: per_user, bands: [ 1/m ] },
            { id: b, group: g, scope: per_user, bands: [ 2/m ],
              overrides: [ { identity: vip, bands: [ 20/m ] } ] },
            { id: c, group: g, scope: per_user, bands: [ 3/m ] }";
        assert_eq!(policies(group, "u"), "\"b/b0\";q=2;w=60");
        assert_eq!(policies(group, "vip"), "\"b/b0\";q=20;w=60");
    }

    #[test]
    fn a_denial_has_a_retry_after() {
        let denied = |families| lines(families, "/late", 2, 1);
        let lines = denied(HeaderFamilies::default());
        assert!(
            lines.contains(&"ratelimit: \"late/b0\";r=0;t=3600".to_owned()),
            "{lines:?}"
        );
        assert_eq!(lines.last().unwrap(), "retry-after: 3600");
        let delta = HeaderFamilies {
            reset: ResetFormat::Delta,
            ietf: false,
            retry_after: false,
            ..HeaderFamilies::default()
        };
        let lines = denied(delta);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2], "x-ratelimit-reset: 3600");
    }

    #[test]
    fn a_request_that_can_never_be_allowed_has_no_retry_after() {
        let lines = lines(HeaderFamilies::default(), "/", 1, 1_000);
        assert!(
            !lines.iter().any(|line| line.starts_with("retry-after")),
            "{lines:?}"
        );
    }

    #[test]
    fn each_family_can_be_switched_off() {
        let none = HeaderFamilies {
            legacy: false,
            ietf: false,
            retry_after: false,
            reset: ResetFormat::Epoch,
        };
        assert_eq!(lines(none, "/late", 2, 1), [""; 0]);
    }
}
