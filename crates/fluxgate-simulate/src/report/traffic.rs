//! Requests and their outcomes over time.

use std::ops::AddAssign;

use fluxgate_core::internals::RuleVerdict;
use fluxgate_core::store::Micros;
use fluxgate_core::{Decision, Outcome, Timestamp};

use super::timeline::Timeline;

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
    fn of(decision: &Decision) -> Self {
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

/// All requests, over time and in total.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    /// Every request at the time of its arrival.
    pub(super) arrivals: Timeline<OutcomeCounts>,
    /// Every admitted request at the time when its delay is over.
    pub(super) releases: Timeline<u64>,
    pub(super) total: OutcomeCounts,
    pub(super) longest_delay: Micros,
    /// The earliest and the latest arrival.
    pub(super) first: Option<Timestamp>,
    pub(super) last: Option<Timestamp>,
}

impl Traffic {
    pub(super) fn record(&mut self, at: Timestamp, decision: &Decision) {
        let counts = OutcomeCounts::of(decision);
        *self.arrivals.at(at) += counts;
        self.total += counts;
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.last = self.last.max(Some(at));
        if decision.allowed() {
            let delay = decision.delay_micros();
            self.longest_delay = self.longest_delay.max(delay);
            let later = at.micros().saturating_add(delay.get());
            *self.releases.at(Timestamp::saturating_from_micros(later)) += 1;
        }
    }
}

/// The requests that one rule matched, over time and in total. What a shadow rule
/// would have denied counts as denied.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleTraffic {
    pub(super) arrivals: Timeline<OutcomeCounts>,
    pub(super) total: OutcomeCounts,
}

impl RuleTraffic {
    pub(super) fn record(&mut self, at: Timestamp, fate: &RuleVerdict<'_>) {
        let delayed = fate.delay > Micros::ZERO;
        let counts = OutcomeCounts {
            at_once: (!fate.denied && !delayed).into(),
            delayed: (!fate.denied && delayed).into(),
            denied: fate.denied.into(),
            ..OutcomeCounts::default()
        };
        *self.arrivals.at(at) += counts;
        self.total += counts;
    }
}
