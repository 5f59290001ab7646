//! Checks that a fleet never exceeds a limit, and knows what it could have admitted.
//!
//! It knows nothing of leases and shares no arithmetic with the code that it checks. A
//! bucket admits at most C + R·t/P in every interval of length t if and only if one bucket
//! of capacity C, from which each admitted unit is taken when it is admitted, never goes
//! below empty. It counts in units times P, so a microsecond refills exactly R.

use fluxgate_core::Limit;

/// The numbers of a limit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Figures {
    /// C·P, R and P.
    Bucket {
        most: i128,
        refill: i128,
        period: i128,
    },
    /// C, and the width of a window.
    Window { most: i128, width: u64 },
}

impl Figures {
    pub(super) fn of(limit: &Limit) -> Self {
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

    /// Returns what one unit takes.
    fn unit(&self) -> i128 {
        match self {
            Self::Bucket { period, .. } => *period,
            Self::Window { .. } => 1,
        }
    }
}

/// What has been admitted of one limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    /// What is missing until a bucket is full, or what a window has admitted.
    used: i128,
    /// When that was so, or when the window began.
    at: u64,
}

impl Meter {
    /// Admits units at a time of the server's clock. Returns by how many units, rounded up,
    /// the limit is exceeded.
    pub(super) fn admit(&mut self, figures: &Figures, at: u64, cost: u64) -> u64 {
        self.settle(figures, at);
        self.used += i128::from(cost) * figures.unit();
        let over = (self.used - figures.most()).max(0);
        let units = (over + figures.unit() - 1) / figures.unit();
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// Returns whether the limit has so many units left.
    pub(super) fn has(&mut self, figures: &Figures, at: u64, cost: u64) -> bool {
        self.settle(figures, at);
        self.used + i128::from(cost) * figures.unit() <= figures.most()
    }

    fn settle(&mut self, figures: &Figures, at: u64) {
        match figures {
            Figures::Bucket { refill, .. } => {
                let refilled = refill * i128::from(at - self.at);
                self.used = (self.used - refilled).max(0);
                self.at = at;
            }
            Figures::Window { width, .. } => {
                let start = at - at % width;
                if start != self.at {
                    *self = Self { used: 0, at: start };
                }
            }
        }
    }
}

/// One limit that a request counts against: its place among all counters, and its band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Counter {
    pub(super) index: usize,
    pub(super) band: usize,
}

/// All counters of a fleet.
#[derive(Debug)]
pub(super) struct Oracle {
    /// By band.
    figures: Vec<Figures>,
    /// What the fleet has admitted, by counter.
    admitted: Vec<Meter>,
    /// What one limiter that sees all requests at once admits.
    ideal: Vec<Meter>,
    /// The most units by which a limit was exceeded.
    pub(super) overshoot: u64,
}

impl Oracle {
    pub(super) fn new<'l>(limits: impl Iterator<Item = &'l Limit>, counters: usize) -> Self {
        Self {
            figures: limits.map(Figures::of).collect(),
            admitted: vec![Meter::default(); counters],
            ideal: vec![Meter::default(); counters],
            overshoot: 0,
        }
    }

    /// Notes that the fleet admits a request, at a time of the server's clock.
    pub(super) fn admit(&mut self, counters: &[Counter], at: u64, cost: u64) {
        for counter in counters {
            let meter = &mut self.admitted[counter.index];
            let over = meter.admit(&self.figures[counter.band], at, cost);
            self.overshoot = self.overshoot.max(over);
        }
    }

    /// Returns whether one limiter that sees all requests at once admits this one.
    pub(super) fn is_possible(&mut self, counters: &[Counter], at: u64, cost: u64) -> bool {
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
