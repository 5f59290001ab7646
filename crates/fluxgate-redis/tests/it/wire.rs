//! A bare connection to a server.

use std::sync::{Mutex, PoisonError};

use fluxgate_core::StoreError;
use fluxgate_redis::injected_time::Server;
use fluxgate_redis::reason;
use fluxgate_testkit::RedisServer;
use redis::{Connection, RedisError};

/// A bare connection.
pub(crate) struct Wire(Mutex<Connection>);

impl Wire {
    /// Connects and empties the database.
    pub(crate) fn to(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let wire = Self(Mutex::new(client.get_connection().unwrap()));
        wire.clear();
        wire
    }

    pub(crate) fn run<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        self.try_run(command).unwrap()
    }

    pub(crate) fn try_run<T: redis::FromRedisValue>(
        &self,
        command: &redis::Cmd,
    ) -> Result<T, RedisError> {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        command.query(&mut connection)
    }

    /// Deletes all keys.
    pub(crate) fn clear(&self) {
        self.run::<()>(redis::cmd("FLUSHALL").arg("SYNC"));
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&self) -> usize {
        self.run(&redis::cmd("DBSIZE"))
    }
}

impl Server for &Wire {
    fn eval(
        &self,
        script: &str,
        sha1: &str,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<Vec<u8>, StoreError> {
        let run = |name: &str, script: &str| {
            let mut command = redis::cmd(name);
            command.arg(script).arg(keys.len()).arg(keys).arg(args);
            self.try_run(&command)
        };
        let reply = match run("EVALSHA", sha1) {
            Err(error) if error.code() == Some("NOSCRIPT") => run("EVAL", script),
            reply => reply,
        };
        reply.map_err(failed)
    }

    fn unlink(&self, keys: &[Vec<u8>]) -> Result<u64, StoreError> {
        if keys.is_empty() {
            return Ok(0);
        }
        self.try_run(redis::cmd("UNLINK").arg(keys)).map_err(failed)
    }

    fn scan(&self, pattern: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut found = Vec::new();
        let mut cursor = 0_u64;
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(pattern);
            let (next, keys): (u64, Vec<Vec<u8>>) = self.try_run(&command).map_err(failed)?;
            found.extend(keys);
            cursor = next;
            if cursor == 0 {
                // SCAN may return a key twice.
                found.sort();
                found.dedup();
                return Ok(found);
            }
        }
    }
}

fn failed(error: RedisError) -> StoreError {
    StoreError {
        reason: reason::REDIS_ERROR,
        message: error.to_string(),
    }
}
