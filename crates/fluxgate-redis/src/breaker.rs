//! A circuit breaker. After several calls in a row without an answer, no request is sent to the
//! server for a while. Then one request probes it before the others follow.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::back_off::BackOff;
use crate::lock::lock;

/// The number of calls in a row without an answer that opens the breaker.
const FAILURES: u32 = 5;
/// How long the breaker stays open, the first time and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// The state of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// All requests are sent.
    Closed,
    /// No request is sent.
    Open,
    /// One request is sent, to test whether the server is back.
    HalfOpen,
}

/// The circuit breaker of a server.
#[derive(Debug)]
pub(crate) struct Breaker(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    /// Calls in a row without an answer.
    failures: u32,
    /// When the next probe may be sent; `None` while the breaker is closed.
    open_until: Option<Instant>,
    back_off: BackOff,
    probing: bool,
}

impl Default for Breaker {
    fn default() -> Self {
        Self(Mutex::new(Inner {
            failures: 0,
            open_until: None,
            back_off: BackOff::new(FIRST_PAUSE, LONGEST_PAUSE),
            probing: false,
        }))
    }
}

/// Permission to send one request. The caller records the outcome; a probe that is dropped
/// without an outcome counts as failed.
#[derive(Debug)]
#[must_use]
pub(crate) struct Permit<'b> {
    breaker: &'b Breaker,
    probe: bool,
    reported: bool,
}

impl Breaker {
    /// Returns a permit, or `None` if no request may be sent now.
    pub(crate) fn admit(&self) -> Option<Permit<'_>> {
        let mut inner = lock(&self.0);
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
            reported: false,
        })
    }

    pub(crate) fn state(&self) -> BreakerState {
        let inner = lock(&self.0);
        match inner.open_until {
            None => BreakerState::Closed,
            Some(_) if inner.probing => BreakerState::HalfOpen,
            Some(_) => BreakerState::Open,
        }
    }
}

impl Permit<'_> {
    /// Records that the server answered.
    pub(crate) fn record_answer(mut self) {
        self.reported = true;
        let mut inner = lock(&self.breaker.0);
        // An answer to a request from before the breaker opened does not close it.
        if self.probe || inner.open_until.is_none() {
            inner.failures = 0;
            inner.open_until = None;
            inner.back_off.reset();
            inner.probing = false;
        }
    }

    /// Records that the server did not answer.
    pub(crate) fn record_no_answer(mut self) {
        self.reported = true;
        self.fail();
    }

    fn fail(&self) {
        let mut inner = lock(&self.breaker.0);
        if self.probe {
            inner.probing = false;
        } else if inner.open_until.is_some() {
            // Sent before the breaker opened.
            return;
        } else {
            inner.failures += 1;
            if inner.failures < FAILURES {
                return;
            }
        }
        inner.open_until = Some(Instant::now() + inner.back_off.next_wait());
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.reported && self.probe {
            self.fail();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn fail(breaker: &Breaker) {
        breaker.admit().unwrap().record_no_answer();
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES - 1 {
            fail(&breaker);
        }
        breaker.admit().unwrap().record_answer();
        for _ in 0..FAILURES {
            assert_eq!(breaker.state(), BreakerState::Closed);
            fail(&breaker);
        }
        assert_eq!(breaker.state(), BreakerState::Open);
        assert!(breaker.admit().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_answered_closes_it() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES {
            fail(&breaker);
        }
        advance(LONGEST_PAUSE).await;
        let probe = breaker.admit().unwrap();
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(breaker.admit().is_none(), "one at a time");
        probe.record_answer();
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert!(breaker.admit().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_fails_or_is_dropped_opens_it_for_longer() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES {
            fail(&breaker);
        }
        for round in 0..6 {
            advance(LONGEST_PAUSE).await;
            let probe = breaker.admit().unwrap();
            if round % 2 == 0 {
                probe.record_no_answer();
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
            fail(&breaker);
        }
        old.record_answer();
        assert_eq!(breaker.state(), BreakerState::Open);
    }
}
