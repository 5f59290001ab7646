//! Waiting: places for those who do, and reservations that are cancelled.

use std::ops::Deref;
use std::sync::Arc;

use fluxgate_core::{Micros, Outcome, WaitPermit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::handler::Handler;

/// The places of this process to wait in.
#[derive(Debug)]
pub(crate) struct Waits {
    places: Arc<Semaphore>,
    most: usize,
}

/// A place of this process, freed when it is dropped.
pub(crate) type LocalPlace = OwnedSemaphorePermit;

impl Waits {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self {
            places: Arc::new(Semaphore::new(most)),
            most,
        }
    }

    /// How many places are taken.
    pub(crate) fn taken(&self) -> usize {
        self.most - self.places.available_permits()
    }

    /// A place, if one is free.
    pub(crate) fn take(&self) -> Option<LocalPlace> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }
}

/// A place in this process, and one among the waiters of all processes.
pub(crate) struct Places {
    _here: LocalPlace,
    _everywhere: WaitPermit,
}

impl Places {
    pub(crate) fn new(here: LocalPlace, everywhere: WaitPermit) -> Self {
        Self {
            _here: here,
            _everywhere: everywhere,
        }
    }

    /// The place in this process and another one to wait in for at most `longest`, to
    /// be asked again then; `None` if there is none.
    pub(crate) async fn to_ask_again<H: Handler>(
        here: LocalPlace,
        handler: &H,
        longest: Micros,
        outcome: Outcome,
    ) -> Option<Self> {
        let everywhere = match outcome {
            // Decided without the store, which would only keep us waiting.
            Outcome::Fallback => WaitPermit::unbounded(),
            _ => handler.begin_wait(longest.as_duration()).await?,
        };
        Some(Self::new(here, everywhere))
    }
}

/// Tells a handler that a request waits, for as long as it does.
pub(crate) struct Waiting<'h, H: Handler>(&'h H);

impl<'h, H: Handler> Waiting<'h, H> {
    pub(crate) fn begin(handler: &'h H) -> Self {
        handler.wait_began();
        Self(handler)
    }
}

impl<H: Handler> Drop for Waiting<'_, H> {
    fn drop(&mut self) {
        self.0.wait_ended();
    }
}

/// What a request took out of the future. Dropped, it is cancelled. It is made as
/// soon as it is known that something was taken: the client may go away before the
/// wait begins.
pub(crate) struct Reservation<P>
where
    P: Deref<Target: Handler>,
{
    handler: P,
    /// When it was asked for, or later if that took no time.
    since: Instant,
    charge: Option<<P::Target as Handler>::Charge>,
}

impl<P> Reservation<P>
where
    P: Deref<Target: Handler>,
{
    pub(crate) fn new(
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

    /// How long ago it was made.
    pub(crate) fn age(&self) -> Micros {
        Micros::from_duration(self.since.elapsed())
    }

    /// The request takes place: nothing is cancelled.
    pub(crate) fn keep(mut self) {
        self.charge = None;
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

impl<P> std::fmt::Debug for Reservation<P>
where
    P: Deref<Target: Handler>,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}
