//! What the service prints and logs at the start.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};

use crate::config::Config;
use crate::http::Listener;

/// Logs the addresses of the listeners and the warnings of the config.
pub(super) fn log_addresses(config: &Config, open: &[(Listener, Vec<TcpListener>)]) {
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    for (listener, address) in addresses(open) {
        tracing::info!(listener = listener.name(), %address, "listening");
    }
}

/// Prints what the demo runs, and what to try.
pub(super) fn print_demo(open: &[(Listener, Vec<TcpListener>)]) {
    let mut text = format!(
        "FluxGate {}: no config was given, so this is the demo, in memory.\n\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut gateway = None;
    // Writing to memory does not fail.
    for (listener, address) in addresses(open) {
        let _ = match listener {
            Listener::Gateway => {
                gateway = Some(address);
                writeln!(
                    text,
                    "  Gateway  http://{address}  (before an upstream that echoes)"
                )
            }
            Listener::Api => {
                writeln!(
                    text,
                    "  API      http://{address}  (/v1/check, /openapi.json, /metrics)"
                )
            }
            Listener::Grpc => {
                writeln!(
                    text,
                    "  gRPC     {address}  (Envoy's rate limit service, v3)"
                )
            }
            Listener::Resp => writeln!(
                text,
                "  Redis    {address}  (redis-cli -p {} CL.THROTTLE user-1 4 10 60)",
                address.port()
            ),
        };
    }
    if let Some(gateway) = gateway {
        write_examples(gateway, &mut text);
    }
    text.push_str(
        "\nFor rules of your own: fluxgate config show > fluxgate.yaml, change it, and\n\
         fluxgate run --config fluxgate.yaml. Ctrl-C ends the demo.\n\n",
    );
    // Nothing can be done if standard output is closed.
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Appends a curl loop for each algorithm.
fn write_examples(gateway: SocketAddr, text: &mut String) {
    const TRIES: [(&str, &str, &str, &str); 5] = [
        (
            "fixed",
            "5 in each 10 s of the clock, so 10 pass around the edge of two of them",
            "sleep $((16 - $(date +%s) % 10)); for i in $(seq 12)",
            "; sleep .6; done",
        ),
        (
            "log",
            "5 in any 10 s, and never more",
            "for i in $(seq 12)",
            "; sleep 1; done",
        ),
        (
            "sliding",
            "nearly the same, by two numbers instead of a list",
            "for i in $(seq 12)",
            "; sleep 1; done",
        ),
        (
            "token",
            "5 at once, and then 1 a second",
            "for i in $(seq 12)",
            "; sleep .5; done",
        ),
        (
            "leaky",
            "of 7 at once 5 are queued and pass 1 a second, 2 are refused",
            "for i in $(seq 7)",
            " & done; wait",
        ),
    ];
    text.push_str("\nA curl loop for each algorithm: 200 has passed, 429 was refused.\n");
    for (path, what, before, after) in TRIES {
        let _ = write!(
            text,
            "\n  # {path}: {what}\n  {before}; do curl -so /dev/null \
             -w '%{{http_code}} after %{{time_total}} s\\n' http://{gateway}/{path}{after}\n"
        );
    }
}

fn addresses(
    open: &[(Listener, Vec<TcpListener>)],
) -> impl Iterator<Item = (Listener, SocketAddr)> {
    open.iter().filter_map(|(listener, sockets)| {
        let address = sockets.first()?.local_addr().ok()?;
        Some((*listener, address))
    })
}
