//! Runs a plan: instances, servers and the network between them, on one thread and in virtual
//! time.
//!
//! An instance runs the real limiter and store on a Tokio runtime of its own, whose clock stands
//! still until the world moves it. It runs when something happens to it, until it waits again.
//! So a pause is a time in which the world does not let it run, and a crash drops its runtime with
//! all its tasks. Everything happens in the order of one queue, and every random choice comes
//! from the seed of the plan: equal plans give equal traces.

mod faults;
mod process;
mod state;
mod steps;
mod wire;

use crate::plan::Plan;
use crate::redis::Interpreter;
use crate::trace::Trace;
use process::user_name;
pub use state::Report;
use state::{Event, World};

/// Runs a plan, and keeps the lines of its trace if `keeps_trace`.
pub(crate) fn run(plan: &Plan, interpreter: &mut Interpreter, keeps_trace: bool) -> Report {
    let mut world = World::new(plan, interpreter, Trace::new(keeps_trace));
    world.run();
    world.finish()
}

impl World<'_> {
    fn run(&mut self) {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            if at > self.plan.end {
                break;
            }
            self.now = at;
            self.happen(event);
        }
        self.now = self.plan.end;
    }

    fn finish(mut self) -> Report {
        for operation in self.operations.iter().filter(|it| !it.is_complete) {
            self.history.end(operation.began);
        }
        let found = self.report.violation.take();
        let found = found.or_else(|| self.ledger.violation());
        self.report.violation = found.or_else(|| self.history.violation(&self.rules, user_name));
        self.report.calls = self.servers.iter().map(|server| server.calls).sum();
        self.report.trace_hash = self.trace.hash();
        self.report.trace = self.trace.into_lines();
        self.report
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Step(index) => self.step(index),
            Event::ToServer { connection, bytes } => self.reach_server(connection, bytes),
            Event::ToClient {
                connection,
                bytes,
                decided,
            } => self.reach_client(connection, bytes, decided),
            Event::Tick { instance, tick } => self.tick(instance, tick),
            Event::Accept { server, condition } => {
                self.servers[server]
                    .conditions
                    .retain(|it| *it != condition);
                self.trace.record(
                    self.now,
                    format_args!("server {server} accepts commands again"),
                );
            }
            Event::Learn {
                sentinel,
                primary,
                epoch,
            } => self.learn(sentinel, primary, epoch),
            Event::Demote { server } => self.demote(server),
            Event::MoveKeys { slot, to, pause } => self.move_keys(slot, to, pause),
        }
    }
}
