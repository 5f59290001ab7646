//! nginx, which answers a constant, or limits and forwards.

use std::net::{SocketAddr, TcpStream};

use fluxgate_testkit::ports::{self, Port};
use fluxgate_testkit::{Program, wait_until};

use crate::service::TempDir;
use crate::tls::Tls;

/// A running nginx.
pub(crate) struct Nginx {
    program: Program,
    port: Port,
}

impl Nginx {
    /// Answers every request with this, of this type. `listen` is what else
    /// its `listen` says.
    pub(crate) fn start(dir: &TempDir, listen: &str, content_type: &str, answer: &str) -> Self {
        let location = format!("default_type {content_type}; return 200 '{answer}';");
        Self::serve(dir, "constant", "", listen, &location)
    }

    /// Starts a proxy that limits each user and forwards to `upstream`. With TLS it also accepts
    /// HTTP/2.
    pub(crate) fn limiting(dir: &TempDir, upstream: SocketAddr, tls: Option<&Tls>) -> Self {
        let certificate = tls.map(Tls::nginx).unwrap_or_default();
        let listen = if tls.is_some() { "ssl http2" } else { "" };
        // As many idle connections as there are requests at a time, so that none is closed.
        let http = format!(
            "{certificate}\
             limit_req_zone $http_x_user_id zone=users:10m rate=100000r/s;\n\
             upstream back {{ server {upstream}; keepalive 512; keepalive_requests 1000000000; }}\n"
        );
        let location = "limit_req zone=users burst=100000 nodelay; proxy_pass http://back; \
                        proxy_http_version 1.1; proxy_set_header Connection \"\";";
        Self::serve(dir, "limiting", &http, listen, location)
    }

    fn serve(dir: &TempDir, name: &str, http: &str, listen: &str, location: &str) -> Self {
        let port = ports::free();
        let (address, place) = (port.addr(), dir.path(name));
        let place = place.display();
        let config = format!(
            "daemon off; worker_processes 2; error_log stderr crit; pid {place}.pid;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; keepalive_requests 1000000000;\n\
             client_body_temp_path {place}-b; proxy_temp_path {place}-p;\n\
             fastcgi_temp_path {place}-f; uwsgi_temp_path {place}-u; scgi_temp_path {place}-s;\n\
             {http}\
             server {{ listen {address} {listen} reuseport;\n\
             location / {{ {location} }} }} }}\n",
        );
        let config = dir.file(&format!("{name}.conf"), config);
        let program = Program::start("nginx", |command| {
            command.arg("-c").arg(config).arg("-e").arg("stderr");
        });
        wait_until("nginx listens", || TcpStream::connect(address).is_ok());
        Self { program, port }
    }

    /// Returns the address it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.port.addr()
    }
}

impl Drop for Nginx {
    /// Asked to end, it ends its workers too; killed, it would leave them.
    fn drop(&mut self) {
        if self.program.ended().is_none() {
            self.program.signal("TERM");
            self.program.wait();
        }
    }
}
