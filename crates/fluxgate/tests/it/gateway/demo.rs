//! The demo shows what it prints.

use std::ops::RangeInclusive;
use std::process::Command;
use std::thread;

use fluxgate_testkit::{Program, wait_until};

use crate::support::Dir;

/// Starts the demo on free ports and returns its output.
fn demo() -> (Program, String) {
    let dir = Dir::new();
    let file = std::fs::File::create(dir.path("output")).unwrap();
    let program = Program::start(env!("CARGO_BIN_EXE_fluxgate"), |command| {
        command.arg("run").current_dir(dir.path("")).stdout(file);
        for listener in ["gateway", "api", "grpc", "resp"] {
            command
                .arg("--set")
                .arg(format!("listen.{listener}=127.0.0.1:0"));
        }
    });
    wait_until("the text is complete", || {
        dir.read("output").contains("Ctrl-C ends the demo.")
    });
    (program, dir.read("output"))
}

/// Returns the shell loop for this path.
fn loop_of(text: &str, path: &str) -> String {
    let mut lines = text.lines();
    let title = format!("# {path}: ");
    assert!(
        lines.any(|line| line.trim_start().starts_with(&title)),
        "{text}"
    );
    lines.next().unwrap().trim().to_owned()
}

/// Runs a loop and returns the statuses that it prints.
fn run(line: &str) -> String {
    let output = Command::new("bash").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns how many requests of the loop for a path are allowed, and how many it sends.
fn allowed(text: &str, path: &str) -> (usize, usize) {
    let printed = run(&loop_of(text, path));
    let statuses = printed.lines().filter_map(|line| line.split(' ').next());
    let statuses: Vec<_> = statuses.collect();
    assert!(
        statuses.iter().all(|it| ["200", "429"].contains(it)),
        "{printed}"
    );
    let count = statuses.iter().filter(|it| **it == "200").count();
    (count, statuses.len())
}

/// The loops run in real time, so the test tries up to three times on a busy machine.
#[test]
fn every_loop_shows_the_documented_counts() {
    const EXPECTED: [(&str, RangeInclusive<usize>, usize); 5] = [
        // Five before and five after the end of a window, within ten seconds.
        ("fixed", 10..=10, 12),
        ("log", 5..=7, 12),
        ("token", 8..=11, 12),
        ("leaky", 5..=5, 7),
        ("sliding", 5..=8, 12),
    ];
    let mut counts = Vec::new();
    for _ in 0..3 {
        let (_program, text) = demo();
        let text = &text;
        counts = thread::scope(|scope| {
            let loops = EXPECTED.map(|(path, ..)| scope.spawn(move || allowed(text, path)));
            loops.map(|it| it.join().unwrap()).to_vec()
        });
        let mut pairs = counts.iter().zip(&EXPECTED);
        if pairs.all(|((count, all), (_, allowed, sent))| allowed.contains(count) && all == sent) {
            return;
        }
    }
    panic!("{counts:?}, expected {EXPECTED:?}");
}
