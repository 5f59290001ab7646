//! How much memory the gateway uses, and that it gives it back.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fluxgate_testkit::wait_until;

use super::config;
use super::holding_upstream::HoldingUpstream;
use crate::service::Service;

/// What it uses now, in KiB.
pub(super) fn used_kib(service: &Service) -> u64 {
    field(service, "VmRSS:")
}

/// The most it has ever used, in KiB.
pub(super) fn peak_kib(service: &Service) -> u64 {
    field(service, "VmHWM:")
}

fn field(service: &Service, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.program.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap().trim().strip_suffix(" kB").unwrap();
    value.parse().unwrap()
}

/// Together they would need more descriptors than a process may have.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const COUNT: usize = 5_000;
/// How much more there may be once it is quiet.
const MOST_MORE_KIB: u64 = 64 * 1024;
/// And for each connection that is still open.
const OPEN_KIB: u64 = 20;

/// A request of 60 kB.
fn large(line: &str, more: &str) -> Vec<u8> {
    let filler = (0..59).map(|number| format!("X-{number}: {}\r\n", "v".repeat(1_000)));
    let filler: String = filler.collect();
    format!("{line} HTTP/1.1\r\nHost: a\r\n{more}{filler}\r\n").into_bytes()
}

/// Sends `bytes` over 5,000 connections, the last two of them only when all others
/// have come if `at_once`, and waits for the answers, which begin with `answer`.
/// The connections stay open.
fn burst(
    (service, listener): (&Service, &str),
    bytes: &[u8],
    answer: &[u8],
    at_once: bool,
) -> Vec<TcpStream> {
    let connect = || {
        let stream = TcpStream::connect(service.address(listener)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    };
    let read = |stream: &mut TcpStream| {
        let mut begin = vec![0; answer.len()];
        stream.read_exact(&mut begin).unwrap();
        assert_eq!(begin, answer, "{}", begin.escape_ascii());
    };
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let (most, last) = bytes.split_at(bytes.len() - 2);
    let open = (0..COUNT).map(|_| {
        let mut stream = connect();
        stream.write_all(most).unwrap();
        if !at_once {
            stream.write_all(last).unwrap();
            read(&mut stream);
        }
        stream
    });
    let mut open: Vec<_> = open.collect();
    if at_once {
        for streams in open.chunks_mut(100) {
            for stream in &mut *streams {
                stream.write_all(last).unwrap();
            }
            streams.iter_mut().for_each(read);
        }
    }
    open
}

#[track_caller]
fn assert_comes_down(service: &Service, before: u64, open: &[TcpStream], what: &str) {
    let peak = peak_kib(service);
    let open = u64::try_from(open.len()).unwrap();
    let most = before + MOST_MORE_KIB + open * OPEN_KIB;
    wait_until(what, || used_kib(service) <= most);
    let now = used_kib(service);
    println!("{what}: {before} KiB before, {peak} at the peak, {now} now");
}

#[test]
fn large_heads_then_quiet() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let upstream = HoldingUpstream::start();
    let timeouts = "  timeouts: { headers: 10m, idle: 10m }\n";
    let service = Service::start(&["gateway"], &config(&[upstream.address], "", timeouts));
    let before = used_kib(&service);
    let ok = b"HTTP/1.1 200 OK";
    for at_once in [false, true] {
        let head = large("GET /x", "");
        let open = burst((&service, "gateway"), &head, ok, at_once);
        assert_comes_down(&service, before, &open, "idle connections hold nothing");
        drop(open);
        assert_comes_down(&service, before, &[], "nor do those that are closed");
    }
}

#[test]
fn large_heads_at_the_api_then_quiet() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let service = Service::start(&[], "");
    let before = used_kib(&service);
    for at_once in [false, true] {
        let head = large("GET /livez", "");
        drop(burst((&service, "api"), &head, b"HTTP/1.1 200 OK", at_once));
        assert_comes_down(
            &service,
            before,
            &[],
            "connections that are closed hold nothing",
        );
    }
}

#[test]
fn large_commands_then_quiet() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let service = Service::start(&["resp"], "");
    let before = used_kib(&service);
    let value = "v".repeat(60_000);
    let command = format!("*2\r\n$4\r\nPING\r\n$60000\r\n{value}\r\n");
    for at_once in [false, true] {
        let open = burst(
            (&service, "resp"),
            command.as_bytes(),
            b"$60000\r\nv",
            at_once,
        );
        assert_comes_down(&service, before, &open, "idle connections hold nothing");
        drop(open);
        assert_comes_down(&service, before, &[], "nor do those that are closed");
    }
}
