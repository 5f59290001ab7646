//! A Redis or Valkey server of a test's own.

mod builder;

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

/// A running server, killed and removed when dropped.
///
/// Everything works through a shared reference, so that one thread can break it
/// while others use it.
#[derive(Debug)]
pub struct RedisServer {
    // Before the directory, so that the process goes first.
    process: Process,
    setup: Setup,
}

/// All of a server but its process: what a restart keeps.
#[derive(Debug)]
struct Setup {
    wanted: RedisServerBuilder,
    dir: Dir,
    port: Port,
    tls_port: Option<Port>,
    cluster_port: Option<Port>,
    certificates: Option<Certificates>,
    clock: Option<ShiftedClock>,
}

/// The user of [`RedisServer::cli`] where users matter: whatever a test does to
/// the default user, it can still look.
const OWN_USER: &str = "testkit";

impl RedisServer {
    /// A server with nothing special.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts to describe one.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    fn run(wanted: RedisServerBuilder) -> Self {
        let mut setup = Setup::new(wanted);
        // Somebody without our locks may take the port before the server does.
        for _ in 0..10 {
            setup.write_config();
            let process = Process::start(setup.command());
            match setup.wait_for_ping(&process) {
                Ok(()) => return Self { process, setup },
                Err(Taken) => setup.take_other_ports(),
            }
        }
        panic!("ten ports in a row were taken by others");
    }

    /// Where it listens, without TLS.
    pub fn addr(&self) -> SocketAddr {
        self.setup.port.addr()
    }

    /// The port of [`RedisServer::addr`].
    pub fn port(&self) -> u16 {
        self.setup.port.number()
    }

    /// The port of its cluster bus, if it is a node of a cluster.
    pub(crate) fn cluster_port(&self) -> Option<u16> {
        self.setup.cluster_port.as_ref().map(Port::number)
    }

    /// `redis://…`, with the password if it has one.
    pub fn url(&self) -> String {
        let password = match &self.setup.wanted.password {
            Some(password) => format!(":{password}@"),
            None => String::new(),
        };
        format!("redis://{password}{}", self.addr())
    }

    /// `redis://…` as a user of [`RedisServerBuilder::user`].
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@{}", self.addr())
    }

    /// Where it listens with TLS.
    ///
    /// # Panics
    /// If it was not started with [`RedisServerBuilder::tls`]. So do
    /// [`RedisServer::tls_url`] and [`RedisServer::certificates`].
    pub fn tls_addr(&self) -> SocketAddr {
        let port = self.setup.tls_port.as_ref().expect("a server with TLS");
        port.addr()
    }

    /// `rediss://…`, with the password if it has one.
    pub fn tls_url(&self) -> String {
        let plain = self.url();
        let credentials = plain
            .strip_prefix("redis://")
            .and_then(|rest| rest.strip_suffix(&self.addr().to_string()))
            .expect("a URL ends with the address");
        format!("rediss://{credentials}{}", self.tls_addr())
    }

    /// The certificates of its TLS.
    pub fn certificates(&self) -> &Certificates {
        let certificates = self.setup.certificates.as_ref();
        certificates.expect("a server with TLS")
    }

    /// Its Unix socket.
    ///
    /// # Panics
    /// If it was not started with [`RedisServerBuilder::unix_socket`].
    pub fn socket_path(&self) -> PathBuf {
        assert!(self.setup.wanted.unix_socket, "a server with a Unix socket");
        self.setup.dir.file(SOCKET)
    }

    /// A new connection to it, with all rights.
    ///
    /// # Panics
    /// If it cannot be reached.
    #[track_caller]
    pub fn cli(&self) -> Cli {
        match self.setup.connect() {
            Ok(cli) => cli,
            Err(error) => panic!("connect to {}: {error}\n{}", self.addr(), self.log()),
        }
    }

    /// As [`RedisServer::cli`]; an error if it cannot be reached.
    pub fn try_cli(&self) -> io::Result<Cli> {
        self.setup.connect()
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether the process lives; a paused one does.
    pub fn is_running(&self) -> bool {
        self.process.ended().is_none()
    }

    /// SIGKILL: it is gone at once, with all that it held. Nothing if it is gone
    /// already.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Starts it again on the same ports and in the same directory, and waits
    /// until it answers. Kills it first if it runs.
    pub fn restart(&self) {
        self.process.kill();
        wait_for("the old port of a restarted server", || {
            self.process.start_again(self.setup.command());
            self.setup.wait_for_ping(&self.process).ok()
        });
    }

    /// SIGSTOP: connections stay open, the kernel goes on accepting new ones,
    /// and nothing is answered.
    pub fn pause(&self) {
        self.process.signal("STOP");
    }

    /// SIGCONT: what came in meanwhile is answered now.
    pub fn resume(&self) {
        self.process.signal("CONT");
    }

    /// Sets its wall clock, from its next look at it on.
    ///
    /// # Panics
    /// If it was not started with [`RedisServerBuilder::clock_offset`].
    pub fn set_clock_offset(&self, skew: Skew) {
        let clock = self.setup.clock.as_ref();
        clock.expect("a server with a shifted clock").set(skew);
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        self.setup.log()
    }

    /// The directory in which it runs.
    pub fn directory(&self) -> &Path {
        self.setup.dir.path()
    }
}

const CONFIG: &str = "server.conf";
const LOG: &str = "server.log";
const OUTPUT: &str = "output.log";
const SOCKET: &str = "server.sock";
const USERS: &str = "users.acl";

/// Somebody else has the port.
#[derive(Debug)]
struct Taken;

impl Setup {
    fn new(wanted: RedisServerBuilder) -> Self {
        let dir = Dir::new();
        Self {
            port: ports::free(),
            tls_port: wanted.tls.map(|_| ports::free()),
            cluster_port: wanted.cluster.then(ports::free),
            certificates: wanted.tls.map(|_| Certificates::generate()),
            clock: wanted.skew.map(|skew| ShiftedClock::new(&dir, skew)),
            dir,
            wanted,
        }
    }

    fn take_other_ports(&mut self) {
        // The old ones are dropped after the new ones are found.
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
        if self.wanted.unix_socket {
            line("unixsocket", &self.dir.file(SOCKET).display());
        }
        if let (Some(port), Some(files), Some(auth)) =
            (&self.tls_port, &self.certificates, self.wanted.tls)
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
        if let Some(users) = self.wanted.users_file(OWN_USER) {
            line("aclfile", &self.dir.write(USERS, &users).display());
        }
        for extra in &self.wanted.config {
            config.push_str(extra);
            config.push('\n');
        }
        self.dir.write(CONFIG, &config);
    }

    fn command(&self) -> Command {
        let mut command = process::bound_to_us(&self.wanted.binary);
        command.arg(self.dir.file(CONFIG));
        if self.wanted.sentinel {
            command.arg("--sentinel");
        }
        if self.clock.is_some() {
            ShiftedClock::apply(&self.dir, &mut command);
        }
        // What it says before it has read where its log is.
        let output = File::create(self.dir.file(OUTPUT)).expect("make a file for the output");
        let errors = output.try_clone().expect("use a file twice");
        command.current_dir(self.dir.path());
        command.stdin(std::process::Stdio::null());
        command.stdout(output).stderr(errors);
        command
    }

    fn wait_for_ping(&self, process: &Process) -> Result<(), Taken> {
        wait_for("a started server to answer PING", || {
            if let Some(status) = process.ended() {
                let log = self.log();
                let taken = ["Address already in use", "Failed listening on port"];
                if taken.iter().any(|sign| log.contains(sign)) {
                    // Not to be read again when it is started anew.
                    let _ = fs::remove_file(self.dir.file(LOG));
                    return Some(Err(Taken));
                }
                let binary = self.wanted.binary.display();
                panic!("{binary} did not start ({status}):\n{log}");
            }
            // Another server may sit on the port and answer while ours is about
            // to fail, so ours must say that it is the one.
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
        if self.wanted.has_users() {
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
