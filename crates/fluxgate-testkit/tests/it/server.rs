//! A single server: start, kill, restart, users, TLS and clock.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fluxgate_testkit::{Certificates, ClientAuth, RedisServer, Reply, Skew, wait_until};

const SHORT: Duration = Duration::from_millis(200);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_server_answers_and_loses_its_data_when_killed() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    cli.command(&["SET", "a", "b"]).expect_ok();
    assert_eq!(cli.command(&["GET", "a"]), Reply::Bulk(b"b".to_vec()));
    assert_eq!((cli.dbsize(), cli.keys("*")), (1, vec!["a".to_owned()]));
    assert_eq!((cli.calls("get"), cli.calls("evalsha")), (1, 0));
    assert!(cli.info("redis_version").is_some());

    let (port, pid) = (server.port(), server.pid());
    server.kill();
    assert!(!server.is_running());
    assert!(cli.try_command(&["PING"]).is_err());
    assert_eq!(
        server.try_cli().unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );

    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert!(server.cli().command(&["GET", "a"]).is_nil());
    assert_eq!(server.url(), format!("redis://127.0.0.1:{port}"));
}

#[test]
fn a_paused_server_is_silent_until_it_is_resumed() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    server.pause();
    assert!(server.is_running());
    cli.set_timeout(SHORT).unwrap();
    cli.send(&["PING"]).unwrap();
    assert_eq!(cli.receive().unwrap_err().kind(), ErrorKind::WouldBlock);
    server.resume();
    cli.set_timeout(fluxgate_testkit::WAIT_TIMEOUT).unwrap();
    assert_eq!(cli.receive().unwrap().text(), "PONG");
}

#[test]
fn dropping_a_paused_server_removes_its_process_and_directory() {
    let server = RedisServer::start();
    let directory = server.directory().to_owned();
    let process = format!("/proc/{}", server.pid());
    assert!(directory.exists() && Path::new(&process).exists());
    server.pause();
    drop(server);
    assert!(!directory.exists() && !Path::new(&process).exists());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(RedisServer::start).join().unwrap();
    assert_eq!(server.cli().command(&["PING"]).text(), "PONG");
    assert!(server.is_running());
}

#[test]
fn a_server_dies_with_the_process_that_started_it() {
    if std::env::var_os("FLUXGATE_TESTKIT_CHILD").is_some() {
        let server = RedisServer::start();
        println!("\nserver {} {}", server.pid(), server.directory().display());
        std::process::abort();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("server::a_server_dies_with_the_process_that_started_it")
        .env("FLUXGATE_TESTKIT_CHILD", "1")
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let line = output.lines().find_map(|line| line.strip_prefix("server "));
    let (pid, directory) = line.unwrap().split_once(' ').unwrap();
    wait_until("the orphan is killed", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_err() || status.unwrap().contains("State:\tZ")
    });
    // Now it writes no file there any more.
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
#[should_panic(expected = "no-such-directive")]
fn the_panic_of_a_server_that_does_not_start_contains_its_log() {
    RedisServer::builder().config("no-such-directive 1").start();
}

#[test]
fn passwords_users_and_the_unix_socket_work() {
    let server = RedisServer::builder()
        .password("secret")
        .user("reader on >pw ~fg:* -@all +get")
        .unix_socket()
        .start();
    assert_eq!(server.cli().command(&["PING"]).text(), "PONG");

    let mut stranger = fluxgate_testkit::Cli::connect(server.addr()).unwrap();
    let error = |reply: Reply| reply.error().unwrap_or_default().to_owned();
    assert!(error(stranger.command(&["GET", "fg:a"])).starts_with("NOAUTH"));
    stranger.command(&["AUTH", "reader", "pw"]).expect_ok();
    assert!(stranger.command(&["GET", "fg:a"]).is_nil());
    assert!(error(stranger.command(&["SET", "fg:a", "1"])).starts_with("NOPERM"));

    let mut local = UnixStream::connect(server.socket_path()).unwrap();
    local.write_all(b"AUTH secret\r\nDBSIZE\r\n").unwrap();
    let mut replies = [0; 9];
    local.read_exact(&mut replies).unwrap();
    assert_eq!(&replies, b"+OK\r\n:0\r\n");
    let port = server.port();
    assert_eq!(server.url(), format!("redis://:secret@127.0.0.1:{port}"));
    let other = server.url_as("reader", "pw");
    assert_eq!(other, format!("redis://reader:pw@127.0.0.1:{port}"));
}

#[test]
fn a_server_without_memory_rejects_writes() {
    let server = RedisServer::builder().max_memory(1).start();
    let reply = server.cli().command(&["SET", "a", "b"]);
    assert!(reply.error().unwrap().starts_with("OOM"));
}

#[test]
fn tls_requires_a_client_certificate_only_if_configured() {
    let open = RedisServer::builder().tls(ClientAuth::Off).start();
    let closed = RedisServer::builder().tls(ClientAuth::Required).start();
    let stranger = Certificates::generate();
    assert!(tls_ping(&open, open.certificates(), false));
    assert!(!tls_ping(&open, &stranger, false), "an unknown authority");
    assert!(!tls_ping(&closed, closed.certificates(), false));
    assert!(tls_ping(&closed, closed.certificates(), true));
    assert_eq!(open.tls_url(), format!("rediss://{}", open.tls_addr()));
    assert_eq!(open.cli().command(&["PING"]).text(), "PONG");
}

fn tls_ping(server: &RedisServer, files: &Certificates, with_certificate: bool) -> bool {
    let mut command = Command::new("redis-cli");
    command.args(["-h", "127.0.0.1", "-p"]);
    command.arg(server.tls_addr().port().to_string());
    command.arg("--tls").arg("--cacert").arg(files.ca());
    if with_certificate {
        command.arg("--cert").arg(files.client_cert());
        command.arg("--key").arg(files.client_key());
    }
    let output = command.arg("PING").output().unwrap();
    output.stdout.starts_with(b"PONG")
}

#[test]
fn the_clock_of_a_running_server_can_be_shifted() {
    let right = RedisServer::start();
    let wrong = RedisServer::builder()
        .clock_offset(Skew::Ahead(HOUR))
        .start();
    // In minutes, because some time passes between the two reads.
    let ahead = || {
        let difference = wrong.cli().time_micros() - right.cli().time_micros();
        (difference + 30_000_000).div_euclid(60_000_000)
    };
    assert_eq!(ahead(), 60);
    wrong.set_clock_offset(Skew::Behind(HOUR));
    assert_eq!(ahead(), -60);

    // Scripts and expiration use the shifted clock.
    let script = "return redis.call('TIME')[1]";
    let seconds = wrong.cli().command(&["EVAL", script, "0"]).text();
    let seconds: i64 = seconds.parse().unwrap();
    assert!((seconds - wrong.cli().time_micros() / 1_000_000).abs() < 60);
    let mut cli = wrong.cli();
    cli.command(&["SET", "a", "b", "EX", "1800"]).expect_ok();
    wrong.set_clock_offset(Skew::NONE);
    assert_eq!(ahead(), 0);
    assert!(cli.command(&["GET", "a"]).is_nil());

    wrong.restart();
    assert_eq!(ahead(), 0);
}
