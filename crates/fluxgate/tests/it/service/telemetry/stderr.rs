//! A standard error that nobody reads.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fluxgate_testkit::{Answer, Http, ports, timed, wait_for, wait_until};
use serde_json::Value;

use super::objects;
use crate::support::Dir;

/// The service with a pipe for its standard error that is not read.
struct Unread {
    child: Child,
    address: SocketAddr,
    http: Http,
    _dir: Dir,
    _port: ports::Port,
}

impl Unread {
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

    /// Asks until lines are dropped: the pipe is full, and then the queue.
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

    /// Gives a unit back, which is a change.
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

    /// Begins to read, to the end.
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

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_service_goes_on_and_says_later_what_was_lost() {
    let mut service = Unread::start();
    service.flood();
    for _ in 0..100 {
        assert_eq!(service.http.get("/readyz").status, 200);
    }
    let lost = service.dropped();
    // Now it is read, and all of it is lines.
    let reader = service.read();
    wait_until("room in the queue", || {
        let before = service.dropped();
        service.http.get("/livez");
        service.dropped() == before
    });
    service.terminate();
    wait_for("the end", || service.child.try_wait().unwrap());
    let lines = reader.join().unwrap();
    let told = lines
        .iter()
        .filter(|line| line["message"] == "log lines were dropped");
    let told: u64 = told.map(|line| line["lines"].as_u64().unwrap()).sum();
    assert!(told >= lost, "{told} of {lost}");
    assert!(lines.iter().any(|line| line["message"] == "closing"));
}

#[test]
fn the_service_ends_all_the_same() {
    let mut service = Unread::start();
    service.flood();
    service.terminate();
    let status = wait_for("the end", || service.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

/// The ids of the changes that were noted.
fn noted(lines: &[Value]) -> Vec<&str> {
    let noted = lines.iter().filter(|line| line["target"] == "audit");
    noted
        .filter_map(|line| line["request_id"].as_str())
        .collect()
}

#[test]
fn audit_lines_are_kept_when_others_are_dropped_and_written_before_the_end() {
    let mut service = Unread::start();
    service.flood();
    let ids: Vec<_> = (0..50).map(|id| format!("change-{id}")).collect();
    for id in 0..ids.len() {
        assert_eq!(service.refund(id).status, 200);
    }
    service.terminate();
    // What reads it comes back after the service was told to end.
    let reader = service.read();
    let status = wait_for("the end", || service.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
    assert_eq!(noted(&reader.join().unwrap()), ids);
}

#[test]
fn a_change_whose_line_has_no_room_waits_and_is_refused_and_decisions_are_not() {
    const WAIT: Duration = Duration::from_secs(5);
    let mut service = Unread::start();
    let body = r#"{"rule_set":"api","cost":100000}"#;
    assert_eq!(service.http.post("/v1/check", body).status, 200);
    // The pipe fills up, and then the places of lines that are not written.
    let mut made = 0;
    let (refused, took) = loop {
        let (answer, took) = timed(|| service.refund(made));
        if answer.status != 200 {
            break (answer, took);
        }
        made += 1;
        assert!(made < 20_000, "there is no bound");
    };
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body.contains("nothing was changed"), "{refused:?}");
    assert!((WAIT..WAIT * 4).contains(&took), "{took:?}");
    assert_eq!(service.remaining(), made as u64);

    // While one waits, decisions are made.
    let mut waiting = Http::new(service.address);
    let waiting = thread::spawn(move || {
        let headers = [
            ("X-Request-Id", "waits"),
            ("Content-Type", "application/json"),
        ];
        let body = r#"{"rule_set":"api","rule":"r","units":1}"#;
        waiting.request("POST", "/v1/refund", &headers, body)
    });
    for _ in 0..200 {
        let body = r#"{"rule_set":"api"}"#;
        let (answer, took) = timed(|| service.http.post("/v1/check", body));
        assert_eq!(answer.status, 200);
        assert!(took < WAIT / 2, "{took:?}");
    }
    // And it is done as soon as the log is read.
    let reader = service.read();
    assert_eq!(waiting.join().unwrap().status, 200);
    service.terminate();
    wait_for("the end", || service.child.try_wait().unwrap());
    let lines = reader.join().unwrap();
    let mut ids: Vec<_> = (0..made).map(|id| format!("change-{id}")).collect();
    ids.push("waits".into());
    assert_eq!(noted(&lines), ids);
}

#[test]
fn a_log_on_a_full_disk_ends_the_service_in_time_all_the_same() {
    let mut service = Unread::start_with(Stdio::from(
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
