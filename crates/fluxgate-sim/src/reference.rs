//! The same history, decided by the store in memory.
//!
//! A server decides one call after the other. So if all calls of a run were answered, deciding
//! them again in the order and at the times of the server, by the algorithms in Rust, must give
//! the same answers: not only no more than the limit, but no less either.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::{
    Decision, HoldId, Limiter, ManualClock, MemoryStore, RequestContext, RuleSets, Settlement,
    Timestamp, task,
};

use crate::ledger::{Instant, Violation};

/// What a client asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Check,
    Peek,
    /// Its span, and its name.
    Hold(u64, u32),
    /// The name of the hold and its cost.
    Settle(u32, u64),
    /// The name of the hold, and the span.
    Renew(u32, u64),
}

/// A call that was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) decided: Instant,
    pub(crate) version: usize,
    pub(crate) asked: Asked,
    pub(crate) user: u8,
    pub(crate) cost: u64,
    /// The answer, as [`decision_text`] and the like write it.
    pub(crate) answer: String,
}

/// Writes what a decision says.
pub(crate) fn decision_text(decision: &Decision) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "{}, {:?} left, retry {:?}, reset {:?}, delay {:?}",
        decision.outcome().name(),
        decision.remaining(),
        decision.retry_after(),
        decision.reset_after(),
        decision.delay()
    );
    text
}

/// The calls of a run that were answered, as far as they can be decided again.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    calls: Vec<Answered>,
    /// From here on it is not known what the server has done.
    ends_at: Option<u64>,
}

impl History {
    pub(crate) fn add(&mut self, call: Answered) {
        self.calls.push(call);
    }

    /// The calls that were sent at `at` or later cannot be decided again.
    pub(crate) fn end(&mut self, at: u64) {
        self.ends_at = Some(self.ends_at.map_or(at, |before| before.min(at)));
    }

    /// Decides all calls again. Returns the first that was answered differently.
    pub(crate) fn violation(
        &self,
        rules: &[RuleSets],
        user_name: fn(u8) -> String,
    ) -> Option<Violation> {
        let clock = ManualClock::default();
        let store = Arc::new(MemoryStore::with_clock(clock.clone()));
        let limiters = rules.iter();
        let limiters = limiters.map(|rules| Limiter::new(rules.clone(), Arc::clone(&store)));
        let limiters: Vec<_> = limiters.collect();
        let mut holds = BTreeMap::<u32, HoldId>::new();
        let mut calls: Vec<&Answered> = self.calls.iter().collect();
        // Stable: the calls of one script are answered in its order.
        calls.sort_by_key(|call| call.decided.number);
        for call in calls {
            if self.ends_at.is_some_and(|end| call.decided.at >= end) {
                return None;
            }
            clock.set(Timestamp::saturating_from_micros(call.decided.time));
            let limiter = &limiters[call.version];
            let context = || {
                let context = RequestContext::builder().user(user_name(call.user));
                context.cost(call.cost)
            };
            let expected = match call.asked {
                Asked::Check => {
                    let decision = task::ready(limiter.check("api", &context().build()));
                    decision_text(&decision)
                }
                Asked::Peek => {
                    let decision = task::ready(limiter.peek("api", &context().build()));
                    decision_text(&decision)
                }
                Asked::Hold(span, name) => {
                    let held = context().hold(Duration::from_micros(span)).build();
                    let decision = task::ready(limiter.check("api", &held));
                    if let Some(hold) = decision.hold() {
                        holds.insert(name, hold);
                    }
                    decision_text(&decision)
                }
                Asked::Settle(name, cost) => match holds.get(&name) {
                    Some(hold) => {
                        let settled = limiter.settle(*hold, Settlement::Cost(cost));
                        format!("{:?}", task::ready(settled))
                    }
                    None => return None,
                },
                Asked::Renew(name, span) => match holds.get(&name) {
                    Some(hold) => {
                        let renewed = limiter.renew(*hold, Duration::from_micros(span));
                        format!("{:?}", task::ready(renewed))
                    }
                    None => return None,
                },
            };
            if expected != call.answer {
                return Some(Violation {
                    at: call.decided.at,
                    message: format!(
                        "{:?} of user {} cost {} by rules {} at {}: the server says {}; it should be {expected}",
                        call.asked,
                        call.user,
                        call.cost,
                        call.version,
                        call.decided.time,
                        call.answer
                    ),
                });
            }
        }
        None
    }
}
