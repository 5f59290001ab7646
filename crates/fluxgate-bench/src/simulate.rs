//! `fluxgate simulate`, compared with `jq -c .`, which parses the same file and prints it again.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::report::{Better, Random, Report, in_turn};
use crate::service;
use crate::service::TempDir;

const LINES: u64 = 500_000;

const RULES: &str = r#"
rule_sets:
  api-limits:
    rules:
      - id: per-user
        match: { path: ["/api/**"], methods: [GET, POST] }
        scope: per_user
        bands:
          - { id: burst, capacity: 10, window: 1s }
          - { id: sustained, capacity: 100, window: 1m }
      - id: free-plan
        match: { headers: { X-Plan: free } }
        scope: per_ip
        algorithm: sliding_window
        bands: [ { capacity: 20, window: 10s } ]
"#;

pub(crate) fn run(report: &mut Report) {
    let dir = TempDir::new("simulate");
    let rules = dir.file("rules.yaml", RULES);
    let events = dir.file("events.ndjson", events());
    let Some(fluxgate) = service::binary() else {
        return;
    };
    let figures = in_turn(
        5,
        || {
            let mut command = Command::new(&fluxgate);
            let output = dir.path("decisions.ndjson");
            command.arg("simulate").arg("--rules").arg(&rules);
            command
                .arg("--input")
                .arg(&events)
                .arg("--output")
                .arg(output);
            lines_per_second(&mut command, None)
        },
        || {
            let mut command = Command::new("jq");
            command.arg("-c").arg(".").arg(&events);
            lines_per_second(&mut command, Some(&dir.path("copy.ndjson")))
        },
    );
    report.line(
        "simulate",
        figures,
        "jq -c . on the same file",
        "lines/s",
        Better::More,
    );
}

#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
fn lines_per_second(command: &mut Command, output: Option<&Path>) -> f64 {
    if let Some(path) = output {
        command.stdout(Stdio::from(fs::File::create(path).unwrap()));
    }
    let start = Instant::now();
    assert!(command.status().unwrap().success());
    LINES as f64 / start.elapsed().as_secs_f64()
}

/// Returns requests of ten thousand users. Some users exceed their limits.
fn events() -> String {
    let mut random = Random::new(42);
    let mut text = String::new();
    let mut at = 1_700_000_000_000_000_u64;
    for _ in 0..LINES {
        let mut pick = |count: u64| (random.next() >> 11) % count;
        at += pick(200);
        let (user, item, host) = (pick(10_000), pick(1_000), pick(65_536));
        let (method, plan) = (
            ["GET", "POST"][pick(2) as usize],
            ["free", "pro"][pick(2) as usize],
        );
        let _ = writeln!(
            text,
            "{{\"t\":{at},\"user\":\"user-{user}\",\"ip\":\"10.0.{}.{}\",\"method\":\"{method}\",\
             \"path\":\"/api/v1/items/{item}\",\"headers\":{{\"X-Plan\":\"{plan}\"}}}}",
            host / 256,
            host % 256,
        );
    }
    text
}
