//! How the service starts and ends.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use fluxgate_testkit::{Program, wait_until};

use super::Service;
use crate::support::{Dir, TWO_A_SECOND};

#[test]
fn told_to_end_it_ends_well() {
    for signal in ["TERM", "INT"] {
        let service = Service::start(&[], TWO_A_SECOND);
        // An idle connection does not hold it up.
        let mut http = service.http();
        assert_eq!(http.get("/livez").status, 200);
        service.program.signal(signal);
        assert_eq!(service.program.wait().code(), Some(0), "{signal}");
    }
}

#[test]
fn told_to_end_under_load_it_loses_no_request() {
    const CLIENTS: u32 = 64;
    let service = Service::start(&[], TWO_A_SECOND);
    let (answered, lost) = (AtomicU32::new(0), AtomicU32::new(0));
    let closing = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (answered, lost, closing) = (&answered, &lost, &closing);
            let mut http = service.http();
            let body = format!("{{\"user\":\"{client}\"}}");
            scope.spawn(move || {
                loop {
                    match http.try_request("POST", "/v1/check", &[], &body) {
                        Ok(answer) => {
                            assert_eq!(answer.status, 200);
                            answered.fetch_add(1, Ordering::Relaxed);
                            if answer.header("connection") == Some("close") {
                                return;
                            }
                        }
                        // There is nobody to connect to any more.
                        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                            return;
                        }
                        Err(error) => {
                            assert!(closing.load(Ordering::Relaxed), "{error}");
                            lost.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                    }
                }
            });
        }
        wait_until("the load is on", || {
            answered.load(Ordering::Relaxed) > 10 * CLIENTS
        });
        closing.store(true, Ordering::Relaxed);
        service.program.signal("TERM");
    });
    assert_eq!(service.program.wait().code(), Some(0));
    assert_eq!(lost.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_in_flight_is_answered_before_it_ends() {
    let service = Service::start(&[], TWO_A_SECOND);
    let mut http = service.http();
    let body = r#"{"user":"u1"}"#;
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    http.send_raw(head.as_bytes()).unwrap();
    // It has been taken once another request has been answered on the same core;
    // as many as there are cores, and a few more.
    for _ in 0..20 {
        assert_eq!(service.http().get("/livez").status, 200);
    }
    service.program.signal("TERM");
    wait_until("nobody is let in any more", || {
        let mut late = service.http();
        late.try_request("GET", "/livez", &[], "").is_err()
    });
    assert!(service.program.ended().is_none());
    http.send_raw(body.as_bytes()).unwrap();
    let answer = http.read_answer(false).unwrap();
    assert_eq!(
        (answer.status, answer.header("connection")),
        (200, Some("close"))
    );
    assert_eq!(service.program.wait().code(), Some(0));
}

#[test]
fn an_address_that_is_taken_is_told() {
    let service = Service::start(&[], TWO_A_SECOND);
    let address = service.address("api");
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        format!("listen: {{ api: \"{address}\" }}\n{TWO_A_SECOND}"),
    );
    let second = Program::start(env!("CARGO_BIN_EXE_fluxgate"), |command| {
        command
            .args(["run", "--config", "fluxgate.yaml"])
            .current_dir(dir.path(""));
    });
    assert_eq!(second.wait().code(), Some(69));
    wait_until("it says why", || {
        let expected = format!("listen.api: {address}: Address already in use");
        second
            .lines()
            .iter()
            .any(|line| line.starts_with(&expected))
    });
}

#[test]
fn it_may_open_as_many_files_as_the_system_lets_it() {
    let dir = Dir::new();
    dir.write("fluxgate.yaml", "listen: { api: \"127.0.0.1:0\" }\n");
    let program = Program::start("bash", |command| {
        let run = "ulimit -S -n 256 && exec \"$0\" run --config fluxgate.yaml";
        let binary = env!("CARGO_BIN_EXE_fluxgate");
        command.args(["-c", run, binary]).current_dir(dir.path(""));
    });
    program.wait_for_line("it listens", |line| {
        line.contains("listening").then_some(())
    });
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", program.id())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let numbers: Vec<_> = line.split_whitespace().skip(3).take(2).collect();
    assert!(numbers[0] == numbers[1] && numbers[0] != "256", "{line}");
}

#[test]
fn a_bad_config_is_told_fault_by_fault() {
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        "listen: { api: nowhere }\nrule_sets: { a: { rules: [ {} ] } }\n",
    );
    let run = dir.run(&["run", "--config", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(78));
    let lines: Vec<_> = run.stderr.lines().collect();
    assert!(
        lines.len() > 1 && lines.iter().all(|line| line.starts_with("fluxgate.yaml:")),
        "{lines:?}"
    );
}
