//! A server: what it answers to a command.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::commands::keys_of;
use super::keyspace::Keyspace;
use super::reply::{Protocol, Reply};
use super::script::Interpreter;
use crate::clock::Clock;

/// What makes a server refuse commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Condition {
    /// It reads its data after a start.
    Loading,
    /// A script of another client runs for too long.
    Busy,
    /// It has no memory left.
    OutOfMemory,
    /// It cannot save its data.
    Misconfigured,
    /// It is a replica.
    Replica,
}

impl Condition {
    const fn error(self) -> &'static str {
        match self {
            Self::Loading => "LOADING Redis is loading the dataset in memory",
            Self::Busy => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            }
            Self::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Self::Misconfigured => {
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."
            }
            Self::Replica => "READONLY You can't write against a read only replica.",
        }
    }

    /// Returns whether it refuses writes only.
    const fn allows_reads(self) -> bool {
        matches!(
            self,
            Self::OutOfMemory | Self::Misconfigured | Self::Replica
        )
    }
}

/// What a server knows of a connection.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Bytes that are not a whole command yet.
    pub(crate) received: Vec<u8>,
    pub(crate) protocol: Protocol,
    /// Whether the next command may use a hash slot that moves here.
    is_asking: bool,
    pub(crate) channels: Vec<Vec<u8>>,
}

/// The part that a server has in its deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It has all keys.
    Alone,
    /// A node of a cluster, by its number.
    Node(usize),
    /// A sentinel, which names this server as the primary, in this epoch.
    Sentinel { primary: u16, epoch: u64 },
}

/// The hash slots of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct HashSlotMap {
    /// The number of nodes. Node `n` listens at the first port plus `n`.
    pub(crate) nodes: usize,
    pub(crate) first_port: u16,
    /// Hash slots that are not where their range says.
    pub(crate) moved: BTreeMap<u16, usize>,
    /// Where hash slots are moving that are on their way.
    pub(crate) moving: BTreeMap<u16, usize>,
}

const HASH_SLOTS: usize = 16_384;
const HOST: &str = "sim";

impl HashSlotMap {
    pub(crate) fn owner(&self, slot: u16) -> usize {
        let by_range = usize::from(slot) * self.nodes / HASH_SLOTS;
        self.moved.get(&slot).copied().unwrap_or(by_range)
    }

    /// Returns the reply of `CLUSTER SLOTS`.
    fn reply(&self) -> Reply {
        let mut ranges = Vec::new();
        let mut first = 0;
        for slot in 1..=HASH_SLOTS {
            // Far below 2^16 but for the last, which has no owner.
            let owner = self.owner(first as u16);
            if slot == HASH_SLOTS || self.owner(slot as u16) != owner {
                let number = |number: usize| Reply::Int(number as i64);
                let port = usize::from(self.first_port) + owner;
                let node = vec![Reply::bulk(HOST), number(port), Reply::bulk("id")];
                ranges.push(Reply::Array(vec![
                    number(first),
                    number(slot - 1),
                    Reply::Array(node),
                ]));
                first = slot;
            }
        }
        Reply::Array(ranges)
    }
}

/// Returns the hash slot of a key.
pub(crate) fn hash_slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    let mut crc = 0_u16;
    for byte in tag.unwrap_or(key) {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                crc << 1 ^ 0x1021
            };
        }
    }
    crc % HASH_SLOTS as u16
}

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) role: Role,
    pub(crate) keyspace: Keyspace,
    clock: Clock,
    /// How far its clock was stepped, in microseconds.
    stepped: i64,
    /// How far it was stepped forwards, and what a server that took over has taken over.
    forwards: u64,
    /// The scripts it knows, by their SHA-1.
    scripts: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) conditions: Vec<Condition>,
    /// How many scripts that decide it has run.
    pub(crate) calls: u64,
}

/// What the clock of a server shows, and how far it has moved forwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocked {
    time: u64,
    progress: u64,
}

/// What a command works with besides the server.
pub(crate) struct Surroundings<'s> {
    pub(crate) now: u64,
    pub(crate) interpreter: &'s mut Interpreter,
    pub(crate) hash_slots: &'s HashSlotMap,
}

impl Server {
    pub(crate) fn new(port: u16, role: Role, clock: Clock) -> Self {
        Self {
            port,
            role,
            keyspace: Keyspace::default(),
            clock,
            stepped: 0,
            forwards: 0,
            scripts: BTreeMap::new(),
            conditions: Vec::new(),
            calls: 0,
        }
    }

    /// Returns its time at a virtual time, in microseconds.
    pub(crate) fn time(&self, now: u64) -> u64 {
        self.clock.at(now).saturating_add_signed(self.stepped)
    }

    /// Returns how far its clock has moved forwards until a virtual time, steps included and
    /// those back left out.
    pub(crate) fn progress(&self, now: u64) -> u64 {
        self.clock.at(now) - self.clock.at(0) + self.forwards
    }

    /// Sets its clock.
    pub(crate) fn step_clock(&mut self, by: i64) {
        self.stepped += by;
        self.forwards += u64::try_from(by).unwrap_or(0);
    }

    /// Replaces its clock.
    pub(crate) fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    /// Goes on where another server's clock is now.
    pub(crate) fn continue_from(&mut self, now: u64, other: &Clocked) {
        let ahead = self.time(now).saturating_sub(other.time);
        self.forwards = 0;
        self.forwards = (other.progress + ahead).saturating_sub(self.progress(now));
    }

    /// Returns what its clock shows.
    pub(crate) fn clocked(&self, now: u64) -> Clocked {
        Clocked {
            time: self.time(now),
            progress: self.progress(now),
        }
    }

    pub(crate) fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    /// Runs a command.
    pub(crate) fn execute(
        &mut self,
        command: &[Vec<u8>],
        session: &mut Session,
        around: Surroundings<'_>,
    ) -> Reply {
        self.keyspace.time = self.time(around.now);
        self.keyspace.virtual_time = around.now;
        let is_asking = std::mem::take(&mut session.is_asking);
        let args: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        match (args[0].to_ascii_uppercase().as_slice(), &args[1..]) {
            (b"HELLO", [version, ..]) => return hello(session, version),
            (b"CLIENT" | b"SELECT" | b"AUTH" | b"READONLY", _) => return Reply::OK,
            (b"PING", _) => return Reply::Status("PONG"),
            (b"ASKING", _) => {
                session.is_asking = true;
                return Reply::OK;
            }
            (b"SUBSCRIBE", channels) => {
                session
                    .channels
                    .extend(channels.iter().map(|it| it.to_vec()));
                let count = Reply::count(session.channels.len());
                let last = channels.last().copied().unwrap_or_default();
                return Reply::Push(vec![Reply::bulk("subscribe"), Reply::bulk(last), count]);
            }
            (b"SENTINEL", [what, _]) => return self.sentinel(what),
            (b"ROLE", _) => return self.role_reply(),
            (b"CLUSTER", [b"SLOTS"]) if matches!(self.role, Role::Node(_)) => {
                return around.hash_slots.reply();
            }
            (b"CLUSTER", _) if matches!(self.role, Role::Node(_)) => {
                return Reply::bulk("cluster_state:ok\r\n");
            }
            (b"CLUSTER", _) => {
                return Reply::error("ERR This instance has cluster support disabled");
            }
            _ => {}
        }
        if let Some(refusing) = self.conditions.iter().find(|it| !it.allows_reads()) {
            return Reply::error(refusing.error());
        }
        if let Some(redirection) = self.redirect(command, is_asking, around.hash_slots) {
            return redirection;
        }
        self.keyspace.refuses_writes = self.conditions.iter().map(|it| it.error()).next();
        match (args[0], &args[1..]) {
            (b"SCRIPT", [b"LOAD", text]) => self.load(text, around.interpreter),
            (b"SCRIPT", [b"FLUSH", ..]) => {
                self.scripts.clear();
                Reply::OK
            }
            (b"EVAL", [text, ..]) => match self.load(text, around.interpreter) {
                Reply::Error(cause) => Reply::Error(cause),
                _ => self.run_script(text, command, around.interpreter),
            },
            (b"EVALSHA", [sha1, ..]) => match self.scripts.get(*sha1).cloned() {
                Some(text) => self.run_script(&text, command, around.interpreter),
                None => Reply::error("NOSCRIPT No matching script. Please use EVAL."),
            },
            _ => {
                self.keyspace.is_dirty = false;
                let reply = self.keyspace.run(command);
                reply.unwrap_or_else(|| {
                    let name = String::from_utf8_lossy(args[0]);
                    Reply::Error(format!("ERR unknown command '{name}'"))
                })
            }
        }
    }

    fn load(&mut self, text: &[u8], interpreter: &mut Interpreter) -> Reply {
        let sha1 = sha1_smol::Sha1::from(text).digest().to_string();
        if !self.scripts.contains_key(sha1.as_bytes()) {
            if let Err(cause) = interpreter.compile(text) {
                return Reply::Error(cause);
            }
            self.scripts
                .insert(sha1.clone().into_bytes(), text.to_vec());
        }
        Reply::bulk(sha1)
    }

    fn run_script(
        &mut self,
        text: &[u8],
        command: &[Vec<u8>],
        interpreter: &mut Interpreter,
    ) -> Reply {
        self.calls += 1;
        let keys = keys_of(command);
        let args = command.get(3 + keys.len()..).unwrap_or_default();
        interpreter.run(text, &mut self.keyspace, keys, args)
    }

    /// Returns the redirection of a command whose keys are on another node, if they are.
    fn redirect(&self, command: &[Vec<u8>], is_asking: bool, map: &HashSlotMap) -> Option<Reply> {
        let Role::Node(own) = self.role else {
            return None;
        };
        let keys = keys_of(command);
        let slot = hash_slot(keys.first()?);
        if keys.iter().any(|key| hash_slot(key) != slot) {
            return Some(Reply::error(
                "CROSSSLOT Keys in request don't hash to the same slot",
            ));
        }
        let there = keys.iter().filter(|key| self.keyspace.get(key).is_some());
        let there = there.count();
        let to = |kind: &str, node: usize| {
            let port = usize::from(map.first_port) + node;
            Some(Reply::Error(format!("{kind} {slot} {HOST}:{port}")))
        };
        const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";
        let moving = map.moving.get(&slot).copied();
        match (map.owner(slot), moving) {
            (owner, Some(target)) if owner == own => match there {
                0 => to("ASK", target),
                some if some < keys.len() => Some(Reply::error(TRY_AGAIN)),
                _ => None,
            },
            (_, Some(target)) if target == own && is_asking => {
                (keys.len() > 1 && there < keys.len()).then(|| Reply::error(TRY_AGAIN))
            }
            (owner, _) if owner == own => None,
            (owner, _) => to("MOVED", owner),
        }
    }

    fn role_reply(&self) -> Reply {
        let role = if self.conditions.contains(&Condition::Replica) {
            "slave"
        } else {
            "master"
        };
        Reply::Array(vec![Reply::bulk(role), Reply::Int(0)])
    }

    fn sentinel(&self, what: &[u8]) -> Reply {
        let Role::Sentinel { primary, epoch } = self.role else {
            return Reply::error("ERR unknown command 'SENTINEL'");
        };
        if what == b"MASTER" {
            let epoch = epoch.to_string();
            return Reply::Map(vec![Reply::bulk("config-epoch"), Reply::bulk(epoch)]);
        }
        Reply::Array(vec![Reply::bulk(HOST), Reply::bulk(primary.to_string())])
    }

    /// Moves the keys of a hash slot to another server, at most `most` of them. Returns whether
    /// all have moved.
    pub(crate) fn move_keys(&mut self, slot: u16, to: &mut Self, most: usize) -> bool {
        let keys = self.keyspace.keys().into_iter();
        let keys: Vec<_> = keys.filter(|key| hash_slot(key) == slot).collect();
        for key in keys.iter().take(most) {
            if let Some(entry) = self.keyspace.take(key) {
                to.keyspace.put(key, entry);
            }
        }
        keys.len() <= most
    }
}

fn hello(session: &mut Session, version: &[u8]) -> Reply {
    session.protocol = if version == b"3" {
        Protocol::Resp3
    } else {
        Protocol::Resp2
    };
    let pair = |name: &str, value: Reply| [Reply::bulk(name), value];
    let version = if session.protocol == Protocol::Resp3 {
        3
    } else {
        2
    };
    Reply::Map(
        [
            pair("server", Reply::bulk("redis")),
            pair("version", Reply::bulk("7.4.0")),
            pair("proto", Reply::Int(version)),
            pair("mode", Reply::bulk("standalone")),
            pair("role", Reply::bulk("master")),
        ]
        .concat(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_slots_are_those_of_the_specification() {
        assert_eq!(hash_slot(b"123456789"), 0x31c3);
        assert_eq!(hash_slot(b"foo"), 12_182);
        assert_eq!(hash_slot(b"{user}.a"), hash_slot(b"user"));
        assert_ne!(hash_slot(b"foo{}x"), hash_slot(b"foo{}y"));
    }

    #[test]
    fn every_hash_slot_is_in_one_range() {
        let map = HashSlotMap {
            nodes: 3,
            first_port: 7_000,
            moved: BTreeMap::from([(5, 2)]),
            ..HashSlotMap::default()
        };
        let Reply::Array(ranges) = map.reply() else {
            panic!("expected an array");
        };
        let mut next = 0;
        for range in &ranges {
            let Reply::Array(range) = range else {
                panic!("expected an array");
            };
            assert_eq!(range[0], Reply::Int(next));
            let Reply::Int(last) = range[1] else {
                panic!("expected a number");
            };
            next = last + 1;
        }
        assert_eq!((next, ranges.len()), (16_384, 5));
    }
}
