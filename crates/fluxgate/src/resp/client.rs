//! The state of a client, and `CLIENT`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::reply::{CommandError, Replies, Version};

/// How many clients are connected.
static CONNECTED: AtomicU64 = AtomicU64::new(0);

/// The state of a client.
#[derive(Debug)]
pub(super) struct Client {
    /// Unique within the process.
    pub(super) id: u64,
    /// Empty unless the client has set it.
    pub(super) name: String,
    /// The protocol version of its replies.
    pub(super) version: Version,
    peer: SocketAddr,
    local: Option<SocketAddr>,
    library: String,
    library_version: String,
}

impl Client {
    pub(super) fn new(peer: SocketAddr, local: Option<SocketAddr>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        CONNECTED.fetch_add(1, Ordering::Relaxed);
        Self {
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            name: String::new(),
            version: Version::default(),
            peer,
            local,
            library: String::new(),
            library_version: String::new(),
        }
    }

    /// Returns how many clients are connected.
    pub(super) fn connected() -> u64 {
        CONNECTED.load(Ordering::Relaxed)
    }

    /// Runs `RESET`.
    pub(super) fn reset(&mut self) {
        self.version = Version::default();
        self.name.clear();
    }

    /// Runs `CLIENT subcommand …`, which concerns only this client.
    pub(super) fn run(
        &mut self,
        subcommand: &[u8],
        more: &[&[u8]],
        replies: &mut Replies<'_>,
    ) -> Result<(), CommandError> {
        let lower = subcommand.to_ascii_lowercase();
        match (&*lower, more) {
            (b"id", []) => replies.integer(self.id),
            (b"getname", []) => {
                replies.bulk_or_null(Some(&*self.name).filter(|name| !name.is_empty()));
            }
            (b"setname", [name]) => {
                self.name = parse_name(name)?;
                replies.ok();
            }
            (b"setinfo", [attribute, value]) => {
                self.set_info(attribute, value)?;
                replies.ok();
            }
            (b"info" | b"list", []) => replies.verbatim(&self.line()),
            (b"no-evict" | b"no-touch", [switch]) => {
                parse_switch(switch)?;
                replies.ok();
            }
            (b"reply", [switch]) if switch.eq_ignore_ascii_case(b"on") => replies.ok(),
            (
                b"id" | b"getname" | b"setname" | b"setinfo" | b"info" | b"list" | b"no-evict"
                | b"no-touch",
                _,
            ) => {
                let name = String::from_utf8_lossy(&lower);
                return Err(CommandError::arguments(&format!("client|{name}")));
            }
            _ => {
                let name = String::from_utf8_lossy(subcommand);
                let error = format!(
                    "ERR unknown subcommand '{name:.128}'. Supported: ID, GETNAME, SETNAME, SETINFO, INFO, LIST, NO-EVICT, NO-TOUCH, REPLY ON."
                );
                return Err(CommandError::new(error));
            }
        }
        Ok(())
    }

    fn set_info(&mut self, attribute: &[u8], value: &[u8]) -> Result<(), CommandError> {
        let (field, name) = match &*attribute.to_ascii_lowercase() {
            b"lib-name" => (&mut self.library, "lib-name"),
            b"lib-ver" => (&mut self.library_version, "lib-ver"),
            _ => {
                let attribute = String::from_utf8_lossy(attribute);
                let error = format!("ERR Unrecognized option '{attribute:.128}'");
                return Err(CommandError::new(error));
            }
        };
        let value = printable(value).ok_or_else(|| {
            CommandError::new(format!(
                "ERR {name} cannot contain spaces, newlines or special characters."
            ))
        })?;
        *field = value;
        Ok(())
    }

    /// Describes the client in the format of Redis.
    fn line(&self) -> String {
        let local = self.local.map(|local| local.to_string());
        format!(
            "id={} addr={} laddr={} name={} db=0 flags=N user=default resp={} lib-name={} lib-ver={}\n",
            self.id,
            self.peer,
            local.unwrap_or_default(),
            self.name,
            self.version.number(),
            self.library,
            self.library_version,
        )
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        CONNECTED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Parses the name of a client.
pub(super) fn parse_name(bytes: &[u8]) -> Result<String, CommandError> {
    printable(bytes).ok_or_else(|| {
        CommandError::new("ERR Client names cannot contain spaces, newlines or special characters.")
    })
}

fn printable(bytes: &[u8]) -> Option<String> {
    const MAX_BYTES: usize = 1_024;
    let is_valid = bytes.len() <= MAX_BYTES && bytes.iter().all(u8::is_ascii_graphic);
    is_valid.then(|| bytes.iter().copied().map(char::from).collect())
}

fn parse_switch(switch: &[u8]) -> Result<(), CommandError> {
    match &*switch.to_ascii_lowercase() {
        b"on" | b"off" => Ok(()),
        _ => Err(CommandError::new("ERR syntax error")),
    }
}
