//! One request sent to an upstream, and the head of what comes back.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

use super::answer::{AnswerHead, Framing, NoHead};
use super::client::{Client, NotCome};
use crate::gateway::open::{MOST_ANSWER_HEAD, MOST_INTERIM, TOO_MANY_INTERIM};

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The connection ended before anything came.
    Silence(io::Error),
    /// It ended in the middle of the head, or what came cannot be one.
    Broken(&'static str),
    /// Nothing came in time.
    Late,
    /// Nobody wants it any more.
    ClientGone,
}

/// An answer whose head has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) status: u16,
    pub(super) framing: Framing,
    /// Whether the connection may be used again after the body.
    pub(super) keeps_alive: bool,
    /// Where the body begins, and how far has been read.
    pub(super) read: (usize, usize),
}

/// Sends the rest of a request and reads until the head of the answer is whole, which is
/// then shown to `tell`.
pub(super) async fn exchange(
    upstream: &mut TcpStream,
    (request, to_head): (&[u8], bool),
    input: &mut Vec<u8>,
    (client, longest): (&mut Client, Duration),
    tell: impl FnOnce(&AnswerHead<'_>),
) -> Result<Begun, NoAnswer> {
    let sent = match request.is_empty() {
        true => 0,
        false => upstream.try_write(request).or_else(would_block)?,
    };
    if sent < request.len() {
        let rest = tokio::time::timeout(longest, upstream.write_all(&request[sent..]));
        let rest = rest.await.map_err(|_| NoAnswer::Late)?;
        rest.map_err(NoAnswer::Silence)?;
    }
    let (mut filled, mut interim) = (0, 0);
    // For the whole head, in however many pieces it comes.
    client.allow(longest);
    loop {
        if filled == input.len() {
            if filled >= MOST_ANSWER_HEAD {
                return Err(NoAnswer::Broken("its head is too large"));
            }
            input.resize(4 * filled, 0);
        }
        let read = client.unless_late(|cx| poll_read(upstream, &mut input[filled..], cx));
        let read = read.await.map_err(|why| match why {
            NotCome::ClientGone => NoAnswer::ClientGone,
            NotCome::Late => NoAnswer::Late,
        })?;
        match read {
            Ok(0) if filled == 0 => {
                return Err(NoAnswer::Silence(io::ErrorKind::UnexpectedEof.into()));
            }
            Err(error) if filled == 0 => return Err(NoAnswer::Silence(error)),
            Ok(0) | Err(_) => return Err(NoAnswer::Broken("it ended in its head")),
            Ok(read) => filled += read,
        }
        loop {
            let Some(head) = parse(&input[..filled], to_head)? else {
                break;
            };
            if head.status >= 200 {
                tell(&head);
                return Ok(Begun {
                    status: head.status,
                    framing: head.framing,
                    keeps_alive: head.keeps_alive,
                    read: (head.length, filled),
                });
            }
            // What is said in between is only for those who asked for it.
            interim += 1;
            if interim > MOST_INTERIM {
                return Err(NoAnswer::Broken(TOO_MANY_INTERIM));
            }
            let length = head.length;
            drop(head);
            input.copy_within(length..filled, 0);
            filled -= length;
        }
    }
}

/// Nothing can be sent yet; all else is trouble.
fn would_block(error: io::Error) -> Result<usize, NoAnswer> {
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(0),
        _ => Err(NoAnswer::Silence(error)),
    }
}

/// The head that the bytes begin with, if it is whole.
fn parse(bytes: &[u8], to_head: bool) -> Result<Option<AnswerHead<'_>>, NoAnswer> {
    match AnswerHead::parse(bytes, to_head) {
        Ok(head) if head.status == 101 => Err(NoAnswer::Broken("it changes protocols unasked")),
        Ok(head) => Ok(Some(head)),
        Err(NoHead::Incomplete) => Ok(None),
        Err(NoHead::Bad) => Err(NoAnswer::Broken("its head is malformed")),
    }
}

/// Reads what has come.
pub(super) fn poll_read(
    stream: &mut TcpStream,
    room: &mut [u8],
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut room = ReadBuf::new(room);
    let polled = Pin::new(stream).poll_read(cx, &mut room);
    polled.map_ok(|()| room.filled().len())
}
