//! WebSocket through the gateway, with an independent client and server.

use std::net::SocketAddr;

use fluxgate_testkit::{Certificates, Program};

use super::{config, gateway, output_of, script};
use crate::service::Service;
use crate::support::{project_file, python};

/// A WebSocket server that echoes messages.
pub(super) struct Echo {
    pub(super) address: SocketAddr,
    _program: Program,
}

impl Echo {
    pub(super) fn start() -> Self {
        let program = Program::start(python(), |command| {
            let script = "crates/fluxgate/tests/it/gateway_faults/websocket.py";
            command.arg(project_file(script)).arg("serve");
        });
        let address = program.wait_for_line("the address", |line| {
            line.strip_prefix("listening on ")?.parse().ok()
        });
        Self {
            address,
            _program: program,
        }
    }
}

const CHECKS: [&str; 8] = [
    "text",
    "binary",
    "big",
    "many",
    "ping",
    "close_by_client",
    "close_by_server",
    "subprotocol",
];

#[test]
fn messages_are_echoed() {
    let echo = Echo::start();
    let service = gateway(&[echo.address], "");
    let url = format!("ws://{}/echo", service.address("gateway"));
    output_of(script("websocket.py").args(["check", &CHECKS.join(","), &url]));
}

#[test]
fn messages_over_tls_are_echoed() {
    let echo = Echo::start();
    let certificates = Certificates::generate();
    let tls = format!(
        "  tls: {{ cert: {}, key: {} }}\n",
        certificates.server_cert().display(),
        certificates.server_key().display()
    );
    let service = Service::start(&["gateway"], &config(&[echo.address], "", &tls));
    let url = format!("wss://localhost:{}/echo", service.address("gateway").port());
    let mut command = script("websocket.py");
    let command = command.args(["check", &CHECKS.join(","), &url]);
    output_of(command.arg(certificates.ca()));
}

/// The handshake is a request; messages are not.
#[test]
fn handshakes_are_limited_and_messages_are_not() {
    let echo = Echo::start();
    let config = config(&[echo.address], "main", "");
    let more = "filters: { main: { rule_set: api } }
rule_sets:
  api:
    rules:
      - { id: r, scope: global, bands: [ { capacity: 2, window: 1h } ] }
";
    let service = Service::start(&["gateway"], &format!("{config}{more}"));
    let url = format!("ws://{}/echo", service.address("gateway"));
    output_of(script("websocket.py").args(["check", "many,text,denied", &url]));
}
