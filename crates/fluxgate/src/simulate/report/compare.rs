//! The same requests under each of the five algorithms.

use std::collections::{BTreeMap, BTreeSet};

use fluxgate_core::memory::Retention;
use fluxgate_core::{
    Algorithm, Limiter, ManualClock, MemoryStore, RequestContext, RuleSets, Timestamp,
};

use super::course::Course;
use super::mapping::{self, Differences};

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
];

/// All rules under one algorithm, and how the requests fare by them.
pub(super) struct Variant {
    pub(super) algorithm: Algorithm,
    pub(super) course: Course,
    /// How many requests the rules as they are decide in another way.
    pub(super) otherwise: u64,
    limiter: Limiter<MemoryStore<ManualClock>>,
}

/// One variant an algorithm, and what of the rules they could not take over.
pub(super) struct Comparison {
    pub(super) variants: Vec<Variant>,
    pub(super) remarks: Remarks,
}

/// What a reader should know of the variants, and of which rules.
#[derive(Debug, Default)]
pub(super) struct Remarks(pub(super) BTreeMap<String, BTreeSet<String>>);

impl Comparison {
    pub(super) fn new(rules: &RuleSets) -> Self {
        let mut remarks = Remarks::default();
        let variants = ALGORITHMS.map(|algorithm| {
            let rules = remarks.rules_under(algorithm, rules);
            let store = MemoryStore::new(ManualClock::default(), usize::MAX, Retention::Forever);
            Variant {
                algorithm,
                course: Course::default(),
                otherwise: 0,
                limiter: Limiter::new(rules, store),
            }
        });
        Self {
            variants: variants.into(),
            remarks,
        }
    }

    /// Decides a request by every variant; `allowed` is what the rules say.
    pub(super) fn decide(
        &mut self,
        rule_set: &str,
        context: &RequestContext<'_>,
        at: Timestamp,
        allowed: bool,
    ) {
        for variant in &mut self.variants {
            let decision = variant.limiter.check_at(rule_set, context, at);
            variant.otherwise += u64::from(decision.allowed() != allowed);
            variant.course.note(at, &decision);
        }
    }
}

impl Remarks {
    fn rules_under(&mut self, algorithm: Algorithm, rules: &RuleSets) -> RuleSets {
        rules.with_limits(|set, rule, limit| {
            let rule_name = format!("{}/{}", set.name(), rule.id());
            match mapping::under(algorithm, limit, rule.waits()) {
                Ok((limit, differences)) => {
                    self.add_differences(algorithm, differences, &rule_name);
                    Some(limit)
                }
                Err(error) => {
                    let own = mapping::name(limit.algorithm());
                    let name = mapping::name(algorithm);
                    self.add(
                        format!("Under {name} it stays a {own}, for {error}"),
                        &rule_name,
                    );
                    None
                }
            }
        })
    }

    fn add_differences(&mut self, algorithm: Algorithm, differences: Differences, rule: &str) {
        if differences.refill {
            self.add(
                "Windows and logs have no refill: its capacity counts for the time \
                 in which the bucket fills"
                    .into(),
                rule,
            );
        }
        if differences.shape {
            self.add(
                "Only a leaky bucket has a shape: it is left out".into(),
                rule,
            );
        }
        if differences.wait && algorithm.is_bucket() {
            self.add("Its on_exceed: wait is left out under buckets".into(), rule);
        } else if differences.wait {
            self.add(
                "Windows and logs cannot owe: on_exceed: wait is a plain denial".into(),
                rule,
            );
        }
    }

    fn add(&mut self, remark: String, rule: &str) {
        self.0.entry(remark).or_default().insert(rule.to_owned());
    }
}

#[cfg(test)]
mod tests {
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
    fn what_a_rule_loses_is_told() {
        assert!(remarks("bands: [ { capacity: 5, window: 1s } ]").is_empty());
        let shaped = "algorithm: leaky_bucket, shape: true, bands: [ { capacity: 5, window: 1s } ]";
        assert_eq!(
            remarks(shaped),
            ["Only a leaky bucket has a shape: it is left out"]
        );
        let waits = remarks("on_exceed: wait, bands: [ { capacity: 5, window: 1s, refill: 1 } ]");
        assert_eq!(waits.len(), 2);
        assert!(waits[0].starts_with("Windows and logs cannot owe"));
        assert!(waits[1].starts_with("Windows and logs have no refill"));
        let large = remarks("bands: [ { capacity: 100001, window: 1s } ]");
        assert_eq!(large.len(), 1);
        assert!(
            large[0].starts_with("Under sliding_log it stays a token_bucket, for"),
            "{large:?}"
        );
    }

    #[test]
    fn a_rule_stays_as_it_is_where_one_band_of_it_cannot_change() {
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
}
