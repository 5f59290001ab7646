//! What the reading of replies promises of any bytes.

use std::time::Duration;

use fluxgate_core::limit::{MAX_LOG_UNITS, MAX_UNITS};
use fluxgate_core::{
    Algorithm, Band, Checks, Group, Limit, Mode, Retry, RuleNumber, Subject, Verdict,
};

use super::{Answer, parse_reply};

const SUBJECT: Subject<'static> = Subject {
    rule: RuleNumber::NONE,
    bytes: b"somebody",
};

/// A reply is one to just so many requests, and whatever it says, no verdict tells
/// of more units than there are.
pub(crate) fn script_reply(bytes: &[u8]) {
    let mut read = 0;
    for count in 0..=4 {
        let Ok(answers) = parse_reply(bytes, count) else {
            continue;
        };
        assert_eq!(answers.len(), count);
        read += 1;
        for answer in answers.into_iter().flatten() {
            is_judged(&answer);
            if let Some(later) = answer.later(Duration::from_secs(1)) {
                is_judged(&later);
            }
        }
    }
    assert!(read <= 1, "it answers as many requests as one wants");
}

/// Judges an answer as one to one check, and as one to two.
fn is_judged(answer: &Answer) {
    let limits = limits();
    for (at, limit) in limits.iter().enumerate() {
        let next = &limits[(at + 1) % limits.len()];
        for limits in [&[limit][..], &[limit, next]] {
            let bands: Vec<_> = { limits.iter().enumerate() }
                .map(|(at, limit)| Band::new(["a", "b"][at], (*limit).clone()))
                .collect();
            is_judged_by(answer, &bands);
        }
    }
}

fn is_judged_by(answer: &Answer, bands: &[Band]) {
    for cost in [0, 1, 3, MAX_UNITS, u64::MAX] {
        for mode in [Mode::Take, Mode::TakeNow, Mode::Peek, Mode::PeekNow] {
            let mut checks = Checks::new(mode);
            checks.push(SUBJECT, bands, cost, Group::ENFORCED);
            let Ok(verdicts) = answer.verdicts(&checks) else {
                continue;
            };
            are_possible(&verdicts, bands);
            let passes = verdicts.iter().all(Verdict::passes);
            let charges = answer.charges(&checks);
            let charges = charges.expect("it could be decided");
            let is_charged = passes && cost > 0 && mode.takes();
            assert_eq!(charges.len(), if is_charged { bands.len() } else { 0 });
        }
    }
    if let Ok(states) = answer.states(bands.iter()) {
        are_possible(&states, bands);
    }
}

fn are_possible(verdicts: &[Verdict], bands: &[Band]) {
    assert_eq!(verdicts.len(), bands.len());
    for (verdict, band) in verdicts.iter().zip(bands) {
        let capacity = band.limit().capacity();
        assert!(u64::from(verdict.remaining) <= capacity, "{verdict:?}");
        assert_eq!(verdict.passes(), verdict.retry_after == Retry::NOW);
    }
}

/// One of each algorithm, the largest that there are among them.
pub(super) fn limits() -> Vec<Limit> {
    let of = |algorithm, capacity, seconds| {
        let limit = Limit::builder(algorithm, capacity, Duration::from_secs(seconds));
        limit.build().expect("it is within its bounds")
    };
    vec![
        of(Algorithm::TokenBucket, 10, 1),
        of(Algorithm::LeakyBucket, MAX_UNITS, 366 * 86_400),
        of(Algorithm::FixedWindow, MAX_UNITS, 366 * 86_400),
        of(Algorithm::SlidingWindow, MAX_UNITS, 366 * 86_400),
        of(Algorithm::SlidingLog, MAX_LOG_UNITS, 366 * 86_400),
        of(Algorithm::SlidingLog, 3, 1),
    ]
}
