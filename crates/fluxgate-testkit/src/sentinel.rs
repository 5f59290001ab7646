//! A primary, its replica, and three sentinels that watch them.

use std::io;

use crate::cli::Cli;
use crate::reply::Reply;
use crate::server::{RedisServer, RedisServerBuilder};
use crate::wait::{wait_for, wait_until};

/// A primary and a replica under three sentinels of which two must agree.
///
/// A dead primary is noticed after half a second; a failover takes one to three
/// seconds. A dead one that is started again thinks itself a primary until the
/// sentinels make it a replica, which takes them up to half a minute; a test
/// that cannot wait sends it `REPLICAOF` itself.
#[derive(Debug)]
pub struct Sentinels {
    // Before the servers, so that they do not see them die.
    sentinels: Vec<RedisServer>,
    servers: Vec<RedisServer>,
}

const MASTER: &str = "mymaster";

impl Sentinels {
    /// Starts them and waits until each sentinel knows the others and the
    /// replica.
    pub fn start() -> Self {
        Self::start_with(|server| server)
    }

    /// As [`Sentinels::start`], with all five made special, as with another
    /// binary.
    pub fn start_with(special: impl Fn(RedisServerBuilder) -> RedisServerBuilder) -> Self {
        // Without the delay, which waits for more replicas, it is there at once.
        let server = || {
            special(RedisServer::builder())
                .config("repl-diskless-sync-delay 0")
                .config("repl-ping-replica-period 1")
        };
        let primary = server().start();
        let port = primary.port();
        let replica = server()
            .config(format!("replicaof 127.0.0.1 {port}"))
            .start();
        wait_until("the replica to follow its primary", || {
            replica.cli().info("master_link_status").as_deref() == Some("up")
        });
        let sentinel = |_| {
            special(RedisServer::builder())
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
            wait_until("the sentinels to know each other and the replica", || {
                knows_all(&mut sentinel.cli())
            });
        }
        all
    }

    /// The name by which clients ask the sentinels.
    pub fn master_name(&self) -> &'static str {
        MASTER
    }

    /// The URL of each sentinel.
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The two servers: first the one that was the primary at the start.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The primary, as a majority of the sentinels says.
    #[track_caller]
    pub fn primary(&self) -> &RedisServer {
        wait_for("two sentinels to name the same primary", || {
            self.servers.iter().find(|server| {
                let named = |sentinel: &&RedisServer| {
                    primary_port(sentinel).is_ok_and(|port| port == server.port())
                };
                self.sentinels.iter().filter(named).count() >= 2
            })
        })
    }

    /// The server that is not the primary.
    #[track_caller]
    pub fn replica(&self) -> &RedisServer {
        let primary = self.primary().port();
        let mut others = self
            .servers
            .iter()
            .filter(|server| server.port() != primary);
        others.next().expect("two servers")
    }

    /// Kills the primary and returns it, to be started again later.
    #[track_caller]
    pub fn kill_primary(&self) -> &RedisServer {
        let primary = self.primary();
        primary.kill();
        primary
    }

    /// Has a sentinel make the replica the primary, as an operator does before
    /// maintenance: the old primary lives, and goes on taking writes for some ten
    /// seconds. Returns the new primary as soon as a sentinel names it.
    #[track_caller]
    pub fn fail_over(&self) -> &RedisServer {
        let new = self.replica();
        let mut sentinel = self.sentinels[0].cli();
        // It refuses until it has heard enough of the replica.
        wait_until("a sentinel to agree to a failover", || {
            let reply = sentinel.command(&["SENTINEL", "FAILOVER", MASTER]);
            reply.error().is_none()
        });
        wait_until("a sentinel to name the new primary", || self.is_named(new));
        new
    }

    /// Whether any sentinel names this server as the primary.
    pub fn is_named(&self, server: &RedisServer) -> bool {
        let named = |it: &RedisServer| primary_port(it).is_ok_and(|port| port == server.port());
        self.sentinels.iter().any(named)
    }

    /// Waits until the sentinels, all that live, name a primary that lives and
    /// takes writes, and returns it.
    #[track_caller]
    pub fn wait_for_failover(&self) -> &RedisServer {
        wait_for("a failover", || {
            let living = || {
                self.sentinels
                    .iter()
                    .filter(|sentinel| sentinel.is_running())
            };
            self.servers.iter().find(|server| {
                server.is_running()
                    && living().all(|it| primary_port(it).is_ok_and(|port| port == server.port()))
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
