//! Limits that come with the call.

use std::slice;

use super::fallback::FallbackDecision;
use super::{BandState, Limiter, no_verdict};
use crate::ad_hoc::{AdHocDecision, AdHocKey};
use crate::algorithm::Mode;
use crate::band::Band;
use crate::decision::{Decision, Outcome};
use crate::memory::MemoryStore;
use crate::rules::OnError;
use crate::store::{Checks, Group, Store, StoreError, Verdicts};

/// The verdicts on checks that belong to no rule.
pub(crate) enum AdHocVerdicts {
    Store(Verdicts),
    /// The store failed, and the fallback store decided.
    Fallback(Verdicts),
    /// The store failed, and the decision does not depend on any state.
    Failed(Decision),
}

impl<S: Store> Limiter<S> {
    /// Charges a limit that comes with the call. If the store fails,
    /// [`LimiterBuilder::call_limits`](super::LimiterBuilder::call_limits) decides.
    pub async fn take(&self, key: &AdHocKey, band: &Band, cost: u64) -> AdHocDecision {
        let mut checks = Checks::new(Mode::Take);
        checks.push(
            key.as_subject(),
            slice::from_ref(band),
            cost,
            Group::ENFORCED,
        );
        match self.decide_or_fall_back(&checks, self.0.call_limits).await {
            AdHocVerdicts::Store(verdicts) => AdHocDecision::new(verdicts.first()),
            AdHocVerdicts::Fallback(verdicts) => AdHocDecision {
                outcome: Outcome::Fallback,
                ..AdHocDecision::new(verdicts.first())
            },
            AdHocVerdicts::Failed(decision) => AdHocDecision::without_state(&decision),
        }
    }

    /// Decides checks that belong to no rule. If the store fails, `on_error` decides.
    pub(crate) async fn decide_or_fall_back(
        &self,
        checks: &Checks<'_>,
        on_error: OnError,
    ) -> AdHocVerdicts {
        let error = match self.verdicts(checks).await {
            Ok(verdicts) => return AdHocVerdicts::Store(verdicts),
            Err(error) => error,
        };
        match self.fall_back(on_error, checks, &error) {
            FallbackDecision::Local(verdicts) => AdHocVerdicts::Fallback(verdicts),
            FallbackDecision::Fixed(decision) => AdHocVerdicts::Failed(decision),
        }
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
}
