//! A fleet of instances with leases, and an oracle that detects whether they exceed a limit.
//!
//! The instances run the real [`LeaseTable`](fluxgate_redis::lease::LeaseTable), and the server
//! the real [`grant`](fluxgate_core::algorithm::grant). The network between them
//! delays, reorders and loses calls and replies; instances crash and start again, and no two
//! clocks agree. Equal configurations give equal outcomes, except where two keys share an entry
//! among the hot keys of a table.

mod arrivals;
mod calls;
mod config;
mod instance;
mod outcome;
mod plan;
#[cfg(test)]
mod schedules;
mod server;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fluxgate_core::store::{Checks, Verdict};
use smallvec::SmallVec;

use crate::clock::Clock;
use crate::oracle::Oracle;
use crate::random::Random;
use arrivals::Arrivals;
use calls::{Call, Calls, SentLeaseRequest, ServerDecision};
pub use config::{Churn, Fault, FleetConfig, FleetRule, Network, Traffic};
use fluxgate_redis::lease::DueRequest;
use instance::Instance;
pub use outcome::FleetOutcome;
use plan::{Counters, Plan};
use server::Server;

/// The time of the server's clock when the fleet starts.
const EPOCH: u64 = 1_700_000_000_000_000;
/// The longest time until a woken keeper runs.
const WAKE: u64 = 4_000;
/// The wait between two looks at the leases of an instance that is closing.
const POLL: u64 = 1_000;

/// Runs a fleet.
pub fn run(config: &FleetConfig) -> FleetOutcome {
    let plan = Plan::new(&config.rules, config.traffic.keys);
    let mut fleet = Fleet::new(config, &plan);
    fleet.run();
    fleet.outcome
}

/// An event. Instances and calls are numbered.
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
    /// All instances and the server get more requests than they can admit.
    Flood,
    Crash,
    DataLoss,
    Shutdown,
    /// An instance that is closing checks whether it has returned all units.
    Poll(Closing),
    Restart(usize),
}

/// An instance that returns its units before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Closing {
    instance: usize,
    start: u32,
    deadline: u64,
}

struct Fleet<'s> {
    config: &'s FleetConfig,
    plan: &'s Plan<'s>,
    now: u64,
    /// The time, number and kind of each event. The number orders events of one time.
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    random: Random,
    arrivals: Arrivals<'s>,
    server: Server,
    instances: Vec<Instance>,
    calls: Calls,
    oracle: Oracle,
    outcome: FleetOutcome,
}

impl<'s> Fleet<'s> {
    fn new(config: &'s FleetConfig, plan: &'s Plan<'s>) -> Self {
        let mut random = Random::new(config.seed);
        let offset = random.below(60_000_000);
        let clock = Clock::new(0, EPOCH + offset, random.around_zero(config.drift));
        let limits = plan.bands.iter().map(|band| band.limit());
        let mut fleet = Self {
            config,
            plan,
            now: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            arrivals: Arrivals::new(&config.traffic),
            server: Server::new(clock, config.fault, plan.counters),
            instances: Vec::new(),
            calls: Calls::default(),
            oracle: Oracle::new(limits, plan.counters),
            outcome: FleetOutcome::default(),
            random,
        };
        for _ in 0..config.instances {
            let clock = fleet.new_clock();
            fleet.instances.push(Instance::new(clock, 0));
        }
        fleet.schedule(0, Event::Arrival);
        fleet.schedule_sometime(Event::Flood, config.traffic.flood);
        fleet.schedule_sometime(Event::Crash, config.churn.crash);
        fleet.schedule_sometime(Event::Shutdown, config.churn.shutdown);
        fleet.schedule_sometime(Event::DataLoss, config.data_loss);
        fleet
    }

    fn run(&mut self) {
        while let Some(Reverse((time, _, event))) = self.queue.pop() {
            if time >= self.config.duration {
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
                    self.deliver_reply(call);
                    self.calls.finish_event(call);
                }
                Event::Deadline(call) => {
                    self.abandon(call);
                    self.calls.finish_event(call);
                }
                Event::Wake(instance, start) => self.keep(instance, start, false),
                Event::Round(instance, start) => self.keep(instance, start, true),
                Event::Flood => {
                    self.flood();
                    self.schedule_sometime(Event::Flood, self.config.traffic.flood);
                }
                Event::Crash => {
                    let victim = self.random.below(self.instances.len() as u64) as usize;
                    self.end(victim);
                    self.outcome.crashes += 1;
                    self.schedule_sometime(Event::Crash, self.config.churn.crash);
                }
                Event::DataLoss => {
                    self.server.lose_data();
                    self.outcome.data_losses += 1;
                    self.schedule_sometime(Event::DataLoss, self.config.data_loss);
                }
                Event::Shutdown => {
                    self.shut_down();
                    self.schedule_sometime(Event::Shutdown, self.config.churn.shutdown);
                }
                Event::Poll(closing) => self.return_all(closing),
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
        Clock::new(self.now, shows, self.random.around_zero(self.config.drift))
    }

    /// Draws an instance that is up, for a request with this key.
    fn draw_instance(&mut self, key: u32) -> Option<usize> {
        let instances = self.instances.len() as u64;
        let drawn = self.arrivals.instance(key, instances, &mut self.random);
        let candidates = (drawn..drawn + instances).map(|at| (at % instances) as usize);
        let mut up = candidates.filter(|at| self.instances[*at].table().is_some());
        up.next()
    }

    fn arrive(&mut self) {
        let key = self.arrivals.key(&mut self.random);
        let cost = self.random.between(1, self.config.traffic.most_cost);
        let Some(at) = self.draw_instance(key) else {
            return;
        };
        let (plan, now) = (self.plan, self.now);
        let counters = plan.counters(key);
        let subjects = plan.subjects(key);
        let checks = plan.checks(&subjects, cost);
        self.offer(&counters, cost);
        if self.decide(at, &checks, &counters, cost).is_none() {
            let sent = self.instances[at]
                .requests_with(&checks, now)
                .into_iter()
                .map(|request| SentLeaseRequest {
                    counter: counters[request.check],
                    pending: request.pending,
                })
                .collect();
            self.send(at, Some(ServerDecision { key, cost }), sent);
        }
    }

    /// Spends at once all units of a key: those on lease at any instance, and those that the
    /// server has left.
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

    /// Records a request.
    fn offer(&mut self, counters: &Counters, cost: u64) {
        let time = self.server.time(self.now);
        self.outcome.decisions += 1;
        if self.oracle.is_possible(counters, time, cost) {
            self.outcome.possible += cost;
        }
    }

    /// Decides a request by the leases of an instance. Returns whether it passes, or `None` if
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
        let (verdicts, is_low) = instance.decide(checks, self.now)?;
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

    fn send(
        &mut self,
        instance: usize,
        decision: Option<ServerDecision>,
        lease_requests: Vec<SentLeaseRequest>,
    ) {
        self.outcome.calls += 1;
        let network = &self.config.network;
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
            decision,
            lease_requests,
            back,
            verdicts: Default::default(),
            grants: Vec::new(),
        };
        let number = self.calls.insert(call, events);
        if let Some(there) = trip.there {
            self.schedule(there, Event::Call(number));
        }
        if back.is_none() {
            self.schedule(network.deadline, Event::Deadline(number));
        }
    }

    /// Sends the requests of a keeper, in an order that does not depend on how the instance
    /// hashes its keys.
    fn send_all(&mut self, instance: usize, due: Vec<DueRequest>) {
        let sent = due.into_iter().filter_map(|DueRequest { owner, pending }| {
            let counter = self.plan.counter_of(owner.subject().bytes, owner.band())?;
            Some(SentLeaseRequest { counter, pending })
        });
        let mut sent: Vec<_> = sent.collect();
        sent.sort_by_key(|request| request.counter);
        for request in sent {
            self.outcome.keeper_calls += 1;
            self.send(instance, None, vec![request]);
        }
    }

    /// Runs a call on the server.
    fn serve(&mut self, number: u32) {
        let (plan, now) = (self.plan, self.now);
        let Some(call) = self.calls.get_mut(number) else {
            return;
        };
        if let Some(ServerDecision { key, cost }) = call.decision {
            let subjects = plan.subjects(key);
            let checks = plan.checks(&subjects, cost);
            let counters = plan.counters(key);
            call.verdicts = self.server.decide(&checks, &counters, now);
            if call.verdicts.iter().all(Verdict::passes) {
                // Also if the reply is lost: it was charged.
                self.oracle.admit(&counters, self.server.time(now), cost);
            }
        }
        for SentLeaseRequest { counter, pending } in &call.lease_requests {
            if let Some(lease) = plan.bands[counter.band].lease() {
                let reply = self.server.grant(lease, *counter, &pending.request, now);
                call.grants.push(reply);
            }
        }
        let back = call.back;
        if let Some(back) = back {
            self.schedule(back, Event::Reply(number));
        }
        self.calls.finish_event(number);
    }

    /// Delivers a reply to its instance.
    fn deliver_reply(&mut self, number: u32) {
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
        for (sent, reply) in call.lease_requests.iter().zip(&call.grants) {
            let SentLeaseRequest { counter, pending } = sent;
            if let Some(lease) = plan.bands[counter.band].lease() {
                table.add_grant(lease, pending, reply, time);
            }
            if reply.grant.units == 0 {
                refused.push(pending.key);
            }
        }
        let Some(ServerDecision { key, cost }) = call.decision else {
            return;
        };
        let subjects = plan.subjects(key);
        let checks = plan.checks(&subjects, cost);
        if call.verdicts.iter().all(Verdict::passes) {
            self.outcome.admitted += cost;
        }
        table.record_decision(&checks, &refused, &mut call.verdicts, time);
        if !table.is_empty() && !instance.has_keeper {
            instance.has_keeper = true;
            let at = call.instance;
            self.schedule(0, Event::Round(at, start));
        }
    }

    /// Stops waiting for a reply.
    fn abandon(&mut self, number: u32) {
        let Some(call) = self.calls.get_mut(number) else {
            return;
        };
        self.outcome.unanswered += u64::from(call.decision.is_some());
        let instance = &self.instances[call.instance];
        if let Some(table) = instance.table_of(call.start) {
            for request in &call.lease_requests {
                table.record_no_answer(request.pending.key);
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
        let due = instance.due_requests(self.now, is_round);
        let round = instance.round();
        self.send_all(at, due);
        if is_round {
            self.schedule(round, Event::Round(at, start));
        }
    }

    /// Closes an instance: it returns its units and ends.
    fn shut_down(&mut self) {
        let at = self.random.below(self.instances.len() as u64) as usize;
        let instance = &mut self.instances[at];
        if !instance.is_closing && instance.table().is_some() {
            instance.is_closing = true;
            let closing = Closing {
                instance: at,
                start: instance.start,
                deadline: self.now + self.config.network.deadline,
            };
            self.return_all(closing);
        }
    }

    fn return_all(&mut self, closing: Closing) {
        let instance = &self.instances[closing.instance];
        let Some(table) = instance.table_of(closing.start) else {
            return;
        };
        let due = table.return_all(instance.time(self.now));
        if self.now >= closing.deadline || due.is_empty() && !table.is_requesting() {
            return self.end(closing.instance);
        }
        self.send_all(closing.instance, due);
        self.schedule(POLL, Event::Poll(closing));
    }

    /// Ends an instance, and starts it again later.
    fn end(&mut self, at: usize) {
        if let Some(counts) = self.instances[at].end() {
            self.outcome.add(counts);
            let after = self.random.between(1, 2 * self.config.churn.down);
            self.schedule(after, Event::Restart(at));
        }
    }
}
