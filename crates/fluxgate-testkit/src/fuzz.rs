//! Fuzzing without a fuzzer: runs fuzz targets on their seeds and on mutations of them.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// A function that accepts any bytes and panics if a property does not hold.
pub type FuzzFn = fn(&[u8]);

/// How many mutations are tried.
const CASES: u32 = 2_000;

/// Runs all fuzz functions of a crate. Each must have a fuzz target of the same name.
///
/// # Panics
/// If a function panics, or if functions and targets differ.
pub fn run_all(name: &str, functions: &[(&str, FuzzFn)]) {
    let names: Vec<_> = functions.iter().map(|(target, _)| *target).collect();
    assert_eq!(targets_of(name), names);
    for (target, function) in functions {
        run(target, *function);
    }
}

/// Returns the fuzz targets that call a crate, sorted.
pub fn targets_of(name: &str) -> Vec<String> {
    let calls = format!(" {}::fuzzing::", name.replace('-', "_"));
    let mut targets = names_in(&folder("fuzz_targets"));
    targets.retain(|file| {
        let text = read(&folder("fuzz_targets").join(file));
        let calls = calls.as_bytes();
        text.windows(calls.len()).any(|part| part == calls)
    });
    let targets = targets.iter().map(|file| file.trim_end_matches(".rs"));
    targets.map(str::to_owned).collect()
}

/// Runs a function on the seeds of its target, and then on mutations, which are the same in
/// every run.
fn run(target: &str, function: FuzzFn) {
    let seeds = seeds_of(target);
    for (name, seed) in &seeds {
        let result = std::panic::catch_unwind(|| function(seed));
        assert!(result.is_ok(), "{target}: the seed {name}");
    }
    let seeds: Vec<_> = seeds.into_iter().map(|(_, seed)| seed).collect();
    let config = Config {
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::with_cases(CASES)
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let result = TestRunner::new_with_rng(config, rng).run(&mutations(seeds), |input| {
        function(&input);
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, input)) => {
            panic!("{target}: {why}\ninput: {}", input.escape_ascii())
        }
        Err(error) => panic!("{target}: {error}"),
    }
}

/// Generates edited seeds: whole ones, or the start of one joined to the end of another.
fn mutations(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let one = || select(seeds.clone());
    let two = (one(), any::<Index>(), one(), any::<Index>());
    let spliced = two.prop_map(|(mut first, at, second, from)| {
        first.truncate(at.index(first.len() + 1));
        first.extend_from_slice(&second[from.index(second.len() + 1)..]);
        first
    });
    let base = prop_oneof![3 => one(), 1 => spliced];
    let byte = prop_oneof![
        any::<u8>(),
        select(&b"\0\t\n\r \"#$%*+,-./0129:;=?[\\]_{}\xff"[..])
    ];
    let edit = (0..6_u8, any::<Index>(), byte, 1..9_usize);
    (base, vec(edit, 0..6)).prop_map(|(mut input, edits)| {
        for (kind, at, byte, count) in edits {
            let at = at.index(input.len() + 1);
            let end = (at + count).min(input.len());
            match kind {
                0 if at < input.len() => input[at] = byte,
                1 => input.insert(at, byte),
                2 => drop(input.drain(at..end)),
                3 => {
                    let part = input[at..end].to_vec();
                    drop(input.splice(at..at, part));
                }
                4 => input
                    .splice(at..at, std::iter::repeat_n(byte, count))
                    .for_each(drop),
                // Truncation is rare, because it removes the most.
                5 if count == 1 => input.truncate(at),
                _ => {}
            }
        }
        input
    })
}

fn seeds_of(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = folder("seeds").join(target);
    let names = names_in(&folder).into_iter();
    let seeds = names.map(|name| {
        let seed = read(&folder.join(&name));
        (name, seed)
    });
    let seeds: Vec<_> = seeds.collect();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds
}

fn folder(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    root.join(name)
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be listed").file_name())
        .map(|name| name.into_string().expect("names are UTF-8"))
        .collect();
    names.sort();
    names
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
