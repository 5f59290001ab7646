//! Many threads: never one unit too many, and all or nothing.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fluxgate_core::RequestContext;
use fluxgate_core::memory::Retention;

use crate::support::{Gate, NAMES, per_user, set_of};

const THREADS: u64 = 8;

/// Lets all threads send this many requests each. Returns the admitted units.
fn hammer(times: u64, ask: impl Fn(u64, u64) -> u64 + Sync) -> u64 {
    let barrier = Barrier::new(THREADS as usize);
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (barrier, admitted, ask) = (&barrier, &admitted, &ask);
            scope.spawn(move || {
                barrier.wait();
                let units: u64 = (0..times).map(|time| ask(thread, time)).sum();
                admitted.fetch_add(units, Ordering::Relaxed);
            });
        }
    });
    admitted.into_inner()
}

#[test]
fn a_limit_of_a_thousand_admits_a_thousand() {
    for algorithm in NAMES {
        let rule = format!("algorithm: {algorithm}, bands: [{{ capacity: 1000, window: 1h }}]");
        let gate = Gate::new(&per_user(&rule));
        for round in 0..5 {
            let user = format!("u{round}");
            let admitted = hammer(250, |_, _| u64::from(gate.user(&user).allowed()));
            assert_eq!(admitted, 1000, "{algorithm}");
            assert_eq!(gate.left(&[&user]), [0], "{algorithm}");
        }
    }
}

#[test]
fn odd_costs_never_overdraw() {
    for algorithm in NAMES {
        let rule = format!("algorithm: {algorithm}, bands: [{{ capacity: 1000, window: 1h }}]");
        let gate = Gate::new(&per_user(&rule));
        let admitted = hammer(200, |thread, time| {
            let cost = (thread + time) % 7;
            let context = RequestContext::builder().user("u").cost(cost).build();
            if gate.check(&context).allowed() {
                cost
            } else {
                0
            }
        });
        // Costs of 1 come until the end, so no unit is left.
        assert_eq!(admitted, 1000, "{algorithm}");
    }
}

#[test]
fn all_bands_are_charged_or_none() {
    for algorithm in NAMES {
        let rule = format!(
            "algorithm: {algorithm}, bands: [{{ capacity: 5000, window: 1h }}, \
             {{ capacity: 900, window: 1m }}, {{ capacity: 700, window: 30m }}]"
        );
        let gate = Gate::new(&per_user(&rule));
        for round in 0..5 {
            let user = format!("u{round}");
            let admitted = hammer(150, |_, _| u64::from(gate.user(&user).allowed()));
            assert_eq!(admitted, 700, "{algorithm}");
            assert_eq!(gate.left(&[&user]), [4300, 200, 0], "{algorithm}");
        }
    }
}

/// Three rules that share some identities, in lines and overflows of the store.
const THREE_RULES: &str = "
    { id: r, scope: global, bands: [{ capacity: 600, window: 1h }] },
    { id: user, scope: per_user, algorithm: sliding_log,
      bands: [{ capacity: 200, window: 1h }, { capacity: 150, window: 1m }] },
    { id: key, scope: per_api_key, algorithm: fixed_window, bands: [{ capacity: 250, window: 1h }] }";

#[test]
fn all_rules_are_charged_or_none() {
    let gate = Gate::new(&set_of(THREE_RULES));
    let admitted = hammer(600, |thread, time| {
        let context = RequestContext::builder()
            .user(format!("u{}", (thread + time) % 5))
            .api_key(format!("k{}", time % 3))
            .build();
        u64::from(gate.check(&context).allowed())
    });
    let left = |rule: &str, identity: &[&str]| {
        let states = fluxgate_core::task::ready(gate.limiter.state("s", rule, identity)).unwrap();
        states
            .iter()
            .map(|state| state.remaining)
            .collect::<Vec<_>>()
    };
    assert_eq!(admitted, 600);
    assert_eq!(left("r", &[]), [0]);
    let by_user: u64 = (0..5)
        .map(|user| {
            let left = left("user", &[&format!("u{user}")]);
            assert_eq!(
                200 - left[0],
                150 - left[1],
                "both bands of u{user} took the same"
            );
            200 - left[0]
        })
        .sum();
    let by_key: u64 = (0..3)
        .map(|key| 250 - left("key", &[&format!("k{key}")])[0])
        .sum();
    assert_eq!((by_user, by_key), (600, 600));
}

#[test]
fn a_denial_leaves_every_band_untouched() {
    let gate = Gate::new(&set_of(
        "{ id: r, scope: per_user, bands: [{ capacity: 500, window: 1h }, { capacity: 400, window: 1d }] },
         { id: closed, scope: global, algorithm: sliding_window, bands: [{ capacity: 1, window: 1h }] }",
    ));
    assert!(gate.user("first").allowed());
    let admitted = hammer(500, |thread, _| {
        u64::from(gate.user(&format!("u{}", thread % 2)).allowed())
    });
    assert_eq!(admitted, 0);
    for user in ["u0", "u1"] {
        assert_eq!(gate.left(&[user]), [500, 400]);
    }
    assert_eq!(gate.keys(), 3, "the denied left no state behind");
}

#[test]
fn takes_and_refunds_balance() {
    for algorithm in NAMES {
        let rule = format!("algorithm: {algorithm}, bands: [{{ capacity: 1000, window: 1h }}]");
        let gate = Gate::new(&per_user(&rule));
        let kept = hammer(300, |_, time| {
            if !gate.user("u").allowed() {
                return 0;
            }
            if time % 3 == 0 {
                gate.refund(&["u"], 1);
                return 0;
            }
            1
        });
        assert_eq!(gate.left(&["u"]), [1000 - kept], "{algorithm}");
    }
}

#[test]
fn a_flood_from_all_sides_keeps_the_cap() {
    let rule = "bands: [{ capacity: 10, window: 1d }]";
    let gate = Gate::with_store(&per_user(rule), 4_000, Retention::UntilFull);
    hammer(10_000, |thread, time| {
        u64::from(gate.user(&format!("{thread}-{time}")).allowed())
    });
    let keys = gate.keys();
    assert!((2_000..=4_000).contains(&keys), "{keys}");
}
