//! Much goes through, and little stays.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fluxgate_testkit::{RawUpstream, timed};

use super::super::memory::{peak_kib, used_kib};
use super::super::{client, gateway};

const CHUNK: usize = 1 << 20;
/// How much more memory it may use than when it was idle.
pub(super) const MOST_KIB: u64 = 64 * 1024;

/// Sends a body of so many chunks.
fn send_chunks(stream: &mut TcpStream, count: u64) {
    let mut chunk = format!("{CHUNK:x}\r\n").into_bytes();
    chunk.resize(chunk.len() + CHUNK, b'x');
    chunk.extend_from_slice(b"\r\n");
    for _ in 0..count {
        stream.write_all(&chunk).unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
}

/// Counts what is in chunks, without keeping it.
fn count_chunks(stream: &mut TcpStream, mut each: impl FnMut(&[u8])) -> u64 {
    let mut reader = std::io::BufReader::with_capacity(CHUNK, stream);
    let mut buffer = vec![0; CHUNK];
    let mut total = 0;
    loop {
        let mut line = Vec::new();
        std::io::BufRead::read_until(&mut reader, b'\n', &mut line).unwrap();
        let line = String::from_utf8(line).unwrap();
        let mut left = u64::from_str_radix(line.trim_end(), 16).unwrap();
        if left == 0 {
            std::io::BufRead::read_until(&mut reader, b'\n', &mut Vec::new()).unwrap();
            return total;
        }
        total += left;
        while left > 0 {
            let most = buffer.len().min(usize::try_from(left).unwrap());
            let count = reader.read(&mut buffer[..most]).unwrap();
            assert!(count > 0, "it ended in a chunk");
            each(&buffer[..count]);
            left -= count as u64;
        }
        reader.read_exact(&mut buffer[..2]).unwrap();
        assert_eq!(&buffer[..2], b"\r\n");
    }
}

/// Reads up to the end of the head.
fn read_head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn ten_gibibytes_up_leave_memory_flat() {
    const MEBIBYTES: u64 = 10 << 10;
    let counted = Arc::new(AtomicU64::new(0));
    let upstream = {
        let counted = Arc::clone(&counted);
        RawUpstream::start(move |connection| {
            let (_, stream) = connection.stream();
            let head = read_head(stream);
            assert!(
                head.to_ascii_lowercase()
                    .contains("transfer-encoding: chunked"),
                "{head}"
            );
            let total = count_chunks(stream, |_| {});
            counted.store(total, Ordering::SeqCst);
            connection.send(super::super::OK);
        })
    };
    let service = gateway(&[upstream.address()], "");
    let before = used_kib(&service);
    let (_, mut stream) = client(&service).into_stream();
    stream
        .write_all(b"POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let (answer, took) = timed(|| {
        send_chunks(&mut stream, MEBIBYTES);
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).unwrap();
        answer
    });
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    assert_eq!(counted.load(Ordering::SeqCst), MEBIBYTES << 20);
    let more = peak_kib(&service).saturating_sub(before);
    println!("{MEBIBYTES} MiB up: {more} KiB more, {took:?}");
    assert!(more < MOST_KIB, "{more} KiB more");
}

#[test]
fn a_gibibyte_both_ways_at_once_leaves_memory_flat() {
    const MEBIBYTES: u64 = 1 << 10;
    // Sends back what it gets, at once, chunk by chunk.
    let upstream = RawUpstream::start(|connection| {
        let (_, stream) = connection.stream();
        read_head(stream);
        let mut back = stream.try_clone().unwrap();
        back.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .unwrap();
        count_chunks(stream, |piece| {
            let size = format!("{:x}\r\n", piece.len());
            back.write_all(size.as_bytes()).unwrap();
            back.write_all(piece).unwrap();
            back.write_all(b"\r\n").unwrap();
        });
        back.write_all(b"0\r\n\r\n").unwrap();
    });
    let service = gateway(&[upstream.address()], "");
    let before = used_kib(&service);
    let (_, mut stream) = client(&service).into_stream();
    let mut reading = stream.try_clone().unwrap();
    let ((), took) = timed(|| {
        thread::scope(|scope| {
            scope.spawn(move || {
                stream
                    .write_all(
                        b"POST /both HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
                    )
                    .unwrap();
                send_chunks(&mut stream, MEBIBYTES);
            });
            assert!(read_head(&mut reading).starts_with("HTTP/1.1 200"));
            let total = count_chunks(&mut reading, |piece| {
                assert!(piece.iter().all(|byte| *byte == b'x'));
            });
            assert_eq!(total, MEBIBYTES << 20);
        });
    });
    let more = peak_kib(&service).saturating_sub(before);
    println!("{MEBIBYTES} MiB both ways: {more} KiB more, {took:?}");
    assert!(more < MOST_KIB, "{more} KiB more");
}
