//! How a stream of requests fared over time.

use fluxgate_core::{Decision, Micros, Outcome, Timestamp};

use super::timeline::{Tally, Timeline};

/// How requests fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fates {
    /// No rule matched.
    pub(super) no_rule: u64,
    /// Admitted at once.
    pub(super) at_once: u64,
    /// Admitted after a delay.
    pub(super) delayed: u64,
    pub(super) denied: u64,
    /// Admitted, but a shadow rule would have refused.
    pub(super) shadow_denied: u64,
}

impl Fates {
    fn of(decision: &Decision) -> Self {
        let no_rule = decision.outcome() == Outcome::NoRule;
        let delayed = decision.allowed() && decision.delay() > Micros::ZERO;
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

impl Tally for Fates {
    fn add(&mut self, other: Self) {
        self.no_rule += other.no_rule;
        self.at_once += other.at_once;
        self.delayed += other.delayed;
        self.denied += other.denied;
        self.shadow_denied += other.shadow_denied;
    }
}

/// All that happened, over time and together.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    /// By when they came.
    pub(super) fates: Timeline<Fates>,
    /// What was admitted, by when its delay was over.
    pub(super) let_go: Timeline<u64>,
    pub(super) all: Fates,
    pub(super) longest_delay: Micros,
    /// The earliest and the latest time at which one came.
    pub(super) first: Option<Timestamp>,
    pub(super) last: Option<Timestamp>,
}

impl Course {
    pub(super) fn note(&mut self, at: Timestamp, decision: &Decision) {
        let fates = Fates::of(decision);
        self.fates.at(at).add(fates);
        self.all.add(fates);
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.last = self.last.max(Some(at));
        if decision.allowed() {
            let delay = decision.delay();
            self.longest_delay = self.longest_delay.max(delay);
            let later = at.micros().saturating_add(delay.get());
            *self.let_go.at(Timestamp::saturating_from_micros(later)) += 1;
        }
    }
}
