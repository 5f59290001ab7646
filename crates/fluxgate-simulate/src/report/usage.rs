//! The units that each identity requests in its busiest window.

use std::collections::{HashMap, VecDeque};

use fluxgate_core::key::RuleNumber;
use fluxgate_core::{Algorithm, Band, Limit, RuleVerdict, Timestamp};

/// The most identities that are followed, over all rules.
const MAX_IDENTITIES: usize = 100_000;

/// The busiest windows of identities, by rule and band.
#[derive(Debug, Default)]
pub(super) struct IdentityUsage {
    rules: HashMap<RuleNumber, RuleUsage>,
    identities: usize,
}

#[derive(Debug, Default)]
struct RuleUsage {
    /// By encoded identity, one for each band of the rule.
    identities: HashMap<Box<[u8]>, Box<[BusiestWindow]>>,
    /// Whether some identities came after too many others.
    is_partial: bool,
}

/// The units that the identities of one band request in their busiest windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Percentiles {
    pub(super) identities: u64,
    /// How many of them stay within the capacity as it is.
    pub(super) within: u64,
    /// The units of the identity at the 50th, the 90th and the 99th percentile.
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    /// The units of the identity that requests most.
    pub(super) max: u64,
    /// Whether these are only the identities that came first.
    pub(super) is_partial: bool,
}

impl IdentityUsage {
    /// Counts a request that a rule matched, whether or not it was admitted.
    pub(super) fn record(&mut self, at: Timestamp, verdict: &RuleVerdict<'_>) {
        // An override has other bands. A cost of 0 uses nothing.
        let Some(identity) = verdict.identity else {
            return;
        };
        if verdict.is_overridden || verdict.units == 0 {
            return;
        }
        let bands = verdict.rule.bands();
        // How many slots an identity needs depends on how long it holds them.
        let is_slot = |band: &Band| band.algorithm() == Algorithm::Concurrency;
        if bands.iter().any(is_slot) {
            return;
        }
        let rule = self.rules.entry(verdict.rule.number()).or_default();
        if !rule.identities.contains_key(identity) {
            if self.identities == MAX_IDENTITIES {
                rule.is_partial = true;
                return;
            }
            self.identities += 1;
            let windows = bands.iter().map(|band| BusiestWindow::new(band.limit()));
            rule.identities.insert(identity.into(), windows.collect());
        }
        let windows = rule.identities.get_mut(identity).into_iter().flatten();
        for (window, band) in windows.zip(bands) {
            window.record(band.limit(), at, verdict.units);
        }
    }

    /// Returns the percentiles of a band, by its index; `None` if no identity used it.
    pub(super) fn percentiles(
        &self,
        rule: RuleNumber,
        band: usize,
        limit: &Limit,
    ) -> Option<Percentiles> {
        let rule = self.rules.get(&rule)?;
        let windows = rule.identities.values().filter_map(|bands| bands.get(band));
        let mut units: Vec<_> = windows.map(|window| window.most).collect();
        units.sort_unstable();
        Percentiles::of(&units, limit.capacity(), rule.is_partial)
    }
}

impl Percentiles {
    /// Returns the percentiles of units in ascending order.
    fn of(units: &[u64], capacity: u64, is_partial: bool) -> Option<Self> {
        let percentile = |percent: usize| {
            let rank = (units.len() * percent).div_ceil(100);
            units.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Some(Self {
            identities: units.len() as u64,
            within: units.partition_point(|units| *units <= capacity) as u64,
            p50: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
            max: *units.last()?,
            is_partial,
        })
    }
}

/// A sliding window is as long as this many steps, so at most one more is partly in it.
const STEPS: u64 = 16;

/// The most units that one identity requests in a window of a band: the least capacity
/// with which the band refuses nothing, or, for buckets and logs, a little more.
///
/// Its size does not grow with the number of requests.
#[derive(Debug)]
struct BusiestWindow {
    most: u64,
    /// The time of the latest request. As in the limiter, an earlier time counts as this one.
    latest: Timestamp,
    count: WindowCount,
}

#[derive(Debug)]
enum WindowCount {
    /// The units in the aligned or calendar window that starts at `start`.
    Aligned { start: u64, units: u64 },
    /// The units in the current and the previous aligned window. The previous one is weighted
    /// by the part of it that the sliding window still covers.
    Weighted {
        number: u64,
        previous: u64,
        current: u64,
    },
    /// The units in any span of the window's length.
    Sliding {
        steps: VecDeque<WindowStep>,
        units: u64,
    },
}

/// The units in a part of a sliding window.
#[derive(Clone, Copy, Debug)]
struct WindowStep {
    number: u64,
    units: u64,
    /// The time of the last of them. They leave the window together with it.
    last: u64,
}

impl BusiestWindow {
    fn new(limit: &Limit) -> Self {
        let count = match limit.algorithm() {
            Algorithm::FixedWindow => WindowCount::Aligned { start: 0, units: 0 },
            Algorithm::SlidingWindow => WindowCount::Weighted {
                number: 0,
                previous: 0,
                current: 0,
            },
            Algorithm::TokenBucket
            | Algorithm::LeakyBucket
            | Algorithm::SlidingLog
            | Algorithm::Concurrency => WindowCount::Sliding {
                steps: VecDeque::new(),
                units: 0,
            },
        };
        Self {
            most: 0,
            latest: Timestamp::default(),
            count,
        }
    }

    fn record(&mut self, limit: &Limit, at: Timestamp, units: u64) {
        self.latest = self.latest.max(at);
        let now = match &mut self.count {
            WindowCount::Aligned {
                start,
                units: counted,
            } => {
                let window = limit.window_at(self.latest).start;
                if *start != window {
                    (*start, *counted) = (window, 0);
                }
                *counted = counted.saturating_add(units);
                *counted
            }
            WindowCount::Weighted {
                number,
                previous,
                current,
            } => {
                let (window, at) = (limit.window().get(), self.latest.micros());
                let (this, elapsed) = (at / window, at % window);
                if this != *number {
                    *previous = if this == *number + 1 { *current } else { 0 };
                    (*number, *current) = (this, 0);
                }
                *current = current.saturating_add(units);
                let covered = u128::from(*previous) * u128::from(window - elapsed);
                let weighted = covered.div_ceil(u128::from(window));
                current.saturating_add(u64::try_from(weighted).unwrap_or(u64::MAX))
            }
            WindowCount::Sliding {
                steps,
                units: counted,
            } => {
                let (window, at) = (span(limit), self.latest.micros());
                let number = at / window.div_ceil(STEPS);
                match steps.back_mut() {
                    Some(step) if step.number == number => {
                        step.units = step.units.saturating_add(units);
                        step.last = at;
                    }
                    _ => steps.push_back(WindowStep {
                        number,
                        units,
                        last: at,
                    }),
                }
                while let Some(step) = steps.pop_front_if(|step| step.last + window <= at) {
                    *counted = counted.saturating_sub(step.units);
                }
                *counted = counted.saturating_add(units);
                *counted
            }
        };
        self.most = self.most.max(now);
    }
}

/// Returns the length of a sliding window. For a bucket, this is the time in which it fills.
fn span(limit: &Limit) -> u64 {
    if limit.algorithm().is_bucket() {
        limit.rate().fill().ceil().max(1)
    } else {
        limit.window().get()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fluxgate_core::memory::Retention;
    use fluxgate_core::{
        Band, Calendar, CalendarUnit, Limiter, ManualClock, MemoryStore, Quota, RequestContext,
        Rule, RuleSet, RuleSets,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::report::comparison::with_capacity;

    #[test]
    fn a_percentile_is_the_identity_of_that_rank() {
        let of = |units: &[u64]| Percentiles::of(units, 3, false);
        assert_eq!(of(&[]), None);
        let one = of(&[7]).unwrap();
        assert_eq!((one.p50, one.p99, one.max, one.within), (7, 7, 7, 0));
        let hundred: Vec<_> = (1..=100).collect();
        let hundred = of(&hundred).unwrap();
        assert_eq!((hundred.p50, hundred.p90, hundred.p99), (50, 90, 99));
        assert_eq!((hundred.max, hundred.within), (100, 3));
        let two = of(&[1, 9]).unwrap();
        assert_eq!((two.p50, two.p90, two.within), (1, 9, 1));
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn plain(algorithm: Algorithm) -> Limit {
        Limit::builder(algorithm, 5, SECOND).build().unwrap()
    }

    fn most(limit: &Limit, requests: &[(u64, u64)]) -> u64 {
        let mut window = BusiestWindow::new(limit);
        for (millis, units) in requests {
            let at = Timestamp::from_micros(millis * 1_000).unwrap();
            window.record(limit, at, *units);
            if let WindowCount::Sliding { steps, units } = &window.count {
                assert!(steps.len() <= STEPS as usize + 1);
                assert_eq!(*units, steps.iter().map(|step| step.units).sum::<u64>());
            }
        }
        window.most
    }

    #[test]
    fn each_algorithm_has_its_own_windows() {
        let requests = [(500, 3), (1_000, 1), (1_499, 2), (1_500, 3), (9_000, 1)];
        assert_eq!(most(&plain(Algorithm::FixedWindow), &requests), 6);
        // The three at 500 ms have left at 1,500 ms.
        for algorithm in [Algorithm::SlidingLog, Algorithm::TokenBucket] {
            assert_eq!(most(&plain(algorithm), &requests), 6);
        }
        // 3 · 0.5 + 6, rounded up.
        assert_eq!(most(&plain(Algorithm::SlidingWindow), &requests), 8);
    }

    #[test]
    fn time_that_goes_back_stands_still() {
        for (_, algorithm) in Algorithm::NAMES {
            let limit = plain(algorithm);
            assert_eq!(most(&limit, &[(7_000, 2), (1_000, 3)]), 5);
        }
    }

    #[test]
    fn a_bucket_with_a_refill_of_its_own_has_the_time_in_which_it_fills() {
        let limit = Limit::builder(Algorithm::TokenBucket, 10, SECOND);
        let limit = limit.refill(1).period(SECOND).build().unwrap();
        assert_eq!(most(&limit, &[(0, 4), (5_000, 4), (9_900, 4)]), 12);
        assert_eq!(most(&limit, &[(0, 4), (5_000, 4), (10_000, 4)]), 8);
        let larger = with_capacity(&limit, 25).unwrap();
        assert_eq!((larger.capacity(), larger.rate().refill()), (25, 3));
    }

    #[test]
    fn a_calendar_window_is_as_long_as_its_month() {
        let month = Calendar::new(CalendarUnit::Month);
        let limit = Limit::calendar(5, month).build().unwrap();
        let day = 86_400_000;
        // January has 31 days, February 28.
        assert_eq!(most(&limit, &[(0, 2), (30 * day, 2), (31 * day, 1)]), 4);
        assert_eq!(
            most(&limit, &[(31 * day, 2), (58 * day, 2), (59 * day, 1)]),
            4
        );
        let larger = with_capacity(&limit, 9).unwrap();
        assert_eq!((larger.capacity(), larger.windows()), (9, Some(&month)));
    }

    fn limits() -> impl Strategy<Value = Limit> {
        let algorithms = Algorithm::NAMES.map(|(_, algorithm)| algorithm).to_vec();
        let algorithms = proptest::sample::select(algorithms);
        let refill = proptest::option::of((1..20_u64, 1..3_000_u64));
        (algorithms, 1..20_u64, 1..3_000_u64, refill).prop_map(
            |(algorithm, capacity, millis, refill)| {
                // Slots are held for a second or more.
                let shortest = match algorithm {
                    Algorithm::Concurrency => 1_000,
                    _ => 0,
                };
                let window = Duration::from_millis(shortest + millis);
                let mut limit = Limit::builder(algorithm, capacity, window);
                if let Some((refill, millis)) = refill.filter(|_| algorithm.is_bucket()) {
                    limit = limit.refill(refill).period(Duration::from_millis(millis));
                }
                limit.build().unwrap()
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// What the report promises of a suggested capacity.
        #[test]
        fn with_this_capacity_the_band_refuses_nothing(
            limit in limits(),
            requests in prop::collection::vec((0..2_000_u64, 1..9_u64), 1..60),
        ) {
            let mut at = 0;
            let requests: Vec<_> = requests.into_iter().map(|(step, units)| {
                // Many requests come at the same time or soon after.
                at += if step < 1_200 { step / 40 } else { step };
                (at, units)
            }).collect();
            let suggested = with_capacity(&limit, most(&limit, &requests)).unwrap();
            let rule = Rule::new("r").global().band(Band::new("b", Quota::from(suggested)));
            let rules: RuleSets = RuleSet::builder("s").rule(rule).build().unwrap().into();
            let store = MemoryStore::new(ManualClock::default(), usize::MAX, Retention::Forever);
            let limiter = Limiter::new(rules, store);
            for (millis, units) in requests {
                let at = Timestamp::from_micros(millis * 1_000).unwrap();
                let context = RequestContext::builder().cost(units).build();
                let decision = limiter.check_at("s", &context, at);
                prop_assert!(decision.allowed(), "{suggested:?} at {millis}");
            }
        }
    }
}
