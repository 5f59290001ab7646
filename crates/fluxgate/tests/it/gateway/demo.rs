//! What a newcomer is told to try.

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

#[test]
fn every_loop_shows_what_it_promises() {
    let (program, text) = demo();
    let passed = |path: &str| {
        let printed = run(&try_of(&text, path));
        let statuses = printed.lines().filter_map(|line| line.split(' ').next());
        let statuses: Vec<_> = statuses.map(str::to_owned).collect();
        assert!(
            statuses.iter().all(|it| it == "200" || it == "429"),
            "{printed}"
        );
        let count = statuses.iter().filter(|it| *it == "200").count();
        (count, statuses.len())
    };
    thread::scope(|scope| {
        // Five before the edge and five behind it, within ten seconds.
        let fixed = scope.spawn(|| passed("fixed"));
        let log = scope.spawn(|| passed("log"));
        let token = scope.spawn(|| passed("token"));
        let leaky = scope.spawn(|| passed("leaky"));
        let sliding = scope.spawn(|| passed("sliding"));
        assert_eq!(fixed.join().unwrap(), (10, 12), "fixed");
        let (log, _) = log.join().unwrap();
        assert!((5..=7).contains(&log), "log: {log}");
        let (token, all) = token.join().unwrap();
        assert!((8..=11).contains(&token) && all == 12, "token: {token}");
        assert_eq!(leaky.join().unwrap(), (5, 7), "leaky");
        let (sliding, _) = sliding.join().unwrap();
        assert!((5..=8).contains(&sliding), "sliding: {sliding}");
    });
    drop(program);
}
