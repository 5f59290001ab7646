//! A proxy with the files of its example, between a client and an app.

use std::net::SocketAddr;
use std::process::Command;

use fluxgate_testkit::{Answer, Http, Program, RawUpstream, WireRequest, ports, wait_until};

use super::{example, put};
use crate::support::{Dir, fetched};

/// Which proxy.
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
    /// Its directory in `examples`.
    fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Caddy => "caddy",
            Self::Traefik => "traefik",
        }
    }

    /// Its program; `scripts/test` unpacks it.
    fn program(self) -> std::path::PathBuf {
        match self {
            Self::Nginx => fetched("FLUXGATE_NGINX", "nginx/usr/sbin/nginx"),
            Self::Caddy => fetched("FLUXGATE_CADDY", "caddy/usr/bin/caddy"),
            Self::Traefik => fetched("FLUXGATE_TRAEFIK", "traefik/traefik"),
        }
    }

    /// Started as the guide says.
    fn configure(self, command: &mut Command, dir: &Dir) {
        command.current_dir(dir.path(""));
        match self {
            // Workers would outlive a master that is killed.
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
    /// Starts it with its files, after `change` has changed them, so that it asks
    /// at this address.
    pub(super) fn start(
        proxy: Proxy,
        asked: SocketAddr,
        change: impl Fn(&str, String) -> String,
    ) -> Self {
        let app = RawUpstream::answering(*b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
        let address = ports::free();
        let dir = Dir::new();
        let ports = [
            (":8000", address.number()),
            (":8081", asked.port()),
            (":9000", app.address().port()),
        ];
        let mut put_in = [false; 3];
        for entry in example(proxy.name()).read_dir().unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let mut text = std::fs::read_to_string(entry.path()).unwrap();
            for ((old, new), put_in) in ports.iter().zip(&mut put_in) {
                *put_in |= text.contains(old);
                text = text.replace(old, &format!(":{new}"));
            }
            dir.write(&name, change(&name, text));
        }
        assert_eq!(put_in, [true; 3], "all ports are in the files");
        let program = Program::start(proxy.program(), |command| proxy.configure(command, &dir));
        let front = Self {
            app,
            address,
            program,
            _dir: dir,
        };
        wait_until("the proxy answers", || {
            let lines = || front.program.lines();
            assert!(front.program.ended().is_none(), "it ended: {:#?}", lines());
            let answer = front.client().try_request("GET", "/health", &[], "");
            answer.is_ok_and(|answer| answer.status == 200)
        });
        front
    }

    pub(super) fn client(&self) -> Http {
        Http::new(self.address.addr())
    }

    /// The answer to a request of this user.
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
            panic!("{error}; the proxy ended: {ended:?}; it said: {lines:#?}")
        })
    }

    /// What the app got of this target.
    pub(super) fn seen(&self, target: &str) -> Vec<WireRequest> {
        let mut seen = self.app.requests();
        seen.retain(|request| request.target == target);
        seen
    }
}

/// The files as they are, but for what tests cannot do with: a machine that is
/// busy is slow, and other tests have a Caddy, too.
pub(super) fn for_tests(name: &str, text: String) -> String {
    match name {
        "fluxgate.conf" => put(&put(&text, " 100ms;", " 5s;"), " 1s;", " 5s;"),
        "Caddyfile" => {
            let text = put(
                &put(&text, "dial_timeout 100ms", "dial_timeout 5s"),
                "timeout 1s",
                "timeout 5s",
            );
            format!("{{\n\tadmin off\n}}\n{text}")
        }
        _ => text,
    }
}
