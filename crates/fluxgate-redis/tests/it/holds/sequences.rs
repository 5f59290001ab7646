//! Random sequences of requests that are held, settled and renewed.

use fluxgate_core::store::Mode;
use proptest::prelude::*;

use crate::sequences::{
    BANDS, Cost, Numbers, SECOND, SUBJECTS, Span, cost, mode, numbers_with_slots, span, start,
};

#[derive(Clone, Debug)]
pub(super) enum Step {
    Forward(Span),
    Back(Span),
    Decide(Request),
    /// The index of a hold, and the real cost.
    Settle(usize, RealCost),
    Renew(Vec<(usize, u64)>),
    Reset(usize),
    /// Other numbers for a band of a subject: holds are settled by the old ones.
    Change(usize, usize, Numbers),
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) mode: Mode,
    pub(super) enforced: Vec<(usize, Cost)>,
    pub(super) shadow: Vec<(usize, Cost)>,
    /// The requested life of its hold, if any.
    pub(super) hold: Option<Option<u64>>,
}

#[derive(Clone, Debug)]
pub(super) enum RealCost {
    AsReserved,
    Of(Cost),
    Attributes(Cost),
}

fn life() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 1..30 * SECOND,
        1 => (1..=3_u64).prop_map(|seconds| seconds * SECOND),
        1 => Just(86_400 * SECOND),
        1 => 1..=3_u64,
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let asked = |most| prop::collection::vec((0..SUBJECTS, cost()), 0..=most);
    let hold = prop::option::weighted(0.8, prop::option::weighted(0.8, life()));
    (mode(), asked(2), asked(2), hold).prop_map(|(mode, mut enforced, shadow, hold)| {
        if enforced.is_empty() && shadow.is_empty() {
            enforced.push((0, Cost::Units(1)));
        }
        Request {
            mode,
            enforced,
            shadow,
            hold,
        }
    })
}

fn simple() -> impl Strategy<Value = Request> {
    let hold = prop::option::weighted(0.8, prop::option::weighted(0.8, life()));
    (mode(), cost(), hold).prop_map(|(mode, cost, hold)| Request {
        mode,
        enforced: vec![(0, cost)],
        shadow: Vec::new(),
        hold,
    })
}

fn real_cost() -> impl Strategy<Value = RealCost> {
    // Above what was reserved, so that bands owe.
    let more = prop_oneof![cost(), (0..4_000_u64).prop_map(Cost::PartOfCapacity)];
    prop_oneof![
        1 => Just(RealCost::AsReserved),
        1 => Just(RealCost::Of(Cost::Units(0))),
        4 => more.clone().prop_map(RealCost::Of),
        1 => more.prop_map(RealCost::Attributes),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let renewed = prop::collection::vec((any::<usize>(), life()), 1..4);
    prop_oneof![
        8 => simple().prop_map(Step::Decide),
        5 => request().prop_map(Step::Decide),
        8 => (any::<usize>(), real_cost()).prop_map(|(index, cost)| Step::Settle(index, cost)),
        2 => renewed.prop_map(Step::Renew),
        2 => span().prop_map(Step::Forward),
        3 => (0..3 * SECOND).prop_map(|micros| Step::Forward(Span::Micros(micros))),
        1 => life().prop_map(|micros| Step::Forward(Span::Micros(micros))),
        1 => span().prop_map(Step::Back),
        1 => (0..3 * SECOND).prop_map(|micros| Step::Back(Span::Micros(micros))),
        1 => (0..SUBJECTS).prop_map(Step::Reset),
        1 => (0..SUBJECTS, 0..BANDS, numbers_with_slots())
            .prop_map(|(subject, band, numbers)| Step::Change(subject, band, numbers)),
    ]
}

/// The start, the numbers of all bands, and the steps.
pub(super) type Sequence = (u64, Vec<Vec<Numbers>>, Vec<Step>);

pub(super) fn sequence() -> impl Strategy<Value = Sequence> {
    let rules = prop::collection::vec(numbers_with_slots(), BANDS);
    let rules = prop::collection::vec(rules, SUBJECTS);
    (start(), rules, prop::collection::vec(step(), 1..100))
}
