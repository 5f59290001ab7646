//! The limiter: rules and a store.

mod builder;
mod check_all;
mod error;
mod explain;
mod fallback;
mod holds;
mod missing_sets;
mod observers;
mod operations;
mod rule_set;
mod virtual_time;
mod waiting;
#[cfg(feature = "tokio")]
mod watch;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::algorithm::Mode;
use crate::band::Band;
use crate::context::RequestContext;
use crate::decision::{Charge, Decision};
use crate::hold::Settlement;
use crate::key::IdentityRef;
use crate::memory::MemoryStore;
use crate::observer::{Observer, Stopwatch};
use crate::plan::Plan;
#[cfg(feature = "tokio")]
use crate::renewal::HoldRenewals;
use crate::rules::{ActiveRuleSet, OnError, RuleSet, RuleSets};
use crate::store::{Checks, LocalStore, Reason, Store, StoreError, Verdict, Verdicts, WaitPermit};
pub use builder::LimiterBuilder;
pub use error::LimiterError;
use error::find_indexed_rule;
pub use explain::{BandExplanation, Explanation, GroupPlace, RuleExplanation};
use fallback::Fallback;
pub(crate) use fallback::FallbackDecision;
pub use holds::Hold;
use missing_sets::MissingRuleSets;
use observers::Observers;
pub use rule_set::{RuleSetLimiter, UnknownRuleSet};
pub use virtual_time::{BandTarget, CountingRule, RuleVerdict};
#[cfg(all(feature = "tokio", feature = "yaml"))]
pub use watch::RuleFileError;
#[cfg(feature = "tokio")]
pub use watch::RuleWatch;

/// Decides requests by rule sets that may change while it runs.
///
/// ```
/// use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rule = Rule::new("per-user").per_user().band(Quota::per_minute(2));
/// let limiter = Limiter::new(
///     RuleSet::builder("api").rule(rule).build()?,
///     MemoryStore::default(),
/// );
/// let api = limiter.rule_set("api")?;
/// let ann = RequestContext::builder().user("ann").build();
/// assert!(api.check_sync(&ann).allowed());
/// # Ok(())
/// # }
/// ```
///
/// Clones share the rules and the store.
#[derive(Debug)]
pub struct Limiter<S = MemoryStore>(Arc<Shared<S>>);

#[derive(Debug)]
struct Shared<S> {
    rules: ArcSwap<RuleSets>,
    store: S,
    fallback: Fallback,
    /// The decision on limits that come with the call when the store fails.
    call_limits: OnError,
    observers: Observers,
    missing: MissingRuleSets,
    /// The holds of requests that are still running.
    #[cfg(feature = "tokio")]
    renewals: HoldRenewals,
}

/// A request that is planned and waits for the store.
#[derive(Debug)]
pub struct PendingDecision {
    set: ActiveRuleSet,
    plan: Box<Plan>,
    started: Option<Stopwatch>,
}

impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The state of a band for one identity.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BandState {
    /// The band.
    pub band: Band,
    /// Whole units left. Units that are out on lease are not among them.
    pub remaining: u64,
    /// The time until it is full again.
    pub reset_after: Duration,
    /// Units that are out on lease, to all instances together. 0 if the band has no
    /// [`Lease`](crate::Lease).
    pub on_lease: u64,
}

impl BandState {
    fn new(band: &Band, verdict: &Verdict, on_lease: u64) -> Self {
        Self {
            band: band.clone(),
            remaining: verdict.remaining.into(),
            reset_after: verdict.reset_after.into(),
            on_lease,
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.0.store
    }

    /// Returns the active rules.
    pub fn rules(&self) -> Arc<RuleSets> {
        self.0.rules.load_full()
    }

    /// Replaces all rules atomically, and deletes the state of rules that reset on change
    /// and have changed.
    ///
    /// ```
    /// # use fluxgate_core::{InvalidRules, Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
    /// fn rules(per_day: u32) -> Result<RuleSet, InvalidRules> {
    ///     let rule = Rule::new("per-user").per_user().band(Quota::per_day(per_day));
    ///     RuleSet::builder("api").rule(rule).build()
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(rules(5)?, MemoryStore::default());
    /// let api = limiter.rule_set("api")?;
    /// limiter.replace_rules(rules(10)?).await?;
    /// # let ann = RequestContext::builder().user("ann").build();
    /// # assert_eq!(api.check(&ann).await.limit(), Some(10));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn replace_rules(&self, rules: impl Into<RuleSets>) -> Result<(), StoreError> {
        let replaced = self.swap_rules(rules.into());
        self.reset_replaced(&replaced).await
    }

    /// Decides a request, and charges it if it passes. If the store fails, `on_error` of
    /// the rule set decides.
    ///
    /// A rule that lets requests wait may allow this one after a [`Decision::delay`].
    /// [`Limiter::until_ready`] waits for it, and [`Limiter::reserve`] returns the wait as a
    /// value.
    ///
    /// ```
    /// use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let rule = Rule::new("per-user").per_user().band(Quota::per_minute(2));
    /// # let rules = RuleSet::builder("api").rule(rule).build()?;
    /// let limiter = Limiter::new(rules, MemoryStore::default());
    /// let api = limiter.rule_set("api")?;
    /// let ann = RequestContext::builder().user("ann").build();
    /// let decision = api.check(&ann).await;
    /// if decision.allowed() {
    ///     println!("go on, {:?} left", decision.remaining());
    /// } else {
    ///     println!("retry after {:?}", decision.retry_after());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If there is no such rule set, [`OnMissingRuleSet`](crate::OnMissingRuleSet) decides, which
    /// allows every request by default. A handle by [`Limiter::rule_set`] cannot be misspelt.
    pub async fn check(&self, rule_set: &str, context: &RequestContext<'_>) -> Decision {
        self.check_in_mode(rule_set, context, Mode::Take).await
    }

    /// Decides a request without charging it.
    ///
    /// ```
    /// # use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let rule = Rule::new("per-user").per_user().band(Quota::per_minute(2));
    /// # let rules = RuleSet::builder("api").rule(rule).build()?;
    /// # let limiter = Limiter::new(rules, MemoryStore::default());
    /// # let api = limiter.rule_set("api")?;
    /// # let ann = RequestContext::builder().user("ann").build();
    /// assert_eq!(api.peek(&ann).await.remaining(), Some(2));
    /// assert_eq!(api.peek(&ann).await.remaining(), Some(2));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn peek(&self, rule_set: &str, context: &RequestContext<'_>) -> Decision {
        self.check_in_mode(rule_set, context, Mode::Peek).await
    }

    /// Decides several requests, which are charged together or not at all. Returns the
    /// decision on each.
    ///
    /// ```
    /// # use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let rule = Rule::new("per-user").per_user().band(Quota::per_minute(2));
    /// # let rules = RuleSet::builder("api").rule(rule).build()?;
    /// # let limiter = Limiter::new(rules, MemoryStore::default());
    /// # let api = limiter.rule_set("api")?;
    /// // A message from Ann to Bob counts for both.
    /// let [ann, bob] = ["ann", "bob"].map(|user| RequestContext::builder().user(user).build());
    /// assert!(api.check(&bob).await.allowed());
    /// assert!(api.check(&bob).await.allowed());
    /// let decisions = api.check_all(&[ann.clone(), bob]).await;
    /// assert!(!decisions.iter().all(|decision| decision.allowed()));
    /// // Ann is not charged for it.
    /// assert_eq!(api.peek(&ann).await.remaining(), Some(2));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check_all(
        &self,
        rule_set: &str,
        contexts: &[RequestContext<'_>],
    ) -> Vec<Decision> {
        self.check_all_with(rule_set, contexts, &[]).await.0
    }

    /// Charges costs that are known after the fact, in any case: as much as fits, also above what
    /// is left, like a rule with [`charge_always`](crate::Rule::charge_always). Rules with slots
    /// take no part. Returns the decision on each request as if it came now.
    ///
    /// ```
    /// # use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let rule = Rule::new("tokens").per_user().band(Quota::per_hour(100));
    /// # let rules = RuleSet::builder("llm").rule(rule).build()?;
    /// let limiter = Limiter::new(rules, MemoryStore::default());
    /// let used = RequestContext::builder().user("ann").cost(120).build();
    /// limiter.report_all("llm", &[used]).await;
    /// let next = RequestContext::builder().user("ann").build();
    /// // It has to make up for 20 units first.
    /// assert!(limiter.check("llm", &next).await.retry_after().unwrap().as_secs() > 700);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn report_all(
        &self,
        rule_set: &str,
        contexts: &[RequestContext<'_>],
    ) -> Vec<Decision> {
        match self.active_rule_set(rule_set) {
            Some(set) => {
                let set = set.reporting();
                self.check_all_in_mode(&set, contexts, Mode::TakeNow).await
            }
            None => vec![self.missing_rule_set(rule_set); contexts.len()],
        }
    }

    /// Charges an identity by one rule, whether the rule matches or not. `cost` replaces
    /// the rule's own.
    ///
    /// ```
    /// # use fluxgate_core::{Limiter, MemoryStore, Quota, Rule, RuleSet};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tokens = Rule::new("tokens").per_user().band(Quota::per_day(10_000));
    /// # let rules = RuleSet::builder("api").rule(tokens).build()?;
    /// # let limiter = Limiter::new(rules, MemoryStore::default());
    /// let decision = limiter.consume("api", "tokens", &["ann"], Some(1_200)).await?;
    /// assert_eq!(decision.remaining(), Some(8_800));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn consume(
        &self,
        rule_set: &str,
        rule: &str,
        identity: &[&str],
        cost: Option<u64>,
    ) -> Result<Decision, LimiterError> {
        let started = self.0.observers.start_timing();
        let set = self.known_set(rule_set)?;
        let (index, rule) = find_indexed_rule(&set, rule)?;
        let identity = self.subject_of(&set, rule, IdentityRef::Values(identity))?;
        let mut decision = {
            let mut plan = Plan::new(Mode::Take);
            plan.fill_named(&set, index, &identity, cost);
            let checks = plan.checks(&set);
            let verdicts = self.verdicts(&checks).await;
            self.conclude(&set, &plan, &checks, verdicts)
        };
        decision.set_rule_set(set);
        self.0.observers.decided(&decision, started);
        self.observe_refused_wait(&decision);
        Ok(decision)
    }

    /// Decides a request in any mode. [`Mode::TakeNow`] is for callers that cannot wait.
    pub async fn check_in_mode(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Decision {
        let Some(set) = self.active_rule_set(rule_set) else {
            return self.missing_rule_set(rule_set);
        };
        let mut decision = match self.try_check_owned(set, context, mode) {
            Ok(decision) => decision,
            Err(pending) => self.complete_without_permit(pending).await,
        };
        if mode == Mode::TakeNow {
            decision.set_wait_not_requested();
        }
        if mode.takes() {
            self.observe_refused_wait(&decision);
        }
        decision
    }

    /// Tells the observers why a denied request was not allowed to wait, if its rules let
    /// requests wait. A caller that decides in two steps calls it once for each request, when
    /// the decision is final.
    pub fn observe_refused_wait(&self, decision: &Decision) {
        self.0.observers.wait_refused(decision);
    }

    /// Tells the observers that a request starts to wait.
    pub fn observe_wait_began(&self) {
        self.observe(|observer| observer.wait_began());
    }

    /// Tells the observers that a request no longer waits.
    pub fn observe_wait_ended(&self) {
        self.observe(|observer| observer.wait_ended());
    }

    /// Returns the decision on limits that come with the call when the store fails.
    pub fn call_limits_on_error(&self) -> OnError {
        self.0.call_limits
    }

    /// Returns the rules of this name that are active now.
    pub fn active_rule_set(&self, name: &str) -> Option<ActiveRuleSet> {
        self.0.rules.load().get(name).map(ActiveRuleSet::of)
    }

    /// Returns the decision on a rule set that does not exist.
    pub fn missing_rule_set(&self, name: &str) -> Decision {
        self.decide_missing(name, &self.0.rules.load())
    }

    /// Replaces all rules atomically and returns the old ones. Their state is not deleted
    /// before [`Limiter::reset_replaced`].
    pub fn swap_rules(&self, rules: RuleSets) -> Arc<RuleSets> {
        self.0.rules.swap(Arc::new(rules))
    }

    /// Deletes the state of replaced rules that reset on change, unless they are active
    /// again. Continues after a failure and returns the first one.
    pub async fn reset_replaced(&self, replaced: &RuleSets) -> Result<(), StoreError> {
        let mut first = Ok(());
        for set in replaced.iter() {
            for rule in set.rules().iter().filter(|rule| rule.reset_on_change()) {
                // The rules may have changed while the last reset ran.
                let rules = self.rules();
                let now = rules.get(set.name()).and_then(|set| set.rule(rule.id()));
                // The number of a rule that resets on change depends on its text.
                if now.is_none_or(|now| now.number() != rule.number()) {
                    let reset = self.0.store.reset_rule(rule.subject()).await;
                    first = first.and(reset.map(drop));
                }
            }
        }
        first
    }

    /// Decides a request by a rule set that is active or was when the request came, and
    /// charges it if it passes. Returns the plan, and charges nothing, if the store
    /// must be awaited: [`Limiter::complete`] continues then.
    pub fn try_check(
        &self,
        set: &ActiveRuleSet,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Decision, PendingDecision> {
        self.try_check_owned(set.clone(), context, mode)
    }

    fn try_check_owned(
        &self,
        set: ActiveRuleSet,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Decision, PendingDecision> {
        let started = self.0.observers.start_timing().filter(|_| mode.takes());
        let mut plan = Plan::new(mode);
        plan.fill(&set, context, &|| self.0.store.time());
        let mut verdicts = Verdicts::new();
        let is_decided = {
            let checks = plan.checks(&set);
            checks.list().is_empty() || self.0.store.try_decide(&checks, &mut verdicts)
        };
        if is_decided {
            let mut decision = Decision::combine(&plan, &verdicts);
            decision.set_rule_set(set);
            self.0.observers.decided(&decision, started);
            return Ok(decision);
        }
        let plan = Box::new(plan);
        Err(PendingDecision { set, plan, started })
    }

    /// Decides a planned request, and charges it if it passes. A request that has to wait
    /// gets a permit, if their number is bounded for all processes. The permit is acquired
    /// before any units are; if none is left, the request is decided as if no rule let it
    /// wait.
    pub async fn complete(&self, pending: PendingDecision) -> (Decision, WaitPermit) {
        let PendingDecision { set, plan, started } = pending;
        let (mut decision, permit) = {
            let checks = plan.checks(&set);
            let (verdicts, permit) = match self.0.store.decide_with_permit(&checks).await {
                Ok((verdicts, permit)) => (Ok(verdicts), permit),
                Err(error) => (Err(error), WaitPermit::unbounded()),
            };
            (self.conclude(&set, &plan, &checks, verdicts), permit)
        };
        decision.set_rule_set(set);
        self.0.observers.decided(&decision, started);
        (decision, permit)
    }

    /// Decides like [`Limiter::complete`], for a caller that does not wait itself.
    async fn complete_without_permit(&self, pending: PendingDecision) -> Decision {
        let PendingDecision { set, plan, started } = pending;
        let mut decision = {
            let checks = plan.checks(&set);
            let verdicts = self.0.store.decide(&checks).await;
            self.conclude(&set, &plan, &checks, verdicts)
        };
        decision.set_rule_set(set);
        self.0.observers.decided(&decision, started);
        decision
    }

    /// Decides like [`Limiter::try_check`] and, if the store must be awaited, like
    /// [`Limiter::complete`].
    pub async fn check_with_permit(
        &self,
        set: &ActiveRuleSet,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> (Decision, WaitPermit) {
        match self.try_check(set, context, mode) {
            Ok(decision) => (decision, WaitPermit::unbounded()),
            Err(pending) => self.complete(pending).await,
        }
    }

    /// Cancels the charge of a request that waits and does not go on. Continues after a
    /// failure and returns the first one. A hold ends first, which only one caller can do: if it
    /// has been settled, or cannot be reached, nothing returns.
    pub async fn cancel(&self, charge: Charge) -> Result<(), StoreError> {
        if let Some(hold) = charge.hold
            && self.settle(hold, Settlement::Cancelled).await?.is_none()
        {
            return Ok(());
        }
        let mut first = Ok(());
        for part in charge.iter() {
            let (subject, bands, charged) = (part.subject, part.bands, part.charged);
            let cancelled = if charge.by_fallback {
                match self.0.fallback.store() {
                    Some(fallback) => fallback.cancel(subject, bands, part.units, charged).await,
                    // A fallback that was never created holds nothing.
                    None => continue,
                }
            } else {
                self.0
                    .store
                    .cancel(subject, bands, part.units, charged)
                    .await
            };
            first = first.and(cancelled);
        }
        first
    }

    /// Acquires a permit to wait for at most `longest`. Returns `None` if the number of
    /// waiting requests is bounded for all processes that share the state, and reached.
    pub async fn begin_wait(&self, longest: Duration) -> Result<Option<WaitPermit>, StoreError> {
        self.0.store.begin_wait(longest).await
    }

    fn observe(&self, event: impl Fn(&dyn Observer)) {
        self.0.observers.each(event);
    }

    /// Returns the decision on a rule set that does not exist, and reports the name.
    fn decide_missing(&self, name: &str, rules: &RuleSets) -> Decision {
        self.0.missing.decide(name, rules, &self.0.observers, false)
    }

    /// Makes the decision from the store's answer, or without it if the store failed.
    fn conclude(
        &self,
        set: &RuleSet,
        plan: &Plan,
        checks: &Checks<'_>,
        verdicts: Result<Verdicts, StoreError>,
    ) -> Decision {
        match verdicts {
            Ok(verdicts) => {
                self.0.fallback.store_answered();
                Decision::combine(plan, &verdicts)
            }
            Err(error) => match self.fall_back(set.on_error(), checks, &error) {
                FallbackDecision::Fixed(decision) => decision,
                FallbackDecision::Local(verdicts) => {
                    Decision::combine(plan, &verdicts).into_fallback()
                }
            },
        }
    }

    /// Decides after the store failed.
    fn fall_back(
        &self,
        on_error: OnError,
        checks: &Checks<'_>,
        error: &StoreError,
    ) -> FallbackDecision {
        let decides = checks.mode().takes().then_some(on_error);
        self.observe(|observer| observer.store_failed(error, decides));
        self.0.fallback.log_failure(error, on_error);
        self.0.fallback.decide(on_error, checks)
    }

    async fn verdicts(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        let mut verdicts = Verdicts::new();
        if checks.list().is_empty() || self.0.store.try_decide(checks, &mut verdicts) {
            return Ok(verdicts);
        }
        let verdicts = self.0.store.decide(checks).await?;
        self.0.fallback.store_answered();
        Ok(verdicts)
    }

    fn known_set(&self, name: &str) -> Result<ActiveRuleSet, LimiterError> {
        let set = self.active_rule_set(name);
        set.ok_or_else(|| LimiterError::UnknownRuleSet(name.into()))
    }
}

impl<S: LocalStore> Limiter<S> {
    /// Decides a request like [`Limiter::check`], without a future.
    pub fn check_sync(&self, rule_set: &str, context: &RequestContext<'_>) -> Decision {
        self.decide_sync(rule_set, context, Mode::Take)
    }

    /// Decides a request like [`Limiter::peek`], without a future.
    pub fn peek_sync(&self, rule_set: &str, context: &RequestContext<'_>) -> Decision {
        self.decide_sync(rule_set, context, Mode::Peek)
    }

    fn decide_sync(&self, rule_set: &str, context: &RequestContext<'_>, mode: Mode) -> Decision {
        let Some(set) = self.active_rule_set(rule_set) else {
            return self.missing_rule_set(rule_set);
        };
        let started = self.0.observers.start_timing();
        let mut plan = Plan::new(mode);
        plan.fill(&set, context, &|| self.0.store.time());
        let verdicts = self.0.store.decide_now(&plan.checks(&set));
        let mut decision = Decision::combine(&plan, &verdicts);
        decision.set_rule_set(set);
        if mode.takes() {
            self.0.observers.decided(&decision, started);
            self.observe_refused_wait(&decision);
        }
        decision
    }
}

fn no_verdict() -> StoreError {
    StoreError {
        reason: Reason::BAD_RESPONSE,
        message: "the store gave no verdict".into(),
    }
}
