//! Checks that a fleet never exceeds a limit, and computes what it could have admitted.
//!
//! It does not model leases, and shares no arithmetic with the code that it checks. A bucket
//! admits at most C + R·t/P in every interval of length t if and only if one bucket
//! of capacity C, from which each admitted unit is taken when it is admitted, never goes
//! below empty. It counts in units times P, so a microsecond refills exactly R.

use fluxgate_core::Limit;

/// The numbers of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LimitFigures {
    /// C·P, R and P.
    Bucket {
        most: i128,
        refill: i128,
        period: i128,
    },
    /// C, and the width of a window.
    Window { most: i128, width: u64 },
}

impl LimitFigures {
    pub(crate) fn of(limit: &Limit) -> Self {
        let capacity = i128::from(limit.capacity());
        if limit.algorithm().is_bucket() {
            let period = i128::from(limit.rate().period().get());
            Self::Bucket {
                most: capacity * period,
                refill: limit.rate().refill().into(),
                period,
            }
        } else {
            Self::Window {
                most: capacity,
                width: limit.window().get(),
            }
        }
    }

    fn most(&self) -> i128 {
        match self {
            Self::Bucket { most, .. } | Self::Window { most, .. } => *most,
        }
    }

    /// Returns how much one unit counts.
    fn unit(&self) -> i128 {
        match self {
            Self::Bucket { period, .. } => *period,
            Self::Window { .. } => 1,
        }
    }
}

/// The units of one limit that were admitted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    /// How far a bucket is from full, or what a window has admitted.
    used: i128,
    /// The time of `used`, or the start of the window.
    at: u64,
}

impl Meter {
    /// Admits units at a time of the server's clock. Returns by how many units, rounded up,
    /// the limit is exceeded.
    pub(crate) fn admit(&mut self, figures: &LimitFigures, at: u64, cost: u64) -> u64 {
        self.settle(figures, at);
        self.used += i128::from(cost) * figures.unit();
        let over = (self.used - figures.most()).max(0);
        let units = (over + figures.unit() - 1) / figures.unit();
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// Returns whether the limit has `cost` units left.
    pub(crate) fn has(&mut self, figures: &LimitFigures, at: u64, cost: u64) -> bool {
        self.settle(figures, at);
        self.used + i128::from(cost) * figures.unit() <= figures.most()
    }

    fn settle(&mut self, figures: &LimitFigures, at: u64) {
        match figures {
            LimitFigures::Bucket { refill, .. } => {
                let refilled = refill * i128::from(at - self.at);
                self.used = (self.used - refilled).max(0);
                self.at = at;
            }
            LimitFigures::Window { width, .. } => {
                let start = at - at % width;
                if start != self.at {
                    *self = Self { used: 0, at: start };
                }
            }
        }
    }
}

/// One limit that a request counts against: its index among all counters, and its band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Counter {
    pub(crate) index: usize,
    pub(crate) band: usize,
}

/// All counters of a fleet.
#[derive(Debug)]
pub(crate) struct Oracle {
    /// By band.
    figures: Vec<LimitFigures>,
    /// What the fleet has admitted, by counter.
    admitted: Vec<Meter>,
    /// What one limiter that sees all requests at once admits.
    ideal: Vec<Meter>,
    /// The most units by which a limit was exceeded.
    pub(crate) overshoot: u64,
}

impl Oracle {
    pub(crate) fn new<'l>(limits: impl Iterator<Item = &'l Limit>, counters: usize) -> Self {
        Self {
            figures: limits.map(LimitFigures::of).collect(),
            admitted: vec![Meter::default(); counters],
            ideal: vec![Meter::default(); counters],
            overshoot: 0,
        }
    }

    /// Records that the fleet admits a request, at a time of the server's clock.
    pub(crate) fn admit(&mut self, counters: &[Counter], at: u64, cost: u64) {
        for counter in counters {
            let meter = &mut self.admitted[counter.index];
            let over = meter.admit(&self.figures[counter.band], at, cost);
            self.overshoot = self.overshoot.max(over);
        }
    }

    /// Returns whether one limiter that sees all requests at once admits this one.
    pub(crate) fn is_possible(&mut self, counters: &[Counter], at: u64, cost: u64) -> bool {
        let is_possible = counters.iter().all(|counter| {
            let meter = &mut self.ideal[counter.index];
            meter.has(&self.figures[counter.band], at, cost)
        });
        if is_possible {
            for counter in counters {
                self.ideal[counter.index].admit(&self.figures[counter.band], at, cost);
            }
        }
        is_possible
    }
}
