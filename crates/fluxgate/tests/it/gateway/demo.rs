//! What a newcomer is told to try.

use std::ops::RangeInclusive;
use std::process::Command;
use std::thread;

use fluxgate_testkit::{Program, wait_until};

use crate::support::Dir;

/// The demo with free ports, and what it says.
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
    wait_until("the text is there", || {
        dir.read("output").contains("Ctrl-C ends the demo.")
    });
    (program, dir.read("output"))
}

/// The loop for this path.
fn try_of(text: &str, path: &str) -> String {
    let mut lines = text.lines();
    let title = format!("# {path}: ");
    assert!(
        lines.any(|line| line.trim_start().starts_with(&title)),
        "{text}"
    );
    lines.next().unwrap().trim().to_owned()
}

/// The statuses that a loop prints.
fn run(line: &str) -> String {
    let output = Command::new("bash").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// How many requests of the loop for a path pass, and how many there are.
fn passed(text: &str, path: &str) -> (usize, usize) {
    let printed = run(&try_of(text, path));
    let statuses = printed.lines().filter_map(|line| line.split(' ').next());
    let statuses: Vec<_> = statuses.collect();
    assert!(
        statuses.iter().all(|it| ["200", "429"].contains(it)),
        "{printed}"
    );
    let count = statuses.iter().filter(|it| **it == "200").count();
    (count, statuses.len())
}

/// The loops are in real time, which a machine that is busy with other tests takes
/// its own view of: such a one may try again.
#[test]
fn every_loop_shows_what_it_promises() {
    const PROMISED: [(&str, RangeInclusive<usize>, usize); 5] = [
        // Five before the edge and five behind it, within ten seconds.
        ("fixed", 10..=10, 12),
        ("log", 5..=7, 12),
        ("token", 8..=11, 12),
        ("leaky", 5..=5, 7),
        ("sliding", 5..=8, 12),
    ];
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (_program, text) = demo();
        let text = &text;
        seen = thread::scope(|scope| {
            let loops = PROMISED.map(|(path, ..)| scope.spawn(move || passed(text, path)));
            loops.map(|it| it.join().unwrap()).to_vec()
        });
        let mut pairs = seen.iter().zip(&PROMISED);
        if pairs.all(|((count, all), (_, wanted, sent))| wanted.contains(count) && all == sent) {
            return;
        }
    }
    panic!("{seen:?} of {PROMISED:?}");
}
