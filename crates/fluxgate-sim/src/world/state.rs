//! The state of a run, and how instances run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use fluxgate_core::{HoldId, RuleSets};

use super::process::{FIRST_PORT, FIRST_SENTINEL, Process, SENTINELS};
use crate::clock::Clock;
use crate::ledger::{Instant, Ledger, Violation};
use crate::network::Network;
use crate::plan::{Deployment, Plan};
use crate::random::Random;
use crate::redis::{Condition, HashSlotMap, Interpreter, Role, Server};
use crate::reference::History;
use crate::trace::Trace;

/// The time of the servers' clocks when a run begins.
const EPOCH: u64 = 1_700_000_000_000_000;
/// How late timers are at most while an instance has nothing to do: with leases, whose keeper has
/// to run, and without.
const IDLE_TICK: u64 = 20_000;
const LONG_IDLE_TICK: u64 = 250_000;

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Requests that were decided.
    pub decisions: u64,
    /// Those that an instance decided by itself.
    pub local: u64,
    pub allowed: u64,
    /// Requests that the store failed to decide.
    pub failed: u64,
    /// Scripts that servers ran.
    pub calls: u64,
    /// A hash of all that happened.
    pub trace_hash: u64,
    /// All that happened, if it was to be kept.
    pub trace: Vec<String>,
    /// The first rule that was broken.
    pub violation: Option<Violation>,
}

/// What happens next.
#[derive(Debug)]
pub(super) enum Event {
    /// The next step of the plan.
    Step(usize),
    /// Bytes reach a server.
    ToServer { connection: usize, bytes: Vec<u8> },
    /// A reply reaches an instance; when the server decided it.
    ToClient {
        connection: usize,
        bytes: Vec<u8>,
        decided: Instant,
    },
    /// An instance runs because time has passed.
    Tick { instance: usize, tick: u64 },
    /// A server accepts commands again.
    Accept { server: usize, condition: Condition },
    /// A sentinel learns of a failover.
    Learn {
        sentinel: usize,
        primary: u16,
        epoch: u64,
    },
    /// The old primary becomes a replica.
    Demote { server: usize },
    /// Some keys of a hash slot move.
    MoveKeys { slot: u16, to: usize, pause: u64 },
}

/// An instance, running or not.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) process: Option<Process>,
    pub(super) version: usize,
    /// How often it was scheduled to run, and when it runs next. Only the last one counts.
    pub(super) ticks: u64,
    pub(super) next_tick: u64,
    /// When it runs again.
    pub(super) paused_until: u64,
    /// When the network lets its bytes through again.
    pub(super) partitioned_until: u64,
    /// When it last was kept from the servers.
    pub(super) disturbed_until: u64,
    /// Operations that are not complete.
    pub(super) waiting: usize,
}

pub(super) struct World<'w> {
    pub(super) plan: &'w Plan,
    pub(super) rules: Vec<RuleSets>,
    pub(super) now: u64,
    /// By time and number.
    pub(super) queue: BTreeMap<(u64, u64), Event>,
    /// Numbers the events, and what happens in them.
    pub(super) number: u64,
    pub(super) random: Random,
    pub(super) network: Rc<RefCell<Network>>,
    pub(super) interpreter: &'w mut Interpreter,
    pub(super) servers: Vec<Server>,
    pub(super) hash_slots: HashSlotMap,
    /// The server that decides, if all are one.
    pub(super) primary: usize,
    pub(super) epoch: u64,
    /// When all instances must have followed the last failover.
    pub(super) followed_by: u64,
    pub(super) instances: Vec<Instance>,
    pub(super) operations: Vec<Operation>,
    /// The holds of clients, by name: the id and its admission in the ledger.
    pub(super) holds: BTreeMap<u32, (HoldId, usize)>,
    /// Those that were settled.
    pub(super) settled: BTreeMap<u32, HoldId>,
    pub(super) ledger: Ledger,
    pub(super) history: History,
    pub(super) trace: Trace,
    pub(super) report: Report,
}

impl<'w> World<'w> {
    pub(super) fn new(plan: &'w Plan, interpreter: &'w mut Interpreter, trace: Trace) -> Self {
        let mut random = Random::new(plan.seed);
        let read = |text: &String| RuleSets::from_yaml(text);
        let rules: Result<Vec<_>, _> = plan.rules.iter().map(read).collect();
        let rules = rules.expect("the rules of a plan are valid");
        let mut clock = |skew: u64| {
            let skew = random.below(skew + 1);
            Clock::new(0, EPOCH + skew, random.around_zero(plan.drift))
        };
        let mut servers = Vec::new();
        let mut hash_slots = HashSlotMap::default();
        match plan.deployment {
            Deployment::Single => {
                servers.push(Server::new(FIRST_PORT, Role::Alone, clock(60_000_000)));
            }
            Deployment::Sentinel => {
                let shared = clock(60_000_000);
                let mut replica = Server::new(FIRST_PORT + 1, Role::Alone, clock(0));
                replica.conditions.push(Condition::Replica);
                let mut primary = Server::new(FIRST_PORT, Role::Alone, shared);
                primary.keyspace.keep_journal();
                // Their clocks differ by a little.
                replica.set_clock(shared);
                servers.extend([primary, replica]);
                for number in 0..SENTINELS {
                    let role = Role::Sentinel {
                        primary: FIRST_PORT,
                        epoch: 1,
                    };
                    servers.push(Server::new(FIRST_SENTINEL + number, role, shared));
                }
            }
            Deployment::Cluster(nodes) => {
                hash_slots = HashSlotMap {
                    nodes,
                    first_port: FIRST_PORT,
                    ..HashSlotMap::default()
                };
                // One clock: a hash slot that moves is not a step of its clock.
                let shared = clock(60_000_000);
                for node in 0..nodes {
                    let port = FIRST_PORT + node as u16;
                    servers.push(Server::new(port, Role::Node(node), shared));
                }
            }
        }
        let mut world = Self {
            ledger: Ledger::new(&rules, plan.max_waits),
            plan,
            rules,
            now: 0,
            queue: BTreeMap::new(),
            number: 0,
            random,
            network: Rc::default(),
            interpreter,
            servers,
            hash_slots,
            primary: 0,
            epoch: 1,
            followed_by: 0,
            instances: Vec::new(),
            operations: Vec::new(),
            holds: BTreeMap::new(),
            settled: BTreeMap::new(),
            history: History::default(),
            trace,
            report: Report::default(),
        };
        if !world.is_repeatable() {
            world.history.end(0);
        }
        for instance in 0..plan.instances {
            world.instances.push(Instance {
                process: None,
                version: 0,
                ticks: 0,
                next_tick: 0,
                paused_until: 0,
                partitioned_until: 0,
                disturbed_until: 0,
                waiting: 0,
            });
            world.start(instance);
        }
        for (index, (at, _)) in plan.steps.iter().enumerate() {
            world.schedule(*at, Event::Step(index));
        }
        world
    }

    /// Returns whether the server decides each request in one step, and nothing else does.
    pub(super) fn is_repeatable(&self) -> bool {
        let mut rules = self.rules.iter().flat_map(RuleSets::iter);
        let is_cluster = matches!(self.plan.deployment, Deployment::Cluster(_));
        rules.all(|set| {
            let has_leases = set.rules().iter().any(|rule| rule.lease().is_some());
            let has_permits = self.plan.max_waits > 0;
            !has_leases && !has_permits && (!is_cluster || set.rules().len() == 1)
        })
    }

    pub(super) fn schedule(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.queue.insert((at.max(self.now), self.number), event);
    }

    /// Starts an instance.
    pub(super) fn start(&mut self, number: usize) {
        if self.instances[number].process.is_some() {
            return;
        }
        let clock = Clock::new(
            self.now,
            self.random.below(1_000_000_000),
            self.random.around_zero(self.plan.drift),
        );
        // Machines agree on the time to within a second.
        let wall_skew = EPOCH + self.random.below(1_000_000);
        let random = self.random.next();
        let instance = &mut self.instances[number];
        instance.waiting = 0;
        instance.disturbed_until = instance.disturbed_until.max(self.now);
        let version = instance.version;
        let rules = self.rules[version].clone();
        let process = Process::start(
            self.plan, rules, version, clock, wall_skew, random, self.now,
        );
        instance.process = Some(process);
        self.trace
            .record(self.now, format_args!("instance {number} starts"));
        self.schedule_tick(number, self.now + IDLE_TICK);
    }

    /// Lets an instance run at a time, instead of when it would run next.
    fn schedule_tick(&mut self, number: usize, at: u64) {
        let instance = &mut self.instances[number];
        instance.ticks += 1;
        instance.next_tick = at;
        let tick = Event::Tick {
            instance: number,
            tick: instance.ticks,
        };
        self.schedule(at, tick);
    }

    /// Lets an instance run soon if it waits for something.
    pub(super) fn hasten(&mut self, number: usize) {
        let instance = &self.instances[number];
        let soon = self.now + self.tick_of(instance);
        if instance.next_tick > soon.max(instance.paused_until) {
            self.schedule_tick(number, soon);
        }
    }

    pub(super) fn tick(&mut self, number: usize, tick: u64) {
        let instance = &self.instances[number];
        if instance.ticks != tick || instance.process.is_none() {
            return;
        }
        if instance.paused_until > self.now {
            return self.schedule_tick(number, instance.paused_until);
        }
        self.let_run(number, None);
        let after = self.tick_of(&self.instances[number]);
        self.schedule_tick(number, self.now + after);
    }

    /// Returns how late the timers of an instance may be.
    fn tick_of(&self, instance: &Instance) -> u64 {
        let mut rules = self.rules.iter().flat_map(|rules| rules.iter());
        if instance.waiting > 0 {
            (self.plan.deadline / 8).clamp(2_000, 20_000)
        } else if rules.any(|set| set.rules().iter().any(|rule| rule.lease().is_some())) {
            IDLE_TICK
        } else {
            LONG_IDLE_TICK
        }
    }

    /// Lets an instance run until it waits, and sends what it has written. `decided` is when the
    /// server decided what has just arrived.
    pub(super) fn let_run(&mut self, number: usize, decided: Option<Instant>) {
        let Some(process) = &mut self.instances[number].process else {
            return;
        };
        self.network.borrow_mut().running = number;
        let completions = process.run(self.now, &self.network);
        self.send_written(number);
        for completion in completions {
            self.complete(number, completion, decided);
        }
    }

    /// Sends what an instance has written.
    pub(super) fn send_written(&mut self, number: usize) {
        let network = Rc::clone(&self.network);
        let mut network = network.borrow_mut();
        for index in network.open_of(number).to_vec() {
            let Some(connection) = network.get(index) else {
                continue;
            };
            let bytes = connection.take_written();
            if !bytes.is_empty() {
                let arrives = self.now + self.latency();
                let arrives = arrives.max(connection.arrives_at_server);
                connection.arrives_at_server = arrives;
                let event = Event::ToServer {
                    connection: index,
                    bytes,
                };
                self.schedule(arrives, event);
            }
        }
        network.forget_closed(number);
    }

    pub(super) fn latency(&mut self) -> u64 {
        let network = self.plan.network;
        let slowest = if self.random.chance(network.late) {
            network.latest
        } else {
            network.slowest
        };
        self.random
            .between(network.fastest, slowest.max(network.fastest))
    }

    /// Returns how far the clock of the server that decides has moved forwards.
    pub(super) fn progress(&self) -> u64 {
        self.servers[self.primary].progress(self.now)
    }

    /// Returns the time of a server now.
    pub(super) fn instant(&mut self, server: usize) -> Instant {
        self.number += 1;
        Instant {
            at: self.now,
            number: self.number,
            progress: self.servers[server].progress(self.now),
            time: self.servers[server].time(self.now),
            server,
        }
    }
}

/// An operation of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) user: u8,
    pub(super) cost: u64,
    /// Of a hold: its span in microseconds, and its name.
    pub(super) span: u64,
    pub(super) name: u32,
    pub(super) began: u64,
    pub(super) is_complete: bool,
    pub(super) instance: usize,
    /// When a server decided a wait, which is not over yet, how long it is, and its number in the
    /// ledger.
    pub(super) reserved: Option<(Instant, u64, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Check,
    Peek,
    Hold,
    Wait,
    Settle,
    Renew,
    Other,
}
