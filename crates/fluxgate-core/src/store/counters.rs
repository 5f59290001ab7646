//! How the checks of a request are decided together, whatever keeps their counters.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::{Check, Checks, Group, Verdicts};
use crate::algorithm::{Adjustment, CounterAssessment, Mode, Verdict};
use crate::band::Band;
use crate::hold::HoldId;
use crate::time::Micros;

/// The locked counters of one request, or of one hold. All methods refer to them by the index
/// of the check, or of the charge of the hold.
pub(crate) trait Counters {
    /// Returns whether two checks have the same counter.
    fn is_same(&self, one: usize, other: usize) -> bool;

    /// Assesses a request on a counter.
    fn assess(&mut self, at: usize, band: &Band, cost: u64, mode: Mode) -> CounterAssessment;

    /// Returns the verdict on a request of `cost` units as if `units` were charged, whether or
    /// not they fit.
    fn assess_charged(&mut self, at: usize, band: &Band, units: u64, cost: u64) -> Verdict;

    /// Writes the correction of an assessment that is not charged.
    fn correct(&mut self, at: usize, band: &Band, assessment: &CounterAssessment);

    /// Writes the charge of an assessment that passes.
    fn charge(&mut self, at: usize, band: &Band, assessment: &CounterAssessment);

    /// Changes a charge to its real cost. Returns the units that did not fit.
    fn adjust(&mut self, at: usize, band: &Band, adjustment: &Adjustment) -> u64;

    /// Releases the slots of a hold.
    fn release(&mut self, at: usize, band: &Band, hold: HoldId);

    /// Extends the slots of a hold to `span` from `now`. Returns when they end, unless they
    /// have ended.
    fn renew(&mut self, at: usize, band: &Band, hold: HoldId, span: Micros) -> Option<u64>;

    /// Returns when the slots of a hold end, if it has any.
    fn end_of_slots(&mut self, at: usize, band: &Band, hold: HoldId) -> Option<u64>;
}

/// Decides checks like [`Store::decide`](super::Store::decide), and adds the verdicts.
pub(crate) fn decide(counters: &mut impl Counters, checks: &Checks<'_>, verdicts: &mut Verdicts) {
    let list = checks.list();
    let mut start = 0;
    while start < list.len() {
        let group = list[start].group;
        let rest = list[start..].iter();
        let end = start + rest.take_while(|check| check.group == group).count();
        let passes = decide_group(counters, checks, start..end, verdicts);
        if group == Group::ENFORCED && !passes {
            break;
        }
        start = end;
    }
}

/// Decides a range of checks that are charged together or not at all.
fn decide_group(
    counters: &mut impl Counters,
    all: &Checks<'_>,
    group: Range<usize>,
    verdicts: &mut Verdicts,
) -> bool {
    let (checks, mode) = (all.list(), all.mode());
    let is_refused = all.is_refused() && checks[group.start].group == Group::ENFORCED;
    let mut assessments: SmallVec<[CounterAssessment; 4]> = smallvec![];
    for at in group.clone() {
        let cost = combined_cost(counters, checks, group.start, at);
        assessments.push(counters.assess(at, checks[at].band, cost, mode));
    }
    let passes =
        !is_refused && { assessments.iter() }.all(|assessment| assessment.verdict().passes());
    for (at, assessment) in group.clone().zip(&assessments) {
        let Check { band, cost, .. } = checks[at];
        // The last check of a counter includes those before it.
        let is_last = !(at + 1..group.end).any(|later| counters.is_same(later, at));
        if passes && mode.takes() {
            if is_last {
                counters.charge(at, band, assessment);
            }
            verdicts.push(*assessment.verdict());
            continue;
        }
        if is_last {
            counters.correct(at, band, assessment);
        }
        let mut verdict = *assessment.verdict();
        if verdict.passes() && mode.reports_charge() && !passes {
            // Not charged after all: report the band without the charge.
            let peeked = counters.assess(at, band, cost, Mode::Peek);
            verdict = *peeked.verdict();
        }
        verdicts.push(verdict);
    }
    if !passes && all.charges_always() && mode.reports_charge() {
        let passed: SmallVec<[bool; 4]> =
            assessments.iter().map(|it| it.verdict().passes()).collect();
        charge_always(counters, all, group, &passed, verdicts);
    }
    passes
}

/// Returns the cost of a check and of the earlier ones of its group on the same counter.
fn combined_cost(counters: &impl Counters, checks: &[Check<'_>], start: usize, at: usize) -> u64 {
    let before = (start..at).filter(|earlier| counters.is_same(*earlier, at));
    before.fold(checks[at].cost, |sum, earlier| {
        sum.saturating_add(checks[earlier].cost)
    })
}

/// Charges the checks of a denied group whose bands always charge, and corrects their
/// verdicts. `passed` has an element for each check of the group: whether its band passed it.
fn charge_always(
    counters: &mut impl Counters,
    all: &Checks<'_>,
    group: Range<usize>,
    passed: &[bool],
    verdicts: &mut Verdicts,
) {
    let checks = all.list();
    let takes = all.mode().takes();
    let first = verdicts.len() - group.len();
    let always = |at: &usize| checks[*at].band.charges_always();
    if takes {
        for at in group.clone().filter(always) {
            let units = combined_cost(counters, checks, group.start, at);
            if units > 0 && last_of(counters, &group, at) == at {
                counters.adjust(at, checks[at].band, &Adjustment::charge(units));
            }
        }
    }
    for at in group.clone().filter(always) {
        let band = checks[at].band;
        let cost = combined_cost(counters, checks, group.start, at);
        let after = if takes {
            *counters.assess(at, band, cost, Mode::PeekNow).verdict()
        } else {
            let last = last_of(counters, &group, at);
            let units = combined_cost(counters, checks, group.start, last);
            counters.assess_charged(at, band, units, cost)
        };
        let index = at - group.start;
        verdicts[first + index] = Verdict::charged_always(passed[index], after);
    }
}

/// Returns the last check of a group on the same counter.
fn last_of(counters: &impl Counters, group: &Range<usize>, at: usize) -> usize {
    let mut later = group.clone().rev();
    later
        .find(|later| counters.is_same(*later, at))
        .unwrap_or(at)
}
