//! The load generator h2load, which sends requests over HTTP/2.

use std::fs;
use std::process::{Command, Stdio};

use crate::load::Run;
use crate::service::TempDir;

/// Runs h2load with these arguments, the last of them the URL. Fails unless every
/// response is a success and the output contains `expected`.
#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
pub(crate) fn ask(dir: &TempDir, arguments: &[&str], expected: &str) -> Run {
    let log = dir.path("h2load.log");
    // h2load appends to an existing log.
    let _ = fs::remove_file(&log);
    let output = Command::new("h2load")
        .arg(format!("--log-file={}", log.display()))
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let none_failed = " succeeded, 0 failed, 0 errored, 0 timeout";
    let signs = [none_failed, " 0 3xx, 0 4xx, 0 5xx", expected];
    let is_good = output.status.success() && signs.iter().all(|sign| text.contains(sign));
    assert!(is_good, "{text}");
    let line = text.lines().find(|line| line.starts_with("finished in"));
    let per_second = line.unwrap().split(", ").nth(1).unwrap();
    let log = fs::read_to_string(log).unwrap();
    let mut micros: Vec<u64> = log
        .lines()
        .map(|line| line.split('\t').nth(2).unwrap().parse().unwrap())
        .collect();
    micros.sort_unstable();
    let of = |hundredth: usize| micros[micros.len() * hundredth / 100] as f64;
    Run {
        per_second: per_second.trim_end_matches(" req/s").parse().unwrap(),
        p50_micros: of(50),
        p99_micros: of(99),
    }
}
