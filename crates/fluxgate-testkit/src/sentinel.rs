//! A primary, its replica, and three sentinels.

use std::io;

use crate::cli::{Cli, Reply};
use crate::server::{RedisServer, RedisServerBuilder};
use crate::wait::{wait_for, wait_until};

/// A primary and a replica with three sentinels and a quorum of two.
///
/// The sentinels detect a dead primary after half a second, and a failover takes one to three
/// seconds. An old primary that restarts acts as a primary until the sentinels make it a
/// replica, which may take half a minute. A test that cannot wait sends `REPLICAOF` itself.
#[derive(Debug)]
pub struct Sentinels {
    // Dropped before the servers, so that there is no failover.
    sentinels: Vec<RedisServer>,
    servers: Vec<RedisServer>,
}

const MASTER: &str = "mymaster";

impl Sentinels {
    /// Starts all servers and waits until each sentinel knows the others and the replica.
    pub fn start() -> Self {
        Self::start_with(|server| server)
    }

    /// Like [`Sentinels::start`], with servers that are configured further, for example with
    /// another binary.
    pub fn start_with(configure: impl Fn(RedisServerBuilder) -> RedisServerBuilder) -> Self {
        // The delay would wait for more replicas.
        let server = || {
            configure(RedisServer::builder())
                .config("repl-diskless-sync-delay 0")
                .config("repl-ping-replica-period 1")
        };
        let primary = server().start();
        let port = primary.port();
        let replica = server()
            .config(format!("replicaof 127.0.0.1 {port}"))
            .start();
        wait_until("the replica follows its primary", || {
            replica.cli().info("master_link_status").as_deref() == Some("up")
        });
        let sentinel = |_| {
            configure(RedisServer::builder())
                .sentinel()
                .config(format!("sentinel monitor {MASTER} 127.0.0.1 {port} 2"))
                .config(format!("sentinel down-after-milliseconds {MASTER} 500"))
                .config(format!("sentinel failover-timeout {MASTER} 2000"))
                .start()
        };
        let all = Self {
            sentinels: (0..3).map(sentinel).collect(),
            servers: vec![primary, replica],
        };
        for sentinel in &all.sentinels {
            wait_until("the sentinels know each other and the replica", || {
                knows_all(&mut sentinel.cli())
            });
        }
        all
    }

    /// Returns the name of the primary in the sentinels' config.
    pub fn master_name(&self) -> &'static str {
        MASTER
    }

    /// Returns the URL of each sentinel.
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// Returns the sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Returns the two servers. The first was the primary at the start.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the primary according to a majority of the sentinels.
    #[track_caller]
    pub fn primary(&self) -> &RedisServer {
        wait_for("two sentinels name the same primary", || {
            self.servers.iter().find(|server| {
                let named = |sentinel: &&RedisServer| {
                    primary_port(sentinel).is_ok_and(|port| port == server.port())
                };
                self.sentinels.iter().filter(named).count() >= 2
            })
        })
    }

    /// Returns the server that is not the primary.
    #[track_caller]
    pub fn replica(&self) -> &RedisServer {
        let primary = self.primary().port();
        let mut others = self
            .servers
            .iter()
            .filter(|server| server.port() != primary);
        others.next().expect("two servers")
    }

    /// Kills the primary and returns it.
    #[track_caller]
    pub fn kill_primary(&self) -> &RedisServer {
        let primary = self.primary();
        primary.kill();
        primary
    }

    /// Starts a planned failover. The old primary lives and accepts writes for about ten more
    /// seconds. Returns the new primary as soon as a sentinel names it.
    #[track_caller]
    pub fn fail_over(&self) -> &RedisServer {
        let new = self.replica();
        let mut sentinel = self.sentinels[0].cli();
        // The sentinel rejects it until it knows the replica well enough.
        wait_until("a sentinel accepts the failover", || {
            let reply = sentinel.command(&["SENTINEL", "FAILOVER", MASTER]);
            reply.error().is_none()
        });
        wait_until("a sentinel names the new primary", || self.is_named(new));
        new
    }

    /// Returns whether any sentinel names this server as the primary.
    pub fn is_named(&self, server: &RedisServer) -> bool {
        let named = |it: &RedisServer| primary_port(it).is_ok_and(|port| port == server.port());
        self.sentinels.iter().any(named)
    }

    /// Waits until all live sentinels name a live primary, and returns it.
    #[track_caller]
    pub fn wait_for_failover(&self) -> &RedisServer {
        wait_for("a failover", || {
            let live = || {
                self.sentinels
                    .iter()
                    .filter(|sentinel| sentinel.is_running())
            };
            self.servers.iter().find(|server| {
                server.is_running()
                    && live().all(|it| primary_port(it).is_ok_and(|port| port == server.port()))
                    && is_primary(server).unwrap_or(false)
            })
        })
    }
}

fn knows_all(sentinel: &mut Cli) -> bool {
    let reply = sentinel.command(&["SENTINEL", "MASTER", MASTER]);
    let fields = reply.array();
    let field = |name: &str| {
        let mut pairs = fields.chunks_exact(2);
        pairs
            .find(|pair| pair[0].text() == name)
            .map(|pair| pair[1].text())
    };
    let is = |name: &str, value: &str| field(name).as_deref() == Some(value);
    is("num-slaves", "1") && is("num-other-sentinels", "2") && is("flags", "master")
}

fn primary_port(sentinel: &RedisServer) -> io::Result<u16> {
    let mut cli = sentinel.try_cli()?;
    let reply = cli.try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])?;
    match reply {
        Reply::Array(parts) => {
            let port = parts.last().and_then(|port| port.text().parse().ok());
            port.ok_or_else(|| io::ErrorKind::InvalidData.into())
        }
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn is_primary(server: &RedisServer) -> io::Result<bool> {
    let role = server.try_cli()?.try_command(&["ROLE"])?;
    Ok(role.array()[0].text() == "master")
}
