//! What is known of a client, and `CLIENT`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::reply::{Replies, Version};
use super::session::Refused;

/// How many there are now.
static CONNECTED: AtomicU64 = AtomicU64::new(0);

/// What is known of a client.
#[derive(Debug)]
pub(super) struct Client {
    /// No other has had it.
    pub(super) id: u64,
    /// What it calls itself; empty if it does not.
    pub(super) name: String,
    /// How it wants to be answered.
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

    /// How many there are now.
    pub(super) fn connected() -> u64 {
        CONNECTED.load(Ordering::Relaxed)
    }

    /// `RESET`.
    pub(super) fn reset(&mut self) {
        self.version = Version::default();
        self.name.clear();
    }

    /// `CLIENT subcommand …`. Of others nothing is told.
    pub(super) fn run(
        &mut self,
        subcommand: &[u8],
        more: &[&[u8]],
        replies: &mut Replies<'_>,
    ) -> Result<(), Refused> {
        let lower = subcommand.to_ascii_lowercase();
        match (&*lower, more) {
            (b"id", []) => replies.integer(self.id),
            (b"getname", []) => {
                replies.bulk_or_null(Some(&*self.name).filter(|name| !name.is_empty()));
            }
            (b"setname", [name]) => {
                self.name = name_of(name)?;
                replies.ok();
            }
            (b"setinfo", [attribute, value]) => {
                self.set_info(attribute, value)?;
                replies.ok();
            }
            (b"info" | b"list", []) => replies.verbatim(&self.line()),
            (b"no-evict" | b"no-touch", [switch]) => {
                is_on(switch)?;
                replies.ok();
            }
            (b"reply", [switch]) if switch.eq_ignore_ascii_case(b"on") => replies.ok(),
            (
                b"id" | b"getname" | b"setname" | b"setinfo" | b"info" | b"list" | b"no-evict"
                | b"no-touch",
                _,
            ) => {
                let name = String::from_utf8_lossy(&lower);
                return Err(Refused::arguments(&format!("client|{name}")));
            }
            _ => {
                let name = String::from_utf8_lossy(subcommand);
                let error = format!(
                    "ERR unknown subcommand '{name:.128}'. There are ID, GETNAME, SETNAME, SETINFO, INFO, LIST, NO-EVICT, NO-TOUCH and REPLY ON."
                );
                return Err(Refused::new(error));
            }
        }
        Ok(())
    }

    fn set_info(&mut self, attribute: &[u8], value: &[u8]) -> Result<(), Refused> {
        let (field, name) = match &*attribute.to_ascii_lowercase() {
            b"lib-name" => (&mut self.library, "lib-name"),
            b"lib-ver" => (&mut self.library_version, "lib-ver"),
            _ => {
                let attribute = String::from_utf8_lossy(attribute);
                let error = format!("ERR Unrecognized option '{attribute:.128}'");
                return Err(Refused::new(error));
            }
        };
        let value = printable(value).ok_or_else(|| {
            Refused::new(format!(
                "ERR {name} cannot contain spaces, newlines or special characters."
            ))
        })?;
        *field = value;
        Ok(())
    }

    /// As Redis tells of a client.
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

/// A name that a client may have.
pub(super) fn name_of(given: &[u8]) -> Result<String, Refused> {
    printable(given).ok_or_else(|| {
        Refused::new("ERR Client names cannot contain spaces, newlines or special characters.")
    })
}

fn printable(bytes: &[u8]) -> Option<String> {
    const LONGEST: usize = 1_024;
    let good = bytes.len() <= LONGEST && bytes.iter().all(u8::is_ascii_graphic);
    good.then(|| bytes.iter().copied().map(char::from).collect())
}

fn is_on(switch: &[u8]) -> Result<bool, Refused> {
    match &*switch.to_ascii_lowercase() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(Refused::new("ERR syntax error")),
    }
}
