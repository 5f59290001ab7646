//! The same requests, decided under each of the five algorithms.

use std::collections::{BTreeMap, BTreeSet};

use fluxgate_core::{Algorithm, Limiter, RequestContext, RuleSets, Timestamp};

use super::conversion::{Differences, algorithm_name, convert};
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
}
