//! Buffers. Only a connection that is being served holds one, so ten thousand idle
//! connections need none.

use std::cell::RefCell;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::request::LONGEST_REQUEST;

/// How much is read at once.
const SIZE: usize = 64 * 1024;
/// Up to so many bytes of a request that is not yet whole are kept apart.
const FEW: usize = 4 * 1024;
/// How many buffers of a kind a core keeps for the next to be served.
const MOST_SPARE: usize = 64;

thread_local! {
    static INPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static OUTPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer for replies.
pub(super) fn take_output() -> Vec<u8> {
    OUTPUTS.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives it back.
pub(super) fn give_output(mut output: Vec<u8>) {
    output.clear();
    if output.capacity() <= 2 * SIZE {
        OUTPUTS.with_borrow_mut(|spare| keep(spare, output));
    }
}

fn keep(spare: &mut Vec<Vec<u8>>, buffer: Vec<u8>) {
    if spare.len() < MOST_SPARE {
        spare.push(buffer);
    }
}

/// Bytes that a client has sent and that are not parsed yet.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// Its first `length` bytes are filled.
    buffer: Vec<u8>,
    length: usize,
}

impl Input {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    /// Reads the available bytes. Returns how many, and whether there may be more.
    pub(super) fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(usize, bool)>> {
        let mut large = self.large();
        let mut free = ReadBuf::new(&mut large[self.length..]);
        let polled = Pin::new(stream).poll_read(cx, &mut free);
        let (read, full) = (free.filled().len(), free.remaining() == 0);
        self.buffer = large;
        self.length += read;
        if polled.is_pending() {
            // Whoever waits does so without a buffer.
            self.consume(0);
        }
        ready!(polled)?;
        Poll::Ready(Ok((read, full)))
    }

    /// Forgets so many bytes, and gives the buffer back if it is not needed.
    pub(super) fn consume(&mut self, count: usize) {
        let rest = count..self.length;
        self.length = rest.len();
        if rest.len() > FEW {
            if count > 0 {
                self.buffer.copy_within(rest, 0);
            }
            return;
        }
        let few = self.buffer[rest].to_vec();
        let large = mem::replace(&mut self.buffer, few);
        if large.len() == SIZE {
            INPUTS.with_borrow_mut(|spare| keep(spare, large));
        }
    }

    /// The buffer with what stands in it and room for more.
    fn large(&mut self) -> Vec<u8> {
        let mut large = mem::take(&mut self.buffer);
        if large.len() < SIZE {
            let few = large;
            large = INPUTS
                .with_borrow_mut(Vec::pop)
                .unwrap_or_else(|| vec![0; SIZE]);
            large[..self.length].copy_from_slice(&few[..self.length]);
        }
        if large.len() - self.length < FEW {
            large.resize(LONGEST_REQUEST + SIZE, 0);
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
    fn nothing_is_lost_whatever_is_left_over() {
        let sent: Vec<u8> = (0..300_000_u32).map(|index| (index % 251) as u8).collect();
        for left in [0, 1, FEW - 1, FEW, FEW + 1, SIZE - 1, SIZE, LONGEST_REQUEST] {
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
    fn who_waits_holds_no_large_buffer() {
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
        assert!(input.buffer.capacity() <= FEW);
    }
}
