//! A sender that is faster than its reader is slowed down.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use fluxgate_testkit::{RawUpstream, wait_until};

use super::super::memory::{peak_kib, used_kib};
use super::super::{client, gateway};
use super::memory::MAX_KIB;

const MEBIBYTE: usize = 1 << 20;
/// A write that takes this long has stalled, even on a busy machine.
const STALLED: Duration = Duration::from_secs(4);

#[test]
fn an_upstream_that_does_not_read_stops_the_client() {
    const MAX_MIB: usize = 512;
    // Reads nothing until the client has given up.
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let upstream = RawUpstream::start(move |connection| {
        connection.wait_for_bytes(1);
        let _ = released.lock().unwrap().recv();
    });
    let service = gateway(&[upstream.address()], "");
    let before = used_kib(&service);
    let (_, mut stream) = client(&service).into_stream();
    stream.set_write_timeout(Some(STALLED)).unwrap();
    stream
        .write_all(b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 107374182400\r\n\r\n")
        .unwrap();
    let block = vec![b'x'; MEBIBYTE];
    let is_accepted = |_: &usize| stream.write_all(&block).is_ok();
    let sent = (0..MAX_MIB).take_while(is_accepted).count();
    assert!(sent < MAX_MIB, "{sent} MiB were accepted");
    let more = peak_kib(&service).saturating_sub(before);
    assert!(more < MAX_KIB, "{more} KiB more");
    drop(release);
}

#[test]
fn a_client_that_does_not_read_stops_the_upstream() {
    const MAX_MIB: u64 = 512;
    let sent = Arc::new(AtomicU64::new(0));
    let upstream = {
        let sent = Arc::clone(&sent);
        RawUpstream::start(move |connection| {
            connection.read_request();
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 107374182400\r\n\r\n");
            let block = vec![b'x'; MEBIBYTE];
            let (_, stream) = connection.stream();
            stream.set_write_timeout(Some(STALLED)).unwrap();
            while sent.load(Ordering::SeqCst) < MAX_MIB && stream.write_all(&block).is_ok() {
                sent.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let service = gateway(&[upstream.address()], "");
    let before = used_kib(&service);
    let mut client = client(&service);
    client.send("GET /down HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the upstream gives up", || {
        upstream.received().first().is_some_and(|it| it.is_over)
    });
    let sent = sent.load(Ordering::SeqCst);
    assert!((1..MAX_MIB).contains(&sent), "{sent} MiB were accepted");
    let more = peak_kib(&service).saturating_sub(before);
    assert!(more < MAX_KIB, "{more} KiB more");
}
