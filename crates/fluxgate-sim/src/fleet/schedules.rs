//! Tries every schedule of a few steps with two lease holders of one key and the server.
//!
//! After any steps in any order, all units that could be admitted at once must fit into the
//! limit. A state that was reached before is not continued again, so the search covers all
//! schedules of its length.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::time::Duration;

use fluxgate_core::algorithm::{Cell, LeaseRequest, Outstanding, balance_of, grant};
use fluxgate_core::lease::BandLease;
use fluxgate_core::store::{Mode, Verdict};
use fluxgate_core::{Algorithm, Lease, Limit, LimitBuilder, Percent, Timestamp};

use fluxgate_redis::lease::{GrantReply, LeaseHolder, Moment};

use super::{EPOCH, Fault};
use crate::oracle::{LimitFigures, Meter};

/// The most calls and replies on their way at once.
const MAX_CALLS: usize = 3;

/// The limit, the lease and the clocks.
struct Game {
    limit: Limit,
    lease: BandLease,
    figures: LimitFigures,
    fault: Fault,
    speeds: Speeds,
    /// The steps before the search begins.
    prelude: Vec<Step>,
}

/// How many µs each clock counts in 1,000 µs.
struct Speeds {
    holders: [u64; 2],
    server: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A request of one unit at a holder.
    Request(usize),
    /// The keeper of a holder sends its request, if one is due.
    Keep(usize),
    /// A holder returns its units.
    Return(usize),
    /// A holder crashes and starts again.
    Crash(usize),
    /// A call reaches the server, or its reply the holder.
    Deliver(usize),
    /// A call or a reply is lost.
    Lose(usize),
    /// The holder stops waiting for a call that still reaches the server.
    Abandon(usize),
    /// Other requests take what the server has left.
    Drain,
    /// This many 16ths of a lease pass.
    Wait(u64),
}

const STEPS: [Step; 19] = [
    Step::Request(0),
    Step::Request(1),
    Step::Keep(0),
    Step::Keep(1),
    Step::Return(0),
    Step::Crash(0),
    Step::Deliver(0),
    Step::Deliver(1),
    Step::Deliver(2),
    Step::Lose(0),
    Step::Lose(1),
    Step::Lose(2),
    Step::Abandon(0),
    Step::Abandon(1),
    Step::Abandon(2),
    Step::Drain,
    Step::Wait(1),
    Step::Wait(5),
    Step::Wait(15),
];

impl Step {
    /// Returns whether it needs no call, or one of the first `calls`.
    fn has_call(self, calls: usize) -> bool {
        match self {
            Self::Deliver(call) | Self::Lose(call) | Self::Abandon(call) => call < calls,
            _ => true,
        }
    }
}

#[derive(Clone, Debug)]
struct World {
    now: u64,
    cell: Option<Cell>,
    outstanding: Outstanding,
    holders: [Holder; 2],
    calls: Vec<Call>,
    /// What all have admitted.
    meter: Meter,
    overshoot: u64,
}

#[derive(Clone, Debug)]
struct Holder {
    lease: LeaseHolder,
    /// How often it has started.
    start: u32,
}

#[derive(Clone, Debug)]
struct Call {
    holder: usize,
    /// The start of the holder that waits for the reply; `None` if it does not wait.
    waiter: Option<u32>,
    /// Whether the server decides a request of one unit.
    is_request: bool,
    request: Option<LeaseRequest>,
    sent_at: u64,
    reply: Option<Reply>,
}

#[derive(Clone, Debug)]
struct Reply {
    /// The verdict on the request.
    verdict: Option<Verdict>,
    grant: Option<GrantReply>,
}

impl Game {
    fn new(limit: LimitBuilder, share: u8, millis: u64, prelude: &[Step]) -> Self {
        let limit = limit.build().unwrap();
        let lease = Lease::new(Percent::new(share), Duration::from_millis(millis));
        Self {
            lease: BandLease::new(&lease, &limit).unwrap(),
            figures: LimitFigures::of(&limit),
            limit,
            fault: Fault::None,
            // As far apart as clocks may be.
            speeds: Speeds {
                holders: [995, 1_000],
                server: 1_005,
            },
            prelude: prelude.to_vec(),
        }
    }

    /// Returns the time of a holder's clock.
    fn local(&self, holder: usize, world: &World) -> u64 {
        world.now * self.speeds.holders[holder] / 1_000
    }

    /// Returns the time of the server's clock.
    fn time(&self, world: &World) -> Timestamp {
        Timestamp::saturating_from_micros(EPOCH + world.now * self.speeds.server / 1_000)
    }

    fn start(&self) -> World {
        let holder = Holder {
            lease: LeaseHolder::new(&self.lease, 0),
            start: 0,
        };
        let mut world = World {
            now: 0,
            cell: None,
            outstanding: Outstanding::default(),
            holders: [holder.clone(), holder],
            calls: Vec::new(),
            meter: Meter::default(),
            overshoot: 0,
        };
        for step in &self.prelude {
            assert!(self.step(&mut world, *step), "{step:?}");
        }
        world
    }

    /// Takes a step. Returns `false` if it is not possible or changes nothing.
    fn step(&self, world: &mut World, step: Step) -> bool {
        match step {
            Step::Request(holder) => self.request(world, holder),
            Step::Keep(holder) => {
                let local = self.local(holder, world);
                let lease = &mut world.holders[holder].lease;
                let request = if lease.take_queued() {
                    lease.request(&self.lease, 0, local)
                } else {
                    lease.expire(local);
                    lease.due_request(&self.lease, local)
                };
                request.is_some() && self.call(world, holder, false, request)
            }
            Step::Return(holder) => {
                let local = self.local(holder, world);
                let lease = &mut world.holders[holder].lease;
                if lease.is_requesting() {
                    return false;
                }
                lease.expire(local);
                if lease.units() == 0 {
                    return false;
                }
                let request = lease.return_all(local);
                self.call(world, holder, false, Some(request))
            }
            Step::Crash(holder) => {
                let local = self.local(holder, world);
                let holder = &mut world.holders[holder];
                holder.lease = LeaseHolder::new(&self.lease, local);
                holder.start += 1;
                true
            }
            Step::Deliver(call) => {
                match world.calls[call].reply {
                    None => self.serve(world, call),
                    Some(_) => self.answer(world, call),
                }
                true
            }
            Step::Lose(call) => {
                abandon(world, call);
                world.calls.remove(call);
                true
            }
            Step::Abandon(call) => {
                let Call { reply, waiter, .. } = &world.calls[call];
                let is_on_its_way = reply.is_none() && waiter.is_some();
                abandon(world, call);
                is_on_its_way
            }
            Step::Drain => {
                let mut is_drained = false;
                while self.decide(world).passes() {
                    is_drained = true;
                }
                is_drained
            }
            Step::Wait(parts) => {
                world.now += parts * self.lease.span().get() / 16;
                true
            }
        }
    }

    fn request(&self, world: &mut World, at: usize) -> bool {
        let local = self.local(at, world);
        let lease = &mut world.holders[at].lease;
        lease.expire(local);
        if lease.units() > 0 {
            lease.spend(1, local);
            self.admit(world);
            return true;
        }
        if lease.refuse_again(1, moment(local)).is_some() {
            return false;
        }
        let request = if lease.is_busy() {
            None
        } else {
            lease.request(&self.lease, 1, local)
        };
        self.call(world, at, true, request)
    }

    fn call(
        &self,
        world: &mut World,
        holder: usize,
        is_request: bool,
        request: Option<LeaseRequest>,
    ) -> bool {
        let call = Call {
            holder,
            waiter: Some(world.holders[holder].start),
            is_request,
            request,
            sent_at: self.local(holder, world),
            reply: None,
        };
        world.calls.push(call);
        world.calls.len() <= MAX_CALLS
    }

    /// Decides a request of one unit at the server.
    fn decide(&self, world: &mut World) -> Verdict {
        let limit = match self.fault {
            Fault::SharesAll => &self.limit,
            Fault::None | Fault::ForgetsOutstanding => self.lease.shared(),
        };
        let assessed = Cell::assess(limit, world.cell, self.time(world), 1, Mode::Take);
        if let Some(cell) = assessed.to_write() {
            world.cell = Some(*cell);
        }
        if assessed.verdict.passes() {
            self.admit(world);
        }
        assessed.verdict
    }

    fn serve(&self, world: &mut World, at: usize) {
        let time = self.time(world);
        let verdict = world.calls[at].is_request.then(|| self.decide(world));
        let World {
            cell, outstanding, ..
        } = world;
        let grant = world.calls[at].request.as_ref().map(|request| {
            let (grant, after) = grant(&self.lease, *cell, outstanding, time, request);
            *cell = after;
            let balance = balance_of(self.lease.shared(), after, time);
            GrantReply { grant, balance }
        });
        if self.fault == Fault::ForgetsOutstanding {
            *outstanding = Outstanding::default();
        }
        let call = &mut world.calls[at];
        call.reply = Some(Reply { verdict, grant });
        if call.waiter.is_none() {
            world.calls.remove(at);
        }
    }

    fn answer(&self, world: &mut World, at: usize) {
        let call = world.calls.remove(at);
        let local = self.local(call.holder, world);
        let holder = &mut world.holders[call.holder];
        let Some(Reply { verdict, grant }) = call.reply else {
            return;
        };
        if call.waiter != Some(holder.start) {
            return;
        }
        let lease = &mut holder.lease;
        if let Some(reply) = &grant {
            lease.add_grant(&self.lease, call.sent_at, reply, local);
        }
        if verdict.is_some_and(|verdict| verdict.passes()) {
            lease.record_use(1, local);
        }
        if let Some(verdict) = verdict
            && !verdict.passes()
            && grant.is_some_and(|reply| reply.grant.units == 0)
        {
            let retry = verdict.retry_after;
            lease.record_refusal(&self.lease, 1, retry, moment(local));
        }
    }

    fn admit(&self, world: &mut World) {
        let time = self.time(world).micros();
        let over = world.meter.admit(&self.figures, time, 1);
        world.overshoot = world.overshoot.max(over);
    }

    /// Returns by how much the limit is exceeded if all replies arrive now, and then as many
    /// requests come to all as they can admit.
    fn overshoot(&self, world: &World) -> u64 {
        let mut world = world.clone();
        while let Some(reply) = { world.calls.iter() }.position(|call| call.reply.is_some()) {
            self.answer(&mut world, reply);
        }
        for at in [0, 1] {
            let local = self.local(at, &world);
            let lease = &mut world.holders[at].lease;
            lease.expire(local);
            for _ in 0..lease.units() {
                self.admit(&mut world);
            }
        }
        while self.decide(&mut world).passes() {}
        world.overshoot
    }

    /// Tries all schedules of this many steps. Returns the first that exceeds the limit, and the
    /// number of states.
    fn search(&self, steps: usize) -> (Option<Vec<Step>>, usize) {
        let mut seen = HashSet::new();
        // For each state the one before it, and the step that led to it.
        let mut steps_to = vec![(0, Step::Drain)];
        let mut level = vec![(self.start(), 0)];
        for _ in 0..steps {
            let mut next = Vec::new();
            for (before, number) in &level {
                for step in STEPS {
                    if !step.has_call(before.calls.len()) {
                        continue;
                    }
                    let mut world = before.clone();
                    if !self.step(&mut world, step) || !seen.insert(hash_of(&world)) {
                        continue;
                    }
                    steps_to.push((*number, step));
                    if self.overshoot(&world) > 0 {
                        return (Some(schedule(&steps_to)), seen.len());
                    }
                    next.push((world, steps_to.len() - 1));
                }
            }
            level = next;
        }
        (None, seen.len())
    }
}

/// Returns the steps to the last state.
fn schedule(steps_to: &[(usize, Step)]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = steps_to.len() - 1;
    while at > 0 {
        let (before, step) = steps_to[at];
        steps.insert(0, step);
        at = before;
    }
    steps
}

/// The holder of a call stops waiting for the reply.
fn abandon(world: &mut World, at: usize) {
    let call = &mut world.calls[at];
    let holder = &mut world.holders[call.holder];
    if call.waiter.take() == Some(holder.start) && call.request.is_some() {
        holder.lease.record_no_answer();
    }
}

fn moment(at: u64) -> Moment {
    Moment { at, generation: 0 }
}

fn hash_of(world: &World) -> u64 {
    struct Sink(DefaultHasher);

    impl fmt::Write for Sink {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }

    let mut sink = Sink(DefaultHasher::new());
    write!(sink, "{world:?}").unwrap();
    sink.0.finish()
}

/// Gives a holder units.
fn fetch(holder: usize) -> [Step; 3] {
    [Step::Request(holder), Step::Deliver(0), Step::Deliver(0)]
}

/// Returns games with few units: from the start, and with units at both holders.
fn games() -> Vec<(&'static str, Game)> {
    let bucket = |refill: u64| {
        let limit = Limit::builder(Algorithm::TokenBucket, 12, Duration::from_secs(1));
        limit.refill(refill)
    };
    let window = |millis: u64| {
        let window = Duration::from_millis(millis);
        Limit::builder(Algorithm::FixedWindow, 12, window)
    };
    // After it, the bucket is full again.
    let both = [&fetch(0)[..], &fetch(1), &[Step::Wait(5)]].concat();
    vec![
        ("slow", Game::new(bucket(1), 42, 1_000, &[])),
        ("fast", Game::new(bucket(64), 42, 1_000, &[])),
        ("fast, held", Game::new(bucket(64), 42, 1_000, &both)),
        ("window", Game::new(window(500), 42, 400, &[])),
        ("window, held", Game::new(window(500), 42, 400, &both)),
    ]
}

#[test]
fn every_schedule_of_a_few_steps_keeps_the_limit() {
    let steps = if super::tests::is_long() { 7 } else { 6 };
    for (name, game) in games() {
        let (found, states) = game.search(steps);
        println!("{name}: {states} states");
        assert_eq!(found, None, "{name}");
    }
}

/// The search detects a broken server and a slow clock.
#[test]
fn a_schedule_that_exceeds_the_limit_is_found() {
    for (name, fault, speed) in [
        ("fast, held", Fault::ForgetsOutstanding, 995),
        ("fast, held", Fault::SharesAll, 995),
        ("fast, held", Fault::None, 500),
        ("window", Fault::None, 500),
    ] {
        let mut games = games().into_iter();
        let (_, game) = games.find(|(other, _)| *other == name).unwrap();
        let game = Game {
            fault,
            speeds: Speeds {
                holders: [speed, 1_000],
                server: 1_005,
            },
            ..game
        };
        let (found, _) = game.search(6);
        assert!(found.is_some(), "{name}, {fault:?}, {speed}");
    }
}
