//! Standard error that blocks because its reader does not read.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fluxgate_testkit::{Answer, Http, ports, timed, wait_for, wait_until};
use serde_json::Value;

use super::objects;
use crate::support::Dir;

/// A service whose standard error is a pipe that is not read.
struct UnreadService {
    child: Child,
    address: SocketAddr,
    http: Http,
    _dir: Dir,
    _port: ports::Port,
}

impl UnreadService {
    fn start() -> Self {
        Self::start_with(Stdio::piped())
    }

    fn start_with(stderr: Stdio) -> Self {
        let dir = Dir::new();
        let port = ports::free();
        let address = port.addr();
        let config = format!(
            "listen: {{ api: '{address}' }}\ntelemetry: {{ level: debug }}\n\
             rule_sets: {{ api: {{ rules: [ {{ id: r, scope: global, algorithm: fixed_window, \
             bands: [ {{ capacity: 100000, window: 300d }} ] }} ] }} }}\n"
        );
        dir.write("fluxgate.yaml", config);
        let mut command = dir.command(&["run", "--config", "fluxgate.yaml"]);
        let child = command.stdout(Stdio::null()).stderr(stderr);
        let child = child.spawn().unwrap();
        let mut http = Http::new(address);
        wait_until("the service is ready", || {
            let answer = http.try_request("GET", "/readyz", &[], "");
            answer.is_ok_and(|answer| answer.status == 200)
        });
        Self {
            child,
            address,
            http,
            _dir: dir,
            _port: port,
        }
    }

    /// Sends requests until the pipe and then the queue are full and lines are dropped.
    fn flood(&mut self) {
        wait_until("lines are dropped", || {
            for _ in 0..1_000 {
                assert_eq!(self.http.get("/livez").status, 200);
            }
            self.dropped() > 0
        });
    }

    fn dropped(&mut self) -> u64 {
        let metrics = self.http.get("/metrics").body;
        let mut lines = metrics.lines();
        let dropped = lines.find_map(|line| line.strip_prefix("fluxgate_log_lines_dropped_total "));
        dropped.unwrap().parse().unwrap()
    }

    /// Refunds a unit, which writes an audit line.
    fn refund(&mut self, id: usize) -> Answer {
        let id = format!("change-{id}");
        let headers = [("X-Request-Id", &*id), ("Content-Type", "application/json")];
        let body = r#"{"rule_set":"api","rule":"r","units":1}"#;
        self.http.request("POST", "/v1/refund", &headers, body)
    }

    fn remaining(&mut self) -> u64 {
        let state = self.http.get("/v1/state?rule_set=api&rule=r").body;
        let state: Value = serde_json::from_str(&state).unwrap();
        state["bands"][0]["remaining"].as_u64().unwrap()
    }

    /// Starts reading standard error to its end.
    fn read(&mut self) -> JoinHandle<Vec<Value>> {
        let stderr = BufReader::new(self.child.stderr.take().unwrap());
        thread::spawn(move || {
            let lines: Result<Vec<_>, _> = stderr.lines().collect();
            objects(&lines.unwrap())
        })
    }

    fn terminate(&self) {
        let kill = format!("kill -s TERM {}", self.child.id());
        let mut shell = std::process::Command::new("sh");
        assert!(shell.args(["-c", &kill]).status().unwrap().success());
    }
}

impl Drop for UnreadService {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_service_keeps_serving_and_reports_the_number_of_dropped_lines() {
    let mut service = UnreadService::start();
    service.flood();
    for _ in 0..100 {
        assert_eq!(service.http.get("/readyz").status, 200);
    }
    let dropped = service.dropped();
    let reader = service.read();
    wait_until("room in the queue", || {
        let before = service.dropped();
        service.http.get("/livez");
        service.dropped() == before
    });
    service.terminate();
    wait_for("the end", || service.child.try_wait().unwrap());
    let lines = reader.join().unwrap();
    let reports = lines
        .iter()
        .filter(|line| line["message"] == "log lines were dropped");
    let reported: u64 = reports.map(|line| line["lines"].as_u64().unwrap()).sum();
    assert!(reported >= dropped, "{reported} of {dropped}");
    assert!(lines.iter().any(|line| line["message"] == "shutting down"));
}

#[test]
fn the_service_exits_on_sigterm() {
    let mut service = UnreadService::start();
    service.flood();
    service.terminate();
    let status = wait_for("the end", || service.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

/// Returns the request ids of the audit lines.
fn audited_ids(lines: &[Value]) -> Vec<&str> {
    let audited = lines.iter().filter(|line| line["target"] == "audit");
    audited
        .filter_map(|line| line["request_id"].as_str())
        .collect()
}

#[test]
fn audit_lines_are_never_dropped_and_are_written_before_the_service_exits() {
    let mut service = UnreadService::start();
    service.flood();
    let ids: Vec<_> = (0..50).map(|id| format!("change-{id}")).collect();
    for id in 0..ids.len() {
        assert_eq!(service.refund(id).status, 200);
    }
    service.terminate();
    // The reader starts only after SIGTERM.
    let reader = service.read();
    let status = wait_for("the end", || service.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
    assert_eq!(audited_ids(&reader.join().unwrap()), ids);
}

#[test]
fn a_change_waits_for_room_for_its_audit_line_and_then_fails_while_decisions_continue() {
    const WAIT: Duration = Duration::from_secs(5);
    let mut service = UnreadService::start();
    let body = r#"{"rule_set":"api","cost":100000}"#;
    assert_eq!(service.http.post("/v1/check", body).status, 200);
    // The pipe fills up, and then the queue of audit lines.
    let mut made = 0;
    let (refused, took) = loop {
        let (answer, took) = timed(|| service.refund(made));
        if answer.status != 200 {
            break (answer, took);
        }
        made += 1;
        assert!(made < 20_000, "the queue is not bounded");
    };
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body.contains("nothing was changed"), "{refused:?}");
    assert!((WAIT..WAIT * 4).contains(&took), "{took:?}");
    assert_eq!(service.remaining(), made as u64);

    // Decisions continue while a change waits.
    let mut waiting = Http::new(service.address);
    let waiting = thread::spawn(move || {
        let headers = [
            ("X-Request-Id", "waits"),
            ("Content-Type", "application/json"),
        ];
        let body = r#"{"rule_set":"api","rule":"r","units":1}"#;
        waiting.request("POST", "/v1/refund", &headers, body)
    });
    // Few, so that a busy machine makes them all before the change gives up.
    for _ in 0..50 {
        let body = r#"{"rule_set":"api"}"#;
        let (answer, took) = timed(|| service.http.post("/v1/check", body));
        assert_eq!(answer.status, 200);
        assert!(took < WAIT / 2, "{took:?}");
    }
    // The change completes as soon as the log is read.
    let reader = service.read();
    assert_eq!(waiting.join().unwrap().status, 200);
    service.terminate();
    wait_for("the end", || service.child.try_wait().unwrap());
    let lines = reader.join().unwrap();
    let mut ids: Vec<_> = (0..made).map(|id| format!("change-{id}")).collect();
    ids.push("waits".into());
    assert_eq!(audited_ids(&lines), ids);
}

#[test]
fn the_service_exits_in_time_if_the_disk_of_the_log_is_full() {
    let mut service = UnreadService::start_with(Stdio::from(
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap(),
    ));
    for id in 0..10 {
        assert_eq!(service.refund(id).status, 200);
    }
    service.terminate();
    let (status, took) = timed(|| wait_for("the end", || service.child.try_wait().unwrap()));
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(20), "{took:?}");
}
