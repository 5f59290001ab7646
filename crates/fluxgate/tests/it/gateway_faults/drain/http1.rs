//! Under load, over HTTP/1.1.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use fluxgate_testkit::{RawClient, RawUpstream, wait_until};

use super::super::{OK, client, gateway, ok_upstream};
use super::{GRACE, end_of};

const CLIENTS: u32 = 64;

/// Asks again and again; gives back how the connection ended, and how many
/// requests were lost.
fn ask_until_the_end(client: &mut RawClient, number: u32, answered: &AtomicU32) -> u32 {
    let request = match number % 3 {
        0 => "GET /x HTTP/1.1\r\nHost: a\r\n\r\n",
        1 => "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        _ => {
            "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        }
    };
    loop {
        client.send(request);
        match client.read_answer() {
            Ok(answer) => {
                assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
                answered.fetch_add(1, Ordering::Relaxed);
                if answer.is_last() {
                    return 0;
                }
            }
            // Nobody had said that this would be the end.
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
                return 1;
            }
        }
    }
}

#[test]
fn under_load_no_request_is_lost() {
    let upstream = RawUpstream::start(|connection| {
        while connection.read_request().is_some() {
            connection.pause(Duration::from_millis(2));
            connection.send(OK);
        }
    });
    let service = gateway(&[upstream.address()], "");
    let (answered, lost) = (AtomicU32::new(0), AtomicU32::new(0));
    let closing = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (answered, lost, closing, service) = (&answered, &lost, &closing, &service);
            scope.spawn(move || {
                let mut client = client(service);
                let count = ask_until_the_end(&mut client, number, answered);
                assert!(closing.load(Ordering::Relaxed), "it ended before its time");
                lost.fetch_add(count, Ordering::Relaxed);
            });
        }
        wait_until("the load is on", || {
            answered.load(Ordering::Relaxed) > 10 * CLIENTS
        });
        closing.store(true, Ordering::Relaxed);
        service.program.signal("TERM");
    });
    assert!(end_of(&service) < GRACE);
    assert_eq!(lost.load(Ordering::Relaxed), 0);
    // As many as were answered, each of them once.
    let answered = usize::try_from(answered.load(Ordering::Relaxed)).unwrap();
    assert_eq!(upstream.requests().len(), answered);
}

#[test]
fn idle_connections_do_not_hold_it_up() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    let mut idle: Vec<_> = (0..20).map(|_| client(&service)).collect();
    for client in idle.iter_mut().skip(10) {
        assert_eq!(client.get("/x").unwrap().status, 200);
    }
    service.program.signal("TERM");
    assert!(end_of(&service) < Duration::from_secs(10));
    for client in &mut idle {
        assert_eq!(client.read_to_end().unwrap(), b"");
    }
}

/// Half a head at the moment of the signal: it is served, if it comes in time.
#[test]
fn a_request_that_has_begun_is_served() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    for before in [false, true] {
        let mut client = client(&service);
        if before {
            assert_eq!(client.get("/x").unwrap().status, 200);
        }
    }
    let mut begun = client(&service);
    begun.send("POST /begun HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    wait_until("its head is passed on", || {
        let received = upstream.received();
        received.iter().any(|it| it.bytes.ends_with(b"hello"))
    });
    service.program.signal("TERM");
    wait_until("nobody is let in any more", || {
        RawClient::try_connect(service.address("gateway")).is_err()
    });
    begun.send("world");
    let answer = begun.read_answer().unwrap();
    assert_eq!((answer.status, answer.is_last()), (200, true));
    assert!(end_of(&service) < GRACE);
}
