//! The service, started as its users start it.

use std::collections::HashMap;
use std::net::SocketAddr;

use fluxgate_testkit::{Http, Program};

use crate::support::Dir;

mod actions;
mod admin;
mod api;
mod call_numbers;
mod cross_origin;
mod explain;
pub(crate) mod grpc;
mod handles;
mod history;
pub(crate) mod http_rules;
mod irregular_files;
mod lease_traces;
mod leases;
mod lifecycle;
mod live;
mod release;
mod reload;
mod reload_channel;
mod remote;
mod resp;
mod rule_changes;
mod slots;
mod store_outage;
mod stored_rules;
pub(crate) mod telemetry;
mod tls;
mod trial;

/// A running service and its directory.
pub(crate) struct Service {
    pub(crate) program: Program,
    pub(crate) dir: Dir,
    addresses: HashMap<String, SocketAddr>,
}

impl Service {
    /// Starts with this config, to which `listen:` need not be added: the API
    /// and what `listeners` names get free ports.
    pub(crate) fn start(listeners: &[&str], config: &str) -> Self {
        let dir = Dir::new();
        Self::start_in(dir, listeners, config)
    }

    /// The same, in a directory that has something in it already.
    pub(crate) fn start_in(dir: Dir, listeners: &[&str], config: &str) -> Self {
        let names = ["api"].iter().chain(listeners);
        let names: Vec<_> = names
            .map(|name| format!("{name}: \"127.0.0.1:0\""))
            .collect();
        let listen = format!("listen: {{ {} }}\n", names.join(", "));
        dir.write("fluxgate.yaml", listen + config);
        Self::run_in(
            dir,
            &["run", "--config", "fluxgate.yaml"],
            1 + listeners.len(),
        )
    }

    /// Runs the binary and waits until so many listeners are open and it is ready.
    pub(crate) fn run_in(dir: Dir, arguments: &[&str], listeners: usize) -> Self {
        let service = Self::open_in(dir, arguments, listeners);
        service.wait_until_ready();
        service
    }

    /// The same, ready or not.
    pub(crate) fn open_in(dir: Dir, arguments: &[&str], listeners: usize) -> Self {
        Self::open_by(
            dir,
            env!("CARGO_BIN_EXE_fluxgate").as_ref(),
            arguments,
            listeners,
        )
    }

    /// The same, started by another program that becomes it.
    pub(crate) fn open_by(
        dir: Dir,
        program: &std::path::Path,
        arguments: &[&str],
        listeners: usize,
    ) -> Self {
        let program = Program::start(program, |command| {
            command.args(arguments).current_dir(dir.path(""));
        });
        let mut addresses = HashMap::new();
        for index in 0..listeners {
            let (name, address) = program.wait_for_line("a line that says `listening`", |line| {
                listening(line).filter(|(name, _)| !addresses.contains_key(name))
            });
            assert!(addresses.insert(name, address).is_none(), "{index}");
        }
        Self {
            program,
            dir,
            addresses,
        }
    }

    #[track_caller]
    pub(crate) fn wait_until_ready(&self) {
        fluxgate_testkit::wait_until("the service is ready", || {
            self.http().get("/readyz").status == 200
        });
    }

    /// Waits for a line of the log with this message and gives it back.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, message: &str) -> serde_json::Value {
        self.wait_for_logs(message, 1).remove(0)
    }

    /// Waits until there are so many.
    #[track_caller]
    pub(crate) fn wait_for_logs(&self, message: &str, count: usize) -> Vec<serde_json::Value> {
        fluxgate_testkit::wait_for(&format!("{count} of {message:?} in the log"), || {
            Some(self.logs(message)).filter(|logs| logs.len() >= count)
        })
    }

    /// The lines of the log with this message.
    pub(crate) fn logs(&self, message: &str) -> Vec<serde_json::Value> {
        let lines = self.program.lines();
        let lines = lines
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok());
        let said = |line: &serde_json::Value| line["message"] == message;
        lines.filter(said).collect()
    }

    /// The lines of the log about new rules that are refused, or that cannot be read.
    pub(crate) fn refusals(&self) -> Vec<serde_json::Value> {
        let lines = self.program.lines();
        let lines = lines.iter();
        let lines = lines.filter(|line| line.contains("; the active rules stay"));
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Waits until there are so many.
    #[track_caller]
    pub(crate) fn wait_for_refusals(&self, count: usize) -> Vec<serde_json::Value> {
        fluxgate_testkit::wait_for(&format!("{count} refusals in the log"), || {
            Some(self.refusals()).filter(|refusals| refusals.len() >= count)
        })
    }

    /// Where a listener listens.
    pub(crate) fn address(&self, listener: &str) -> SocketAddr {
        self.addresses[listener]
    }

    /// A client of the API.
    pub(crate) fn http(&self) -> Http {
        Http::new(self.address("api"))
    }
}

/// What a log line says of a listener.
fn listening(line: &str) -> Option<(String, SocketAddr)> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    if line["message"] != "listening" {
        return None;
    }
    let name = line["listener"].as_str()?.to_owned();
    Some((name, line["address"].as_str()?.parse().ok()?))
}

/// Returns the limit of a set, or `None` if the set does not exist.
pub(crate) fn limit(http: &mut Http, set: &str) -> Option<u64> {
    let body = format!(r#"{{"rule_set":"{set}","user":"observer","peek":true}}"#);
    let answer = http.post("/v1/check", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    answer["limit"].as_u64()
}
