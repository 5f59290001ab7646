//! The start time and the idle memory of the service.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fluxgate_testkit::{Program, ports};

use crate::report::{Better, Report, in_turn, median};
use crate::service;
use crate::service::TempDir;

const ROUNDS: usize = 9;
const CONFIG: &str = "
rule_sets:
  api:
    rules:
      - { id: per-user, scope: per_user, bands: [ { capacity: 10, window: 1s } ] }
";

/// Measures the time from the start of the process to its first response, compared with
/// redis-server.
pub(crate) fn run(report: &mut Report) {
    let dir = TempDir::new("start");
    let Some(fluxgate) = service::binary() else {
        return;
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let times = in_turn(
        ROUNDS,
        || {
            let (api, resp) = (ports::free(), ports::free());
            let listen = format!(
                "listen: {{ api: \"{}\", resp: \"{}\" }}\n",
                api.addr(),
                resp.addr()
            );
            let config = dir.file("fluxgate.yaml", listen + CONFIG);
            let check = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}";
            measure(api.addr(), check, &mut ours, || {
                Program::start(&fluxgate, |command| {
                    command.arg("run").arg("--config").arg(&config);
                })
            })
        },
        || {
            let port = ports::free();
            measure(port.addr(), "PING\r\n", &mut theirs, || {
                Program::start("redis-server", |command| {
                    command.args(["--port", &port.number().to_string(), "--save", ""]);
                })
            })
        },
    );
    let yardstick = "redis-server";
    report.line("start", times, yardstick, "ms", Better::Less);
    let memory = (median(ours), median(theirs));
    report.line("idle-memory", memory, yardstick, "MiB", Better::Less);
}

/// Returns the milliseconds until the first response, and records the resident memory.
#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
fn measure(
    address: SocketAddr,
    request: &str,
    memory: &mut Vec<f64>,
    start: impl FnOnce() -> Program,
) -> f64 {
    let started = Instant::now();
    let program = start();
    let took = loop {
        assert!(started.elapsed() < Duration::from_secs(20), "no response");
        let Ok(mut stream) = TcpStream::connect(address) else {
            std::thread::sleep(Duration::from_micros(500));
            continue;
        };
        let mut response = [0; 512];
        stream.write_all(request.as_bytes()).unwrap();
        let read = stream.read(&mut response).unwrap();
        let response = String::from_utf8_lossy(&response[..read]);
        // The service may not be ready yet.
        if response.contains("200 OK") || response.contains("PONG") {
            break started.elapsed();
        }
    };
    let status = fs::read_to_string(format!("/proc/{}/status", program.id())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.unwrap().trim().trim_end_matches(" kB");
    memory.push(kib.parse::<f64>().unwrap() / 1024.0);
    took.as_secs_f64() * 1e3
}
