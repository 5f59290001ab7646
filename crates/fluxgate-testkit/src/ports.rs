//! Free ports on loopback, given to one test at a time.
//!
//! To ask the kernel for a free port and then to start a server on it is a race:
//! between the two, any connection going out may get it. These ports lie below
//! the kernel's usual range for such connections (it begins at 32768), and a
//! file lock keeps those of other test processes away. The kernel takes the
//! lock back when the process ends, however it ends.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port that is free, and this test's alone until it is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Held for its lock. Nothing if no lock could be had on this machine, as
    /// when another user owns the directory: then only luck keeps others away.
    _lock: Option<File>,
}

impl Port {
    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// It on 127.0.0.1.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}

/// A free port.
///
/// # Panics
/// If none of 12,000 is free.
pub fn free() -> Port {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes begin far apart, so that they seldom try the same port.
    let start = std::process::id().wrapping_mul(7919);
    for _ in 0..COUNT {
        let step = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        // The remainder is less than COUNT and fits.
        let number = FIRST + (step % u32::from(COUNT)) as u16;
        if let Some(port) = claim(number) {
            return port;
        }
    }
    panic!("no port from {FIRST} on is free, of {COUNT} tried");
}

fn claim(number: u16) -> Option<Port> {
    let lock = match lock_file(number) {
        Some(file) => {
            file.try_lock().ok()?;
            Some(file)
        }
        None => None,
    };
    TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
    Some(Port {
        number,
        _lock: lock,
    })
}

fn lock_file(number: u16) -> Option<File> {
    let directory = lock_directory();
    fs::create_dir_all(&directory).ok()?;
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(directory.join(number.to_string()))
        .ok()
}

fn lock_directory() -> PathBuf {
    env::temp_dir().join("fluxgate-testkit-ports")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: Vec<_> = (0..50).map(|_| free()).collect();
        let numbers: HashSet<_> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), 50);
    }

    #[test]
    fn a_port_that_is_held_or_in_use_cannot_be_claimed() {
        let held = free();
        assert!(claim(held.number()).is_none(), "locked");
        let number = held.number();
        let listener = TcpListener::bind(held.addr()).unwrap();
        drop(held);
        assert!(claim(number).is_none(), "in use");
        drop(listener);
    }
}
