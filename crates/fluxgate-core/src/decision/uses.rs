//! The use of the bands whose rule reports it.

use super::{BandRef, BandUse, Decision, RecordedUse, Violation};
use crate::algorithm::Verdict;
use crate::band::Band;
use crate::plan::{AppliedRule, Ends, Plan};
use crate::rules::ActiveRule;
use crate::time::Micros;

impl RecordedUse {
    /// Returns the units that the band counted for the request, if it has all that it counts.
    fn counted(&self, rule: &ActiveRule, band: &Band) -> Option<u64> {
        // A shaping queue delays what it has room for.
        let owes = self.is_delayed && !band.limit().rate().shape();
        match self.charged {
            _ if band.lease().is_some() => None,
            None if rule.charges_always() => None,
            charged => charged.or(Some(0)).filter(|_| !owes),
        }
    }
}

impl Decision {
    /// Returns the use of each enforced band that [notifies](Band::notifies) and whose rule has
    /// [`Rule::notify`](crate::Rule::notify). Rules that are
    /// only reported, also for an identity outside their rollout, have none, and neither do
    /// decisions of the fallback store.
    ///
    /// ```
    /// use fluxgate_core::{Limiter, MemoryStore, Percent, Quota, RequestContext, Rule, RuleSet};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let half = Percent::new(50);
    /// let rule = Rule::new("per-user").per_user().band(Quota::per_hour(4)).notify([half]);
    /// let rules = RuleSet::builder("api").rule(rule).build()?;
    /// let limiter = Limiter::new(rules, MemoryStore::default());
    /// let api = limiter.rule_set("api")?;
    /// let ann = RequestContext::builder().user("ann").build();
    /// let reaches_half = || {
    ///     let decision = api.check_sync(&ann);
    ///     let used = decision.uses().next().expect("the rule notifies");
    ///     let least = half.reached_at(used.band.capacity());
    ///     used.used >= least && used.used_before.is_some_and(|before| before < least)
    /// };
    /// assert_eq!([(); 5].map(|()| reaches_half()), [false, true, false, false, false]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn uses(&self) -> impl Iterator<Item = BandUse<'_>> {
        self.uses.iter().filter_map(|recorded| {
            let Violation { rule, band } = self.resolve(recorded.band)?;
            let band = band.filter(|band| band.notifies() && !rule.notify().is_empty())?;
            let used = band.capacity().saturating_sub(recorded.remaining.into());
            let counted = recorded.counted(rule, band);
            Some(BandUse {
                rule,
                band,
                at: recorded.at,
                used,
                used_before: counted.map(|units| used.saturating_sub(units)),
                reset_after: recorded.reset_after,
            })
        })
    }

    /// Keeps the use of the enforced bands that report it. `verdicts` begins with those of all
    /// enforced bands.
    #[cold]
    pub(super) fn add_uses(&mut self, plan: &Plan, applied: &[AppliedRule], verdicts: &[Verdict]) {
        let is_charged = self.allowed && plan.takes();
        let enforced = applied.iter().filter(|applied| !applied.is_shadow());
        let bands = enforced.flat_map(|applied| {
            let bands = applied.bands.clone();
            bands.map(move |band| (applied, band))
        });
        let reported = { bands.zip(verdicts) }.filter(|((applied, _), _)| applied.reports_use);
        let uses = reported.map(|((applied, band), verdict)| {
            let (rule, cost) = (applied.rule, applied.cost);
            RecordedUse {
                band: BandRef {
                    rule,
                    band: Some(band),
                },
                at: verdict.at,
                remaining: verdict.remaining,
                reset_after: verdict.reset_after,
                charged: is_charged.then_some(cost),
                is_delayed: verdict.delay > Micros::ZERO,
            }
        });
        self.uses = uses.collect();
    }

    /// Keeps the uses of several requests, which are charged together or not at all. `ends` are
    /// those of their enforced rules, whose verdicts come first.
    #[cold]
    pub(super) fn add_uses_of_all(
        decisions: &mut [Self],
        plan: &Plan,
        ends: &Ends,
        verdicts: &[Verdict],
    ) {
        let all_allowed = decisions.iter().all(|decision| decision.allowed);
        let (mut start, mut verdicts) = (0, verdicts);
        for (decision, &end) in decisions.iter_mut().zip(ends) {
            let applied = &plan.applied[start..end];
            let bands = applied.iter().map(|applied| applied.bands.len()).sum();
            let (own, others) = verdicts.split_at(verdicts.len().min(bands));
            // A request that passes alone is not charged if another one is denied.
            let allowed = std::mem::replace(&mut decision.allowed, all_allowed);
            decision.add_uses(plan, applied, own);
            decision.allowed = allowed;
            (start, verdicts) = (end, others);
        }
    }
}
