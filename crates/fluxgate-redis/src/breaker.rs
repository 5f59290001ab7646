//! A circuit breaker: a server that does not answer is left alone for a while,
//! and then asked by one request before all others.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::jitter::jitter;

/// So many silences in a row open it.
const FAILURES: u32 = 5;
/// How long it stays open the first time, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// What it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Everything goes through.
    Closed,
    /// Nothing does.
    Open,
    /// One request does, to see whether the server is back.
    HalfOpen,
}

#[derive(Debug)]
pub(crate) struct Breaker(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    /// Silences in a row.
    failures: u32,
    /// When the next probe may go, while it is not closed.
    open_until: Option<Instant>,
    pause: Duration,
    probing: bool,
}

impl Default for Breaker {
    fn default() -> Self {
        Self(Mutex::new(Inner {
            failures: 0,
            open_until: None,
            pause: FIRST_PAUSE,
            probing: false,
        }))
    }
}

/// Leave to ask the server. What came of it must be told; if it is dropped
/// untold, a probe counts as failed.
#[derive(Debug)]
#[must_use]
pub(crate) struct Permit<'b> {
    breaker: &'b Breaker,
    probe: bool,
    told: bool,
}

impl Breaker {
    /// `None`: the server is to be left alone.
    pub(crate) fn admit(&self) -> Option<Permit<'_>> {
        let mut inner = self.lock();
        let probe = match inner.open_until {
            None => false,
            Some(until) if inner.probing || Instant::now() < until => return None,
            Some(_) => {
                inner.probing = true;
                true
            }
        };
        Some(Permit {
            breaker: self,
            probe,
            told: false,
        })
    }

    pub(crate) fn state(&self) -> BreakerState {
        let inner = self.lock();
        match inner.open_until {
            None => BreakerState::Closed,
            Some(_) if inner.probing => BreakerState::HalfOpen,
            Some(_) => BreakerState::Open,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing can panic while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit<'_> {
    /// The server answered.
    pub(crate) fn answered(mut self) {
        self.told = true;
        let mut inner = self.breaker.lock();
        // An answer from before the silence says nothing about now.
        if self.probe || inner.open_until.is_none() {
            inner.failures = 0;
            inner.open_until = None;
            inner.pause = FIRST_PAUSE;
            inner.probing = false;
        }
    }

    /// The server did not.
    pub(crate) fn silent(mut self) {
        self.told = true;
        self.fail();
    }

    fn fail(&self) {
        let mut inner = self.breaker.lock();
        if self.probe {
            inner.probing = false;
            inner.pause = (inner.pause * 2).min(LONGEST_PAUSE);
        } else if inner.open_until.is_some() {
            // Sent before it opened; the silence is known.
            return;
        } else {
            inner.failures += 1;
            if inner.failures < FAILURES {
                return;
            }
        }
        inner.open_until = Some(Instant::now() + jitter(inner.pause));
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.told && self.probe {
            self.fail();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn fails(breaker: &Breaker) {
        breaker.admit().unwrap().silent();
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_silences_in_a_row() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES - 1 {
            fails(&breaker);
        }
        breaker.admit().unwrap().answered();
        for _ in 0..FAILURES {
            assert_eq!(breaker.state(), BreakerState::Closed);
            fails(&breaker);
        }
        assert_eq!(breaker.state(), BreakerState::Open);
        assert!(breaker.admit().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_goes_and_closes_it() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES {
            fails(&breaker);
        }
        advance(LONGEST_PAUSE).await;
        let probe = breaker.admit().unwrap();
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(breaker.admit().is_none(), "one at a time");
        probe.answered();
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert!(breaker.admit().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_fails_or_is_given_up_opens_it_for_longer() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES {
            fails(&breaker);
        }
        for round in 0..6 {
            advance(LONGEST_PAUSE).await;
            let probe = breaker.admit().unwrap();
            if round % 2 == 0 {
                probe.silent();
            } else {
                drop(probe);
            }
            assert!(breaker.admit().is_none());
            assert_eq!(breaker.state(), BreakerState::Open);
        }
        // Never longer than this, however often it failed.
        advance(LONGEST_PAUSE).await;
        assert!(breaker.admit().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_answer_does_not_close_it() {
        let breaker = Breaker::default();
        let old = breaker.admit().unwrap();
        for _ in 0..FAILURES {
            fails(&breaker);
        }
        old.answered();
        assert_eq!(breaker.state(), BreakerState::Open);
    }
}
