//! HAProxy, which limits by a stick table and forwards.

use std::net::{SocketAddr, TcpStream};

use fluxgate_testkit::ports::{self, Port};
use fluxgate_testkit::{Program, wait_until};

use crate::service::TempDir;
use crate::tls::Tls;

/// A running HAProxy.
pub(crate) struct HaProxy {
    #[allow(dead_code, reason = "dropping it stops the process")]
    program: Program,
    port: Port,
}

impl HaProxy {
    /// Starts a proxy that limits each user and forwards to `upstream`. With TLS it also accepts
    /// HTTP/2.
    pub(crate) fn limiting(dir: &TempDir, upstream: SocketAddr, tls: Option<&Tls>) -> Self {
        let tls = tls.map(Tls::haproxy).unwrap_or_default();
        let port = ports::free();
        let address = port.addr();
        let config = format!(
            "global\n  nbthread 2\n  maxconn 4096\n\
             defaults\n  mode http\n  timeout connect 1s\n  timeout client 60s\n  timeout server 30s\n\
             frontend front\n  bind {address} {tls}\n\
             \x20 stick-table type string len 64 size 1m expire 60s store http_req_rate(10s)\n\
             \x20 http-request track-sc0 hdr(x-user-id)\n\
             \x20 http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 1000000 }}\n\
             \x20 default_backend back\n\
             backend back\n  http-reuse always\n  server one {upstream}\n"
        );
        let config = dir.file("haproxy.cfg", config);
        let program = Program::start("haproxy", |command| {
            command.arg("-db").arg("-f").arg(config);
        });
        wait_until("HAProxy listens", || TcpStream::connect(address).is_ok());
        Self { program, port }
    }

    /// Returns the address it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.port.addr()
    }
}
