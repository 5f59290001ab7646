//! The demo shows what it prints.

use std::ops::RangeInclusive;
use std::process::Command;
use std::thread;
use std::time::Duration;

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

/// What a loop shows.
#[derive(Debug)]
struct Shown {
    /// How many requests were allowed, and how many were sent.
    allowed: usize,
    sent: usize,
    /// From the first request until the last, or until the end if all are sent at once.
    span: Duration,
    /// When each request was sent, and when the last one ended, since 1970.
    times: Vec<Duration>,
}

impl Shown {
    /// Returns whether five requests were decided before the end of a window of ten seconds of
    /// the clock, and the last five after it.
    fn straddles_a_window(&self) -> bool {
        let window = |time: Duration| time.as_secs() / 10;
        let first = window(self.times[0]);
        // The loop sleeps 0.6 s after each response.
        let fifth_ended = self.times[5] - Duration::from_millis(600);
        let last_five = self.times[7..].iter();
        window(fifth_ended) == first && { last_five }.all(|time| window(*time) == first + 1)
    }
}

/// Runs the loop for a path, with the time before each request.
fn run(text: &str, path: &str) -> Shown {
    let (start, rest) = loop_of(text, path)
        .split_once("; do curl ")
        .map(|(start, rest)| (start.to_owned(), rest.to_owned()))
        .unwrap();
    let line = format!("{start}; do date +%s%N; curl {rest}; date +%s%N");
    let output = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let times = printed.lines().filter_map(|line| line.parse::<u64>().ok());
    let times: Vec<_> = times.map(Duration::from_nanos).collect();
    let statuses = printed.lines().filter_map(|line| line.split_once(' '));
    let statuses: Vec<_> = statuses.map(|(status, _)| status).collect();
    assert!(
        statuses.iter().all(|it| ["200", "429"].contains(it)),
        "{printed}"
    );
    let last = if rest.contains("& done") {
        times[times.len() - 1]
    } else {
        times[times.len() - 2]
    };
    Shown {
        allowed: statuses.iter().filter(|it| **it == "200").count(),
        sent: statuses.len(),
        span: last - times[0],
        times,
    }
}

/// The loops run in real time. On a machine too slow for their pace, more may pass than is
/// documented.
#[test]
fn every_loop_shows_the_documented_counts() {
    const EXPECTED: [(&str, RangeInclusive<usize>, usize, u64); 5] = [
        // Five before and five after the end of a window, within ten seconds.
        ("fixed", 10..=10, 12, 7_600),
        ("log", 5..=7, 12, 12_000),
        ("token", 8..=11, 12, 6_500),
        ("leaky", 5..=5, 7, 4_800),
        ("sliding", 5..=8, 12, 12_000),
    ];
    let (_program, text) = demo();
    let text = &text;
    thread::scope(|scope| {
        let loops = EXPECTED.map(|(path, ..)| scope.spawn(move || run(text, path)));
        for (shown, (path, allowed, sent, millis)) in loops.into_iter().zip(EXPECTED) {
            let shown = shown.join().unwrap();
            let is_in_time = shown.span <= Duration::from_millis(millis)
                && (path != "fixed" || shown.straddles_a_window());
            let allowed = if is_in_time { allowed } else { 5..=sent };
            let is_documented = allowed.contains(&shown.allowed) && shown.sent == sent;
            assert!(is_documented, "{path}: {shown:?}, expected {allowed:?}");
        }
    });
}
