//! The memory that the service uses, and that it releases it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fluxgate_testkit::wait_until;

use super::config;
use super::counting_upstream::CountingUpstream;
use crate::service::Service;

/// Returns the resident memory in KiB.
pub(crate) fn used_kib(service: &Service) -> u64 {
    field(service, "VmRSS:")
}

/// Returns the peak of the resident memory in KiB.
pub(crate) fn peak_kib(service: &Service) -> u64 {
    field(service, "VmHWM:")
}

fn field(service: &Service, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.program.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap().trim().strip_suffix(" kB").unwrap();
    value.parse().unwrap()
}

/// Held while connections are open: two bursts at once would need more descriptors than a
/// process may have.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn one_at_a_time() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

const COUNT: usize = 5_000;
/// The allowed growth once the service is idle again.
const MAX_GROWTH_KIB: u64 = 64 * 1024;
/// The allowed growth for each open connection.
const MAX_KIB_PER_CONNECTION: u64 = 20;

/// Returns a head of 60 kB.
fn large_head(line: &str) -> Vec<u8> {
    let filler = (0..59).map(|number| format!("X-{number}: {}\r\n", "v".repeat(1_000)));
    let filler: String = filler.collect();
    format!("{line} HTTP/1.1\r\nHost: a\r\n{filler}\r\n").into_bytes()
}

/// Sends `bytes` over 5,000 connections and waits for responses that start with
/// `response`. If `at_once`, the last two bytes are held back until all connections have
/// sent the others. The connections stay open.
fn burst(
    (service, listener): (&Service, &str),
    bytes: &[u8],
    response: &[u8],
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
        let mut start = vec![0; response.len()];
        stream.read_exact(&mut start).unwrap();
        assert_eq!(start, response, "{}", start.escape_ascii());
    };
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let (first, last) = bytes.split_at(bytes.len() - 2);
    let open = (0..COUNT).map(|_| {
        let mut stream = connect();
        stream.write_all(first).unwrap();
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
fn assert_released(service: &Service, before: u64, open: &[TcpStream], what: &str) {
    let peak = peak_kib(service);
    let open = u64::try_from(open.len()).unwrap();
    let max = before + MAX_GROWTH_KIB + open * MAX_KIB_PER_CONNECTION;
    wait_until(what, || used_kib(service) <= max);
    let now = used_kib(service);
    println!("{what}: {before} KiB before, {peak} at the peak, {now} now");
}

/// The allocator returns free pages only after some time, for which the three wait together.
#[test]
fn large_heads_and_commands_are_released() {
    thread::scope(|scope| {
        for part in [heads, heads_of_the_api, resp_commands] {
            scope.spawn(part);
        }
    });
}

fn heads() {
    let upstream = CountingUpstream::start();
    let timeouts = "  timeouts: { headers: 10m, idle: 10m }\n";
    let service = Service::start(&["gateway"], &config(&[upstream.address], "", timeouts));
    let before = used_kib(&service);
    let ok = b"HTTP/1.1 200 OK";
    for at_once in [false, true] {
        let head = large_head("GET /x");
        let lock = one_at_a_time();
        let open = burst((&service, "gateway"), &head, ok, at_once);
        assert_released(&service, before, &open, "idle connections hold no buffers");
        drop((open, lock));
        assert_released(&service, before, &[], "closed connections hold nothing");
    }
}

fn heads_of_the_api() {
    let service = Service::start(&[], "");
    let before = used_kib(&service);
    for at_once in [false, true] {
        let head = large_head("GET /livez");
        let lock = one_at_a_time();
        drop(burst((&service, "api"), &head, b"HTTP/1.1 200 OK", at_once));
        drop(lock);
        assert_released(&service, before, &[], "closed connections hold nothing");
    }
}

fn resp_commands() {
    let service = Service::start(&["resp"], "");
    let before = used_kib(&service);
    let value = "v".repeat(60_000);
    let command = format!("*2\r\n$4\r\nPING\r\n$60000\r\n{value}\r\n");
    for at_once in [false, true] {
        let lock = one_at_a_time();
        let open = burst(
            (&service, "resp"),
            command.as_bytes(),
            b"$60000\r\nv",
            at_once,
        );
        assert_released(&service, before, &open, "idle connections hold no buffers");
        drop((open, lock));
        assert_released(&service, before, &[], "closed connections hold nothing");
    }
}
