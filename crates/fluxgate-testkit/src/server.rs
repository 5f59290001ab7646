//! A Redis or Valkey server for one test.

mod setup;

use std::env;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::cli::Cli;
use crate::clock::Skew;
use crate::ports::Port;
use crate::program::{Process, find_program};
use crate::tls::{Certificates, ClientAuth};
use crate::wait::wait_for;
use setup::{PortTaken, SOCKET, ServerOptions, Setup};

/// A running server, which is killed and removed when dropped.
///
/// All methods take a shared reference, so that one thread can kill it while others use it.
#[derive(Debug)]
pub struct RedisServer {
    // Dropped before the directory.
    process: Process,
    setup: Setup,
}

impl RedisServer {
    /// Starts a server with the default options.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Returns a builder.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder(ServerOptions::default()).binary("redis-server")
    }

    fn run(options: ServerOptions) -> Self {
        let mut setup = Setup::new(options);
        // A program outside the tests may take the port before the server does.
        for _ in 0..10 {
            setup.write_config();
            let process = Process::start(setup.command());
            match setup.wait_for_ping(&process) {
                Ok(()) => return Self { process, setup },
                Err(PortTaken) => setup.take_other_ports(),
            }
        }
        panic!("ten ports in a row were taken by other programs");
    }

    /// Returns the address without TLS.
    pub fn addr(&self) -> SocketAddr {
        self.setup.port.addr()
    }

    /// Returns the port of [`RedisServer::addr`].
    pub fn port(&self) -> u16 {
        self.setup.port.number()
    }

    /// Returns the port of the cluster bus of a cluster node.
    pub(crate) fn cluster_port(&self) -> Option<u16> {
        self.setup.cluster_port.as_ref().map(Port::number)
    }

    /// Returns `redis://…`, with the password if there is one.
    pub fn url(&self) -> String {
        let password = match &self.setup.options.password {
            Some(password) => format!(":{password}@"),
            None => String::new(),
        };
        format!("redis://{password}{}", self.addr())
    }

    /// Returns `redis://…` for a user of [`RedisServerBuilder::user`].
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@{}", self.addr())
    }

    /// Returns the address with TLS.
    ///
    /// # Panics
    /// If the server was not started with [`RedisServerBuilder::tls`]. So do
    /// [`RedisServer::tls_url`] and [`RedisServer::certificates`].
    pub fn tls_addr(&self) -> SocketAddr {
        let port = self.setup.tls_port.as_ref().expect("a server with TLS");
        port.addr()
    }

    /// Returns `rediss://…`, with the password if there is one.
    pub fn tls_url(&self) -> String {
        let plain = self.url();
        let credentials = plain
            .strip_prefix("redis://")
            .and_then(|rest| rest.strip_suffix(&self.addr().to_string()))
            .expect("a URL ends with the address");
        format!("rediss://{credentials}{}", self.tls_addr())
    }

    /// Returns the certificates.
    pub fn certificates(&self) -> &Certificates {
        let certificates = self.setup.certificates.as_ref();
        certificates.expect("a server with TLS")
    }

    /// Returns the path of the Unix socket.
    ///
    /// # Panics
    /// If the server was not started with [`RedisServerBuilder::unix_socket`].
    pub fn socket_path(&self) -> PathBuf {
        assert!(
            self.setup.options.unix_socket,
            "a server with a Unix socket"
        );
        self.setup.dir.file(SOCKET)
    }

    /// Opens a connection with all permissions.
    ///
    /// # Panics
    /// If the server cannot be reached.
    #[track_caller]
    pub fn cli(&self) -> Cli {
        match self.setup.connect() {
            Ok(cli) => cli,
            Err(error) => panic!("connect to {}: {error}\n{}", self.addr(), self.log()),
        }
    }

    /// Like [`RedisServer::cli`], but returns an error if the server cannot be reached.
    pub fn try_cli(&self) -> io::Result<Cli> {
        self.setup.connect()
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns whether the process is running, paused or not.
    pub fn is_running(&self) -> bool {
        self.process.ended().is_none()
    }

    /// Kills the server, which loses its data. Does nothing if it is not running.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Kills the server if it is running, starts it with the same ports and directory, and
    /// waits until it answers.
    pub fn restart(&self) {
        self.process.kill();
        wait_for("a restarted server gets its old port", || {
            self.process.start_again(self.setup.command());
            self.setup.wait_for_ping(&self.process).ok()
        });
    }

    /// Stops the process by SIGSTOP. Connections stay open, and the kernel accepts new ones.
    pub fn pause(&self) {
        self.process.signal("STOP");
    }

    /// Continues the process, which then answers what it has received.
    pub fn resume(&self) {
        self.process.signal("CONT");
    }

    /// Shifts the wall clock of the running server.
    ///
    /// # Panics
    /// If the server was not started with [`RedisServerBuilder::clock_offset`].
    pub fn set_clock_offset(&self, skew: Skew) {
        let clock = self.setup.clock.as_ref();
        clock.expect("a server with a shifted clock").set(skew);
    }

    /// Returns the log of the server.
    pub fn log(&self) -> String {
        self.setup.log()
    }

    /// Returns the working directory of the server.
    pub fn directory(&self) -> &Path {
        self.setup.dir.path()
    }
}

/// Finds a Valkey server: the binary that `FLUXGATE_VALKEY_SERVER` names, or else
/// `valkey-server` in the search path.
///
/// # Panics
/// If the variable names a file that does not exist, so that no test is skipped by mistake.
pub fn valkey() -> Option<PathBuf> {
    let variable = env::var_os("FLUXGATE_VALKEY_SERVER").filter(|path| !path.is_empty());
    let Some(path) = variable.map(PathBuf::from) else {
        return find_program("valkey-server");
    };
    assert!(
        path.is_file(),
        "FLUXGATE_VALKEY_SERVER names {}, which is not a file",
        path.display()
    );
    Some(path)
}

/// The options of a [`RedisServer`] to start.
#[derive(Clone, Debug)]
pub struct RedisServerBuilder(ServerOptions);

impl RedisServerBuilder {
    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// If the server does not start. The message contains its log.
    pub fn start(self) -> RedisServer {
        RedisServer::run(self.0)
    }

    /// Sets another program than `redis-server`, for example [`valkey`](crate::valkey).
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.binary = path.into();
        self
    }

    /// Adds a line of configuration, which overrides earlier ones.
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.0.config.push(line.into());
        self
    }

    /// Limits the memory, without eviction: further writes fail with `OOM`.
    pub fn max_memory(self, bytes: u64) -> Self {
        self.config(format!("maxmemory {bytes}"))
            .config("maxmemory-policy noeviction")
    }

    /// Sets the password of the default user, which must not need escaping in a URL.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.0.password = Some(password.into());
        self
    }

    /// Adds a user to the ACL file, such as `alice on >secret ~fg:* +@all`. A rule that starts
    /// with `default ` replaces the password of the default user.
    pub fn user(mut self, rule: impl Into<String>) -> Self {
        self.0.users.push(rule.into());
        self
    }

    /// Also listens on a Unix socket.
    pub fn unix_socket(mut self) -> Self {
        self.0.unix_socket = true;
        self
    }

    /// Also listens with TLS, on another port and with new certificates.
    pub fn tls(mut self, clients: ClientAuth) -> Self {
        self.0.tls = Some(clients);
        self
    }

    /// Starts with a shifted wall clock, which [`RedisServer::set_clock_offset`] can change
    /// later. Needs `cc`.
    pub fn clock_offset(mut self, skew: Skew) -> Self {
        self.0.skew = Some(skew);
        self
    }

    /// Makes the server a cluster node.
    pub(crate) fn cluster(mut self) -> Self {
        self.0.cluster = true;
        self
    }

    /// Makes the server a sentinel.
    pub(crate) fn sentinel(mut self) -> Self {
        self.0.sentinel = true;
        self
    }
}
