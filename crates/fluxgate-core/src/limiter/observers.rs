//! The observers of a limiter.

use crate::decision::Decision;
use crate::observer::{Observer, Stopwatch};

/// The observers of a limiter.
#[derive(Debug, Default)]
pub(super) struct Observers {
    list: Vec<Box<dyn Observer>>,
    /// Whether any of them receives decisions, which are timed for it.
    receive_decisions: bool,
}

impl Observers {
    /// Adds an observer of everything.
    pub(super) fn add(&mut self, observer: impl Observer + 'static) {
        self.add_without_decisions(observer);
        self.receive_decisions = true;
    }

    /// Adds an observer that needs no decisions. If no other does, they are not timed.
    pub(super) fn add_without_decisions(&mut self, observer: impl Observer + 'static) {
        self.list.push(Box::new(observer));
    }

    pub(super) fn each(&self, observe: impl Fn(&dyn Observer)) {
        for observer in &self.list {
            observe(&**observer);
        }
    }

    pub(super) fn start_timing(&self) -> Option<Stopwatch> {
        self.receive_decisions.then(Stopwatch::start)
    }

    /// Reports a decision, if it was timed.
    pub(super) fn decided(&self, decision: &Decision, started: Option<Stopwatch>) {
        let Some(started) = started else { return };
        let took = started.elapsed();
        self.each(|observer| observer.decided(decision, took));
    }

    /// Reports why a denied request was not allowed to wait, if its rules let requests wait.
    pub(super) fn wait_refused(&self, decision: &Decision) {
        if decision.allowed() || self.list.is_empty() {
            return;
        }
        if let Some(refusal) = decision.wait_refusal() {
            self.each(|observer| observer.wait_refused(decision, refusal));
        }
    }

    /// Passes the name of a missing rule set on. Returns whether an observer has reported it.
    pub(super) fn rule_set_missing(&self, name: &str) -> bool {
        let mut is_reported = false;
        for observer in &self.list {
            is_reported |= observer.rule_set_missing(name);
        }
        is_reported
    }
}
