//! A proxy with the files of its example, in front of an app.

use std::net::SocketAddr;
use std::process::Command;

use fluxgate_testkit::{Answer, Http, Program, RawUpstream, WireRequest, ports, wait_until};

use super::{example, replace};
use crate::support::{Dir, fetched};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proxy {
    Nginx,
    Caddy,
    Traefik,
}

/// A running proxy, and an app behind it.
pub(super) struct Front {
    app: RawUpstream,
    address: ports::Port,
    program: Program,
    _dir: Dir,
}

impl Proxy {
    /// Returns its directory in `examples`.
    fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Caddy => "caddy",
            Self::Traefik => "traefik",
        }
    }

    /// Returns its program, which `scripts/test` unpacks.
    fn program(self) -> std::path::PathBuf {
        match self {
            Self::Nginx => fetched("FLUXGATE_NGINX", "nginx/usr/sbin/nginx"),
            Self::Caddy => fetched("FLUXGATE_CADDY", "caddy/usr/bin/caddy"),
            Self::Traefik => fetched("FLUXGATE_TRAEFIK", "traefik/traefik"),
        }
    }

    /// Sets the arguments as the guide does.
    fn configure(self, command: &mut Command, dir: &Dir) {
        command.current_dir(dir.path(""));
        match self {
            // Workers would survive a master that is killed.
            Self::Nginx => command
                .args(["-e", "stderr", "-g", "master_process off;", "-p"])
                .arg(dir.path(""))
                .arg("-c")
                .arg(dir.path("nginx.conf")),
            Self::Caddy => command
                .args(["run", "--config", "Caddyfile"])
                .env("XDG_CONFIG_HOME", dir.path("config"))
                .env("XDG_DATA_HOME", dir.path("data")),
            Self::Traefik => command.arg("--configFile=traefik.yaml"),
        };
    }
}

impl Front {
    /// Starts a proxy with its files as changed by `change`, for a FluxGate at this address.
    pub(super) fn start(
        proxy: Proxy,
        fluxgate: SocketAddr,
        change: impl Fn(&str, String) -> String,
    ) -> Self {
        let app = RawUpstream::answering(*b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
        let address = ports::free();
        let dir = Dir::new();
        let ports = [
            (":8000", address.number()),
            (":8081", fluxgate.port()),
            (":9000", app.address().port()),
        ];
        let mut replaced = [false; 3];
        for entry in example(proxy.name()).read_dir().unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let mut text = std::fs::read_to_string(entry.path()).unwrap();
            for ((old, new), replaced) in ports.iter().zip(&mut replaced) {
                *replaced |= text.contains(old);
                text = text.replace(old, &format!(":{new}"));
            }
            dir.write(&name, change(&name, text));
        }
        assert_eq!(replaced, [true; 3], "a port is not in the files");
        let program = Program::start(proxy.program(), |command| proxy.configure(command, &dir));
        let front = Self {
            app,
            address,
            program,
            _dir: dir,
        };
        wait_until("the proxy", || {
            let lines = || front.program.lines();
            assert!(
                front.program.ended().is_none(),
                "the proxy ended: {:#?}",
                lines()
            );
            let answer = front.client().try_request("GET", "/health", &[], "");
            answer.is_ok_and(|answer| answer.status == 200)
        });
        front
    }

    pub(super) fn client(&self) -> Http {
        Http::new(self.address.addr())
    }

    /// Sends a request of this user.
    pub(super) fn post(&self, user: &str) -> Answer {
        let headers = [
            ("X-User-Id", user),
            ("Cookie", "secret"),
            ("Authorization", "secret"),
        ];
        let answer = self
            .client()
            .try_request("POST", "/api/x?y=1", &headers, "body");
        answer.unwrap_or_else(|error| {
            let (ended, lines) = (self.program.ended(), self.program.lines());
            panic!("{error}; the proxy ended: {ended:?}; its output: {lines:#?}")
        })
    }

    /// Returns the requests for this target that the app received.
    pub(super) fn seen(&self, target: &str) -> Vec<WireRequest> {
        let mut seen = self.app.requests();
        seen.retain(|request| request.target == target);
        seen
    }
}

/// Changes the files only where tests need it: busy machines need longer timeouts, and several
/// instances of Caddy run at once.
pub(super) fn for_tests(name: &str, text: String) -> String {
    match name {
        "fluxgate.conf" => replace(&replace(&text, " 100ms;", " 5s;"), " 1s;", " 5s;"),
        "Caddyfile" => {
            let text = replace(
                &replace(&text, "dial_timeout 100ms", "dial_timeout 5s"),
                "timeout 1s",
                "timeout 5s",
            );
            format!("{{\n\tadmin off\n}}\n{text}")
        }
        _ => text,
    }
}
