//! Charges that are settled later.

use std::time::Duration;

use super::Limiter;
use crate::context::RequestContext;
use crate::decision::Decision;
use crate::hold::{HoldId, Settled, Settlement};
#[cfg(feature = "tokio")]
use crate::renewal::{HoldKeeper, HoldRenewals, KeptHold};
use crate::store::{Store, StoreError};
use crate::task;
use crate::time::Micros;

impl<S: Store> Limiter<S> {
    /// Settles a hold with the real cost, and releases its slots. Returns `None`, and changes
    /// nothing, if there is no such hold, or it has been settled or has expired.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use fluxgate_core::{Cost, Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
    /// use fluxgate_core::Settlement;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tokens = Rule::new("tokens").per_user().band(Quota::per_hour(10_000));
    /// let rules = RuleSet::builder("llm").rule(tokens).build()?;
    /// let limiter = Limiter::new(rules, MemoryStore::default());
    /// let llm = limiter.rule_set("llm")?;
    /// let prompt = RequestContext::builder()
    ///     .user("ann")
    ///     .cost(4_000)
    ///     .hold(Duration::from_secs(60))
    ///     .build();
    /// let decision = llm.check(&prompt).await;
    /// assert_eq!(decision.remaining(), Some(6_000));
    /// let hold = decision.hold().unwrap();
    /// let settled = limiter.settle(hold, Settlement::Cost(1_234)).await?.unwrap();
    /// assert_eq!(settled.charged, 1_234);
    /// assert_eq!(llm.peek(&prompt).await.remaining(), Some(8_766));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        // The fallback knows only what it charged itself while the store failed.
        let of_fallback = match self.0.fallback.store() {
            Some(fallback) => fallback.settle(hold, settlement).await?,
            None => None,
        };
        let settled = match of_fallback {
            Some(settled) => Some(settled),
            None => self.0.store.settle(hold, settlement).await?,
        };
        self.observe(|observer| observer.hold_settled(hold, settled));
        Ok(settled)
    }

    /// Extends a hold to `span` from now; slots no longer than their rule allows.
    /// Returns whether it is still held.
    pub async fn renew(&self, hold: HoldId, span: Duration) -> Result<bool, StoreError> {
        let holds = [(hold, Micros::from_duration(span))];
        let renewed = self.renew_all(&holds).await?;
        Ok(renewed.first() == Some(&true))
    }

    /// Renews several holds like [`Limiter::renew`], in one call of the store.
    pub async fn renew_all(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        let mut renewed = match self.0.fallback.store() {
            Some(fallback) => fallback.renew(holds).await?,
            None => vec![false; holds.len()],
        };
        let others: Vec<_> = { holds.iter().zip(&renewed) }
            .filter(|(_, renewed)| !**renewed)
            .map(|(hold, _)| *hold)
            .collect();
        if !others.is_empty() {
            let of_store = self.0.store.renew(&others).await?;
            let waiting = renewed.iter_mut().filter(|renewed| !**renewed);
            for (renewed, of_store) in waiting.zip(of_store) {
                *renewed = of_store;
            }
        }
        for ((hold, span), _) in holds.iter().zip(&renewed).filter(|(_, renewed)| **renewed) {
            self.observe(|observer| observer.hold_renewed(*hold, span.as_duration()));
        }
        Ok(renewed)
    }
}

#[cfg(feature = "tokio")]
impl<S: Store + 'static> Limiter<S> {
    /// Keeps the hold of a decision until it is dropped: it is renewed as long as the request
    /// runs. Returns `None` if there is no hold.
    pub fn keep_hold(&self, decision: &Decision) -> Option<KeptHold<Self>> {
        Some(self.keep(decision.hold()?, decision.renew_within()))
    }

    /// Returns the number of holds that are kept.
    pub fn kept_holds(&self) -> usize {
        self.0.renewals.count()
    }
}

#[cfg(feature = "tokio")]
impl<S: Store + 'static> HoldKeeper for Limiter<S> {
    fn kept(&self) -> &HoldRenewals {
        &self.0.renewals
    }

    async fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        Limiter::settle(self, hold, settlement).await
    }

    async fn renew_all(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        Limiter::renew_all(self, holds).await
    }

    fn hold_expired(&self, hold: HoldId) {
        self.observe(|observer| observer.hold_expired(hold));
    }

    fn answers_at_once(&self) -> bool {
        self.0.store.answers_at_once()
    }
}

impl<S: Store + 'static> Limiter<S> {
    /// Decides a request, charges it if it passes, and holds the charge: for the time that
    /// the context names, or else for as long as slots may be held, or for a minute without
    /// slots. Returns the decision as an error if the request is denied.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use fluxgate_core::{Limit, Limiter, MemoryStore, RequestContext, Rule, RuleSet};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let exports = Rule::new("exports").per_user().band(Limit::concurrency(1).build()?);
    /// let rules = RuleSet::builder("api").rule(exports).build()?;
    /// let limiter = Limiter::new(rules, MemoryStore::default());
    /// let api = limiter.rule_set("api")?;
    /// let ann = RequestContext::builder().user("ann").build();
    /// let export = api.hold(&ann).await.unwrap();
    /// assert!(api.hold(&ann).await.is_err());
    /// drop(export);
    /// assert!(api.hold(&ann).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn hold(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
    ) -> Result<Hold<S>, Decision> {
        let mut context = context.clone();
        context.holds = true;
        let decision = self.check(rule_set, &context).await;
        if decision.allowed() {
            Ok(Hold {
                id: decision.hold(),
                on_drop: Settlement::RELEASE,
                decision,
                limiter: self.clone(),
            })
        } else {
            Err(decision)
        }
    }
}

/// A charge that is not final. If it is dropped before it is settled, it is released: the
/// slots are free and the units return.
///
/// On a store that must be awaited it is released in the background, which needs the feature
/// `tokio` and a runtime. A process that dies releases nothing: the hold expires.
#[derive(Debug)]
#[must_use = "a hold that is dropped is released"]
pub struct Hold<S: Store + 'static> {
    /// `None` if nothing was charged, or the hold is settled.
    id: Option<HoldId>,
    on_drop: Settlement<'static>,
    decision: Decision,
    limiter: Limiter<S>,
}

impl<S: Store + 'static> Hold<S> {
    /// Returns the id, by which other processes can settle it. `None` if nothing was charged.
    pub fn id(&self) -> Option<HoldId> {
        self.id
    }

    /// Returns the decision.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Settles with the real cost. Returns `None` if the hold has expired. If the store fails,
    /// or the future is dropped, the slots are released and the charge stays as reserved.
    pub async fn settle(
        mut self,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        let Some(id) = self.id else {
            return Ok(Some(Settled::default()));
        };
        // What was used must not return because the settlement failed.
        self.on_drop = Settlement::AsReserved;
        let settled = self.limiter.settle(id, settlement).await?;
        self.id = None;
        Ok(settled)
    }

    /// Extends it to `span` from now. Returns whether it is still held.
    pub async fn renew(&self, span: Duration) -> Result<bool, StoreError> {
        match self.id {
            Some(id) => self.limiter.renew(id, span).await,
            None => Ok(true),
        }
    }

    /// Returns the id and leaves the hold as it is: another process may settle it, or it expires.
    pub fn leave(mut self) -> Option<HoldId> {
        self.id.take()
    }
}

impl<S: Store + 'static> Drop for Hold<S> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let limiter = self.limiter.clone();
        let at_once = limiter.0.store.answers_at_once();
        let settlement = self.on_drop;
        let release = async move {
            // If it fails, the hold expires.
            let _ = limiter.settle(id, settlement).await;
        };
        task::run(release, at_once);
    }
}
