//! What instances and servers send each other.

use std::fmt;
use std::rc::Rc;

use super::state::{Event, World};
use crate::ledger::Instant;
use crate::redis::{Reply, Surroundings, parse_command};

impl World<'_> {
    /// Delivers bytes to a server, which runs all commands that are whole.
    pub(super) fn reach_server(&mut self, index: usize, bytes: Vec<u8>) {
        let network = Rc::clone(&self.network);
        let mut network = network.borrow_mut();
        let Some(connection) = network.get(index) else {
            return;
        };
        let held_until = self.instances[connection.instance].partitioned_until;
        if held_until > self.now {
            let event = Event::ToServer {
                connection: index,
                bytes,
            };
            return self.schedule(held_until, event);
        }
        let port = connection.port;
        let Some(server) = self.servers.iter().position(|server| server.port == port) else {
            return;
        };
        if connection.is_reset {
            return;
        }
        connection.session.received.extend_from_slice(&bytes);
        while let Some(command) = parse_command(&mut connection.session.received) {
            let decided = self.instant(server);
            let around = Surroundings {
                now: self.now,
                interpreter: self.interpreter,
                hash_slots: &self.hash_slots,
            };
            let reply = self.servers[server].execute(&command, &mut connection.session, around);
            self.trace.record(
                self.now,
                format_args!(
                    "server {server} answers instance {}: {} -> {}",
                    connection.instance,
                    CommandName(&command),
                    ReplyText(&reply)
                ),
            );
            let mut bytes = Vec::new();
            reply.encode(connection.session.protocol, &mut bytes);
            let arrives = self.now + self.latency();
            let arrives = arrives.max(connection.arrives_at_client);
            connection.arrives_at_client = arrives;
            let event = Event::ToClient {
                connection: index,
                bytes,
                decided,
            };
            self.schedule(arrives, event);
        }
    }

    /// Delivers a reply to an instance, which then runs.
    pub(super) fn reach_client(&mut self, index: usize, bytes: Vec<u8>, decided: Instant) {
        let instance = {
            let mut network = self.network.borrow_mut();
            let Some(connection) = network.get(index) else {
                return;
            };
            let instance = connection.instance;
            let state = &self.instances[instance];
            let held_until = state.partitioned_until.max(state.paused_until);
            if held_until > self.now {
                drop(network);
                let event = Event::ToClient {
                    connection: index,
                    bytes,
                    decided,
                };
                return self.schedule(held_until, event);
            }
            // A process that has ended has dropped it.
            if connection.is_reset || connection.is_over() {
                return;
            }
            connection.deliver(&bytes);
            instance
        };
        self.let_run(instance, Some(decided));
    }
}

/// The name of a command, with the kind of script.
struct CommandName<'c>(&'c [Vec<u8>]);

impl fmt::Display for CommandName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(&self.0[0]);
        match &*name {
            "EVALSHA" | "EVAL" => {
                let keys = self.0.iter().skip(3).filter(|it| it.len() < 200);
                write!(f, "{name}")?;
                let count = String::from_utf8_lossy(&self.0[2]).parse().unwrap_or(0);
                for key in keys.take(count) {
                    write!(f, " {}", key.escape_ascii())?;
                }
                Ok(())
            }
            "HELLO" | "CLIENT" | "SCRIPT" => f.write_str(&name),
            _ => {
                f.write_str(&name)?;
                for arg in &self.0[1..] {
                    write!(f, " {}", arg.escape_ascii())?;
                }
                Ok(())
            }
        }
    }
}

/// A reply, in short. The number of a call differs from run to run in one process.
struct ReplyText<'r>(&'r Reply);

impl fmt::Display for ReplyText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Reply::Bulk(bytes) => {
                let bytes = bytes.get(4..).unwrap_or_default();
                write!(f, "{}", bytes.escape_ascii())
            }
            Reply::Array(_) | Reply::Map(_) | Reply::Push(_) => f.write_str("items"),
            reply => write!(f, "{reply:?}"),
        }
    }
}
