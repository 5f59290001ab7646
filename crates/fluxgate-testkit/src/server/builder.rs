//! What a server is to be like.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::RedisServer;
use crate::clock::Skew;
use crate::tls::ClientAuth;

/// A description of a server; what is not said is as plain as can be.
#[derive(Clone, Debug)]
pub struct RedisServerBuilder {
    pub(super) binary: PathBuf,
    pub(super) config: Vec<String>,
    pub(super) password: Option<String>,
    pub(super) users: Vec<String>,
    pub(super) unix_socket: bool,
    pub(super) tls: Option<ClientAuth>,
    pub(super) skew: Option<Skew>,
    pub(super) cluster: bool,
    pub(super) sentinel: bool,
}

impl Default for RedisServerBuilder {
    fn default() -> Self {
        Self {
            binary: "redis-server".into(),
            config: Vec::new(),
            password: None,
            users: Vec::new(),
            unix_socket: false,
            tls: None,
            skew: None,
            cluster: false,
            sentinel: false,
        }
    }
}

impl RedisServerBuilder {
    /// Starts it and waits until it answers.
    ///
    /// # Panics
    /// If it does not start, with its log.
    pub fn start(self) -> RedisServer {
        RedisServer::run(self)
    }

    /// Another program than the `redis-server` in the search path, as that of
    /// [`valkey`](crate::valkey).
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = path.into();
        self
    }

    /// A line of configuration, which comes after all others and so wins.
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.config.push(line.into());
        self
    }

    /// No more memory than this, and no eviction: what does not fit is refused
    /// with `OOM`.
    pub fn max_memory(self, bytes: u64) -> Self {
        self.config(format!("maxmemory {bytes}"))
            .config("maxmemory-policy noeviction")
    }

    /// A password for the default user. Only characters that a URL may carry as
    /// they are.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// A user of the server's ACL file: `alice on >secret ~fg:* +@all`. One that
    /// begins with `default ` stands for the default user, in place of the
    /// password.
    pub fn user(mut self, rule: impl Into<String>) -> Self {
        self.users.push(rule.into());
        self
    }

    /// Listens on a Unix socket too.
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Listens with TLS too, on another port, with new certificates.
    pub fn tls(mut self, clients: ClientAuth) -> Self {
        self.tls = Some(clients);
        self
    }

    /// Starts with a wrong wall clock, which
    /// [`RedisServer::set_clock_offset`] can change while it runs; with
    /// [`Skew::NONE`] it starts with the right one. Needs `cc`.
    pub fn clock_offset(mut self, skew: Skew) -> Self {
        self.skew = Some(skew);
        self
    }

    /// A node of a cluster, with a bus port of its own.
    pub(crate) fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// A sentinel, not a server.
    pub(crate) fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    pub(super) fn has_users(&self) -> bool {
        self.password.is_some() || !self.users.is_empty()
    }

    /// The ACL file, if there is anything to put into it. `own` has all rights,
    /// with its name as its password.
    pub(super) fn users_file(&self, own: &str) -> Option<String> {
        if !self.has_users() {
            return None;
        }
        let mut file = format!("user {own} on >{own} ~* &* +@all\n");
        if let Some(password) = &self.password {
            let _ = writeln!(file, "user default on >{password} ~* &* +@all");
        }
        for user in &self.users {
            let _ = writeln!(file, "user {user}");
        }
        Some(file)
    }
}

pub(super) fn tls_auth_clients(auth: ClientAuth) -> &'static str {
    match auth {
        ClientAuth::Off => "no",
        ClientAuth::Required => "yes",
    }
}
