//! The options of a server.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::RedisServer;
use crate::clock::Skew;
use crate::tls::ClientAuth;

/// The options of a [`RedisServer`].
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
    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// If the server does not start. The message contains its log.
    pub fn start(self) -> RedisServer {
        RedisServer::run(self)
    }

    /// Sets another program than `redis-server`, for example [`valkey`](crate::valkey).
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = path.into();
        self
    }

    /// Adds a line of configuration, which overrides earlier ones.
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.config.push(line.into());
        self
    }

    /// Limits the memory, without eviction: further writes fail with `OOM`.
    pub fn max_memory(self, bytes: u64) -> Self {
        self.config(format!("maxmemory {bytes}"))
            .config("maxmemory-policy noeviction")
    }

    /// Sets the password of the default user, which must not need escaping in a URL.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Adds a user to the ACL file, such as `alice on >secret ~fg:* +@all`. A rule that starts
    /// with `default ` replaces the password of the default user.
    pub fn user(mut self, rule: impl Into<String>) -> Self {
        self.users.push(rule.into());
        self
    }

    /// Also listens on a Unix socket.
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Also listens with TLS, on another port and with new certificates.
    pub fn tls(mut self, clients: ClientAuth) -> Self {
        self.tls = Some(clients);
        self
    }

    /// Starts with a shifted wall clock, which [`RedisServer::set_clock_offset`] can change
    /// later. Needs `cc`.
    pub fn clock_offset(mut self, skew: Skew) -> Self {
        self.skew = Some(skew);
        self
    }

    /// Makes the server a cluster node.
    pub(crate) fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// Makes the server a sentinel.
    pub(crate) fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    pub(super) fn has_users(&self) -> bool {
        self.password.is_some() || !self.users.is_empty()
    }

    /// Returns the ACL file, if there are users. `own` is a user with all permissions, whose
    /// password is its name.
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
