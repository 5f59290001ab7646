//! What operators do: states, refunds, resets and explanations. And limits that come with the
//! call.

use std::time::Duration;
use std::{iter, slice};

use super::error::{find_indexed_rule, find_rule};
use super::explain::{BandVerdicts, Explanation, explain_named_rule, explain_rules};
use super::fallback::FallbackDecision;
use super::{BandState, Limiter, LimiterError, no_verdict};
use crate::ad_hoc::{AdHocDecision, AdHocKey};
use crate::algorithm::Mode;
use crate::band::Band;
use crate::context::RequestContext;
use crate::decision::{Decision, Outcome};
use crate::key::{IdentityPart, IdentityRef, StoredIdentity, Subject, SubjectBytes};
use crate::limit::Algorithm;
use crate::memory::MemoryStore;
use crate::plan::Plan;
use crate::rules::{ActiveRule, ActiveRuleSet, IdentitySubject, OnError, RuleSet};
use crate::store::{Checks, Group, Store, StoreError, Verdicts};

impl<S: Store> Limiter<S> {
    /// Refunds units to an identity, in every band of a rule. Returns what is left in the
    /// band with the least. The identity is one value for each part of the rule's key.
    ///
    /// ```
    /// # use fluxgate_core::{Limiter, MemoryStore, Quota, Rule, RuleSet};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let rule = Rule::new("per-user").per_user().band(Quota::per_day(10));
    /// # let rules = RuleSet::builder("api").rule(rule).build()?;
    /// # let limiter = Limiter::new(rules, MemoryStore::default());
    /// let _ = limiter.consume("api", "per-user", &["ann"], Some(7)).await?;
    /// assert_eq!(limiter.refund("api", "per-user", &["ann"], 4).await?, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn refund(
        &self,
        rule_set: &str,
        rule: &str,
        identity: &[&str],
        units: u64,
    ) -> Result<u64, LimiterError> {
        let identity = IdentityRef::Values(identity);
        self.refund_of(rule_set, rule, identity, units).await
    }

    /// Does the same as [`Limiter::refund`] for an identity in any form.
    pub async fn refund_of(
        &self,
        rule_set: &str,
        rule: &str,
        identity: IdentityRef<'_>,
        units: u64,
    ) -> Result<u64, LimiterError> {
        let set = self.known_set(rule_set)?;
        let target = self.target(&set, rule, identity)?;
        let refunded = self.0.store.refund(target.subject(), target.bands, units);
        let verdicts = refunded.await?;
        let remaining = verdicts.iter().map(|verdict| verdict.remaining).min();
        remaining.map(u64::from).ok_or_else(|| no_verdict().into())
    }

    /// Deletes the state of an identity in every band of a rule. Returns how many bands
    /// had state.
    pub async fn reset(
        &self,
        rule_set: &str,
        rule: &str,
        identity: &[&str],
    ) -> Result<u64, LimiterError> {
        let identity = IdentityRef::Values(identity);
        self.reset_of(rule_set, rule, identity).await
    }

    /// Does the same as [`Limiter::reset`] for an identity in any form.
    pub async fn reset_of(
        &self,
        rule_set: &str,
        rule: &str,
        identity: IdentityRef<'_>,
    ) -> Result<u64, LimiterError> {
        let set = self.known_set(rule_set)?;
        let target = self.target(&set, rule, identity)?;
        Ok(self.0.store.reset(target.subject(), target.bands).await?)
    }

    /// Deletes the state of all identities of a rule. Returns how many counters had state.
    pub async fn reset_rule(&self, rule_set: &str, rule: &str) -> Result<u64, LimiterError> {
        let set = self.known_set(rule_set)?;
        let rule = find_rule(&set, rule)?;
        Ok(self.0.store.reset_rule(rule.subject()).await?)
    }

    /// Deletes the state of every enabled rule of a set. Returns how many counters had
    /// state. Continues after a failure and returns the first one.
    pub async fn reset_set(&self, rule_set: &str) -> Result<u64, LimiterError> {
        let set = self.known_set(rule_set)?;
        let mut deleted = Ok(0);
        for rule in set.rules().iter().filter(|rule| !rule.action().decides()) {
            let reset = self.0.store.reset_rule(rule.subject()).await;
            deleted = deleted.and_then(|before: u64| Ok(before + reset?));
        }
        deleted
    }

    /// Returns the state of an identity in each band of a rule.
    ///
    /// ```
    /// # use fluxgate_core::{Limiter, MemoryStore, Quota, Rule, RuleSet};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let rule = Rule::new("per-user").per_user().band(Quota::per_day(10));
    /// # let rules = RuleSet::builder("api").rule(rule).build()?;
    /// # let limiter = Limiter::new(rules, MemoryStore::default());
    /// for state in limiter.state("api", "per-user", &["ann"]).await? {
    ///     println!("{}: {} left", state.band.id(), state.remaining);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn state(
        &self,
        rule_set: &str,
        rule: &str,
        identity: &[&str],
    ) -> Result<Vec<BandState>, LimiterError> {
        let identity = IdentityRef::Values(identity);
        self.state_of(rule_set, rule, identity).await
    }

    /// Does the same as [`Limiter::state`] for an identity in any form.
    pub async fn state_of(
        &self,
        rule_set: &str,
        rule: &str,
        identity: IdentityRef<'_>,
    ) -> Result<Vec<BandState>, LimiterError> {
        let set = self.known_set(rule_set)?;
        let target = self.target(&set, rule, identity)?;
        let mut checks = Checks::new(Mode::Peek);
        checks.push(target.subject(), target.bands, 0, Group::ENFORCED);
        let verdicts = self.0.store.decide(&checks).await?;
        let on_lease = self.on_lease(target.subject(), target.bands).await?;
        let states = target
            .bands
            .iter()
            .zip(&verdicts)
            .zip(on_lease)
            .map(|((band, verdict), units)| BandState::new(band, verdict, units));
        Ok(states.collect())
    }

    /// Returns after which times slots of an identity end, in ascending order: each slot once, and
    /// those that end last, if there are more than `most`. Empty if the rule has no slots.
    pub async fn slot_ends(
        &self,
        rule_set: &str,
        rule: &str,
        identity: IdentityRef<'_>,
        most: u64,
    ) -> Result<Vec<Duration>, LimiterError> {
        let set = self.known_set(rule_set)?;
        let target = self.target(&set, rule, identity)?;
        let [band, ..] = target.bands else {
            return Ok(Vec::new());
        };
        if band.limit().algorithm() != Algorithm::Concurrency {
            return Ok(Vec::new());
        }
        // A request for all slots passes when the last one has ended, one for a slot less when the
        // one before has. Costs of one counter add up.
        let capacity = band.limit().capacity();
        let first = capacity.saturating_sub(most) + 1;
        let mut checks = Checks::new(Mode::Peek);
        for cost in iter::once(first).chain((first..capacity).map(|_| 1)) {
            checks.push(
                target.subject(),
                slice::from_ref(band),
                cost,
                Group::ENFORCED,
            );
        }
        let verdicts = self.0.store.decide(&checks).await?;
        let waits = verdicts.iter().filter(|verdict| !verdict.passes());
        let ends = waits.filter_map(|verdict| verdict.retry_after.after());
        Ok(ends.map(Duration::from).collect())
    }

    /// Returns the decision that a request would get, with the reasons. Nothing is charged.
    ///
    /// ```
    /// # use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rule = Rule::new("uploads").match_path("/upload").per_user().band(Quota::per_day(10));
    /// # let rules = RuleSet::builder("api").rule(rule).build()?;
    /// # let limiter = Limiter::new(rules, MemoryStore::default());
    /// let ann = RequestContext::builder().user("ann").path("/download").build();
    /// let explanation = limiter.explain("api", &ann).await?;
    /// assert_eq!(explanation.rules[0].failed.as_deref(), Some("path"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn explain(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
    ) -> Result<Explanation, LimiterError> {
        let set = self.known_set(rule_set)?;
        let mut plan = Plan::new(Mode::Preview);
        plan.fill(&set, context, &|| self.0.store.time());
        let before = self.verdicts(&plan.peeks(&set)).await?;
        let after = self.verdicts(&plan.checks(&set)).await?;
        let on_lease = self.on_lease_by_plan(&set, &plan).await?;
        let verdicts = BandVerdicts {
            before: &before,
            after: &after,
            on_lease: &on_lease,
        };
        let rules = explain_rules(&set, &plan, context, &verdicts);
        let mut decision = Decision::combine(&plan, &after);
        decision.set_rule_set(set);
        Ok(Explanation { decision, rules })
    }

    /// Returns the decision that a request of an identity would get from one rule alone, whether
    /// the rule matches or not. Nothing is charged. `cost` replaces the rule's own.
    ///
    /// ```
    /// # use fluxgate_core::{IdentityRef, Limiter, MemoryStore, Quota, Rule, RuleSet};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let rule = Rule::new("tokens").per_user().band(Quota::per_day(10));
    /// # let rules = RuleSet::builder("api").rule(rule).build()?;
    /// # let limiter = Limiter::new(rules, MemoryStore::default());
    /// let _ = limiter.consume("api", "tokens", &["ann"], Some(7)).await?;
    /// let ann = IdentityRef::Values(&["ann"]);
    /// let explanation = limiter.explain_identity("api", "tokens", ann, Some(4)).await?;
    /// assert!(!explanation.decision.allowed());
    /// assert_eq!(explanation.rules[0].bands[0].before.remaining, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn explain_identity(
        &self,
        rule_set: &str,
        rule: &str,
        identity: IdentityRef<'_>,
        cost: Option<u64>,
    ) -> Result<Explanation, LimiterError> {
        let set = self.known_set(rule_set)?;
        let (index, rule) = find_indexed_rule(&set, rule)?;
        let subject = self.subject_of(&set, rule, identity)?;
        let mut plan = Plan::new(Mode::Preview);
        plan.fill_named(&set, index, &subject, cost);
        let before = self.verdicts(&plan.peeks(&set)).await?;
        let after = self.verdicts(&plan.checks(&set)).await?;
        let on_lease = self.on_lease_by_plan(&set, &plan).await?;
        let verdicts = BandVerdicts {
            before: &before,
            after: &after,
            on_lease: &on_lease,
        };
        let rules = vec![explain_named_rule(&set, &plan, index, &verdicts)];
        let mut decision = Decision::combine(&plan, &after);
        decision.set_rule_set(set);
        Ok(Explanation { decision, rules })
    }

    /// Returns the encoded identity of a rule in the form in which the store keeps it.
    pub fn stored_identity(&self, rule_set: &str, rule: &str, identity: &[u8]) -> StoredIdentity {
        let hash = |part: &IdentityPart<'_>| self.0.store.hash_part(part);
        StoredIdentity::new(rule_set, rule, identity, hash)
    }

    /// Charges a limit that comes with the call. If the store fails,
    /// [`LimiterBuilder::call_limits`](super::LimiterBuilder::call_limits) decides.
    pub async fn take(&self, key: &AdHocKey, band: &Band, cost: u64) -> AdHocDecision {
        let mut checks = Checks::new(Mode::Take);
        let bands = slice::from_ref(band);
        checks.push(key.as_subject(), bands, cost, Group::ENFORCED);
        match self.decide_or_fall_back(&checks, self.0.call_limits).await {
            Ok(verdicts) => AdHocDecision::new(verdicts.first()),
            Err(FallbackDecision::Local(verdicts)) => AdHocDecision {
                outcome: Outcome::Fallback,
                ..AdHocDecision::new(verdicts.first())
            },
            Err(FallbackDecision::Fixed(decision)) => AdHocDecision::without_state(&decision),
        }
    }

    /// Decides checks that belong to no rule. If the store fails, `on_error` decides.
    pub(crate) async fn decide_or_fall_back(
        &self,
        checks: &Checks<'_>,
        on_error: OnError,
    ) -> Result<Verdicts, FallbackDecision> {
        let verdicts = self.verdicts(checks).await;
        verdicts.map_err(|error| self.fall_back(on_error, checks, &error))
    }

    /// Returns the store that decides if the other fails, once it was needed.
    pub(crate) fn fallback(&self) -> Option<&MemoryStore> {
        self.0.fallback.store()
    }

    /// Returns the state of a limit that comes with the call.
    pub async fn ad_hoc_state(&self, key: &AdHocKey, band: &Band) -> Result<BandState, StoreError> {
        let mut checks = Checks::new(Mode::Peek);
        let bands = slice::from_ref(band);
        checks.push(key.as_subject(), bands, 0, Group::ENFORCED);
        let verdicts = self.0.store.decide(&checks).await?;
        let verdict = verdicts.first().ok_or_else(no_verdict)?;
        // A limit that comes with the call leases nothing.
        Ok(BandState::new(band, verdict, 0))
    }

    /// Refunds units of a limit that comes with the call. Returns what is left.
    pub async fn refund_ad_hoc(
        &self,
        key: &AdHocKey,
        band: &Band,
        units: u64,
    ) -> Result<u64, StoreError> {
        let bands = slice::from_ref(band);
        let verdicts = self.0.store.refund(key.as_subject(), bands, units).await?;
        let verdict = verdicts.first().ok_or_else(no_verdict)?;
        Ok(verdict.remaining.into())
    }

    /// Deletes the state of a limit that comes with the call. Returns how many counters
    /// had state. Only the id of the band matters.
    pub async fn reset_ad_hoc(&self, key: &AdHocKey, band: &Band) -> Result<u64, StoreError> {
        let bands = slice::from_ref(band);
        self.0.store.reset(key.as_subject(), bands).await
    }

    /// Returns the units of each checked band that are out on lease.
    async fn on_lease_by_plan(&self, set: &RuleSet, plan: &Plan) -> Result<Vec<u64>, StoreError> {
        let mut on_lease = Vec::new();
        for applied in &plan.applied {
            let rule = &set.rules()[applied.rule as usize];
            let bands = rule.bands_in(&applied.bands);
            on_lease.extend(self.on_lease(plan.subject(applied, rule), bands).await?);
        }
        Ok(on_lease)
    }

    /// Returns an identity of a rule, with the bands that it has now.
    fn target<'s>(
        &self,
        set: &'s ActiveRuleSet,
        rule: &str,
        identity: IdentityRef<'_>,
    ) -> Result<Target<'s>, LimiterError> {
        let rule = find_rule(set, rule)?;
        let found = self.subject_of(set, rule, identity)?;
        Ok(Target {
            rule,
            subject: found.subject,
            bands: rule.bands_in(&found.bands),
        })
    }

    /// Returns the subject of an identity of a rule.
    pub(super) fn subject_of(
        &self,
        set: &RuleSet,
        rule: &ActiveRule,
        identity: IdentityRef<'_>,
    ) -> Result<IdentitySubject, LimiterError> {
        let hash = |part: &IdentityPart<'_>| self.0.store.hash_part(part);
        let now = || self.0.store.time();
        Ok(rule.subject_of(identity, set.ipv6_prefix(), hash, now)?)
    }

    /// Returns the units of each band that are out on lease. Asks the store only if a band
    /// leases its units.
    async fn on_lease(&self, subject: Subject<'_>, bands: &[Band]) -> Result<Vec<u64>, StoreError> {
        if bands.iter().any(|band| band.lease().is_some()) {
            self.0.store.on_lease(subject, bands).await
        } else {
            Ok(vec![0; bands.len()])
        }
    }
}

/// An identity of a rule.
struct Target<'s> {
    rule: &'s ActiveRule,
    subject: SubjectBytes,
    bands: &'s [Band],
}

impl Target<'_> {
    fn subject(&self) -> Subject<'_> {
        Subject {
            rule: self.rule.number(),
            bytes: &self.subject,
        }
    }
}
