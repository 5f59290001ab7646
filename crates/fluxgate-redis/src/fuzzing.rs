//! Functions for the fuzz targets of this workspace. Each takes any bytes and panics if a parser
//! breaks a promise. A test runs them on the seeds and on inputs near the seeds.

use std::time::Duration;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::limit::{MAX_LOG_UNITS, MAX_UNITS};
use fluxgate_core::store::{Checks, Group, Mode, Retry, Subject, Verdict};
use fluxgate_core::{Algorithm, Band, Limit};

use crate::EventId;
use crate::codec::{Answer, parse_reply};

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const ALL: [(&str, Target); 2] = [
    ("record_fields", record_fields),
    ("script_reply", script_reply),
];

const SUBJECT: Subject<'static> = Subject {
    rule: RuleNumber::NONE,
    bytes: b"somebody",
};

/// Reads lines as fields of the record of what happened, which other instances have written. What is
/// read must be read again as it is written.
pub fn record_fields(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in text.split('\n') {
        crate::record::fuzz::field(line);
        if let Ok(id) = line.parse::<EventId>() {
            assert_eq!(id.to_string().parse(), Ok(id));
            assert!(id.next() > id || id.ms == u64::MAX);
        }
    }
}

/// Parses the script's reply. It must be the answer to one number of requests only, and no
/// verdict may report more units than the capacity.
pub fn script_reply(bytes: &[u8]) {
    let mut read = 0;
    for count in 0..=4 {
        let Ok(answers) = parse_reply(bytes, count) else {
            continue;
        };
        assert_eq!(answers.len(), count);
        read += 1;
        for answer in answers.into_iter().flatten() {
            check_answer(&answer);
            if let Some(later) = answer.later(Duration::from_secs(1)) {
                check_answer(&later);
            }
        }
    }
    assert!(read <= 1, "one reply answers several numbers of requests");
}

/// Evaluates an answer as the answer to one check, and to two checks.
fn check_answer(answer: &Answer) {
    let limits = limits();
    for (at, limit) in limits.iter().enumerate() {
        let next = &limits[(at + 1) % limits.len()];
        for limits in [&[limit][..], &[limit, next]] {
            let bands: Vec<_> = { limits.iter().enumerate() }
                .map(|(at, limit)| Band::new(["a", "b"][at], *(*limit)))
                .collect();
            check_answer_for(answer, &bands);
        }
    }
}

fn check_answer_for(answer: &Answer, bands: &[Band]) {
    for cost in [0, 1, 3, MAX_UNITS, u64::MAX] {
        for mode in [Mode::Take, Mode::TakeNow, Mode::Peek, Mode::PeekNow] {
            let mut checks = Checks::new(mode);
            checks.push(SUBJECT, bands, cost, Group::ENFORCED);
            let Ok(verdicts) = answer.verdicts(&checks) else {
                continue;
            };
            check_verdicts(&verdicts, bands);
            let passes = verdicts.iter().all(Verdict::passes);
            let charges = answer
                .charges(&checks)
                .expect("the verdicts were found the same way");
            let is_charged = passes && cost > 0 && mode.takes();
            assert_eq!(charges.len(), if is_charged { bands.len() } else { 0 });
        }
    }
    if let Ok(states) = answer.states(bands.iter()) {
        check_verdicts(&states, bands);
    }
}

fn check_verdicts(verdicts: &[Verdict], bands: &[Band]) {
    assert_eq!(verdicts.len(), bands.len());
    for (verdict, band) in verdicts.iter().zip(bands) {
        let capacity = band.limit().capacity();
        assert!(u64::from(verdict.remaining) <= capacity, "{verdict:?}");
        assert_eq!(verdict.passes(), verdict.retry_after == Retry::NOW);
    }
}

/// One of each algorithm, the largest possible among them.
fn limits() -> Vec<Limit> {
    let of = |algorithm, capacity, seconds| {
        let limit = Limit::builder(algorithm, capacity, Duration::from_secs(seconds));
        limit.build().expect("the numbers are within their bounds")
    };
    vec![
        of(Algorithm::TokenBucket, 10, 1),
        of(Algorithm::LeakyBucket, MAX_UNITS, 366 * 86_400),
        of(Algorithm::FixedWindow, MAX_UNITS, 366 * 86_400),
        of(Algorithm::SlidingWindow, MAX_UNITS, 366 * 86_400),
        of(Algorithm::SlidingLog, MAX_LOG_UNITS, 366 * 86_400),
        of(Algorithm::SlidingLog, 3, 1),
        of(Algorithm::Concurrency, MAX_UNITS, 86_400),
        of(Algorithm::Concurrency, 3, 1),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn targets_hold_for_the_seeds_and_inputs_near_them() {
        fluxgate_testkit::fuzz::run_all("fluxgate-redis", &ALL);
    }

    /// An entry of the right length with any content.
    fn entry() -> impl Strategy<Value = Vec<u8>> {
        let numbers = || prop_oneof![any::<u64>(), 0..3_000_000_000_000_000_u64, 0..20_u64];
        let small = || prop_oneof![any::<u32>(), 0..20_u32];
        let fields = (240..247_u8, numbers(), small(), small());
        let counts = fields.prop_map(|(tag, start, previous, current)| {
            let mut bytes = vec![b'c', tag];
            // Starts of windows are more likely than others.
            let start = [start, start - start % 1_000_000][start as usize % 2];
            bytes.extend_from_slice(&start.to_le_bytes()[..7]);
            bytes.extend_from_slice(&previous.to_le_bytes());
            bytes.extend_from_slice(&current.to_le_bytes());
            bytes
        });
        let fields = (
            240..243_u8,
            0..53_u8,
            numbers(),
            small(),
            small(),
            any::<Option<u32>>(),
        );
        let bucket = fields.prop_map(|(tag, horizon, instant, part, refill, overhang)| {
            let letter = if overhang.is_some() { b'o' } else { b'b' };
            let mut bytes = vec![letter, tag, horizon];
            bytes.extend_from_slice(&instant.to_le_bytes()[..7]);
            bytes.extend_from_slice(&part.to_le_bytes());
            bytes.extend_from_slice(&refill.to_le_bytes());
            bytes.extend(overhang.iter().flat_map(|bits| bits.to_le_bytes()));
            bytes
        });
        let digits = "i[0-9]{16}(0[0-9]|[1-5][0-9])".prop_map(String::into_bytes);
        let whole = || {
            let bits = any::<u64>().prop_map(f64::from_bits);
            prop_oneof![
                1 => bits,
                3 => (-3_000_000_000_000_000..3_000_000_000_000_000_i64).prop_map(|n| n as f64),
                3 => (0..100_000_i64).prop_map(|n| n as f64),
            ]
        };
        let log = (whole(), whole(), whole()).prop_map(|(newest, counted, leaves)| {
            let numbers = [newest, counted, leaves].map(f64::to_le_bytes);
            [&b"l"[..], &numbers.concat()].concat()
        });
        let slots = (small(), numbers(), numbers()).prop_map(|(held, last, enough)| {
            let mut bytes = vec![b'h'];
            bytes.extend_from_slice(&u64::from(held).to_le_bytes()[..5]);
            bytes.extend_from_slice(&last.to_le_bytes()[..7]);
            bytes.extend_from_slice(&enough.to_le_bytes()[..7]);
            bytes
        });
        let of_any_kind = prop_oneof![Just(b"n".to_vec()), bucket, counts, digits, log, slots];
        (of_any_kind, any::<bool>()).prop_map(|(mut entry, passes)| {
            if !passes {
                entry[0] = entry[0].to_ascii_uppercase();
            }
            entry
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 5_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            script_reply(&bytes);
        }

        #[test]
        fn any_numbers_are_evaluated_without_a_panic(
            now in prop_oneof![0..4_000_000_000_000_000_u64, 0..20_u64],
            entries in prop::collection::vec(entry(), 1..3),
        ) {
            let now = (now as f64).to_le_bytes();
            let reply = [&[2], &now[..], &entries.concat(), b";"].concat();
            script_reply(&reply);
        }
    }
}
