//! Imported limits admit as many requests as nginx does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::{net::SocketAddr, thread};

use fluxgate_testkit::{Http, Program, RawUpstream, ports, wait_for, wait_until};

use super::rules;
use crate::service::Service;
use crate::support::{Dir, fetched};

const SITE: &str = "
map $http_x_api_key $client {
    default $http_x_api_key;
    ''      $binary_remote_addr;
}
limit_conn_zone $client zone=clients:1m;
limit_conn_zone $server_name zone=all:1m;
limit_conn_status 429;
server {
    listen 127.0.0.1:PORT;
    server_name shop.example.com;
    limit_conn all 6;
    location / { proxy_pass http://127.0.0.1:UPSTREAM; }
    location /reports/ {
        limit_conn clients 2;
        proxy_pass http://127.0.0.1:UPSTREAM;
    }
}
";

/// Requests that are in progress together: their paths and keys.
const REQUESTS: [(&str, &str); 14] = [
    ("/reports/a", "ann"),
    ("/reports/b", "ann"),
    ("/reports/c", "ann"),
    ("/reports/a", "bob"),
    ("/reports/a", ""),
    ("/reports/a", ""),
    ("/reports/a", ""),
    ("/a", "ann"),
    ("/b", "ann"),
    ("/c", ""),
    ("/d", ""),
    ("/e", "cid"),
    ("/f", "cid"),
    ("/g", "cid"),
];

/// An app that holds its answers back until the test releases them.
struct SlowApp {
    upstream: RawUpstream,
    answers: Arc<AtomicBool>,
}

impl SlowApp {
    fn start() -> Self {
        let answers = Arc::new(AtomicBool::new(false));
        let may_answer = Arc::clone(&answers);
        let upstream = RawUpstream::start(move |connection| {
            if connection.read_request().is_some() {
                wait_until("the app may answer", || may_answer.load(Ordering::Relaxed));
                connection
                    .send(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            }
        });
        Self { upstream, answers }
    }
}

/// Sends the requests one after the other, while earlier ones are in progress, then lets the
/// app answer. Returns the status of each.
fn statuses(address: SocketAddr, app: &SlowApp) -> Vec<u16> {
    app.answers.store(false, Ordering::Relaxed);
    let found = Arc::new(Mutex::new([None; REQUESTS.len()]));
    let mut clients = Vec::new();
    for (index, (path, key)) in REQUESTS.into_iter().enumerate() {
        let before = app.upstream.requests().len();
        let answers = Arc::clone(&found);
        clients.push(thread::spawn(move || {
            let headers = [("X-Api-Key", key)];
            let headers = if key.is_empty() { &[][..] } else { &headers };
            let answer = Http::new(address).request("GET", path, headers, "");
            answers.lock().unwrap()[index] = Some(answer.status);
        }));
        wait_until("a request is admitted or denied", || {
            app.upstream.requests().len() > before || found.lock().unwrap()[index].is_some()
        });
    }
    app.answers.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    let found = *found.lock().unwrap();
    found.map(Option::unwrap).to_vec()
}

fn start_nginx(app: &SlowApp) -> (Program, ports::Port, Dir) {
    let port = ports::free();
    let dir = Dir::new();
    let site = SITE.replace("PORT", &port.number().to_string());
    let site = site.replace("UPSTREAM", &app.upstream.address().port().to_string());
    let directory = dir.path("").display().to_string();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = paths.map(|name| format!("{name}_temp_path {directory}{name};\n"));
    dir.write(
        "nginx.conf",
        format!(
            "pid {directory}pid;\nevents {{}}\nhttp {{\naccess_log off;\n{}{site}\n}}\n",
            paths.concat()
        ),
    );
    let nginx = fetched("FLUXGATE_NGINX", "nginx/usr/sbin/nginx");
    let program = Program::start(nginx, |command| {
        command
            .args([
                "-e",
                "stderr",
                "-g",
                "master_process off; daemon off;",
                "-p",
            ])
            .arg(dir.path(""))
            .arg("-c")
            .arg(dir.path("nginx.conf"));
    });
    wait_for("nginx accepts connections", || {
        assert!(program.ended().is_none(), "{:#?}", program.lines());
        std::net::TcpStream::connect(port.addr()).ok()
    });
    (program, port, dir)
}

#[test]
fn limit_conn_admits_as_many_requests_in_progress() {
    let app = SlowApp::start();
    let (_nginx, port, _dir) = start_nginx(&app);
    let theirs = statuses(port.addr(), &app);
    let rules = rules("nginx", &format!("http {{ {SITE} }}"));
    let upstream = app.upstream.address();
    let config = format!(
        "filters: {{ shop: {{ rule_set: shop.example.com }} }}\ngateway:\n  routes:\n    \
         - {{ id: shop, upstreams: [\"http://{upstream}\"], filters: [shop] }}\n{rules}"
    );
    let service = Service::start(&["gateway"], &config);
    let gateway = service.address("gateway");
    assert_eq!(statuses(gateway, &app), theirs, "{rules}");
    let admitted = theirs.iter().filter(|status| **status == 200).count();
    assert_eq!(admitted, 5 + 6, "{theirs:?}");
    for address in [gateway, port.addr()] {
        wait_until("slots are free when requests have ended", || {
            statuses(address, &app) == theirs
        });
    }
}
