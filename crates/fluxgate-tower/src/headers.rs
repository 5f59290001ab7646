//! The headers that tell a client of its limits.

mod map;
mod merge;
mod told;
mod values;

use fluxgate_core::{Band, Micros, Rule};
use http::HeaderMap;

use crate::ruling::Report;
pub(crate) use map::Values;
pub use told::LimitHeaders;
use values::{Lines, Name, Out};

const SECOND: u64 = 1_000_000;

/// Which headers are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFamilies {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub legacy: bool,
    /// `RateLimit-Policy` and `RateLimit`, of the IETF's draft.
    pub ietf: bool,
    /// `Retry-After`, where a request is refused.
    pub retry_after: bool,
    /// What `X-RateLimit-Reset` is.
    pub reset: ResetFormat,
}

/// What `X-RateLimit-Reset` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetFormat {
    /// Seconds since 1970, by the clock of whoever decided.
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
    /// Adds what there is to tell of a decision.
    pub fn write(&self, ruling: &impl Report, headers: &mut HeaderMap) {
        self.values(ruling).insert_into(headers);
    }

    /// What there is to tell of a decision.
    pub(crate) fn values(&self, ruling: &impl Report) -> Values {
        Values::of(|out| self.tell(ruling, out))
    }

    /// Appends the same as text, each header with its line end.
    pub fn write_text(&self, ruling: &impl Report, out: &mut Vec<u8>) {
        self.tell(ruling, &mut Lines(out));
    }

    fn tell(&self, ruling: &impl Report, out: &mut impl Out) {
        if self.legacy {
            self.tell_legacy(ruling, out);
        }
        if self.ietf {
            out.header(Name::Policy, |text| ruling.write_policies(text));
            out.header(Name::RateLimit, |text| ruling.write_rate_limit(text));
        }
        if self.retry_after
            && let Some(seconds) = retry_secs(ruling)
        {
            out.number(Name::RetryAfter, seconds);
        }
    }

    fn tell_legacy(&self, ruling: &impl Report, out: &mut impl Out) {
        if let (Some(limit), Some(remaining)) = (ruling.limit(), ruling.remaining()) {
            out.number(Name::Limit, limit);
            out.number(Name::Remaining, remaining);
            let reset = match self.reset {
                ResetFormat::Epoch => ruling.reset_at().micros().div_ceil(SECOND),
                ResetFormat::Delta => ruling.reset_after().ceil_secs(),
            };
            out.number(Name::Reset, reset);
        }
    }
}

/// When a refused request may come back, if ever.
fn retry_secs(ruling: &impl Report) -> Option<u64> {
    let wait = ruling.retry_after().after()?;
    (!ruling.allowed()).then(|| wait.ceil_secs().max(1))
}

/// Appends a member of `RateLimit-Policy`: `"per-user/burst";q=10;w=1`.
pub(crate) fn push_policy(rule: &Rule, band: &Band, text: &mut Vec<u8>) {
    push_name(rule, band, text);
    push_parameter(b";q=", band.limit().capacity(), text);
    push_seconds(b";w=", band.limit().window(), text);
}

/// Appends a member of `RateLimit`: `"per-user/burst";r=9;t=1`.
pub(crate) fn push_rate_limit(
    (rule, band): (&Rule, &Band),
    remaining: u64,
    reset_after: Micros,
    text: &mut Vec<u8>,
) {
    push_name(rule, band, text);
    push_parameter(b";r=", remaining, text);
    push_seconds(b";t=", reset_after, text);
}

/// Appends the name of a band. Ids have no character that a string must escape.
fn push_name(rule: &Rule, band: &Band, text: &mut Vec<u8>) {
    text.push(b'"');
    text.extend_from_slice(rule.id().as_bytes());
    text.push(b'/');
    text.extend_from_slice(band.id().as_bytes());
    text.push(b'"');
}

/// Appends a span, rounded up to whole seconds. One below a second is left out.
fn push_seconds(name: &[u8], span: Micros, text: &mut Vec<u8>) {
    if span.get() >= SECOND {
        push_parameter(name, span.ceil_secs(), text);
    }
}

fn push_parameter(name: &[u8], number: u64, text: &mut Vec<u8>) {
    text.extend_from_slice(name);
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
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

    /// What is told of the last of so many requests, at half a second past 1000.
    fn told(families: HeaderFamilies, path: &str, requests: usize, cost: u64) -> Vec<String> {
        let store = MemoryStore::new(ManualClock::default(), 1_000, Retention::default());
        let limiter = Limiter::new(RuleSets::from_yaml(RULES).unwrap(), store);
        let context = RequestContext::builder().user("u").path(path).cost(cost);
        let context = context.build();
        let now = Timestamp::from_micros(1_000_500_000).unwrap();
        let decisions = (0..requests).map(|_| limiter.check_at("s", &context, now));
        let decision = decisions.last().unwrap();
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
    fn all_bands_that_could_refuse_are_told_and_the_reported_one() {
        assert_eq!(
            told(HeaderFamilies::default(), "/", 1, 1),
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
    fn the_bands_of_an_override_are_told_and_seconds_are_rounded_up() {
        let rules = RuleSets::from_yaml(RULES).unwrap();
        let limiter = Limiter::new(rules, MemoryStore::default());
        let context = RequestContext::builder().user("vip").path("/").build();
        let decision = limiter.check_at("s", &context, Timestamp::default());
        let mut text = Vec::new();
        decision.write_policies(&mut text);
        assert_eq!(text, b"\"per-user/b0\";q=20;w=2");
    }

    #[test]
    fn a_denial_says_when_to_come_back() {
        let told_of = |families| told(families, "/late", 2, 1);
        let lines = told_of(HeaderFamilies::default());
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
        let lines = told_of(delta);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2], "x-ratelimit-reset: 3600");
    }

    #[test]
    fn what_can_never_pass_has_no_time_to_come_back_at() {
        let lines = told(HeaderFamilies::default(), "/", 1, 1_000);
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
        assert_eq!(told(none, "/late", 2, 1), [""; 0]);
    }
}
