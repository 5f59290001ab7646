//! Decisions over the Redis protocol, compared with `INCR` on redis-server, both under
//! redis-benchmark.

use std::net::TcpStream;
use std::process::{Command, Stdio};

use fluxgate_testkit::{Program, ports, wait_until};

use crate::load::{Run, compare};
use crate::report::Report;
use crate::service;
use crate::service::TempDir;

const KEYS: &str = "1000";
const CALLERS: &str = "50";

const RULES: &str = "
rule_sets:
  api:
    rules:
      - { id: per-user, scope: per_user, bands: [ { capacity: 100000000, window: 1s } ] }
";

/// Nearly all are allowed.
const THROTTLE: &str = "CL.THROTTLE key:__rand_int__ 100000 1000000 1";
const CHECK: &str = "FG.CHECK api user key:__rand_int__";
const INCR: &str = "INCR key:__rand_int__";

pub(crate) fn run(report: &mut Report) {
    let dir = TempDir::new("resp");
    let Some(ours) = service::start(&dir, &["resp"], RULES) else {
        return;
    };
    let theirs = ports::free();
    // The usual settings of a cache.
    let _redis = Program::start("redis-server", |command| {
        command.args(["--port", &theirs.number().to_string()]);
        command.args(["--save", "", "--appendonly", "no"]);
    });
    wait_until("redis-server listens", || {
        TcpStream::connect(theirs.addr()).is_ok()
    });
    for (name, command, pipeline, calls) in [
        ("resp", THROTTLE, "1", "200000"),
        ("resp-pipeline", THROTTLE, "32", "2000000"),
        ("resp-check", CHECK, "1", "200000"),
        ("resp-check-pipeline", CHECK, "32", "2000000"),
    ] {
        compare(
            report,
            name,
            &format!("redis-server INCR, {CALLERS} callers, {pipeline} deep"),
            || run_load(ours.address("resp").port(), command, pipeline, calls),
            || run_load(theirs.number(), INCR, pipeline, calls),
        );
    }
}

/// Runs redis-benchmark once.
#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
fn run_load(port: u16, command: &str, pipeline: &str, calls: &str) -> Run {
    let mut benchmark = Command::new("redis-benchmark");
    benchmark
        .args(["-p", &port.to_string(), "-c", CALLERS, "-n", calls])
        .args(["-r", KEYS, "-P", pipeline, "--csv"])
        .args(command.split(' '))
        .stderr(Stdio::null());
    let output = benchmark.output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    // "test","rps","avg","min","p50","p95","p99","max", times in milliseconds.
    let last = text.lines().last().unwrap();
    let figures: Vec<f64> = last
        .rsplit(',')
        .take(7)
        .map(|figure| figure.trim_matches('"').parse().unwrap())
        .collect();
    Run {
        per_second: figures[6],
        p50_micros: figures[3] * 1000.0,
        p99_micros: figures[1] * 1000.0,
    }
}
