//! The same requests, decided under each of the five algorithms.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fluxgate_core::{
    ActiveRule, Algorithm, Limit, LimitError, Limiter, RequestContext, RuleAction, RuleSets,
    Timestamp,
};

use super::humanize::{duration, grouped};
use super::traffic::Traffic;
use crate::replay::{VirtualLimiter, virtual_store};
use crate::summary::rule_name;

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
];

/// All rules under one algorithm, and the requests by their outcome.
#[derive(Debug)]
pub(super) struct AlgorithmVariant {
    pub(super) algorithm: Algorithm,
    pub(super) traffic: Traffic,
    /// How many requests the rules as configured decide differently.
    pub(super) different: u64,
    limiter: VirtualLimiter,
}

/// A variant for each algorithm, and remarks on settings that it ignores.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) variants: Vec<AlgorithmVariant>,
    pub(super) remarks: Remarks,
}

/// Settings that a variant ignores or treats differently, with the names of the rules.
#[derive(Debug, Default)]
pub(super) struct Remarks(pub(super) BTreeMap<String, BTreeSet<String>>);

impl Comparison {
    pub(super) fn new(rules: &RuleSets) -> Self {
        let mut remarks = Remarks::default();
        let variants = ALGORITHMS.map(|algorithm| {
            let rules = remarks.rules_under(algorithm, rules);
            AlgorithmVariant {
                algorithm,
                traffic: Traffic::default(),
                different: 0,
                limiter: Limiter::new(rules, virtual_store()),
            }
        });
        Self {
            variants: variants.into(),
            remarks,
        }
    }

    /// Decides a request by every variant. `allowed` is the decision of the rules as
    /// configured.
    pub(super) fn decide(
        &mut self,
        rule_set: &str,
        context: &RequestContext<'_>,
        at: Timestamp,
        allowed: bool,
    ) {
        for variant in &mut self.variants {
            let decision = variant.limiter.check_at(rule_set, context, at);
            variant.different += u64::from(decision.allowed() != allowed);
            variant.traffic.record(at, &decision);
        }
    }
}

impl Remarks {
    fn rules_under(&mut self, algorithm: Algorithm, rules: &RuleSets) -> RuleSets {
        rules.with_limits(|set, rule, limit| {
            let rule_name = rule_name(set.name(), rule.id());
            match convert(algorithm, limit, rule.waits()) {
                Ok((limit, differences)) => {
                    self.add_differences(algorithm, differences, &rule_name);
                    Some(limit)
                }
                Err(error) => {
                    let own = algorithm_name(limit.algorithm());
                    let name = algorithm_name(algorithm);
                    let remark = format!("It stays a {own} under {name}, because {error}");
                    self.add(remark, &rule_name);
                    None
                }
            }
        })
    }

    fn add_differences(&mut self, algorithm: Algorithm, differences: Differences, rule: &str) {
        if differences.refill {
            let remark = "Windows and logs have no refill: the window is the time in which the \
                          bucket fills";
            self.add(remark.into(), rule);
        }
        if differences.calendar {
            let remark = "Only a fixed window follows the calendar: a month is 30 days, and a \
                          year 365";
            self.add(remark.into(), rule);
        }
        if differences.shape {
            self.add(
                "Only a leaky bucket has a shape: it is ignored".into(),
                rule,
            );
        }
        if differences.wait {
            let remark = if algorithm.is_bucket() {
                "Buckets ignore its on_exceed: wait"
            } else {
                "Windows and logs cannot reserve units: on_exceed: wait is a denial"
            };
            self.add(remark.into(), rule);
        }
    }

    fn add(&mut self, remark: String, rule: &str) {
        self.0.entry(remark).or_default().insert(rule.to_owned());
    }
}

/// The settings of a limit that another algorithm treats differently or ignores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// A refill rate of its own became the window in which the bucket fills.
    pub(super) refill: bool,
    /// `shape` is ignored.
    pub(super) shape: bool,
    /// `on_exceed: wait` denies, or is ignored.
    pub(super) wait: bool,
    /// Windows of the calendar became windows of their usual length.
    pub(super) calendar: bool,
}

/// Converts a limit to another algorithm. `waits` is true if its rule has
/// `on_exceed: wait`.
///
/// A leaky bucket is shaped wherever possible: it admits the same requests, and
/// shows when each of them is released.
pub(super) fn convert(
    algorithm: Algorithm,
    limit: &Limit,
    waits: bool,
) -> Result<(Limit, Differences), LimitError> {
    if limit.algorithm() == Algorithm::Concurrency {
        // Slots are not a rate.
        return Ok((*limit, Differences::default()));
    }
    let rate = limit.rate();
    let own_refill = has_own_refill(limit);
    let window = if own_refill && !algorithm.is_bucket() {
        // The same burst and the same rate in the long run.
        Duration::from_micros(rate.fill().ceil())
    } else {
        limit.window().as_duration()
    };
    let calendar = limit.windows();
    let kept = calendar.filter(|_| algorithm == Algorithm::FixedWindow);
    let mut converted = match kept {
        Some(calendar) => Limit::calendar(limit.capacity(), *calendar),
        None => Limit::builder(algorithm, limit.capacity(), window),
    };
    if own_refill && algorithm.is_bucket() {
        let period = rate.period().as_duration();
        converted = converted.refill(rate.refill()).period(period);
    }
    let max_wait = rate.max_wait().filter(|_| algorithm.is_bucket());
    if let Some(max_wait) = max_wait {
        converted = converted.max_wait(max_wait.as_duration());
    }
    let shape = algorithm == Algorithm::LeakyBucket && max_wait.is_none();
    let differences = Differences {
        refill: own_refill && !algorithm.is_bucket(),
        shape: rate.shape() && !shape,
        wait: waits && max_wait.is_none(),
        calendar: calendar.is_some() && kept.is_none(),
    };
    Ok((converted.shape(shape).build()?, differences))
}

/// Returns the limit with another capacity. Its window stays: a bucket with a refill of its
/// own refills in proportion, so that it fills in the same time. `None` if no limit can have
/// such a capacity.
pub(super) fn with_capacity(limit: &Limit, capacity: u64) -> Option<Limit> {
    let rate = limit.rate();
    let window = limit.window().as_duration();
    let mut other = match limit.windows() {
        Some(calendar) => Limit::calendar(capacity, *calendar),
        None => Limit::builder(limit.algorithm(), capacity, window),
    };
    if has_own_refill(limit) {
        let scaled = u128::from(rate.refill()) * u128::from(capacity);
        let refill = u64::try_from(scaled.div_ceil(limit.capacity().max(1).into())).ok()?;
        other = other.refill(refill).period(rate.period().as_duration());
    }
    if let Some(max_wait) = rate.max_wait() {
        other = other.max_wait(max_wait.as_duration());
    }
    other.shape(rate.shape()).build().ok()
}

/// Returns whether a bucket refills at another rate than its capacity in its window.
pub(super) fn has_own_refill(limit: &Limit) -> bool {
    let rate = limit.rate();
    let is_plain = rate.refill() == limit.capacity() && rate.period() == limit.window();
    limit.algorithm().is_bucket() && !is_plain
}

/// Returns the name of an algorithm in rules.
pub(super) fn algorithm_name(algorithm: Algorithm) -> &'static str {
    let names = Algorithm::NAMES.iter();
    let mut named = names.filter(|(_, known)| *known == algorithm);
    named.next().map_or("", |(name, _)| *name)
}

/// Describes a rule: `token_bucket, 10 per 1 s and 100 per 1 min`.
pub(super) fn describe_rule(rule: &ActiveRule) -> String {
    let text = if rule.action() == RuleAction::Limit {
        let first = rule.bands().first();
        let algorithm = first.map_or("", |band| algorithm_name(band.algorithm()));
        let bands = rule.bands().iter();
        let bands: Vec<_> = bands.map(|band| describe_limit(band.limit())).collect();
        format!("{algorithm}, {}", bands.join(" and "))
    } else {
        format!("action: {}", rule.action().name())
    };
    match rule.name() {
        Some(name) => format!("{name}: {text}"),
        None => text,
    }
}

/// Describes a limit: `10 per 1 s`, `50 at once, 10 per 1 s` or
/// `10,000 a month (Asia/Seoul)`.
pub(super) fn describe_limit(limit: &Limit) -> String {
    let (capacity, rate) = (grouped(limit.capacity()), limit.rate());
    if limit.algorithm() == Algorithm::Concurrency {
        return format!("{capacity} at the same time");
    }
    if has_own_refill(limit) {
        let (refill, period) = (grouped(rate.refill()), duration(rate.period().get()));
        return format!("{capacity} at once, {refill} per {period}");
    }
    if let Some(calendar) = limit.windows() {
        let (unit, zone) = (calendar.unit().name(), calendar.time_zone());
        let article = if unit == "hour" { "an" } else { "a" };
        return format!("{capacity} {article} {unit} ({})", zone.name());
    }
    format!("{capacity} per {}", duration(limit.window().get()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fluxgate_core::{Calendar, CalendarUnit};

    use super::*;

    fn remarks(rule: &str) -> Vec<String> {
        let rules =
            format!("rule_sets: {{ s: {{ rules: [ {{ id: r, scope: global, {rule} }} ] }} }}");
        let comparison = Comparison::new(&RuleSets::from_yaml(&rules).unwrap());
        let remarks = comparison.remarks.0.into_iter();
        remarks
            .inspect(|(_, rules)| assert_eq!(rules.iter().collect::<Vec<_>>(), ["s/r"]))
            .map(|(remark, _)| remark)
            .collect()
    }

    #[test]
    fn what_a_rule_loses_is_remarked() {
        assert!(remarks("bands: [ { capacity: 5, window: 1s } ]").is_empty());
        let shaped = "algorithm: leaky_bucket, shape: true, bands: [ { capacity: 5, window: 1s } ]";
        assert_eq!(
            remarks(shaped),
            ["Only a leaky bucket has a shape: it is ignored"]
        );
        let waits = remarks("on_exceed: wait, bands: [ { capacity: 5, window: 1s, refill: 1 } ]");
        assert_eq!(waits.len(), 2);
        assert!(waits[0].starts_with("Windows and logs cannot reserve"));
        assert!(waits[1].starts_with("Windows and logs have no refill"));
        let large = remarks("bands: [ { capacity: 100001, window: 1s } ]");
        assert_eq!(large.len(), 1);
        assert!(
            large[0].starts_with("It stays a token_bucket under sliding_log, because"),
            "{large:?}"
        );
    }

    #[test]
    fn a_rule_stays_as_it_is_if_one_of_its_bands_cannot_change() {
        let rules = RuleSets::from_yaml(
            "rule_sets: { s: { rules: [ { id: r, scope: per_user, bands: [ { capacity: 2, window: 1h } ], \
             overrides: [ { identity: large, bands: [ { capacity: 200000, window: 1h } ] } ] } ] } }",
        );
        let comparison = Comparison::new(&rules.unwrap());
        for variant in &comparison.variants {
            let rules = variant.limiter.rules();
            let rule = &rules.get("s").unwrap().rules()[0];
            let expected = match variant.algorithm {
                Algorithm::SlidingLog => Algorithm::TokenBucket,
                other => other,
            };
            assert_eq!(rule.bands()[0].limit().algorithm(), expected);
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn plain(algorithm: Algorithm) -> Limit {
        Limit::builder(algorithm, 10, SECOND).build().unwrap()
    }

    fn shaped() -> Limit {
        let limit = Limit::builder(Algorithm::LeakyBucket, 10, SECOND);
        limit.shape(true).build().unwrap()
    }

    #[test]
    fn a_plain_limit_keeps_its_numbers_under_every_algorithm() {
        let rates = || {
            let names = Algorithm::NAMES.into_iter();
            names.filter(|(_, algorithm)| *algorithm != Algorithm::Concurrency)
        };
        for (_, from) in rates() {
            for (_, to) in rates() {
                let expected = match to {
                    Algorithm::LeakyBucket => shaped(),
                    other => plain(other),
                };
                let (limit, differences) = convert(to, &plain(from), false).unwrap();
                assert_eq!((limit, differences), (expected, Differences::default()));
            }
        }
    }

    #[test]
    fn a_refill_of_its_own_becomes_the_time_to_fill() {
        let bucket = Limit::builder(Algorithm::TokenBucket, 100, SECOND)
            .refill(10)
            .period(SECOND)
            .build()
            .unwrap();
        let (window, differences) = convert(Algorithm::FixedWindow, &bucket, false).unwrap();
        assert_eq!(
            (window.capacity(), window.window().get()),
            (100, 10_000_000)
        );
        assert!(differences.refill);
        let (leaky, differences) = convert(Algorithm::LeakyBucket, &bucket, false).unwrap();
        assert_eq!(
            (leaky.rate().refill(), leaky.window().get()),
            (10, 1_000_000)
        );
        assert_eq!(differences, Differences::default());
    }

    #[test]
    fn what_the_other_algorithm_lacks_is_ignored() {
        let (limit, differences) = convert(Algorithm::SlidingLog, &shaped(), false).unwrap();
        assert!(!limit.rate().shape() && differences.shape);
        let waits = Limit::builder(Algorithm::TokenBucket, 10, SECOND);
        let waits = waits.max_wait(SECOND).build().unwrap();
        let (limit, differences) = convert(Algorithm::LeakyBucket, &waits, true).unwrap();
        assert_eq!(limit.rate().max_wait(), waits.rate().max_wait());
        assert!(!limit.rate().shape() && differences == Differences::default());
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let (_, differences) = convert(algorithm, &waits, true).unwrap();
            assert!(differences.wait);
        }
        // A window has no `max_wait` to convert.
        let window = plain(Algorithm::FixedWindow);
        let (_, differences) = convert(Algorithm::TokenBucket, &window, true).unwrap();
        assert!(differences.wait);
    }

    #[test]
    fn a_capacity_too_large_for_a_log_is_an_error() {
        let large = Limit::builder(Algorithm::TokenBucket, 100_001, SECOND);
        let large = large.build().unwrap();
        assert!(convert(Algorithm::SlidingLog, &large, false).is_err());
        assert!(convert(Algorithm::SlidingWindow, &large, false).is_ok());
    }

    #[test]
    fn algorithms_have_their_names_in_rules() {
        assert_eq!(algorithm_name(Algorithm::TokenBucket), "token_bucket");
        assert_eq!(algorithm_name(Algorithm::SlidingWindow), "sliding_window");
    }

    #[test]
    fn a_limit_is_described_by_its_window_its_refill_or_its_calendar() {
        let minute = Duration::from_secs(60);
        let bucket = || Limit::builder(Algorithm::TokenBucket, 5_000, minute);
        assert_eq!(
            describe_limit(&bucket().build().unwrap()),
            "5,000 per 1 min"
        );
        let refilled = bucket().refill(7).period(minute).build().unwrap();
        assert_eq!(describe_limit(&refilled), "5,000 at once, 7 per 1 min");
        let of = |unit| {
            Limit::calendar(10_000, Calendar::new(unit))
                .build()
                .unwrap()
        };
        assert_eq!(
            describe_limit(&of(CalendarUnit::Month)),
            "10,000 a month (UTC)"
        );
        let slots = Limit::concurrency(10).build().unwrap();
        assert_eq!(describe_limit(&slots), "10 at the same time");
        assert_eq!(
            describe_limit(&of(CalendarUnit::Hour)),
            "10,000 an hour (UTC)"
        );
    }
}
