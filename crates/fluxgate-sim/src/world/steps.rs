//! What clients and operators do, and what it comes to.

use fluxgate_core::{Outcome, StoreError};

use super::process::{Answer, Completion, Process};
use super::state::{Event, Kind, Operation, World};
use crate::ledger::{Admission, Instant, Return};
use crate::plan::Step;
use crate::reference::{Answered, Asked, decision_text};

impl World<'_> {
    /// Does a step of the plan.
    pub(super) fn step(&mut self, index: usize) {
        let (_, step) = &self.plan.steps[index];
        let step = step.clone();
        if let Some(instance) = step.client_of() {
            let state = &self.instances[instance];
            if state.process.is_none() {
                return;
            }
            if state.paused_until > self.now {
                // A client waits until the instance reads its request.
                return self.schedule(state.paused_until, Event::Step(index));
            }
        }
        match step {
            Step::Check {
                instance,
                user,
                cost,
                times,
            } => {
                let first = self.operations.len();
                for _ in 0..times {
                    self.add(instance, Kind::Check, user, cost);
                }
                self.with(instance, |process| process.check(first, times, user, cost));
            }
            Step::Peek {
                instance,
                user,
                cost,
            } => {
                let operation = self.add(instance, Kind::Peek, user, cost);
                self.with(instance, |process| process.peek(operation, user, cost));
            }
            Step::Hold {
                instance,
                user,
                cost,
                span,
                name,
            } => {
                let operation = self.add(instance, Kind::Hold, user, cost);
                self.operations[operation].span = span;
                self.operations[operation].name = name;
                self.with(instance, |process| {
                    process.hold(operation, user, cost, span);
                });
            }
            Step::Settle {
                instance,
                name,
                cost,
            } => self.settle(instance, name, cost),
            Step::Release { instance, name } => self.settle(instance, name, 0),
            Step::Renew {
                instance,
                name,
                span,
            } => {
                let Some((hold, _)) = self.holds.get(&name).copied() else {
                    return;
                };
                let operation = self.add(instance, Kind::Renew, 0, 0);
                self.operations[operation].span = span;
                self.operations[operation].name = name;
                self.with(instance, |process| process.renew(operation, hold, span));
            }
            Step::Wait {
                instance,
                user,
                cost,
                patience,
            } => {
                let operation = self.add(instance, Kind::Wait, user, cost);
                self.with(instance, |process| {
                    process.wait(operation, user, cost, patience);
                });
            }
            Step::Refund {
                instance,
                user,
                units,
            } => {
                let progress = self.progress();
                self.ledger.give_back(progress, Return::Units(user, units));
                let operation = self.add(instance, Kind::Other, user, units);
                self.with(instance, |process| {
                    process.administer(operation, user, Some(units));
                });
            }
            Step::Reset { instance, user } => {
                let progress = self.progress();
                self.ledger.give_back(progress, Return::User(user));
                let operation = self.add(instance, Kind::Other, user, 0);
                self.with(instance, |process| {
                    process.administer(operation, user, None);
                });
            }
            fault => self.fault(&fault),
        }
    }

    fn settle(&mut self, instance: usize, name: u32, cost: u64) {
        let hold = match self.holds.remove(&name) {
            Some((hold, admission)) => {
                // From now on the client uses neither the slots nor what it gives back.
                let progress = self.progress();
                self.ledger.settle(admission, cost, progress);
                self.settled.insert(name, hold);
                hold
            }
            // Again: it must change nothing.
            None => match self.settled.get(&name) {
                Some(hold) => *hold,
                None => return,
            },
        };
        let operation = self.add(instance, Kind::Settle, 0, cost);
        self.operations[operation].name = name;
        self.with(instance, |process| process.settle(operation, hold, cost));
    }

    /// A request waits no more.
    fn end_wait(&mut self, operation: usize) {
        if let Some((_, _, wait)) = self.operations[operation].reserved {
            let progress = self.progress();
            self.ledger.end_wait(wait, progress);
        }
    }

    /// The requests of an instance that has ended wait no more.
    pub(super) fn end_waits(&mut self, instance: usize) {
        for operation in 0..self.operations.len() {
            if self.operations[operation].instance == instance {
                self.end_wait(operation);
            }
        }
    }

    pub(super) fn add_stop(&mut self, instance: usize) -> usize {
        self.add(instance, Kind::Other, 0, 0)
    }

    fn add(&mut self, instance: usize, kind: Kind, user: u8, cost: u64) -> usize {
        self.instances[instance].waiting += 1;
        self.operations.push(Operation {
            kind,
            user,
            cost,
            span: 0,
            name: 0,
            began: self.now,
            is_complete: false,
            instance,
            reserved: None,
        });
        self.operations.len() - 1
    }

    /// Gives an instance something to do, and lets it run.
    pub(super) fn with(&mut self, instance: usize, work: impl FnOnce(&Process)) {
        if let Some(process) = &self.instances[instance].process {
            work(process);
            self.hasten(instance);
            if self.instances[instance].paused_until <= self.now {
                self.let_run(instance, None);
            }
        }
    }

    /// Records what an operation came to.
    pub(super) fn complete(
        &mut self,
        instance: usize,
        completion: Completion,
        arrived: Option<Instant>,
    ) {
        let Completion {
            operation: number,
            version,
            is_local,
            answer,
        } = completion;
        let operation = self.operations[number];
        self.operations[number].is_complete = true;
        let is_open = matches!(answer, Answer::Reserved(_));
        if !is_open {
            let waiting = &mut self.instances[instance].waiting;
            *waiting = waiting.saturating_sub(1);
        }
        // What did not wait for anything was decided here and now; what fails has no decision.
        let decided = if is_local || arrived.is_none() {
            self.instant(self.primary)
        } else {
            arrived.unwrap_or_default()
        };
        let asked = match operation.kind {
            Kind::Check | Kind::Wait => Some(Asked::Check),
            Kind::Peek => Some(Asked::Peek),
            Kind::Hold => Some(Asked::Hold(operation.span, operation.name)),
            Kind::Settle => Some(Asked::Settle(operation.name, operation.cost)),
            Kind::Renew => Some(Asked::Renew(operation.name, operation.span)),
            Kind::Other => None,
        };
        let text = match &answer {
            Answer::Decision(decision) if decision.outcome().is_store_failure() => None,
            Answer::Decision(decision) | Answer::Reserved(decision) => {
                Some(decision_text(decision))
            }
            Answer::Settled(Ok(settled)) => Some(format!("{:?}", Ok::<_, StoreError>(*settled))),
            Answer::Renewed(Ok(renewed)) => Some(format!("{:?}", Ok::<_, StoreError>(*renewed))),
            _ => None,
        };
        match (asked, text) {
            // By a denial from before, which the instance remembers.
            (Some(_), Some(_)) if is_local => {}
            (Some(asked), Some(answer)) => self.history.add(Answered {
                decided,
                version,
                asked,
                user: operation.user,
                cost: operation.cost,
                answer,
            }),
            _ if matches!(answer, Answer::WentOn) => {}
            // Its units return at some time from now on.
            _ if operation.reserved.is_some() => self.history.end(self.now),
            _ => self.history.end(operation.began),
        }
        let from = if is_local { "itself" } else { "the store" };
        match answer {
            Answer::Decision(decision) => {
                let outcome = decision.outcome();
                self.trace.record(
                    self.now,
                    format_args!(
                        "instance {instance} {:?} of user {} cost {}: {} by {from}, {:?} left, retry {:?}, delay {:?}",
                        operation.kind,
                        operation.user,
                        operation.cost,
                        outcome.name(),
                        decision.remaining(),
                        decision.retry_after(),
                        decision.delay(),
                    ),
                );
                self.report.decisions += 1;
                self.report.local += u64::from(is_local);
                self.report.failed += u64::from(outcome.is_store_failure());
                let charges = matches!(outcome, Outcome::Allowed | Outcome::ShadowDenied);
                if !charges || operation.kind == Kind::Peek {
                    return;
                }
                assert!(
                    is_local || arrived.is_some(),
                    "a decision of a server came without a reply"
                );
                self.report.allowed += 1;
                self.check_primary(instance, decided);
                let held = decision.hold_span().get();
                self.ledger.admit(Admission {
                    decided,
                    delay: decision.delay_micros().get(),
                    user: operation.user,
                    charged: operation.cost,
                    cost: operation.cost,
                    slots: operation.cost,
                    version,
                    held,
                });
                // Slots of other requests expire.
                if let Some(hold) = decision.hold().filter(|_| operation.kind == Kind::Hold) {
                    let admission = self.ledger.last();
                    self.holds.insert(operation.name, (hold, admission));
                }
            }
            Answer::Reserved(decision) => {
                let delay = decision.delay_micros().get();
                self.trace.record(
                    self.now,
                    format_args!(
                        "instance {instance} user {} cost {} may go on in {delay}",
                        operation.user, operation.cost
                    ),
                );
                self.report.decisions += 1;
                let wait = self.ledger.begin_wait(decided, delay);
                self.operations[number].reserved = Some((decided, delay, wait));
            }
            Answer::WentOn => {
                self.trace.record(
                    self.now,
                    format_args!("instance {instance} user {} went on", operation.user),
                );
                // Its clock may be ahead of the server's.
                self.end_wait(number);
                if let Some((decided, delay, _)) = operation.reserved {
                    self.report.allowed += 1;
                    self.ledger.admit(Admission {
                        decided,
                        delay,
                        user: operation.user,
                        charged: operation.cost,
                        cost: operation.cost,
                        slots: operation.cost,
                        version,
                        held: 0,
                    });
                }
            }
            Answer::GaveUp => {
                self.trace.record(
                    self.now,
                    format_args!("instance {instance} user {} gave up", operation.user),
                );
                self.end_wait(number);
            }
            Answer::Settled(settled) => self.trace.record(
                self.now,
                format_args!("instance {instance} settled: {settled:?}"),
            ),
            Answer::Renewed(renewed) => {
                self.trace.record(
                    self.now,
                    format_args!(
                        "instance {instance} renewed {}: {renewed:?}",
                        operation.name
                    ),
                );
                if renewed == Ok(true)
                    && let Some((_, admission)) = self.holds.get(&operation.name)
                {
                    self.ledger
                        .extend(*admission, decided.progress, operation.span);
                }
            }
            Answer::Administered(done) => self.trace.record(
                self.now,
                format_args!("instance {instance} administered: {:?}", done.is_ok()),
            ),
            Answer::Stopped => self.end(instance, "stopped"),
        }
    }
}

impl Step {
    /// Returns the instance that a client or operator calls.
    fn client_of(&self) -> Option<usize> {
        match self {
            Self::Check { instance, .. }
            | Self::Peek { instance, .. }
            | Self::Hold { instance, .. }
            | Self::Settle { instance, .. }
            | Self::Release { instance, .. }
            | Self::Renew { instance, .. }
            | Self::Wait { instance, .. }
            | Self::Refund { instance, .. }
            | Self::Reset { instance, .. } => Some(*instance),
            _ => None,
        }
    }
}
