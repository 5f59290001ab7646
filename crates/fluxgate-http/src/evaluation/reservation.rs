//! The reservation of a request that waits.

use std::ops::Deref;

use fluxgate_core::store::Micros;
use tokio::time::Instant;

use crate::handler::Handler;

/// Records with a handler that a request waits, until it is dropped.
pub(super) struct WaitGuard<'h, H: Handler>(&'h H);

impl<'h, H: Handler> WaitGuard<'h, H> {
    pub(super) fn new(handler: &'h H) -> Self {
        handler.wait_began();
        Self(handler)
    }
}

impl<H: Handler> Drop for WaitGuard<'_, H> {
    fn drop(&mut self) {
        self.0.wait_ended();
    }
}

/// The units that a request has reserved. Dropping it cancels them, so it must exist from the
/// moment of the charge: the client may disconnect before the wait begins.
pub(super) struct Reservation<P>
where
    P: Deref<Target: Handler>,
{
    handler: P,
    /// When the decision was requested.
    since: Instant,
    charge: Option<<P::Target as Handler>::Charge>,
}

impl<P> Reservation<P>
where
    P: Deref<Target: Handler>,
{
    pub(super) fn new(
        handler: P,
        since: Instant,
        charge: Option<<P::Target as Handler>::Charge>,
    ) -> Self {
        Self {
            handler,
            since,
            charge,
        }
    }

    /// Keeps the units, as the request proceeds, and returns how long it has waited.
    pub(super) fn keep(mut self) -> Micros {
        self.charge = None;
        Micros::from_duration(self.since.elapsed())
    }
}

impl<P> Drop for Reservation<P>
where
    P: Deref<Target: Handler>,
{
    fn drop(&mut self) {
        if let Some(charge) = self.charge.take() {
            self.handler.cancel(charge);
        }
    }
}
