//! Replays that start from the counters as they stood when a recording began.

use fluxgate_core::task::ready;
use fluxgate_core::{
    BandState, Decision, IdentityRef, Limiter, ManualClock, MemoryStore, Outcome, RequestContext,
    RuleSets, StoredIdentity, Timestamp,
};
use fluxgate_simulate::{CounterTrace, Options, RecordedDecision, Simulation};

const SECOND: u64 = 1_000_000;
/// 2026-01-01T00:00:00Z, in seconds.
const EPOCH: u64 = 1_767_225_600;

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(EPOCH * SECOND + micros).unwrap()
}

fn context(user: &str) -> RequestContext<'_> {
    RequestContext::builder().user(user).path("/x").build()
}

/// A service that has run for a while, and what it has recorded since.
struct Past {
    limiter: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
    recorded: Vec<(Timestamp, &'static str, Outcome, Option<String>)>,
}

impl Past {
    fn new(rules: &str) -> Self {
        let clock = ManualClock::default();
        let store = MemoryStore::with_clock(clock.clone());
        Self {
            limiter: Limiter::new(RuleSets::from_yaml(rules).unwrap(), store),
            clock,
            recorded: Vec::new(),
        }
    }

    fn check(&self, user: &str, now: u64) -> Decision {
        self.clock.set(at(now));
        self.limiter.check_at("api", &context(user), at(now))
    }

    /// Every user asks for `per_second` units between two times. The phases of the users differ.
    fn run(&mut self, from: u64, to: u64, per_second: u64, is_recorded: bool) {
        let gap = SECOND / per_second;
        for time in (from..to).step_by(gap as usize) {
            for (index, user) in (0..).zip(["ann", "bob", "eve"]) {
                // Not quite even, as traffic never is.
                let now = time + index * gap / 4 + time / gap * 7919 % (gap / 5);
                let decision = self.check(user, now);
                if is_recorded {
                    let rule = decision.rule().map(|rule| rule.id().to_owned());
                    let recorded = (at(now), user, decision.outcome(), rule);
                    self.recorded.push(recorded);
                }
            }
        }
        self.recorded.sort_by_key(|(at, ..)| *at);
    }

    fn decisions(&self) -> Vec<RecordedDecision<'_>> {
        let recorded = self.recorded.iter();
        recorded
            .map(|(at, user, outcome, rule)| RecordedDecision {
                at: *at,
                rule_set: "api",
                context: context(user),
                outcome: *outcome,
                rule: rule.as_deref(),
            })
            .collect()
    }

    /// Replays the record through `rules`. Returns how many were denied in reality and in the
    /// replay, and how many were decided alike.
    fn replay(&self, rules: &RuleSets, has_states: bool) -> Replayed {
        let decisions = self.decisions();
        let active = self.limiter.rules();
        let (start, now) = (decisions[0].at, decisions.last().unwrap().at);
        self.clock.set(now);
        let states = |trace: &CounterTrace| -> Option<Vec<BandState>> {
            let stored = StoredIdentity::new("api", trace.rule(), trace.identity(), |_| None);
            let identity = IdentityRef::Stored(&stored);
            let state = ready(self.limiter.state_of("api", trace.rule(), identity));
            has_states.then(|| state.unwrap())
        };
        let traces = CounterTrace::all(&active, &decisions, Timestamp::default());
        let charges = traces
            .iter()
            .flat_map(|trace| trace.start_charges(start, states(trace).as_deref(), now));
        let charges: Vec<_> = charges.collect();
        let simulation = Simulation::new(rules.clone(), Options::default());
        let mut simulation = simulation.starting_from(&active, &charges);
        let mut replayed = Replayed::default();
        for decision in decisions {
            let was_denied = decision.outcome == Outcome::Denied;
            let tried = simulation.decide_request("api", decision.context, decision.at);
            let is_denied = !tried.unwrap().allowed();
            replayed.requests += 1;
            replayed.recorded += u64::from(was_denied);
            replayed.denied += u64::from(is_denied);
            replayed.alike += u64::from(is_denied == was_denied);
        }
        replayed
    }

    fn replay_unchanged(&self) -> Replayed {
        self.replay(&self.limiter.rules(), true)
    }
}

#[derive(Debug, Default)]
struct Replayed {
    requests: u64,
    recorded: u64,
    denied: u64,
    alike: u64,
}

fn rules(fields: &str) -> String {
    format!("rule_sets: {{ api: {{ rules: [ {{ id: r, scope: per_user, {fields} }} ] }} }}")
}

/// The error that is left. Where a window slides, units of the time before the recording are taken to be
/// spread evenly, so that other requests pass, but as many.
#[track_caller]
fn assert_reproduces(name: &str, replayed: &Replayed) {
    let Replayed {
        requests,
        recorded,
        denied,
        alike,
    } = *replayed;
    assert!(recorded > requests / 10, "{name}: {replayed:?}");
    // The two counts of a sliding window cannot be told apart, so that up to a window is wrong.
    let most = if name.contains("sliding_window") {
        3
    } else {
        1
    };
    assert!(
        recorded.abs_diff(denied) * 100 <= requests * most,
        "{name}: {replayed:?}"
    );
    let least = if name.contains("sliding") { 75 } else { 96 };
    assert!(alike * 100 >= requests * least, "{name}: {replayed:?}");
}

#[test]
fn unchanged_rules_reproduce_what_was_recorded() {
    for algorithm in [
        "token_bucket",
        "leaky_bucket",
        "fixed_window",
        "sliding_log",
        "sliding_window",
    ] {
        for bands in [
            "[ 10/s ]",
            "[ 100/m ]",
            // Used up long before the recording began, and for longer than it lasts.
            "[ 1000/h ]",
            "[ { id: burst, capacity: 8, window: 1s }, { id: hour, capacity: 900, window: 1h } ]",
        ] {
            let rules = rules(&format!("algorithm: {algorithm}, bands: {bands}"));
            let mut past = Past::new(&rules);
            past.run(100 * SECOND, 500 * SECOND, 15, false);
            past.run(500 * SECOND, 680 * SECOND, 15, true);
            let replayed = past.replay_unchanged();
            assert_reproduces(&format!("{algorithm} {bands}"), &replayed);
        }
    }
}

#[test]
fn a_window_that_ends_during_the_recording_starts_as_full_as_its_denials_show() {
    let rules = rules("algorithm: fixed_window, bands: [ 300/m ]");
    let mut past = Past::new(&rules);
    // The recording begins in the middle of a minute that is used up, and ends in another.
    past.run(120 * SECOND, 150 * SECOND, 20, false);
    past.run(150 * SECOND, 200 * SECOND, 20, true);
    assert_reproduces("fixed_window", &past.replay_unchanged());
    assert_reproduces("without states", &past.replay(&past.limiter.rules(), false));
}

/// Without the state, hours of use are invisible: the first requests of the recording would pass.
#[test]
fn a_counter_that_never_denied_starts_from_its_state() {
    let text = rules("algorithm: fixed_window, bands: [ 1000/h ]");
    let mut past = Past::new(&text);
    past.run(0, 50 * SECOND, 10, false);
    past.run(50 * SECOND, 80 * SECOND, 10, true);
    let tighter = RuleSets::from_yaml(&text.replace("1000/h", "600/h")).unwrap();
    // 500 were used before, so that 100 of 300 fit.
    let replayed = past.replay(&tighter, true);
    assert_eq!(replayed.recorded, 0);
    assert!(replayed.denied.abs_diff(3 * 200) <= 6, "{replayed:?}");
    assert_eq!(past.replay(&tighter, false).denied, 0);
}

#[test]
fn other_limits_take_over_the_counters_as_a_store_does() {
    let text = rules("bands: [ 1000/h ]");
    let mut past = Past::new(&text);
    past.run(0, 60 * SECOND, 10, false);
    past.run(60 * SECOND, 90 * SECOND, 10, true);
    // 583 units of 1000 are used: the bucket of 100 is used to the same share.
    let smaller = RuleSets::from_yaml(&text.replace("1000/h", "100/h")).unwrap();
    let replayed = past.replay(&smaller, true);
    let admitted = replayed.requests - replayed.denied;
    assert!(admitted.abs_diff(3 * 43) <= 6, "{replayed:?}");
    // Another window length is another counter, which starts empty.
    let per_minute = RuleSets::from_yaml(&rules("algorithm: fixed_window, bands: [ 100/m ]"));
    let replayed = past.replay(&per_minute.unwrap(), true);
    assert_eq!(replayed.requests - replayed.denied, 300);
}

#[test]
fn shadow_rules_start_from_their_counters_too() {
    let text = rules("mode: shadow, algorithm: fixed_window, bands: [ 500/h ]");
    let mut past = Past::new(&text);
    past.run(0, 60 * SECOND, 10, false);
    past.run(60 * SECOND, 90 * SECOND, 10, true);
    let enforced = RuleSets::from_yaml(&text.replace("shadow", "enforce")).unwrap();
    let replayed = past.replay(&enforced, true);
    assert_eq!((replayed.recorded, replayed.denied), (0, replayed.requests));
}

#[test]
fn slots_and_requests_that_the_store_did_not_decide_start_nothing() {
    let rules = "
rule_sets:
  api:
    rules:
      - { id: slots, scope: per_user, algorithm: concurrency, bands: [ { capacity: 1 } ] }
      - { id: rate, scope: per_user, bands: [ 5/h ] }
";
    let rules = RuleSets::from_yaml(rules).unwrap();
    let decision = |outcome| RecordedDecision {
        at: at(0),
        rule_set: "api",
        context: context("ann"),
        outcome,
        rule: None,
    };
    let decisions = [Outcome::Fallback, Outcome::FailedOpen].map(decision);
    assert!(CounterTrace::all(&rules, &decisions, at(0)).is_empty());
    let traces = CounterTrace::all(&rules, &[decision(Outcome::Allowed)], at(0));
    let named: Vec<_> = traces.iter().map(CounterTrace::rule).collect();
    assert_eq!(named, ["rate"]);
    assert_eq!(traces[0].start_charges(at(0), None, at(1)), []);
}
