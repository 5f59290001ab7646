//! The examples, run as programs.

use std::process::{Command, Output};

/// Runs an example to its end.
fn run(name: &str, arguments: &[&str]) -> Output {
    let tests = std::env::current_exe().unwrap();
    let target = tests.parent().and_then(|deps| deps.parent()).unwrap();
    let file = target.join("examples").join(name);
    let shown = file.display();
    assert!(
        file.is_file(),
        "{shown} is missing: cargo build -p fluxgate-core --examples --all-features"
    );
    Command::new(file).args(arguments).output().unwrap()
}

/// Returns the lines that an example prints.
fn lines_of(name: &str, arguments: &[&str]) -> Vec<String> {
    let output = run(name, arguments);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Returns the milliseconds at the end of a line.
fn millis(line: &str) -> u64 {
    let number = line
        .strip_suffix(" ms")
        .and_then(|it| it.rsplit(' ').next());
    number.and_then(|it| it.parse().ok()).expect(line)
}

#[test]
fn worker() {
    let lines = lines_of("worker", &[]);
    assert_eq!(lines.len(), 10, "{lines:#?}");
    for host in ["a.example", "b.example"] {
        let of_host = lines.iter().filter(|line| line.starts_with(host));
        for (index, line) in of_host.enumerate() {
            let job = index as u64 + 1;
            assert!(line.starts_with(&format!("{host}: job {job} after ")));
            // Two at once, and one every 50 ms. Two clocks are compared here.
            let earliest = job.saturating_sub(2) * 50;
            assert!(millis(line) + 5 >= earliest, "{lines:#?}");
        }
    }
}

#[test]
fn backoff() {
    let lines = lines_of("backoff", &["6", "20"]);
    assert_eq!(lines.len(), 6, "{lines:#?}");
    assert_eq!(lines[0], "call 1 after a wait of 0 ms");
    let lines = lines_of("backoff", &["4", "3"]);
    assert!((1..=400).contains(&millis(&lines[3])), "{lines:#?}");
}

#[test]
fn backoff_gives_up() {
    // The second unit returns after a second.
    let output = run("backoff", &["2", "1"]);
    assert!(!output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("retry_after"), "{text}");
    let output = run("backoff", &["1", "0"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("Units"), "{text}");
}
