//! Secrets from files.

use std::path::Path;

use fluxgate::config::{Config, RawConfig, Secrets};

use crate::support::Dir;

fn config(text: &str) -> Config {
    let raw = RawConfig::parse(Path::new("fluxgate.yaml"), text).unwrap();
    raw.check().unwrap()
}

#[test]
fn secrets_are_read_without_their_final_newline_and_never_displayed() {
    let dir = Dir::new();
    let contents = [
        ("password", "hush one\n"),
        ("sentinel", "hush two\r\n"),
        ("ca", "hush 3"),
        ("cert", "hush 4\n\n"),
        ("key", "hush 5\n"),
        ("hash", "hush \n6"),
    ];
    for (name, content) in contents {
        dir.write(name, content);
    }
    let at = |name| dir.path(name).display().to_string();
    let text = format!(
        "
store:
  redis:
    url: rediss://h
    mode: sentinel
    sentinel: {{ master: m, password_file: '{}' }}
    password_file: '{}'
    tls: {{ ca: '{}', cert: '{4}', key: '{3}' }}
keys: {{ hash_secret_file: '{5}' }}
",
        at("sentinel"),
        at("password"),
        at("ca"),
        at("key"),
        at("cert"),
        at("hash"),
    );
    let secrets = Secrets::load(&config(&text)).unwrap();
    let client = secrets.redis_client.as_ref().unwrap();
    let read = [
        secrets.redis_password.as_ref().unwrap(),
        secrets.sentinel_password.as_ref().unwrap(),
        secrets.redis_ca.as_ref().unwrap(),
        &client.0,
        &client.1,
        secrets.hash_secret.as_ref().unwrap(),
    ];
    let texts = read.map(|secret| secret.as_text().unwrap());
    assert_eq!(
        texts,
        [
            "hush one", "hush two", "hush 3", "hush 4\n", "hush 5", "hush \n6"
        ]
    );
    assert!(!format!("{secrets:?}").contains("hush"));
}

#[test]
fn a_secret_that_cannot_be_read_is_reported_with_its_field() {
    let dir = Dir::new();
    dir.write("empty", "\n");
    dir.write("bytes", b"\xff\xfe");
    let large = vec![b'x'; (1 << 20) + 1];
    dir.write("large", large);
    let cases = [
        ("nowhere", "No such file or directory"),
        ("empty", "the file is empty"),
        ("bytes", "the file is not UTF-8"),
        ("large", "the file is larger than"),
    ];
    for (name, what) in cases {
        let path = dir.path(name);
        let text = format!(
            "store: {{ redis: {{ url: 'redis://h', password_file: '{}' }} }}",
            path.display()
        );
        let error = Secrets::load(&config(&text)).unwrap_err().to_string();
        let beginning = format!("`store.redis.password_file`: {}: {what}", path.display());
        assert!(error.starts_with(&beginning), "{error}");
    }
}

#[test]
fn the_debug_output_of_a_config_has_no_password() {
    let config = config("{ store: { redis: { url: 'redis://u:hush@h' } } }");
    assert!(!format!("{config:?}").contains("hush"));
}
