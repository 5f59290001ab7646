//! Memory for those who have something to do; who waits holds none.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead as _, AsyncReadExt as _, ReadBuf};
use tokio::net::TcpStream;

/// How much is read at once.
pub(crate) const INPUT: usize = 16 * 1024;
/// How much is written, as a rule.
const OUTPUT: usize = 2 * 1024;
/// How long the rest of a request is waited for.
const A_MOMENT: Duration = Duration::from_millis(100);
/// How many are kept for the next. With fewer than there are requests under way,
/// they would be made anew all the time, which costs as much as forwarding.
const KEPT: usize = 128;
/// What has grown beyond this is not kept.
const MOST_KEPT: usize = 64 * 1024;

thread_local! {
    static FREE: RefCell<Vec<Buffers>> = const { RefCell::new(Vec::new()) };
}

/// What is read, and what is to be written.
pub(crate) struct Buffers {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    pub(crate) json: Vec<u8>,
}

impl Buffers {
    /// Buffers with nothing to be written.
    pub(crate) fn take() -> Self {
        let free = FREE.with_borrow_mut(Vec::pop);
        free.unwrap_or_else(|| Self {
            input: vec![0; INPUT],
            output: Vec::with_capacity(OUTPUT),
            json: Vec::new(),
        })
    }

    /// Reads what has come, and tells how much that is. (Reading in this way,
    /// and not by asking first whether something has come, spares a call of the
    /// system: it is known then that nothing more is there.)
    pub(crate) fn poll_read(
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Self, usize)>> {
        let mut buffers = Self::take();
        let mut input = ReadBuf::new(&mut buffers.input);
        let polled = Pin::new(stream).poll_read(cx, &mut input);
        let count = input.filled().len();
        if polled.is_pending() {
            buffers.give();
            return Poll::Pending;
        }
        ready!(polled)?;
        Poll::Ready(Ok((buffers, count)))
    }

    /// Reads on, behind what has come of a request: clients that send head and body
    /// one by one send them one right after the other. Tells how much there is now;
    /// that is less than `wanted` if the rest takes more than a moment.
    pub(crate) async fn read_on(
        &mut self,
        stream: &mut TcpStream,
        mut read: usize,
        wanted: usize,
    ) -> usize {
        let reading = async {
            while read < wanted {
                match stream.read(&mut self.input[read..]).await {
                    // What has come is for whoever serves the connection from here.
                    Ok(0) | Err(_) => return,
                    Ok(count) => read += count,
                }
            }
        };
        let _ = tokio::time::timeout(A_MOMENT, reading).await;
        read
    }

    /// Leaves them to the next.
    pub(crate) fn give(mut self) {
        let size = self.output.capacity() + self.json.capacity();
        if size <= MOST_KEPT && self.input.len() == INPUT {
            self.output.clear();
            FREE.with_borrow_mut(|free| {
                if free.len() < KEPT {
                    free.push(self);
                }
            });
        }
    }
}
