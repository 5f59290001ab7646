//! Clients that send requests for one key, here or in other processes.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use fluxgate_core::{Limiter, Outcome, RuleSets};
use fluxgate_redis::RedisStore;

use crate::support::{rules, user};

/// The outcomes of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
    /// Decided by `on_error`.
    pub(crate) failed: u64,
}

impl Tally {
    pub(crate) fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Allowed => self.admitted += 1,
            Outcome::Denied => self.denied += 1,
            Outcome::FailedClosed => self.failed += 1,
            outcome => panic!("not an outcome of these rules: {outcome:?}"),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.denied += other.denied;
        self.failed += other.failed;
    }
}

/// One subject with two bands: two Redis keys in one slot. Nothing refills while
/// a test runs.
pub(crate) fn two_bands(algorithm: &str, capacity: u64) -> RuleSets {
    let slow = match algorithm {
        "token_bucket" | "leaky_bucket" => ", refill: 1, period: 1d",
        _ => "",
    };
    rules(&format!(
        "rule_sets: {{ api: {{ on_error: deny, rules: [ {{ id: r, scope: per_user, \
         algorithm: {algorithm}, bands: [ \
         {{ id: one, capacity: {capacity}, window: 300d{slow} }}, \
         {{ id: two, capacity: {capacity}, window: 299d{slow} }} ] }} ] }} }}"
    ))
}

/// Runs this many clients, each this often, with a pause in between.
pub(crate) async fn load(
    limiter: Limiter<RedisStore>,
    clients: usize,
    times: usize,
    pause: Duration,
) -> Tally {
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let limiter = limiter.clone();
        tasks.push(tokio::spawn(async move {
            let mut tally = Tally::default();
            for _ in 0..times {
                let decision = limiter.check("api", &user("ann")).await;
                tally.count(decision.outcome());
                tokio::time::sleep(pause).await;
            }
            tally
        }));
    }
    let mut sum = Tally::default();
    for task in tasks {
        sum.add(task.await.unwrap());
    }
    sum
}

/// The number of clients of a [`LoadProcess`].
const CLIENTS: usize = 32;

/// Another process with its own clients: the example `hammer`.
pub(crate) struct LoadProcess {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl LoadProcess {
    /// Starts a process that is connected and waits to begin, on a limit of 1000. Each of
    /// its clients sends this many requests.
    pub(crate) fn start(urls: &[String], algorithm: &str, times: usize) -> Self {
        Self::run(Command::new(hammer()), urls, algorithm, times)
    }

    /// Like [`LoadProcess::start`], but each client continues until [`LoadProcess::wait`], and
    /// pauses after each request.
    pub(crate) fn start_endless(
        urls: &[String],
        algorithm: &str,
        times: usize,
        pause: Duration,
    ) -> Self {
        let mut command = Command::new(hammer());
        command.args(["--until-eof", "true", "--pause-ms"]);
        command.arg(pause.as_millis().to_string());
        Self::run(command, urls, algorithm, times)
    }

    fn run(mut command: Command, urls: &[String], algorithm: &str, times: usize) -> Self {
        for url in urls {
            command.args(["--url", url]);
        }
        command.args(["--algorithm", algorithm, "--limit", "1000"]);
        let numbers = [CLIENTS, times].map(|it| it.to_string());
        for (name, number) in ["--clients", "--times"].iter().zip(&numbers) {
            command.args([*name, number]);
        }
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut started = Self {
            process,
            input,
            output,
        };
        assert_eq!(line_of(&mut started.output), "ready");
        started
    }

    /// Lets it start.
    pub(crate) fn begin(&mut self) {
        writeln!(self.input, "go").unwrap();
    }

    /// Ends the input, and returns what came of the load.
    pub(crate) fn wait(self) -> Tally {
        let Self {
            mut process,
            input,
            mut output,
        } = self;
        drop(input);
        let line = line_of(&mut output);
        assert!(process.wait().unwrap().success(), "{line}");
        let numbers = line.strip_prefix("tally ").unwrap_or_default();
        let mut numbers = numbers.split(' ').map(|number| number.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Tally {
            admitted: next(),
            denied: next(),
            failed: next(),
        }
    }
}

fn line_of(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Returns where cargo puts examples: next to the folder of this test program.
fn hammer() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let folder = here.ancestors().nth(2).unwrap();
    let path = folder.join("examples").join("hammer");
    assert!(
        path.exists(),
        "{} is missing; `cargo build -p fluxgate-redis --examples` makes it",
        path.display()
    );
    path
}
