//! A slow, exact model of one band: the definitions of the algorithms, on rational
//! numbers. It is kept simple, and shares nothing with the implementation that it is
//! compared with.

use std::collections::BTreeMap;

use fluxgate_core::Algorithm;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive, Zero};

/// The numbers of a band; times in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) algorithm: Algorithm,
    pub(crate) capacity: u64,
    pub(crate) window: u64,
    pub(crate) refill: u64,
    pub(crate) period: u64,
    pub(crate) max_wait: Option<u64>,
    pub(crate) shape: bool,
}

/// What a band says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) passes: bool,
    /// The time until it would pass without waiting; `None` is never.
    pub(crate) retry: Option<u64>,
    pub(crate) delay: u64,
    pub(crate) remaining: u64,
    pub(crate) reset: u64,
}

/// The state of a band: the content of each of its counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(BTreeMap<Id, Kind>);

/// A bucket is one counter, whatever its numbers; a window or a log of another length is
/// another counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Id {
    Bucket,
    Fixed(u64),
    Sliding(u64),
    Log(u64),
    Slots,
}

/// Where a charge went: the start of a window, the time of an event, or the instant at which
/// a bucket would be full after it.
pub(crate) type Mark = BigRational;

#[derive(Clone, Debug)]
enum Kind {
    /// The instant at which a bucket would be full, its horizon, the latest instant that any
    /// charge has moved it to, and whether a request had to wait since it was last full.
    FullAt(BigRational, BigRational, BigRational, bool),
    /// The start of an aligned window, and the units admitted in the one before it and
    /// in it.
    Counts(i128, u64, u64),
    /// The times, the numbers and the holds of admitted units, oldest first. Units without a
    /// hold have the hold 0.
    Log(Vec<(i128, u64, u64)>),
    /// The end, the number and the hold of slots.
    Slots(Vec<(i128, u64, u64)>),
}

/// Decides `cost` units on all bands together: all are charged, or none is.
pub(crate) fn decide(
    bands: &mut [(Limit, Counter)],
    now: u64,
    cost: u64,
    takes: bool,
) -> Vec<Answer> {
    // Corrections are written even if the request is denied.
    for (limit, counter) in bands.iter_mut() {
        counter.settle(limit, now);
    }
    let mut answers: Vec<_> = bands
        .iter()
        .map(|(limit, counter)| counter.judge(limit, now, cost))
        .collect();
    if takes && cost > 0 && answers.iter().all(|answer| answer.passes) {
        for (limit, counter) in bands.iter_mut() {
            counter.charge(limit, now, cost);
        }
    }
    for (answer, (limit, counter)) in answers.iter_mut().zip(bands) {
        (answer.remaining, answer.reset) = counter.left(limit, now);
    }
    answers
}

impl Counter {
    /// Corrects state that is too far ahead of the clock.
    fn settle(&mut self, limit: &Limit, now: u64) {
        let width = i128::from(limit.window);
        let now = i128::from(now);
        match self.0.get_mut(&limit.id()) {
            None => {}
            Some(Kind::FullAt(full_at, horizon, latest, _)) => {
                let furthest = integer(now) + &*horizon;
                if *full_at > furthest {
                    *latest -= &*full_at - &furthest;
                    *full_at = furthest;
                }
            }
            Some(Kind::Counts(start, _, _)) if *start - now > width => {
                *start = now - now % width;
            }
            Some(Kind::Counts(..)) => {}
            Some(Kind::Log(events)) => {
                let newest = events.last().map_or(now, |event| event.0);
                if newest - now > width {
                    for event in events {
                        event.0 -= newest - now;
                    }
                }
            }
            Some(Kind::Slots(slots)) => {
                for slot in slots {
                    slot.0 = slot.0.min(now + width);
                }
            }
        }
    }

    /// Returns the verdict on a settled state, without what is left.
    fn judge(&self, limit: &Limit, now: u64, cost: u64) -> Answer {
        let (wait, mut delay) = match limit.algorithm {
            // It never passes.
            _ if cost > limit.capacity => (None, 0),
            Algorithm::TokenBucket => {
                let missing = units(cost) - self.tokens(limit, now);
                (Some(ceil(&(missing * limit.unit_time()))), 0)
            }
            Algorithm::LeakyBucket => {
                let level = self.level(limit, now);
                let too_much = &level + units(cost) - units(limit.capacity);
                let queue = ceil(&(level * limit.unit_time()));
                let wait = ceil(&(too_much * limit.unit_time()));
                (Some(wait), if limit.shape { queue } else { 0 })
            }
            _ => (Some(self.first_passing(limit, now, cost)), 0),
        };
        let mut passes = wait == Some(0);
        if let (false, Some(wait), Some(most)) = (passes, wait, limit.max_wait) {
            // A reservation; only buckets can owe.
            if limit.algorithm.is_bucket() && wait <= most {
                (passes, delay) = (true, wait);
            }
        }
        Answer {
            passes,
            retry: if passes { Some(0) } else { wait },
            delay: if passes { delay } else { 0 },
            remaining: 0,
            reset: 0,
        }
    }

    /// Returns the time until a window or log lets `cost` pass, by bisection: without other
    /// requests, a cost that passes once goes on passing.
    fn first_passing(&self, limit: &Limit, now: u64, cost: u64) -> u64 {
        let at = self.standing(limit, now);
        let room = units(limit.capacity - cost);
        let passes = |later: u64| self.used(limit, at + i128::from(later)) <= room;
        if passes(0) {
            return 0;
        }
        let (mut denied, mut passed) = (0, 2 * limit.window);
        assert!(passes(passed), "all is free after two windows");
        while passed - denied > 1 {
            let middle = denied + (passed - denied) / 2;
            if passes(middle) {
                passed = middle;
            } else {
                denied = middle;
            }
        }
        self.seen_from(limit, now, passed)
    }

    /// Returns what counts against the capacity at an instant not before that of the state.
    fn used(&self, limit: &Limit, at: i128) -> BigRational {
        let width = i128::from(limit.window);
        match self.kind(limit) {
            Some(Kind::Counts(..)) => {
                let (previous, current) = self.counts(limit, at);
                if limit.algorithm == Algorithm::FixedWindow {
                    return units(current);
                }
                let weight = BigRational::new((width - at % width).into(), width.into());
                units(previous) * weight + units(current)
            }
            Some(Kind::Log(events)) => {
                let live = events.iter().filter(|event| event.0 > at - width);
                units(live.map(|event| event.1).sum())
            }
            Some(Kind::Slots(slots)) => {
                let held = slots.iter().filter(|slot| slot.0 > at);
                units(held.map(|slot| slot.1).sum())
            }
            _ => BigRational::zero(),
        }
    }

    /// Returns the counts of the window before the one that contains `at`, and of that one.
    fn counts(&self, limit: &Limit, at: i128) -> (u64, u64) {
        let Some(Kind::Counts(start, previous, current)) = self.kind(limit) else {
            return (0, 0);
        };
        match at / i128::from(limit.window) - start / i128::from(limit.window) {
            0 => (*previous, *current),
            1 => (*current, 0),
            _ => (0, 0),
        }
    }

    fn charge(&mut self, limit: &Limit, now: u64, cost: u64) {
        let at = self.standing(limit, now);
        let waits = self.has_waited(limit, now) || self.judge(limit, now, cost).delay > 0;
        let width = i128::from(limit.window);
        let kind = match limit.algorithm {
            Algorithm::TokenBucket => {
                let missing = units(limit.capacity) - self.tokens(limit, now) + units(cost);
                let full_at = integer(now.into()) + missing * limit.unit_time();
                let latest = self.latest(limit, &full_at);
                Kind::FullAt(full_at, limit.horizon(), latest, waits)
            }
            Algorithm::LeakyBucket => {
                let level = self.level(limit, now) + units(cost);
                let full_at = integer(now.into()) + level * limit.unit_time();
                let latest = self.latest(limit, &full_at);
                Kind::FullAt(full_at, limit.horizon(), latest, waits)
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                let (previous, current) = self.counts(limit, at);
                Kind::Counts(at - at % width, previous, current + cost)
            }
            Algorithm::SlidingLog => {
                let mut events = self.events(limit);
                // Units that a newer one has pushed out never count again.
                events.retain(|event| event.0 > at - width);
                events.push((at, cost, 0));
                Kind::Log(events)
            }
            Algorithm::Concurrency => unreachable!("slots are taken by a hold"),
        };
        self.write(limit, Some(kind));
    }

    /// Charges a hold, whose slots are asked for so long. Returns where the units went.
    pub(crate) fn charge_hold(
        &mut self,
        limit: &Limit,
        now: u64,
        cost: u64,
        hold: u64,
        span: Option<u64>,
    ) -> Mark {
        if limit.algorithm == Algorithm::Concurrency {
            let span = span.map_or(limit.window, |span| span.min(limit.window));
            let end = i128::from(now) + i128::from(span);
            let mut slots = self.slots(limit);
            slots.push((end, cost, hold));
            self.write(limit, Some(Kind::Slots(slots)));
            return BigRational::zero();
        }
        let gone = self.events(limit);
        self.charge(limit, now, cost);
        let at = self.standing(limit, now);
        if let Some(Kind::Log(events)) = self.0.get_mut(&limit.id()) {
            // If the newest units are given back, those that they pushed out count again.
            *events = gone;
            events.push((at, cost, hold));
        }
        match self.kind(limit) {
            Some(Kind::FullAt(full_at, ..)) => full_at.clone(),
            Some(Kind::Counts(..)) => integer(at - at % i128::from(limit.window)),
            _ => integer(at),
        }
    }

    /// Returns the latest instant that any charge has moved a bucket to, if one moves it to
    /// `full_at`.
    fn latest(&self, limit: &Limit, full_at: &BigRational) -> BigRational {
        match self.kind(limit) {
            Some(Kind::FullAt(_, _, latest, _)) => full_at.max(latest).clone(),
            _ => full_at.clone(),
        }
    }

    /// Returns whether a request had to wait for a bucket since it was last full.
    fn has_waited(&self, limit: &Limit, now: u64) -> bool {
        match self.kind(limit) {
            Some(Kind::FullAt(_, _, latest, waits)) => *waits && *latest > integer(now.into()),
            _ => false,
        }
    }

    /// Returns how many of `back` units return to a bucket that their charge moved to `mark`.
    fn returned(&self, limit: &Limit, now: u64, back: u64, mark: &Mark) -> BigRational {
        let Some(Kind::FullAt(full_at, _, latest, _)) = self.kind(limit) else {
            return BigRational::zero();
        };
        if limit.shape {
            let is_last = full_at == mark;
            return units(if is_last { back } else { 0 });
        }
        let fill = units(limit.capacity) * limit.unit_time();
        let may_wait = limit.max_wait.is_some() || self.has_waited(limit, now);
        if !may_wait || *latest <= integer(now.into()) + fill {
            return units(back);
        }
        // A reservation waits.
        let behind = (latest - mark) / limit.unit_time();
        (units(back) - behind.max(BigRational::zero())).max(BigRational::zero())
    }

    /// Returns when the slots of a hold end, if it has any.
    pub(crate) fn end_of(&self, limit: &Limit, hold: u64) -> Option<i128> {
        let slots = self.slots(limit);
        slots.iter().find(|slot| slot.2 == hold).map(|slot| slot.0)
    }

    /// Lets the slots of a hold end so long after `now`.
    pub(crate) fn renew(&mut self, limit: &Limit, now: u64, hold: u64, span: u64) {
        let mut slots = self.slots(limit);
        for slot in slots.iter_mut().filter(|slot| slot.2 == hold) {
            slot.0 = i128::from(now) + i128::from(span.min(limit.window));
        }
        self.write(limit, Some(Kind::Slots(slots)));
    }

    /// Cancels a reservation of a bucket that still waits. What is full again leaves no state. If
    /// nothing returns, the state stays as it is, and is not corrected by the clock either.
    pub(crate) fn cancel(&mut self, limit: &Limit, now: u64, cost: u64, mark: &Mark) {
        let before = self.kind(limit).cloned();
        self.settle(limit, now);
        let back = self.returned(limit, now, cost, mark);
        let level = self.level(limit, now);
        let Some(Kind::FullAt(_, horizon, latest, waits)) = self.kind(limit).cloned() else {
            return;
        };
        if back.is_zero() || level.is_zero() {
            self.write(limit, before);
            return;
        }
        let level = level - back;
        let full_at = integer(now.into()) + &level * limit.unit_time();
        let kind = Kind::FullAt(full_at, horizon, latest, waits);
        self.write(limit, level.is_positive().then_some(kind));
    }

    /// Settles a hold that reserved units at `mark`. Returns what did not fit.
    pub(crate) fn settle_hold(
        &mut self,
        limit: &Limit,
        now: u64,
        (hold, reserved, mark): (u64, u64, &Mark),
        cost: u64,
    ) -> u64 {
        if limit.algorithm == Algorithm::Concurrency {
            let mut slots = self.slots(limit);
            slots.retain(|slot| slot.2 != hold);
            self.write(limit, Some(Kind::Slots(slots)));
            return 0;
        }
        if cost == reserved {
            return 0;
        }
        self.settle(limit, now);
        let at = self.standing(limit, now);
        let width = i128::from(limit.window);
        let (back, more) = (reserved.saturating_sub(cost), cost.saturating_sub(reserved));
        let most = 2 * limit.capacity;
        let (kind, taken) = match limit.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let back = self.returned(limit, now, back, mark);
                let level = (self.level(limit, now) - back).max(BigRational::zero());
                let room = (units(most) - &level).floor().to_integer().to_u64();
                let taken = more.min(room.unwrap_or(0));
                let full_at = integer(now.into()) + (level + units(taken)) * limit.unit_time();
                let horizon = match self.kind(limit) {
                    Some(Kind::FullAt(_, horizon, ..)) if more == 0 => horizon.clone(),
                    _ => limit.horizon(),
                };
                let latest = self.latest(limit, &full_at);
                let waits = self.has_waited(limit, now);
                (Kind::FullAt(full_at, horizon, latest, waits), taken)
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                let (previous, current) = self.counts(limit, at);
                let (start, is_sliding) =
                    (at - at % width, limit.algorithm == Algorithm::SlidingWindow);
                let taken = more.min(most.saturating_sub(current));
                match self.kind(limit) {
                    // The window that the state belongs to stays.
                    Some(Kind::Counts(own, previous, current)) if more == 0 => {
                        let mark = mark.to_integer().to_i128().unwrap();
                        let counts = start == mark || is_sliding && start == mark + width;
                        let back = |from: i128| if counts && from == mark { back } else { 0 };
                        let previous = previous.saturating_sub(back(own - width));
                        let current = current.saturating_sub(back(*own));
                        (Kind::Counts(*own, previous, current), 0)
                    }
                    _ => (Kind::Counts(start, previous, current + taken), taken),
                }
            }
            Algorithm::SlidingLog => {
                let mut events = self.events(limit);
                for event in events.iter_mut().filter(|event| event.2 == hold) {
                    event.1 -= back.min(event.1);
                }
                events.retain(|event| event.1 > 0);
                let live = events.iter().filter(|event| event.0 > at - width);
                let counted: u64 = live.map(|event| event.1).sum();
                let taken = more.min(most.saturating_sub(counted));
                if taken > 0 {
                    events.push((at, taken, 0));
                }
                (Kind::Log(events), taken)
            }
            Algorithm::Concurrency => unreachable!("handled above"),
        };
        if self.kind(limit).is_some() || more > 0 {
            self.write(limit, Some(kind));
        }
        more - taken
    }

    fn slots(&self, limit: &Limit) -> Vec<(i128, u64, u64)> {
        match self.kind(limit) {
            Some(Kind::Slots(slots)) => slots.clone(),
            _ => Vec::new(),
        }
    }

    /// Refunds units. A quota that is full again leaves no state.
    pub(crate) fn refund(&mut self, limit: &Limit, now: u64, back: u64) {
        self.settle(limit, now);
        let Some(kind) = self.kind(limit) else {
            return;
        };
        // The last charge has set the horizon; a refund does not change it.
        let (horizon, latest, waits) = match kind {
            Kind::FullAt(_, horizon, latest, waits) => (horizon.clone(), latest.clone(), *waits),
            _ => Default::default(),
        };
        let at = self.standing(limit, now);
        let width = i128::from(limit.window);
        let kind = match limit.algorithm {
            Algorithm::TokenBucket => {
                let missing = units(limit.capacity) - self.tokens(limit, now) - units(back);
                let full_at = integer(now.into()) + &missing * limit.unit_time();
                missing
                    .is_positive()
                    .then_some(Kind::FullAt(full_at, horizon, latest, waits))
            }
            Algorithm::LeakyBucket => {
                let level = self.level(limit, now) - units(back);
                let full_at = integer(now.into()) + &level * limit.unit_time();
                level
                    .is_positive()
                    .then_some(Kind::FullAt(full_at, horizon, latest, waits))
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                let (mut previous, mut current) = self.counts(limit, at);
                if limit.algorithm == Algorithm::FixedWindow {
                    previous = 0;
                }
                current = current.saturating_sub(back);
                let counts = Kind::Counts(at - at % width, previous, current);
                (previous + current > 0).then_some(counts)
            }
            Algorithm::SlidingLog => {
                let mut events = self.events(limit);
                let mut left = back;
                // Only units that still count can be refunded.
                for event in events.iter_mut().rev() {
                    if event.0 > at - width {
                        let taken = left.min(event.1);
                        event.1 -= taken;
                        left -= taken;
                    }
                }
                events.retain(|event| event.1 > 0);
                Some(Kind::Log(events))
            }
            Algorithm::Concurrency => self.kind(limit).cloned(),
        };
        self.write(limit, kind);
    }

    /// Returns whole units left, and the time until the full quota is available again.
    pub(crate) fn left(&self, limit: &Limit, now: u64) -> (u64, u64) {
        let capacity = units(limit.capacity);
        let width = limit.window;
        let at = self.standing(limit, now);
        let (free, reset) = match limit.algorithm {
            Algorithm::TokenBucket => {
                let tokens = self.tokens(limit, now);
                let reset = ceil(&((capacity - &tokens) * limit.unit_time()));
                (tokens, reset)
            }
            Algorithm::LeakyBucket => {
                let level = self.level(limit, now);
                let reset = ceil(&(&level * limit.unit_time()));
                (capacity - level, reset)
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                let elapsed = (at % i128::from(width)) as u64;
                let until_free = match (limit.algorithm, self.counts(limit, at)) {
                    (Algorithm::SlidingWindow, (_, 1..)) => 2 * width - elapsed,
                    (Algorithm::SlidingWindow, (1.., 0)) | (_, (_, 1..)) => width - elapsed,
                    _ => 0,
                };
                let free = capacity - self.used(limit, at);
                (free, self.seen_from(limit, now, until_free))
            }
            Algorithm::SlidingLog => {
                let newest = self
                    .events(limit)
                    .last()
                    .map_or(i128::MIN / 2, |event| event.0);
                let until_free = (newest + i128::from(width) - at).max(0) as u64;
                let free = capacity - self.used(limit, at);
                (free, self.seen_from(limit, now, until_free))
            }
            Algorithm::Concurrency => {
                let last = self.slots(limit).iter().map(|slot| slot.0).max();
                let until_free = last.map_or(0, |last| (last - at).max(0) as u64);
                (capacity - self.used(limit, at), until_free)
            }
        };
        (free.floor().to_integer().to_u64().unwrap_or(0), reset)
    }

    /// Returns v: the tokens in a token bucket.
    fn tokens(&self, limit: &Limit, now: u64) -> BigRational {
        units(limit.capacity) - self.level(limit, now)
    }

    /// Returns w: the level of a leaky bucket, never below 0.
    fn level(&self, limit: &Limit, now: u64) -> BigRational {
        let Some(Kind::FullAt(full_at, ..)) = self.kind(limit) else {
            return BigRational::zero();
        };
        let until_full = limit.in_its_fractions(full_at) - integer(now.into());
        (until_full / limit.unit_time()).max(BigRational::zero())
    }

    /// Returns the instant to decide at: the start of a window, or the newest event of a
    /// log, if that is ahead of the clock.
    fn standing(&self, limit: &Limit, now: u64) -> i128 {
        let now = i128::from(now);
        match self.kind(limit) {
            Some(Kind::Counts(start, _, _)) => now.max(*start),
            Some(Kind::Log(events)) => events.last().map_or(now, |event| now.max(event.0)),
            _ => now,
        }
    }

    /// Returns a span from that instant as the clock sees it.
    fn seen_from(&self, limit: &Limit, now: u64, span: u64) -> u64 {
        let ahead = (self.standing(limit, now) - i128::from(now)) as u64;
        if span == 0 { 0 } else { span + ahead }
    }

    fn kind(&self, limit: &Limit) -> Option<&Kind> {
        self.0.get(&limit.id())
    }

    fn events(&self, limit: &Limit) -> Vec<(i128, u64, u64)> {
        match self.kind(limit) {
            Some(Kind::Log(events)) => events.clone(),
            _ => Vec::new(),
        }
    }

    /// Deletes the counter of this limit.
    pub(crate) fn reset(&mut self, limit: &Limit) {
        self.0.remove(&limit.id());
    }

    fn write(&mut self, limit: &Limit, kind: Option<Kind>) {
        match kind {
            Some(kind) => self.0.insert(limit.id(), kind),
            None => self.0.remove(&limit.id()),
        };
    }
}

impl Limit {
    fn id(&self) -> Id {
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Id::Bucket,
            Algorithm::FixedWindow => Id::Fixed(self.window),
            Algorithm::SlidingWindow => Id::Sliding(self.window),
            Algorithm::SlidingLog => Id::Log(self.window),
            Algorithm::Concurrency => Id::Slots,
        }
    }

    /// The least power of two that is not less than 2·C·P/R and `max_wait`.
    fn horizon(&self) -> BigRational {
        let least =
            units(2) * units(self.capacity) * self.unit_time() + units(self.max_wait.unwrap_or(0));
        let mut horizon = units(1);
        while horizon < least {
            horizon *= units(2);
        }
        horizon
    }

    /// P/R: the time of one unit.
    fn unit_time(&self) -> BigRational {
        BigRational::new(self.period.into(), self.refill.into())
    }

    /// Returns an instant as a bucket of this refill stores it: a fraction that is not a
    /// multiple of 1/R rounds up to the next microsecond.
    fn in_its_fractions(&self, instant: &BigRational) -> BigRational {
        if (instant * units(self.refill)).is_integer() {
            instant.clone()
        } else {
            instant.ceil()
        }
    }
}

fn units(number: u64) -> BigRational {
    BigRational::from_integer(number.into())
}

fn integer(number: i128) -> BigRational {
    BigRational::from_integer(BigInt::from(number))
}

/// Rounded up, and not below 0.
fn ceil(span: &BigRational) -> u64 {
    let span = span.ceil().to_integer();
    span.max(BigInt::zero()).to_u64().unwrap()
}
