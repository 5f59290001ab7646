//! Compares the gateway with nginx and HAProxy, which limit the same requests and forward them to
//! the same upstream. The load comes from `wrk`, or from `h2load` for HTTP/2.

use std::net::SocketAddr;

use fluxgate_testkit::RedisServer;
use fluxgate_testkit::tokens::{TokenKey, jwks, unix_now};

use crate::haproxy::HaProxy;
use crate::load::{Run, Runs, in_turn};
use crate::nginx::Nginx;
use crate::report::Report;
use crate::service::TempDir;
use crate::service::{self, Service};
use crate::tls::{self, Tls};
use crate::{h2load, wrk};

/// What the upstream answers.
pub(crate) const ANSWER: &str = "hello, world";
const USER: &str = "x-user-id: user-00000001";
const BY_NGINX: &str = "nginx, limit_req";
const BY_HAPROXY: &str = "HAProxy, stick table";

pub(crate) fn run(report: &mut Report) {
    let dir = TempDir::new("gateway");
    let script = wrk::script(&dir, wrk::USERS);
    let upstream = Nginx::start(&dir, "", "text/plain", ANSWER);
    let start = |store: &str, filters| {
        let config = config(&upstream, store, filters, "");
        service::start(&dir, &["gateway"], &config)
    };
    let redis = RedisServer::start();
    let redis = format!("{{ redis: {{ url: \"{}\" }} }}", redis.url());
    let (Some(ours), Some(bare), Some(shared)) = (
        start("memory", "[main]"),
        start("memory", "[]"),
        start(&redis, "[main]"),
    ) else {
        return;
    };
    let nginx = Nginx::limiting(&dir, upstream.address(), None);
    let haproxy = HaProxy::limiting(&dir, upstream.address(), None);
    let ask = |service: &Service| wrk::ask(service.address("gateway"), &script);
    let [by_nginx, limited, passed, by_redis, by_haproxy] = in_turn([
        &mut || wrk::ask(nginx.address(), &script),
        &mut || ask(&ours),
        &mut || ask(&bare),
        &mut || ask(&shared),
        &mut || wrk::ask(haproxy.address(), &script),
    ]);
    let mut line = |name, ours: &Runs, yardstick, theirs| {
        ours.add_to(report, name, yardstick, theirs);
    };
    line("gateway", &limited, BY_NGINX, &by_nginx);
    line("gateway-haproxy", &limited, BY_HAPROXY, &by_haproxy);
    line(
        "gateway-filter",
        &limited,
        "our gateway without a filter",
        &passed,
    );
    line(
        "gateway-redis",
        &by_redis,
        "our gateway on the memory store",
        &limited,
    );
}

/// Compares the three over TLS with HTTP/1.1.
pub(crate) fn tls_h1(report: &mut Report) {
    let name = ["gateway-tls-h1", "gateway-tls-h1-haproxy"];
    compare_over_tls(report, name, |dir, tls, address| {
        let script = wrk::script(dir, wrk::USERS);
        wrk::ask_over_tls(address, &script, tls)
    });
}

/// Compares the three over TLS with HTTP/2, on 32 connections with ten streams each. h2load sends
/// the same headers in all requests, so there is one user.
pub(crate) fn tls_h2(report: &mut Report) {
    let name = ["gateway-tls-h2", "gateway-tls-h2-haproxy"];
    compare_over_tls(report, name, |dir, _, address| {
        let duration = format!("--duration={}s", wrk::SECONDS);
        let suite = format!("--tls13-ciphers={}", tls::SUITE);
        let url = format!("https://{address}/api/x");
        let load = ["-t", "2", "-c", "32", "-m", "10", &duration];
        // The handshakes are not measured.
        let rest = ["--warm-up-time=300ms", &suite, "-H", USER, &url];
        let expected = format!("Cipher: {}\n", tls::SUITE);
        h2load::ask(dir, &[&load[..], &rest].concat(), &expected)
    });
}

/// Compares users from verified tokens with users from a header. Both gateways get the same
/// requests, with the tokens of 100 users in turn.
pub(crate) fn jwt(report: &mut Report) {
    const USERS: usize = 100;
    let dir = TempDir::new("gateway-jwt");
    let key = TokenKey::new("RS256", "bench");
    let keys = dir.file("jwks.json", jwks([&key]));
    let expires = unix_now() + 86_400;
    let tokens = (0..USERS).map(|user| {
        let claims = format!(
            r#"{{"iss":"https://issuer.example","aud":"api","exp":{expires},"sub":"user-{user:08}","email":"user-{user:08}@example.com","scope":"openid profile email"}}"#
        );
        format!("\"{}\"", key.token(&claims))
    });
    let tokens = tokens.collect::<Vec<_>>().join(", ");
    let script = wrk::script(&dir, &wrk::with_tokens(&tokens, USERS));
    let upstream = Nginx::start(&dir, "", "text/plain", ANSWER);
    let start = |filter: &str| {
        let config = config(&upstream, "memory", "[main]", "");
        let config = config.replace("{ rule_set: api }", &format!("{{ rule_set: api{filter} }}"));
        service::start(&dir, &["gateway"], &config)
    };
    let verified = format!(
        ", identity: {{ user: \"jwt:sub\" }}, jwt: {{ jwks_file: {:?}, \
         issuer: \"https://issuer.example\", audience: api, on_invalid: deny }}",
        keys.display().to_string()
    );
    let (Some(ours), Some(plain)) = (start(&verified), start("")) else {
        return;
    };
    let ask = |service: &Service| wrk::ask(service.address("gateway"), &script);
    let [by_token, by_header] = in_turn([&mut || ask(&ours), &mut || ask(&plain)]);
    let yardstick = "our gateway, the user from a header";
    by_token.add_to(report, "gateway-jwt", yardstick, &by_header);
}

fn compare_over_tls(
    report: &mut Report,
    [name, name_haproxy]: [&str; 2],
    ask: impl Fn(&TempDir, &Tls, SocketAddr) -> Run,
) {
    let dir = TempDir::new(name);
    let tls = Tls::generate(&dir);
    let upstream = Nginx::start(&dir, "", "text/plain", ANSWER);
    let config = config(&upstream, "memory", "[main]", &tls.gateway());
    let Some(ours) = service::start(&dir, &["gateway"], &config) else {
        return;
    };
    let nginx = Nginx::limiting(&dir, upstream.address(), Some(&tls));
    let haproxy = HaProxy::limiting(&dir, upstream.address(), Some(&tls));
    let ask = |address| ask(&dir, &tls, address);
    let [by_nginx, ours, by_haproxy] = in_turn([
        &mut || ask(nginx.address()),
        &mut || ask(ours.address("gateway")),
        &mut || ask(haproxy.address()),
    ]);
    ours.add_to(report, name, BY_NGINX, &by_nginx);
    ours.add_to(report, name_haproxy, BY_HAPROXY, &by_haproxy);
}

/// Returns a config with one rule, which counts each user and never denies.
pub(crate) fn config(upstream: &Nginx, store: &str, filters: &str, tls: &str) -> String {
    let upstream = upstream.address();
    format!(
        "store: {store}
filters: {{ main: {{ rule_set: api }} }}
gateway:
  {tls}
  routes:
    - {{ id: all, upstreams: [\"http://{upstream}\"], filters: {filters} }}
rule_sets:
  api:
    rules:
      - {{ id: per-user, scope: per_user, bands: [ {{ id: burst, capacity: 1000000, window: 1s }} ] }}
"
    )
}
