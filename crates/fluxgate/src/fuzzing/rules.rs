//! What rules promise of any bytes.

use fluxgate_core::memory::Retention;
use fluxgate_core::yaml::Position;
use fluxgate_core::{
    Decision, Limiter, ManualClock, MemoryStore, RequestContext, Retry, RuleSets, Timestamp, ready,
};

/// Some time in 2023, in the middle of every window.
const START: u64 = 1_700_000_001_234_567;

/// Of a bad file, every fault is told with its place. By a good one, decisions are
/// as they must be whatever the rules say.
pub(super) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match RuleSets::from_yaml(text) {
        Ok(rules) => decide_by(rules),
        Err(error) => {
            let places = error.0.iter().map(|fault| fault.position);
            are_inside(text, &places.collect::<Vec<_>>());
        }
    }
}

/// There is one place at least, all are in the text, and they are in order.
pub(super) fn are_inside(text: &str, places: &[Position]) {
    assert!(!places.is_empty());
    assert!(places.is_sorted(), "{places:?}");
    // A carriage return alone ends a line, too.
    let lines = text.replace("\r\n", "\n").split(['\n', '\r']).count();
    for place in places {
        assert!((1..=lines).contains(&place.line), "{place:?} of {lines}");
        assert!(place.column >= 1, "{place:?}");
    }
}

fn decide_by(rules: RuleSets) {
    // The clock goes back at the end.
    let times = [0, 0, 1, 999, 500_000, 1_000_000, 3_600_000_000, 500_000];
    let mut names: Vec<_> = rules.iter().map(|set| set.name().to_owned()).collect();
    names.sort();
    names.truncate(3);
    names.push("there is none".into());
    let clock = ManualClock::default();
    let store = MemoryStore::new(clock.clone(), usize::MAX, Retention::Forever);
    let asking = Asking {
        limiter: Limiter::new(rules, store),
        clock,
    };
    let contexts = contexts();
    for after in times {
        for name in &names {
            for context in &contexts {
                asking.ask(name, context, START + after);
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
    let dear = RequestContext::builder().user("bob").cost(7).build();
    [RequestContext::default(), all.build(), free, dear]
}

struct Asking {
    limiter: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
}

/// What there is to compare of a decision.
type Told = (bool, String, Option<u64>, Retry, u64, u64);

impl Asking {
    fn ask(&self, rule_set: &str, context: &RequestContext<'_>, at: u64) {
        let before = self.peek(rule_set, context, at);
        let decision = ready(self.limiter.check(rule_set, context));
        let decision = decision.expect("the store is in memory");
        let told = is_sound(&decision);
        assert_eq!(before.0, told.0, "a peek decides as a check does");
        if decision.allowed() {
            return;
        }
        assert_eq!(before, told);
        let after = self.peek(rule_set, context, at);
        assert_eq!(after, told, "a denial took something");
        // It passes after just that time, and not before.
        let Some(wait) = told.3.after().map(|wait| wait.get()) else {
            return;
        };
        if Timestamp::from_micros(at + wait).is_none() {
            return;
        }
        let (passes, ..) = self.peek(rule_set, context, at + wait);
        assert!(
            passes,
            "{told:?} and then {:?}",
            self.peek(rule_set, context, at + wait)
        );
        let (passes, .., delay) = self.peek(rule_set, context, at + wait - 1);
        assert!(
            !passes || delay > 0,
            "it would have passed before: {told:?}"
        );
    }

    fn peek(&self, rule_set: &str, context: &RequestContext<'_>, at: u64) -> Told {
        self.clock.set(Timestamp::saturating_from_micros(at));
        let decision = ready(self.limiter.peek(rule_set, context));
        is_sound(&decision.expect("the store is in memory"))
    }
}

fn is_sound(decision: &Decision) -> Told {
    assert!(decision.remaining() <= decision.limit() || decision.band().is_none());
    assert_eq!(decision.allowed(), decision.retry_after() == Retry::NOW);
    assert!(decision.allowed() || decision.delay().get() == 0);
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
        decision.retry_after(),
        decision.reset_after().get(),
        decision.delay().get(),
    )
}
