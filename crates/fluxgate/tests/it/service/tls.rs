//! TLS on every listener, with and without client certificates.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use fluxgate_testkit::{Certificates, WAIT_TIMEOUT, wait_until};

use super::Service;
use crate::docs;
use crate::support::{Dir, TWO_A_SECOND, python};

const LISTENERS: [&str; 4] = ["gateway", "api", "grpc", "resp"];
const CHECK: &str = r#"{"user":"u"}"#;

/// Starts all listeners with TLS.
fn start(certificates: &Certificates, more: &str) -> Service {
    let dir = Dir::new();
    copy(certificates, &dir);
    fs::copy(certificates.ca(), dir.path("ca.pem")).unwrap();
    let tls = format!("tls: {{ cert: tls.crt, key: tls.key{more} }}");
    let listeners = LISTENERS.map(|it| format!("  {it}: {{ address: '127.0.0.1:0', {tls} }}\n"));
    let gateway = "gateway: { routes: [ { id: r, upstreams: [echo] } ] }\n";
    dir.write(
        "fluxgate.yaml",
        format!("listen:\n{}{gateway}{TWO_A_SECOND}", listeners.concat()),
    );
    Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], LISTENERS.len())
}

fn copy(certificates: &Certificates, dir: &Dir) {
    fs::copy(certificates.server_cert(), dir.path("tls.crt")).unwrap();
    fs::copy(certificates.server_key(), dir.path("tls.key")).unwrap();
}

/// The certificate and the key of a client.
type Client<'a> = Option<&'a Certificates>;

fn curl(service: &Service, ca: &Path, client: Client<'_>, options: &[&str], path: &str) -> Output {
    let listener = if path.starts_with("/v1/") || path == "/metrics" {
        "api"
    } else {
        "gateway"
    };
    let port = service.address(listener).port();
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "--cacert"]).arg(ca).args(options);
    if let Some(client) = client {
        curl.arg("--cert").arg(client.client_cert());
        curl.arg("--key").arg(client.client_key());
    }
    curl.arg(format!("https://localhost:{port}{path}"))
        .output()
        .unwrap()
}

fn redis_cli(service: &Service, ca: &Path, client: Client<'_>, command: &[&str]) -> String {
    let port = service.address("resp").port().to_string();
    let mut cli = Command::new("redis-cli");
    cli.args(["-h", "localhost", "-p", &port, "--tls", "--cacert"])
        .arg(ca);
    if let Some(client) = client {
        cli.arg("--cert").arg(client.client_cert());
        cli.arg("--key").arg(client.client_key());
    }
    text(&cli.args(command).output().unwrap())
}

/// Asks for the health over gRPC, and returns the bytes of the answer or the error.
fn grpc_health(service: &Service, ca: &Path, client: Client<'_>) -> String {
    const SCRIPT: &str = "import grpc, sys
address, *files = sys.argv[1:]
ca, key, cert = [open(file, 'rb').read() if file else None for file in files]
channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, cert))
try:
    print(channel.unary_unary('/grpc.health.v1.Health/Check')(b'', timeout=20))
except grpc.RpcError as error:
    print(error.code())";
    let address = format!("localhost:{}", service.address("grpc").port());
    let mut command = Command::new(python());
    command.args(["-c", SCRIPT, &address]).arg(ca);
    match client {
        Some(client) => command.arg(client.client_key()).arg(client.client_cert()),
        None => command.args(["", ""]),
    };
    text(&command.output().unwrap())
}

fn text(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&text).trim().to_owned()
}

fn is_served(service: &Service, ca: &Path, client: Client<'_>) -> [bool; 4] {
    let options = ["-d", CHECK, "-H", "Content-Type: application/json"];
    let api = text(&curl(service, ca, client, &options, "/v1/check"));
    let gateway = text(&curl(service, ca, client, &[], "/x"));
    [
        api.contains("\"allowed\":"),
        gateway.contains(r#"["x-forwarded-proto","https"]"#),
        grpc_health(service, ca, client) == r"b'\x08\x01'",
        redis_cli(service, ca, client, &["PING"]) == "PONG",
    ]
}

#[test]
fn every_listener_speaks_tls_with_real_clients() {
    let certificates = Certificates::generate();
    let service = start(&certificates, "");
    let ca = certificates.ca();
    assert_eq!(is_served(&service, &ca, None), [true; 4]);
    let line = &service.logs("listening")[0];
    assert_eq!(line["tls"], true, "{line}");
    // Both versions of HTTP, on the fast path of the API and beside it.
    for (version, status_line) in [("--http1.1", "HTTP/1.1 200"), ("--http2", "HTTP/2 200")] {
        for path in ["/v1/check", "/v1/check/batch"] {
            let body = match path {
                "/v1/check" => CHECK.to_owned(),
                _ => format!("{{\"checks\":[{CHECK}]}}"),
            };
            let options = [version, "-d", &body, "-H", "Content-Type: application/json"];
            let answer = text(&curl(&service, &ca, None, &options, path));
            assert!(answer.starts_with(status_line), "{path}: {answer}");
        }
    }
    // A pipeline that is longer than a record.
    let port = service.address("resp").port();
    let script = "for i in $(seq 2000); do echo CL.THROTTLE k 9999 1 1; done \
                  | redis-cli -p \"$0\" --tls --cacert \"$1\" | grep -c '^10000$'";
    let output = Command::new("bash")
        .args(["-c", script, &port.to_string()])
        .arg(&ca)
        .output()
        .unwrap();
    assert_eq!(text(&output), "2000");
    // The command line.
    let (server, ca) = (url(&service), ca.to_str().unwrap());
    let check = ["check", "--server", &server, "--request", CHECK, "--ca", ca];
    let run = service.dir.run(&check);
    assert!(run.stdout.contains("\"allowed\":"), "{run:?}");
    let run = service.dir.run(&check[..5]);
    assert_eq!(run.code, Some(69), "the authority is unknown: {run:?}");
    let run = service.dir.run(&[&check[..6], &["tls.key"]].concat());
    assert!(run.stderr.contains("no certificates"), "{run:?}");
}

fn url(service: &Service) -> String {
    format!("https://localhost:{}", service.address("api").port())
}

#[test]
fn clients_need_a_certificate_of_the_configured_authority() {
    let (certificates, others) = (Certificates::generate(), Certificates::generate());
    let service = start(&certificates, ", client_ca: ca.pem");
    let ca = certificates.ca();
    assert_eq!(is_served(&service, &ca, Some(&certificates)), [true; 4]);
    assert_eq!(is_served(&service, &ca, None), [false; 4]);
    assert_eq!(is_served(&service, &ca, Some(&others)), [false; 4]);
    let reasons: Vec<_> = service
        .wait_for_logs("a TLS handshake failed", 8)
        .iter()
        .map(|line| line["reason"].as_str().unwrap().to_owned())
        .collect();
    let expected = "the client has no certificate";
    assert!(reasons.iter().any(|it| it == expected), "{reasons:?}");

    let (server, file) = (url(&service), |path: std::path::PathBuf| {
        path.to_str().unwrap().to_owned()
    });
    let (cert, key) = (
        file(certificates.client_cert()),
        file(certificates.client_key()),
    );
    let mut arguments = vec!["check", "--server", &server, "--request", CHECK];
    let ca = file(ca);
    arguments.extend(["--ca", &ca]);
    assert_eq!(service.dir.run(&arguments).code, Some(69));
    arguments.extend(["--cert", &cert, "--key", &key]);
    let run = service.dir.run(&arguments);
    assert!(run.stdout.contains("\"allowed\":"), "{run:?}");
}

#[test]
fn clients_without_tls_are_refused_counted_and_logged_a_few_times() {
    const CLIENTS: usize = 60;
    let certificates = Certificates::generate();
    let service = start(&certificates, "");
    let mut http = service.http();
    for _ in 0..CLIENTS {
        assert!(http.try_request("GET", "/livez", &[], "").is_err());
    }
    let line = service.wait_for_log("a TLS handshake failed");
    assert_eq!(line["listener"], "api");
    assert_eq!(line["reason"], "the client does not speak TLS");
    let expected = format!("fluxgate_tls_handshake_failures_total{{listener=\"api\"}} {CLIENTS}\n");
    // The client sees the failure before it is counted.
    wait_until("each is counted", || {
        let metrics = curl(&service, &certificates.ca(), None, &[], "/metrics");
        text(&metrics).contains(&expected)
    });
    let logged = service.logs("a TLS handshake failed").len();
    assert!(logged < CLIENTS / 2, "{logged}");
}

#[test]
fn handshakes_that_never_end_do_not_keep_others_out() {
    let certificates = Certificates::generate();
    let service = start(&certificates, "");
    let silent: Vec<_> = (0..200)
        .map(|_| TcpStream::connect(service.address("api")).unwrap())
        .collect();
    // The beginning of a record that does not come.
    for mut stream in &silent {
        stream.write_all(&[22, 3, 1, 2, 0]).unwrap();
    }
    assert_eq!(is_served(&service, &certificates.ca(), None), [true; 4]);
    // They do not delay the shutdown either.
    service.program.signal("TERM");
    assert_eq!(service.program.wait().code(), Some(0));
}

/// Sends a request on one connection for each line of its input.
const KEEP_ALIVE: &str = "import socket, ssl, sys
port, ca = int(sys.argv[1]), sys.argv[2]
context = ssl.create_default_context(cafile=ca)
stream = context.wrap_socket(socket.create_connection(('localhost', port)), server_hostname='localhost')
for _ in sys.stdin:
    stream.sendall(b'GET /livez HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')
    print(stream.recv(4096).decode().split('\\r\\n')[0], flush=True)";

#[test]
fn a_new_certificate_is_used_and_connections_stay() {
    let (old, new) = (Certificates::generate(), Certificates::generate());
    let service = start(&old, "");
    let port = service.address("api").port().to_string();
    let mut client = Command::new(python())
        .args(["-c", KEEP_ALIVE, &port])
        .arg(old.ca())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = client.stdin.take().unwrap();
    let mut stdout = BufReader::new(client.stdout.take().unwrap());
    let mut request = || {
        writeln!(stdin).unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "HTTP/1.1 200 OK");
    };
    request();

    service.dir.write("tls.crt", "not a certificate");
    service.program.signal("HUP");
    for message in [
        "the API keeps its certificate",
        "the gateway keeps its certificate",
        "the gRPC listener keeps its certificate",
        "the RESP listener keeps its certificate",
    ] {
        service.wait_for_log(message);
    }
    let line = service.wait_for_log("the API keeps its certificate");
    let error = line["error"].as_str().unwrap();
    assert!(
        error.starts_with("`listen.api.tls.cert`: tls.crt: "),
        "{line}"
    );
    request();

    copy(&new, &service.dir);
    service.program.signal("HUP");
    // A connection that is idle for long would be closed.
    wait_until("the new certificate is used", || {
        request();
        is_served(&service, &new.ca(), None) == [true; 4]
    });
    service.wait_for_log("the API uses a new certificate");
    request();
    assert_eq!(is_served(&service, &old.ca(), None), [false; 4]);
    request();
    drop(stdin);
    assert!(client.wait().unwrap().success());
}

#[test]
fn the_documented_clients_are_served() {
    let certificates = Certificates::generate();
    let service = start(&certificates, ", client_ca: ca.pem");
    fs::copy(certificates.client_cert(), service.dir.path("client.pem")).unwrap();
    fs::copy(certificates.client_key(), service.dir.path("client.key")).unwrap();
    let mut commands = 0;
    for block in docs::blocks("text tls-clients") {
        for line in block.text.lines() {
            let command = line
                .replace("8081", &service.address("api").port().to_string())
                .replace("8083", &service.address("resp").port().to_string());
            let command = match command.strip_prefix("fluxgate ") {
                Some(arguments) => format!("{} {arguments}", env!("CARGO_BIN_EXE_fluxgate")),
                None => command,
            };
            let output = Command::new("bash")
                .args(["-c", &command])
                .current_dir(service.dir.path(""))
                .output()
                .unwrap();
            let shown = String::from_utf8_lossy(&output.stdout);
            let is_good = ["ok", "PONG"].contains(&shown.trim()) || shown.contains("api/r");
            assert!(output.status.success() && is_good, "{line}: {output:?}");
            commands += 1;
        }
    }
    assert_eq!(commands, 3);
}

#[test]
fn a_client_authority_can_be_replaced() {
    let (old, new) = (Certificates::generate(), Certificates::generate());
    let service = start(&old, ", client_ca: ca.pem");
    let serves = |client| is_served(&service, &old.ca(), Some(client)) == [true; 4];
    assert!(serves(&old) && !serves(&new));
    fs::copy(new.ca(), service.dir.path("ca.pem")).unwrap();
    service.program.signal("HUP");
    wait_until("the new authority is used", || serves(&new));
    assert_eq!(is_served(&service, &old.ca(), Some(&old)), [false; 4]);
}

#[test]
fn invalid_files_prevent_the_start_and_are_named() {
    let certificates = Certificates::generate();
    let dir = Dir::new();
    copy(&certificates, &dir);
    dir.write("none.pem", "none\n");
    for (tls, expected) in [
        (
            "cert: none.pem, key: tls.key",
            "`listen.api.tls.cert`: none.pem: no certificates in PEM",
        ),
        (
            "cert: tls.crt, key: none.pem",
            "`listen.api.tls.key`: none.pem: no private key in PEM",
        ),
        (
            "cert: tls.crt, key: tls.key, client_ca: none.pem",
            "`listen.api.tls.client_ca`: none.pem: no certificates in PEM",
        ),
        (
            "cert: tls.crt, key: tls.key, client_ca: gone.pem",
            "`listen.api.tls.client_ca`: gone.pem: No such file",
        ),
    ] {
        dir.write(
            "fluxgate.yaml",
            format!("listen: {{ api: {{ address: '127.0.0.1:0', tls: {{ {tls} }} }} }}\n"),
        );
        let run = dir.run(&["run", "--config", "fluxgate.yaml"]);
        assert_eq!(run.code, Some(78), "{run:?}");
        assert!(run.stderr.starts_with("fluxgate.yaml:1:"), "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?}");
    }
}

#[test]
fn without_tokens_admin_calls_need_a_loopback_address_with_tls_too() {
    let certificates = Certificates::generate();
    for (address, expected) in [("127.0.0.1:0", "HTTP/2 200"), ("0.0.0.0:0", "HTTP/2 403")] {
        let dir = Dir::new();
        copy(&certificates, &dir);
        let listen = format!(
            "listen: {{ api: {{ address: '{address}', tls: {{ cert: tls.crt, key: tls.key }} }} }}\n"
        );
        dir.write("fluxgate.yaml", listen + TWO_A_SECOND);
        let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
        let path = "/v1/state?rule_set=api&rule=r&identity=u";
        let answer = text(&curl(&service, &certificates.ca(), None, &[], path));
        assert!(answer.starts_with(expected), "{address}: {answer}");
    }
}

#[test]
fn a_client_without_tls_gets_an_alert_and_the_end() {
    let certificates = Certificates::generate();
    let service = start(&certificates, "");
    let mut stream = TcpStream::connect(service.address("resp")).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    // An alert, and the end.
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.first(), Some(&21), "{answer:?}");
}
