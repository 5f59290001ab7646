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

use std::collections::{BTreeMap, VecDeque};

use fluxgate_core::{Algorithm, Limit, RuleSets};

/// When a server decided something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant {
    /// In virtual time.
    pub(crate) at: u64,
    /// Orders what happens at one virtual time.
    pub(crate) number: u64,
    /// How far the server's clock has moved forwards so far, steps included.
    pub(crate) progress: u64,
    /// What the server's clock shows.
    pub(crate) time: u64,
    /// The server.
    pub(crate) server: usize,
}

/// Something that a client was allowed.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    pub(crate) decided: Instant,
    /// How long after that it may be used.
    pub(crate) delay: u64,
    pub(crate) user: u8,
    pub(crate) cost: u64,
    /// The version of the rules that decided.
    pub(crate) version: usize,
    /// The slots it takes, if there are any, and how long they are held, by progress.
    pub(crate) slots: u64,
    pub(crate) held: u64,
}

/// What an operator or a fault gave back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Return {
    /// Units of one user.
    Units(u8, u64),
    /// All that one user has used.
    User(u8),
    /// All that anyone has used: the server lost it.
    All,
    /// All that anyone has used, and what another server decides for this time.
    Overlap(u64),
}

/// What counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    Bucket,
    FixedWindow(u64),
    SlidingWindow(u64),
    SlidingLog(u64),
    Slots,
}

/// A band of a version of the rules.
#[derive(Clone, Debug)]
struct BandFigures {
    /// Its counters.
    counter: usize,
    is_global: bool,
    capacity: u64,
    /// How long requests may wait for units of the future.
    max_wait: u64,
    /// How long slots may be held.
    longest_hold: Option<u64>,
    /// The time that one unit takes to refill, in fractions of a microsecond. The counter says how
    /// many make one.
    unit: i128,
}

/// A counter of a band, for all versions of the rules that share it.
#[derive(Clone, Debug)]
struct CounterInfo {
    name: String,
    family: Family,
    /// Parts of a microsecond.
    parts: i128,
    /// The largest capacity, and the longest time of a unit, of any version.
    largest: u64,
    longest: i128,
}

/// The ledger of a run.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// By version.
    bands: Vec<Vec<BandFigures>>,
    counters: Vec<CounterInfo>,
    admissions: Vec<Admission>,
    returns: Vec<(u64, Return)>,
    /// When a server's clock went back, in virtual time.
    steps_back: Vec<u64>,
    /// From when to when requests wait, by progress.
    waits: Vec<(u64, u64)>,
    /// The most requests that may wait; 0 for no bound.
    max_waits: usize,
}

impl Ledger {
    /// Creates a ledger for these versions of the rules. All rules of a version apply to each request.
    pub(crate) fn new(versions: &[RuleSets], max_waits: u32) -> Self {
        let mut ledger = Self {
            bands: Vec::new(),
            counters: Vec::new(),
            admissions: Vec::new(),
            returns: Vec::new(),
            steps_back: Vec::new(),
            waits: Vec::new(),
            max_waits: max_waits as usize,
        };
        let mut known = BTreeMap::<(String, Family), usize>::new();
        for version in versions {
            let rules = version.iter().flat_map(|set| set.rules());
            for rule in rules {
                for band in rule.bands() {
                    let family = family_of(band.limit());
                    let name = format!("{}/{}", rule.id(), band.id());
                    let counters = &mut ledger.counters;
                    let counter = *known.entry((name.clone(), family)).or_insert_with(|| {
                        counters.push(CounterInfo {
                            name,
                            family,
                            parts: 1,
                            largest: 0,
                            longest: 1,
                        });
                        counters.len() - 1
                    });
                    let refill = i128::from(band.limit().rate().refill());
                    let largest = &mut counters[counter].largest;
                    *largest = band.limit().capacity().max(*largest);
                    let parts = &mut counters[counter].parts;
                    if family == Family::Bucket && *parts % refill != 0 {
                        *parts *= refill;
                    }
                }
            }
        }
        for version in versions {
            let rules = version.iter().flat_map(|set| set.rules());
            let bands = rules.flat_map(|rule| {
                let (known, counters) = (&known, &ledger.counters);
                rule.bands().iter().map(move |band| {
                    let limit = band.limit();
                    let name = format!("{}/{}", rule.id(), band.id());
                    let counter = known[&(name, family_of(limit))];
                    let refill = i128::from(limit.rate().refill());
                    let period = i128::from(limit.rate().period().get());
                    BandFigures {
                        counter,
                        is_global: rule.key().is_empty(),
                        capacity: limit.capacity(),
                        max_wait: limit.rate().max_wait().map_or(0, |max| max.get()),
                        longest_hold: (family_of(limit) == Family::Slots)
                            .then(|| limit.window().get()),
                        unit: match family_of(limit) {
                            Family::Bucket => period * counters[counter].parts / refill,
                            _ => 1,
                        },
                    }
                })
            });
            let bands: Vec<_> = bands.collect();
            for band in &bands {
                let longest = &mut ledger.counters[band.counter].longest;
                *longest = band.unit.max(*longest);
            }
            ledger.bands.push(bands);
        }
        ledger
    }

    pub(crate) fn admit(&mut self, admission: Admission) {
        self.admissions.push(admission);
    }

    /// Returns the number of the last admission.
    pub(crate) fn last(&self) -> usize {
        self.admissions.len() - 1
    }

    /// Settles an admission with a cost; its slots are free.
    pub(crate) fn settle(&mut self, number: usize, cost: u64, progress: u64) {
        let admission = &mut self.admissions[number];
        // A higher cost is used already, and admits nothing.
        admission.cost = admission.cost.min(cost);
        let held = progress.saturating_sub(admission.decided.progress);
        admission.held = admission.held.min(held);
    }

    /// Extends the slots of an admission to a span from `progress`, or as long as their rule
    /// allows.
    pub(crate) fn extend(&mut self, number: usize, progress: u64, span: u64) {
        let admission = &mut self.admissions[number];
        let bands = self.bands[admission.version].iter();
        let longest = bands.filter_map(|band| band.longest_hold).min();
        let until = progress + longest.map_or(span, |longest| span.min(longest));
        admission.held = until.saturating_sub(admission.decided.progress);
    }

    pub(crate) fn give_back(&mut self, at: u64, what: Return) {
        self.returns.push((at, what));
    }

    pub(crate) fn step_back(&mut self, at: u64) {
        self.steps_back.push(at);
    }

    /// Adds a request that waits for a time. Returns its number.
    pub(crate) fn begin_wait(&mut self, from: u64, delay: u64) -> usize {
        self.waits.push((from, from + delay));
        self.waits.len() - 1
    }

    /// A request waits no more.
    pub(crate) fn end_wait(&mut self, number: usize, progress: u64) {
        let (_, until) = &mut self.waits[number];
        *until = progress.min(*until);
    }

    /// Returns a moment at which too many requests waited.
    fn crowd(&self) -> Option<Violation> {
        if self.max_waits == 0 {
            return None;
        }
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let mut waiting: Vec<u64> = Vec::new();
        for (from, until) in waits {
            waiting.retain(|ends| *ends > from);
            if until > from {
                waiting.push(until);
            }
            if waiting.len() > self.max_waits {
                let (count, most) = (waiting.len(), self.max_waits);
                return Some(Violation {
                    at: from,
                    message: format!("{count} requests wait, and at most {most} may"),
                });
            }
        }
        None
    }

    /// Returns the first violation, if there is one.
    pub(crate) fn violation(&self) -> Option<Violation> {
        if let Some(crowd) = self.crowd() {
            return Some(crowd);
        }
        let violations = (0..self.counters.len()).filter_map(|counter| self.violation_of(counter));
        violations.min_by_key(|violation| violation.at)
    }

    /// Returns when a request counts for a band, and how long before that its turn may have come.
    fn turn_of(&self, admission: &Admission, band: &BandFigures) -> (Instant, u64) {
        let (mut turn, delay) = (admission.decided, admission.delay);
        if band.max_wait == 0 || delay == 0 {
            return (turn, 0);
        }
        turn.progress += delay;
        // If the clock jumps ahead while a request waits, its turn has come.
        let later = self.admissions.iter().map(|it| &it.decided);
        let later = later.filter(|it| it.server == turn.server && it.number > turn.number);
        let past = later.filter(|it| it.progress >= turn.progress);
        turn.at = past.map(|it| it.at).fold(turn.at + delay, u64::min);
        let waiting = self.bands[admission.version]
            .iter()
            .filter(|it| it.max_wait > 0);
        (turn, if waiting.count() == 1 { 1 } else { delay })
    }

    /// Returns the first violation of a counter, if there is one.
    fn violation_of(&self, counter: usize) -> Option<Violation> {
        let info = &self.counters[counter];
        let mut used = Vec::new();
        for admission in &self.admissions {
            let bands = self.bands[admission.version].iter();
            for band in bands.filter(|band| band.counter == counter) {
                used.push((self.turn_of(admission, band), admission, band));
            }
        }
        used.sort_by_key(|((turn, _), ..)| (turn.at, turn.number));
        let mut users = BTreeMap::<u8, Usage>::new();
        let mut given = self.returns.iter().peekable();
        let mut steps = self.steps_back.iter().peekable();
        let mut slack = Slack::default();
        for ((turn, early), admission, band) in used {
            while let Some((_, what)) = given.next_if(|(given, _)| *given <= turn.at) {
                slack.add(*what);
            }
            while steps.next_if(|step| **step <= turn.at).is_some() {
                users.values_mut().for_each(Usage::forget_windows);
            }
            let user = if band.is_global {
                u8::MAX
            } else {
                admission.user
            };
            let usage = users.entry(user).or_insert_with(|| Usage::new(info.family));
            let most = i128::from(band.capacity) + slack.of(user, band, info);
            let over = usage.admit(admission, (turn, early), most, (band.unit, info.parts));
            if over > 0 {
                return Some(Violation {
                    at: turn.at,
                    message: format!(
                        "{} of user {user} admitted more than its limit: {} above {} at {}",
                        info.name, over, band.capacity, turn.at
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

fn family_of(limit: &Limit) -> Family {
    let width = limit.window().get();
    match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => Family::Bucket,
        Algorithm::FixedWindow => Family::FixedWindow(width),
        Algorithm::SlidingWindow => Family::SlidingWindow(width),
        Algorithm::SlidingLog => Family::SlidingLog(width),
        Algorithm::Concurrency => Family::Slots,
    }
}

/// What was given back so far.
#[derive(Debug, Default)]
struct Slack {
    /// Units, and whole quotas, of each user.
    users: BTreeMap<u8, (u64, u64)>,
    /// Units of all users, for rules that count all together.
    units: u64,
    /// Whole quotas of everyone.
    quotas: u64,
    /// Times in which two servers decided.
    overlaps: Vec<u64>,
}

impl Slack {
    fn add(&mut self, what: Return) {
        match what {
            Return::Units(user, units) => {
                self.users.entry(user).or_default().0 += units;
                self.units += units;
            }
            Return::User(user) => {
                self.users.entry(user).or_default().1 += 1;
                self.users.entry(u8::MAX).or_default().1 += 1;
            }
            Return::All => self.quotas += 1,
            Return::Overlap(span) => {
                self.quotas += 1;
                self.overlaps.push(span);
            }
        }
    }

    fn of(&self, user: u8, band: &BandFigures, info: &CounterInfo) -> i128 {
        let capacity = band.capacity;
        let overlap = |span: &u64| match info.family {
            Family::Bucket => i128::from(*span) * info.parts / band.unit + 1,
            Family::FixedWindow(width)
            | Family::SlidingWindow(width)
            | Family::SlidingLog(width) => i128::from(capacity) * i128::from(span / width + 2),
            Family::Slots => 0,
        };
        let overlaps: i128 = self.overlaps.iter().map(overlap).sum();
        let (units, quotas) = self.users.get(&user).copied().unwrap_or_default();
        let units = i128::from(if user == u8::MAX { self.units } else { units });
        // Another version may have given them back, with longer units.
        let units = (units * info.longest).div_euclid(band.unit) + i128::from(units > 0);
        // Requests that wait still go on, although what they wait for is forgotten.
        let waiting = match info.family {
            Family::Bucket => i128::from(band.max_wait) * info.parts / band.unit + 1,
            _ => 0,
        };
        overlaps + units + (i128::from(info.largest) + waiting) * i128::from(self.quotas + quotas)
    }
}

/// What was used of a counter.
#[derive(Clone, Debug)]
enum Usage {
    Bucket {
        /// When it will be full, in parts of a microsecond.
        full: i128,
        progress: u64,
    },
    Windows {
        start: u64,
        previous: u64,
        current: u64,
        width: u64,
        slides: bool,
    },
    Log {
        width: u64,
        admitted: VecDeque<(u64, u64)>,
    },
    Slots {
        held: Vec<(u64, u64)>,
    },
}

impl Usage {
    fn new(family: Family) -> Self {
        let windows = |width, slides| Self::Windows {
            start: 0,
            previous: 0,
            current: 0,
            width,
            slides,
        };
        match family {
            Family::Bucket => Self::Bucket {
                full: 0,
                progress: 0,
            },
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
    fn forget_windows(&mut self) {
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

    /// Adds an admission whose turn came at a moment, or up to a time before. Returns by how much the
    /// limit is exceeded, or a number that is not positive.
    fn admit(
        &mut self,
        admission: &Admission,
        (turn, early): (Instant, u64),
        most: i128,
        (unit, parts): (i128, i128),
    ) -> i128 {
        let (decided, cost) = (&admission.decided, admission.cost);
        let units = i128::from(cost);
        match self {
            Self::Bucket { full, progress } => {
                *progress = turn.progress.max(*progress);
                let latest = parts * i128::from(*progress);
                let earliest = latest - (parts * i128::from(early) - 1).max(0);
                let fits = *full + (units - most) * unit;
                let turn = fits.max(earliest).min(latest);
                *full = turn.max(*full) + units * unit;
                *full - turn - most * unit
            }
            Self::Windows {
                start,
                previous,
                current,
                width,
                slides,
            } => {
                let time = decided.time;
                let begins = time - time % *width;
                if begins > *start {
                    *previous = if begins == *start + *width {
                        *current
                    } else {
                        0
                    };
                    (*start, *current) = (begins, 0);
                }
                *current += cost;
                let (width, current) = (i128::from(*width), i128::from(*current));
                if *slides {
                    let left = width - i128::from(time - begins);
                    i128::from(*previous) * left + current * width - most * width
                } else {
                    current - most
                }
            }
            Self::Log { width, admitted } => {
                let time = decided.time;
                while admitted.front().is_some_and(|(at, _)| at + *width <= time) {
                    admitted.pop_front();
                }
                admitted.push_back((time, cost));
                let sum: i128 = admitted.iter().map(|(_, cost)| i128::from(*cost)).sum();
                sum - most
            }
            Self::Slots { held } => {
                held.retain(|(ends, _)| *ends > decided.progress);
                held.push((decided.progress + admission.held, admission.slots));
                let sum: i128 = held.iter().map(|(_, cost)| i128::from(*cost)).sum();
                sum - most
            }
        }
    }
}
