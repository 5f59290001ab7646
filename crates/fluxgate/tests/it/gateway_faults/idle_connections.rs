//! Ten thousand idle connections.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use super::memory::used_kib;
use super::{assert_serves, assert_serves_promptly, config, ok_upstream, script};
use crate::service::Service;
use crate::support::Dir;

const COUNT: u64 = 10_000;
/// The allowed memory per connection.
const MAX_KIB: u64 = 20;

/// Starts a gateway with a low soft limit on descriptors, as on most systems. It may
/// raise the limit.
fn start(upstream: std::net::SocketAddr) -> Service {
    let dir = Dir::new();
    let settings = "  timeouts: { headers: 10m, idle: 10m }\n  limits: { connections: 0 }\n";
    let listen = "listen: { api: \"127.0.0.1:0\", gateway: \"127.0.0.1:0\" }\n";
    dir.write(
        "fluxgate.yaml",
        format!("{listen}{}", config(&[upstream], "", settings)),
    );
    let arguments = [
        "--nofile=1024:",
        env!("CARGO_BIN_EXE_fluxgate"),
        "run",
        "--config",
        "fluxgate.yaml",
    ];
    let service = Service::open_by(dir, "prlimit".as_ref(), &arguments, 2);
    service.wait_until_ready();
    service
}

fn hard_limit() -> u64 {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let hard = line.unwrap().split_whitespace().nth(4).unwrap();
    hard.parse().unwrap_or(u64::MAX)
}

#[test]
fn ten_thousand_idle_connections_stay_open_and_others_are_served() {
    let hard = hard_limit();
    assert!(
        hard > COUNT + 500,
        "the test opens more than {COUNT} files; raise the hard limit of {hard} (ulimit -Hn)"
    );
    let upstream = ok_upstream();
    let service = start(upstream.address());
    assert_serves(&service);
    let before = used_kib(&service);
    let mut holder = script("idle_connections.py")
        .arg(service.address("gateway").to_string())
        .arg(COUNT.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(holder.stdout.take().unwrap()).lines();
    let mut stdin = holder.stdin.take().unwrap();
    assert_eq!(output.next().unwrap().unwrap(), "open");
    assert_serves_promptly(&service);
    let more = used_kib(&service).saturating_sub(before);
    println!("{COUNT} idle connections: {more} KiB more");
    assert!(more < COUNT * MAX_KIB, "{more} KiB more");
    // All of them still work.
    writeln!(stdin, "send requests").unwrap();
    assert_eq!(output.next().unwrap().unwrap(), format!("{COUNT} answered"));
    drop(stdin);
    assert!(holder.wait().unwrap().success());
}
