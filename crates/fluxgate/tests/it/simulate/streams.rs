//! Input, output and standard error.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{Dir, Run, TWO_A_SECOND, allowed};

const THREE: &str = "{\"t\":0}\n{\"t\":0}\n{\"t\":0}\n";
const FROM_STDIN: [&str; 5] = ["simulate", "--rules", "rules.yaml", "--input", "-"];

#[test]
fn a_dash_is_standard_input_or_output() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let from_file = dir.simulate(THREE, &[]);
    assert_eq!(from_file.outcomes(), "aad");
    assert_eq!(dir.run_with_stdin(&FROM_STDIN, THREE), from_file);
    let named = [&FROM_STDIN[..], &["--output", "-"]].concat();
    assert_eq!(dir.run_with_stdin(&named, THREE), from_file);
}

#[test]
fn a_bad_line_of_standard_input_is_located_by_a_dash() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let run = dir.run_with_stdin(&FROM_STDIN, "{\"t\":0}\n{}\n");
    assert_eq!(run.code, Some(65));
    assert_eq!(run.stderr, "-:2: expected `t` or `time`, found neither\n");
}

#[test]
fn an_output_file_is_replaced() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let expected = dir.simulate(THREE, &[]).stdout;
    dir.write("out", "x".repeat(10_000));
    let run = dir.simulate(THREE, &["--output", "out"]);
    assert!(run.lines().is_empty());
    assert_eq!(dir.read("out"), expected);
}

#[test]
fn a_decision_is_written_before_the_next_line_is_read() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let mut child = dir.spawn(&FROM_STDIN);
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let (answers, received) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        while stdout.read_line(&mut line).unwrap() > 0 {
            let _ = answers.send(std::mem::take(&mut line));
        }
    });
    for remaining in [1, 0] {
        stdin.write_all(b"{\"t\":0}\n").unwrap();
        let answer = received.recv_timeout(Duration::from_secs(60));
        let expected = allowed(0, ("r/b0", 2, remaining), 500_000 * (2 - remaining)) + "\n";
        assert_eq!(answer, Ok(expected));
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    reader.join().unwrap();
}

#[test]
fn a_reader_that_closes_the_output_ends_the_run_with_exit_0() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    // More than a pipe and all buffers hold.
    dir.write("input.ndjson", THREE.repeat(20_000));
    let arguments = [
        "simulate",
        "--rules",
        "rules.yaml",
        "--input",
        "input.ndjson",
    ];
    let mut child = dir.spawn(&arguments);
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    drop(stdout);
    let run = Run::from(child.wait_with_output().unwrap());
    assert_eq!(first, allowed(0, ("r/b0", 2, 1), 500_000) + "\n");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_closed_standard_error_causes_no_panic() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    dir.write("input.ndjson", THREE);
    let arguments = [
        "simulate",
        "--rules",
        "rules.yaml",
        "--input",
        "input.ndjson",
        "--summary",
    ];
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = dir.command(&arguments);
    let run = Run::from(command.stderr(writer).output().unwrap());
    assert_eq!(run.code, Some(0));
    assert_eq!(run.stdout.lines().count(), 3);
}

#[test]
fn an_output_that_is_the_input_under_any_name_is_refused() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    dir.write("input.ndjson", THREE);
    fs::hard_link(dir.path("input.ndjson"), dir.path("hard")).unwrap();
    std::os::unix::fs::symlink("input.ndjson", dir.path("soft")).unwrap();
    let absolute = dir.path("input.ndjson");
    let names = [
        "input.ndjson",
        "./input.ndjson",
        "hard",
        "soft",
        absolute.to_str().unwrap(),
    ];
    for name in names {
        let run = dir.simulate(THREE, &["--output", name]);
        assert_eq!(run.code, Some(74), "{name}");
        assert_eq!(
            run.stderr,
            format!("{name}: would be overwritten while it is read; name another output\n")
        );
        assert_eq!(dir.read("input.ndjson"), THREE, "{name}");
    }
}

#[test]
fn an_output_that_is_standard_input_is_refused() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    dir.write("input.ndjson", THREE);
    let arguments = [&FROM_STDIN[..], &["--output", "input.ndjson"]].concat();
    let file = fs::File::open(dir.path("input.ndjson")).unwrap();
    let run = Run::from(dir.command(&arguments).stdin(file).output().unwrap());
    assert_eq!(run.code, Some(74));
    assert_eq!(dir.read("input.ndjson"), THREE);
}

#[test]
fn an_output_that_is_the_rule_file_is_refused() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let run = dir.simulate(THREE, &["--output", "rules.yaml"]);
    assert_eq!(run.code, Some(74));
    assert_eq!(dir.read("rules.yaml"), TWO_A_SECOND);
}

#[test]
fn a_device_may_be_both_input_and_output() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let arguments = [
        "simulate",
        "--rules",
        "rules.yaml",
        "--input",
        "/dev/null",
        "--output",
        "/dev/null",
    ];
    assert!(dir.run(&arguments).lines().is_empty());
}

#[test]
fn a_missing_input_exits_with_66_and_creates_no_output() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let run = dir.run(&[
        "simulate",
        "--rules",
        "rules.yaml",
        "--input",
        "nowhere",
        "--output",
        "out",
    ]);
    assert_eq!(run.code, Some(66));
    assert_eq!(
        run.stderr,
        "nowhere: No such file or directory (os error 2)\n"
    );
    assert!(!dir.path("out").exists());
}

#[test]
fn an_input_that_cannot_be_read_exits_with_66() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let run = dir.run(&["simulate", "--rules", "rules.yaml", "--input", "."]);
    assert_eq!(run.code, Some(66));
    assert_eq!(run.stderr, ".: Is a directory (os error 21)\n");
}

#[test]
fn an_output_that_cannot_be_written_exits_with_74() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let run = dir.simulate(THREE, &["--output", "no/such/place"]);
    assert_eq!(run.code, Some(74));
    assert_eq!(
        run.stderr,
        "no/such/place: No such file or directory (os error 2)\n"
    );
    let run = dir.simulate(THREE, &["--output", "/dev/full"]);
    assert_eq!(run.code, Some(74));
    assert_eq!(
        run.stderr,
        "/dev/full: No space left on device (os error 28)\n"
    );
}

#[test]
fn bad_rules_exit_with_78_and_create_no_output() {
    let dir =
        Dir::with_rules("rule_sets:\n  api:\n    rules:\n      - id: r\n        color: red\n");
    let run = dir.simulate(THREE, &["--output", "out"]);
    assert_eq!(run.code, Some(78));
    let lines: Vec<_> = run.stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{}", run.stderr);
    assert_eq!(lines[0], "rules.yaml:4:9: a rule needs `bands`");
    assert_eq!(
        lines[1],
        "rules.yaml:4:9: a rule needs a `scope` or a `key`"
    );
    assert!(
        lines[2].starts_with("rules.yaml:5:9: unknown field `color` in a rule; allowed are id,")
    );
    assert!(run.stdout.is_empty());
    assert!(!dir.path("out").exists());
}

#[test]
fn a_bad_command_line_exits_with_2() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    for arguments in [
        &["simulate", "--rules", "rules.yaml"][..],
        &["simulate", "--input", "-"],
        &[
            "simulate",
            "--rules",
            "rules.yaml",
            "--input",
            "-",
            "--format",
            "xml",
        ],
        &[
            "simulate",
            "--rules",
            "rules.yaml",
            "--input",
            "-",
            "--wrong",
        ],
        &["wrong"],
    ] {
        let run = dir.run(arguments);
        assert_eq!(run.code, Some(2), "{arguments:?}");
        assert!(run.stderr.starts_with("error: "), "{arguments:?}");
        assert!(run.stdout.is_empty());
    }
}

/// Writes a file that is large enough for a progress bar, and quick to read.
fn large(dir: &Dir) {
    let blank = " ".repeat(64 * 1024 - 1) + "\n";
    let mut input = blank.repeat(17 * 16);
    input += THREE;
    dir.write("input.ndjson", input);
}

#[test]
fn no_progress_bar_is_written_to_a_pipe() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    large(&dir);
    let arguments = [
        "simulate",
        "--rules",
        "rules.yaml",
        "--input",
        "input.ndjson",
    ];
    assert_eq!(dir.run(&arguments).outcomes(), "aad");
}

/// Returns what a terminal shows when it runs the binary with these arguments.
fn on_a_terminal(dir: &Dir, arguments: &str) -> String {
    let binary = env!("CARGO_BIN_EXE_fluxgate");
    let command =
        format!("'{binary}' simulate --rules rules.yaml --input input.ndjson {arguments}");
    // `script` creates a terminal; every Debian and Ubuntu has it.
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]);
    script.current_dir(dir.path(".")).stdin(Stdio::null());
    let run = Run::from(script.output().unwrap());
    assert_eq!(run.code, Some(0), "{run:?}");
    run.stdout
}

#[test]
fn a_progress_bar_is_shown_on_a_terminal_and_cleared() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    large(&dir);
    let shown = on_a_terminal(&dir, "--output out");
    assert!(shown.ends_with("\r\x1b[K"), "{shown:?}");
    assert_eq!(dir.read("out").lines().count(), 3);
}

#[test]
fn no_progress_bar_is_shown_among_the_decisions_or_for_a_small_file() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    large(&dir);
    let shown = on_a_terminal(&dir, "");
    assert!(!shown.contains('\x1b'), "{shown:?}");
    assert_eq!(shown.lines().count(), 3);
    dir.write("input.ndjson", THREE);
    assert_eq!(on_a_terminal(&dir, "--output out"), "");
}
