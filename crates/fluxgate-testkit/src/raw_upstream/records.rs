//! The records of all connections.

use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The records that the server shares with its connections.
#[derive(Debug, Default)]
pub(super) struct ConnectionRecords {
    pub(super) stopped: AtomicBool,
    records: Mutex<Vec<ConnectionRecord>>,
}

/// The record of a connection.
#[derive(Debug)]
pub(super) struct ConnectionRecord {
    pub(super) received: Vec<u8>,
    /// Whether the peer has closed it, or the script has ended.
    pub(super) is_over: bool,
    /// `None` if the connection is to be reset.
    pub(super) stream: Option<TcpStream>,
}

impl ConnectionRecords {
    /// Adds the record of a new connection and returns its index.
    pub(super) fn add(&self, stream: TcpStream) -> usize {
        let mut records = self.lock();
        records.push(ConnectionRecord {
            received: Vec::new(),
            is_over: false,
            stream: Some(stream),
        });
        records.len() - 1
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<ConnectionRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
