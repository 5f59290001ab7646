//! Buffers of connections with work to do; an idle connection holds none.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

/// The size of the input buffer.
pub const INPUT: usize = 16 * 1024;
/// The usual size of the output.
const OUTPUT: usize = 2 * 1024;
/// How long to wait for the rest of a request.
const REST_TIMEOUT: Duration = Duration::from_millis(100);
/// How many free buffers a thread keeps. With fewer than there are requests in flight,
/// buffers would be allocated all the time, which costs as much as forwarding.
const MAX_FREE: usize = 128;
/// Larger ones are freed.
const MAX_KEPT_BYTES: usize = 64 * 1024;

thread_local! {
    static FREE: RefCell<Vec<Buffers>> = const { RefCell::new(Vec::new()) };
}

/// Input and output of a connection.
#[derive(Debug)]
pub struct Buffers {
    /// What was read; always of its full length.
    pub input: Vec<u8>,
    /// What is to be written.
    pub output: Vec<u8>,
    /// Scratch space.
    pub json: Vec<u8>,
}

impl Buffers {
    /// Returns free buffers with an empty output.
    pub fn take() -> Self {
        let free = FREE.with_borrow_mut(Vec::pop);
        free.unwrap_or_else(|| Self {
            input: vec![0; INPUT],
            output: Vec::with_capacity(OUTPUT),
            json: Vec::new(),
        })
    }

    /// Reads what has arrived; returns the buffers and how much it is. (Reading at once,
    /// without waiting for readiness first, saves a system call.)
    pub fn poll_read(
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Self, usize)>> {
        let mut buffers = Self::take();
        let mut input = ReadBuf::new(&mut buffers.input);
        let polled = Pin::new(stream).poll_read(cx, &mut input);
        let count = input.filled().len();
        if polled.is_pending() {
            buffers.release();
            return Poll::Pending;
        }
        ready!(polled)?;
        Poll::Ready(Ok((buffers, count)))
    }

    /// Reads the rest of a request: a client that writes head and body separately writes
    /// one right after the other. Returns how much there is now, which is less than
    /// `wanted` if the rest takes too long.
    pub async fn read_on(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        mut read: usize,
        wanted: usize,
    ) -> usize {
        let reading = async {
            while read < wanted {
                match stream.read(&mut self.input[read..]).await {
                    // The caller hands on what has arrived.
                    Ok(0) | Err(_) => return,
                    Ok(count) => read += count,
                }
            }
        };
        let _ = tokio::time::timeout(REST_TIMEOUT, reading).await;
        read
    }

    /// Returns the buffers to the pool of this thread.
    pub fn release(mut self) {
        let size = self.output.capacity() + self.json.capacity();
        if size <= MAX_KEPT_BYTES && self.input.len() == INPUT {
            self.output.clear();
            FREE.with_borrow_mut(|free| {
                if free.len() < MAX_FREE {
                    free.push(self);
                }
            });
        }
    }
}
