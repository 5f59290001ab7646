//! Random input is decided, skipped or refused, and never causes a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use fluxgate_core::{Fault, RuleSets};
use fluxgate_simulate::{Format, Options};

use crate::support::{Run, simulate, simulate_with};

const RULES: &str = include_str!("../../src/fuzzing.yaml");

const JSON: &[&str] = &[
    r#"{"t":1700000000000000,"rule_set":"api","ip":"2001:db8::1","user":"ann","api_key":"k-1","method":"GET","path":"/a/b","headers":{"X-Cost":"2","X":1.5},"attributes":{"plan":"free","beta":true},"cost":3}"#,
    r#"{"time":"2026-01-31T23:59:59.123456789+01:00","user":"a\"\\\u00e9\ud83d\ude00"}"#,
    r#"{"t":253402300799999999,"cost":18446744073709551615,"ip":"::ffff:10.0.0.1"}"#,
    r#"{"t":0,"headers":{"x-cost":999999999999999999999}}"#,
];

const LOG: &[&str] = &[
    r#"10.0.0.1 - ann [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "http://x/" "Mozilla \"5\" (\x41)""#,
    r#"- - - [31/Dec/9999:23:59:59 +0000] "-" 400 0 "-" "-""#,
    r#"::1 - a b [01/Jan/1970:00:00:00 +0000] "\x16\x03\x01" 400 0"#,
];

/// Returns a line with some of its bytes removed, inserted or changed.
fn mutated(lines: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<prop::sample::Index>(), any::<u8>(), 0..4_u8);
    (prop::sample::select(lines), vec(edit, 0..4)).prop_map(|(line, edits)| {
        let mut line = line.as_bytes().to_vec();
        for (index, byte, kind) in edits {
            if line.is_empty() {
                break;
            }
            let at = index.index(line.len());
            match kind {
                0 => line[at] = byte,
                1 => line.insert(at, byte),
                2 => drop(line.remove(at)),
                _ => line.truncate(at),
            }
        }
        line
    })
}

/// Returns many lines, random or mutated, none of which contains a line end.
fn input(lines: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        6 => mutated(lines),
        1 => vec(any::<u8>(), 0..80),
        1 => vec(prop::sample::select(b"{}[]\",:\\-0123456789 tu".as_slice()), 0..40),
    ];
    vec(line, 2_000).prop_map(|mut lines| {
        for line in &mut lines {
            line.retain(|byte| *byte != b'\n');
        }
        lines.join(&b'\n')
    })
}

/// Returns a runner that tries the same inputs in every run of the tests.
fn runner(cases: u32) -> TestRunner {
    let config = Config {
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::with_cases(cases)
    };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

fn every_line_is_accounted_for(input: &[u8], run: &Run) {
    assert!(run.result.is_ok(), "{:?}", run.result);
    let mut decided = 0;
    for line in run.decisions.lines() {
        let decision: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(decision.as_object().unwrap().len(), 11);
        decided += 1;
    }
    let skipped = run.simulation.skipped() as usize;
    let lines = input.split(|byte| *byte == b'\n');
    let given = lines.filter(|line| !line.trim_ascii().is_empty()).count();
    assert_eq!(decided + skipped, given);
    // Fewer would test nothing.
    assert!(
        decided > 100 && skipped > 100,
        "{decided} decided, {skipped} skipped"
    );
}

#[test]
fn random_and_mutated_json_lines_never_panic() {
    let rules = RULES;
    let tried = runner(8).run(&input(JSON), |input| {
        let run = simulate_with(
            rules,
            &input,
            Options {
                lenient: true,
                ..Options::default()
            },
        );
        every_line_is_accounted_for(&input, &run);
        Ok(())
    });
    tried.unwrap();
}

#[test]
fn random_and_mutated_log_lines_never_panic() {
    let rules = RULES;
    let tried = runner(8).run(&input(LOG), |input| {
        let run = simulate_with(
            rules,
            &input,
            Options {
                lenient: true,
                summary: true,
                format: Format::Combined,
                ..Options::default()
            },
        );
        every_line_is_accounted_for(&input, &run);
        Ok(())
    });
    tried.unwrap();
}

#[test]
fn random_bytes_without_lenient_end_the_run() {
    let rules = RULES;
    let tried = runner(32).run(&vec(any::<u8>(), 1..2_000), |input| {
        let run = simulate(rules, &input);
        let is_blank = input.trim_ascii().is_empty();
        assert_eq!(run.result.is_ok(), is_blank, "{:?}", run.result);
        Ok(())
    });
    tried.unwrap();
}

#[test]
fn mutated_rule_files_are_valid_or_their_errors_are_located() {
    let tried = runner(150).run(&mutated(&[RULES]), |rules| {
        let Ok(text) = std::str::from_utf8(&rules) else {
            return Ok(());
        };
        let faults = RuleSets::from_yaml(text).map_or_else(|error| error.0, |_| Vec::new());
        for Fault { position, message } in faults {
            assert!(position.line > 0 && position.column > 0, "{message}");
            assert!(!message.trim().is_empty(), "{text}");
        }
        Ok(())
    });
    tried.unwrap();
}
