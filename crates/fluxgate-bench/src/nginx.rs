//! nginx, which answers a constant.

use std::net::{SocketAddr, TcpStream};

use fluxgate_testkit::ports::{self, Port};
use fluxgate_testkit::{Program, wait_until};

use crate::folder::Folder;

/// A running nginx.
pub(crate) struct Nginx {
    program: Program,
    port: Port,
}

impl Nginx {
    /// Answers every request with this, of this type. `listen` is what else
    /// its `listen` says.
    pub(crate) fn start(folder: &Folder, listen: &str, content_type: &str, answer: &str) -> Self {
        let port = ports::free();
        let (address, place) = (port.addr(), folder.path(""));
        let config = format!(
            "daemon off; worker_processes 2; error_log stderr crit; pid {place}/nginx.pid;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; keepalive_requests 1000000000;\n\
             client_body_temp_path {place}/b; proxy_temp_path {place}/p;\n\
             fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;\n\
             server {{ listen {address} {listen} reuseport;\n\
             location / {{ default_type {content_type}; return 200 '{answer}'; }} }} }}\n",
            place = place.display()
        );
        let config = folder.file("nginx.conf", config);
        let program = Program::start("nginx", |command| {
            command.arg("-c").arg(config).arg("-e").arg("stderr");
        });
        wait_until("nginx listens", || TcpStream::connect(address).is_ok());
        Self { program, port }
    }

    /// Where it listens.
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
