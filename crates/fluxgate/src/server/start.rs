//! What is said on starting.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};

use crate::config::Config;
use crate::engine::Listener;

/// Tells where the service listens.
pub(super) fn tell(config: &Config, open: &[(Listener, Vec<TcpListener>)]) {
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    for (listener, address) in addresses(open) {
        tracing::info!(listener = listener.name(), %address, "listening");
    }
}

/// Tells what a config asks for in vain.
pub(super) fn tell_what_is_missing(config: &Config) {
    if config.listen.gateway.is_some() {
        tracing::warn!("the gateway is not there yet: `listen.gateway` is not opened");
    }
}

/// Tells a newcomer what runs, and what to try.
pub(super) fn tell_of_demo(open: &[(Listener, Vec<TcpListener>)]) {
    let mut text = format!(
        "FluxGate {}: no config was given, so this is the demo, in memory.\n\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut api = None;
    for (listener, address) in addresses(open) {
        // Writing to memory does not fail.
        let _ = match listener {
            Listener::Api => {
                api = Some(address);
                writeln!(text, "  HTTP   http://{address}  (/openapi.json, /metrics)")
            }
            Listener::Grpc => {
                writeln!(text, "  gRPC   {address}  (Envoy's rate limit service, v3)")
            }
            Listener::Resp => writeln!(
                text,
                "  Redis  {address}  (redis-cli -p {} CL.THROTTLE user-1 4 10 60)",
                address.port()
            ),
        };
    }
    if let Some(api) = api {
        let _ = write!(
            text,
            "\nTry this; five in ten seconds are allowed, the sixth is refused:\n\n  \
             for i in 1 2 3 4 5 6; do curl -s http://{api}/v1/check \
             -d '{{\"ip\":\"10.0.0.1\",\"path\":\"/log/x\"}}'; echo; done\n\n\
             Other paths show the other algorithms: /fixed/x /sliding/x /token/x /leaky/x.\n\
             For rules of your own: fluxgate config show > fluxgate.yaml, change it, and\n\
             fluxgate run --config fluxgate.yaml. Ctrl-C ends the demo.\n\n"
        );
    }
    // Whoever closed standard output does not want to know.
    let _ = io::stdout().write_all(text.as_bytes());
}

fn addresses(
    open: &[(Listener, Vec<TcpListener>)],
) -> impl Iterator<Item = (Listener, SocketAddr)> {
    open.iter().filter_map(|(listener, sockets)| {
        let address = sockets.first()?.local_addr().ok()?;
        Some((*listener, address))
    })
}
