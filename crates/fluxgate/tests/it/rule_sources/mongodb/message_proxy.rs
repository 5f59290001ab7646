//! A proxy of MongoDB's messages, which answers some commands itself: as servers do that cannot be
//! run here.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use mongodb::bson::{Document, doc};

/// The operation of all commands and replies but the first of a connection, perhaps.
const OP_MSG: i32 = 2013;
/// The length, the number, the number that is replied to, and the operation.
const HEADER: usize = 16;
/// Where the command is: behind flags and the kind of the first section.
const COMMAND: usize = HEADER + 4 + 1;
const MOST_BYTES: usize = 48 << 20;

/// Answers commands of one connection, or passes them on by returning `None`.
pub(super) trait Interceptor: Send + 'static {
    fn answer(&mut self, command: &Document) -> Option<Document>;
}

impl<F: FnMut(&Document) -> Option<Document> + Send + 'static> Interceptor for F {
    fn answer(&mut self, command: &Document) -> Option<Document> {
        self(command)
    }
}

/// A proxy on a free port. Its threads end with the connections, and the last with the tests.
pub(super) struct MessageProxy {
    pub(super) address: SocketAddr,
}

impl MessageProxy {
    /// Starts a proxy. `interceptor` makes what answers the commands of a connection.
    pub(super) fn start<I: Interceptor>(
        server: SocketAddr,
        interceptor: impl Fn() -> I + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut interceptor = interceptor();
                // The end of a connection is an error, too.
                thread::spawn(move || serve(client, server, &mut interceptor));
            }
        });
        Self { address }
    }
}

/// Returns the reply to a command that is refused.
pub(super) fn refusal(code: i32, name: &str, why: &str) -> Document {
    doc! { "ok": 0.0, "errmsg": why, "code": code, "codeName": name }
}

fn serve(
    mut client: TcpStream,
    server: SocketAddr,
    interceptor: &mut impl Interceptor,
) -> io::Result<()> {
    let mut upstream = TcpStream::connect(server)?;
    let (mut replies, mut receiver) = (upstream.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut replies, &mut receiver);
        let _ = receiver.shutdown(Shutdown::Both);
    });
    let result = loop {
        let message = match read_message(&mut client) {
            Ok(message) => message,
            Err(error) => break Err(error),
        };
        // A client waits for each reply before it sends the next command.
        let written = match command_in(&message).and_then(|command| interceptor.answer(&command)) {
            Some(reply) => client.write_all(&reply_to(&message, &reply)),
            None => upstream.write_all(&message),
        };
        if written.is_err() {
            break written;
        }
    };
    let _ = upstream.shutdown(Shutdown::Both);
    result
}

fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; HEADER];
    stream.read_exact(&mut message)?;
    let length = usize::try_from(number(&message, 0)).unwrap_or_default();
    if !(HEADER..=MOST_BYTES).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    message.resize(length, 0);
    stream.read_exact(&mut message[HEADER..])?;
    Ok(message)
}

/// Returns the command of a message, if it has one that can be answered.
fn command_in(message: &[u8]) -> Option<Document> {
    if number(message, 12) != OP_MSG {
        return None;
    }
    Document::from_reader(message.get(COMMAND..)?).ok()
}

fn reply_to(message: &[u8], reply: &Document) -> Vec<u8> {
    let reply = reply.to_vec().unwrap();
    let length = i32::try_from(COMMAND + reply.len()).unwrap();
    let mut bytes = Vec::new();
    for number in [length, 0, number(message, 4), OP_MSG, 0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.push(0);
    bytes.extend_from_slice(&reply);
    bytes
}

fn number(message: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(message[at..at + 4].try_into().unwrap())
}
