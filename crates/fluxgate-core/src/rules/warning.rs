//! Warnings about rules that are valid, but probably not intended.

mod bands;
mod coverage;
mod requests;
mod settings;

use std::fmt;

use super::fault::{FaultCollector, RuleFault, Step};
use super::rule::{Rule, RuleMode};
use super::set::RuleSet;
use crate::limit::Algorithm;
use coverage::{KeyPresence, always_matches_with};
pub use requests::RequestSource;

/// The maximum number of pairs of rules, and of bands, that are compared. In a larger set, some
/// rules that never apply, and some bands without effect, are not found.
const MAX_PAIRS: usize = 1_000_000;

/// A part of a rule set that is valid, but probably not intended; displayed with its place:
/// `api.rules[0].bands[1]: …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleWarning(pub(super) RuleFault);

impl RuleWarning {
    /// Returns the message without its place.
    pub fn message(&self) -> &str {
        self.0.message()
    }
}

impl fmt::Display for RuleWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl RuleSet {
    /// Returns warnings: rules of a group that never apply, bands that never deny what another
    /// band allows, costs that no request can pay, methods in the wrong case, lists that no rule
    /// uses, and settings without effect.
    ///
    /// ```
    /// use fluxgate_core::{Quota, Rule, RuleSet};
    ///
    /// # fn main() -> Result<(), fluxgate_core::InvalidRules> {
    /// let rule = Rule::new("per-user")
    ///     .per_user()
    ///     .band(Quota::per_second(10))
    ///     .band(Quota::per_minute(600));
    /// let api = RuleSet::builder("api").rule(rule).build()?;
    /// assert_eq!(
    ///     api.warnings()[0].to_string(),
    ///     "api.rules[0].bands[1]: band `b1` has no effect: it allows everything that band `b0` allows",
    /// );
    /// # Ok(())
    /// # }
    /// ```
    pub fn warnings(&self) -> Vec<RuleWarning> {
        let groups = Groups::of(self);
        let max_others = MAX_PAIRS / self.band_count().max(1);
        let unused = settings::unused_lists(self).into_iter();
        let mut all: Vec<_> = unused.map(RuleWarning).collect();
        all.extend(self.collect_warnings(|index, rule, warnings| {
            if rule.rollout.is_some() && rule.mode == RuleMode::Shadow {
                let message = "`rollout` has no effect on a rule with `mode: shadow`";
                warnings.add_in("rollout", message);
            }
            settings::warn_of_methods(&rule.methods, warnings);
            settings::warn_of_costs(rule, warnings);
            settings::warn_of_lease(rule, warnings);
            bands::warn(&rule.bands, max_others, warnings);
            for (index, own) in rule.overrides.iter().enumerate() {
                warnings.item("overrides", index, |warnings| {
                    bands::warn(&own.bands, max_others, warnings);
                });
            }
            if let Some(earlier) = groups.shadowing(index, KeyPresence::Unknown) {
                warnings.add(never_applies(rule, earlier, ""));
            }
        }));
        all
    }

    /// Returns warnings about sliding logs that may need more events than the store holds for
    /// all logs together.
    pub fn warnings_for_log_events(&self, max_log_events: u64) -> Vec<RuleWarning> {
        self.collect_warnings(|_, rule, warnings| {
            for (index, band) in rule.bands.iter().enumerate() {
                let capacity = band.capacity();
                if band.algorithm() != Algorithm::SlidingLog || capacity <= max_log_events {
                    continue;
                }
                let message = format!(
                    "a log of band `{}` may have {capacity} events, but the store holds at most \
                     {max_log_events} of all logs together",
                    band.id()
                );
                warnings.add_at([Step::Field("bands"), Step::Index(index)], message);
            }
        })
    }

    /// Returns the number of bands of all rules, including those of overrides.
    fn band_count(&self) -> usize {
        let rules = self.written.iter();
        let counts = rules.map(|rule| {
            let overrides = rule.overrides.iter().map(|own| own.bands.len());
            rule.bands.len() + overrides.sum::<usize>()
        });
        counts.sum()
    }

    /// Calls `warn` for each enabled rule, with a collector at its place.
    fn collect_warnings(
        &self,
        mut warn: impl FnMut(usize, &Rule, &mut FaultCollector<'_>),
    ) -> Vec<RuleWarning> {
        let mut warnings = FaultCollector::new(&self.name);
        for (index, rule) in self.written.iter().enumerate() {
            if rule.enabled {
                warnings.item("rules", index, |warnings| warn(index, rule, warnings));
            }
        }
        let warnings = warnings.into_faults().into_iter();
        warnings.map(RuleWarning).collect()
    }
}

/// The enabled rules of groups, by group and in the order of evaluation.
struct Groups<'s> {
    set: &'s RuleSet,
    /// Group, priority and index of each rule.
    order: Vec<(&'s str, i32, usize)>,
}

impl<'s> Groups<'s> {
    fn of(set: &'s RuleSet) -> Self {
        let enabled = set
            .written
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.enabled);
        let mut order: Vec<_> = enabled
            .filter_map(|(index, rule)| place(index, rule))
            .collect();
        order.sort_unstable();
        Self { set, order }
    }

    /// Returns an earlier rule of the same group that applies whenever this one matches.
    fn shadowing(&self, index: usize, keys: KeyPresence) -> Option<&'s Rule> {
        let later = &self.set.written[index];
        let place = place(index, later)?;
        if is_rolled_out(later) {
            return None;
        }
        let begin = self.order.partition_point(|(group, ..)| *group < place.0);
        let end = self.order.binary_search(&place).ok()?;
        let most = MAX_PAIRS / self.order.len();
        let mut earlier = self.order[begin..end]
            .iter()
            .take(most)
            .map(|(_, _, index)| &self.set.written[*index]);
        earlier.find(|earlier| {
            earlier.mode == later.mode
                && !is_rolled_out(earlier)
                && always_matches_with(earlier, later, keys)
        })
    }
}

/// Returns the group, the priority and the index of a rule that is in a group.
fn place(index: usize, rule: &Rule) -> Option<(&str, i32, usize)> {
    Some((rule.group.as_deref()?, rule.priority, index))
}

/// Returns whether a rule is enforced for some identities only. Such a rule may apply
/// together with another rule of its group.
fn is_rolled_out(rule: &Rule) -> bool {
    rule.rollout.is_some() && rule.mode == RuleMode::Enforce
}

/// Returns the message about a rule that never applies. `to` names the requests, if not all.
fn never_applies(rule: &Rule, earlier: &Rule, to: &str) -> String {
    let name = |rule: &Rule| rule.id.clone().unwrap_or_default();
    format!(
        "rule `{}` never applies{to}: rule `{}`, which is earlier in group `{}`, matches every \
         request that it matches",
        name(rule),
        name(earlier),
        rule.group.as_deref().unwrap_or_default(),
    )
}
