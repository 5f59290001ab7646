//! What was used of a counter.

use std::collections::VecDeque;

/// What counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    Bucket,
    FixedWindow(u64),
    SlidingWindow(u64),
    SlidingLog(u64),
    Slots,
}

/// What a client was allowed, as one band sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    /// When it counts at the latest, by progress, and at the earliest, in parts of a microsecond.
    pub(super) turn: u64,
    pub(super) earliest: i128,
    /// What the server's clock showed when it decided.
    pub(super) time: u64,
    pub(super) cost: u64,
    /// The slots that it takes, and until when, by progress.
    pub(super) slots: u64,
    pub(super) held_until: u64,
    pub(super) capacity: u64,
    /// The time that one unit takes to refill, and how many of its fractions make a microsecond.
    pub(super) unit: i128,
    pub(super) parts: i128,
}

/// What was used of a counter.
#[derive(Clone, Debug)]
pub(super) enum Usage {
    Bucket {
        /// When it will be full, in parts of a microsecond.
        full: i128,
    },
    Windows {
        start: u64,
        /// Units, times the width if the window slides.
        previous: i128,
        current: i128,
        width: u64,
        slides: bool,
    },
    Log {
        width: u64,
        admitted: VecDeque<(u64, i128)>,
    },
    Slots {
        held: Vec<(u64, u64)>,
    },
}

impl Usage {
    pub(super) fn new(family: Family) -> Self {
        let windows = |width, slides| Self::Windows {
            start: 0,
            previous: 0,
            current: 0,
            width,
            slides,
        };
        match family {
            Family::Bucket => Self::Bucket { full: 0 },
            Family::FixedWindow(width) => windows(width, false),
            Family::SlidingWindow(width) => windows(width, true),
            Family::SlidingLog(width) => Self::Log {
                width,
                admitted: VecDeque::new(),
            },
            Family::Slots => Self::Slots { held: Vec::new() },
        }
    }

    /// Forgets windows: a clock went back. What then holds depends on requests that were denied,
    /// which the ledger does not know.
    pub(super) fn forget_windows(&mut self) {
        match self {
            Self::Windows {
                start,
                previous,
                current,
                ..
            } => (*start, *previous, *current) = (0, 0, 0),
            Self::Log { admitted, .. } => admitted.clear(),
            Self::Bucket { .. } | Self::Slots { .. } => {}
        }
    }

    /// Adds what a client was allowed. Returns by how much it exceeds the capacity, in the measure
    /// of the family (`Credit`), and leaves that out, except for slots.
    ///
    /// It has to be something that was given back, which can be used once. Let the state of the
    /// server be less than this one by at most the credit that is left. If something is given back,
    /// both grow by at most that. What exceeds the capacity here fits into the server's state, so
    /// it is a part of the difference, and leaving it out makes both less by it. In a log it is the
    /// newest units that are left out: then the same holds of the units since any moment.
    pub(super) fn admit(&mut self, of: &Use) -> i128 {
        let capacity = i128::from(of.capacity);
        match self {
            Self::Bucket { full } => {
                let units = i128::from(of.cost) * of.unit;
                let most = capacity * of.unit;
                let latest = of.parts * i128::from(of.turn);
                let turn = (*full + units - most).max(of.earliest).min(latest);
                *full = turn.max(*full) + units;
                let excess = (*full - turn - most).max(0);
                *full -= excess;
                excess
            }
            Self::Windows {
                start,
                previous,
                current,
                width,
                slides,
            } => {
                let begins = of.time - of.time % *width;
                if begins > *start {
                    let is_next = begins == *start + *width;
                    *previous = if is_next { *current } else { 0 };
                    (*start, *current) = (begins, 0);
                }
                let (width, cost) = (i128::from(*width), i128::from(of.cost));
                let excess = if *slides {
                    *current += cost * width;
                    let left = width - i128::from(of.time - begins);
                    (*previous * left / width + *current - capacity * width).max(0)
                } else {
                    *current += cost;
                    (*current - capacity).max(0)
                };
                *current -= excess;
                excess
            }
            Self::Log { width, admitted } => {
                while admitted
                    .front()
                    .is_some_and(|(at, _)| at + *width <= of.time)
                {
                    admitted.pop_front();
                }
                let before: i128 = admitted.iter().map(|(_, units)| units).sum();
                let units = i128::from(of.cost);
                let excess = (before + units - capacity).max(0);
                admitted.push_back((of.time, units - excess));
                excess
            }
            Self::Slots { held } => {
                held.retain(|(ends, _)| *ends > of.turn);
                held.push((of.held_until, of.slots));
                let sum: i128 = held.iter().map(|(_, slots)| i128::from(*slots)).sum();
                (sum - capacity).max(0)
            }
        }
    }
}
