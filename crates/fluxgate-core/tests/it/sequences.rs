//! Random rules, and random sequences of operations on them.

use fluxgate_core::limit::{MAX_FILL, MAX_LOG_UNITS, MAX_UNITS};
use fluxgate_core::{Algorithm, Timestamp};
use proptest::prelude::*;

use crate::model::Limit;
use crate::support::{DAY, MILLI, SECOND, global, name_of};

/// A band as a rule writes it. Numbers are reduced to the domain when used.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    pub(crate) capacity: u64,
    pub(crate) window_ms: u64,
    pub(crate) refill: Option<u64>,
    pub(crate) period_ms: Option<u64>,
}

/// What all bands of the rule have in common.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    pub(crate) algorithm: Algorithm,
    pub(crate) max_wait_ms: Option<u64>,
    pub(crate) shape: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Advance(Span),
    Back(Span),
    Check(Cost),
    Peek(Cost),
    Look,
    Refund(Cost),
    ChangeNumbers(usize, Numbers),
    ChangeWindow(usize, u64),
    ChangeAlgorithm(usize),
    ChangeStyle(Option<u64>, bool),
}

#[derive(Clone, Debug)]
pub(crate) enum Span {
    Micros(u64),
    PartOfWindow(u64),
    /// About the time that was last reported.
    Retry(i64),
    Reset(i64),
}

#[derive(Clone, Debug)]
pub(crate) enum Cost {
    Units(u64),
    PartOfCapacity(u64),
    /// What was last reported to be left, plus this many.
    Left(u64),
}

/// Reduces the numbers to the domain.
pub(crate) fn limit(style: &Style, numbers: &Numbers) -> Limit {
    let algorithm = style.algorithm;
    let is_bucket = algorithm.is_bucket();
    let most = if algorithm == Algorithm::SlidingLog {
        MAX_LOG_UNITS
    } else {
        MAX_UNITS
    };
    let capacity = numbers.capacity.min(most);
    let window = numbers.window_ms * MILLI;
    let period_ms = numbers.period_ms.filter(|_| is_bucket);
    let period = period_ms.map_or(window, |millis| millis * MILLI);
    let refill = numbers.refill.filter(|_| is_bucket).unwrap_or(capacity);
    // Enough that it does not take too long to fill.
    let least = (u128::from(capacity) * u128::from(period)).div_ceil(MAX_FILL.get().into()) as u64;
    Limit {
        algorithm,
        capacity,
        window,
        refill: refill.max(least),
        period,
        max_wait: style.max_wait_ms.map(|millis| millis * MILLI),
        shape: shapes(style),
    }
}

fn shapes(style: &Style) -> bool {
    style.shape && style.algorithm == Algorithm::LeakyBucket && style.max_wait_ms.is_none()
}

pub(crate) fn rule(style: &Style, bands: &[Numbers]) -> String {
    let bands: Vec<_> = bands
        .iter()
        .map(|numbers| {
            let limit = limit(style, numbers);
            let rate = if style.algorithm.is_bucket() {
                let (refill, period) = (limit.refill, limit.period / MILLI);
                format!(", refill: {refill}, period: {period}ms")
            } else {
                String::new()
            };
            let (capacity, window) = (limit.capacity, limit.window / MILLI);
            format!("{{ capacity: {capacity}, window: {window}ms{rate} }}")
        })
        .collect();
    let bands = bands.join(", ");
    let wait = match style.max_wait_ms {
        Some(millis) => format!("on_exceed: wait, max_wait: {millis}ms"),
        None => format!("shape: {}", shapes(style)),
    };
    let algorithm = name_of(style.algorithm);
    global(&format!("algorithm: {algorithm}, {wait}, bands: [{bands}]"))
}

fn units() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..=7_u64,
        2 => 1..=1_000_u64,
        1 => 1..=MAX_UNITS,
        1 => Just(MAX_UNITS),
    ]
}

pub(crate) fn span_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(1),
        3 => 1..=50_u64,
        3 => 1..=100_000_u64,
        1 => 1..=366 * DAY / MILLI,
        1 => Just(366 * DAY / MILLI),
    ]
}

pub(crate) fn numbers() -> impl Strategy<Value = Numbers> {
    (
        units(),
        span_ms(),
        prop::option::of(units()),
        prop::option::of(span_ms()),
    )
        .prop_map(|(capacity, window_ms, refill, period_ms)| Numbers {
            capacity,
            window_ms,
            refill,
            period_ms,
        })
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        4 => (0..=3_u64).prop_map(Cost::Units),
        4 => (0..=1_001_u64).prop_map(Cost::PartOfCapacity),
        4 => (0..=1_u64).prop_map(Cost::Left),
        1 => prop_oneof![Just(u64::MAX), Just(MAX_UNITS + 1)].prop_map(Cost::Units),
    ]
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![
        2 => (0..=3_u64).prop_map(Span::Micros),
        4 => (0..=2_500_u64).prop_map(Span::PartOfWindow),
        2 => (0..=3_u64).prop_map(|windows| Span::PartOfWindow(windows * 1_000)),
        1 => prop_oneof![Just(SECOND), Just(500 * DAY)].prop_map(Span::Micros),
        3 => (-1..=1_i64).prop_map(Span::Retry),
        2 => (-1..=1_i64).prop_map(Span::Reset),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => cost().prop_map(Step::Check),
        10 => span().prop_map(Step::Advance),
        4 => span().prop_map(Step::Back),
        4 => cost().prop_map(Step::Peek),
        2 => Just(Step::Look),
        3 => cost().prop_map(Step::Refund),
        2 => (0..2_usize, numbers()).prop_map(|(band, numbers)| Step::ChangeNumbers(band, numbers)),
        1 => (0..2_usize, span_ms()).prop_map(|(band, window)| Step::ChangeWindow(band, window)),
        1 => (0..5_usize).prop_map(Step::ChangeAlgorithm),
        1 => (prop::option::of(span_ms()), any::<bool>())
            .prop_map(|(wait, shape)| Step::ChangeStyle(wait, shape)),
    ]
}

pub(crate) fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => 0..10 * SECOND,
        3 => 20_000 * DAY..20_001 * DAY,
        1 => Timestamp::MAX.micros() - 400 * DAY..=Timestamp::MAX.micros(),
    ]
}
