//! The limiter: rules and a store.

mod ad_hoc;
mod error;
mod explain;
mod fallback;
mod holds;
mod missing_names;
mod missing_sets;
mod planned;
mod reservations;
mod state;
mod virtual_time;
mod waiting;
#[cfg(feature = "tokio")]
mod watch;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::algorithm::Mode;
use crate::band::Band;
use crate::context::RequestContext;
use crate::decision::Decision;
use crate::memory::MemoryStore;
use crate::observer::{Observer, Stopwatch};
use crate::plan::Plan;
#[cfg(feature = "tokio")]
use crate::renewal::HoldRenewals;
use crate::rules::{ActiveRuleSet, OnError, OnMissingRuleSet, RuleSets};
use crate::store::{Checks, LocalStore, Reason, Store, StoreError, Verdict, Verdicts};
pub(crate) use ad_hoc::AdHocVerdicts;
pub use error::LimiterError;
use error::{require_limit, unknown_rule};
pub use explain::{BandExplanation, Explanation, GroupPlace, RuleExplanation};
pub use holds::Hold;
use missing_names::MissingNames;
pub use planned::PendingDecision;
pub use virtual_time::RuleVerdict;
#[cfg(all(feature = "tokio", feature = "yaml"))]
pub use watch::RuleFileError;
#[cfg(feature = "tokio")]
pub use watch::RuleWatch;

/// Decides requests by rule sets that may change while it runs.
///
/// ```
/// use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
///
/// # fn main() -> Result<(), fluxgate_core::InvalidRules> {
/// let rule = Rule::new("per-user").per_user().band(Quota::per_minute(2));
/// let limiter = Limiter::new(
///     RuleSet::builder("api").rule(rule).build()?,
///     MemoryStore::default(),
/// );
/// let ann = RequestContext::builder().user("ann").build();
/// assert!(limiter.check_sync("api", &ann).allowed());
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
    /// Decides if the store fails and the rule set says so; created when first needed.
    fallback: OnceLock<MemoryStore>,
    /// The decision on limits that come with the call when the store fails.
    call_limits: OnError,
    observers: Vec<Box<dyn Observer>>,
    /// Whether the observers receive decisions.
    observes_decisions: bool,
    /// The holds of requests that are still running.
    #[cfg(feature = "tokio")]
    kept: HoldRenewals,
    missing: Mutex<MissingNames>,
    /// The decision on a rule set that does not exist; `None` if the rules say it.
    on_missing: Option<OnMissingRuleSet>,
    /// Whether the limiter logs rule sets that are missing, which an observer may do better.
    logs_missing: bool,
}

impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Builds a [`Limiter`].
#[derive(Debug)]
pub struct LimiterBuilder<S>(Shared<S>);

impl<S: Store> LimiterBuilder<S> {
    /// Adds an observer of decisions, store failures, rules that are loaded and rule sets that
    /// are missing.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.0.observers.push(Box::new(observer));
        self.0.observes_decisions = true;
        self
    }

    /// Adds an observer that needs no decisions, so that they are not timed for it, and that
    /// logs missing rule sets itself.
    pub fn failure_observer(mut self, observer: impl Observer + 'static) -> Self {
        self.0.observers.push(Box::new(observer));
        self.0.logs_missing = false;
        self
    }

    /// Sets the decision on limits that come with the call when the store fails.
    pub fn call_limits(mut self, on_error: OnError) -> Self {
        self.0.call_limits = on_error;
        self
    }

    /// Sets the decision on a rule set that does not exist, whatever the rules say. By default
    /// they say it ([`RuleSets::with_on_missing`], or `on_missing_rule_set` in a file).
    ///
    /// ```
    /// use fluxgate_core::{Limiter, MemoryStore, OnMissingRuleSet, RequestContext, RuleSets};
    ///
    /// let limiter = Limiter::builder(RuleSets::default(), MemoryStore::default())
    ///     .on_missing_rule_set(OnMissingRuleSet::Deny)
    ///     .build();
    /// let ann = RequestContext::builder().user("ann").build();
    /// assert!(!limiter.check_sync("misspelt", &ann).allowed());
    /// ```
    pub fn on_missing_rule_set(mut self, on_missing: OnMissingRuleSet) -> Self {
        self.0.on_missing = Some(on_missing);
        self
    }

    /// Builds the limiter.
    pub fn build(self) -> Limiter<S> {
        Limiter(Arc::new(self.0))
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
    /// Creates a limiter with these rules on this store.
    pub fn new(rules: impl Into<RuleSets>, store: S) -> Self {
        Self::builder(rules, store).build()
    }

    /// Starts a limiter with these rules on this store.
    pub fn builder(rules: impl Into<RuleSets>, store: S) -> LimiterBuilder<S> {
        LimiterBuilder(Shared {
            rules: ArcSwap::from_pointee(rules.into()),
            store,
            fallback: OnceLock::new(),
            call_limits: OnError::default(),
            observers: Vec::new(),
            observes_decisions: false,
            #[cfg(feature = "tokio")]
            kept: HoldRenewals::default(),
            missing: Mutex::default(),
            on_missing: None,
            logs_missing: true,
        })
    }

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
    /// limiter.replace_rules(rules(10)?).await?;
    /// # let ann = RequestContext::builder().user("ann").build();
    /// # assert_eq!(limiter.check("api", &ann).await.limit(), Some(10));
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
    /// # async fn main() -> Result<(), fluxgate_core::InvalidRules> {
    /// # let rule = Rule::new("per-user").per_user().band(Quota::per_minute(2));
    /// # let rules = RuleSet::builder("api").rule(rule).build()?;
    /// let limiter = Limiter::new(rules, MemoryStore::default());
    /// let ann = RequestContext::builder().user("ann").build();
    /// let decision = limiter.check("api", &ann).await;
    /// match decision.allowed() {
    ///     true => println!("go on, {:?} left", decision.remaining()),
    ///     false => println!("retry after {:?}", decision.retry_after()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check(&self, rule_set: &str, context: &RequestContext<'_>) -> Decision {
        self.check_in_mode(rule_set, context, Mode::Take).await
    }

    /// Decides a request without charging it.
    ///
    /// ```
    /// # use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fluxgate_core::InvalidRules> {
    /// # let rule = Rule::new("per-user").per_user().band(Quota::per_minute(2));
    /// # let rules = RuleSet::builder("api").rule(rule).build()?;
    /// # let limiter = Limiter::new(rules, MemoryStore::default());
    /// # let ann = RequestContext::builder().user("ann").build();
    /// assert_eq!(limiter.peek("api", &ann).await.remaining(), Some(2));
    /// assert_eq!(limiter.peek("api", &ann).await.remaining(), Some(2));
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
    /// # async fn main() -> Result<(), fluxgate_core::InvalidRules> {
    /// # let rule = Rule::new("per-user").per_user().band(Quota::per_minute(2));
    /// # let rules = RuleSet::builder("api").rule(rule).build()?;
    /// # let limiter = Limiter::new(rules, MemoryStore::default());
    /// // A message from Ann to Bob counts for both.
    /// let [ann, bob] = ["ann", "bob"].map(|user| RequestContext::builder().user(user).build());
    /// assert!(limiter.check("api", &bob).await.allowed());
    /// assert!(limiter.check("api", &bob).await.allowed());
    /// let decisions = limiter.check_all("api", &[ann.clone(), bob]).await;
    /// assert!(!decisions.iter().all(|decision| decision.allowed()));
    /// // Ann is not charged for it.
    /// assert_eq!(limiter.peek("api", &ann).await.remaining(), Some(2));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check_all(
        &self,
        rule_set: &str,
        contexts: &[RequestContext<'_>],
    ) -> Vec<Decision> {
        let started = self.start_timing();
        let rules = self.rules();
        let Some(set) = rules.get(rule_set) else {
            let decision = self.without_rule_set(rule_set, &rules);
            return vec![decision; contexts.len()];
        };
        let mut plan = Plan::new(Mode::Take);
        let ends = plan.fill_all(set, contexts, &|| self.0.store.time());
        let checks = plan.checks(set);
        let verdicts = self.verdicts(&checks).await;
        let mut decisions = self.conclude_all(set, (&plan, &ends), &checks, verdicts);
        for decision in &mut decisions {
            decision.set_rule_set(ActiveRuleSet::of(set));
            self.observe(decision, started);
            self.observe_refused_wait(decision);
        }
        decisions
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
        let started = self.start_timing();
        let set = self.known_set(rule_set)?;
        let index = set.rules().iter().position(|known| known.id() == rule);
        let index = index.ok_or_else(|| unknown_rule(&set, rule))?;
        require_limit(&set, &set.rules()[index])?;
        let mut decision = {
            let mut plan = Plan::new(Mode::Take);
            let now = || self.0.store.time();
            plan.fill_named(&set, index, identity, cost, &now)?;
            let checks = plan.checks(&set);
            let verdicts = self.verdicts(&checks).await;
            self.conclude(&set, &plan, &checks, verdicts)
        };
        decision.set_rule_set(set);
        self.observe(&decision, started);
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
        let Some(set) = self.rule_set(rule_set) else {
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

    fn each_observer(&self, observe: impl Fn(&dyn Observer)) {
        for observer in &self.0.observers {
            observe(&**observer);
        }
    }

    fn start_timing(&self) -> Option<Stopwatch> {
        self.0.observes_decisions.then(Stopwatch::start)
    }

    fn observe(&self, decision: &Decision, started: Option<Stopwatch>) {
        let Some(started) = started else { return };
        let took = started.elapsed();
        for observer in &self.0.observers {
            observer.decided(decision, took);
        }
    }

    /// Passes the reason of a denial on to the observers, if the request was not allowed to
    /// wait. Called once for each request, when its decision is final.
    pub fn observe_refused_wait(&self, decision: &Decision) {
        if decision.allowed() || self.0.observers.is_empty() {
            return;
        }
        if let Some(refusal) = decision.wait_refusal() {
            self.each_observer(|observer| observer.wait_refused(decision, refusal));
        }
    }

    /// Tells the observers that a request starts to wait.
    pub fn observe_wait_began(&self) {
        self.each_observer(|observer| observer.wait_began());
    }

    /// Tells the observers that a request no longer waits.
    pub fn observe_wait_ended(&self) {
        self.each_observer(|observer| observer.wait_ended());
    }

    async fn verdicts(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        let mut verdicts = Verdicts::new();
        if checks.list().is_empty() || self.0.store.try_decide(checks, &mut verdicts) {
            return Ok(verdicts);
        }
        self.0.store.decide(checks).await
    }

    fn known_set(&self, name: &str) -> Result<ActiveRuleSet, LimiterError> {
        let set = self.rule_set(name);
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
        let Some(set) = self.rule_set(rule_set) else {
            return self.missing_rule_set(rule_set);
        };
        let started = self.start_timing();
        let mut plan = Plan::new(mode);
        plan.fill(&set, context, &|| self.0.store.time());
        let verdicts = self.0.store.decide_now(&plan.checks(&set));
        let mut decision = Decision::combine(&plan, &verdicts);
        decision.set_rule_set(set);
        if mode.takes() {
            self.observe(&decision, started);
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
