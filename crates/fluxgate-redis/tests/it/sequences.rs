//! Random limits, and random sequences of operations on them.

use std::time::Duration;

use fluxgate_core::limit::{MAX_FILL, MAX_LOG_UNITS, MAX_UNITS};
use fluxgate_core::store::Mode;
use fluxgate_core::{Algorithm, Calendar, CalendarUnit, Limit};
use proptest::prelude::*;

pub(crate) const MILLI: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000 * MILLI;
pub(crate) const DAY: u64 = 86_400 * SECOND;
/// The first instant of the year 2100.
pub(crate) const LATEST: u64 = 47_482 * DAY;

/// The number of subjects, and of bands of each.
pub(crate) const SUBJECTS: usize = 3;
pub(crate) const BANDS: usize = 2;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Forward(Span),
    Back(Span),
    /// Requests that share a call; the rules may change between them, as they do
    /// when processes learn of a change one by one.
    Decide(Vec<(Option<Change>, Request)>),
    Refund(usize, Cost),
    /// One of the last charges of the first subject.
    Cancel(usize),
    Reset(usize),
    Change(Change),
}

/// Other numbers for a band of a subject.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) subject: usize,
    pub(crate) band: usize,
    pub(crate) numbers: Numbers,
    /// Whether algorithm and window stay.
    pub(crate) adjusts: bool,
}

/// Some subjects, each with a cost; the first ones are enforced, the others
/// shadow rules.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) mode: Mode,
    pub(crate) enforced: Vec<(usize, Cost)>,
    pub(crate) shadow: Vec<(usize, Cost)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Span {
    Micros(u64),
    /// Thousandths of the window of the first band of the first subject.
    PartOfWindow(u64),
    /// The last reported wait, plus or minus some.
    Retry(i64),
    Reset(i64),
}

#[derive(Clone, Debug)]
pub(crate) enum Cost {
    Units(u64),
    /// Thousandths.
    PartOfCapacity(u64),
    /// What was last reported as remaining, plus some.
    Left(u64),
}

/// The numbers of a limit, before they are clamped to the domain.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    pub(crate) algorithm: Algorithm,
    pub(crate) capacity: u64,
    pub(crate) window_ms: u64,
    pub(crate) refill: Option<u64>,
    pub(crate) period_ms: Option<u64>,
    pub(crate) max_wait_ms: Option<u64>,
    pub(crate) shape: bool,
    /// Replaces the window of a fixed window.
    pub(crate) calendar: Option<Calendar>,
}

impl Numbers {
    pub(crate) fn limit(&self) -> Limit {
        let is_bucket = self.algorithm.is_bucket();
        let is_log = self.algorithm == Algorithm::SlidingLog;
        let most = if is_log { MAX_LOG_UNITS } else { MAX_UNITS };
        let capacity = self.capacity.min(most);
        if self.algorithm == Algorithm::Concurrency {
            let hold = self.window_ms.clamp(1_000, 86_400_000);
            let limit = Limit::concurrency(capacity).hold(Duration::from_millis(hold));
            return limit.build().unwrap();
        }
        let window = Duration::from_millis(self.window_ms);
        let mut limit = Limit::builder(self.algorithm, capacity, window);
        if let (Some(calendar), Algorithm::FixedWindow) = (self.calendar, self.algorithm) {
            return Limit::calendar(capacity, calendar).build().unwrap();
        }
        if is_bucket {
            let period_ms = self.period_ms.unwrap_or(self.window_ms);
            // As many as keep the time to fill within bounds.
            let product = u128::from(capacity) * u128::from(period_ms * MILLI);
            let least = product.div_ceil(MAX_FILL.get().into()) as u64;
            limit = limit.refill(self.refill.unwrap_or(capacity).max(least));
            limit = limit.period(Duration::from_millis(period_ms));
        }
        match self.max_wait_ms {
            Some(millis) => limit = limit.max_wait(Duration::from_millis(millis)),
            None => {
                let shapes = self.shape && self.algorithm == Algorithm::LeakyBucket;
                limit = limit.shape(shapes);
            }
        }
        limit.build().unwrap()
    }
}

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
];

/// Numbers of the whole domain.
pub(crate) fn all_numbers() -> BoxedStrategy<Numbers> {
    let algorithms = prop::sample::select(&ALGORITHMS[..]);
    numbers(algorithms.boxed(), units().boxed(), span_ms().boxed())
}

/// As many slots as rates, of the whole domain or with few numbers, and calendars.
pub(crate) fn numbers_with_slots() -> BoxedStrategy<Numbers> {
    let numbers = prop_oneof![
        all_numbers(),
        few_numbers(),
        wide_numbers(),
        calendar_numbers()
    ];
    let numbers = (numbers, prop::bool::weighted(0.4)).prop_map(|(mut numbers, is_slots)| {
        if is_slots {
            numbers.algorithm = Algorithm::Concurrency;
        }
        numbers
    });
    numbers.boxed()
}

/// A few small ones, so that a change often comes back to what was before.
pub(crate) fn few_numbers() -> BoxedStrategy<Numbers> {
    let algorithms = prop::sample::select(&ALGORITHMS[..]);
    let units = prop::sample::select(&[2, 3, 4, 6, 12][..]);
    let spans = prop::sample::select(&[1, 10, 1_000, 1_001][..]);
    numbers(algorithms.boxed(), units.boxed(), spans.boxed())
}

/// The largest ones, for which no product fits into a double.
pub(crate) fn wide_numbers() -> BoxedStrategy<Numbers> {
    let algorithms = [Algorithm::SlidingWindow, Algorithm::TokenBucket];
    let algorithms = prop::sample::select(algorithms.to_vec());
    let units = MAX_UNITS - 1_000..=MAX_UNITS;
    let spans = 360 * DAY / MILLI..=366 * DAY / MILLI;
    numbers(algorithms.boxed(), units.boxed(), spans.boxed())
}

/// Windows of calendars, in zones where clocks change, next to others.
pub(crate) fn calendar_numbers() -> BoxedStrategy<Numbers> {
    let zones = [
        "UTC",
        "Asia/Seoul",
        "America/New_York",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "Pacific/Apia",
    ];
    let zones = zones.map(|name| name.parse().unwrap());
    let units = CalendarUnit::NAMES.map(|(_, unit)| unit);
    let calendar = (
        prop::sample::select(units.to_vec()),
        prop::sample::select(zones.to_vec()),
    );
    let calendar = calendar.prop_map(|(unit, zone)| Calendar::new(unit).in_time_zone(zone));
    let numbers = (few_numbers(), calendar, prop::bool::weighted(0.8));
    let numbers = numbers.prop_map(|(mut numbers, calendar, is_fixed)| {
        if is_fixed {
            numbers.algorithm = Algorithm::FixedWindow;
        }
        numbers.calendar = Some(calendar);
        numbers
    });
    numbers.boxed()
}

fn numbers(
    algorithms: BoxedStrategy<Algorithm>,
    units: BoxedStrategy<u64>,
    spans: BoxedStrategy<u64>,
) -> BoxedStrategy<Numbers> {
    let numbers = (
        algorithms,
        units.clone(),
        spans.clone(),
        prop::option::of(units),
        prop::option::of(spans.clone()),
        prop::option::weighted(0.3, spans),
        any::<bool>(),
    );
    let numbers = numbers.prop_map(
        |(algorithm, capacity, window_ms, refill, period_ms, max_wait_ms, shape)| Numbers {
            algorithm,
            capacity,
            window_ms,
            refill,
            period_ms,
            max_wait_ms,
            shape,
            calendar: None,
        },
    );
    numbers.boxed()
}

fn units() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..=7_u64,
        2 => 1..=1_000_u64,
        1 => 1..=MAX_UNITS,
        1 => Just(MAX_UNITS),
    ]
}

fn span_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(1),
        3 => 1..=50_u64,
        3 => 1..=100_000_u64,
        // Those with a code.
        2 => prop::sample::select(&[1_000, 60_000, 3_600_000, 86_400_000][..]),
        1 => 1..=366 * DAY / MILLI,
        1 => Just(366 * DAY / MILLI),
    ]
}

pub(crate) fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        4 => (0..=3_u64).prop_map(Cost::Units),
        4 => (0..=1_001_u64).prop_map(Cost::PartOfCapacity),
        4 => (0..=1_u64).prop_map(Cost::Left),
        1 => prop_oneof![Just(u64::MAX), Just(MAX_UNITS + 1)].prop_map(Cost::Units),
    ]
}

pub(crate) fn span() -> impl Strategy<Value = Span> {
    prop_oneof![
        2 => (0..=3_u64).prop_map(Span::Micros),
        4 => (0..=2_500_u64).prop_map(Span::PartOfWindow),
        2 => (0..=3_u64).prop_map(|windows| Span::PartOfWindow(windows * 1_000)),
        1 => prop_oneof![Just(SECOND), Just(500 * DAY)].prop_map(Span::Micros),
        3 => (-1..=1_i64).prop_map(Span::Retry),
        2 => (-1..=1_i64).prop_map(Span::Reset),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let asked = |most| prop::collection::vec((0..SUBJECTS, cost()), 0..=most);
    (mode(), asked(2), asked(2)).prop_map(|(mode, mut enforced, shadow)| {
        if enforced.is_empty() && shadow.is_empty() {
            enforced.push((0, Cost::Units(1)));
        }
        Request {
            mode,
            enforced,
            shadow,
        }
    })
}

pub(crate) fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        7 => Just(Mode::Take),
        1 => Just(Mode::TakeNow),
        2 => Just(Mode::Peek),
    ]
}

/// A request of one subject, where a sequence goes deepest.
fn simple() -> impl Strategy<Value = Request> {
    (mode(), cost()).prop_map(|(mode, cost)| Request {
        mode,
        enforced: vec![(0, cost)],
        shadow: Vec::new(),
    })
}

fn change(numbers: BoxedStrategy<Numbers>) -> impl Strategy<Value = Change> {
    let change = (0..SUBJECTS, 0..BANDS, numbers, prop::bool::weighted(0.6));
    change.prop_map(|(subject, band, numbers, adjusts)| Change {
        subject,
        band,
        numbers,
        adjusts,
    })
}

pub(crate) fn step(numbers: &BoxedStrategy<Numbers>) -> impl Strategy<Value = Step> + use<> {
    let change = || change(numbers.clone());
    let changing = prop::option::weighted(0.1, change());
    let several = (changing, prop_oneof![simple(), request()]);
    prop_oneof![
        14 => simple().prop_map(|request| Step::Decide(vec![(None, request)])),
        6 => request().prop_map(|request| Step::Decide(vec![(None, request)])),
        5 => prop::collection::vec(several, 2..8).prop_map(Step::Decide),
        10 => span().prop_map(Step::Forward),
        4 => span().prop_map(Step::Back),
        3 => (0..SUBJECTS, cost()).prop_map(|(subject, cost)| Step::Refund(subject, cost)),
        4 => (0..4_usize).prop_map(Step::Cancel),
        1 => (0..SUBJECTS).prop_map(Step::Reset),
        3 => change().prop_map(Step::Change),
    ]
}

pub(crate) fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => 0..10 * SECOND,
        3 => 20_000 * DAY..20_001 * DAY,
        1 => LATEST - 400 * DAY..=LATEST,
    ]
}
