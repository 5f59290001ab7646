//! Limits that come with the call.

use std::slice;

use super::{BandState, Fallback, Limiter, no_verdict};
use crate::ad_hoc::{AdHocDecision, AdHocKey};
use crate::algorithm::Mode;
use crate::band::Band;
use crate::decision::Outcome;
use crate::store::{Checks, Group, Store, StoreError};

impl<S: Store> Limiter<S> {
    /// Charges a limit that comes with the call. If the store fails,
    /// [`Limiter::call_limits`] decides.
    pub async fn take(&self, key: &AdHocKey, band: &Band, cost: u64) -> AdHocDecision {
        let mut checks = Checks::new(Mode::Take);
        let bands = slice::from_ref(band);
        checks.push(key.as_subject(), bands, cost, Group::ENFORCED);
        let error = match self.verdicts(&checks).await {
            Ok(verdicts) => return AdHocDecision::new(verdicts.first()),
            Err(error) => error,
        };
        match self.fall_back(self.call_limits, &checks, &error) {
            Fallback::Local(verdicts) => AdHocDecision {
                outcome: Outcome::Fallback,
                ..AdHocDecision::new(verdicts.first())
            },
            Fallback::Fixed(decision) => AdHocDecision::without_state(&decision),
        }
    }

    /// Returns the state of a limit that comes with the call.
    pub async fn ad_hoc_state(&self, key: &AdHocKey, band: &Band) -> Result<BandState, StoreError> {
        let mut checks = Checks::new(Mode::Peek);
        let bands = slice::from_ref(band);
        checks.push(key.as_subject(), bands, 0, Group::ENFORCED);
        let verdicts = self.store.decide(&checks).await?;
        let verdict = verdicts.first().ok_or_else(no_verdict)?;
        Ok(BandState {
            band: band.clone(),
            remaining: verdict.remaining.into(),
            reset_after: verdict.reset_after,
        })
    }

    /// Refunds units of a limit that comes with the call. Returns what is left.
    pub async fn refund_ad_hoc(
        &self,
        key: &AdHocKey,
        band: &Band,
        units: u64,
    ) -> Result<u64, StoreError> {
        let bands = slice::from_ref(band);
        let verdicts = self.store.refund(key.as_subject(), bands, units).await?;
        let verdict = verdicts.first().ok_or_else(no_verdict)?;
        Ok(verdict.remaining.into())
    }

    /// Deletes the state of a limit that comes with the call. Returns how many counters
    /// had state. Only the id of the band matters.
    pub async fn reset_ad_hoc(&self, key: &AdHocKey, band: &Band) -> Result<u64, StoreError> {
        let bands = slice::from_ref(band);
        self.store.reset(key.as_subject(), bands).await
    }
}
