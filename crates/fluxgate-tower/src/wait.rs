//! Waiting: places for those who do, and reservations that are given back.

use std::ops::Deref;

use fluxgate_core::{Micros, Outcome, Place};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::handler::Handler;

/// The places of this process to wait in.
#[derive(Debug)]
pub(crate) struct Waits {
    places: Semaphore,
    most: usize,
}

impl Waits {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self {
            places: Semaphore::new(most),
            most,
        }
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.most - self.places.available_permits()
    }

    /// A place to wait in for at most `longest`; `None` if there is none.
    pub(crate) async fn take<'h, H: Handler>(
        &self,
        handler: &'h H,
        longest: Micros,
        outcome: Outcome,
    ) -> Option<Seat<'_, 'h, H>> {
        let here = self.places.try_acquire().ok()?;
        let place = match outcome {
            // Decided without the store, which would only keep us waiting.
            Outcome::Fallback => Place::unbounded(),
            _ => handler.begin_wait(longest.as_duration()).await?,
        };
        Some(Seat {
            _here: here,
            _place: place,
            _told: Waiting::begin(handler),
        })
    }
}

/// A place of somebody who waits, for as long as it is kept.
pub(crate) struct Seat<'w, 'h, H: Handler> {
    _here: SemaphorePermit<'w>,
    _place: Place,
    _told: Waiting<'h, H>,
}

/// Tells a handler that a request waits, for as long as it does.
struct Waiting<'h, H: Handler>(&'h H);

impl<'h, H: Handler> Waiting<'h, H> {
    fn begin(handler: &'h H) -> Self {
        handler.wait_began();
        Self(handler)
    }
}

impl<H: Handler> Drop for Waiting<'_, H> {
    fn drop(&mut self) {
        self.0.wait_ended();
    }
}

/// What a request took out of the future. Dropped, it is given back. It is made
/// as soon as it is known that something was taken: whoever is to wait may go
/// away before that begins.
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

    /// The request takes place: nothing is given back.
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
            self.handler.give_back(charge, self.age());
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
