//! Rule files and the decisions by their rules.

use fluxgate_core::memory::Retention;
use fluxgate_core::store::Retry;
use fluxgate_core::yaml::Position;
use fluxgate_core::{
    Decision, Limiter, ManualClock, MemoryStore, RequestContext, RuleSets, Timestamp,
};

/// An instant in 2023, in the middle of every window.
const START: u64 = 1_700_000_001_234_567;

/// Loads a rule file. Every fault of an invalid file has a position in it; the rules of a
/// valid file make consistent decisions.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match RuleSets::from_yaml(text) {
        Ok(rules) => check_decisions(rules),
        Err(error) => {
            let positions = error.0.iter().map(|fault| fault.position);
            check_positions(text, &positions.collect::<Vec<_>>());
        }
    }
}

/// Checks that there are positions, and that they are in the text and in order.
pub(super) fn check_positions(text: &str, positions: &[Position]) {
    assert!(!positions.is_empty());
    assert!(positions.is_sorted(), "{positions:?}");
    // A carriage return alone also ends a line.
    let lines = text.replace("\r\n", "\n").split(['\n', '\r']).count();
    for position in positions {
        let Position { line, column } = position;
        assert!((1..=lines).contains(line), "{position:?} of {lines}");
        assert!(*column >= 1, "{position:?}");
    }
}

fn check_decisions(rules: RuleSets) {
    // The clock goes back at the end.
    let times = [0, 0, 1, 999, 500_000, 1_000_000, 3_600_000_000, 500_000];
    let mut names: Vec<_> = rules.iter().map(|set| set.name().to_owned()).collect();
    names.sort();
    names.truncate(3);
    names.push("unknown".into());
    let clock = ManualClock::default();
    let store = MemoryStore::new(clock.clone(), usize::MAX, Retention::Forever);
    let checker = Checker {
        limiter: Limiter::new(rules, store),
        clock,
    };
    let contexts = contexts();
    for after in times {
        for name in &names {
            for context in &contexts {
                checker.check(name, context, START + after);
            }
        }
    }
}

fn contexts() -> [RequestContext<'static>; 4] {
    let all = RequestContext::builder()
        .ip([203, 0, 113, 7])
        .user("ann")
        .api_key("k-1")
        .method("GET")
        .path("/api/x")
        .header("X-Plan", "free")
        .header("X-Cost", "2")
        .attribute("plan", "free")
        .attribute("tokens", "3");
    let free = all.clone().cost(0).build();
    let expensive = RequestContext::builder().user("bob").cost(7).build();
    [RequestContext::default(), all.build(), free, expensive]
}

struct Checker {
    limiter: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
}

/// The fields of a decision that are compared.
type Fields = (bool, String, Option<u64>, Retry, u64, u64);

impl Checker {
    fn check(&self, rule_set: &str, context: &RequestContext<'_>, at: u64) {
        let before = self.peek(rule_set, context, at);
        let decision = self.limiter.check_sync(rule_set, context);
        let fields = check_fields(&decision);
        assert_eq!(before.0, fields.0, "a peek decides as a check does");
        let rules = self.limiter.rules();
        let mut rules = rules.get(rule_set).into_iter().flat_map(|set| set.rules());
        // A rule with `charge: always` is charged by a denial too.
        if decision.allowed() || rules.any(|rule| rule.charges_always()) {
            return;
        }
        assert_eq!(before, fields);
        let after = self.peek(rule_set, context, at);
        assert_eq!(after, fields, "a denial charged units");
        // The request is allowed after exactly that time, and not before.
        let Some(wait) = fields.3.after().map(|wait| wait.get()) else {
            return;
        };
        if Timestamp::from_micros(at + wait).is_none() {
            return;
        }
        let (passes, ..) = self.peek(rule_set, context, at + wait);
        assert!(
            passes,
            "{fields:?} and then {:?}",
            self.peek(rule_set, context, at + wait)
        );
        let (passes, .., delay) = self.peek(rule_set, context, at + wait - 1);
        assert!(
            !passes || delay > 0,
            "it would have passed before: {fields:?}"
        );
    }

    fn peek(&self, rule_set: &str, context: &RequestContext<'_>, at: u64) -> Fields {
        self.clock.set(Timestamp::saturating_from_micros(at));
        let decision = self.limiter.peek_sync(rule_set, context);
        check_fields(&decision)
    }
}

fn check_fields(decision: &Decision) -> Fields {
    assert!(decision.remaining() <= decision.limit() || decision.band().is_none());
    assert_eq!(decision.allowed(), decision.retry() == Retry::NOW);
    assert!(decision.allowed() || decision.delay_micros().get() == 0);
    (
        decision.allowed(),
        format!(
            "{:?} of {:?}",
            decision.outcome(),
            decision
                .violated()
                .map(|it| it.to_string())
                .collect::<Vec<_>>()
        ),
        decision.remaining(),
        decision.retry(),
        decision.reset_micros().get(),
        decision.delay_micros().get(),
    )
}
