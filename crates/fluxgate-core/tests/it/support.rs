//! A limiter on a manual clock, and what else the tests share.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use fluxgate_core::memory::Retention;
use fluxgate_core::task::ready;
use fluxgate_core::{
    Algorithm, BandState, Decision, Limiter, ManualClock, MemoryStore, RequestContext, RuleSets,
    Timestamp,
};
use proptest::test_runner::Config;

pub(crate) const MILLI: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;

/// An instant of an ordinary year, at the start of a day.
pub(crate) const START: u64 = 20_000 * DAY;

pub(crate) const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
];

/// Their names, in the same order.
pub(crate) const NAMES: [&str; 5] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_log",
    "sliding_window",
];

pub(crate) fn name_of(algorithm: Algorithm) -> &'static str {
    let mut names = Algorithm::NAMES.iter();
    names.find(|(_, known)| *known == algorithm).unwrap().0
}

/// This many random cases, without files for those that fail.
pub(crate) fn cases(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    }
}

pub(crate) fn micros(span: Duration) -> u64 {
    span.as_micros().try_into().unwrap()
}

pub(crate) fn instant(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros).unwrap()
}

/// Returns a rule file with one set, `s`, of these rules in flow style.
pub(crate) fn set_of(rules: &str) -> String {
    format!("rule_sets: {{ s: {{ rules: [ {rules} ] }} }}")
}

/// Returns a rule file with one global rule, `r`, with this body.
pub(crate) fn global(rest: &str) -> String {
    set_of(&format!("{{ id: r, scope: global, {rest} }}"))
}

/// Returns a rule file with one rule by user, `r`, with this body.
pub(crate) fn per_user(rest: &str) -> String {
    set_of(&format!("{{ id: r, scope: per_user, {rest} }}"))
}

pub(crate) fn parse(rules: &str) -> RuleSets {
    RuleSets::from_yaml(rules).unwrap_or_else(|error| panic!("{error}\nin {rules}"))
}

/// A limiter with a rule set `s`, and its clock.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) clock: ManualClock,
    pub(crate) limiter: Limiter<MemoryStore<ManualClock>>,
}

impl Gate {
    /// Creates a limiter whose store deletes nothing.
    pub(crate) fn new(rules: &str) -> Self {
        Self::with_store(rules, 1_000_000, Retention::Forever)
    }

    pub(crate) fn with_store(rules: &str, max_keys: usize, retention: Retention) -> Self {
        let clock = ManualClock::new(instant(START));
        let store = MemoryStore::new(clock.clone(), max_keys, retention);
        Self {
            clock,
            limiter: Limiter::new(parse(rules), store),
        }
    }

    /// Sets the clock.
    pub(crate) fn at(&self, micros: u64) -> &Self {
        self.clock.set(instant(micros));
        self
    }

    pub(crate) fn check(&self, context: &RequestContext<'_>) -> Decision {
        ready(self.limiter.check("s", context))
    }

    pub(crate) fn peek(&self, context: &RequestContext<'_>) -> Decision {
        ready(self.limiter.peek("s", context))
    }

    /// Sends a request without identity.
    pub(crate) fn take(&self, cost: u64) -> Decision {
        self.check(&RequestContext::builder().cost(cost).build())
    }

    pub(crate) fn peek_units(&self, cost: u64) -> Decision {
        self.peek(&RequestContext::builder().cost(cost).build())
    }

    /// Sends a request of a user, at the rule's own cost.
    pub(crate) fn user(&self, user: &str) -> Decision {
        self.check(&RequestContext::builder().user(user).build())
    }

    /// Refunds units of the rule `r`.
    pub(crate) fn refund(&self, identity: &[&str], units: u64) -> u64 {
        ready(self.limiter.refund("s", "r", identity, units)).unwrap()
    }

    /// Returns the state of the rule `r`.
    pub(crate) fn state(&self, identity: &[&str]) -> Vec<BandState> {
        ready(self.limiter.state("s", "r", identity)).unwrap()
    }

    /// Returns what the bands of the rule `r` have left.
    pub(crate) fn left(&self, identity: &[&str]) -> Vec<u64> {
        let states = self.state(identity);
        states.iter().map(|state| state.remaining).collect()
    }

    pub(crate) fn replace(&self, rules: &str) {
        ready(self.limiter.replace_rules(parse(rules))).unwrap();
    }

    pub(crate) fn keys(&self) -> usize {
        self.limiter.store().len()
    }

    /// Returns how many of these requests at one instant pass.
    pub(crate) fn passed(&self, requests: usize, ask: impl Fn(&Self) -> Decision) -> usize {
        (0..requests).filter(|_| ask(self).allowed()).count()
    }
}

/// All fields of a decision, to compare and print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecisionFields {
    pub(crate) allowed: bool,
    pub(crate) outcome: &'static str,
    pub(crate) rule: Option<String>,
    pub(crate) band: Option<String>,
    pub(crate) limit: Option<u64>,
    pub(crate) remaining: Option<u64>,
    /// `None` is never.
    pub(crate) retry: Option<u64>,
    pub(crate) reset: u64,
    pub(crate) delay: u64,
    pub(crate) violated: Vec<String>,
}

pub(crate) fn fields(decision: &Decision) -> DecisionFields {
    DecisionFields {
        allowed: decision.allowed(),
        outcome: decision.outcome().name(),
        rule: decision.rule().map(|rule| rule.id().into()),
        band: decision.band().map(|band| band.id().into()),
        limit: decision.limit(),
        remaining: decision.remaining(),
        retry: retry(decision),
        reset: decision.reset_micros().get(),
        delay: decision.delay_micros().get(),
        violated: violated(decision),
    }
}

pub(crate) fn retry(decision: &Decision) -> Option<u64> {
    decision.retry().after().map(|wait| wait.get())
}

pub(crate) fn violated(decision: &Decision) -> Vec<String> {
    decision.violated().map(|band| band.to_string()).collect()
}

/// Runs `ask` on threads that start together. Returns how many passed.
pub(crate) fn at_once(threads: usize, ask: impl Fn() -> bool + Sync) -> usize {
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let asking: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    ask()
                })
            })
            .collect();
        let passed = asking.into_iter().map(|thread| thread.join().unwrap());
        passed.filter(|passed| *passed).count()
    })
}
