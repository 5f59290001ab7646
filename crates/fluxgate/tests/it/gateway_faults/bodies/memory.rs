//! Large bodies pass in constant memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fluxgate_testkit::{RawUpstream, timed};

use super::super::memory::{peak_kib, used_kib};
use super::super::{client, gateway};

const CHUNK: usize = 1 << 20;
/// The allowed growth over the memory of an idle gateway.
pub(super) const MAX_KIB: u64 = 64 * 1024;

/// Sends a body of `count` chunks.
fn send_chunks(stream: &mut TcpStream, count: u64) {
    let mut chunk = format!("{CHUNK:x}\r\n").into_bytes();
    chunk.resize(chunk.len() + CHUNK, b'x');
    chunk.extend_from_slice(b"\r\n");
    for _ in 0..count {
        stream.write_all(&chunk).unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
}

/// Reads a chunked body, passes on its pieces and returns its length.
fn count_chunks(stream: &mut TcpStream, mut on_piece: impl FnMut(&[u8])) -> u64 {
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
            let max = buffer.len().min(usize::try_from(left).unwrap());
            let count = reader.read(&mut buffer[..max]).unwrap();
            assert!(count > 0, "the connection ended within a chunk");
            on_piece(&buffer[..count]);
            left -= count as u64;
        }
        reader.read_exact(&mut buffer[..2]).unwrap();
        assert_eq!(&buffer[..2], b"\r\n");
    }
}

/// Reads a head.
fn read_head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap()
}

/// Returns how many MiB to send of what is usual.
fn mebibytes(usual: u64) -> u64 {
    match std::env::var_os("FLUXGATE_LONG") {
        Some(_) => 10 * usual,
        None => usual,
    }
}

#[test]
fn an_upload_of_gibibytes_uses_constant_memory() {
    let size = mebibytes(2 << 10);
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
    let (response, took) = timed(|| {
        send_chunks(&mut stream, size);
        let mut response = [0; 15];
        stream.read_exact(&mut response).unwrap();
        response
    });
    assert_eq!(&response, b"HTTP/1.1 200 OK");
    assert_eq!(counted.load(Ordering::SeqCst), size << 20);
    let more = peak_kib(&service).saturating_sub(before);
    println!("{size} MiB up: {more} KiB more, {took:?}");
    assert!(more < MAX_KIB, "{more} KiB more");
}

#[test]
fn large_bodies_in_both_directions_at_once_use_constant_memory() {
    let size = mebibytes(512);
    // Echoes chunk by chunk.
    let upstream = RawUpstream::start(|connection| {
        let (_, stream) = connection.stream();
        read_head(stream);
        let mut echo = stream.try_clone().unwrap();
        echo.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .unwrap();
        count_chunks(stream, |piece| {
            let size = format!("{:x}\r\n", piece.len());
            echo.write_all(size.as_bytes()).unwrap();
            echo.write_all(piece).unwrap();
            echo.write_all(b"\r\n").unwrap();
        });
        echo.write_all(b"0\r\n\r\n").unwrap();
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
                send_chunks(&mut stream, size);
            });
            assert!(read_head(&mut reading).starts_with("HTTP/1.1 200"));
            let total = count_chunks(&mut reading, |piece| {
                assert!(piece.iter().all(|byte| *byte == b'x'));
            });
            assert_eq!(total, size << 20);
        });
    });
    let more = peak_kib(&service).saturating_sub(before);
    println!("{size} MiB in both directions: {more} KiB more, {took:?}");
    assert!(more < MAX_KIB, "{more} KiB more");
}
