//! Pipelines, and input that is split, too large or invalid.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::{connect, integers, is_closed, run, start};
use crate::support::TWO_A_SECOND;

const THROTTLE: &[u8] =
    b"*5\r\n$11\r\nCL.THROTTLE\r\n$3\r\nkey\r\n$4\r\n9999\r\n$1\r\n1\r\n$5\r\n10000\r\n";

#[test]
fn ten_thousand_commands_in_one_write_are_answered_in_order() {
    let (_service, mut cli) = start(TWO_A_SECOND);
    let mut pipeline = Vec::new();
    for index in 0..5_000 {
        pipeline.extend(THROTTLE);
        let number = index.to_string();
        pipeline.extend(format!("*2\r\n$4\r\nECHO\r\n${}\r\n{number}\r\n", number.len()).bytes());
    }
    cli.send_raw(&pipeline).unwrap();
    let replies: Vec<_> = (0..10_000).map(|_| cli.receive().unwrap()).collect();
    for (index, pair) in replies.chunks(2).enumerate() {
        let left = 9_999 - i64::try_from(index).unwrap();
        assert_eq!(integers(&pair[0])[..3], [0, 10_000, left]);
        assert_eq!(pair[1].text(), index.to_string());
    }
}

#[test]
fn a_request_that_arrives_byte_by_byte_does_not_block_other_clients() {
    let (service, mut cli) = start(TWO_A_SECOND);
    let (last, first) = THROTTLE.split_last().unwrap();
    for byte in first {
        cli.send_raw(&[*byte]).unwrap();
    }
    let mut other = connect(&service);
    assert_eq!(run(&mut other, "PING").text(), "PONG");
    cli.send_raw(&[*last]).unwrap();
    assert_eq!(integers(&cli.receive().unwrap())[..3], [0, 10_000, 9_999]);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from_and_does_not_block_others() {
    let (service, mut cli) = start(TWO_A_SECOND);
    let mut silent = TcpStream::connect(service.address("resp")).unwrap();
    silent.set_nonblocking(true).unwrap();
    let request = b"*2\r\n$7\r\nCOMMAND\r\n$4\r\nDOCS\r\n".repeat(1_000);
    // A reply is a hundred times larger than its request, so the buffers are soon full.
    let mut sent = 0;
    fluxgate_testkit::wait_until("the service stops reading", || {
        assert_eq!(run(&mut cli, "PING").text(), "PONG");
        match silent.write(&request) {
            Ok(count) => {
                sent += count;
                false
            }
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    });
    assert!(sent < 100 << 20, "{sent}");
    let resident = service_memory(&service);
    assert!(resident < 300 << 10, "{resident} KiB");
    // When the client reads, it is served again.
    silent.set_nonblocking(false).unwrap();
    let mut some = vec![0; 1 << 20];
    silent.read_exact(&mut some).unwrap();
    assert!(some.starts_with(b"*40\r\n$11\r\ncl.throttle\r\n"));
}

fn service_memory(service: &super::Service) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.program.id()));
    let status = status.unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1);
    kib.unwrap().parse().unwrap()
}

#[test]
fn an_invalid_request_closes_only_its_own_connection() {
    let (service, mut other) = start(TWO_A_SECOND);
    let long = [b'a'; 70_000];
    for (garbage, error) in [
        (
            &b"good morning\r\n"[..],
            "ERR unknown command 'good', with args beginning with: 'morning' ",
        ),
        (
            b"GET / HTTP/1.1\r\n\r\n",
            "ERR unknown command 'GET', with args beginning with: '/' 'HTTP/1.1' ",
        ),
        (b"\x16\x03\x01\x02\x00\n", "ERR unknown command"),
        (
            b"*1\r\n$70000\r\n",
            "ERR Protocol error: invalid bulk length",
        ),
        (b"*2000\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*1\r\n:1\r\n", "ERR Protocol error: expected '$', got ':'"),
        (b"*1\r\n$4\r\nPINGxx", "ERR Protocol error: expected CRLF"),
        (&long, "ERR Protocol error: too big inline request"),
    ] {
        let mut cli = connect(&service);
        // Earlier commands are answered, later ones are not.
        cli.send_raw(b"PING\r\n").unwrap();
        cli.send_raw(garbage).unwrap();
        cli.send_raw(b"PING\r\n").unwrap();
        assert_eq!(cli.receive().unwrap().text(), "PONG");
        let reply = cli.receive().unwrap();
        assert!(reply.error().unwrap().starts_with(error), "{reply:?}");
        assert!(is_closed(&mut cli), "{error}");
        assert_eq!(run(&mut other, "PING").text(), "PONG");
    }
}

#[test]
fn large_requests_are_accepted_up_to_the_limit() {
    let (_service, mut cli) = start(TWO_A_SECOND);
    let large = vec![b'x'; 64 * 1024];
    assert_eq!(cli.command(&[&b"ECHO"[..], &large]).bytes(), large);
    let mut many: Vec<&[u8]> = vec![b"FG.CHECK", b"api", b"user", b"u"];
    let names: Vec<_> = (0..500).map(|index| format!("header:h{index}")).collect();
    for name in &names {
        many.extend([name.as_bytes(), &large[..200]]);
    }
    assert_eq!(cli.command(&many).array()[0].int(), 1);
}

#[test]
fn random_bytes_close_at_most_their_own_connection() {
    let (service, mut other) = start(TWO_A_SECOND);
    let mut state = 7_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..200 {
        let mut stream = TcpStream::connect(service.address("resp")).unwrap();
        let length = random() % 3_000;
        let bytes: Vec<u8> = (0..length)
            .map(|_| match random() % 4 {
                0 => b"*$\r\n0123"[(random() % 8) as usize],
                _ => (random() >> 11) as u8,
            })
            .collect();
        // The service may close the connection before everything is sent.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(run(&mut other, "PING").text(), "PONG");
    assert!(service.program.ended().is_none());
}
