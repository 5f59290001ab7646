//! Reused buffers. Only a connection that is being served holds one, so thousands of idle
//! connections need no memory for them.

use std::cell::RefCell;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::request::MAX_REQUEST_BYTES;

/// The usual size of a read.
const SIZE: usize = 64 * 1024;
/// An incomplete request of up to this length moves to a small buffer, which frees the large
/// one.
const SMALL: usize = 4 * 1024;
/// How many spare buffers of each kind a core keeps.
const MAX_SPARE: usize = 64;

thread_local! {
    static INPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static OUTPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Takes an empty buffer for replies.
pub(super) fn take_output() -> Vec<u8> {
    OUTPUTS.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Keeps a buffer for reuse.
pub(super) fn recycle_output(mut output: Vec<u8>) {
    output.clear();
    if output.capacity() <= 2 * SIZE {
        OUTPUTS.with_borrow_mut(|spare| keep(spare, output));
    }
}

fn keep(spare: &mut Vec<Vec<u8>>, buffer: Vec<u8>) {
    if spare.len() < MAX_SPARE {
        spare.push(buffer);
    }
}

/// Received bytes that are not parsed yet.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// Filled up to `length`.
    buffer: Vec<u8>,
    length: usize,
}

impl Input {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    /// Reads the available bytes. Returns their number, and whether there may be more.
    pub(super) fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(usize, bool)>> {
        let mut large = self.take_large();
        let mut free = ReadBuf::new(&mut large[self.length..]);
        let polled = Pin::new(stream).poll_read(cx, &mut free);
        let (read, full) = (free.filled().len(), free.remaining() == 0);
        self.buffer = large;
        self.length += read;
        if polled.is_pending() {
            // A waiting connection holds no large buffer.
            self.consume(0);
        }
        ready!(polled)?;
        Poll::Ready(Ok((read, full)))
    }

    /// Removes the first `count` bytes, and recycles the buffer if the rest is small.
    pub(super) fn consume(&mut self, count: usize) {
        let rest = count..self.length;
        self.length = rest.len();
        if rest.len() > SMALL {
            if count > 0 {
                self.buffer.copy_within(rest, 0);
            }
            return;
        }
        let small = self.buffer[rest].to_vec();
        let large = mem::replace(&mut self.buffer, small);
        if large.len() == SIZE {
            INPUTS.with_borrow_mut(|spare| keep(spare, large));
        }
    }

    /// Takes the buffer, enlarged to have room for a read.
    fn take_large(&mut self) -> Vec<u8> {
        let mut large = mem::take(&mut self.buffer);
        if large.len() < SIZE {
            let small = large;
            large = INPUTS
                .with_borrow_mut(Vec::pop)
                .unwrap_or_else(|| vec![0; SIZE]);
            large[..self.length].copy_from_slice(&small[..self.length]);
        }
        if large.len() - self.length < SMALL {
            large.resize(MAX_REQUEST_BYTES + SIZE, 0);
        }
        large
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &mut Input, mut bytes: &[u8]) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while !bytes.is_empty() {
            let read = input.poll_read(&mut bytes, &mut cx);
            assert!(matches!(read, Poll::Ready(Ok((1.., _)))));
        }
    }

    #[test]
    fn no_bytes_are_lost_however_many_remain() {
        let sent: Vec<u8> = (0..300_000_u32).map(|index| (index % 251) as u8).collect();
        for left in [
            0,
            1,
            SMALL - 1,
            SMALL,
            SMALL + 1,
            SIZE - 1,
            SIZE,
            MAX_REQUEST_BYTES,
        ] {
            let mut input = Input::default();
            let mut expected = 0;
            for chunk in sent.chunks(7_000) {
                read(&mut input, chunk);
                let bytes = input.bytes();
                assert_eq!(bytes, &sent[expected..][..bytes.len()]);
                let count = bytes.len().saturating_sub(left);
                expected += count;
                input.consume(count);
            }
            assert_eq!(input.bytes(), &sent[expected..], "{left}");
        }
    }

    #[test]
    fn a_waiting_connection_holds_no_large_buffer() {
        let mut input = Input::default();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let (mut far, mut near) = tokio::io::duplex(100);
        assert!(input.poll_read(&mut near, &mut cx).is_pending());
        assert_eq!(input.buffer.capacity(), 0);
        let sent = Pin::new(&mut far);
        assert!(tokio::io::AsyncWrite::poll_write(sent, &mut cx, b"*1\r\n").is_ready());
        assert!(input.poll_read(&mut near, &mut cx).is_ready());
        input.consume(0);
        assert!(input.poll_read(&mut near, &mut cx).is_pending());
        assert_eq!(input.bytes(), b"*1\r\n");
        assert!(input.buffer.capacity() <= SMALL);
    }
}
