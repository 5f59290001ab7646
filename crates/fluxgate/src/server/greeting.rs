//! The output at the start: addresses, warnings, and the text of the demo.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};

use fluxgate_http::server::Listener;

use crate::config::{Config, config_warnings};

/// Logs the addresses of the listeners and the warnings of the config.
pub(super) fn log_addresses(config: &Config, open: &[(Listener, Vec<TcpListener>)]) {
    for warning in config_warnings(config) {
        tracing::warn!("{warning}");
    }
    for (listener, address) in addresses(open) {
        let tls = config.has_tls(listener).then_some(true);
        tracing::info!(listener = listener.name(), %address, tls, "listening");
    }
}

/// Prints the addresses of the demo, and commands to try.
pub(super) fn print_demo(open: &[(Listener, Vec<TcpListener>)]) {
    let mut text = format!(
        "FluxGate {}: running the demo in memory, because no config was given.\n\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut gateway = None;
    // Writing to a string cannot fail.
    for (listener, address) in addresses(open) {
        let _ = match listener {
            Listener::Gateway => {
                gateway = Some(address);
                writeln!(
                    text,
                    "  Gateway  http://{address}  (in front of an echo upstream)"
                )
            }
            Listener::Api => {
                writeln!(
                    text,
                    "  Console  http://{address}/console/  (open it in a browser)\n  \
                     API      http://{address}  (/v1/check, /openapi.json, /metrics)"
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
        "\nTo use your own rules: run fluxgate config show > fluxgate.yaml, edit the file, and\n\
         run fluxgate run --config fluxgate.yaml. Ctrl-C ends the demo.\n\n",
    );
    // The service runs even if standard output is closed.
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Appends a curl loop for each algorithm.
fn write_examples(gateway: SocketAddr, text: &mut String) {
    const EXAMPLES: [(&str, &str, &str, &str); 5] = [
        (
            "fixed",
            "5 in each 10 s of the clock, so up to 10 at the boundary of two windows",
            "sleep $((16 - $(date +%s) % 10)); for i in $(seq 12)",
            "; sleep .6; done",
        ),
        (
            "log",
            "never more than 5 in any 10 s",
            "for i in $(seq 12)",
            "; sleep 1; done",
        ),
        (
            "sliding",
            "nearly the same, with two counters instead of a log",
            "for i in $(seq 12)",
            "; sleep 1; done",
        ),
        (
            "token",
            "5 at once, then 1 per second",
            "for i in $(seq 12)",
            "; sleep .5; done",
        ),
        (
            "leaky",
            "of 7 at once, 5 are queued and pass 1 per second, 2 are denied",
            "for i in $(seq 7)",
            " & done; wait",
        ),
    ];
    text.push_str("\nA curl loop for each algorithm: 200 is allowed, 429 is denied.\n");
    for (path, summary, start, end) in EXAMPLES {
        let _ = write!(
            text,
            "\n  # {path}: {summary}\n  {start}; do curl -so /dev/null \
             -w '%{{http_code}} after %{{time_total}} s\\n' http://{gateway}/{path}{end}\n"
        );
    }
}

/// Returns the address of a listener, if it is open.
pub(super) fn address_of(
    listener: Listener,
    open: &[(Listener, Vec<TcpListener>)],
) -> Option<SocketAddr> {
    let mut all = addresses(open);
    all.find_map(|(known, address)| (known == listener).then_some(address))
}

fn addresses(
    open: &[(Listener, Vec<TcpListener>)],
) -> impl Iterator<Item = (Listener, SocketAddr)> {
    open.iter().filter_map(|(listener, sockets)| {
        let address = sockets.first()?.local_addr().ok()?;
        Some((*listener, address))
    })
}
