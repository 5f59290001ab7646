//! A fleet of instances with leases on virtual time, and an oracle that knows whether they
//! exceed a limit.
//!
//! The instances use the real table of leases and the server
//! the real [`grant`](fluxgate_core::internals::algorithm::grant). Between them is a network
//! that delays, reorders and loses calls and replies; instances crash and start again, and
//! no two clocks agree. Time passes from event to event, so a run takes as long as its
//! decisions, and equal settings give equal results, except where two keys share a place in
//! a table.

mod arrivals;
mod calls;
mod clock;
mod instance;
mod oracle;
mod outcome;
mod plan;
mod random;
#[cfg(test)]
mod schedules;
mod server;
mod setting;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fluxgate_core::store::{Checks, Verdict};
use smallvec::SmallVec;

use super::lease_table::{Owner, PendingAsk};
use arrivals::Arrivals;
use calls::{Call, Calls, Request, SentAsk};
use clock::Clock;
use instance::Instance;
use oracle::Oracle;
pub use outcome::Outcome;
use plan::{Counters, Plan};
use random::Random;
use server::Server;
pub use setting::{Churn, Fault, FleetRule, Network, Setting, Traffic};

/// What the server's clock shows when the fleet starts.
const EPOCH: u64 = 1_700_000_000_000_000;
/// The most time until a woken keeper runs.
const WAKE: u64 = 4_000;
/// How long an instance that ends waits for answers before it looks again.
const POLL: u64 = 1_000;

/// Runs a fleet.
pub fn run(setting: &Setting) -> Outcome {
    let plan = Plan::new(&setting.rules, setting.traffic.keys);
    let mut fleet = Fleet::new(setting, &plan);
    fleet.run();
    fleet.outcome
}

/// What happens next. Instances are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    /// A call reaches the server.
    Call(u32),
    /// A reply reaches the instance.
    Reply(u32),
    /// An instance stops waiting for a reply.
    Deadline(u32),
    /// A keeper that was woken runs.
    Wake(usize, u32),
    /// It is time for a keeper's round.
    Round(usize, u32),
    /// More requests than all can admit come to all instances and the server at once.
    Flood,
    Crash,
    DataLoss,
    Shutdown,
    /// An instance that ends looks whether it has returned all. It waits until a time.
    Poll(usize, u32, u64),
    Restart(usize),
}

struct Fleet<'s> {
    setting: &'s Setting,
    plan: &'s Plan<'s>,
    now: u64,
    /// With the number of the event, so that events of one time come in order.
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    random: Random,
    arrivals: Arrivals<'s>,
    server: Server,
    instances: Vec<Instance>,
    calls: Calls,
    oracle: Oracle,
    outcome: Outcome,
}

impl<'s> Fleet<'s> {
    fn new(setting: &'s Setting, plan: &'s Plan<'s>) -> Self {
        let mut random = Random::new(setting.seed);
        let offset = random.below(60_000_000);
        let clock = Clock::new(0, EPOCH + offset, random.around_zero(setting.drift));
        let limits = plan.bands.iter().map(|band| band.limit());
        let mut fleet = Self {
            setting,
            plan,
            now: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            arrivals: Arrivals::new(&setting.traffic),
            server: Server::new(clock, setting.fault, plan.counters),
            instances: Vec::new(),
            calls: Calls::default(),
            oracle: Oracle::new(limits, plan.counters),
            outcome: Outcome::default(),
            random,
        };
        for _ in 0..setting.instances {
            let clock = fleet.new_clock();
            fleet.instances.push(Instance::new(clock, 0));
        }
        fleet.schedule(0, Event::Arrival);
        fleet.schedule_sometime(Event::Flood, setting.traffic.flood);
        fleet.schedule_sometime(Event::Crash, setting.churn.crash);
        fleet.schedule_sometime(Event::Shutdown, setting.churn.shutdown);
        fleet.schedule_sometime(Event::DataLoss, setting.data_loss);
        fleet
    }

    fn run(&mut self) {
        while let Some(Reverse((time, _, event))) = self.queue.pop() {
            if time >= self.setting.duration {
                break;
            }
            self.now = time;
            match event {
                Event::Arrival => {
                    self.arrive();
                    let gap = self.arrivals.gap(&mut self.random);
                    self.schedule(gap, Event::Arrival);
                }
                Event::Call(call) => self.serve(call),
                Event::Reply(call) => {
                    self.answer(call);
                    self.calls.done(call);
                }
                Event::Deadline(call) => {
                    self.give_up(call);
                    self.calls.done(call);
                }
                Event::Wake(instance, start) => self.keep(instance, start, false),
                Event::Round(instance, start) => self.keep(instance, start, true),
                Event::Flood => {
                    self.flood();
                    self.schedule_sometime(Event::Flood, self.setting.traffic.flood);
                }
                Event::Crash => {
                    let victim = self.random.below(self.instances.len() as u64) as usize;
                    self.end(victim);
                    self.outcome.crashes += 1;
                    self.schedule_sometime(Event::Crash, self.setting.churn.crash);
                }
                Event::DataLoss => {
                    self.server.lose_data();
                    self.outcome.data_losses += 1;
                    self.schedule_sometime(Event::DataLoss, self.setting.data_loss);
                }
                Event::Shutdown => {
                    self.shut_down();
                    self.schedule_sometime(Event::Shutdown, self.setting.churn.shutdown);
                }
                Event::Poll(instance, start, until) => self.return_all(instance, start, until),
                Event::Restart(instance) => {
                    let clock = self.new_clock();
                    let start = self.instances[instance].start;
                    self.instances[instance] = Instance::new(clock, start);
                }
            }
        }
        for instance in &mut self.instances {
            let counts = instance.end();
            self.outcome.add(counts.unwrap_or_default());
        }
        self.outcome.overshoot = self.oracle.overshoot;
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.scheduled += 1;
        let entry = (self.now + after, self.scheduled, event);
        self.queue.push(Reverse(entry));
    }

    fn schedule_sometime(&mut self, event: Event, mean: u64) {
        if mean > 0 {
            let after = self.random.between(1, 2 * mean);
            self.schedule(after, event);
        }
    }

    /// Returns the clock of an instance that starts now.
    fn new_clock(&mut self) -> Clock {
        let shows = self.random.below(1_000_000_000);
        Clock::new(self.now, shows, self.random.around_zero(self.setting.drift))
    }

    /// Returns an instance that is up, for a request with this key.
    fn draw_instance(&mut self, key: u32) -> Option<usize> {
        let instances = self.instances.len() as u64;
        let drawn = self.arrivals.instance(key, instances, &mut self.random);
        let candidates = (drawn..drawn + instances).map(|at| (at % instances) as usize);
        let mut up = candidates.filter(|at| self.instances[*at].table().is_some());
        up.next()
    }

    fn arrive(&mut self) {
        let key = self.arrivals.key(&mut self.random);
        let cost = self.random.between(1, self.setting.traffic.most_cost);
        let Some(at) = self.draw_instance(key) else {
            return;
        };
        let (plan, now) = (self.plan, self.now);
        let counters = plan.counters(key);
        let subjects = plan.subjects(key);
        let checks = plan.checks(&subjects, cost);
        self.offer(&counters, cost);
        if self.decide(at, &checks, &counters, cost).is_none() {
            let asks = self.instances[at].asks(&checks, now).into_iter();
            let asks = asks.map(|(at, pending)| SentAsk {
                counter: counters[at],
                pending,
            });
            let asks = asks.collect();
            self.send(at, Some(Request { key, cost }), asks);
        }
    }

    /// Spends, in an instant, all units of a key that are on lease at any instance, and those
    /// that the server has left.
    fn flood(&mut self) {
        let key = self.arrivals.key(&mut self.random);
        let (plan, now) = (self.plan, self.now);
        let counters = plan.counters(key);
        let subjects = plan.subjects(key);
        let checks = plan.checks(&subjects, 1);
        for at in 0..self.instances.len() {
            self.offer(&counters, 1);
            while self.decide(at, &checks, &counters, 1) == Some(true) {
                self.offer(&counters, 1);
            }
        }
        let passes = |server: &mut Server| {
            let verdicts = server.decide(&checks, &counters, now);
            verdicts.iter().all(Verdict::passes)
        };
        while passes(&mut self.server) {
            self.offer(&counters, 1);
            self.oracle.admit(&counters, self.server.time(now), 1);
            self.outcome.admitted += 1;
        }
    }

    /// Notes a request.
    fn offer(&mut self, counters: &Counters, cost: u64) {
        let time = self.server.time(self.now);
        self.outcome.decisions += 1;
        if self.oracle.is_possible(counters, time, cost) {
            self.outcome.possible += cost;
        }
    }

    /// Lets an instance decide a request by itself. Returns whether it admits it, or `None` if
    /// only the server can decide it.
    fn decide(
        &mut self,
        at: usize,
        checks: &Checks<'_>,
        counters: &Counters,
        cost: u64,
    ) -> Option<bool> {
        let instance = &mut self.instances[at];
        let start = instance.start;
        let mut is_low = false;
        let verdicts = instance.decide(checks, self.now, &mut is_low)?;
        let is_woken = is_low && !instance.is_woken;
        instance.is_woken |= is_low;
        self.outcome.local += 1;
        let passes = verdicts.iter().all(Verdict::passes);
        if passes {
            self.outcome.admitted += cost;
            let time = self.server.time(self.now);
            self.oracle.admit(counters, time, cost);
        }
        if is_woken {
            let after = self.random.below(WAKE);
            self.schedule(after, Event::Wake(at, start));
        }
        Some(passes)
    }

    fn send(&mut self, instance: usize, request: Option<Request>, asks: Vec<SentAsk>) {
        self.outcome.calls += 1;
        let network = &self.setting.network;
        let trip = network.trip(&mut self.random);
        let back = trip.back.filter(|back| {
            let whole = trip.there.map(|there| there + back);
            whole.is_some_and(|whole| whole < network.deadline)
        });
        // It reaches the server, and then the reply comes or the deadline passes.
        let events = 1 + u8::from(trip.there.is_some());
        let call = Call {
            instance,
            start: self.instances[instance].start,
            request,
            asks,
            back,
            verdicts: Default::default(),
            granted: Vec::new(),
        };
        let call = self.calls.insert(call, events);
        if let Some(there) = trip.there {
            self.schedule(there, Event::Call(call));
        }
        if back.is_none() {
            self.schedule(network.deadline, Event::Deadline(call));
        }
    }

    /// Sends the asks of a keeper. Their order does not depend on how the instance hashes
    /// its keys.
    fn send_all(&mut self, instance: usize, asks: Vec<(Owner, PendingAsk)>) {
        let asks = asks.into_iter().filter_map(|(owner, pending)| {
            let counter = self.plan.counter_of(owner.subject().bytes, &owner.band)?;
            Some(SentAsk { counter, pending })
        });
        let mut asks: Vec<_> = asks.collect();
        asks.sort_by_key(|ask| ask.counter);
        for ask in asks {
            self.outcome.keeper_calls += 1;
            self.send(instance, None, vec![ask]);
        }
    }

    /// Runs a call on the server.
    fn serve(&mut self, number: u32) {
        let (plan, now) = (self.plan, self.now);
        let Some(call) = self.calls.get_mut(number) else {
            return;
        };
        if let Some(Request { key, cost }) = call.request {
            let subjects = plan.subjects(key);
            let checks = plan.checks(&subjects, cost);
            let counters = plan.counters(key);
            call.verdicts = self.server.decide(&checks, &counters, now);
            if call.verdicts.iter().all(Verdict::passes) {
                // Also if the reply is lost: it was charged.
                self.oracle.admit(&counters, self.server.time(now), cost);
            }
        }
        for SentAsk { counter, pending } in &call.asks {
            if let Some(lease) = plan.bands[counter.band].lease() {
                let granted = self.server.answer(lease, *counter, &pending.ask, now);
                call.granted.push(granted);
            }
        }
        let back = call.back;
        if let Some(back) = back {
            self.schedule(back, Event::Reply(number));
        }
        self.calls.done(number);
    }

    /// Takes a reply.
    fn answer(&mut self, number: u32) {
        let (plan, now) = (self.plan, self.now);
        let Some(call) = self.calls.get_mut(number) else {
            return;
        };
        let instance = &mut self.instances[call.instance];
        let (time, start) = (instance.time(now), instance.start);
        if call.start != start {
            return;
        }
        let Some(table) = instance.table() else {
            return;
        };
        let mut refused = SmallVec::<[_; 2]>::new();
        for (SentAsk { counter, pending }, granted) in call.asks.iter().zip(&call.granted) {
            if let Some(lease) = plan.bands[counter.band].lease() {
                table.granted(lease, pending, granted, time);
            }
            if granted.grant.units == 0 {
                refused.push(pending.key);
            }
        }
        let Some(Request { key, cost }) = call.request else {
            return;
        };
        let subjects = plan.subjects(key);
        let checks = plan.checks(&subjects, cost);
        if call.verdicts.iter().all(Verdict::passes) {
            self.outcome.admitted += cost;
        }
        table.decided(&checks, &refused, &mut call.verdicts, time);
        if !table.is_empty() && !instance.has_keeper {
            instance.has_keeper = true;
            let at = call.instance;
            self.schedule(0, Event::Round(at, start));
        }
    }

    /// Stops waiting for a reply.
    fn give_up(&mut self, number: u32) {
        let Some(call) = self.calls.get_mut(number) else {
            return;
        };
        self.outcome.unanswered += u64::from(call.request.is_some());
        let instance = &self.instances[call.instance];
        if let Some(table) = instance.table_of(call.start) {
            for ask in &call.asks {
                table.unanswered(ask.pending.key);
            }
        }
    }

    /// Runs a keeper.
    fn keep(&mut self, at: usize, start: u32, is_round: bool) {
        let instance = &mut self.instances[at];
        if instance.table_of(start).is_none() {
            return;
        }
        instance.is_woken &= is_round;
        let due = instance.due(self.now, is_round);
        let round = instance.round();
        self.send_all(at, due);
        if is_round {
            self.schedule(round, Event::Round(at, start));
        }
    }

    /// Lets an instance return its units and end.
    fn shut_down(&mut self) {
        let at = self.random.below(self.instances.len() as u64) as usize;
        let instance = &mut self.instances[at];
        if !instance.is_closing && instance.table().is_some() {
            instance.is_closing = true;
            let (start, until) = (instance.start, self.now + self.setting.network.deadline);
            self.return_all(at, start, until);
        }
    }

    fn return_all(&mut self, at: usize, start: u32, until: u64) {
        let instance = &self.instances[at];
        let Some(table) = instance.table_of(start) else {
            return;
        };
        let asks = table.return_all(instance.time(self.now));
        if self.now >= until || asks.is_empty() && !table.is_any_asking() {
            return self.end(at);
        }
        self.send_all(at, asks);
        self.schedule(POLL, Event::Poll(at, start, until));
    }

    /// Ends an instance, and starts it again later.
    fn end(&mut self, at: usize) {
        if let Some(counts) = self.instances[at].end() {
            self.outcome.add(counts);
            let after = self.random.between(1, 2 * self.setting.churn.down);
            self.schedule(after, Event::Restart(at));
        }
    }
}
