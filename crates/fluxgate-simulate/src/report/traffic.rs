//! Requests and their outcomes over time.

use fluxgate_core::store::Micros;
use fluxgate_core::{ActiveRule, Decision, RuleVerdict, Timestamp};

use super::detail::Detail;
use super::outcome_counts::OutcomeCounts;
use super::timeline::Timeline;

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

/// The window, in microseconds, that stands in for that of a rule without bands.
const WITHOUT_WINDOW: u64 = 60_000_000;

/// The requests that one rule matched, over time and in total. What it would have denied,
/// were it not a shadow rule for the identity, counts as denied, too.
#[derive(Clone, Debug)]
pub(super) struct RuleTraffic {
    pub(super) arrivals: Timeline<OutcomeCounts>,
    /// As fine as the shortest window.
    pub(super) detail: Detail,
    pub(super) total: OutcomeCounts,
}

impl RuleTraffic {
    pub(super) fn new(rule: &ActiveRule) -> Self {
        let bands = rule.bands().iter();
        let shortest = bands.map(|band| band.limit().window().get()).min();
        Self {
            arrivals: Timeline::default(),
            detail: Detail::of_window(shortest.unwrap_or(WITHOUT_WINDOW)),
            total: OutcomeCounts::default(),
        }
    }

    pub(super) fn record(&mut self, at: Timestamp, verdict: &RuleVerdict<'_>) {
        let delayed = verdict.delay > Micros::ZERO;
        let counts = OutcomeCounts {
            at_once: (!verdict.denied && !delayed).into(),
            delayed: (!verdict.denied && delayed).into(),
            denied: verdict.denied.into(),
            shadow_denied: (verdict.denied && verdict.is_shadow).into(),
            ..OutcomeCounts::default()
        };
        *self.arrivals.at(at) += counts;
        self.detail.record(at, counts);
        self.total += counts;
    }
}
