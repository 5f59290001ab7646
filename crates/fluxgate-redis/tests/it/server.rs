//! A server of one's own, and a bare connection to it.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fluxgate_core::{Reason, StoreError};
use fluxgate_redis::injected_time::Server;
use redis::{Connection, RedisError};

/// A server that ends with the test.
#[derive(Debug)]
pub(crate) struct RedisServer {
    process: Child,
    port: u16,
}

impl RedisServer {
    /// Starts one on a free port, with nothing in it and nothing saved.
    pub(crate) fn start() -> Self {
        // Somebody else may take the port before the server does.
        for _ in 0..5 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            let process = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
                .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
                .stdout(Stdio::null())
                .spawn();
            let process = match process {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    panic!("redis-server is needed, and not installed")
                }
                process => process.unwrap(),
            };
            let mut server = Self { process, port };
            if server.is_up() {
                return server;
            }
        }
        panic!("redis-server does not start");
    }

    /// A connection, and an empty database.
    pub(crate) fn connect(&self) -> Wire {
        let wire = Wire(Mutex::new(self.connection().unwrap()));
        wire.clear();
        wire
    }

    fn connection(&self) -> Result<Connection, RedisError> {
        let url = format!("redis://127.0.0.1:{}", self.port);
        redis::Client::open(url)?.get_connection()
    }

    fn is_up(&mut self) -> bool {
        for _ in 0..200 {
            if self.connection().is_ok() {
                return true;
            }
            if self.process.try_wait().unwrap().is_some() {
                return false;
            }
            thread::sleep(Duration::from_millis(25));
        }
        false
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // If it is gone already, so much the better.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A bare connection.
pub(crate) struct Wire(Mutex<Connection>);

impl Wire {
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

    /// Forgets every key.
    pub(crate) fn clear(&self) {
        self.run::<()>(redis::cmd("FLUSHALL").arg("SYNC"));
    }

    /// How many keys there are.
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
                // A scan may tell a key twice.
                found.sort();
                found.dedup();
                return Ok(found);
            }
        }
    }
}

fn failed(error: RedisError) -> StoreError {
    StoreError {
        reason: Reason::RedisError,
        message: error.to_string(),
    }
}
