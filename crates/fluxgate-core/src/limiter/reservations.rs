//! Reservations that other processes cancel.

use super::Limiter;
use crate::context::RequestContext;
use crate::decision::Decision;
use crate::hold::HoldId;
use crate::store::{KeptReservation, Store, StoreError};

impl<S: Store> Limiter<S> {
    /// Keeps what a delayed decision has reserved until the request goes on, so that any
    /// process can cancel it by [`Decision::reservation`]. `context` must be that of the
    /// decision. Does nothing if nothing is reserved, or it is kept already.
    pub async fn keep_reservation(
        &self,
        decision: &mut Decision,
        context: &RequestContext<'_>,
    ) -> Result<(), StoreError> {
        if decision.reservation().is_some() {
            return Ok(());
        }
        let Some(charge) = decision.charge(context) else {
            return Ok(());
        };
        let hold = decision.hold();
        let reservation = KeptReservation {
            id: hold.unwrap_or_else(HoldId::random),
            until: decision.resumes_at(),
            wait: decision.delay_micros(),
            is_held: hold.is_some(),
            charges: charge.iter().collect(),
        };
        let kept = match (charge.by_fallback(), self.0.fallback.get()) {
            (false, _) => self.0.store.keep_reservation(&reservation).await?,
            (true, Some(fallback)) => fallback.keep_reservation(&reservation).await?,
            (true, None) => false,
        };
        if kept {
            decision.set_reservation(reservation.id);
        }
        Ok(())
    }

    /// Cancels a reservation: its units return, except those that later reservations were
    /// queued behind, and its hold ends if it has one. Returns `false`, and changes nothing, if
    /// there is no such reservation, it has been cancelled, or the request has gone on.
    pub async fn cancel_reservation(&self, id: HoldId) -> Result<bool, StoreError> {
        // The fallback knows only what it charged itself while the store failed.
        if let Some(fallback) = self.0.fallback.get()
            && fallback.cancel_reservation(id).await?
        {
            return Ok(true);
        }
        self.0.store.cancel_reservation(id).await
    }
}
