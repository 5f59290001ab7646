//! Every schedule of a few steps: two holders of leases of one key, and the server.
//!
//! Whatever happens in whatever order, all units that could be admitted at once afterwards
//! must fit into the limit. States that were seen before are not continued again, so the
//! search covers all schedules of its length.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::time::Duration;

use fluxgate_core::internals::BandLease;
use fluxgate_core::internals::algorithm::{Ask, Cell, Grant, Outstanding, grant, rest};
use fluxgate_core::store::{Mode, Verdict};
use fluxgate_core::{Algorithm, Lease, Limit, LimitBuilder, Percent, Timestamp};

use super::oracle::{Figures, Meter};
use super::{EPOCH, Fault};
use crate::leases::kept_lease::KeptLease;

/// The most calls and replies on their way at once.
const MAX_CALLS: usize = 3;

/// What the holders and the server have in common.
struct Game {
    limit: Limit,
    lease: BandLease,
    figures: Figures,
    fault: Fault,
    /// What the clocks of the holders and of the server show of each 1,000 µs.
    speeds: ([u64; 2], u64),
    /// The steps before the search begins.
    prelude: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A request of one unit at a holder.
    Request(usize),
    /// The keeper of a holder asks, if something is due.
    Keep(usize),
    /// A holder gives back its units.
    GiveBack(usize),
    /// A holder crashes and starts again.
    Crash(usize),
    /// A call reaches the server, or its reply the holder.
    Deliver(usize),
    /// A call or a reply is lost.
    Lose(usize),
    /// The holder stops waiting for a call that still reaches the server.
    GiveUp(usize),
    /// Other requests take what the server has left.
    Drain,
    /// So many 16ths of a lease pass.
    Wait(u64),
}

const STEPS: [Step; 19] = [
    Step::Request(0),
    Step::Request(1),
    Step::Keep(0),
    Step::Keep(1),
    Step::GiveBack(0),
    Step::Crash(0),
    Step::Deliver(0),
    Step::Deliver(1),
    Step::Deliver(2),
    Step::Lose(0),
    Step::Lose(1),
    Step::Lose(2),
    Step::GiveUp(0),
    Step::GiveUp(1),
    Step::GiveUp(2),
    Step::Drain,
    Step::Wait(1),
    Step::Wait(5),
    Step::Wait(15),
];

impl Step {
    /// Returns whether it is about none of the calls, or about one of so many.
    fn has_call(self, calls: usize) -> bool {
        match self {
            Self::Deliver(call) | Self::Lose(call) | Self::GiveUp(call) => call < calls,
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
    kept: KeptLease,
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
    ask: Option<Ask>,
    asked_at: u64,
    reply: Option<Reply>,
}

#[derive(Clone, Debug)]
struct Reply {
    /// The verdict on the request.
    verdict: Option<Verdict>,
    /// The answer to the ask, and what is left.
    granted: Option<(Grant, Verdict)>,
}

impl Game {
    fn new(limit: LimitBuilder, share: u8, millis: u64, prelude: &[Step]) -> Self {
        let limit = limit.build().unwrap();
        let lease = Lease::new(Percent::new(share), Duration::from_millis(millis));
        Self {
            lease: BandLease::new(&lease, &limit).unwrap(),
            figures: Figures::of(&limit),
            limit,
            fault: Fault::None,
            // As far apart as clocks may be.
            speeds: ([995, 1_000], 1_005),
            prelude: prelude.to_vec(),
        }
    }

    fn local(&self, holder: usize, world: &World) -> u64 {
        world.now * self.speeds.0[holder] / 1_000
    }

    fn time(&self, world: &World) -> Timestamp {
        Timestamp::saturating_from_micros(EPOCH + world.now * self.speeds.1 / 1_000)
    }

    fn start(&self) -> World {
        let holder = Holder {
            kept: KeptLease::new(&self.lease, 0),
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

    /// Does a step. Returns `false` if it is not possible or changes nothing.
    fn step(&self, world: &mut World, step: Step) -> bool {
        match step {
            Step::Request(holder) => self.request(world, holder),
            Step::Keep(holder) => {
                let local = self.local(holder, world);
                let kept = &mut world.holders[holder].kept;
                let ask = if kept.take_queued() {
                    kept.ask(&self.lease, 0, local)
                } else {
                    kept.available(local, &mut 0);
                    kept.due(&self.lease, local)
                };
                ask.is_some() && self.call(world, holder, false, ask)
            }
            Step::GiveBack(holder) => {
                let local = self.local(holder, world);
                let kept = &mut world.holders[holder].kept;
                if kept.is_asking() || kept.available(local, &mut 0) == 0 {
                    return false;
                }
                let ask = kept.return_all(local);
                self.call(world, holder, false, Some(ask))
            }
            Step::Crash(holder) => {
                let local = self.local(holder, world);
                let holder = &mut world.holders[holder];
                holder.kept = KeptLease::new(&self.lease, local);
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
                give_up(world, call);
                world.calls.remove(call);
                true
            }
            Step::GiveUp(call) => {
                let Call { reply, waiter, .. } = &world.calls[call];
                let is_on_its_way = reply.is_none() && waiter.is_some();
                give_up(world, call);
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
        let kept = &mut world.holders[at].kept;
        if kept.available(local, &mut 0) > 0 {
            kept.spend(1, local);
            self.admit(world);
            return true;
        }
        if kept.refusal(1, 0, local).is_some() {
            return false;
        }
        let ask = if kept.is_busy() {
            None
        } else {
            kept.ask(&self.lease, 1, local)
        };
        self.call(world, at, true, ask)
    }

    fn call(&self, world: &mut World, holder: usize, is_request: bool, ask: Option<Ask>) -> bool {
        let call = Call {
            holder,
            waiter: Some(world.holders[holder].start),
            is_request,
            ask,
            asked_at: self.local(holder, world),
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
        let granted = world.calls[at].ask.as_ref().map(|ask| {
            let (granted, after) = grant(&self.lease, *cell, outstanding, time, ask);
            *cell = after;
            (granted, rest(self.lease.shared(), after, time))
        });
        if self.fault == Fault::ForgetsOutstanding {
            *outstanding = Outstanding::default();
        }
        let call = &mut world.calls[at];
        call.reply = Some(Reply { verdict, granted });
        if call.waiter.is_none() {
            world.calls.remove(at);
        }
    }

    fn answer(&self, world: &mut World, at: usize) {
        let call = world.calls.remove(at);
        let local = self.local(call.holder, world);
        let holder = &mut world.holders[call.holder];
        let Some(Reply { verdict, granted }) = call.reply else {
            return;
        };
        if call.waiter != Some(holder.start) {
            return;
        }
        if let Some((grant, rest)) = &granted {
            let kept = &mut holder.kept;
            kept.granted(&self.lease, call.asked_at, grant, rest, local);
        }
        if verdict.is_some_and(|verdict| verdict.passes()) {
            holder.kept.used(1, local);
        }
        if let Some(verdict) = verdict
            && !verdict.passes()
            && granted.is_some_and(|(grant, _)| grant.units == 0)
        {
            let retry = verdict.retry_after;
            holder.kept.refuse(&self.lease, 1, retry, 0, local);
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
            let available = world.holders[at].kept.available(local, &mut 0);
            for _ in 0..available {
                self.admit(&mut world);
            }
        }
        while self.decide(&mut world).passes() {}
        world.overshoot
    }

    /// Tries all schedules of so many steps. Returns the first that exceeds the limit, and how
    /// many states there were.
    fn search(&self, steps: usize) -> (Option<Vec<Step>>, usize) {
        let mut seen = HashSet::new();
        // The step to each state, and the state before it.
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
fn give_up(world: &mut World, at: usize) {
    let call = &mut world.calls[at];
    let holder = &mut world.holders[call.holder];
    if call.waiter.take() == Some(holder.start) && call.ask.is_some() {
        holder.kept.unanswered();
    }
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

/// Returns limits of few units, each with nothing done before, and with units at both holders.
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
    let steps = if super::tests::has_time() { 7 } else { 6 };
    for (name, game) in games() {
        let (found, states) = game.search(steps);
        println!("{name}: {states} states");
        assert_eq!(found, None, "{name}");
    }
}

/// The search finds what a broken server or a slow clock does.
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
            speeds: ([speed, 1_000], 1_005),
            ..game
        };
        let (found, _) = game.search(6);
        assert!(found.is_some(), "{name}, {fault:?}, {speed}");
    }
}
