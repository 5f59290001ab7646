//! Free ports on loopback, each for one test at a time.
//!
//! Asking the kernel for a free port and then starting a server on it is a race: an outgoing
//! connection may take the port in between. These ports are below the kernel's usual range
//! for outgoing connections, which starts at 32768, and a file lock reserves them among test
//! processes. The kernel releases the lock when the process ends.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A free port, reserved until it is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// The locked file. `None` if it cannot be created, for example because another user
    /// owns the directory; then the port is not reserved.
    _lock: Option<File>,
}

impl Port {
    /// Returns the port number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the address on 127.0.0.1.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}

/// Reserves a free port.
///
/// # Panics
/// If none of 12,000 is free.
pub fn free() -> Port {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes start far apart, so that they rarely try the same port.
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
    fn ports_are_unique() {
        let ports: Vec<_> = (0..50).map(|_| free()).collect();
        let numbers: HashSet<_> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), 50);
    }

    #[test]
    fn a_port_that_is_reserved_or_in_use_cannot_be_claimed() {
        let reserved = free();
        assert!(claim(reserved.number()).is_none(), "locked");
        let number = reserved.number();
        let listener = TcpListener::bind(reserved.addr()).unwrap();
        drop(reserved);
        assert!(claim(number).is_none(), "in use");
        drop(listener);
    }
}
