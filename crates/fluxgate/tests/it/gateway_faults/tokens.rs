//! Users from tokens: only verified claims count, in the gateway and in `/v1/forward_auth`.

use std::fs;
use std::sync::{Arc, Mutex};

use fluxgate_testkit::tokens::{
    AUDIENCE, ISSUER, TokenKey, claims_of, hostile_tokens, jwks, key_server, unix_now,
};
use fluxgate_testkit::{Certificates, RawUpstream, WireAnswer, wait_until};

use super::{TRANSPORTS, client, config, ok_upstream};
use crate::service::Service;
use crate::support::Dir;

/// Only requests with a user are limited, so the headers of the response show which have one.
const RULES: &str = "
rule_sets:
  s: { rules: [ { id: r, scope: per_user, on_missing_key: skip, bands: [ { capacity: 100000, window: 1h } ] } ] }
";

/// Returns the filters `lenient` and `strict`, which verify tokens with these keys.
fn filters(keys: &str) -> String {
    let filter = |on_invalid: &str| {
        format!(
            "{{ rule_set: s, identity: {{ user: 'jwt:sub' }}, jwt: {{ {keys}, issuer: '{ISSUER}', \
             audience: [{AUDIENCE}, mobile], leeway: 5m, on_invalid: {on_invalid} }} }}"
        )
    };
    let (lenient, strict) = (filter("anonymous"), filter("deny"));
    format!("filters:\n  lenient: {lenient}\n  strict: {strict}\n{RULES}")
}

/// Starts a gateway whose routes `/lenient` and `/strict` have these filters.
fn start_in(dir: Dir, upstream: &RawUpstream, keys: &str) -> Service {
    Service::start_in(dir, &["gateway"], &gateway_config(upstream, keys))
}

fn gateway_config(upstream: &RawUpstream, keys: &str) -> String {
    let address = upstream.address();
    let route = |name: &str| {
        format!(
            "    - {{ id: {name}, match: {{ path: ['/{name}'] }}, \
             upstreams: ['http://{address}'], filters: [{name}] }}\n"
        )
    };
    let routes = route("lenient") + &route("strict");
    format!("gateway:\n  routes:\n{routes}{}", filters(keys))
}

fn start(upstream: &RawUpstream, key: &TokenKey) -> Service {
    let dir = Dir::new();
    dir.write("jwks.json", jwks([key]));
    start_in(dir, upstream, "jwks_file: jwks.json")
}

/// Sends a request with these header lines to the gateway.
fn get(service: &Service, target: &str, lines: &str) -> WireAnswer {
    let mut client = client(service);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
    client.read_answer().unwrap()
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn identifies(service: &Service, token: &str) -> bool {
    let answer = get(service, "/lenient", &bearer(token));
    assert_eq!(answer.status, 200);
    !answer.values("ratelimit").is_empty()
}

#[test]
fn hostile_tokens_never_yield_an_identity_in_the_gateway() {
    let upstream = ok_upstream();
    let key = TokenKey::new("RS256", "a");
    let service = start(&upstream, &key);
    let now = unix_now();
    let good = key.token(&claims_of("ann", now));
    for transport in TRANSPORTS {
        for path in ["/lenient", "/strict"] {
            let known = get(&service, path, &(bearer(&good) + transport));
            assert_eq!(known.status, 200);
            assert_eq!(known.values("ratelimit").len(), 1);
            let anonymous = get(&service, path, transport);
            assert_eq!(anonymous.status, 200);
            assert_eq!(anonymous.values("ratelimit"), [""; 0]);
            // The same token twice, then two different tokens.
            let twice = bearer(&good) + &bearer(&good) + transport;
            assert_eq!(get(&service, path, &twice).status, 200);
            let other = key.token(&claims_of("bob", now));
            let differing = bearer(&good) + &bearer(&other) + transport;
            assert_eq!(get(&service, path, &differing).status, 400);
        }
        for (flaw, token) in hostile_tokens(&key, now) {
            let lines = bearer(&token) + transport;
            let lenient = get(&service, "/lenient", &lines);
            assert_eq!(lenient.status, 200, "{flaw}");
            assert_eq!(lenient.values("ratelimit"), [""; 0], "{flaw}");
            let forwarded = upstream.requests().len();
            let strict = get(&service, "/strict", &lines);
            assert_eq!(strict.status, 401, "{flaw}");
            let challenge = "Bearer error=\"invalid_token\"";
            assert_eq!(strict.values("www-authenticate"), [challenge], "{flaw}");
            let kind = strict.values("content-type");
            assert_eq!(kind, ["application/problem+json"], "{flaw}");
            assert!(strict.text().contains("\"status\":401"), "{flaw}");
            assert!(!strict.is_last(), "the connection can be reused");
            assert_eq!(upstream.requests().len(), forwarded, "{flaw}");
        }
    }
}

#[test]
fn the_log_says_why_a_token_is_invalid_and_the_client_does_not_learn_it() {
    let upstream = ok_upstream();
    let key = TokenKey::new("RS256", "a");
    let dir = Dir::new();
    dir.write("jwks.json", jwks([&key]));
    let config = gateway_config(&upstream, "jwks_file: jwks.json");
    let config = format!("telemetry: {{ level: debug }}\n{config}");
    let service = Service::start_in(dir, &["gateway"], &config);
    let now = unix_now();
    let expired = key.token(&claims_of("ann", now - 1_000_000));
    let forged = TokenKey::other("RS256", "a").token(&claims_of("ann", now));
    let unknown = TokenKey::other("RS256", "b").token(&claims_of("ann", now));
    for (token, why) in [
        (expired, "it has expired"),
        (
            forged,
            "the key with its `kid` does not verify its signature",
        ),
        (unknown, "no key has its `kid` and is for its `alg`"),
        ("x.y.z".into(), "it is malformed"),
    ] {
        let answer = get(&service, "/strict", &bearer(&token));
        assert!(!answer.text().contains(why), "{}", answer.text());
        let field = format!("\"why\":\"{why}\"");
        let is_logged = |line: &str| line.contains(&field).then_some(());
        service.program.wait_for_line(why, is_logged);
        assert_eq!(get(&service, "/lenient", &bearer(&token)).status, 200);
        let lines = service.program.lines();
        assert!(!lines.iter().any(|line| line.contains(&token)));
    }
}

#[test]
fn hostile_tokens_never_yield_an_identity_in_forward_auth() {
    let upstream = ok_upstream();
    let key = TokenKey::new("RS256", "a");
    let service = start(&upstream, &key);
    let mut http = service.http();
    let mut ask = |filter: &str, authorization: &[String]| {
        let mut headers = vec![("X-Forwarded-Method", "GET"), ("X-Forwarded-Uri", "/x")];
        headers.extend(
            authorization
                .iter()
                .map(|value| ("Authorization", &**value)),
        );
        let target = format!("/v1/forward_auth?filter={filter}");
        http.request("GET", &target, &headers, "")
    };
    let now = unix_now();
    let bearer = |token: &str| format!("Bearer {token}");
    let good = bearer(&key.token(&claims_of("ann", now)));
    for filter in ["lenient", "strict"] {
        let known = ask(filter, std::slice::from_ref(&good));
        assert_eq!(known.status, 200);
        assert!(known.header("ratelimit").is_some());
        let anonymous = ask(filter, &[]);
        assert_eq!(
            (anonymous.status, anonymous.header("ratelimit")),
            (200, None)
        );
        let other = bearer(&key.token(&claims_of("bob", now)));
        assert_eq!(ask(filter, &[good.clone(), other]).status, 400);
    }
    for (flaw, token) in hostile_tokens(&key, now) {
        let token = [bearer(&token)];
        let lenient = ask("lenient", &token);
        assert_eq!(
            (lenient.status, lenient.header("ratelimit")),
            (200, None),
            "{flaw}"
        );
        let strict = ask("strict", &token);
        assert_eq!(strict.status, 401, "{flaw}");
        let challenge = strict.header("www-authenticate");
        assert_eq!(challenge, Some("Bearer error=\"invalid_token\""), "{flaw}");
        let kind = strict.header("content-type");
        assert_eq!(kind, Some("application/problem+json"), "{flaw}");
    }
}

#[test]
fn every_kind_of_source_works_in_the_gateway_and_in_forward_auth() {
    let upstream = ok_upstream();
    let secret = "a secret of at least thirty-two bytes";
    let dir = Dir::new();
    dir.write("secret", format!("{secret}\n"));
    let filter = "filters:
  main:
    rule_set: s
    identity: { user: 'query:user', api_key: 'cookie:key' }
    attributes: { tenant: 'header:X-Tenant-Id', plan: 'jwt:account.plan' }
    jwt: { from: 'query:token', secret_file: secret }
rule_sets:
  s:
    rules:
      - { id: user, scope: per_user, on_missing_key: skip, bands: [ { capacity: 1000, window: 1h } ] }
      - { id: key, scope: per_api_key, on_missing_key: skip, bands: [ { capacity: 1000, window: 1h } ] }
      - { id: tenant, key: ['attr:tenant'], on_missing_key: skip, bands: [ { capacity: 1000, window: 1h } ] }
      - { id: pro, scope: global, match: { attributes: { plan: pro } }, bands: [ { capacity: 1000, window: 1h } ] }
";
    let config = config(&[upstream.address()], "main", "");
    let service = Service::start_in(dir, &["gateway"], &format!("{config}{filter}"));
    let key = TokenKey::of_secret("HS384", "any", secret.as_bytes());
    let token = key.token(r#"{"account":{"plan":"pro"}}"#);
    for (query, headers, rules) in [
        ("", &[][..], &[][..]),
        ("?user=ann", &[], &["user"]),
        ("?user=", &[], &[]),
        ("", &[("Cookie", "a=b; key=k")], &["key"]),
        ("", &[("X-Tenant-Id", "acme")], &["tenant"]),
        (&format!("?token={token}"), &[], &["pro"]),
        (&format!("?token={}", &token[1..]), &[], &[]),
        (
            &format!("?token={token}&user=ann"),
            &[("Cookie", "key=k"), ("X-Tenant-Id", "acme")],
            &["user", "key", "tenant", "pro"],
        ),
    ] {
        let lines = |headers: &[(&str, &str)]| {
            let lines = headers.iter();
            let lines = lines.map(|(name, value)| format!("{name}: {value}\r\n"));
            lines.collect::<String>()
        };
        for transport in TRANSPORTS {
            let lines = lines(headers) + transport;
            let answer = get(&service, &format!("/x{query}"), &lines);
            assert_eq!(answer.status, 200);
            let policy = answer.values("ratelimit-policy").concat();
            for rule in ["user", "key", "tenant", "pro"] {
                let applies = policy.contains(&format!("\"{rule}/b0\""));
                assert_eq!(
                    applies,
                    rules.contains(&rule),
                    "{query} {headers:?}: {rule}"
                );
            }
        }
        let uri = format!("/x{query}");
        let described = [("X-Forwarded-Method", "GET"), ("X-Forwarded-Uri", &uri)];
        let all: Vec<_> = described.iter().chain(headers).copied().collect();
        let answer = service.http().request("GET", "/v1/forward_auth", &all, "");
        assert_eq!(answer.status, 200);
        let policy = answer.header("ratelimit-policy").unwrap_or_default();
        for rule in rules {
            assert!(policy.contains(&format!("\"{rule}/b0\"")), "{uri}: {rule}");
        }
    }
    for (target, lines) in [
        ("/x?user=a&user=b", ""),
        ("/x?token=a&token=b", ""),
        ("/x", "Cookie: key=a; key=b\r\n"),
        ("/x", "X-Tenant-Id: a\r\nX-Tenant-Id: b\r\n"),
    ] {
        for transport in TRANSPORTS {
            let answer = get(&service, target, &format!("{lines}{transport}"));
            assert_eq!(answer.status, 400, "{target} {lines}");
        }
    }
    let lookalike = "X-Tenant-Id: acme\r\nX_Tenant_Id: evil\r\n";
    assert_eq!(get(&service, "/lookalike", lookalike).status, 200);
    let requests = upstream.requests();
    let seen = requests
        .iter()
        .find(|it| it.target == "/lookalike")
        .unwrap();
    assert_eq!(seen.values("x_tenant_id"), [""; 0]);
}

#[test]
fn the_service_follows_a_key_file() {
    let upstream = ok_upstream();
    let (old, new) = (TokenKey::new("ES256", "old"), TokenKey::new("ES256", "new"));
    let claims = claims_of("ann", unix_now());
    let service = start(&upstream, &old);
    let (old_token, new_token) = (old.token(&claims), new.token(&claims));
    assert!(identifies(&service, &old_token));
    let path = service.dir.path("jwks.json");
    fs::write(&path, "{").unwrap();
    service.wait_for_log("cannot renew the keys: tokens are still verified by the previous ones");
    assert!(identifies(&service, &old_token));
    service.dir.write("new.json", jwks([&new]));
    fs::rename(service.dir.path("new.json"), &path).unwrap();
    wait_until("the new key is used", || identifies(&service, &new_token));
    assert!(!identifies(&service, &old_token), "it was cached");
}

/// A gateway with TLS, in front of a plain upstream, serves the keys.
#[test]
fn the_service_fetches_keys_over_tls_before_it_listens() {
    let upstream = ok_upstream();
    let [first, second] = ["1", "2"].map(|id| TokenKey::new("EdDSA", id));
    let response = Arc::new(Mutex::new(("200 OK", jwks([&first]))));
    let keys = key_server(&response);
    let certificates = Certificates::generate();
    let tls = format!(
        "  tls: {{ cert: {:?}, key: {:?} }}\n",
        certificates.server_cert(),
        certificates.server_key()
    );
    let issuer = Service::start(&["gateway"], &config(&[keys.address()], "", &tls));
    let port = issuer.address("gateway").port();
    let dir = Dir::new();
    dir.write("ca.pem", fs::read(certificates.ca()).unwrap());
    let listen = "listen: { api: '127.0.0.1:0', gateway: '127.0.0.1:0' }\n";
    let url = format!("jwks_url: 'https://localhost:{port}/jwks'");
    let config = format!("{listen}{}", gateway_config(&upstream, &url));
    dir.write("fluxgate.yaml", config);
    let arguments = [
        "SSL_CERT_FILE=ca.pem",
        env!("CARGO_BIN_EXE_fluxgate"),
        "run",
    ];
    let arguments = [&arguments[..], &["--config", "fluxgate.yaml"]].concat();
    let service = Service::open_by(dir, "/usr/bin/env".as_ref(), &arguments, 2);
    service.wait_until_ready();
    let claims = claims_of("ann", unix_now());
    assert!(identifies(&service, &first.token(&claims)));
    assert_eq!(keys.requests()[0].target, "/jwks");
    response.lock().unwrap().1 = jwks([&second]);
    wait_until("the second key is used", || {
        identifies(&service, &second.token(&claims))
    });
    assert!(
        !identifies(&service, &first.token(&claims)),
        "it was cached"
    );
}

#[test]
fn the_service_starts_without_the_keys_and_says_so() {
    let upstream = ok_upstream();
    // Nothing listens there.
    let port = fluxgate_testkit::ports::free();
    let port = port.number();
    let url = format!("jwks_url: 'http://127.0.0.1:{port}/'");
    let service = start_in(Dir::new(), &upstream, &url);
    let key = TokenKey::new("EdDSA", "1");
    assert!(!identifies(
        &service,
        &key.token(&claims_of("ann", unix_now()))
    ));
    service.wait_for_log("there are no keys yet: all tokens are invalid");
}

#[test]
fn keys_that_cannot_be_read_end_the_start() {
    for (content, why) in [
        (None, "No such file or directory"),
        (Some("{}"), "expected a JSON Web Key Set"),
        (
            Some("{\"keys\":[]}"),
            "there is no key that can verify signatures",
        ),
    ] {
        let dir = Dir::new();
        if let Some(content) = content {
            dir.write("jwks.json", content);
        }
        dir.write("fluxgate.yaml", filters("jwks_file: jwks.json"));
        let run = dir.run(&["run", "--config", "fluxgate.yaml"]);
        assert_eq!(run.code, Some(78), "{run:?}");
        assert!(
            run.stderr.contains("filters.lenient.jwt: jwks.json: "),
            "{run:?}"
        );
        assert!(run.stderr.contains(why), "{run:?}");
    }
}

#[test]
fn sources_that_clients_control_are_warned_of_once() {
    let rule = |id: &str, scope: &str| {
        format!("{{ id: {id}, scope: {scope}, bands: [ {{ capacity: 1, window: 1s }} ] }}")
    };
    let config = |rules: &[String]| {
        format!(
            "filters:
  plain: {{ rule_set: s }}
  named: {{ rule_set: s, attributes: {{ tenant: 'query:t' }} }}
  behind: {{ rule_set: s, identity: {{ user: 'header:X-User' }}, trusted_proxies: [10.0.0.0/8] }}
rule_sets: {{ s: {{ rules: [ {} ] }} }}\n",
            rules.join(", ")
        )
    };
    let message = |filter: &str, field: &str, source: &str| {
        format!(
            "filter `{filter}`: `{field}` comes from `{source}`, which every client can set, and \
             the filter trusts no proxy: a client can change it to evade its limits; use a claim \
             of a verified token (`jwt:sub`), or list in `trusted_proxies` the proxy that sets \
             and strips it"
        )
    };
    let per_ip = rule("ip", "per_ip");
    let service = Service::start(&[], &config(std::slice::from_ref(&per_ip)));
    let named = message("named", "attributes.tenant", "query:t");
    let log = service.wait_for_log(&named);
    assert_eq!(log["level"], "WARN");
    let users = message("plain", "identity.user", "header:x-user-id");
    assert!(service.logs(&users).is_empty(), "no rule counts users yet");
    let listen = service.dir.read("fluxgate.yaml");
    let listen = listen.lines().next().unwrap();
    let rules = [per_ip, rule("user", "per_user")];
    service
        .dir
        .write("fluxgate.yaml", format!("{listen}\n{}", config(&rules)));
    service.wait_for_log(&users);
    assert_eq!(service.logs(&named).len(), 1);
    assert!(
        service
            .logs(&message("behind", "identity.user", "header:x-user"))
            .is_empty()
    );
    let keys = message("plain", "identity.api_key", "header:x-api-key");
    assert!(service.logs(&keys).is_empty());
}
