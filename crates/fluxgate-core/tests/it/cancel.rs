//! Reservations that are cancelled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fluxgate_core::memory::Retention;
use fluxgate_core::store::{
    Charged, Checks, HoldId, Micros, Mode, Reason, Settled, Settlement, Subject, Timestamp,
    Verdicts,
};
use fluxgate_core::task::ready;
use fluxgate_core::{
    Band, Decision, Limiter, ManualClock, MemoryStore, Outcome, RequestContext, Store, StoreError,
};
use proptest::prelude::*;

use crate::support::{Gate, SECOND, START, cases, fields, micros, parse, retry, set_of};

const WAITS: &str = "on_exceed: wait, max_wait: 5s";

fn cancel(gate: &Gate, context: &RequestContext<'_>, decision: &Decision) {
    let charge = decision.charge(context).unwrap();
    ready(gate.limiter.cancel(charge)).unwrap();
}

#[test]
fn a_cancelled_reservation_leaves_no_trace() {
    let rules = set_of(&format!(
        "{{ id: r, scope: per_user, {WAITS}, bands: [ {{ id: a, capacity: 3, window: 3s }}, {{ id: b, capacity: 100, window: 1h }} ] }}, \
         {{ id: others, scope: global, algorithm: sliding_log, bands: [ {{ capacity: 50, window: 1m }} ] }}, \
         {{ id: window, scope: per_ip, algorithm: fixed_window, bands: [ {{ capacity: 50, window: 1m }} ] }}, \
         {{ id: sliding, scope: global, algorithm: sliding_window, bands: [ {{ capacity: 50, window: 1m }} ] }}, \
         {{ id: leaky, key: [\"header:x-a\", \"attr:b\"], algorithm: leaky_bucket, bands: [ {{ capacity: 50, window: 1m }} ] }}, \
         {{ id: dark, mode: shadow, scope: per_user, bands: [ {{ capacity: 50, window: 1h }} ] }}"
    ));
    let gate = Gate::new(&rules);
    let context = |cost| {
        let context = RequestContext::builder().user("u").ip([10, 0, 0, 1]);
        let context = context.header("X-A", "1").attribute("b", "2").cost(cost);
        context.build()
    };
    for _ in 0..3 {
        assert!(gate.check(&context(1)).allowed());
    }
    let states = || {
        let of = |rule, identity: &[&str]| {
            let states = ready(gate.limiter.state("s", rule, identity)).unwrap();
            let states = states.iter();
            states
                .map(|state| (state.remaining, state.reset_after))
                .collect::<Vec<_>>()
        };
        [
            of("r", &["u"]),
            of("others", &[]),
            of("window", &["10.0.0.1"]),
            of("sliding", &[]),
            of("leaky", &["1", "2"]),
            of("dark", &["u"]),
        ]
    };
    let before = (fields(&gate.peek(&context(1))), states());
    let reserved = gate.check(&context(2));
    assert!(reserved.allowed());
    assert_eq!(reserved.delay_micros(), Micros::new(2 * SECOND));
    assert_ne!((fields(&gate.peek(&context(1))), states()), before);
    cancel(&gate, &context(2), &reserved);
    assert_eq!((fields(&gate.peek(&context(1))), states()), before);
}

/// A rule without waiting that is charged together with one that delays the request.
fn companion(algorithm: &str) -> (Gate, RequestContext<'static>, Decision) {
    let rules = set_of(&format!(
        "{{ id: r, scope: global, {WAITS}, bands: [ {{ capacity: 2, window: 4s }} ] }}, \
         {{ id: c, scope: global, algorithm: {algorithm}, bands: [ {{ capacity: 10, window: 10s }} ] }}"
    ));
    let gate = Gate::new(&rules);
    // A second before a window ends.
    gate.at(START + 9 * SECOND);
    let context = RequestContext::builder().cost(2).build();
    assert_eq!(gate.check(&context).delay_micros(), Micros::ZERO);
    let reserved = gate.check(&context);
    assert_eq!(reserved.delay_micros().get(), 4 * SECOND);
    (gate, context, reserved)
}

/// Returns what the companion has left before and after a request of two units is
/// cancelled, after this wait and with other requests in between.
fn companion_left(algorithm: &str, waited: u64) -> (u64, u64) {
    let (gate, context, reserved) = companion(algorithm);
    gate.at(START + 9 * SECOND + waited);
    let others = ready(gate.limiter.consume("s", "c", &[], Some(3))).unwrap();
    assert!(others.allowed());
    let left = || ready(gate.limiter.state("s", "c", &[])).unwrap()[0].remaining;
    let before = left();
    cancel(&gate, &context, &reserved);
    // The bucket that delayed it owes nothing for it any more.
    let owed = ready(gate.limiter.state("s", "r", &[])).unwrap()[0].reset_after;
    assert_eq!(micros(owed), 4 * SECOND - waited, "{algorithm}");
    (before, left())
}

#[test]
fn expired_units_are_not_returned_again() {
    for (algorithm, back) in [("fixed_window", 0), ("sliding_window", 2)] {
        let (before, after) = companion_left(algorithm, SECOND / 2);
        assert_eq!(after, before + 2, "{algorithm}: the window still holds it");
        // In the next window, a fixed one counts only the units of others; a sliding
        // one still counts it as the previous window.
        let (before, after) = companion_left(algorithm, SECOND + 1);
        assert_eq!(after, before + back, "{algorithm}: another window");
    }
    let (before, after) = companion_left("sliding_log", 3 * SECOND);
    assert_eq!(after, before + 2);
    // Other requests took three units since.
    let (before, after) = companion_left("token_bucket", SECOND);
    assert_eq!(after, before);
}

#[test]
fn refilled_units_are_not_returned_again() {
    // It owes four units, a second each; the request's from the third second on.
    for (waited, reset) in [(0, 2), (SECOND, 1), (2 * SECOND + SECOND / 2, 0)] {
        let (gate, context, reserved) = companion("token_bucket");
        gate.at(START + 9 * SECOND + waited);
        cancel(&gate, &context, &reserved);
        let state = ready(gate.limiter.state("s", "c", &[])).unwrap();
        let reset = reset * SECOND;
        assert_eq!(micros(state[0].reset_after), reset, "after {waited} µs");
    }
    let (gate, context, reserved) = companion("token_bucket");
    gate.at(START + 12 * SECOND + SECOND / 2);
    // After 3.5 s another request finds 9.5 units and takes one.
    assert!(
        ready(gate.limiter.consume("s", "c", &[], None))
            .unwrap()
            .allowed()
    );
    cancel(&gate, &context, &reserved);
    // Without the request, the bucket would have been full after two seconds, and
    // then lost one unit.
    let state = ready(gate.limiter.state("s", "c", &[])).unwrap();
    assert_eq!(micros(state[0].reset_after), SECOND);
}

#[test]
fn a_log_shorter_than_the_wait_gets_no_units_back() {
    let rules = set_of(&format!(
        "{{ id: r, scope: global, {WAITS}, bands: [ {{ capacity: 1, window: 4s }} ] }}, \
         {{ id: c, scope: global, algorithm: sliding_log, bands: [ {{ capacity: 2, window: 1s }} ] }}"
    ));
    let gate = Gate::new(&rules);
    let context = RequestContext::default();
    assert!(gate.check(&context).allowed());
    let reserved = gate.check(&context);
    gate.at(START + 2 * SECOND);
    assert!(
        ready(gate.limiter.consume("s", "c", &[], Some(2)))
            .unwrap()
            .allowed()
    );
    cancel(&gate, &context, &reserved);
    assert!(
        !ready(gate.limiter.consume("s", "c", &[], None))
            .unwrap()
            .allowed()
    );
}

#[test]
fn the_last_in_the_queue_returns_everything() {
    let rules = set_of(&format!(
        "{{ id: r, scope: global, {WAITS}, bands: [ {{ capacity: 1, window: 1s }} ] }}"
    ));
    let gate = Gate::new(&rules);
    let context = RequestContext::default();
    let delays: Vec<_> = (0..3).map(|_| gate.check(&context)).collect();
    let micros = |decision: &Decision| decision.delay_micros().get();
    assert_eq!(
        delays.iter().map(micros).collect::<Vec<_>>(),
        [0, SECOND, 2 * SECOND]
    );
    cancel(&gate, &context, &delays[2]);
    assert_eq!(micros(&gate.check(&context)), 2 * SECOND);
}

#[test]
fn units_that_later_reservations_were_queued_behind_do_not_return() {
    let rules = set_of(
        "{ id: r, scope: global, on_exceed: wait, max_wait: 1m, bands: [ { capacity: 5, window: 5s } ] }",
    );
    let cost = |units| RequestContext::builder().cost(units).build();
    for (reserved, later, delay) in [
        // No request came since: a new one gets its instant.
        (3, 0, 1),
        // One unit was reserved after the two: one returns, and not the other.
        (2, 1, 3),
        // As many or more were reserved: nothing returns.
        (2, 2, 5),
        (1, 3, 5),
    ] {
        let gate = Gate::new(&rules);
        assert_eq!(gate.check(&cost(5)).delay_micros().get(), 0);
        let first = gate.check(&cost(reserved));
        assert_eq!(first.delay_micros().get(), reserved * SECOND);
        if later > 0 {
            let _ = gate.check(&cost(later));
        }
        cancel(&gate, &cost(reserved), &first);
        let newcomer = gate.check(&cost(1)).delay_micros().get();
        assert_eq!(newcomer, delay * SECOND, "{later} behind {reserved}");
    }
}

/// A partial return moves the bucket's instant before those of later reservations. If
/// one of these is cancelled then, others are behind it that the instant no longer
/// shows.
#[test]
fn returned_units_do_not_hide_later_reservations() {
    let rules = set_of(
        "{ id: r, scope: global, on_exceed: wait, max_wait: 9s, bands: [ { capacity: 4, window: 4s } ] }",
    );
    let gate = Gate::new(&rules);
    let take = |seconds: u64, cost: u64| {
        let context = RequestContext::builder().cost(cost).build();
        let decision = gate.at(START + seconds * SECOND).check(&context);
        assert!(decision.allowed());
        (context, decision)
    };
    let _ = take(0, 2);
    let second = take(1, 4);
    let third = take(1, 3);
    cancel(&gate, &second.0, &second.1);
    let fourth = take(1, 4);
    let fifth = take(1, 1);
    assert_eq!(fifth.1.delay_micros().get(), 8 * SECOND);
    gate.at(START + 2 * SECOND);
    cancel(&gate, &fourth.0, &fourth.1);
    cancel(&gate, &third.0, &third.1);
    // Five units were reserved after the third, so it returns nothing; three of the
    // fourth's are free.
    assert_eq!(take(2, 3).1.delay_micros().get(), 7 * SECOND);
}

#[test]
fn a_denying_shadow_rule_was_not_charged_and_gets_no_units_back() {
    let rules = set_of(
        "{ id: r, scope: global, on_exceed: wait, bands: [ { capacity: 2, window: 2s } ] }, \
         { id: dark, mode: shadow, scope: global, bands: [ { capacity: 4, window: 1h } ] }",
    );
    let gate = Gate::new(&rules);
    let dark = || ready(gate.limiter.state("s", "dark", &[])).unwrap()[0].remaining;
    assert!(gate.take(2).allowed() && gate.take(1).allowed());
    let context = RequestContext::builder().cost(2).build();
    let decision = gate.check(&context);
    assert_eq!(decision.outcome(), Outcome::ShadowDenied);
    assert_eq!((dark(), decision.delay_micros().get()), (1, 3 * SECOND));
    cancel(&gate, &context, &decision);
    assert_eq!((dark(), gate.take(1).delay_micros().get()), (1, 2 * SECOND));
}

#[test]
fn a_request_without_a_delay_has_nothing_to_cancel() {
    let rules = set_of("{ id: r, scope: global, bands: [ { capacity: 1, window: 1h } ] }");
    let gate = Gate::new(&rules);
    let context = RequestContext::default();
    assert!(gate.check(&context).charge(&context).is_none());
    let denied = gate.check(&context);
    assert!(!denied.allowed() && denied.charge(&context).is_none());
    for decision in [Decision::failed_open(), Decision::failed_closed()] {
        assert!(decision.charge(&context).is_none());
    }
}

#[test]
fn a_caller_that_cannot_wait_is_decided_as_if_no_rule_let_it() {
    for (waits, plain) in [
        ("on_exceed: wait, max_wait: 9s", "mode: enforce"),
        (
            "algorithm: leaky_bucket, on_exceed: wait",
            "algorithm: leaky_bucket",
        ),
    ] {
        let bands =
            "bands: [ { id: a, capacity: 3, window: 3s }, { id: b, capacity: 4, window: 8s } ]";
        let rule = |style: &str| set_of(&format!("{{ id: r, scope: global, {style}, {bands} }}"));
        let (gate, other) = (Gate::new(&rule(waits)), Gate::new(&rule(plain)));
        for (seconds, cost) in [
            (0, 2),
            (0, 2),
            (0, 1),
            (1, 1),
            (1, 5),
            (2, 2),
            (2, 0),
            (9, 3),
        ] {
            let now = START + seconds * SECOND;
            let context = RequestContext::builder().cost(cost).build();
            let decision = ready(
                gate.at(now)
                    .limiter
                    .check_in_mode("s", &context, Mode::TakeNow),
            );
            assert_eq!(
                fields(&decision),
                fields(&other.at(now).check(&context)),
                "{seconds} s"
            );
        }
    }
}

/// A shaping queue lets a request pass at once if it is empty.
#[test]
fn a_caller_that_cannot_wait_is_denied_by_a_queue_that_is_not_empty() {
    let gate = Gate::new(&set_of(
        "{ id: r, scope: global, algorithm: leaky_bucket, shape: true, bands: [ { capacity: 3, window: 3s } ] }",
    ));
    let context = RequestContext::default();
    let check = |micros| {
        ready(
            gate.at(START + micros)
                .limiter
                .check_in_mode("s", &context, Mode::TakeNow),
        )
    };
    assert!(check(0).allowed());
    let denied = check(1);
    assert_eq!(
        (denied.allowed(), retry(&denied)),
        (false, Some(SECOND - 1))
    );
    let passed = check(SECOND);
    assert_eq!((passed.allowed(), passed.delay_micros().get()), (true, 0));
}

/// A step of many requests on a limit that lets them wait.
#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u64),
    Come(u64),
    /// The waiting request with this number leaves.
    Leave(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1..4_000_u64).prop_map(Step::Pass),
        4 => (1..=6_u64).prop_map(Step::Come),
        3 => (0..40_usize).prop_map(Step::Leave),
    ]
}

proptest! {
    #![proptest_config(cases(3_000))]

    /// Over every interval, the requests that go on take at most C + R·t/P units.
    #[test]
    fn cancellations_release_no_more_than_a_bucket_and_its_refill(
        (capacity, refill) in (1..=6_u64, 1..=7_u64),
        max_wait in 1..=20_u64,
        shape in any::<bool>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let style = match shape {
            true => "algorithm: leaky_bucket, shape: true".into(),
            false => format!("on_exceed: wait, max_wait: {max_wait}s"),
        };
        let gate = Gate::new(&set_of(&format!(
            "{{ id: r, scope: global, {style}, bands: [ {{ capacity: {capacity}, window: 1s, refill: {refill}, period: 3s }} ] }}"
        )));
        let mut now = START;
        let mut waiting: Vec<(u64, u64, RequestContext<'_>, Decision)> = Vec::new();
        let mut released = Vec::new();
        for step in steps {
            match step {
                Step::Pass(millis) => now += millis * 1_000 + 137,
                Step::Come(cost) => {
                    let context = RequestContext::builder().cost(cost.min(capacity)).build();
                    let decision = gate.at(now).check(&context);
                    if decision.allowed() {
                        let goes_on = now + decision.delay_micros().get();
                        waiting.push((goes_on, cost.min(capacity), context, decision));
                    }
                }
                Step::Leave(number) => {
                    // A request that has gone on cannot leave.
                    let gone = waiting.extract_if(.., |it| it.0 <= now);
                    released.extend(gone.map(|(at, cost, ..)| (at, cost)));
                    if number < waiting.len() {
                        let (_, _, context, decision) = waiting.swap_remove(number);
                        cancel(gate.at(now), &context, &decision);
                    }
                }
            }
        }
        released.extend(waiting.iter().map(|(at, cost, ..)| (*at, *cost)));
        released.sort_unstable();
        for (first, (from, _)) in released.iter().enumerate() {
            let mut sum = 0;
            for (at, cost) in &released[first..] {
                sum += cost;
                // sum ≤ C + R·t/P; the delays were rounded up by less than 1 µs.
                let most = capacity * 3 * SECOND + refill * (at - from + 1);
                prop_assert!(sum * 3 * SECOND <= most, "{sum} from {from} to {at}: {released:?}");
            }
        }
    }
}

/// Reserves a unit of a rule that is used up, and keeps the reservation.
fn kept(gate: &Gate, context: &RequestContext<'_>) -> (Decision, HoldId) {
    let mut decision = gate.check(context);
    assert!(decision.delay_micros() > Micros::ZERO);
    ready(gate.limiter.keep_reservation(&mut decision, context)).unwrap();
    let id = decision.reservation().unwrap();
    (decision, id)
}

const QUEUE: &str = "{ id: r, scope: global, on_exceed: wait, max_wait: 9s, bands: [ { capacity: 2, window: 2s } ] }";

#[test]
fn a_kept_reservation_is_cancelled_once() {
    let gate = Gate::new(&set_of(QUEUE));
    let context = RequestContext::default();
    assert!(gate.take(2).allowed());
    let (_, id) = kept(&gate, &context);
    let (last, _) = kept(&gate, &context);
    let cancel = || ready(gate.limiter.cancel_reservation(id)).unwrap();
    // The later one keeps its instant, so nothing returns.
    assert_eq!((cancel(), cancel()), (true, false));
    let next = gate.check(&context).delay_micros();
    assert_eq!(next.get(), last.delay_micros().get() + SECOND);
    let (_, id) = kept(&gate, &context);
    let owed = || gate.state(&[])[0].reset_after;
    let before = owed();
    for _ in 0..10 {
        let _ = ready(gate.limiter.cancel_reservation(id));
    }
    assert_eq!(micros(before - owed()), SECOND);
}

#[test]
fn a_reservation_whose_delay_has_passed_cannot_be_cancelled() {
    for (waited, cancelled) in [(SECOND - 1, true), (SECOND, false)] {
        let gate = Gate::new(&set_of(QUEUE));
        let context = RequestContext::default();
        assert!(gate.take(2).allowed());
        let (decision, id) = kept(&gate, &context);
        assert_eq!(decision.delay_micros().get(), SECOND);
        gate.at(START + waited);
        let found = ready(gate.limiter.cancel_reservation(id)).unwrap();
        assert_eq!(found, cancelled);
    }
}

/// Whatever settles the hold of a request that waits decides what its units are.
#[test]
fn a_reservation_whose_hold_is_released_returns_its_units_once() {
    let gate = Gate::new(&set_of(QUEUE));
    let owed = || micros(gate.state(&[])[0].reset_after);
    let held = RequestContext::builder()
        .hold(Duration::from_secs(60))
        .build();
    assert!(gate.take(2).allowed());
    let decision = gate.check(&held);
    assert_eq!(
        (decision.delay_micros().get(), owed()),
        (SECOND, 3 * SECOND)
    );
    let release = gate
        .limiter
        .settle(decision.hold().unwrap(), Settlement::RELEASE);
    assert!(ready(release).unwrap().is_some());
    assert_eq!(owed(), 2 * SECOND);
    cancel(&gate, &held, &decision);
    assert_eq!(owed(), 2 * SECOND, "they have returned");
}

/// It waits for four seconds, and its hold lives for one.
#[test]
fn a_request_that_waits_longer_than_its_hold_lives_is_cancelled_all_the_same() {
    for with_slots in [false, true] {
        for (waited, is_known) in [(SECOND, true), (3 * SECOND - 1, true), (3 * SECOND, false)] {
            let slots = "{ id: slots, scope: global, algorithm: concurrency, hold: 1s, bands: [ { capacity: 9 } ] }";
            let slots = if with_slots { slots } else { "" };
            let rules = set_of(&format!("{QUEUE}, {slots}"));
            let gate = Gate::with_store(&rules, 100, Retention::UntilFull);
            let owed = || micros(gate.state(&[])[0].reset_after);
            let held = RequestContext::builder();
            let held = held.cost(2).hold(Duration::from_secs(1)).build();
            for delay in [0, 2 * SECOND] {
                assert_eq!(gate.take(2).delay_micros().get(), delay);
            }
            let (decision, id) = kept(&gate, &held);
            assert_eq!(decision.delay_micros().get(), 4 * SECOND);
            gate.at(START + SECOND + waited);
            let hold = decision.hold().unwrap();
            let settled = ready(gate.limiter.settle(hold, Settlement::RELEASE));
            assert_eq!(settled, Ok(None), "the hold has expired");
            let before = owed();
            let found = ready(gate.limiter.cancel_reservation(id)).unwrap();
            assert_eq!(found, is_known, "{with_slots} {waited}");
            let returned = before - owed();
            // A second before it goes on, one of its units has refilled.
            assert_eq!(returned > 0, is_known, "{with_slots} {waited}");
            assert!(!ready(gate.limiter.cancel_reservation(id)).unwrap());
        }
    }
}

/// A peek reserves nothing. Neither does a call that is denied in part.
#[test]
fn only_what_was_charged_is_kept_and_only_once() {
    let gate = Gate::new(&set_of(&format!(
        "{QUEUE}, {{ id: user, scope: per_user, on_missing_key: skip, bands: [ 1/1h ] }}"
    )));
    let owed = || micros(gate.state(&[])[0].reset_after);
    let context = RequestContext::default();
    let keep = |decision: &mut Decision, context: &RequestContext<'_>| {
        ready(gate.limiter.keep_reservation(decision, context)).unwrap();
        decision.reservation()
    };
    assert!(gate.take(2).allowed());
    let mut peeked = gate.peek(&context);
    assert_eq!(peeked.delay_micros().get(), SECOND);
    assert_eq!(keep(&mut peeked, &context), None);
    let ann = RequestContext::builder().user("ann").build();
    let contexts = [context.clone(), ann.clone(), ann];
    let mut decisions = ready(gate.limiter.check_all("s", &contexts));
    assert!(decisions[0].allowed() && !decisions[2].allowed());
    for (decision, context) in decisions.iter_mut().zip(&contexts) {
        assert_eq!(keep(decision, context), None);
    }
    assert_eq!(owed(), 2 * SECOND);
    let (mut decision, id) = kept(&gate, &context);
    assert_eq!(keep(&mut decision, &context), Some(id));
    assert!(ready(gate.limiter.cancel_reservation(id)).unwrap());
    assert!(!ready(gate.limiter.cancel_reservation(id)).unwrap());
    assert_eq!(owed(), 2 * SECOND);
}

#[test]
fn a_cancelled_wait_stays_charged_where_that_is_in_any_case() {
    let gate = Gate::new(&set_of(&format!(
        "{QUEUE}, {{ id: late, scope: global, charge: always, algorithm: fixed_window, bands: [ 9/1h ] }}"
    )));
    let late = || ready(gate.limiter.state("s", "late", &[])).unwrap()[0].remaining;
    let context = RequestContext::default();
    assert!(gate.take(2).allowed());
    let decision = gate.check(&context);
    cancel(&gate, &context, &decision);
    assert_eq!(late(), 6);
    let (_, id) = kept(&gate, &context);
    assert!(ready(gate.limiter.cancel_reservation(id)).unwrap());
    assert_eq!((late(), gate.left(&[])), (5, vec![0]));
}

#[test]
fn a_decision_without_a_delay_has_no_reservation() {
    let gate = Gate::new(&set_of(QUEUE));
    let context = RequestContext::default();
    let mut decision = gate.check(&context);
    ready(gate.limiter.keep_reservation(&mut decision, &context)).unwrap();
    assert_eq!(decision.reservation(), None);
    let unknown = HoldId::random();
    assert!(!ready(gate.limiter.cancel_reservation(unknown)).unwrap());
}

/// A store that always fails, and records calls of `cancel`.
#[derive(Debug, Default)]
struct Broken {
    cancelled: AtomicBool,
}

fn broken<T>() -> Result<T, StoreError> {
    Err(StoreError {
        reason: Reason::TIMEOUT,
        message: "no answer".into(),
    })
}

impl Store for Broken {
    fn time(&self) -> Timestamp {
        Timestamp::default()
    }

    async fn decide(&self, _: &Checks<'_>) -> Result<Verdicts, StoreError> {
        broken()
    }

    async fn refund(&self, _: Subject<'_>, _: &[Band], _: u64) -> Result<Verdicts, StoreError> {
        broken()
    }

    async fn cancel(
        &self,
        _: Subject<'_>,
        _: &[Band],
        _: u64,
        _: &[Charged],
    ) -> Result<(), StoreError> {
        self.cancelled.store(true, Ordering::Relaxed);
        broken()
    }

    async fn settle(&self, _: HoldId, _: Settlement<'_>) -> Result<Option<Settled>, StoreError> {
        broken()
    }

    async fn renew(&self, _: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        broken()
    }

    async fn reset(&self, _: Subject<'_>, _: &[Band]) -> Result<u64, StoreError> {
        broken()
    }

    async fn reset_rule(&self, _: Subject<'_>) -> Result<u64, StoreError> {
        broken()
    }
}

#[test]
fn charges_of_the_fallback_are_cancelled_there() {
    let rules = set_of(
        "{ id: r, scope: global, on_exceed: wait, max_wait: 2h, bands: [ { capacity: 1, window: 1h } ] }",
    );
    let limiter = Limiter::new(parse(&rules), Broken::default());
    let context = RequestContext::default();
    let check = || ready(limiter.check("s", &context));
    assert_eq!(check().outcome(), Outcome::Fallback);
    let second = check();
    let delay = second.delay_micros();
    assert!(delay > Micros::ZERO);
    ready(limiter.cancel(second.charge(&context).unwrap())).unwrap();
    let mut third = check();
    let place = third.delay_micros();
    assert!(place <= delay, "the second's place: {place:?} {delay:?}");
    ready(limiter.keep_reservation(&mut third, &context)).unwrap();
    let id = third.reservation().unwrap();
    assert!(ready(limiter.cancel_reservation(id)).unwrap());
    assert!(check().delay_micros() <= place);
    assert!(!limiter.store().cancelled.load(Ordering::Relaxed));
}

#[test]
fn a_check_without_waiting_decides_like_any_other() {
    let rules = set_of("{ id: r, scope: per_user, bands: [ { capacity: 2, window: 1h } ] }");
    let gate = Gate::new(&rules);
    let set = gate.limiter.active_rule_set("s").unwrap();
    let context = RequestContext::builder().user("u").build();
    let limiter: &Limiter<MemoryStore<ManualClock>> = &gate.limiter;
    let first = limiter.try_check(&set, &context, Mode::Take).unwrap();
    assert_eq!(
        (first.remaining(), first.rule_set().unwrap().name()),
        (Some(1), "s")
    );
    let (second, _) = ready(limiter.check_with_permit(&set, &context, Mode::Take));
    assert_eq!(second.remaining(), Some(0));
    assert!(
        !limiter
            .try_check(&set, &context, Mode::Take)
            .unwrap()
            .allowed()
    );
    // A store that must be awaited gets the checks that were planned.
    let slow = Limiter::new(parse(&rules), Broken::default());
    let pending = slow.try_check(&slow.active_rule_set("s").unwrap(), &context, Mode::Take);
    let (decision, _) = ready(slow.complete(pending.unwrap_err()));
    assert_eq!(decision.outcome(), Outcome::Fallback);
    assert_eq!(decision.remaining(), Some(1));
    assert_eq!(limiter.missing_rule_set("none").outcome(), Outcome::NoRule);
}
