//! Servers that want a password, a certificate or TLS.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fluxgate_testkit::{Certificates, ClientAuth, wait_until};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, doc};
use ring::{digest, hmac, pbkdf2};

use super::document;
use super::message_proxy::{Interceptor, MessageProxy, refusal};
use super::server::{FerretDb, RuleWriter};
use crate::rule_sources::POLL;
use crate::service::{Service, limit};
use crate::support::Dir;

const NO_RULES: &str = "there are no rules yet";
const RUN: [&str; 3] = ["run", "--config", "fluxgate.yaml"];

/// Returns a directory with a service that reads the connection string in the file `url`.
fn service_with(url: &str) -> Dir {
    let dir = Dir::new();
    dir.write("url", url);
    let poll = POLL.as_millis();
    let config = format!(
        "listen: {{ api: \"127.0.0.1:0\" }}\ntelemetry: {{ level: debug }}\n\
         rules_from: {{ mongodb: {{ url_file: url }}, poll: {poll}ms }}\n"
    );
    dir.write("fluxgate.yaml", config);
    dir
}

/// Waits until the service has said why it has no rules.
#[track_caller]
fn why_no_rules(service: &Service, expected: &str) {
    wait_until(expected, || {
        let lines = service.logs(NO_RULES);
        let mut reasons = lines.iter().filter_map(|line| line["why"].as_str());
        reasons.any(|why| why.contains(expected))
    });
    assert_eq!(service.http().get("/readyz").status, 503);
}

#[test]
fn a_user_logs_in_with_a_password_that_may_be_replaced() {
    let server = FerretDb::start();
    let writer = RuleWriter::connect(server.address);
    writer.insert([document("a", "api", doc! {})]);
    let guarded = MessageProxy::start(server.address, || Login::of("ann", "hu/sh"));
    let options = "authSource=admin&authMechanism=SCRAM-SHA-256";
    let url = |login: &str| format!("mongodb://{login}{}/?{options}\n", guarded.address);
    let service = Service::open_in(service_with(&url("ann:wrong-one@")), &RUN, 1);
    why_no_rules(&service, "SCRAM failure");
    service.dir.write("url", url("ann:hu%2Fsh@"));
    service.wait_until_ready();
    let mut http = service.http();
    assert_eq!(limit(&mut http, "api"), Some(5));
    // An account that loses its password keeps the rules that it had.
    service.dir.write("url", url("bob:other-one@"));
    service.wait_for_log("the rules cannot be read; the active rules stay");
    assert_eq!(limit(&mut http, "api"), Some(5));
    service.dir.write("url", url("ann:hu%2Fsh@"));
    let bands = doc! { "bands": [ { "windowSeconds": 3600, "capacity": 6 } ] };
    writer.upsert(&document("a", "api", bands));
    wait_until("the change", || limit(&mut http, "api") == Some(6));
    let lines = service.program.lines().join("\n");
    for secret in ["wrong-one", "hu%2Fsh", "hu/sh", "other-one"] {
        assert!(!lines.contains(secret), "{lines}");
    }
}

#[test]
fn a_server_may_refuse_users_without_a_name() {
    let server = FerretDb::start();
    let guarded = MessageProxy::start(server.address, || Login::of("ann", "hush"));
    let url = format!("mongodb://{}", guarded.address);
    let service = Service::open_in(service_with(&url), &RUN, 1);
    why_no_rules(&service, "code 13: command find requires authentication");
}

#[test]
fn tls_is_verified_with_the_named_authority() {
    let files = Certificates::generate();
    let server = FerretDb::start_with_tls(&files, ClientAuth::Off);
    let ca = files.ca().display().to_string();
    let trusting = format!("mongodb://{}/?tls=true&tlsCAFile={ca}", server.address);
    let writer = RuleWriter::by_url(&trusting, "fluxgate", "rate_limit_rules");
    writer.insert([document("a", "api", doc! {})]);
    let service = Service::open_in(
        service_with(&format!("mongodb://{}/?tls=true", server.address)),
        &RUN,
        1,
    );
    why_no_rules(&service, "certificate");
    service.dir.write("url", &trusting);
    service.wait_until_ready();
    assert_eq!(limit(&mut service.http(), "api"), Some(5));
    // Another authority signs for the same names.
    let other = Certificates::generate();
    let other_ca = other.ca().display().to_string();
    let url = format!(
        "mongodb://{}/?tls=true&tlsCAFile={other_ca}",
        server.address
    );
    let service = Service::open_in(service_with(&url), &RUN, 1);
    why_no_rules(&service, "certificate");
}

#[test]
fn a_server_may_want_a_certificate() {
    let files = Certificates::generate();
    let server = FerretDb::start_with_tls(&files, ClientAuth::Required);
    let ca = files.ca().display().to_string();
    let anonymous = format!("mongodb://{}/?tls=true&tlsCAFile={ca}", server.address);
    let service = Service::open_in(service_with(&anonymous), &RUN, 1);
    service.wait_for_log(NO_RULES);
    let both = [files.client_cert(), files.client_key()].map(Certificates::read);
    service.dir.write("client.pem", both.concat());
    let client = service.dir.path("client.pem").display().to_string();
    let url = format!("{anonymous}&tlsCertificateKeyFile={client}");
    let writer = RuleWriter::by_url(&url, "fluxgate", "rate_limit_rules");
    writer.insert([document("a", "api", doc! {})]);
    service.dir.write("url", &url);
    service.wait_until_ready();
    assert_eq!(limit(&mut service.http(), "api"), Some(5));
}

/// What a server does that knows one user: SCRAM-SHA-256 (RFC 7677), and no command before it.
struct Login {
    user: &'static str,
    password: &'static str,
    /// The messages so far, as both sides sign them.
    signed: String,
    is_done: bool,
}

const SALT: &[u8] = b"salt of the tests";
const ITERATIONS: u32 = 4096;

impl Login {
    fn of(user: &'static str, password: &'static str) -> Self {
        Self {
            user,
            password,
            signed: String::new(),
            is_done: false,
        }
    }

    /// Answers the first message, `n,,n=USER,r=NONCE`.
    fn challenge(&mut self, payload: &str) -> Option<String> {
        let bare = payload.strip_prefix("n,,")?;
        let (user, nonce) = bare.strip_prefix("n=")?.split_once(",r=")?;
        if user != self.user {
            return None;
        }
        let salt = STANDARD.encode(SALT);
        let challenge = format!("r={nonce}server,s={salt},i={ITERATIONS}");
        self.signed = format!("{bare},{challenge}");
        Some(challenge)
    }

    /// Answers the last message, `c=biws,r=NONCE,p=PROOF`, if the proof is right.
    fn verify(&mut self, payload: &str) -> Option<String> {
        let (unproven, proof) = payload.split_once(",p=")?;
        let proof = STANDARD.decode(proof).ok()?;
        let mut salted = [0; digest::SHA256_OUTPUT_LEN];
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            ITERATIONS.try_into().ok()?,
            SALT,
            self.password.as_bytes(),
            &mut salted,
        );
        let sign =
            |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
        let signed = format!("{},{unproven}", self.signed);
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
        let signature = sign(stored_key.as_ref(), signed.as_bytes());
        let pairs = client_key.as_ref().iter().zip(signature.as_ref());
        if !pairs.map(|(key, signature)| key ^ signature).eq(proof) {
            return None;
        }
        self.is_done = true;
        let server_key = sign(&salted, b"Server Key");
        let signature = sign(server_key.as_ref(), signed.as_bytes());
        Some(format!("v={}", STANDARD.encode(signature)))
    }
}

impl Interceptor for Login {
    fn answer(&mut self, command: &Document) -> Option<Document> {
        let name = command.keys().next()?.as_str();
        let payload = command.get_binary_generic("payload").map(Vec::as_slice);
        let payload = payload.map(String::from_utf8_lossy).unwrap_or_default();
        let reply = match name {
            "saslStart" => self.challenge(&payload),
            "saslContinue" => self.verify(&payload),
            "hello" | "isMaster" | "ismaster" | "endSessions" => return None,
            _ if self.is_done => return None,
            _ => {
                let why = format!("command {name} requires authentication");
                return Some(refusal(13, "Unauthorized", &why));
            }
        };
        Some(match reply {
            Some(reply) => doc! {
                "ok": 1.0, "conversationId": 1, "done": self.is_done,
                "payload": Binary { subtype: BinarySubtype::Generic, bytes: reply.into_bytes() },
            },
            None => refusal(18, "AuthenticationFailed", "Authentication failed."),
        })
    }
}
