//! A standard error that nobody reads.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use fluxgate_testkit::{Http, ports, wait_for, wait_until};

use super::objects;
use crate::support::Dir;

/// The service with a pipe for its standard error that is not read.
struct Unread {
    child: Child,
    http: Http,
    _dir: Dir,
    _port: ports::Port,
}

impl Unread {
    fn start() -> Self {
        let dir = Dir::new();
        let port = ports::free();
        let address = port.addr();
        let config = format!(
            "listen: {{ api: '{address}' }}\ntelemetry: {{ level: debug }}\nrule_sets: {{}}\n"
        );
        dir.write("fluxgate.yaml", config);
        let mut command = dir.command(&["run", "--config", "fluxgate.yaml"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = child.spawn().unwrap();
        let mut http = Http::new(address);
        wait_until("the service is ready", || {
            let answer = http.try_request("GET", "/readyz", &[], "");
            answer.is_ok_and(|answer| answer.status == 200)
        });
        Self {
            child,
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
    let stderr = BufReader::new(service.child.stderr.take().unwrap());
    let reader = std::thread::spawn(move || {
        let lines: Result<Vec<_>, _> = stderr.lines().collect();
        lines.unwrap()
    });
    wait_until("room in the queue", || {
        let before = service.dropped();
        service.http.get("/livez");
        service.dropped() == before
    });
    service.terminate();
    wait_for("the end", || service.child.try_wait().unwrap());
    let lines = objects(&reader.join().unwrap());
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
