//! The body of an answer, passed on as it comes.

use std::io::Write as _;
use std::time::Duration;

use tokio::net::TcpStream;

use super::answer::Framing;
use super::chunks::Chunks;
use super::client::Client;
use super::exchange::poll_read;

/// How much of a long body is read at once.
const PIECE: usize = 64 * 1024;
/// A body that is shorter is read into the memory that is there.
const LONG: u64 = 32 * 1024;

/// A body on its way.
pub(super) struct Body<'a> {
    pub(super) upstream: &'a mut TcpStream,
    pub(super) client: &'a mut Client,
    /// How long the upstream may say nothing.
    pub(super) idle: Duration,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// As it should. The upstream has said nothing more.
    Well,
    /// As it should, with something after it that nobody asked for.
    WithMore,
    /// In the middle, and the client must see that.
    Early,
}

impl Body<'_> {
    /// Appends what is there of the body to `out`, which holds the head, sends
    /// it, and goes on until the body ends. `input` is room to work in, of which
    /// what lies in `start..filled` has been read.
    pub(super) async fn pass(
        &mut self,
        framing: Framing,
        out: &mut Vec<u8>,
        input: &mut Vec<u8>,
        (start, filled): (usize, usize),
    ) -> Ended {
        match framing {
            Framing::None => self.pass_length(0, out, input, (start, filled)).await,
            Framing::Length(length) => self.pass_length(length, out, input, (start, filled)).await,
            Framing::Chunked => self.pass_chunks(out, input, (start, filled)).await,
            Framing::UntilClose => self.pass_rest(out, input, (start, filled)).await,
        }
    }

    async fn pass_length(
        &mut self,
        length: u64,
        out: &mut Vec<u8>,
        input: &mut Vec<u8>,
        (start, filled): (usize, usize),
    ) -> Ended {
        let here = filled - start;
        let count = usize::try_from(length).map_or(here, |length| length.min(here));
        out.extend_from_slice(&input[start..start + count]);
        if !self.client.send(out).await {
            return Ended::Early;
        }
        let mut left = length - count as u64;
        if left > LONG && input.len() < PIECE {
            input.resize(PIECE, 0);
        }
        while left > 0 {
            // Not more than that: what follows is no part of it.
            let room = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
            match self.read(&mut input[..room]).await {
                Some(read @ 1..) if self.client.send(&input[..read]).await => left -= read as u64,
                _ => return Ended::Early,
            }
        }
        match count < here {
            true => Ended::WithMore,
            false => Ended::Well,
        }
    }

    async fn pass_chunks(
        &mut self,
        out: &mut Vec<u8>,
        input: &mut [u8],
        (mut start, mut filled): (usize, usize),
    ) -> Ended {
        let mut chunks = Chunks::new();
        let mut content = Vec::new();
        loop {
            content.clear();
            let bytes = &input[start..filled];
            let Ok(read) = chunks.read(bytes, |piece| content.extend_from_slice(piece)) else {
                // The client has not been told of an end, so it sees that.
                let _ = self.client.send(out).await;
                return Ended::Early;
            };
            write_chunk(&content, out);
            if chunks.has_ended() {
                out.extend_from_slice(b"0\r\n\r\n");
            }
            if !self.client.send(out).await {
                return Ended::Early;
            }
            if chunks.has_ended() {
                return match read < bytes.len() {
                    true => Ended::WithMore,
                    false => Ended::Well,
                };
            }
            out.clear();
            match self.read(input).await {
                Some(read @ 1..) => (start, filled) = (0, read),
                _ => return Ended::Early,
            }
        }
    }

    async fn pass_rest(
        &mut self,
        out: &mut Vec<u8>,
        input: &mut [u8],
        (mut start, mut filled): (usize, usize),
    ) -> Ended {
        loop {
            write_chunk(&input[start..filled], out);
            if !self.client.send(out).await {
                return Ended::Early;
            }
            out.clear();
            match self.read(input).await {
                Some(0) => break,
                Some(read) => (start, filled) = (0, read),
                None => return Ended::Early,
            }
        }
        match self.client.send(b"0\r\n\r\n").await {
            true => Ended::Well,
            false => Ended::Early,
        }
    }

    async fn read(&mut self, room: &mut [u8]) -> Option<usize> {
        let upstream = &mut *self.upstream;
        let read = self
            .client
            .await_for(self.idle, |cx| poll_read(upstream, room, cx));
        read.await.ok()?.ok()
    }
}

/// An empty one would be the last.
fn write_chunk(content: &[u8], out: &mut Vec<u8>) {
    if !content.is_empty() {
        // Writing to memory does not fail.
        let _ = write!(out, "{:x}\r\n", content.len());
        out.extend_from_slice(content);
        out.extend_from_slice(b"\r\n");
    }
}
