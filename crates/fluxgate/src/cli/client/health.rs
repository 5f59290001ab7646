//! `fluxgate health`: whether a running service is ready.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use fluxgate_core::rules::values::parse_duration;
use fluxgate_core::text::duration_text;
use fluxgate_http::ClientCertificates;
use http::Method;

use super::run;
use super::server::{Server, TlsArguments};
use crate::cli::config_options::{ConfigArguments, ConfigOptions};
use crate::cli::{Exit, Failure, print};
use crate::config::{Endpoint, Secret, Tls};

/// The arguments of `fluxgate health`.
#[derive(Debug, clap::Args)]
pub(crate) struct HealthArguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Ask the service at this address instead of the one that the config describes
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "file", "set"])]
    server: Option<String>,
    #[command(flatten)]
    tls: TlsArguments,
    /// Ask only whether the service runs, not whether it can answer checks
    #[arg(long)]
    live: bool,
    /// How long to wait for the answer, such as 500ms
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = timeout)]
    timeout: Duration,
}

fn timeout(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "not a duration such as 500ms or 2s".to_owned())
}

/// Asks a service whether it is ready, and fails if it is not.
pub(crate) fn health(arguments: &HealthArguments) -> Result<(), Failure> {
    let server = match &arguments.server {
        Some(url) => Server::new(url, arguments.tls.read()?.certificates())?,
        None => local_server(&arguments.config.options(), &arguments.tls)?,
    };
    let (path, state) = if arguments.live {
        ("/livez", "alive")
    } else {
        ("/readyz", "ready")
    };
    let unhealthy =
        |why: String| Failure::new(Exit::Unavailable, format!("{}: {why}", server.name()));
    let answer = run(async {
        let exchange = server.exchange(Method::GET, path, &[], None);
        let answer = tokio::time::timeout(arguments.timeout, exchange).await;
        answer.unwrap_or_else(|_| {
            let timeout = duration_text(arguments.timeout);
            Err(unhealthy(format!("no answer within {timeout}")))
        })
    })?;
    if !answer.status.is_success() {
        let (status, detail) = (answer.status.as_u16(), answer.detail());
        return Err(unhealthy(format!("not {state}: {status}: {detail}")));
    }
    print(&format!("{} is {state}\n", server.name()))
}

/// Returns the service on this machine that runs with a config.
fn local_server(options: &ConfigOptions, tls: &TlsArguments) -> Result<Server, Failure> {
    const FIELD: &str = "listen.api";
    let raw = options.load()?;
    let listen = raw.listen()?;
    let failure = |field: String, message: &str| {
        Failure::of_field(Exit::Config, field, message).located_in(&raw)
    };
    let Some(endpoint) = listen.api else {
        let message = "`fluxgate health` asks the API, but `listen.api` is not set; \
                       use `--server URL` to ask elsewhere";
        return Err(failure("listen".into(), message));
    };
    if endpoint.address.port() == 0 {
        let message = "`listen.api` has port 0, so its port is known only to the service; \
                       use `--server URL`";
        return Err(failure(FIELD.into(), message));
    }
    let files = tls.read()?;
    let given = files.certificates();
    let Some(Tls {
        cert, client_ca, ..
    }) = &endpoint.tls
    else {
        return Server::new(&url("http", &endpoint), given);
    };
    if client_ca.is_some() && !tls.has_client_certificate() {
        let message = "the API needs a client certificate; name one with `--cert` and `--key`";
        return Err(failure(format!("{FIELD}.tls.client_ca"), message));
    }
    // The certificate is for the names that clients use, not for this address. So exactly this
    // certificate is accepted: the config says which it is.
    let cert = Secret::read(&format!("{FIELD}.tls.cert"), cert)
        .map_err(|error| Failure::from(error).located_in(&raw))?;
    let certificates = ClientCertificates {
        server: given.ca.is_none().then_some(cert.as_bytes()),
        ..given
    };
    Server::new(&url("https", &endpoint), certificates)
}

fn url(scheme: &str, endpoint: &Endpoint) -> String {
    format!("{scheme}://{}", reachable(endpoint.address))
}

/// Returns an address that reaches a listener from its own machine. A listener on every address
/// of IPv6 includes those of IPv4, and is one of IPv4 only if the machine has no IPv6.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) | IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            Ipv4Addr::LOCALHOST.into()
        }
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_address_is_asked_on_loopback() {
        for (address, expected) in [
            ("0.0.0.0:81", "127.0.0.1:81"),
            ("[::]:81", "127.0.0.1:81"),
            ("[::1]:81", "[::1]:81"),
            ("192.0.2.1:81", "192.0.2.1:81"),
        ] {
            let address = reachable(address.parse().unwrap());
            assert_eq!(address.to_string(), expected);
        }
    }
}
