//! Requests by their outcome.

use std::ops::AddAssign;

use fluxgate_core::store::Micros;
use fluxgate_core::{Decision, Outcome};

/// Requests by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OutcomeCounts {
    /// Admitted because no rule matched.
    pub(super) no_rule: u64,
    /// Admitted without a delay.
    pub(super) at_once: u64,
    /// Admitted after a delay.
    pub(super) delayed: u64,
    pub(super) denied: u64,
    /// Admitted, but a shadow rule would have denied them. They are also counted
    /// above.
    pub(super) shadow_denied: u64,
}

impl OutcomeCounts {
    pub(super) fn of(decision: &Decision) -> Self {
        let no_rule = decision.outcome() == Outcome::NoRule;
        let delayed = decision.allowed() && decision.delay_micros() > Micros::ZERO;
        Self {
            no_rule: no_rule.into(),
            at_once: (decision.allowed() && !no_rule && !delayed).into(),
            delayed: delayed.into(),
            denied: (!decision.allowed()).into(),
            shadow_denied: (decision.outcome() == Outcome::ShadowDenied).into(),
        }
    }

    pub(super) fn admitted(self) -> u64 {
        self.no_rule + self.at_once + self.delayed
    }

    pub(super) fn requests(self) -> u64 {
        self.admitted() + self.denied
    }
}

impl AddAssign for OutcomeCounts {
    fn add_assign(&mut self, other: Self) {
        self.no_rule += other.no_rule;
        self.at_once += other.at_once;
        self.delayed += other.delayed;
        self.denied += other.denied;
        self.shadow_denied += other.shadow_denied;
    }
}
