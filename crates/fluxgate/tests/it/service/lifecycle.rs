//! How the service starts and ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fluxgate_testkit::{Program, WAIT_TIMEOUT, now, ports, timed, wait_until};

use super::Service;
use crate::support::{Dir, TWO_A_SECOND};

#[test]
fn a_signal_shuts_the_service_down() {
    for signal in ["TERM", "INT"] {
        let service = Service::start(&[], TWO_A_SECOND);
        // An idle connection does not delay the shutdown.
        let mut http = service.http();
        assert_eq!(http.get("/livez").status, 200);
        service.program.signal(signal);
        assert_eq!(service.program.wait().code(), Some(0), "{signal}");
    }
}

/// Starts the service, and connects as soon as its address is open.
fn start_and_connect(dir: &Dir) -> (Program, TcpStream) {
    let port = ports::free();
    let address = port.addr();
    let config = format!("listen: {{ api: \"{address}\" }}\n{TWO_A_SECOND}");
    dir.write("fluxgate.yaml", config);
    let program = Program::start(env!("CARGO_BIN_EXE_fluxgate"), |command| {
        command
            .args(["run", "--config", "fluxgate.yaml"])
            .current_dir(dir.path(""));
    });
    // Without a pause, so that the first successful attempt is as early as possible.
    let end = now() + WAIT_TIMEOUT;
    while now() < end {
        if let Ok(stream) = TcpStream::connect(address) {
            return (program, stream);
        }
    }
    panic!("the service does not listen: {:?}", program.lines());
}

#[test]
fn rules_are_active_before_an_address_is_open() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("rules.d")).unwrap();
    dir.write("rules.d/a.yaml", TWO_A_SECOND);
    for rules in [TWO_A_SECOND, "rules_from: { dir: rules.d }\n"] {
        let name = format!("{}.yaml", rules.len());
        dir.write(&name, format!("listen: {{ api: '127.0.0.1:0' }}\n{rules}"));
        let program = Program::start(env!("CARGO_BIN_EXE_fluxgate"), |command| {
            command
                .args(["run", "--config", &name])
                .current_dir(dir.path(""));
        });
        program.wait_for_line("a `listening` line", |line| {
            line.contains("\"listening\"").then_some(())
        });
        let lines = program.lines();
        let position = |text: &str| lines.iter().position(|line| line.contains(text));
        let active = position("\"rules are active\"");
        assert!(
            active.is_some() && active < position("\"listening\""),
            "{lines:#?}"
        );
    }
    // So the first request is answered.
    for _ in 0..5 {
        let (_program, mut stream) = start_and_connect(&dir);
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        let body = r#"{"user":"u1"}"#;
        let length = body.len();
        let head = format!("POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n");
        write!(stream, "{head}\r\n{body}").unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    }
}

#[test]
fn signals_are_handled_before_an_address_is_open() {
    let dir = Dir::new();
    for _ in 0..8 {
        let (program, _stream) = start_and_connect(&dir);
        program.signal("HUP");
        program.wait_for_line("the rules are checked again", |line| {
            line.contains("the rules are unchanged").then_some(())
        });
        program.signal("TERM");
        assert_eq!(program.wait().code(), Some(0));
    }
    for _ in 0..4 {
        let (program, _stream) = start_and_connect(&dir);
        program.signal("TERM");
        assert_eq!(program.wait().code(), Some(0));
    }
}

#[test]
fn a_shutdown_under_load_loses_no_request() {
    const CLIENTS: u32 = 64;
    let service = Service::start(&[], TWO_A_SECOND);
    // How long a connection without a request stays open after the signal. A client that is
    // late because the machine is busy may lose its request.
    const LINGER: Duration = Duration::from_millis(500);
    let (started, answered, lost) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let signal = OnceLock::<Instant>::new();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (started, answered, lost, signal) = (&started, &answered, &lost, &signal);
            let mut http = service.http();
            let body = format!("{{\"user\":\"{client}\"}}");
            let length = body.len();
            let head = format!("POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: {length}");
            let request = format!("{head}\r\n\r\n{body}");
            scope.spawn(move || {
                let mut is_first = true;
                loop {
                    let sending = http.send_raw(request.as_bytes());
                    let sent = now();
                    match sending.and_then(|()| http.read_answer(false)) {
                        Ok(answer) => {
                            assert_eq!(answer.status, 200);
                            answered.fetch_add(1, Ordering::Relaxed);
                            if answer.header("connection") == Some("close") {
                                return;
                            }
                        }
                        // The listener is closed.
                        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                            return;
                        }
                        Err(error) => {
                            let Some(signal) = signal.get() else {
                                panic!("{error} before the signal");
                            };
                            let is_late = sent >= *signal + LINGER;
                            lost.fetch_add(u32::from(!is_late), Ordering::Relaxed);
                            return;
                        }
                    }
                    if std::mem::take(&mut is_first) {
                        started.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // A connection that the service has not accepted yet would be reset.
        wait_until("the load", || {
            started.load(Ordering::Relaxed) == CLIENTS
                && answered.load(Ordering::Relaxed) > 10 * CLIENTS
        });
        signal.set(now()).unwrap();
        service.program.signal("TERM");
    });
    assert_eq!(service.program.wait().code(), Some(0));
    assert_eq!(lost.load(Ordering::Relaxed), 0);
}

#[test]
fn requests_in_flight_are_answered_before_the_end() {
    let service = Service::start(&[], TWO_A_SECOND);
    let mut http = service.http();
    let body = r#"{"user":"u1"}"#;
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    http.send_raw(head.as_bytes()).unwrap();
    // Once a later request has been answered on the same core, this one has been accepted.
    // So send more requests than there are cores.
    for _ in 0..20 {
        assert_eq!(service.http().get("/livez").status, 200);
    }
    service.program.signal("TERM");
    wait_until("new connections are refused", || {
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
fn a_delayed_shutdown_reports_not_ready_while_it_serves_new_connections() {
    // Long enough for the requests below, even on a busy machine.
    let config = format!("shutdown: {{ delay: 12s, grace: 10s }}\n{TWO_A_SECOND}");
    let service = Service::start(&[], &config);
    let mut http = service.http();
    assert_eq!(http.get("/readyz").status, 200);
    service.program.signal("TERM");
    // On new connections: a probe opens one each time.
    wait_until("the service is not ready", || {
        service.http().get("/readyz").status == 503
    });
    for _ in 0..10 {
        let answer = service.http().post("/v1/check", r#"{"user":"u1"}"#);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("connection"), None, "{answer:?}");
    }
    assert_eq!(service.http().get("/livez").status, 200);
    assert_eq!(http.get("/readyz").status, 503);
    assert!(service.program.ended().is_none());
    wait_until("new connections are refused", || {
        let mut late = service.http();
        late.try_request("GET", "/livez", &[], "").is_err()
    });
    assert_eq!(service.program.wait().code(), Some(0));
}

#[test]
fn a_shutdown_ends_within_its_grace_time() {
    let config = format!("shutdown: {{ grace: 100ms }}\n{TWO_A_SECOND}");
    let service = Service::start(&[], &config);
    let mut http = service.http();
    let head = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";
    http.send_raw(head.as_bytes()).unwrap();
    // As above: the unfinished request has been accepted.
    for _ in 0..20 {
        assert_eq!(service.http().get("/livez").status, 200);
    }
    service.program.signal("TERM");
    // A body may take 10 s to arrive.
    let (ended, took) = timed(|| service.program.wait());
    assert_eq!(ended.code(), Some(0));
    assert!(took < Duration::from_secs(8), "{took:?}");
    service.wait_for_log("requests in flight took too long; closing their connections");
}

#[test]
fn an_address_in_use_exits_with_69() {
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
    wait_until("the error message", || {
        let expected = format!("listen.api: {address}: Address already in use");
        second
            .lines()
            .iter()
            .any(|line| line.starts_with(&expected))
    });
}

#[test]
fn the_limit_on_open_files_is_raised_to_the_maximum() {
    let dir = Dir::new();
    dir.write("fluxgate.yaml", "listen: { api: \"127.0.0.1:0\" }\n");
    let program = Program::start("bash", |command| {
        let run = "ulimit -S -n 256 && exec \"$0\" run --config fluxgate.yaml";
        let binary = env!("CARGO_BIN_EXE_fluxgate");
        command.args(["-c", run, binary]).current_dir(dir.path(""));
    });
    program.wait_for_line("a `listening` line", |line| {
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
fn every_fault_of_a_config_is_reported() {
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
