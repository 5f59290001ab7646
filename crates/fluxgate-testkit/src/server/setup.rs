//! The parts of a server that survive a restart: its directory, ports and configuration.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::Command;

use crate::cli::{Cli, Reply, field_of};
use crate::clock::{ShiftedClock, Skew};
use crate::dir::Dir;
use crate::ports::{self, Port};
use crate::program::{Process, killed_with_parent};
use crate::tls::{Certificates, ClientAuth};
use crate::wait::wait_for;

/// The user of [`RedisServer::cli`](super::RedisServer::cli) on a server with users, so that a test may change the
/// default user.
const OWN_USER: &str = "testkit";

const CONFIG: &str = "server.conf";
const LOG: &str = "server.log";
const OUTPUT: &str = "output.log";
pub(super) const SOCKET: &str = "server.sock";
const USERS: &str = "users.acl";

/// Another program uses the port.
#[derive(Debug)]
pub(super) struct PortTaken;

/// The parts of a server that survive a restart.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) options: ServerOptions,
    pub(super) dir: Dir,
    pub(super) port: Port,
    pub(super) tls_port: Option<Port>,
    pub(super) cluster_port: Option<Port>,
    pub(super) certificates: Option<Certificates>,
    pub(super) clock: Option<ShiftedClock>,
}

impl Setup {
    pub(super) fn new(options: ServerOptions) -> Self {
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

    pub(super) fn take_other_ports(&mut self) {
        // An old port is released only after a new one is found.
        self.port = ports::free();
        self.tls_port = self.tls_port.as_ref().map(|_| ports::free());
        self.cluster_port = self.cluster_port.as_ref().map(|_| ports::free());
    }

    pub(super) fn write_config(&self) {
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
            line("tls-auth-clients", &tls_auth_clients(auth));
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

    pub(super) fn command(&self) -> Command {
        let mut command = killed_with_parent(&self.options.binary);
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

    pub(super) fn wait_for_ping(&self, process: &Process) -> Result<(), PortTaken> {
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

    pub(super) fn connect(&self) -> io::Result<Cli> {
        let mut cli = Cli::connect(self.port.addr())?;
        if self.options.has_users() {
            let reply = cli.try_command(&["AUTH", OWN_USER, OWN_USER])?;
            if let Reply::Error(error) = reply {
                return Err(io::Error::other(error));
            }
        }
        Ok(cli)
    }

    pub(super) fn log(&self) -> String {
        self.dir.read(OUTPUT) + &self.dir.read(LOG)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct ServerOptions {
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

impl ServerOptions {
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
