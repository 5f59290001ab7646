//! What clients were allowed, and whether it was too much.
//!
//! The ledger knows the rules and what clients saw, and nothing of how the store counts. It
//! counts only what a client knows it was allowed, so what a server charged for a lost reply is
//! no mistake. For buckets it keeps when each will be full, as an exact fraction of time; a unit
//! that one version of a rule admits counts for the others as the same share of their quota.
//!
//! A band counts a request when it is decided; a band that makes it wait counts it when its turn
//! comes. Delays are rounded up to whole microseconds, so the turn is less than one microsecond before
//! the end of the delay. If several bands can make requests wait, the turn is between the decision and
//! that end. The ledger takes the earliest moment at which the request fits, as the store does.
//!
//! Its time is the progress of the server's clock, which never goes back. If the clock jumps ahead, the
//! time that it skips has passed for the server, so the turns in that time have come, in their order,
//! before all that it decides later. For the virtual time, they would come later and at one moment.
//!
//! What a fault or an operator gives back may be used once (`credit.rs`).

mod credit;
mod figures;
mod instant;
mod queue;
mod usage;

use std::collections::BTreeMap;

use fluxgate_core::RuleSets;

pub(crate) use credit::Return;
use credit::{Credit, EVERYONE};
use figures::{BandFigures, CounterInfo};
pub(crate) use instant::Instant;
use queue::Queue;
use usage::{Family, Usage, Use};

/// Something that a client was allowed.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    pub(crate) decided: Instant,
    /// How long after that it may be used.
    pub(crate) delay: u64,
    pub(crate) user: u8,
    /// What was charged, and what it came to when it was settled, if that is less.
    pub(crate) charged: u64,
    pub(crate) cost: u64,
    /// The version of the rules that decided.
    pub(crate) version: usize,
    /// The slots it takes, if there are any, and how long they are held, by progress.
    pub(crate) slots: u64,
    pub(crate) held: u64,
}

/// The ledger of a run.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// By version.
    bands: Vec<Vec<BandFigures>>,
    counters: Vec<CounterInfo>,
    admissions: Vec<Admission>,
    /// By progress, as `steps_back`.
    returns: Vec<(u64, Return)>,
    /// When a server's clock went back.
    steps_back: Vec<u64>,
    queue: Queue,
}

impl Ledger {
    /// Creates a ledger for these versions of the rules. All rules of a version apply to each request.
    pub(crate) fn new(versions: &[RuleSets], max_waits: u32) -> Self {
        let (bands, counters) = figures::read(versions);
        Self {
            bands,
            counters,
            admissions: Vec::new(),
            returns: Vec::new(),
            steps_back: Vec::new(),
            queue: Queue::new(max_waits),
        }
    }

    pub(crate) fn admit(&mut self, admission: Admission) {
        self.admissions.push(admission);
    }

    /// Returns the number of the last admission.
    pub(crate) fn last(&self) -> usize {
        self.admissions.len() - 1
    }

    /// Settles an admission with a cost; its slots are free. The units that it did not use return: in
    /// a window they count no more; a bucket gets them back even if it has refilled since.
    pub(crate) fn settle(&mut self, number: usize, cost: u64, progress: u64) {
        let admission = &mut self.admissions[number];
        // A higher cost is used already, and admits nothing.
        admission.cost = admission.cost.min(cost);
        let held = progress.saturating_sub(admission.decided.progress);
        admission.held = admission.held.min(held);
        let back = Return::Settled(admission.user, admission.charged - admission.cost);
        self.give_back(progress, back);
    }

    /// Extends the slots of an admission to a span from `progress`, or as long as their rule
    /// allows.
    pub(crate) fn extend(&mut self, number: usize, progress: u64, span: u64) {
        let admission = &mut self.admissions[number];
        let decided = admission.decided.progress;
        let has_ended = decided + admission.held <= progress;
        if has_ended && self.steps_back.iter().any(|step| *step >= decided) {
            // They have ended, and other requests may have them. The clock went back, so the hold
            // has a time left again, and is renewed without them.
            return;
        }
        let bands = self.bands[admission.version].iter();
        let longest = bands.filter_map(|band| band.longest_hold).min();
        let until = progress + longest.map_or(span, |longest| span.min(longest));
        admission.held = until.saturating_sub(decided);
    }

    pub(crate) fn give_back(&mut self, progress: u64, what: Return) {
        self.returns.push((progress, what));
    }

    pub(crate) fn step_back(&mut self, progress: u64) {
        self.steps_back.push(progress);
    }

    /// Adds a request that waits for a time. Returns its number.
    pub(crate) fn begin_wait(&mut self, decided: Instant, delay: u64) -> usize {
        self.queue.begin(decided, delay)
    }

    /// A request waits no more.
    pub(crate) fn end_wait(&mut self, number: usize, progress: u64) {
        self.queue.end(number, progress);
    }

    /// A server loses what it has written since a virtual time, and another one, or itself, goes on
    /// with the rest.
    pub(crate) fn lose(&mut self, at: Instant, since: u64, heir: usize, what: Return) {
        self.queue.lose(at, since, heir);
        self.give_back(at.progress, what);
    }

    /// Returns the first violation, if there is one.
    pub(crate) fn violation(&self) -> Option<Violation> {
        if let Some((at, message)) = self.queue.violation() {
            return Some(Violation { at, message });
        }
        let violations = (0..self.counters.len()).filter_map(|counter| self.violation_of(counter));
        let violations = violations.chain(self.admissions.iter().filter_map(|it| self.late(it)));
        violations.min_by_key(|violation| violation.at)
    }

    /// Returns whether a request has to wait for longer than its rules let it.
    fn late(&self, admission: &Admission) -> Option<Violation> {
        let bands = self.bands[admission.version].iter();
        let longest = bands.map(|band| band.max_wait).max().unwrap_or(0);
        (admission.delay > longest).then(|| Violation {
            at: admission.decided.at,
            message: format!(
                "a request waits for {} µs, and at most {longest}",
                admission.delay
            ),
        })
    }

    /// Returns when a request counts for a band, by progress, and when it may count at the earliest,
    /// in parts of a microsecond.
    fn turn_of(&self, admission: &Admission, band: &BandFigures, parts: i128) -> (u64, i128) {
        let decided = admission.decided.progress;
        if band.max_wait == 0 || admission.delay == 0 {
            return (decided, parts * i128::from(decided));
        }
        let turn = decided + admission.delay;
        let bands = self.bands[admission.version].iter();
        let earliest = match bands.filter(|it| it.max_wait > 0).count() {
            1 => parts * i128::from(turn) - (parts - 1),
            _ => parts * i128::from(decided),
        };
        (turn, earliest)
    }

    /// Returns the first violation of a counter, if there is one.
    fn violation_of(&self, counter: usize) -> Option<Violation> {
        let info = &self.counters[counter];
        let mut used = Vec::new();
        for admission in &self.admissions {
            let bands = self.bands[admission.version].iter();
            for band in bands.filter(|band| band.counter == counter) {
                used.push((self.turn_of(admission, band, info.parts), admission, band));
            }
        }
        used.sort_by_key(|((turn, _), admission, _)| (*turn, admission.decided.number));
        let mut users = BTreeMap::<u8, Usage>::new();
        let mut given = self.returns.iter().peekable();
        let mut steps = self.steps_back.iter().peekable();
        let mut credit = Credit::default();
        for ((turn, earliest), admission, band) in used {
            while let Some((_, what)) = given.next_if(|(given, _)| *given <= turn) {
                credit.add(*what);
            }
            while steps.next_if(|step| **step <= turn).is_some() {
                users.values_mut().for_each(Usage::forget_windows);
            }
            let user = if band.is_global {
                EVERYONE
            } else {
                admission.user
            };
            let usage = users.entry(user).or_insert_with(|| Usage::new(info.family));
            let decided = admission.decided;
            let excess = usage.admit(&Use {
                turn,
                earliest,
                time: decided.time,
                cost: match info.family {
                    Family::Bucket => admission.charged,
                    _ => admission.cost,
                },
                slots: admission.slots,
                held_until: decided.progress + admission.held,
                capacity: band.capacity,
                unit: band.unit,
                parts: info.parts,
            });
            let over = credit.use_up(user, excess, info);
            if over > 0 {
                let scale = info.scale(band);
                let units = (over + scale - 1) / scale;
                let who = if user == EVERYONE {
                    "all users".to_owned()
                } else {
                    format!("user {user}")
                };
                return Some(Violation {
                    at: decided.at,
                    message: format!(
                        "{} admitted {who} {units} more than its limit of {}",
                        info.name, band.capacity
                    ),
                });
            }
        }
        None
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// In virtual time.
    pub at: u64,
    /// What was broken.
    pub message: String,
}
