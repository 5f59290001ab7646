//! Real frameworks behind the gateway: none serves a request as another one than was counted.

use std::fmt::Write as _;
use std::path::Path;

use fluxgate_testkit::readings::{READINGS, Reading, SentRequest};
use fluxgate_testkit::{Program, RawClient, ports, wait_until};

use crate::service::Service;
use crate::support::{fetched, project_file};

const PYTHON: [&str; 11] = [
    "aiohttp",
    "bottle",
    "cherrypy",
    "django",
    "falcon",
    "fastapi",
    "flask",
    "hypercorn",
    "litestar",
    "sanic",
    "tornado",
];
const NODE: [&str; 4] = ["express", "fastify", "hapi", "koa"];

/// A framework that serves what it reads.
struct Framework {
    name: &'static str,
    port: ports::Port,
    _program: Program,
}

impl Framework {
    fn start(name: &'static str, program: &Path, script: &str, before_port: &[&str]) -> Self {
        let port = ports::free();
        let script = project_file(&format!("crates/fluxgate/tests/it/frameworks/{script}"));
        let program = Program::start(program, |command| {
            if name == "php" {
                let address = port.addr().to_string();
                command.args(["-S", &address]).arg(script);
            } else {
                command.arg(script).args(before_port);
                command.arg(port.number().to_string());
            }
            // Keeps `__pycache__` out of the source tree.
            command.env("PYTHONDONTWRITEBYTECODE", "1");
            let express = fetched("FLUXGATE_EXPRESS", "node/node_modules/express/index.js");
            command.env("FLUXGATE_EXPRESS", express);
        });
        Self {
            name,
            port,
            _program: program,
        }
    }

    fn start_all() -> Vec<Self> {
        let python = fetched("FLUXGATE_FRAMEWORKS", "frameworks/bin/python");
        let python = PYTHON.map(|name| Self::start(name, &python, "server.py", &[name]));
        let node = NODE.map(|name| Self::start(name, Path::new("node"), "server.mjs", &[name]));
        let php = Self::start("php", Path::new("php"), "server.php", &[]);
        let all: Vec<_> = python.into_iter().chain(node).chain([php]).collect();
        for it in &all {
            wait_until(it.name, || {
                std::net::TcpStream::connect(it.port.addr()).is_ok()
            });
        }
        all
    }
}

/// Returns what a framework answers if it reads a request as the plain one.
fn marker(reading: &Reading) -> &'static str {
    match reading.api_key {
        _ if reading.rule.contains("path") => "login",
        _ if reading.rule.contains("methods") => "method=POST",
        "bearer" | "header:Authorization" => "bearer=KEY",
        "cookie:app_session" => "cookie=REAL",
        "query:api_key" => "query=KEY",
        _ => "header=KEY",
    }
}

/// Every limit is one request. The plain request uses it up, so no spelling of it may be served.
#[test]
fn no_framework_serves_a_request_that_was_not_counted() {
    let frameworks = Framework::start_all();
    let (mut routes, mut filters, mut sets) = (String::new(), String::new(), String::new());
    for Framework { name, port, .. } in &frameworks {
        for (number, Reading { api_key, rule, .. }) in READINGS.iter().enumerate() {
            let (id, address) = (format!("{name}-{number}"), port.addr());
            writeln!(
                routes,
                "    - {{ id: {id}, match: {{ host: [{id}] }}, upstreams: ['http://{address}'], filters: [{id}] }}"
            )
            .unwrap();
            writeln!(
                filters,
                "  {id}: {{ rule_set: {id}, identity: {{ api_key: '{api_key}' }} }}"
            )
            .unwrap();
            writeln!(
                sets,
                "  {id}: {{ rules: [ {{ id: r, bands: [ {{ capacity: 1, window: 1h }} ], {rule} }} ] }}"
            )
            .unwrap();
        }
    }
    let config = format!("gateway:\n  routes:\n{routes}filters:\n{filters}rule_sets:\n{sets}");
    let service = Service::start(&["gateway"], &config);
    let gateway = service.address("gateway");
    let check = |name: &str| {
        for (number, reading) in READINGS.iter().enumerate() {
            let is_served = |request: &SentRequest| {
                let SentRequest { method, target, .. } = request;
                let headers = request.headers.iter();
                let headers = headers.map(|(name, value)| format!("{name}: {value}\r\n"));
                let headers: String = headers.collect();
                let mut client = RawClient::connect(gateway);
                client.send(format!(
                    "{method} {target} HTTP/1.1\r\nHost: {name}-{number}\r\n{headers}Content-Length: 0\r\n\r\n"
                ));
                let response = client.read_answer().unwrap();
                let text = response.text();
                let mut words = text.split_whitespace();
                response.status == 200 && words.any(|word| word == marker(reading))
            };
            assert!(is_served(&reading.plain), "{name}: {reading:?}");
            assert!(!is_served(&reading.spelled), "{name}: {reading:?}");
        }
    };
    std::thread::scope(|scope| {
        for Framework { name, .. } in &frameworks {
            scope.spawn(|| check(name));
        }
    });
}
