//! A Redis or Valkey server for one test.

mod builder;

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use builder::RedisServerBuilder;

use crate::cli::{Cli, field_of};
use crate::clock::{ShiftedClock, Skew};
use crate::dir::Dir;
use crate::ports::{self, Port};
use crate::process::{self, Process};
use crate::reply::Reply;
use crate::tls::Certificates;
use crate::wait::wait_for;

/// A running server, which is killed and removed when dropped.
///
/// All methods take a shared reference, so that one thread can kill it while others use it.
#[derive(Debug)]
pub struct RedisServer {
    // Dropped before the directory.
    process: Process,
    setup: Setup,
}

/// The parts of a server that survive a restart.
#[derive(Debug)]
struct Setup {
    options: RedisServerBuilder,
    dir: Dir,
    port: Port,
    tls_port: Option<Port>,
    cluster_port: Option<Port>,
    certificates: Option<Certificates>,
    clock: Option<ShiftedClock>,
}

/// The user of [`RedisServer::cli`] on a server with users, so that a test may change the
/// default user.
const OWN_USER: &str = "testkit";

impl RedisServer {
    /// Starts a server with the default options.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Returns a builder.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    fn run(options: RedisServerBuilder) -> Self {
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
        return process::find_program("valkey-server");
    };
    assert!(
        path.is_file(),
        "FLUXGATE_VALKEY_SERVER names {}, which is not a file",
        path.display()
    );
    Some(path)
}

const CONFIG: &str = "server.conf";
const LOG: &str = "server.log";
const OUTPUT: &str = "output.log";
const SOCKET: &str = "server.sock";
const USERS: &str = "users.acl";

/// Another program uses the port.
#[derive(Debug)]
struct PortTaken;

impl Setup {
    fn new(options: RedisServerBuilder) -> Self {
        let dir = Dir::new();
        Self {
            port: ports::free(),
            tls_port: options.tls.map(|_| ports::free()),
            cluster_port: options.cluster.then(ports::free),
            certificates: options.tls.map(|_| Certificates::generate()),
            clock: options.skew.map(|skew| ShiftedClock::new(&dir, skew)),
            dir,
            options,
        }
    }

    fn take_other_ports(&mut self) {
        // An old port is released only after a new one is found.
        self.port = ports::free();
        self.tls_port = self.tls_port.as_ref().map(|_| ports::free());
        self.cluster_port = self.cluster_port.as_ref().map(|_| ports::free());
    }

    fn write_config(&self) {
        let mut config = String::new();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            writeln!(config, "{name} {value}").expect("writing to a string cannot fail");
        };
        line("bind", &"127.0.0.1");
        line("port", &self.port.number());
        line("dir", &self.dir.path().display());
        line("logfile", &self.dir.file(LOG).display());
        line("loglevel", &"warning");
        line("save", &"\"\"");
        line("appendonly", &"no");
        line("daemonize", &"no");
        if self.options.unix_socket {
            line("unixsocket", &self.dir.file(SOCKET).display());
        }
        if let (Some(port), Some(files), Some(auth)) =
            (&self.tls_port, &self.certificates, self.options.tls)
        {
            line("tls-port", &port.number());
            line("tls-cert-file", &files.server_cert().display());
            line("tls-key-file", &files.server_key().display());
            line("tls-ca-cert-file", &files.ca().display());
            line("tls-auth-clients", &builder::tls_auth_clients(auth));
        }
        if let Some(port) = &self.cluster_port {
            line("cluster-enabled", &"yes");
            line("cluster-port", &port.number());
        }
        if let Some(users) = self.options.users_file(OWN_USER) {
            line("aclfile", &self.dir.write(USERS, &users).display());
        }
        for extra in &self.options.config {
            config.push_str(extra);
            config.push('\n');
        }
        self.dir.write(CONFIG, &config);
    }

    fn command(&self) -> Command {
        let mut command = process::killed_with_parent(&self.options.binary);
        command.arg(self.dir.file(CONFIG));
        if self.options.sentinel {
            command.arg("--sentinel");
        }
        if self.clock.is_some() {
            ShiftedClock::apply(&self.dir, &mut command);
        }
        // The output before the server has read the path of its log.
        let output = File::create(self.dir.file(OUTPUT)).expect("create a file for the output");
        let errors = output.try_clone().expect("clone a file handle");
        command.current_dir(self.dir.path());
        command.stdin(std::process::Stdio::null());
        command.stdout(output).stderr(errors);
        command
    }

    fn wait_for_ping(&self, process: &Process) -> Result<(), PortTaken> {
        wait_for("a started server answers PING", || {
            if let Some(status) = process.ended() {
                let log = self.log();
                let messages = ["Address already in use", "Failed listening on port"];
                if messages.iter().any(|message| log.contains(message)) {
                    // The next attempt must not find the message again.
                    let _ = fs::remove_file(self.dir.file(LOG));
                    return Some(Err(PortTaken));
                }
                let binary = self.options.binary.display();
                panic!("{binary} did not start ({status}):\n{log}");
            }
            // Another server may answer on the port while this one is about to fail, so the
            // process id must match.
            let answers = self.is_answered_by(process.id()).unwrap_or(false);
            answers.then_some(Ok(()))
        })
    }

    fn is_answered_by(&self, pid: u32) -> io::Result<bool> {
        let mut cli = self.connect()?;
        let Reply::Bulk(info) = cli.try_command(&["INFO", "server"])? else {
            return Ok(false);
        };
        let id = field_of(&String::from_utf8_lossy(&info), "process_id");
        let pong = cli.try_command(&["PING"])?;
        Ok(id == Some(pid.to_string()) && pong == Reply::Simple("PONG".to_owned()))
    }

    fn connect(&self) -> io::Result<Cli> {
        let mut cli = Cli::connect(self.port.addr())?;
        if self.options.has_users() {
            let reply = cli.try_command(&["AUTH", OWN_USER, OWN_USER])?;
            if let Reply::Error(error) = reply {
                return Err(io::Error::other(error));
            }
        }
        Ok(cli)
    }

    fn log(&self) -> String {
        self.dir.read(OUTPUT) + &self.dir.read(LOG)
    }
}
